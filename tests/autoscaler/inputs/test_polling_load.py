"""Autoscalers and metrics by the ten thousand, as a tenant may make them: no step holds the loop."""

import asyncio

import pytest

from adapter.autoscaler.inputs import polling
from adapter.autoscaler.inputs.feed import DELAYED, FeedSource, PollResult, SourceAnswer
from adapter.autoscaler.inputs.polling import DelayReporter, Poller
from adapter.autoscaler.interfaces import Key
from adapter.kubernetes.write.events import EventOutlet, Regarding
from adapter.model.clock import Clock
from adapter.model.timestamps import SECOND
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.support import steps
from tests.support.clock import LoopClock, ShiftedClock
from tests.support.waiting import until
from tests.support.writing import open_outbox

MANY = 10_000
LONGEST = 0.3
"""The longest step that passes, in seconds of processor time; where the period of a shared feed is computed
for each of its listeners, it is more than a second."""


class InARow:
    """The most calls of `note` between two turns of other work."""

    def __init__(self) -> None:
        self.most = self._count = 0

    def note(self) -> None:
        if not self._count:
            asyncio.get_running_loop().call_soon(self._begin)
        self._count += 1
        self.most = max(self.most, self._count)

    def _begin(self) -> None:
        self._count = 0


class Load:
    """A poller whose polls are answered at once, with the recorder that its delays go to."""

    def __init__(self, clock: Clock, per_second: float) -> None:
        self.clock = clock
        self.monitoring = Monitoring()
        problems = ProblemLog(self.monitoring, self.clock)
        outbox = open_outbox(None, problems, self.clock, self.monitoring)  # nothing is written
        self.recorder = EventOutlet(outbox, lambda: 0.5, self.monitoring, problems)
        self.delayed: set[Key] = set()
        self.answered: set[Key] = set()
        self.polled = 0
        self.polls, self.delays = InARow(), InARow()
        self.poller = Poller(
            self.clock,
            per_second=per_second,
            answered=self.answered.update,
            delays=DelayReporter(self.monitoring, problems, self._delay),
            defects=problems.defects,
        )

    def _delay(self, key: Key) -> None:
        self.delayed.add(key)
        self.delays.note()
        regarding = Regarding("v1", key.kind, key.namespace, key.name)
        self.recorder.record(regarding, "Warning", "MetricsDelayed", "x" * 200)

    async def poll(self, _: float) -> PollResult:
        self.polled += 1
        self.polls.note()
        times = {"a": round(self.clock.wall() * SECOND)}
        return PollResult(SourceAnswer({"a": 1}, times), 30.0, merges=True)

    def want(self, number: int, key: object, group: object) -> None:
        owner = Key(f"shop-{number % 100}", f"web-{number}")
        self.poller.want(owner, 30.0, FeedSource(key, group, self.poll))


async def test_one_metric_of_all() -> None:
    load = Load(ShiftedClock(), per_second=100.0)
    with steps.measured() as measured:
        async with load.poller:
            for number in range(MANY):
                load.want(number, "depth", "depth")
            await until(lambda: len(load.answered) == MANY)

    assert measured.longest < LONGEST
    assert load.polled == 1


@pytest.fixture
def _short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have other tasks run after each feed."""
    monkeypatch.setattr(polling, "STEP", -1.0)


@pytest.mark.usefixtures("_short_steps")
async def test_metrics_that_the_same_queries_answer() -> None:
    load = Load(ShiftedClock(), per_second=100.0)
    async with load.poller:
        load.want(0, 0, "load")
        await until(lambda: load.polled)  # from now on it is known that the queries merge
        for number in range(1, MANY):
            load.want(number, number, "load")
        await until(lambda: len(load.answered) == MANY)

    assert load.polls.most == 1


@pytest.mark.looptime
@pytest.mark.usefixtures("_short_steps")
async def test_metrics_that_all_wait() -> None:
    load = Load(LoopClock(), per_second=1.0)
    async with load.poller:
        for number in range(MANY):
            load.want(number, number, number)
        await asyncio.sleep(DELAYED + 2)

    assert len(load.delayed) > MANY - 20
    assert load.delays.most == 1
