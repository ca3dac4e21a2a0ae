"""The condition ForecastReady: what each verdict says in one sentence."""

import pytest

from adapter.bounds.forecast import minimum
from adapter.bounds.forecast import verdict as verdicts
from adapter.bounds.forecast.verdict import (
    NONE,
    UNJUDGED,
    CandidateFigures,
    Readiness,
    ReplayFigures,
    Verdict,
    readiness_of,
)
from adapter.model.autoscaling.forecast import ADVISE, FLOOR

NOTHING = CandidateFigures(NONE, ReplayFigures(1000.0, 10_000.0), ReplayFigures(500.0, 5_000.0))
DAY = CandidateFigures("day", ReplayFigures(200.0, 10_700.0), ReplayFigures(100.0, 5_300.0))
TOLD = "candidate day: -80 % shortage, +7 % pods in a replay of 7 days"
ACTING = Verdict(0, 60, "day", "", NOTHING, (DAY,))
REFUSED = Verdict(
    0, 60, "", "", NOTHING, (CandidateFigures("day", DAY.whole, DAY.recent, refused="too dear"),)
)


@pytest.mark.parametrize(
    ("mode", "verdict", "withheld", "said"),
    [
        (FLOOR, None, "", UNJUDGED),
        (
            FLOOR,
            Verdict(0, 60, missing="3 of 7 days of history"),
            "",
            Readiness(False, "Incomplete", "no verdict yet: 3 of 7 days of history"),
        ),
        (FLOOR, REFUSED, "", Readiness(True, "Refused", "no candidate may act: day: too dear")),
        (ADVISE, ACTING, "", Readiness(True, "Advising", f"no floor in mode Advise; {TOLD}")),
        (FLOOR, ACTING, "", Readiness(True, "Acting", TOLD)),
    ],
    ids=["none yet", "incomplete", "refused", "advising", "acting"],
)
def test_texts_of_verdicts(mode: str, verdict: Verdict | None, withheld: str, said: Readiness) -> None:
    assert readiness_of(mode, verdict, withheld) == said


def test_a_pause_says_when_the_next_verdict_is_due() -> None:
    said = verdicts.paused(1_700_000_000)
    assert said == Readiness(
        False,
        "Paused",
        "the next verdict is due at 2023-11-14T22:13:20Z: a changed or new spec does not hasten it",
    )


@pytest.mark.parametrize("reason", [minimum.BUDGET, minimum.COVERAGE, minimum.ABSENT, minimum.UNKNOWN])
def test_each_rule_that_withholds_has_a_sentence(reason: str) -> None:
    said = readiness_of(FLOOR, ACTING, reason)
    assert (said.holds, said.reason) == (True, verdicts.WITHHELD)
    assert said.message.endswith(f"; {TOLD}")
    assert len(said.message) > len(TOLD) + 10
