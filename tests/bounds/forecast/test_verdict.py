"""Verdicts from the figures of replays."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.bounds.forecast import verdict as verdicts
from adapter.bounds.forecast.verdict import (
    AHEAD,
    NONE,
    POINT,
    Alternative,
    CandidateFigures,
    CardPoint,
    ForecastCard,
    ReplayFigures,
    Verdict,
)
from adapter.model.autoscaling.forecast import ForecastSettings
from tests.support.answers import answers

SETTINGS = ForecastSettings()
WITHOUT = CandidateFigures(NONE, ReplayFigures(1000.0, 10_000.0), ReplayFigures(400.0, 4_000.0))


def candidate(
    name: str,
    gain: float,
    extra: float,
    recent_gain: float | None = None,
    recent_extra: float | None = None,
    withheld: float = 0.0,
) -> CandidateFigures:
    recent_gain = gain if recent_gain is None else recent_gain
    recent_extra = extra if recent_extra is None else recent_extra
    return CandidateFigures(
        name,
        ReplayFigures(1000 * (1 - gain), 10_000 * (1 + extra)),
        ReplayFigures(400 * (1 - recent_gain), 4_000 * (1 + recent_extra)),
        withheld=withheld,
    )


def decide(*candidates: CandidateFigures) -> Verdict:
    return verdicts.decide(99, 60, WITHOUT, candidates, SETTINGS)


def test_shares_of_nothing_are_nothing() -> None:
    nothing = ReplayFigures(0.0, 0.0)
    assert ReplayFigures(5.0, 5.0).gain_over(nothing) == 0
    assert ReplayFigures(5.0, 5.0).extra_over(nothing) == 0


@pytest.mark.parametrize(("figures", "refused"), answers("bounds/verdict", "refused"))
def test_a_candidate_that_is_refused_says_why(figures: dict[str, float], refused: str) -> None:
    made = decide(candidate("day", **figures))
    assert made.candidates[0].refused == refused
    assert made.chosen == ("" if refused else "day")
    assert (made.acting is None) == bool(refused)


@pytest.mark.parametrize(("left", "recent", "refused"), answers("bounds/verdict", "beaten"))
def test_a_candidate_has_to_beat_what_the_same_pods_buy_without_it(
    left: float, recent: float, refused: str
) -> None:
    alternative = Alternative("target 9", left, recent)
    made = decide(msgspec.structs.replace(candidate("day", 0.5, 0.1), alternative=alternative))
    assert made.candidates[0].refused == refused
    assert made.chosen == ("" if refused else "day")


def test_what_the_same_pods_buy_is_said_where_there_is_something_to_compare() -> None:
    plain = candidate("day", 0.5, 0.1)
    compared = msgspec.structs.replace(plain, alternative=Alternative("target 9", 620.0, 250.0))
    assert verdicts.describe_alternative(compared, WITHOUT) == "the same pods by target 9: 62 % left"
    assert verdicts.describe_alternative(plain, WITHOUT) == ""
    nothing = CandidateFigures(NONE, ReplayFigures(0.0, 10_000.0), ReplayFigures(0.0, 4_000.0))
    assert verdicts.describe_alternative(compared, nothing) == ""


def test_of_those_with_nearly_the_greatest_gain_the_cheapest_acts() -> None:
    made = decide(candidate("day", 0.9, 0.12), candidate("week", 0.87, 0.05), candidate("trend", 0.8, 0.01))
    assert made.chosen == "week"
    assert made.acting == made.find("week")
    assert made.find("month") is None


@given(gains=st.lists(st.tuples(st.floats(-1, 1), st.floats(-0.1, 0.5)), max_size=5))
def test_nothing_acts_that_the_settings_forbid(gains: list[tuple[float, float]]) -> None:
    listed = [candidate(str(place), *each) for place, each in enumerate(gains)]
    made = decide(*listed)
    assert bool(made.chosen) == any(not each.refused for each in made.candidates)
    if made.acting is not None:
        assert made.acting.whole.gain_over(WITHOUT.whole) >= SETTINGS.min_gain
        assert made.acting.whole.extra_over(WITHOUT.whole) <= SETTINGS.max_extra


def test_a_card_is_the_same_after_its_way_from_another_process() -> None:
    points = (CardPoint(600, 1.5, None, 2.0), CardPoint(1200))
    card = ForecastCard("Floor", 0.15, 0.2, decide(candidate("day", 0.5, 0.1)), "day", points)
    assert msgspec.json.decode(msgspec.json.encode(card), type=ForecastCard) == card


def test_a_card_knows_where_the_demand_ends() -> None:
    verdict = decide(candidate("day", 0.5, 0.1))
    points = tuple(CardPoint(at) for at in range(0, 2 * AHEAD, POINT))
    assert ForecastCard("Floor", 0.15, 0.2, verdict, "day", points).now == AHEAD
    assert ForecastCard("Floor", 0.15, 0.2, verdict).now == verdict.at
