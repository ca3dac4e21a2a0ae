"""Answers of reviews: kept as long as told, asked once for all, never kept after a failure."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from adapter.errors import KubernetesError, TooManyRequestsError
from adapter.server.auth.review_cache import ReviewCache, ReviewLimit
from adapter.telemetry.metrics import Monitoring
from tests.support.clock import FakeClock

Cache = ReviewCache[str, str]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def monitoring() -> Monitoring:
    return Monitoring()


@pytest.fixture
async def cache(clock: FakeClock, monitoring: Monitoring) -> AsyncIterator[Cache]:
    made: Cache = ReviewCache(
        clock,
        monitoring.access_cache,
        lambda answer: {"no": 3.0, "never": 0.0}.get(answer, 10.0),
        name="review",
        cache="accesses",
        monitoring=monitoring,
        size=3,
    )
    yield made
    await made.close()


def saying(answer: str, gate: asyncio.Event | None = None) -> Callable[[], Awaitable[str]]:
    """Return a review that answers, once the gate is open; "" is a failure."""

    async def review() -> str:
        if gate is not None:
            await gate.wait()
        if not answer:
            raise KubernetesError(500, "InternalError", "broken")
        return answer

    return review


@pytest.mark.parametrize(("answer", "seconds"), [("yes", 10.0), ("no", 3.0)])
async def test_an_answer_is_good_for_its_time_and_not_longer(
    cache: Cache, clock: FakeClock, monitoring: Monitoring, answer: str, seconds: float
) -> None:
    assert cache.find("k") is None
    assert await cache.ask("k", saying(answer)) == answer
    clock.advance(seconds - 0.01)
    assert cache.find("k") == answer, "looking does not lengthen it"
    clock.advance(0.01)
    assert cache.find("k") is None
    assert monitoring.registry.get_sample_value("fastpath_cache_entries", {"cache": "accesses"}) == 0


async def test_what_is_not_to_be_kept_is_not(cache: Cache) -> None:
    await cache.ask("k", saying("never"))
    await cache.ask("l", saying("yes"), keep=False)
    assert (cache.find("k"), cache.find("l")) == (None, None)


async def test_the_least_used_goes_first(cache: Cache) -> None:
    for key in "abc":
        await cache.ask(key, saying(key))
    assert cache.find("a") == "a"
    await cache.ask("d", saying("d"))
    assert [cache.find(key) for key in "abcd"] == ["a", None, "c", "d"]


async def test_one_review_for_all_who_ask_at_a_time(cache: Cache) -> None:
    gate, asked = asyncio.Event(), list[str]()

    async def review() -> str:
        asked.append("k")
        await gate.wait()
        return "yes"

    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(cache.ask("k", review)) for _ in range(5)]
        other = group.create_task(cache.ask("l", saying("no")))
        await asyncio.sleep(0)
        gate.set()
    assert [task.result() for task in waiting] == ["yes"] * 5
    assert (other.result(), asked) == ("no", ["k"])


async def test_who_goes_away_takes_nothing_from_the_others(cache: Cache) -> None:
    gate = asyncio.Event()
    first, second = (asyncio.create_task(cache.ask("k", saying("yes", gate))) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    gate.set()
    assert await second == "yes"
    assert cache.find("k") == "yes"


async def test_lanes_do_not_hold_up_each_other(cache: Cache) -> None:
    """Nor does it help to ask and leave: a review goes on without its callers."""
    gate, limit = asyncio.Event(), ReviewLimit("strangers", 2)
    review = saying("yes", gate)
    for key in "ab":
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await cache.ask(key, review, limits=(limit,))
    with pytest.raises(TooManyRequestsError):
        await cache.ask("c", review, limits=(limit,))
    same = asyncio.create_task(cache.ask("a", review, limits=(limit,)))
    assert await cache.ask("d", saying("no")) == "no", "others have a limit of their own"
    gate.set()
    assert await same == "yes"
    assert await cache.ask("c", review, limits=(limit,)) == "yes", "there is room again"


async def test_a_failure_is_shared_and_never_kept(cache: Cache) -> None:
    failures = await asyncio.gather(*(cache.ask("k", saying("")) for _ in range(3)), return_exceptions=True)
    assert [str(failure) for failure in failures] == ["broken"] * 3
    assert await cache.ask("k", saying("yes")) == "yes"


async def test_the_exception_of_an_abandoned_review_is_retrieved(cache: Cache) -> None:
    gate = asyncio.Event()
    only = asyncio.create_task(cache.ask("k", saying("", gate)))
    await asyncio.sleep(0)
    only.cancel()
    await asyncio.gather(only, return_exceptions=True)
    gate.set()
    for _ in range(3):
        await asyncio.sleep(0)
    assert await cache.ask("k", saying("yes")) == "yes", "that one is no longer under way"


async def test_the_end_cancels_what_is_under_way(cache: Cache) -> None:
    waiting = asyncio.create_task(cache.ask("k", saying("yes", asyncio.Event())))
    await asyncio.sleep(0)
    await cache.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_look_ups_are_counted(cache: Cache, monitoring: Monitoring) -> None:
    cache.find("k")
    await cache.ask("k", saying("yes"))
    cache.find("k")
    cache.find("k")
    value = monitoring.registry.get_sample_value
    assert value("fastpath_access_review_cache_total", {"status": "hit"}) == 2
    assert value("fastpath_access_review_cache_total", {"status": "miss"}) == 1


async def test_long_questions_count_for_several() -> None:
    """A caller chooses them, and a kept one takes the room of its text."""
    monitoring = Monitoring()
    cache: ReviewCache[str, str] = ReviewCache(
        FakeClock(),
        monitoring.access_cache,
        lambda _: 10.0,
        name="review",
        cache="accesses",
        monitoring=monitoring,
        weigh=len,
        size=8,
    )
    for number in range(20):
        await cache.ask(f"{number:02}" + "x" * 10_000, saying("yes"))
    assert monitoring.registry.get_sample_value("fastpath_cache_evictions_total", {"cache": "accesses"}) == 18
    assert monitoring.registry.get_sample_value("fastpath_cache_used_ratio", {"cache": "accesses"}) == 0.75
    await cache.ask("x" * 100_000, saying("yes"))
    entries = monitoring.registry.get_sample_value("fastpath_cache_entries", {"cache": "accesses"})
    assert entries == 2, "what is larger than the room is not kept"
