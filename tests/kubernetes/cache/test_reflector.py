"""The reflector against a scripted API server: versions, pauses and failures, step by step."""

import asyncio
import contextlib
import itertools
import re
from collections.abc import AsyncIterator, Callable, Sequence
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
from tests.support.waiting import running, until

_found = BUILTIN.lookup("pods")
assert _found is not None
PODS: APIResource = _found

Step = errors.KubernetesError | list[WatchEvent[PartialMetadata]] | float | str
"""What a list or a watch comes to: an error, the events of a watch that then ends, the silent seconds of a
watch that then breaks, the version of a list.
"""


class ScriptedServer:
    """An API server that does what it is told, in order, then hangs.

    Notes versions asked for and pauses taken.
    """

    def __init__(self, clock: FakeClock, *steps: Step) -> None:
        self.clock = clock
        self.monitoring = Monitoring()
        self.steps = iter(steps)
        self.asked: list[str] = []
        self.durations: list[float] = []
        self.pauses: list[float] = []
        self.done = asyncio.Event()
        self.watched = 0.0

    async def next(self) -> Step:
        step = next(self.steps, None)
        if step is None:
            self.done.set()
            await asyncio.Event().wait()
        assert step is not None
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
        self.asked.append(f"list {resource_version}")
        step = await self.next()
        assert isinstance(step, str)
        deliver([PartialMetadata("a", "default")])
        return step

    @contextlib.asynccontextmanager
    async def watch_objects(
        self, source: ListWatch[Any], *, resource_version: str, duration: float, silence: float
    ) -> AsyncIterator[Any]:
        self.asked.append(f"watch {resource_version}")
        self.durations.append(duration)
        step = await self.next()
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
        self.pauses.append(round(seconds, 3))
        self.clock.advance(seconds)
        await asyncio.sleep(0)


async def play(
    *steps: Step,
    random: Callable[[], float] = lambda: 0.0,
    watched: float = 0.0,
    periods: ReflectorPeriods = ReflectorPeriods(),  # noqa: B008 - it is frozen
    until_failed: bool = False,
    optional: bool = False,
) -> tuple[ScriptedServer, ObjectCache[PartialMetadata], ProblemLog]:
    clock = FakeClock()
    script = ScriptedServer(clock, *steps)
    script.watched = watched
    faults = ProblemLog(script.monitoring, clock)
    client: Any = script
    context = ReflectorContext(client, clock, script.monitoring, faults, random, script.sleep, periods)
    source = ListWatch(PARTIAL_METADATA, PODS, optional=optional)
    reflector = ObjectCache(source, context, lambda *_: None, "pods")
    async with running(reflector.run()):
        await script.done.wait()
        if until_failed:
            await until(lambda: reflector.error)
    return script, reflector, faults


def failure(status: int, reason: str = "reason") -> errors.KubernetesError:
    return errors.KubernetesError(status, reason, f"cannot: {status}")


def event(version: int, kind: str = "MODIFIED") -> WatchEvent[PartialMetadata]:
    changed = None if kind == "BOOKMARK" else PartialMetadata("a", "default", None, str(version))
    return WatchEvent(kind, changed, str(version))


@pytest.mark.parametrize(
    ("steps", "asked"),
    [
        pytest.param(
            ["7", [event(9)], []], ["list 0", "watch 7", "watch 9", "watch 9"], id="versions are followed",
        ),
        pytest.param(
            ["7", [event(9, "BOOKMARK")]], ["list 0", "watch 7", "watch 9"], id="a bookmark moves on",
        ),
        pytest.param(
            ["7", failure(0), [event(8)]], ["list 0", "watch 7", "watch 7", "watch 8"], id="a server away",
        ),
        pytest.param(["7", failure(503)], ["list 0", "watch 7", "watch 7"], id="a server busy"),
        pytest.param(
            ["7", failure(410), "20"], ["list 0", "watch 7", "list ", "watch 20"], id="a version forgotten",
        ),
        pytest.param(
            ["7", failure(410), failure(500), "20"], ["list 0", "watch 7", "list ", "list ", "watch 20"],
            id="forgotten, then busy",
        ),
        pytest.param(
            ["7", failure(400), "20"], ["list 0", "watch 7", "list 7", "watch 20"], id="another refusal",
        ),
        pytest.param(
            ["7", failure(400), failure(504), "3"], ["list 0", "watch 7", "list 7", "list ", "watch 3"],
            id="a server put back in time",
        ),
        pytest.param(
            ["7", failure(504), "8"], ["list 0", "watch 7", "list ", "watch 8"],
            id="a gateway that waited in vain",
        ),
        pytest.param([failure(503), "7"], ["list 0", "list 0", "watch 7"], id="a failed first list"),
        pytest.param([failure(410), "7"], ["list 0", "list ", "watch 7"], id="a first list that expires"),
    ],
)  # fmt: skip
async def test_versions_asked_for(steps: list[Step], asked: list[str]) -> None:
    script, _, _ = await play(*steps)
    assert script.asked == asked


async def test_an_optional_kind_that_is_not_found_for_a_moment_keeps_its_objects() -> None:
    """An API server that starts has not read the definitions of kinds yet."""
    _, reflector, _ = await play("7", failure(410), failure(404), optional=True)
    assert reflector.count() == 1


async def test_reasons_are_distinguished_within_a_bound() -> None:
    """They are labels of a metric, and an API server may write what it likes."""
    script, _, _ = await play(*[failure(0, f"Reason{number % 60}") for number in range(100)])
    exposition = script.monitoring.exposition()
    counts = dict(
        re.findall(r'fastpath_informer_errors_total\{reason="(\w+)",resource="pods"\} (\S+)', exposition)
    )
    assert len(counts) == 41
    assert (counts["Reason39"], counts["Other"], counts.get("Reason40")) == ("2.0", "20.0", None)


RECOVERED = (failure(0), failure(0), "7", [event(8)], failure(0))


@pytest.mark.parametrize(
    ("steps", "watched", "pauses"),
    [
        pytest.param([failure(0)] * 8, 0.0, [0.8, 1.6, 3.2, 6.4] + [8.0] * 4, id="doubled"),
        pytest.param(RECOVERED, 121.0, [0.8, 1.6, 0.8], id="from the start after 121 s without failures"),
        pytest.param(RECOVERED, 60.0, [0.8, 1.6, 3.2], id="doubled on after a short success"),
        pytest.param(
            ["7", failure(410), "8", failure(410), "9", failure(410)], 0.0, [1.6, 3.2],
            id="none before the first list of an expired watch",
        ),
    ],
)  # fmt: skip
async def test_pauses(steps: Sequence[Step], watched: float, pauses: list[float]) -> None:
    script, reflector, _ = await play(*steps, watched=watched)
    assert script.pauses == pauses
    assert reflector.synced == ("7" in steps)


async def test_pauses_are_stretched_by_chance() -> None:
    random = itertools.cycle([0.5, 0.25])
    script, _, _ = await play(*[failure(0)] * 3, random=lambda: next(random))
    assert script.pauses == [1.2, 2.0, 4.8]


async def test_a_watch_that_ends_at_once_and_empty_is_a_failure() -> None:
    script, reflector, faults = await play("7", [], [], [event(8)])
    assert script.asked == ["list 0", "watch 7", "watch 7", "watch 7", "watch 8"]
    assert script.pauses == [0.8, 1.6]
    assert "the watch ended at once without an event" in str(reflector.error)
    assert list(faults.active()) == [("informer", "pods")]


async def test_a_watch_in_which_nothing_changes_is_renewed_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    script, reflector, faults = await play("7", 120.0)
    assert script.asked == ["list 0", "watch 7", "watch 7"]
    assert (script.pauses, reflector.error, faults.active()) == ([], None, {})
    assert "watch lost" not in caplog.text
    assert 'reason="Timeout"' not in script.monitoring.exposition()


async def test_a_refused_watch_is_tried_again_in_a_second(caplog: pytest.LogCaptureFixture) -> None:
    """An API server that has just started refuses what the roles allow, for a moment."""
    caplog.set_level("INFO")
    script, _, faults = await play("7", failure(403), failure(403), [event(8)])
    assert script.asked == ["list 0", "watch 7", "watch 7", "watch 7", "watch 8"]
    assert script.pauses == [1.0, 2.0]
    assert list(faults.active()) == []
    assert caplog.text.count("watch refused; it is tried again") == 1


async def test_a_watch_that_stays_refused_is_replaced_by_lists() -> None:
    denied = failure(403)
    steps: list[Step] = ["7", *[denied] * 5, "8", denied, "9", denied, "10", denied]
    script, _, faults = await play(*steps)
    assert " ".join(script.asked).replace("watch", "w").replace("list", "l") == (
        "l 0 w 7 w 7 w 7 w 7 w 7 l 7 w 8 l 8 w 9 l 9 w 10 l 10"
    )
    assert script.pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    assert list(faults.active()) == [("watch", "pods")]


async def test_while_a_watch_is_refused_old_objects_are_listed() -> None:
    denied = failure(403)
    periods = ReflectorPeriods(relist=2.0)
    script, _, _ = await play("7", denied, denied, "8", denied, "9", "10", denied, periods=periods)
    assert script.asked == [
        *("list 0", "watch 7", "watch 7", "list 7", "watch 8", "list 8"), "list 9", "watch 10", "list 10",
    ]  # fmt: skip
    assert script.pauses == [1.0, 2.0, 2.0, 2.0, 2.0]


async def test_a_list_of_a_version_that_the_server_does_not_know_is_repeated_at_once() -> None:
    """An API server that has started knows older versions only until something is written.

    That it was away before makes the next list no later.
    """
    away: list[Step] = [failure(0)] * 4
    script, _, faults = await play("7", *away, failure(404), failure(504), "9", [event(10)])
    assert script.asked[-4:] == ["list 7", "list ", "watch 9", "watch 10"]
    assert script.pauses == [0.8, 1.6, 3.2, 6.4, 8.0]
    assert list(faults.active()) == [("informer", "pods")]


async def test_a_version_that_is_refused_again_and_again_is_no_loop() -> None:
    steps: list[Step] = [failure(504), "7"]
    script, _, _ = await play("7", *steps * 4)
    assert script.pauses == [1.6, 3.2, 6.4]


@pytest.mark.parametrize("steps", [["7"], []], ids=["watch", "list"])
async def test_a_request_without_an_answer_ends(steps: list[Step]) -> None:
    script, reflector, _ = await play(*steps, periods=ReflectorPeriods(answer=0.01), until_failed=True)
    assert str(reflector.error) == f"cannot {'watch' if steps else 'list'} pods: no answer within 0.01 s"
    assert script.pauses[:1] == [0.8]


async def test_a_server_that_is_too_busy_for_the_first_list_does_not_refuse_it() -> None:
    _, reflector, _ = await play(failure(429))
    assert not reflector.refused
    with pytest.raises(errors.NotSyncedError, match="the first list has not arrived yet: cannot: 429"):
        await reflector.wait_synced()


async def test_days_of_failures_are_no_end() -> None:
    script, reflector, _ = await play(*[failure(503)] * 1100, "7", random=lambda: 0.5)
    assert reflector.synced
    assert script.pauses[-1] == 12.0


def test_a_step_that_raises_keeps_no_other_item_from_its_turn() -> None:
    seen: list[int] = []

    def act(item: int) -> None:
        seen.append(12 // item)

    monitoring = Monitoring()
    assert list(in_steps([1, 0, 2], act, Defects(monitoring), 1)) == [None] * 3
    assert seen == [12, 6]
    assert monitoring.registry.get_sample_value("fastpath_scaler_unexpected_errors_total") == 1
