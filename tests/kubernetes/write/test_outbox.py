"""The outbox: what is the same for every kind of writes, in fake time.

`scripts/outbox` has stories of two slices in one process, those of the namespaces a and b. After `> `
something happens: `submit KEY TEXT FIELD=VALUE ...` with a key as `a/owner/item`, or `plain:a/owner` for the
other kind, and the fields of `Note`. `sleep` tells what was written since: from when to when, how that ended,
and by which writer.
"""

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from adapter.errors import KubernetesError, NotLeadingError
from adapter.kubernetes.write.outbox import IDLE, Outbox, OutboxKey, Outlet, SendTime
from adapter.kubernetes.write.writer import WriteKind, Writer, WriteRateLimiter
from adapter.model.autoscaling import slices
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import Defects
from tests.support.clock import LoopClock
from tests.support.scripts import Scripts
from tests.support.waiting import running

ERRORS = {
    "5": KubernetesError(500, "InternalError", "no"),
    "f": NotLeadingError("shut"),
    "d": ZeroDivisionError(),
}


@dataclass(eq=False)
class Note:
    """A value. Its fields are read where they are used, so a wrong one is a defect there."""

    text: str
    at: str = "0"
    then: str = "gone"
    """When it is due, and once it is settled: a time, `never`, or `gone` if it is to be forgotten."""
    rank: str = "0"
    takes: str = "0.1"
    lingers: str = "0"
    """How long a write goes on when it is cancelled."""
    fails: str = ""
    """How its writes fail at first, each by one of `ERRORS`."""
    pause: str = ""
    """Seconds between its tries; without any it is settled by its first failure."""
    last: str = "0"
    drops: str = "0"


class PlainOutlet(Outlet[Note]):
    """A kind with nothing particular: no slot is needed, and none is the last one."""

    kind = WriteKind.STATUS
    unexpected = "unexpected error in a test"
    at_once = 2
    ranks = 2
    needs_slot = False
    said: list[str]

    def due(self, value: Note, now: float) -> SendTime | None:
        if value.at in {"gone", "never"}:
            return IDLE if value.at == "never" else None
        return SendTime(float(value.at), int(value.rank))

    async def send(self, value: Note, writer: Writer) -> None:
        begun, end = now(), "written"
        try:
            await asyncio.sleep(float(value.takes))
            if value.fails:
                failure, value.fails, end = value.fails[0], value.fails[1:], "failed"
                raise ERRORS[failure]
            value.at = value.then
        except asyncio.CancelledError:
            await asyncio.sleep(float(value.lingers))
            end = "cancelled"
            raise
        finally:
            self.said.append(f"{begun:g}-{now():g} {value.text} {end} by {writer}")

    def failed(self, value: Note, error: Exception, tries: int) -> float | None:
        self.said.append(f"{now():g} {value.text} failed as {type(error).__name__}, {tries} in a row")
        value.at = value.at if value.pause else value.then
        return float(value.pause) if value.pause else None


class FullOutlet(PlainOutlet):
    """A kind that has all that one may have."""

    needs_slot = True

    def merge(self, before: Note, new: Note) -> Note:
        if not new.text.startswith("+"):
            return new
        before.text += new.text
        return before

    def ends(self, value: Note) -> bool:
        return bool(float(value.last))

    def dropped(self, value: Note) -> None:
        self.said.append(f"{now():g} {value.text} dropped")
        float(value.drops)

    def size(self, value: Note) -> int:
        return len(value.text.split("+"))


def now() -> float:
    return round(asyncio.get_running_loop().time(), 3)


class OutboxScript:
    """What a line of a script does, and what is said then."""

    def __init__(self) -> None:
        self.clock, self.monitoring = LoopClock(), Monitoring()
        limiter = WriteRateLimiter(1e6, self.clock, self.monitoring)
        self.outbox = Outbox(limiter, self.clock, self.monitoring, Defects(self.monitoring))
        self.said: list[str] = []
        self.outlets = {"plain": PlainOutlet(self.outbox), "": FullOutlet(self.outbox)}
        for outlet in self.outlets.values():
            outlet.said = self.said
        self.notes: dict[str, Note] = {}
        self.running = contextlib.AsyncExitStack()
        self.begin("a", "a1")
        self.begin("b", "b1")

    def begin(self, namespace: str, writer: str) -> None:
        self.outbox.begin(slices.slice_of(namespace), cast("Writer", writer))

    def rate(self, rate: str) -> None:
        self.outbox.limiter = WriteRateLimiter(float(rate), self.clock, self.monitoring)

    async def run(self) -> None:
        await self.running.enter_async_context(running(self.outbox.run()))

    def _place(self, key: str) -> tuple[PlainOutlet, OutboxKey]:
        kind, _, rest = key.rpartition(":")
        return self.outlets[kind], OutboxKey(*rest.split("/"))

    def submit(self, key: str, text: str, *fields: str) -> None:
        given = dict(each.split("=") for each in fields)
        number = slices.slice_of(given.pop("slice")) if "slice" in given else None
        self.notes[key] = note = Note(text, **given)
        outlet, place = self._place(key)
        outlet.submit(place, note, number)

    def withdraw(self, key: str, unsent: str = "") -> str:
        """Forget a value. `unsent`: only if it has this text, and no write of it has begun."""
        last, (outlet, place) = self.notes[key], self._place(key)
        note = None if not unsent else last if last.text == unsent else Note(unsent)
        return "yes" if outlet.withdraw(place, note) else "no"

    async def drain(self, namespace: str, seconds: str) -> None:
        """End the term of a slice beside what follows."""

        async def end() -> None:
            await self.outbox.drain(slices.slice_of(namespace), float(seconds))
            self.said.append(f"{now():g} the term of {namespace} has ended")

        await self.running.enter_async_context(running(end()))
        await asyncio.sleep(0)

    async def sleep(self, seconds: str) -> list[str]:
        await asyncio.sleep(float(seconds))
        said, self.said[:] = [*self.said], []
        return said

    async def turns(self, count: str) -> None:
        for _ in range(int(count)):
            await asyncio.sleep(0)

    def count(self) -> str:
        return self._sample("fastpath_write_queue_length", type=WriteKind.STATUS.label)

    def defects(self) -> str:
        return self._sample("fastpath_scaler_unexpected_errors_total")

    def _sample(self, name: str, **labels: str) -> str:
        return f"{self.monitoring.registry.get_sample_value(name, labels):g}"

    def kept(self) -> str:
        return " ".join(note.text for each in self.outlets.values() for note in each.values())

    def writer(self, namespace: str) -> str:
        try:
            return str(self.outbox.find_writer(namespace))
        except NotLeadingError as error:
            return str(error)


SCRIPTS = Scripts(Path(__file__).parent / "scripts" / "outbox")


@pytest.mark.looptime
@pytest.mark.parametrize("title", SCRIPTS.titles)
async def test_script(title: str, pytestconfig: pytest.Config) -> None:
    script = OutboxScript()
    async with script.running:
        await SCRIPTS.play(title, script, pytestconfig)
