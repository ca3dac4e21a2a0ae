"""From answers to readings: ages, intervals, and how many pods were ready then."""

import pytest

from adapter.autoscaler.decide.observation import ExternalReading, PodsReading, Unavailable
from adapter.autoscaler.inputs import feed
from adapter.autoscaler.inputs.sources import ReadContext, pods_reading, series_reading
from adapter.model.timestamps import SECOND

NOW = 1_000_000 * SECOND
FIVE = 5 * SECOND
CONTEXT = ReadContext((), lambda _: 3, NOW, 0.0)


def answer(age: float = 1, **fields: object) -> feed.SourceAnswer:
    times = {"a": NOW - round(age * SECOND), "b": NOW}
    # fields by name
    return feed.SourceAnswer({"a": 1000, "b": 2000}, times)._replace(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "interval", "overdue"),
    [({}, FIVE, ""), ({"times": {}}, FIVE, feed.UNKNOWN_AGE), ({}, None, feed.UNKNOWN_INTERVAL)],
    ids=["fresh", "of unknown ages", "of an unknown interval"],
)
def test_values_that_may_raise_and_which_of_them_shrink(
    fields: dict[str, object], interval: int | None, overdue: str
) -> None:
    found = pods_reading(answer(**fields), interval, CONTEXT, "")  # type: ignore[arg-type]  # by name
    assert found == PodsReading({"a": 1000, "b": 2000}, overdue=overdue)


@pytest.mark.parametrize(
    ("age", "interval", "oldest", "kept"),
    [
        pytest.param(20, FIVE, None, True, id="two intervals and some slack"),
        pytest.param(20.1, FIVE, None, False, id="more"),
        pytest.param(299, None, None, True, id="where the interval is not known, how far a query looks back"),
        pytest.param(301, None, None, False, id="and no further"),
        pytest.param(7, FIVE, 8 * SECOND, True, id="the rule's own bound"),
        pytest.param(9, FIVE, 8 * SECOND, False, id="though younger than two intervals"),
    ],
)
def test_old_samples_are_no_values(
    age: float, interval: int | None, oldest: int | None, *, kept: bool
) -> None:
    found = pods_reading(answer(age, oldest=oldest), interval, CONTEXT, "")

    assert isinstance(found, PodsReading)
    assert set(found.values) == ({"a", "b"} if kept else {"b"})
    assert (2 * FIVE + feed.SLACK, feed.OLDEST) == (20 * SECOND, 300 * SECOND)


def test_unknown_ages_are_too_old_where_a_rule_bounds_them() -> None:
    found = pods_reading(answer(times={}, oldest=FIVE), FIVE, CONTEXT, "")

    assert isinstance(found, Unavailable)
    assert "too old" in found.message


def test_of_a_sum_with_an_old_part_nothing_is_known() -> None:
    old = feed.SourceAnswer({}, {"": NOW - 21 * SECOND}, (1000, 2000))

    part = feed.SourceAnswer({}, {"0": NOW - 301 * SECOND, "1": NOW}, (1000, 2000), trusted=True)
    for answered in (old, part):
        assert isinstance(series_reading(answered, FIVE, CONTEXT, ""), Unavailable)
    assert isinstance(
        series_reading(feed.SourceAnswer({}, {}, (1000,), oldest=1), FIVE, CONTEXT, ""), Unavailable
    )
    assert series_reading(feed.SourceAnswer({}, {"": NOW}, (1, 2), 0), FIVE, CONTEXT, "") == ExternalReading(
        (1, 2), 3
    )


def test_pods_ready_over_the_window_of_the_sample() -> None:
    asked: list[int] = []

    def least(since: int) -> int:
        asked.append(NOW - since)
        return 3

    assert feed.ready_then(NOW - 2 * SECOND, 60 * SECOND, FIVE, NOW, least) == 3
    assert feed.ready_then(None, 60 * SECOND, FIVE, NOW, least) == 3
    assert asked == [62 * SECOND, 65 * SECOND]


def test_an_unknown_window_waits_for_pods_that_became_ready() -> None:
    assert feed.ready_then(NOW, None, FIVE, NOW, lambda since: 5 if since == NOW else 3) == 0
    assert feed.ready_then(NOW, None, FIVE, NOW, lambda _: 5) == 5
    assert feed.ready_then(NOW, None, FIVE, NOW, lambda _: None) is None


def test_intervals_are_seen_from_times() -> None:
    interval = feed.SampleInterval()
    for at in (0, 0, 5, 5, 10, 25, 30):
        interval.see({"a": at, "b": at + 3}, at + 2)

    assert (interval.known, interval.lasts) == (5, 5)


def test_the_oldest_of_many_series_moves_in_small_steps_and_is_an_interval_old() -> None:
    interval = feed.SampleInterval()
    for now in range(100, 130):
        interval.see({"": now // 3 * 3 - 12}, now)  # of five series, each sampled every 15, one every 3

    assert (interval.known, interval.lasts) == (3, 14)


def test_an_interval_follows_the_newest_series_when_its_own_is_gone() -> None:
    """One that is not sampled any more would tell no interval."""
    interval = feed.SampleInterval()
    interval.see({"b": 5}, 6)
    interval.see({"a": 90, "c": 100}, 101)
    interval.see({"a": 90, "c": 110}, 111)

    assert interval.known == 10


@pytest.mark.parametrize("empty", [True, False])
def test_between_samples_without_an_answer_in_between_lies_no_interval(*, empty: bool) -> None:
    interval = feed.SampleInterval()
    interval.see({"a": 5}, 6)
    if empty:
        interval.see({}, 50)
    else:
        interval.lose()
    interval.see({"a": 100}, 101)
    assert (interval.known, interval.lasts) == (None, None)

    interval.see({"a": 110}, 111)
    assert (interval.known, interval.lasts) == (10, 10)


@pytest.mark.parametrize(
    ("every", "asked_every", "known"),
    [
        pytest.param(15, 7, 15, id="asked twice for each sample"),
        pytest.param(15, 10, 15, id="asked more often than there are samples"),
        pytest.param(1, 40, None, id="the steps are those of asking"),
        pytest.param(10, 40, None, id="so they are of several samples together"),
    ],
)
def test_what_is_asked_for_late_has_only_intervals_that_cannot_be_those_of_asking(
    every: int, asked_every: int, known: int | None
) -> None:
    interval = feed.SampleInterval()
    for at in range(3, 400, asked_every):
        interval.see({"a": at // every * every * SECOND}, at * SECOND, sparse=True)

    assert interval.known == (None if known is None else known * SECOND)
