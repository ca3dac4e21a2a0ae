"""What is published of a raise."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.model.autoscaling import floor as floors
from adapter.model.autoscaling.floor import Demotion, Floor
from adapter.model.timestamps import SECOND, FineInstant, Span
from tests.support.answers import answers

ENTRY = Floor(
    "shop", "web", "uid-1", 8, FineInstant(100 * SECOND), 4, FineInstant(7), seen="12", hold=Span(SECOND)
)


@pytest.mark.parametrize(
    ("entry", "now", "most", "floor"),
    [
        (None, 0, 10, 0),
        (ENTRY, 99 * SECOND, 10, 8),
        (ENTRY, 100 * SECOND, 10, 0),
        (ENTRY, 99 * SECOND, 5, 5),
        (Floor(demoted=Demotion()), 0, 10, 0),
    ],
    ids=["none", "held", "over", "no more than may be", "demoted"],
)
def test_the_number(entry: Floor | None, now: int, most: int, floor: int) -> None:
    assert floors.floor_of(entry, now, most) == floor


@pytest.mark.parametrize(
    "entry",
    [
        ENTRY,
        Floor("a", "b", "c", shown=FineInstant(5), reversals=(FineInstant(3),)),
        Floor("a", "b", "c", demoted=Demotion(FineInstant(1), "argocd", "abc")),
        Floor("a", "b", "c", forecast=8, forecast_until=FineInstant(5)),
    ],
)
def test_a_written_floor_is_read_again(entry: Floor) -> None:
    assert floors.decode_floors({"c": floors.encode_floor(entry)}) == {"c": entry}


@pytest.mark.parametrize("text", ["", "{", "8", '{"replicas": "many"}', '{"until": "soon"}'])
def test_an_invalid_floor_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="not a floor"):
        floors.decode_floor(text)


def test_no_data() -> None:
    assert floors.decode_floors(None) == {}


def test_names() -> None:
    assert floors.config_map_name(0) == "fastpath-floors-slice-00"
    assert floors.config_map_name(63) == "fastpath-floors-slice-63"


@pytest.mark.parametrize("ahead", [0, 60, 3 * 3600])
def test_a_floor_ends_ten_minutes_after_it_was_first_seen_whatever_the_clock_of_its_writer_says(
    ahead: int,
) -> None:
    start = 1_700_000_000 * SECOND
    entry = msgspec.structs.replace(ENTRY, until=FineInstant(start + (600 + ahead) * SECOND))
    for seconds, held in [(0, 8), (599, 8), (600, 0), (3600, 0)]:
        known = seconds * SECOND
        assert floors.floor_of(floors.as_known_for(entry, known), start + known, 10) == held


@given(st.integers(0, 600), st.integers(0, 600), st.integers(0, 600))
def test_no_floor_of_a_right_clock_is_cut(held: int, late: int, seconds: int) -> None:
    """It is seen `late` seconds after it was written, to hold for `held` seconds, and read after more."""
    entry = msgspec.structs.replace(ENTRY, until=FineInstant(held * SECOND))
    now = (late + seconds) * SECOND
    assert floors.floor_of(floors.as_known_for(entry, seconds * SECOND), now, 10) == floors.floor_of(
        entry, now, 10
    )


NOW = 1_700_000_000 * SECOND


@pytest.mark.parametrize(
    ("entry", "is_over"),
    [
        (Floor(), True),
        (Floor(replicas=8, until=FineInstant(NOW)), True),
        (Floor(replicas=8, until=FineInstant(NOW + 1)), False),
        (Floor(reversals=(FineInstant(NOW - 300 * SECOND),)), True),
        (Floor(reversals=(FineInstant(NOW - 300 * SECOND + 1),)), False),
        (Floor(demoted=Demotion(FineInstant(NOW))), True),
        (Floor(demoted=Demotion(FineInstant(NOW + 1))), False),
        (Floor(scheduled=8, scheduled_until=FineInstant(NOW)), True),
        (Floor(scheduled=8, scheduled_until=FineInstant(NOW + 1)), False),
        (Floor(forecast=8, forecast_until=FineInstant(NOW)), True),
        (Floor(forecast=8, forecast_until=FineInstant(NOW + 1)), False),
    ],
)
def test_an_entry_that_says_nothing_any_more(entry: Floor, *, is_over: bool) -> None:
    assert floors.is_over(entry, NOW) is is_over


@pytest.mark.parametrize(("version", "cached", "newer"), answers("autoscaling/floor", "newer"))
def test_which_version_is_newer(version: str, cached: str, newer: bool) -> None:  # noqa: FBT001 - a table
    assert floors.is_newer(version, cached) is newer


@pytest.mark.parametrize(("hours", "held"), [(0, 20), (1, 20), (23, 20), (24, 0), (30, 0)])
def test_a_reader_ends_the_floor_of_a_schedule_after_a_day(hours: int, held: int) -> None:
    """A leader publishes it again every twelve hours; without one, its clock may have been wrong."""
    floor = Floor(replicas=25, scheduled=20, scheduled_until=FineInstant(NOW + 7 * 24 * 3600 * SECOND))
    known = hours * 3600 * SECOND
    assert floors.floor_of(floors.as_known_for(floor, known), NOW + known, 40) == held


@pytest.mark.parametrize(
    ("after", "most", "held"), [(0, 40, 25), (10, 40, 22), (10, 21, 21), (20, 40, 20), (30, 40, 0)]
)
def test_the_greatest_floor_that_holds_counts(after: int, most: int, held: int) -> None:
    floor = Floor(
        replicas=25,
        until=FineInstant(NOW + 10 * SECOND),
        forecast=22,
        forecast_until=FineInstant(NOW + 20 * SECOND),
        scheduled=20,
        scheduled_until=FineInstant(NOW + 30 * SECOND),
    )
    assert floors.floor_of(floor, NOW + after * SECOND, most) == held
    assert floors.greatest(floor) == 25


@pytest.mark.parametrize(("seconds", "held"), [(0, 20), (599, 20), (600, 0), (3600, 0)])
def test_a_reader_ends_the_floor_of_a_forecast_after_ten_minutes(seconds: int, held: int) -> None:
    floor = Floor(forecast=20, forecast_until=FineInstant(NOW + 24 * 3600 * SECOND))
    known = seconds * SECOND
    assert floors.floor_of(floors.as_known_for(floor, known), NOW + known, 40) == held


def test_a_reader_of_an_earlier_version_ignores_unknown_fields() -> None:
    text = floors.encode_floor(Floor("a", "b", "c", replicas=8, forecast=20, forecast_until=FineInstant(5)))
    later = text.replace("forecast", "later")
    assert floors.decode_floor(later) == Floor("a", "b", "c", replicas=8)
    assert "forecast" not in floors.encode_floor(Floor("a", "b", "c", replicas=8))
