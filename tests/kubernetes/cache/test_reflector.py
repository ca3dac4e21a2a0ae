"""The reflector against a scripted API server, step by step.

`scripts/reflector` has stories of the kind pods. Below each line is what is asked for then, after how long a
pause, and what is logged. After `> ` something happens:

- `start FACT ...` begins: an `optional` kind, `relist` seconds between lists where a watch is refused,
  watches that last for `watched` seconds, or numbers of `chance`.
- `listed VERSION`, and `watched EVENT ...` with the versions of events, or of bookmarks with a `+`, answer
  what was asked for last. A watch ends then; one that is `silent SECONDS` breaks. `fail STATUS COUNT` fails
  so often, `fail-for-days` so often that only the end is shown.
- `state` says what a question is answered, and which failures are counted and reported.

`scripts/test tests/kubernetes/cache/test_reflector.py --update` writes it.
"""

import asyncio
import contextlib
import itertools
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from adapter import errors
from adapter.kubernetes.cache.reflector import ReflectorContext, ReflectorPeriods
from adapter.kubernetes.cache.store import ObjectCache, in_steps
from adapter.kubernetes.client import ListWatch
from adapter.kubernetes.codec import PARTIAL_METADATA, PartialMetadata, Unreadable, WatchEvent
from adapter.model.objects.resources import BUILTIN, APIResource
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import Defects, ProblemLog
from tests.support.clock import FakeClock
from tests.support.scripts import Scripts
from tests.support.waiting import running, until

_found = BUILTIN.lookup("pods")
assert _found is not None
PODS: APIResource = _found
SCRIPTS = Scripts(Path(__file__).parent / "scripts" / "reflector")

Step = errors.KubernetesError | list[WatchEvent[PartialMetadata]] | float | str
"""What a list or a watch comes to: an error, the events of a watch that then ends, the silent seconds of a
watch that then breaks, the version of a list.
"""


def failure(status: int, reason: str = "reason") -> errors.KubernetesError:
    return errors.KubernetesError(status, reason, f"cannot: {status}")


def event(word: str) -> WatchEvent[PartialMetadata]:
    version = word.removeprefix("+")
    if word != version:
        return WatchEvent("BOOKMARK", None, version)
    return WatchEvent("MODIFIED", PartialMetadata("a", "default", None, version), version)


class ScriptedServer:
    """An API server that answers as it is told, and until then not at all."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.log: list[str] = []
        self.watched = 0.0
        self._pause = ""
        self._asked = asyncio.Event()
        self._steps: asyncio.Queue[Step] = asyncio.Queue()

    async def answer(self, *steps: Step) -> None:
        """Answer requests, until the next one."""
        for step in steps:
            await self._asked.wait()
            self._asked.clear()
            self._steps.put_nowait(step)
        await self._asked.wait()

    async def _next(self, request: str) -> Step:
        self.log.append(f"{self._pause}{request}")
        self._pause = ""
        self._asked.set()
        step = await self._steps.get()
        if isinstance(step, errors.KubernetesError):
            raise step
        return step

    async def list_objects(
        self,
        source: ListWatch[Any],
        deliver: Callable[[list[Any]], None],
        *,
        resource_version: str,
        lose: Callable[[Unreadable], None],
    ) -> str:
        step = await self._next(f"list {resource_version}")
        assert isinstance(step, str)
        deliver([PartialMetadata("a", "default")])
        return step

    @contextlib.asynccontextmanager
    async def watch_objects(
        self, source: ListWatch[Any], *, resource_version: str, duration: float, silence: float
    ) -> AsyncIterator[Any]:
        step = await self._next(f"watch {resource_version}")
        assert isinstance(step, list | float)

        async def events() -> AsyncIterator[list[WatchEvent[PartialMetadata]]]:
            if isinstance(step, float):
                self.clock.advance(step)
                raise failure(0, "Timeout")
            if step:
                yield step
                self.clock.advance(self.watched)

        yield events()

    async def sleep(self, seconds: float) -> None:
        self._pause += f"after {seconds:.4g} s: "
        self.clock.advance(seconds)
        await asyncio.sleep(0)


class ReflectorScript:
    """The words of a story of a reflector; it runs until the story ends."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.running = contextlib.AsyncExitStack()
        self.server = ScriptedServer()
        self.monitoring = Monitoring()
        self._caplog = caplog
        caplog.set_level("INFO")

    async def start(self, *facts: str, answer: float = 30.0) -> None:
        given = dict(fact.partition("=")[::2] for fact in facts)
        self.server.watched = float(given.get("watched", 0))
        chance = itertools.cycle(map(float, given.get("chance", "0").split(",")))
        client: Any = self.server
        clock = self.server.clock
        self.problems = ProblemLog(self.monitoring, clock)
        context = ReflectorContext(
            client,
            clock,
            self.monitoring,
            self.problems,
            lambda: next(chance),
            self.server.sleep,
            ReflectorPeriods(relist=float(given.get("relist", 30)), answer=answer),
        )
        source = ListWatch(PARTIAL_METADATA, PODS, optional="optional" in given)
        self.reflector = ObjectCache(source, context, lambda *_: None, "pods")
        await self.running.enter_async_context(running(self.reflector.run()))
        await self.server.answer()

    def news(self) -> list[str]:
        news = [*self.server.log, *(f"log: {text}" for text in self._caplog.messages)]
        self.server.log.clear()
        self._caplog.clear()
        return news

    async def listed(self, version: str) -> None:
        await self.server.answer(version)

    async def watched(self, *words: str) -> None:
        await self.server.answer([event(word) for word in words])

    async def silent(self, seconds: str) -> None:
        await self.server.answer(float(seconds))

    async def fail(self, status: str, count: str = "1") -> None:
        await self.server.answer(*[failure(int(status))] * int(count))

    async def fail_for_days(self, status: str, count: str) -> None:
        await self.fail(status, count)
        del self.server.log[:-1]

    async def state(self) -> list[str]:
        try:
            await self.reflector.wait_synced()
        except errors.SourceError as error:
            answer = str(error)
        else:
            answer = f"pods: {self.reflector.count()}"
        problems = self.problems.active().items()
        return [
            answer,
            *(f"counted: {reason}: {count}" for reason, count in self.counted().items()),
            *(f"reported: {kind} {name}: {text}" for (kind, name), text in problems),
        ]

    def counted(self) -> dict[str, str]:
        """Return the number of failures by reason."""
        pattern = r'fastpath_informer_errors_total\{reason="(\w+)",resource="pods"\} (\S+)'
        return dict(re.findall(pattern, self.monitoring.exposition()))


@pytest.fixture
async def script(caplog: pytest.LogCaptureFixture) -> AsyncIterator[ReflectorScript]:
    made = ReflectorScript(caplog)
    async with made.running:
        yield made


@pytest.mark.parametrize("title", SCRIPTS.titles)
async def test_script(title: str, script: ReflectorScript, pytestconfig: pytest.Config) -> None:
    await SCRIPTS.play(title, script, pytestconfig, script.news)


async def test_reasons_are_distinguished_within_a_bound(script: ReflectorScript) -> None:
    """They are labels of a metric, and an API server may write what it likes."""
    await script.start()
    await script.server.answer(*[failure(0, f"Reason{number % 60}") for number in range(100)])
    counts = script.counted()
    assert len(counts) == 41
    assert (counts["Reason39"], counts["Other"], counts.get("Reason40")) == ("2.0", "20.0", None)


@pytest.mark.parametrize("steps", [["7"], []], ids=["watch", "list"])
async def test_a_request_without_an_answer_ends(steps: list[Step], script: ReflectorScript) -> None:
    await script.start(answer=0.01)
    await script.server.answer(*steps)
    verb = "watch" if steps else "list"
    await until(lambda: any(line.startswith(f"after 0.8 s: {verb}") for line in script.server.log))
    assert str(script.reflector.error) == f"cannot {verb} pods: no answer within 0.01 s"


def test_a_step_that_raises_keeps_no_other_item_from_its_turn() -> None:
    seen: list[int] = []

    def act(item: int) -> None:
        seen.append(12 // item)

    monitoring = Monitoring()
    assert list(in_steps([1, 0, 2], act, Defects(monitoring), 1)) == [None] * 3
    assert seen == [12, 6]
    assert monitoring.registry.get_sample_value("fastpath_scaler_unexpected_errors_total") == 1
