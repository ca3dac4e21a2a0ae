"""What scrapes of a pod come to, step by step."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import ExpositionError
from adapter.rules import exposition
from adapter.rules.podseries import PodSeries, Track

WALL = 1_700_000_000.0


def scrape(series: PodSeries, body: str, time: float, keep: float = 5.0, names: tuple[str, ...] = ("x",)) -> None:
    series.record(exposition.parse(body.encode(), names), time, WALL + time, keep)


def shown(series: PodSeries, name: str = "x") -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
    return [
        (dict(track.labels), list(zip(track.times, track.values, strict=True)))
        for track in series.tracks(name)
        if track.scrape == series.scrapes
    ]


def counter(*samples: tuple[float, float]) -> Track:
    track = Track({})
    for time, value in samples:
        track.add(time, value)
    return track


@pytest.mark.parametrize(
    ("samples", "rate"),
    [
        pytest.param([(0, 0), (5, 10)], 2, id="two samples"),
        pytest.param([(0, 5), (1, 6), (2, 8), (5, 15)], 2, id="several"),
        pytest.param([(2.5, 0), (5, 5)], 2, id="just half the window"),
        pytest.param([(2.6, 0), (5, 5)], None, id="less than half the window"),
        pytest.param([(5, 5)], None, id="one sample"),
        pytest.param([], None, id="none"),
        pytest.param([(-1, 0), (0, 4), (5, 9)], 1, id="older than the window"),
        pytest.param([(0, 8), (2, 10), (4, 3), (5, 5)], 7 / 5, id="a reset counts from zero"),
        pytest.param([(0, 8), (2, 1), (4, 0), (5, 5)], 6 / 5, id="two resets"),
        pytest.param([(0, 7), (5, 7)], 0, id="nothing happened"),
        pytest.param([(-0.2, 0), (5, 10.4)], 2, id="a little older than the window: scrapes are never quite on time"),
        pytest.param([(0, 0), (4, 8)], 2, id="divided by the time between first and last, not by the window"),
    ],
)
def test_rate(samples: list[tuple[float, float]], rate: float | None) -> None:
    assert counter(*samples).rate(5, 5) == (None if rate is None else pytest.approx(rate))


@pytest.mark.parametrize(
    ("samples", "rate"),
    [
        pytest.param([(0, 0), (3, 1), (5, 5)], 2, id="the last two"),
        pytest.param([(3, 9), (5, 5)], 2.5, id="a reset"),
        pytest.param([(5, 5)], None, id="one"),
        pytest.param([(-1, 0), (5, 5)], None, id="one within the window"),
        pytest.param([], None, id="none"),
    ],
)
def test_rate_of_the_last_two(samples: list[tuple[float, float]], rate: float | None) -> None:
    assert counter(*samples).last_rate(5, 5) == rate


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=20), st.floats(0.1, 10))
def test_a_rate_is_the_increase_that_the_counter_counted(steps: list[float], interval: float) -> None:
    value, samples = 0.0, []
    for number, step in enumerate(steps):
        value += step
        samples.append((number * interval, value))
    window = samples[-1][0]

    rate = counter(*samples).rate(window, window)

    assert rate == pytest.approx((value - steps[0]) / window)


def test_a_gauge_keeps_its_last_sample_only() -> None:
    series = PodSeries()
    for time in range(3):
        scrape(series, f"x {time * 10}", time, keep=0)

    assert shown(series) == [({}, [(2, 20)])]
    assert (series.scrapes, series.time) == (3, 2)


def test_samples_of_the_window_are_kept_and_no_others() -> None:
    series = PodSeries()
    for time in range(8):
        scrape(series, f"x {time}", time, keep=3)

    assert shown(series) == [({}, [(4, 4), (5, 5), (6, 6), (7, 7)])]


def test_a_series_is_known_by_its_labels_however_they_are_written() -> None:
    series = PodSeries()
    scrape(series, 'x{a="1",b="2"} 1\nx{c="3"} 5', 0)
    scrape(series, 'x{ b="2", a="1", d="" } 2\nx{c="3"} 6', 1)

    assert shown(series) == [({"a": "1", "b": "2"}, [(0, 1), (1, 2)]), ({"c": "3"}, [(0, 5), (1, 6)])]


def test_of_a_series_shown_twice_the_first_counts() -> None:
    series = PodSeries()
    scrape(series, 'x{a="1"} 1\nx{a="1"} 2', 0)

    assert shown(series) == [({"a": "1"}, [(0, 1)])]


def test_a_series_that_is_gone_is_not_shown_and_forgotten_after_the_window() -> None:
    series = PodSeries()
    scrape(series, 'x{a="1"} 1\nx{a="2"} 1', 0, keep=2)
    scrape(series, 'x{a="2"} 2', 1, keep=2)
    assert [labels for labels, _ in shown(series)] == [{"a": "2"}]
    assert len(list(series.tracks("x"))) == 2, "its last samples are within the window"
    assert series.shows(["x"])

    scrape(series, "y 1", 2.5, keep=2)
    assert not series.shows(["x"])
    assert [track.labels for track in series.tracks("x")] == [{"a": "2"}]

    scrape(series, "y 1", 3.5, keep=2)
    assert list(series.tracks("x")) == []
    scrape(series, 'x{a="1"} 7', 4, keep=2)
    assert shown(series) == [({"a": "1"}, [(4, 7)])]


def test_a_time_of_its_own_counts_where_it_is_not_later_than_the_scrape() -> None:
    series = PodSeries()
    scrape(series, f"x 1 {int((WALL + 8) * 1000)}", 10)
    assert shown(series) == [({}, [(8, 1)])]
    scrape(series, f"x 1 {int((WALL + 8) * 1000)}", 11)
    assert shown(series) == [({}, [(8, 1)])], "the same sample again"
    scrape(series, f"x 2 {int((WALL + 99) * 1000)}", 12)
    assert shown(series) == [({}, [(8, 1), (12, 2)])]


def test_a_body_whose_labels_cannot_be_read_changes_nothing_that_is_shown() -> None:
    series = PodSeries()
    scrape(series, 'x{a="1"} 1', 0)
    with pytest.raises(ExpositionError):
        scrape(series, 'x{a="1"} 2\nx{1="1"} 2', 1)

    assert shown(series) == [({"a": "1"}, [(0, 1)])]


def test_labels_are_forgotten_that_were_only_in_a_body_that_cannot_be_read() -> None:
    series = PodSeries()
    with pytest.raises(ExpositionError):
        scrape(series, 'x{b="1"} 2\nx{1="1"} 2', 0)
    scrape(series, "x 1", 1)

    assert [track.labels for track in series.tracks("x")] == [{}]


def test_a_window_of_two_intervals_has_a_rate_at_every_scrape() -> None:
    series = PodSeries()
    rates = []
    for number in range(100):
        time = number + (0.0, 0.005, 0.002)[number % 3]
        scrape(series, f"x {number}", time, keep=2.0)
        (track,) = series.tracks("x")
        rates.append(track.rate(time, 2.0))

    assert all(rate == pytest.approx(1.0, rel=0.01) for rate in rates[2:])


def test_the_same_sample_again_is_the_last_one_again_though_clocks_are_not_read_in_one_instant() -> None:
    series = PodSeries()
    for number in range(20):
        body = f"x {50 * (1 + number // 10)} {int((WALL + number // 10 * 10) * 1000)}".encode()
        wall = WALL + number + number % 3 * 1e-5
        series.record(exposition.parse(body, ("x",)), 100.0 + number, wall, 30.0)

    (track,) = series.tracks("x")
    assert track.values == [50, 100]
    assert track.last_rate(series.time, 30.0) == pytest.approx(5, rel=0.01)


def test_of_spellings_only_those_of_the_last_scrape_are_kept() -> None:
    series = PodSeries()
    for number in range(200):
        scrape(series, "x{a=" + " " * number + '"1"} ' + str(number), number)

    assert shown(series) == [({"a": "1"}, [(time, time) for time in range(194, 200)])]
    assert len(series._as_written) <= 2


def test_a_spelling_that_comes_again_is_the_same_series() -> None:
    series = PodSeries()
    for number in range(4):
        scrape(series, 'x{a="1",b="2"} 1' if number % 2 else 'x{b="2",a="1"} 1', number)
    scrape(series, "x 1", 4)
    scrape(series, 'x{a="1",b="2"} 1', 5)

    assert sorted(len(track.times) for track in series.tracks("x")) == [1, 5]
