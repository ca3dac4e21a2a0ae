"""The picture of a simulation: what it shows, and how large it gets."""

from collections.abc import Sequence
from xml.etree import ElementTree as ET

import pytest

from adapter.autoscaler.decide.restraint import Restraint
from fastpath_forecast.simulate.load import Load, LoadSpan
from fastpath_forecast.simulate.policies import read_policy
from fastpath_forecast.simulate.schedules import ScheduledStretch
from fastpath_forecast.simulate.simulation import Scenario, simulate
from fastpath_tools.simulate import picture
from fastpath_tools.simulate.inputs import PolicyVariant
from fastpath_tools.simulate.picture import Panel
from fastpath_tools.simulate.recording import Recording
from fastpath_tools.simulate.running import run_all
from tests.support.answers import answers
from tests.support.simulation import autoscaler, steps

SVG = "{http://www.w3.org/2000/svg}"
NAN = float("nan")
_LEFT, _RIGHT = 56, 776


def _panels(load: Load, *policies: str, most: int = 100) -> list[Panel]:
    scenario = Scenario(autoscaler(most=most), {"load": load}, (20,), phases=1)
    played = run_all(scenario, [PolicyVariant(read_policy(policy)) for policy in policies], picture.COLUMNS)
    panels = []
    for each in played:
        assert each.recording is not None
        name = each.figures.policy
        panels.append(Panel(name, "figures", each.recording, each.changes, name.startswith("boost")))
    return panels


def _draw(panels: Sequence[Panel], *saturated: LoadSpan) -> ET.Element:
    return ET.fromstring(picture.draw("a <title> & more", ("one", "two"), panels, saturated))


def _classes(root: ET.Element) -> list[str]:
    return [each.get("class", "") for each in root.iter()]


def _texts(root: ET.Element) -> list[str]:
    return [each.text or "" for each in root.iter(f"{SVG}text")]


STEP = steps(1200, (0, 20), (60, 120), (600, 40))


def test_each_policy_has_a_panel_with_all_parts() -> None:
    root = _draw(_panels(STEP, "native", "boost"))
    panels = [each for each in root.iter(f"{SVG}g") if each.get("class") == "panel"]
    assert [panel.findtext(f"{SVG}title") for panel in panels] == ["native", "boost"]
    for panel, raised in zip(panels, ("raised", "boosted"), strict=True):
        found = _classes(panel)
        for kind in ("demand", "ready", "asked", "shortage", raised, "lowered", "held"):
            assert kind in found, kind
    assert _texts(root)[:3] == ["a <title> & more", "one", "two"]
    assert "held by stabilization" in _texts(root)
    assert "raised by boost" in _texts(root)
    assert "no sample" not in _texts(root)


def test_a_short_load_is_drawn_second_by_second() -> None:
    (panel,) = _panels(steps(72, (0, 20), (36, 10)), "fixed:replicas=1")
    root = _draw([panel])
    paths = {each.get("class"): each.get("d", "") for each in root.iter(f"{SVG}path")}
    middle = (_LEFT + _RIGHT) // 2
    # 2 pods are needed and 1 is ready in the first half; the axis ends at 2, and is 150 high from 130 on
    assert paths["demand"] == f"M56 280V130H{middle}V205H776V280Z"
    assert paths["ready"] == paths["asked"] == "M56 205H776"
    assert paths["shortage"] == f"M56 130H{middle}V205H56Z"


def test_the_bounds_of_schedules_are_lines_where_the_axis_has_room() -> None:
    (panel,) = _panels(steps(72, (0, 20)), "fixed:replicas=1")
    bounds = (
        ScheduledStretch(18, 36, 1, None),
        ScheduledStretch(36, 54, 1, 2),
        ScheduledStretch(54, 72, 9, None),
    )
    root = _draw([panel._replace(scheduled=bounds)])
    paths = {each.get("class"): each.get("d", "") for each in root.iter(f"{SVG}path")}
    # 10 to the pixel; the axis ends at 2, and is 150 high from 130 on
    assert paths["bounds"] == "M236 205H416M416 205H596M416 130H596"
    assert "floor or ceiling of a schedule" in _texts(root)
    assert "floor or ceiling of a schedule" not in _texts(_draw([panel]))


def test_the_worst_of_a_column_is_shown() -> None:
    # One second of 720 seconds in 10 columns lacks 5 pods.
    recording = Recording(720, 10)
    recording.stretch(0, 100, 1.0, 1, 1)
    recording.stretch(100, 1, 6.0, 1, 1)
    recording.stretch(101, 619, 1.0, 1, 1)
    assert [column.worst for column in recording.columns] == [None, (1, 6.0), *[None] * 8]
    need = recording.columns[1].need
    assert need is not None
    assert (need.first, need.low, need.high, need.last) == (1.0, 1.0, 6.0, 1.0)
    assert [column.seconds for column in recording.columns] == [72] * 10


@pytest.mark.parametrize(("seconds", "most"), [(7, 3), (1000, 720), (86_401, 720), (3, 720)])
def test_columns_cover_all_seconds(seconds: int, most: int) -> None:
    recording = Recording(seconds, most)
    for second in range(0, seconds, 5):
        recording.stretch(second, min(5, seconds - second), 1.0, 1, 1)
    widths = [column.seconds for column in recording.columns]
    assert sum(widths) == seconds
    assert max(widths) - min(widths) <= 1


def test_gaps_and_saturation_are_hatched() -> None:
    load = steps(900, (0, 20), (300, NAN), (600, 20))
    root = _draw(_panels(load, "native"), LoadSpan(100, 160))
    texts, classes = _texts(root), _classes(root)
    assert "no sample" in texts
    assert "saturated when recorded" in texts
    assert "a metric has no value" in texts
    gap = next(each for each in root.iter(f"{SVG}path") if each.get("class") == "gap")
    assert gap.get("d") == "M296 130H536V280H296Z"
    assert classes.count("saturated") == 2  # one in the panel, one in the legend


def test_long_loads_and_long_names_stay_small() -> None:
    values = [(at, 50 + 40 * (at % 7) / 7 + 30 * (at % 3)) for at in range(0, 40_000, 20)]
    name = "native:scrape=30s,window=2m,sync=30s,minReplicas=2,maxReplicas=90"
    text = picture.draw("web", ("", ""), _panels(steps(40_000, *values), name))
    assert len(text) < 80_000
    assert f">{name[:47]}\u2026</text>" in text
    assert "<script" not in text
    assert "href" not in text
    assert text.count("http") == 1  # the name of the namespace


def test_few_changes_say_why() -> None:
    root = _draw(_panels(STEP, "native"))
    said = [each.findtext(f"{SVG}title") or "" for each in root.iter(f"{SVG}rect")]
    reasons = [text for text in said if text]
    assert any("from 2 to 4: pods metric load above target" in text for text in reasons)
    assert any("All metrics below target" in text for text in reasons)


@pytest.mark.parametrize(
    ("policy", "load", "most", "expected"),
    [
        ("native", STEP, 100, {Restraint.LIMITED, Restraint.HELD}),
        ("native", STEP, 6, {Restraint.HIGHEST}),
        ("native", steps(900, (0, 20), (60, 0)), 100, {Restraint.HELD, Restraint.LOWEST}),
        ("boost", STEP, 100, {Restraint.FLOOR}),
        ("fast", steps(900, (0, 20), (300, NAN)), 100, {Restraint.ABSENT}),
        ("fixed:replicas=2", STEP, 100, {Restraint.FOLLOWS}),
    ],
)
def test_restraints_are_recorded(policy: str, load: Load, most: int, expected: set[Restraint]) -> None:
    recording = Recording(load.seconds, load.seconds)
    scenario = Scenario(autoscaler(most=most), {"load": load}, (20,), phases=1)
    simulate(scenario, read_policy(policy), observer=recording)
    assert expected <= {column.restraint for column in recording.columns}


def test_past_recommendations_above_the_maximum_are_stabilization() -> None:
    load = steps(600, (0, 20), (60, 200), (180, 20))
    recording = Recording(600, 600)
    simulate(
        Scenario(autoscaler(most=6), {"load": load}, (20,), phases=1), read_policy("fast"), observer=recording
    )
    found = [column.restraint for column in recording.columns]
    assert found[170] is Restraint.HIGHEST
    assert found[200] is Restraint.HELD


@pytest.mark.parametrize(("seconds", "labels"), answers("simulate/picture", "times"))
def test_times_are_round(seconds: int, labels: list[str]) -> None:
    recording = Recording(seconds, 10)
    recording.stretch(0, seconds, 1.0, 1, 1)
    texts = _texts(_draw([Panel("p", "c", recording, ())]))
    start = texts.index("0", texts.index("0") + 1)
    assert texts[start:] == labels
