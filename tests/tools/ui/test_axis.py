"""The time axis: what it draws, where, and what it says to readers that do not see it."""

import re
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest

from adapter.autoscaler.decide.restraint import Restraint
from adapter.model.autoscaling.view import AutoscalerView, BoundsAhead, LimitsView, NextChange
from fastpath_tools.ui import axis
from fastpath_tools.ui.axis import Axis
from fastpath_tools.ui.pages import Templates
from tests.support.answers import answers
from tests.tools.hostile_text import HOSTILE
from tests.tools.ui.autoscaler_views import at, history, point, view

TEMPLATES = Templates("/")

HELD, FOLLOWS, HIGHEST = (
    restraint.value for restraint in (Restraint.HELD, Restraint.FOLLOWS, Restraint.HIGHEST)
)
HOUR = (
    point(-3600, 3),
    point(-2400, 12, 10, ready=8, limited_by=HIGHEST),
    point(-1200, 4, 10, limited_by=HELD),
    point(-600, 4, 10, limited_by=HELD, floor=6),
    point(-300, 4),
)


def past(**changes: Any) -> AutoscalerView:
    return view(history=history(*HOUR), **changes)


def lines(drawn: Axis, kind: str) -> list[str]:
    return re.findall(rf'<path class="{kind}" d="([^"]*)"', drawn.shapes)


def render(shown: AutoscalerView, span: str = "") -> str:
    return TEMPLATES.render("autoscaler_axis.html", axis=axis.draw(shown, span), view=shown, spans={})


def svg(shown: AutoscalerView, span: str = "") -> str:
    return render(shown, span).partition("</nav>\n")[2].partition('<ul class="legend"')[0]


def table(shown: AutoscalerView) -> list[list[str]]:
    """Return the cells of the table in the page, without its head."""
    page = render(shown)
    rows = re.findall(r"<tr>(<th scope=\"row\">.*)</tr>", page)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


def test_it_is_one_picture_with_a_title_and_a_description() -> None:
    root = ET.fromstring(svg(past()))
    assert root.attrib["role"] == "group"
    named = {root.find("title").attrib["id"], root.find("desc").attrib["id"]}  # type: ignore[union-attr]
    assert set(root.attrib["aria-labelledby"].split()) == named
    assert root.findtext("title") == "Replicas of shop/web over time"
    assert root.findtext("desc") == (
        "In the last 60 m the desired count was between 3 and 10. Follows the metrics for 25 m. "
        "Limited by maxReplicas for 20 m. Held by stabilization for 15 m."
    )


def test_lines_step_where_counts_change() -> None:
    drawn = axis.draw(past())
    # 70 minutes are 1000 wide, and 12 pods 200 high of at most 15
    assert lines(drawn, "desired") == ["M0 216H285.7V113.3H785.7V201.3H857.1"]
    assert lines(drawn, "floor") == ["M714.3 172H785.7"]
    assert lines(drawn, "now") == ["M857.1 40v220"]
    assert ">now, 08:00 UTC</text>" in svg(past())
    assert list(drawn.lines) == ["demand", "desired", "ready", "floor", "min", "max", "reaction", "step"]


def test_the_past_ends_at_now_and_the_picture_stays_for_five_seconds() -> None:
    drawn = [axis.draw(view(history=history(*HOUR), time=at(late))) for late in (1, 3, 6)]
    for each in drawn:
        (now,) = lines(each, "now")
        assert lines(each, "desired")[0].endswith(f"H{now[1:].split()[0]}")
    assert drawn[0].shapes == drawn[1].shapes != drawn[2].shapes


def test_the_ribbon_names_what_limited_the_count() -> None:
    shown = render(past())
    boxes = re.findall(r'<rect class="(cause-\w+)" x="([\d.]+)%".*?<title>(.*?)</title>', shown)
    assert boxes == [
        ("cause-highest", "28.57", "07:20:00 to 07:40:00 UTC: limited by maxReplicas"),
        ("cause-held", "57.14", "07:40:00 to 07:55:00 UTC: held by stabilization"),
    ]
    assert re.findall("(limited by.*|held by.*)</li>", shown) == [
        "limited by maxReplicas, 20 m",
        "held by stabilization, 15 m",
    ]


def test_each_restraint_but_the_metrics_has_a_color_of_the_style() -> None:
    points = [
        point(-60 * place, 3, limited_by=restraint.value)
        for place, restraint in enumerate(reversed(Restraint), 1)
    ]
    drawn = axis.draw(view(history=history(*reversed(points))))
    kinds = [kind for kind, *_ in drawn.ribbon()]
    assert len(kinds) == len(Restraint) - 1
    for kind in kinds:
        assert f".axis .{kind} {{" in axis.STYLE


def test_bounds_and_the_next_change_are_ahead_of_now() -> None:
    bounds = BoundsAhead(start=at(300), end=at(1500), min=6, max=None, source="schedule office")
    change = NextChange(replicas=2, at=at(90), released=HELD)
    drawn = axis.draw(past(ahead=(bounds,), next=change))
    [ahead], [step], [now] = (lines(drawn, kind) for kind in ("ahead", "next", "now"))
    start, end = map(float, re.findall(r"[MH]([\d.]+)", ahead))
    assert float(now[1:6]) < start < end == 1000
    assert step.count("V") == 1, "it falls once"
    shown = svg(past(ahead=(bounds,), next=change))
    assert "Next: 2 replicas at 08:01:30 UTC.</desc>" in shown
    assert "<title>08:01:30: 2 replicas if the load stays</title>" in shown


@pytest.mark.parametrize(("seconds", "end"), [(60, 600), (1500, 1500), (90_000, 3600)])
def test_it_reaches_as_far_ahead_as_anything_is_known_up_to_an_hour(seconds: int, end: int) -> None:
    bounds = BoundsAhead(start=at(30), end=at(seconds), min=6, max=8, source="forecast")
    [now] = lines(axis.draw(past(ahead=(bounds,))), "now")
    assert float(now[1:].split(" ")[0]) == pytest.approx(1000 * 3600 / (3600 + end), abs=0.1)


def test_a_maximum_far_above_the_counts_is_not_drawn() -> None:
    points = [msgspec.structs.replace(one, max=500) for one in HOUR]
    drawn = axis.draw(view(history=history(*points), limits=LimitsView(min=2, max=500)))
    assert not lines(drawn, "max")
    assert "max" not in drawn.lines


def test_what_was_not_known_is_a_gap() -> None:
    gap = point(-2400, None, min=0, max=0, limited_by="")
    shown = view(history=history(point(-3600, 3), gap, point(-1200, 5)))
    drawn = axis.draw(shown)
    assert lines(drawn, "desired")[0].count("M") == 2
    assert lines(drawn, "min")[0].count("M") == 2
    assert table(shown)[1] == ["07:20:00", "\u2013", "\u2013", "\u2013", "\u2013", ""]


def test_the_table_has_the_newest_points_first() -> None:
    assert table(past())[:2] == [
        ["07:55:00", "4", "4", "4", "2 to 10", FOLLOWS],
        ["07:50:00", "4", "10", "10", "6 to 10", HELD],
    ]
    many = [point(-15 * place, place % 3) for place in range(100, 0, -1)]
    long = view(history=history(*many))
    assert len(table(long)) == 60
    assert "40 older points are left out" in render(long)


def test_a_short_history_has_room_for_five_minutes() -> None:
    drawn = axis.draw(view(history=history(point(-60, 4))))
    assert lines(drawn, "desired") == ["M685.7 113.3H857.1"], "300 of 350 seconds are past"


def test_without_a_history_there_is_the_time_ahead() -> None:
    drawn = axis.draw(view(next=NextChange(replicas=7, at=at(60), released="")))
    assert list(drawn.lines) == ["next"]
    assert (drawn.spans, drawn.causes) == ([], {})
    assert "No history is known." in svg(view())


@pytest.mark.parametrize("name", [HOSTILE, "<script>alert(1)</script>'\"&", "w" * 253])
def test_a_hostile_name_is_text(name: str) -> None:
    root = ET.fromstring(svg(past(name=name)))
    tags = {"svg", "title", "desc", "path", "text", "rect", "g", "circle"}
    assert {element.tag for element in root.iter()} <= tags
    assert str(root.findtext("title")).isprintable()


# -- changes of the count ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("points", "titles"), answers("ui/axis", "changes"))
def test_a_change_of_the_count_has_a_mark_that_tells_when_and_how_late(
    points: list[list[Any]], titles: list[str]
) -> None:
    listed = [point(at, demand, desired, ready=ready) for at, demand, desired, ready in points]
    shown = svg(view(history=history(*listed)))
    marks = re.findall(r'<g class="step" tabindex="0" role="img"><title>(.*?)</title>.*>(.*?)</text>', shown)
    assert marks == [(title, title) for title in titles], "what is focused shows its title"


@pytest.mark.parametrize(("span", "begin"), [("5m", 300), ("15m", 900), ("1h", 3600), ("7h", 3600)])
def test_a_span_that_is_chosen(span: str, begin: int) -> None:
    drawn = axis.draw(past(next=NextChange(replicas=2, at=at(2000), released=HELD)), span)
    assert drawn.now - drawn.frame.begin == drawn.now - drawn.spans[0].start == begin
    assert drawn.frame.end - drawn.now == min(begin, 2060), "as much is ahead at most"
    assert drawn.span == (span if span in axis.SPANS else "1h")


def test_points_close_together_share_what_tells_them() -> None:
    close = [point(-100 + place / 10, 3 + place % 2) for place in range(20)]
    told = re.findall('<rect class="zone".*?<title>(.*?)</title>', svg(view(history=history(*close)), "1h"))
    assert len(told) == 1
    assert told[0].startswith("07:58:21 to 07:58:21 UTC: demand 3, desired 3, Ready 3, follows the metrics; ")
    assert told[0].endswith("; and 14 before")
    many = [point(-3600 + 7 * place, 3 + place % 2) for place in range(512)]
    shown = svg(view(history=history(*many)))
    assert shown.count('class="zone"') <= 250
    assert shown.count("tabindex") == 40, "only the newest are stations on the way through a page"
