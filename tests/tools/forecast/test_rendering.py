"""What is shown of a card: sentences, the table, and the two pictures."""

from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from adapter.bounds.forecast import verdict
from adapter.model.autoscaling.forecast import ADVISE, DAY, FLOOR
from fastpath_tools.forecast import picture, wording
from fastpath_tools.simulate import results
from fastpath_tools.simulate.results import RolledVerdict
from tests.support.answers import answers
from tests.tools.forecast.cards import AT, NO_FORECAST, candidate, card

WEEK = candidate("week")
REFUSED = "it takes 38 % more pods, and maxExtra is 15 %"
TREND = candidate("trend", pods=690_000, refused=REFUSED)


def test_the_verdict_is_one_sentence() -> None:
    said = "80 % less shortage for 10 % more pods"
    assert wording.verdict_of(card(WEEK, chosen="week", mode=FLOOR)) == f"week acts: {said}"
    assert wording.verdict_of(card(WEEK, chosen="week", mode=ADVISE)) == f"week would act: {said}"
    refused = card(WEEK, TREND, shown="trend")
    assert wording.verdict_of(refused) == f"no forecast acts; the best is trend: {REFUSED}"
    short = card(missing="3 of 7 days of history")
    assert wording.verdict_of(short) == "no verdict yet: 3 of 7 days of history"


def test_more_shortage_and_fewer_pods_are_said_as_such() -> None:
    worse = candidate("day", shortage=1500, pods=400_000)
    said = wording.verdict_of(card(worse, chosen="day", mode=FLOOR))
    assert said == "day acts: 50 % more shortage for 20 % fewer pods"


def test_nothing_to_gain() -> None:
    none = verdict.CandidateFigures("none", verdict.ReplayFigures(0, 500), verdict.ReplayFigures(0, 200))
    made = card(WEEK, shown="week")
    made = replace(made, verdict=replace(made.verdict, none=none))
    assert wording.verdict_of(made) == "no forecast acts: without one no pod is missing"
    assert wording.rows(made)[0][3] == "-"


def test_the_text_has_a_row_for_each_candidate() -> None:
    week = replace(WEEK, alternative=verdict.Alternative("target 9", 550, 220))
    made = card(candidate("day", reached=None, withheld=0.126), week, TREND, chosen="week")
    none = replace(NO_FORECAST, whole=verdict.ReplayFigures(1000, 500_000, 2000))
    made = replace(made, verdict=replace(made.verdict, none=none))
    lines = wording.to_text("web", made, ["PICTURE"]).splitlines()
    assert lines[:3] == [
        "web: week would act: 80 % less shortage for 10 % more pods",
        "Decisions of the 7 days up to 2026-11-23T00:00:00Z, made again; a floor looks 1m30s ahead.",
        (
            "Without a forecast: 1,000 pod seconds are missing, 2,000 more within the tolerance, "
            "and 500,000 run."
        ),
    ]
    assert lines[4].split("   ")[0] == "CANDIDATE"
    assert [" ".join(line.split()) for line in lines[5:8]] == [
        "day 95 % - -80 % +10 % -75 % +5 % 13 % allowed, and not better",
        "week 95 % 94 % -80 % +10 % -75 % +5 % 0 % would act; the same pods by target 9: 55 % left",
        f"trend 95 % 94 % -80 % +38 % -75 % +5 % 0 % {REFUSED}",
    ]
    assert lines[9:] == [
        "PICTURE",
        "",
        "mode Advise: no floor is given to the decisions; with mode Floor it is",
    ]
    assert "mode Floor" not in wording.to_text("web", card(WEEK, chosen="week", mode=FLOOR), [])


def test_without_a_verdict_there_is_only_the_sentence_and_the_notes() -> None:
    text = wording.to_text("web", card(missing="0 of 7 days of history"), [], ["a note"])
    assert text == "web: no verdict yet: 0 of 7 days of history\n\na note\n"


def test_a_load_without_a_date_has_no_times() -> None:
    assert "2026" not in wording.to_text("web", card(WEEK, chosen="week"), [], is_dated=False)


@pytest.mark.parametrize(("mode", "floor", "withheld", "said"), answers("forecast/rendering", "holds"))
def test_what_holds_now(mode: str, floor: int, withheld: str, said: str) -> None:
    assert wording.holds(card(WEEK, chosen="week", mode=mode), floor, withheld).endswith(said)


# -- the picture of characters -------------------------------------------------------------------------------


def test_the_chart_has_the_past_day_and_the_next_hours() -> None:
    lines = picture.draw_signs(card(WEEK, chosen="week"))
    assert len(lines) == picture.ROWS + 3
    top, *_, bottom = lines[: picture.ROWS]
    assert top.startswith("40 │")
    assert bottom.startswith(" 0 │")
    cells = bottom.removeprefix(" 0 │")
    # three points of ten minutes are a column: two days of 48 columns and half a day of 24
    gap = 48 - 6 * 2
    assert cells[:gap] == "█" * gap
    assert cells[gap : gap + 2] == "  "  # the demand is not known there
    assert cells[gap + 2 : 48] == "█" * 10
    assert cells[48:] == "░" * 24
    assert "╌" in "".join(lines[: picture.ROWS])
    assert lines[-2].split() == ["-24h", "-18h", "-12h", "-6h", "now", "+6h"]
    assert lines[-2].index("now") == 4 + 48
    assert lines[-1] == "pods: █ demand, ░ forecast of week, ╌ upper bound"


def test_the_chart_without_unicode() -> None:
    assert "\n".join(picture.draw_signs(card(WEEK, chosen="week"), picture.ASCII)).isascii()


def test_the_chart_of_nothing() -> None:
    assert picture.draw_signs(card(missing="no value of the metrics")) == []
    unknown = tuple(verdict.CardPoint(at) for at in range(AT - DAY, AT + verdict.AHEAD, verdict.POINT))
    assert picture.draw_signs(replace(card(WEEK, chosen="week"), points=unknown)) == []


# -- the picture of a browser --------------------------------------------------------------------------------


def _texts(svg: str) -> list[str]:
    root = ET.fromstring(svg)
    return ["".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")]


def test_the_picture_has_the_verdict_the_axis_and_the_candidates() -> None:
    drawn = picture.draw("shop/<web>", card(WEEK, TREND, chosen="week"), ["a note"])
    texts = _texts(drawn)
    assert texts[0] == "Forecast of shop/<web>"
    assert texts[1] == "Verdict: week would act: 80 % less shortage for 10 % more pods."
    assert [each for each in texts if each.endswith("h") or each == "now"] == [
        *("-24h", "-18h", "-12h", "-6h", "now", "+6h", "+12h")
    ]
    row = texts.index("trend")
    assert texts[row : row + 9] == [
        *("trend", "95 %", "94 %", "-80 %", "+38 %", "-75 %", "+5 %", "0 %", "refused")
    ]
    assert texts[-2:] == [f"trend is refused: {REFUSED}.", "a note"]


def test_the_picture_has_colors_for_light_and_dark_and_names_nothing_outside() -> None:
    drawn = picture.draw("web", card(WEEK, chosen="week"))
    assert "prefers-color-scheme: dark" in drawn
    assert "http" not in drawn.replace("http://www.w3.org/2000/svg", "")
    assert "<script" not in drawn


def test_an_unknown_demand_is_a_gap_in_the_picture() -> None:
    root = ET.fromstring(picture.draw("web", card(WEEK, chosen="week")))
    paths = {each.get("class"): each.get("d", "") for each in root.iter("{http://www.w3.org/2000/svg}path")}
    assert paths["demand"].count("M") == paths["demand"].count("Z") == 2
    assert paths["forecast"].count("M") == 1
    assert paths["upper"].count("M") == 1


def test_the_picture_without_a_verdict() -> None:
    drawn = picture.draw("web", card(missing="3 of 7 days of history"))
    assert _texts(drawn) == ["Forecast of web", "Verdict: no verdict yet: 3 of 7 days of history."]


# -- the days of a simulation --------------------------------------------------------------------------------


def test_days_with_the_same_verdict_are_one() -> None:
    short = [RolledVerdict(day * DAY, "", f"{day} of 7 days of history") for day in range(1, 7)]
    later = [RolledVerdict(day * DAY, name, "") for day, name in ((7, "week"), (8, "week"), (9, ""))]
    assert (
        results.describe_verdicts([*short, *later])
        == "no verdict on days 1 to 7, week on days 8 to 9, no forecast on day 10"
    )
    assert results.describe_verdicts([]) == "no verdict on day 1"
