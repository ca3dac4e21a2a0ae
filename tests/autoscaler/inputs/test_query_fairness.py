"""The query budget under overload: how often each question is sent, and the effects of late answers.

On a loop with simulated time.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapter.autoscaler.decide.observation import ExternalReading
from adapter.autoscaler.inputs import polling
from adapter.autoscaler.inputs.feed import LATE_IN_TURN, Feed, FeedSource, PollResult, SourceAnswer
from adapter.autoscaler.inputs.polling import DelayReporter, Poller
from adapter.autoscaler.inputs.sources import PolledSource, ReadContext, series_reading
from adapter.autoscaler.interfaces import Key
from adapter.model.timestamps import SECOND
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.support.clock import LoopClock

pytestmark = [pytest.mark.looptime]


class CountingPrometheus:
    """Answers every question with a sample of now, or of every `interval` seconds; counts the askers."""

    def __init__(self, clock: LoopClock, interval: float = 0.001) -> None:
        self.clock = clock
        self.interval = interval
        self.asked: dict[Hashable, list[float]] = {}
        self.merges: bool | None = True
        self.crosses = True
        self.seconds = 0.0
        self.error: Exception | None = None

    def source(self, key: Hashable, group: Hashable | None = None) -> FeedSource:
        async def ask(_: float) -> PollResult:
            self.asked.setdefault(key, []).append(self.clock.monotonic())
            if self.seconds:
                await asyncio.sleep(self.seconds)
            if self.error is not None:
                raise self.error
            taken = round(self.clock.wall() // self.interval * self.interval * SECOND)
            answer = SourceAnswer({}, {"": taken}, (1000,), 0)
            return PollResult(answer, merges=self.merges, crosses=self.crosses)

        return FeedSource(key, key if group is None else group, ask)

    def want(
        self, feeds: Poller, owner: str, key: Hashable, period: float = 1.0, group: Hashable | None = None
    ) -> Feed:
        namespace, _, name = owner.partition("/")
        return feeds.want(Key(namespace, name), period, self.source(key, group))

    def rate(self, key: Hashable, since: float) -> float:
        """Return how often a second a question was asked."""
        times = [each for each in self.asked.get(key, ()) if each >= since]
        return len(times) / (self.clock.monotonic() - since)

    def queries(self, since: float) -> float:
        """Return how many queries a second were sent: two for each question."""
        return 2 * sum(self.rate(key, since) for key in self.asked)


class WatchedDelays:
    def __init__(self, clock: LoopClock) -> None:
        self.monitoring = Monitoring()
        self.faults = ProblemLog(self.monitoring, clock)
        self.owners: list[Key] = []
        self.delays = DelayReporter(self.monitoring, self.faults, self.owners.append)

    @property
    def defects(self) -> float | None:
        return self.monitoring.registry.get_sample_value("fastpath_scaler_unexpected_errors_total")

    @property
    def stretch(self) -> float:
        return self.monitoring.registry.get_sample_value("fastpath_scaler_query_period_stretch_ratio") or 0.0

    @property
    def namespaces(self) -> list[str]:
        return [subject for fault, subject in self.faults.active() if fault == polling.PROBLEM]


@asynccontextmanager
async def opened(per_second: float = 20.0) -> AsyncIterator[tuple[Poller, CountingPrometheus, WatchedDelays]]:
    clock = LoopClock()
    watch = WatchedDelays(clock)
    async with Poller(
        clock,
        per_second=per_second,
        answered=lambda _: None,
        delays=watch.delays,
        defects=watch.faults.defects,
    ) as feeds:
        yield feeds, CountingPrometheus(clock), watch


def flood(feeds: Poller, prometheus: CountingPrometheus, autoscalers: int = 8, metrics: int = 50) -> None:
    """Have one tenant ask for many distinct external metrics."""
    for autoscaler, metric in itertools.product(range(autoscalers), range(metrics)):
        prometheus.want(feeds, f"greedy/a{autoscaler}", f"greedy-{autoscaler}-{metric}")


SHARES = {
    "enough": {"a": 4, "b": 5},
    "one too many": {"a": 2, "b": 40},
    "equal": {"a": 20, "b": 20, "c": 20},
    "in between": {"a": 1, "b": 4, "c": 30, "d": 30},
}


@pytest.mark.parametrize("demand", SHARES.values(), ids=SHARES)
async def test_every_namespace_gets_its_max_min_share(demand: dict[str, int]) -> None:
    """`demand` is the number of one-second questions of each namespace; the rate is enough for ten."""
    async with opened() as (feeds, prometheus, _):
        prometheus.interval = 1e9
        for namespace, count in demand.items():
            for number in range(count):
                prometheus.want(feeds, f"{namespace}/a{number % 3}", (namespace, number))
        await asyncio.sleep(60)
        room = 10.0
        for place, (namespace, count) in enumerate(sorted(demand.items(), key=lambda each: each[1])):
            share = min(float(count), room / (len(demand) - place))
            room -= share
            got = sum(prometheus.rate((namespace, number), 10) for number in range(count))
            assert got == pytest.approx(share, rel=0.1), namespace


@pytest.mark.parametrize(("questions", "in_time"), [(75, True), (150, False)])
async def test_the_ceiling_is_as_documented(questions: int, *, in_time: bool) -> None:
    """75 external metrics with a sample every 15 s, at 20 queries/s: each is queried about every 7.5 s."""
    async with opened() as (feeds, prometheus, watch):
        prometheus.interval = 15.0
        for number in range(questions):
            prometheus.want(feeds, f"shop/a{number // 50}", number)
        await asyncio.sleep(180)
        rates = [prometheus.rate(number, 120) for number in range(questions)]

        assert (min(rates) >= 0.9 / 7.5) is in_time
        if in_time:
            assert {feed.period for feed in feeds.feeds()} == {7.5}
            assert watch.namespaces == []


async def test_a_question_of_two_owners_is_asked_once_and_delays_neither() -> None:
    """The namespace whose turn comes first pays: a shared question is sent as if it were its own."""
    async with opened() as (feeds, prometheus, _):
        prometheus.interval = 2.0
        flood(feeds, prometheus)
        feed = prometheus.want(feeds, "greedy/a0", "shared")
        assert prometheus.want(feeds, "victim/web", "shared") is feed
        await asyncio.sleep(30)

        assert prometheus.rate("shared", 10) == pytest.approx(1.0, abs=0.1), (
            "as often as its period says, not twice"
        )
        feeds.drop(Key("victim", "web"), feed)
        left = prometheus.clock.monotonic()
        await asyncio.sleep(50)
        assert prometheus.rate("shared", left) < 0.1


async def test_who_joins_a_question_that_waits_has_a_turn_for_it() -> None:
    async with opened() as (feeds, prometheus, _):
        flood(feeds, prometheus)
        feed = prometheus.want(feeds, "greedy/a0", "shared")
        await asyncio.sleep(3)
        assert feed.queued is not None
        assert "shared" not in prometheus.asked

        prometheus.want(feeds, "victim/web", "shared")
        await asyncio.sleep(0.5)
        assert len(prometheus.asked["shared"]) == 1


async def test_questions_that_merge_leave_in_one_turn_and_cost_as_two() -> None:
    async with opened() as (feeds, prometheus, _):
        for number in range(100):
            prometheus.want(feeds, f"ns{number}/web", f"q{number}", group="group")
        await asyncio.sleep(10)

        assert min(prometheus.rate(f"q{number}", 2) for number in range(100)) >= 0.9


@pytest.mark.parametrize("merges", [None, False], ids=["not known", "never"])
async def test_questions_that_do_not_merge_cost_as_their_own(*, merges: bool | None) -> None:
    async with opened() as (feeds, prometheus, _):
        prometheus.merges = merges
        for number in range(100):
            prometheus.want(feeds, f"ns{number % 10}/web", f"q{number}", group="group")
        await asyncio.sleep(30)

        assert prometheus.queries(2) == pytest.approx(20.0, abs=1.0)


async def test_where_namespaces_share_no_query_only_those_of_one_leave_together() -> None:
    async with opened() as (feeds, prometheus, _):
        prometheus.crosses = False
        for number in range(100):
            prometheus.want(feeds, f"ns{number % 10}/a{number}", f"q{number}", group="group")
        await asyncio.sleep(1)
        since = prometheus.clock.monotonic()
        await asyncio.sleep(10)

        # a text
        turns = {(key[-1], at) for key, times in prometheus.asked.items() for at in times if at >= since}  # type: ignore[index]
        assert len(turns) <= 20 / 4 * 10 + 5


async def test_what_waits_for_its_turn_is_late_and_never_absent() -> None:
    """A tenant's own overload: each question has a turn in 40 s, while it has samples of each second."""
    async with opened() as (feeds, prometheus, _):
        prometheus.interval = 1.0
        feed = prometheus.want(feeds, "greedy/a0", "first")
        await asyncio.sleep(10)  # its interval is learned before the others come
        flood(feeds, prometheus)
        await asyncio.sleep(5)
        source = PolledSource(feed, feeds, Key("greedy", "a0"), "external", series_reading)
        found = []
        for _ in range(120):
            await asyncio.sleep(1)
            now = round(prometheus.clock.wall() * SECOND)
            found.append(source.read(ReadContext((), lambda _: 1, now, prometheus.clock.monotonic())))

        overdue = [each.overdue for each in found if isinstance(each, ExternalReading)]
        assert len(overdue) == len(found)
        assert overdue.count(LATE_IN_TURN) > 90, "so it may not shrink"
        assert overdue.count("") > 2, "right after an answer it is as good as any"


async def test_the_interval_of_waiting_is_not_taken_for_one_of_samples() -> None:
    async with opened() as (feeds, prometheus, _):
        prometheus.interval = 1.0
        feed = prometheus.want(feeds, "greedy/a0", "first")
        await asyncio.sleep(10)
        assert feed.interval.known == SECOND
        flood(feeds, prometheus, metrics=10)
        await asyncio.sleep(60)

        assert len([each for each in prometheus.asked["first"] if each > 20]) > 2
        assert feed.interval.known == SECOND


async def test_delays_have_a_gauge_a_fault_and_an_event_for_each_autoscaler() -> None:
    async with opened(per_second=5.0) as (feeds, prometheus, watch):
        prometheus.interval = 2.0
        assert watch.stretch == 1.0
        feed = prometheus.want(feeds, "victim/web", "victim")
        await asyncio.sleep(2)
        assert watch.stretch < 2
        flood(feeds, prometheus, autoscalers=4, metrics=10)
        await asyncio.sleep(30)

        assert watch.stretch > 10
        assert watch.namespaces == ["greedy"]
        assert sorted(map(str, watch.owners)) == [f"greedy/a{number}" for number in range(4)]
        await asyncio.sleep(polling.REPORT_AGAIN)
        assert sorted(map(str, watch.owners)) == sorted([f"greedy/a{number}" for number in range(4)] * 2)

        for other in list(feeds.feeds()):
            if other is not feed:
                feeds.drop(next(iter(other.listeners)), other)
        await asyncio.sleep(polling.CALM + 5)
        assert watch.stretch < 2
        assert watch.namespaces == []


@pytest.mark.parametrize("what", ["_step", "_enqueue", "_take_turn", "_report"])
async def test_a_defect_where_turns_are_given_stops_nothing(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened() as (feeds, prometheus, watch):
        prometheus.want(feeds, "shop/web", "a")
        await asyncio.sleep(0.1)
        works, left = getattr(feeds, what), [3]

        def broken(*given: Any) -> Any:
            if left[0]:
                left[0] -= 1
                raise ZeroDivisionError
            return works(*given)

        setattr(feeds, what, broken)
        await asyncio.sleep(10)

        assert len(prometheus.asked["a"]) >= 6
        assert watch.defects == 3
        assert [each.levelname for each in caplog.records].count("ERROR") == 1
