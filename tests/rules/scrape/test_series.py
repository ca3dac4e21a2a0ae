"""What scrapes of a pod come to, step by step."""

import gc
import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import ExpositionError, ExposureLimitError
from adapter.rules.matchers import Matcher
from adapter.rules.scrape import series as podseries
from adapter.rules.scrape.series import PodSeries, Track
from tests.support.answers import answers
from tests.support.scraping import parse, record

WALL = 1_700_000_000.0


def labels_of(track: Track) -> dict[str, str]:
    return dict(zip(track.flat[::2], track.flat[1::2], strict=True))


def scrape(
    series: PodSeries, body: str, time: float, keep: float = 5.0, names: tuple[str, ...] = ("x",)
) -> None:
    record(series, parse(body.encode(), names), time, WALL + time, keep)


def shown(series: PodSeries, name: str = "x") -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
    return [
        (labels_of(track), list(zip(track.times, track.values, strict=True)))
        for track in series.tracks(name)
        if track.scrape == series.scrapes
    ]


def counter(*samples: tuple[float, float]) -> Track:
    track = Track()
    for time, value in samples:
        track.add(time, value)
    return track


@pytest.mark.parametrize(("samples", "rate"), answers("scrape/series", "rate"))
def test_rate(samples: list[tuple[float, float]], rate: float | None) -> None:
    assert counter(*samples).rate(5, 5) == (None if rate is None else pytest.approx(rate))


@pytest.mark.parametrize(("samples", "rate"), answers("scrape/series", "rate of the last two"))
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


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        pytest.param(3, [(4, 4), (5, 5), (6, 6), (7, 7)], id="a window"),
        pytest.param(0, [(7, 7)], id="a gauge keeps its last sample"),
    ],
)
def test_samples_of_the_window_are_kept_and_no_others(keep: float, kept: list[tuple[float, float]]) -> None:
    series = PodSeries()
    for time in range(8):
        scrape(series, f"x {time}", time, keep=keep)

    assert shown(series) == [({}, kept)]
    assert (series.scrapes, series.time) == (8, 7)


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
    assert [labels_of(track) for track in series.tracks("x")] == [{"a": "2"}]

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

    assert [labels_of(track) for track in series.tracks("x")] == [{}]


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
        record(series, parse(body, ("x",)), 100.0 + number, wall, 30.0)

    (track,) = series.tracks("x")
    assert list(track.values) == [50, 100]
    assert track.last_rate(series.time, 30.0) == pytest.approx(5, rel=0.01)


def test_of_spellings_only_those_of_the_last_scrape_are_kept() -> None:
    series = PodSeries()
    for number in range(200):
        scrape(series, "x{a=" + " " * number + '"1"} ' + str(number), number)

    assert shown(series) == [({"a": "1"}, [(time, time) for time in range(194, 200)])]
    assert len(series._written["x"]) <= 2


def test_a_spelling_that_comes_again_is_the_same_series() -> None:
    series = PodSeries()
    for number in range(4):
        scrape(series, 'x{a="1",b="2"} 1' if number % 2 else 'x{b="2",a="1"} 1', number)
    scrape(series, "x 1", 4)
    scrape(series, 'x{a="1",b="2"} 1', 5)

    assert sorted(len(track.times) for track in series.tracks("x")) == [1, 5]


# --- limits ---------------------------------------------------------------------------------------


def body(*labels: str) -> str:
    return "".join(f"x{{{each}}} 1\n" for each in labels)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (",".join(f'l{number}="1"' for number in range(65)), "a series of x has more than 64 labels"),
        (f'a="{"y" * 8190}"', "a series of x has more than 8192 bytes of labels"),
    ],
)
def test_a_series_beyond_a_limit_makes_the_whole_scrape_fail(labels: str, said: str) -> None:
    series = PodSeries()
    scrape(series, body('a="1"'), 0)
    size = series.size
    with pytest.raises(ExposureLimitError, match=said):
        scrape(series, body('a="1"', 'a="2"', labels), 1)

    assert shown(series) == [({"a": "1"}, [(0, 1)])]
    assert (series.size, series.count) == (size, 1)


def test_series_within_the_window_have_a_limit_and_the_reason_names_the_label() -> None:
    series = PodSeries()
    for time in range(3):
        scrape(series, body(*(f'code="200",id="{time}-{number}"' for number in range(1000))), time)
    samples = parse(body(*(f'code="200",id="{number}"' for number in range(1001))).encode(), ("x",))
    with pytest.raises(ExposureLimitError) as raised:
        record(series, samples, 3, WALL, 5)

    assert str(raised.value) == (
        "more than 4000 series of x within 5 s: of the newest 500 the label id has 500 values; "
        "drop that label in the program, or select fewer series in metricsQuery"
    )
    assert series.count == 3000
    scrape(series, body('code="200",id="next"'), 20)
    assert series.count == 1, "what is out of the window makes room"


def test_only_selected_series_are_kept_and_others_are_read_once() -> None:
    series = PodSeries()
    selections = {"x": frozenset({(Matcher("code", "=~", "2.."), Matcher("path", "!=", "/health"))})}
    samples = parse(
        body(
            'code="200",path="/a"', 'code="500",path="/a"', 'code="200",path="/health"', 'code="204"'
        ).encode(),
        ("x",),
    )
    for time in range(3):
        for _ in series.record(samples, time, WALL + time, 5, selections=selections):
            pass

    assert [labels_of(track) for track in series.tracks("x")] == [
        {"code": "200", "path": "/a"},
        {"code": "204"},
    ]
    assert len(series._written["x"]) == 4
    for _ in series.record(samples, 3, WALL + 3, 5, selections={"x": frozenset({()})}):
        pass
    assert series.count == 4


@given(
    st.lists(
        st.lists(
            st.sampled_from(['a="1"', 'a="2"', 'a="2",b=""', 'a="\u00e9",c="3"', "", 'b="9"', 'b= "9"']),
            max_size=6,
        ),
        max_size=12,
    ),
    st.sampled_from([0.0, 2.0, 5.0]),
)
def test_the_size_is_that_of_what_is_kept(scrapes: list[list[str]], keep: float) -> None:
    series = PodSeries()
    for time, labels in enumerate(scrapes):
        scrape(series, body(*labels), time, keep=keep)
        tracks = [*series.tracks("x")]
        texts = [text for written in series._written.values() for text in written]
        expected = sum(
            podseries._weigh(track.flat) + podseries.SAMPLE_BYTES * len(track.times) for track in tracks
        )

        assert series.count == len(tracks)
        assert series.size == expected + sum(podseries.TEXT_BYTES + len(text) for text in texts)


@pytest.mark.parametrize("labels", [0, 8, 40])
def test_the_size_is_that_of_the_memory(labels: int) -> None:
    def long(number: int) -> str:
        return (
            ",".join(f'label_{label}="value-{number}-{label}"' for label in range(labels))
            + f'{"," * bool(labels)}n="{number}"'
        )

    parsed = [parse(body(*map(long, range(1000))).encode(), ("x",)) for _ in range(5)]
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        series = PodSeries()
        for time, samples in enumerate(parsed):
            record(series, samples, time, WALL + time, 5)
        parsed.clear()
        del samples
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert taken <= 1.2 * series.size


def test_a_step_does_little_work() -> None:
    """Counted in new series, whose labels have to be parsed: a step has a bounded number of them."""
    series = PodSeries()
    samples = parse(body(*(f'n="{number}"' for number in range(2000))).encode(), ("x",))
    sizes = [0, *(series.size for _ in series.record(samples, 0, WALL, 5))]
    most = max(later - earlier for earlier, later in itertools.pairwise(sizes))

    assert most < series.size / 5
    assert len(sizes) > 10
