"""Questions and their answers over time, on a loop with virtual time."""

import asyncio
from collections.abc import AsyncIterator, Iterable

import pytest

from adapter.autoscaler.inputs.feed import FeedSource, PollResult, SourceAnswer
from adapter.autoscaler.inputs.polling import Poller
from adapter.autoscaler.interfaces import Key
from adapter.errors import InternalError, KubernetesError
from adapter.model.timestamps import SECOND
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import Defects
from tests.support.clock import LoopClock

pytestmark = [pytest.mark.looptime]


class PolledMetric:
    """A source with a sample every `interval` seconds; what it is asked is counted."""

    def __init__(self, clock: LoopClock, interval: float = 5.0) -> None:
        self.clock = clock
        self.interval = interval
        self.asked: list[float] = []
        self.taken: list[float] = []
        """How old an answer may be, each time it is asked."""
        self.error: Exception | None = None
        self.empty = False
        self.pause = 0.0
        self.gate = asyncio.Event()
        self.gate.set()

    async def ask(self, ttl: float) -> PollResult:
        self.taken.append(ttl)
        self.asked.append(self.clock.monotonic())
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        if self.empty:
            return PollResult(SourceAnswer({}, {}), self.pause)
        taken = round(self.clock.wall() // self.interval * self.interval * SECOND)
        return PollResult(SourceAnswer({"a": 1}, {"a": taken}), self.pause)

    def question(self, key: str = "a") -> FeedSource:
        return FeedSource(key, key, self.ask)


@pytest.fixture
def owners() -> list[Key]:
    """The autoscalers that were notified of answers."""
    return []


@pytest.fixture
async def feeds(owners: list[Key]) -> AsyncIterator[Poller]:
    defects = Defects(Monitoring())
    async with Poller(LoopClock(), per_second=20.0, answered=owners.extend, defects=defects) as opened:
        yield opened


async def test_asked_no_more_often_than_half_the_sample_interval(feeds: Poller) -> None:
    source = PolledMetric(LoopClock(), interval=10.0)
    feeds.want(Key("default", "web"), 1.0, source.question())
    await asyncio.sleep(40)
    early = len(source.asked)
    await asyncio.sleep(100)

    assert len(source.asked) - early == 20
    assert all(
        later - sooner >= 4.99 for sooner, later in zip(source.asked[-20:], source.asked[-19:], strict=False)
    )


@pytest.mark.parametrize(
    ("interval", "scalers", "oldest"), [(15.0, 2, 0.65), (15.0, 4, 1.45), (5.0, 4, 1.25), (60.0, 0, 0.25)]
)
async def test_with_more_scalers_answers_may_be_older(interval: float, scalers: int, oldest: float) -> None:
    """But not those of the first poll, and none by more than half of a period."""
    source, defects = PolledMetric(LoopClock(), interval), Defects(Monitoring())
    async with Poller(
        LoopClock(), per_second=20.0, answered=lambda _: None, defects=defects, scalers=lambda: scalers
    ) as feeds:
        feeds.want(Key("default", "web"), 1.0, source.question())
        await asyncio.sleep(10 * interval)

    assert source.taken[0] == 0.25
    assert source.taken[-1] == pytest.approx(oldest)
    assert max(source.taken) == source.taken[-1]


async def test_one_question_for_all_who_ask_it(feeds: Poller, owners: list[Key]) -> None:
    source = PolledMetric(LoopClock())
    first = feeds.want(Key("default", "web"), 1.0, source.question())
    assert feeds.want(Key("default", "api"), 0.5, source.question()) is first
    await asyncio.sleep(0.01)

    assert len(source.asked) == 1
    assert sorted(map(str, owners)) == ["default/api", "default/web"]


async def test_a_question_that_is_not_answered_delays_no_other(feeds: Poller) -> None:
    slow, quick = PolledMetric(LoopClock()), PolledMetric(LoopClock())
    slow.gate.clear()
    feeds.want(Key("default", "web"), 1.0, slow.question("slow"))
    feeds.want(Key("default", "api"), 1.0, quick.question("quick"))
    await asyncio.sleep(9)

    assert len(slow.asked) == 1
    assert len(quick.asked) > 2


async def test_a_question_that_is_never_answered_fails_and_is_asked_again(feeds: Poller) -> None:
    source = PolledMetric(LoopClock())
    source.gate.clear()
    feed = feeds.want(Key("default", "web"), 1.0, source.question())
    await asyncio.sleep(10.5)
    assert feed.state(source.clock.monotonic()) == (None, "", "no answer in time")

    source.gate.set()
    await asyncio.sleep(2)
    assert feed.state(source.clock.monotonic())[0] is not None


@pytest.mark.parametrize(
    "error",
    [
        InternalError("unable to fetch metrics"),
        KubernetesError(403, "Forbidden", "not allowed"),
        ZeroDivisionError(),
    ],
)
async def test_failures_are_no_answers(feeds: Poller, owners: list[Key], error: Exception) -> None:
    source = PolledMetric(LoopClock())
    feed = feeds.want(Key("default", "web"), 1.0, source.question())
    await asyncio.sleep(0.01)
    source.error = error
    await asyncio.sleep(3)

    answer, _, said = feed.state(source.clock.monotonic())
    assert answer is None
    assert said
    assert len(owners) >= 2


async def test_an_answer_grows_late_and_is_forgotten(feeds: Poller) -> None:
    source = PolledMetric(LoopClock())
    feed = feeds.want(Key("default", "web"), 1.0, source.question())
    await asyncio.sleep(0.01)
    asked = feed.polled
    assert asked is not None

    assert feed.state(asked + 4.0)[1] == ""
    assert feed.state(asked + 4.1)[1] == "its answer is late"
    assert feed.state(asked + 30.1) == (None, "", "")


async def test_an_unsubscribed_question_is_not_asked(feeds: Poller) -> None:
    source = PolledMetric(LoopClock())
    feed = feeds.want(Key("default", "web"), 1.0, source.question())
    feeds.want(Key("default", "api"), 1.0, source.question())
    await asyncio.sleep(0.01)
    feeds.drop(Key("default", "web"), feed)
    assert len(feeds) == 1
    feeds.drop(Key("default", "api"), feed)
    await asyncio.sleep(20)

    assert (len(feeds), len(source.asked)) == (0, 1)


@pytest.mark.parametrize("queries", [2, 4])
async def test_a_question_costs_as_many_queries_as_it_sends(feeds: Poller, queries: int) -> None:
    """Most cost two: their own, and that for the age of its samples."""
    source = PolledMetric(LoopClock(), interval=0.1)
    for number in range(40):
        question = FeedSource(f"q{number}", f"q{number}", source.ask, queries)
        feeds.want(Key("default", "web"), 0.1, question)
    await asyncio.sleep(30)

    assert 20 * 30 - 100 <= queries * len(source.asked) <= 20 * 30 + 100


async def test_a_question_without_any_value_delays_no_other(feeds: Poller) -> None:
    nothing, good = PolledMetric(LoopClock()), PolledMetric(LoopClock(), interval=2.0)
    nothing.empty = True
    for number in range(40):
        feeds.want(Key("default", "api"), 1.0, nothing.question(f"q{number}"))
    feeds.want(Key("default", "web"), 1.0, good.question("good"))
    await asyncio.sleep(240)

    assert max(later - sooner for sooner, later in zip(good.asked[-10:], good.asked[-9:], strict=False)) < 2.0


async def test_who_asks_more_often_than_the_others_does_not_wait_for_them(feeds: Poller) -> None:
    source = PolledMetric(LoopClock())
    source.empty = True  # so that no interval is known
    feed = feeds.want(Key("default", "web"), 60.0, source.question())
    await asyncio.sleep(40)
    assert feeds.want(Key("default", "api"), 1.0, source.question()) is feed
    answer, late, _ = feed.state(source.clock.monotonic())
    assert (answer, late) == (SourceAnswer({}, {}), ""), (
        "it is not late because another subscriber would have asked before"
    )
    await asyncio.sleep(2.5)

    assert source.asked[1:] == pytest.approx([source.asked[0] + each for each in (40, 41, 42)], abs=0.1)


async def test_a_defect_in_a_subscriber_ends_no_question(caplog: pytest.LogCaptureFixture) -> None:
    def answered(_: Iterable[Key]) -> None:
        raise ZeroDivisionError

    async with Poller(
        LoopClock(), per_second=20.0, answered=answered, defects=Defects(Monitoring())
    ) as opened:
        source = PolledMetric(LoopClock(), interval=2.0)
        opened.want(Key("shop", "web"), 1.0, source.question())
        await asyncio.sleep(9.5)

    assert len(source.asked) == 10
    assert [each.levelname for each in caplog.records] == ["ERROR"], "said once"


async def test_a_defect_after_the_answer_pauses_its_question_and_no_other(
    feeds: Poller, caplog: pytest.LogCaptureFixture
) -> None:
    asked, good, times = [], PolledMetric(LoopClock(), interval=2.0), {"": "no time"}

    async def ask(_: float) -> PollResult:
        asked.append(1)
        return PollResult(SourceAnswer({}, times, (1000,), 0))  # type: ignore[arg-type]  # a defect

    broken = feeds.want(Key("shop", "web"), 1.0, FeedSource("broken", "broken", ask))
    feeds.want(Key("shop", "web"), 1.0, good.question("good"))
    await asyncio.sleep(61)

    assert len(asked) == 3
    assert len(good.asked) >= 60
    assert broken.state(good.clock.monotonic()) == (None, "", "unexpected error")
    assert [each.levelname for each in caplog.records] == ["ERROR"], "said once"
