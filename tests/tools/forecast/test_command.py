"""`fastpath forecast` over a load of a file, and the card of a running scaler."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adapter.bounds.forecast.verdict import ForecastCard
from adapter.cli import main
from adapter.model.autoscaling.forecast import DAY
from adapter.model.timestamps import SECOND
from fastpath_forecast.judge import Case
from fastpath_forecast.simulate.load import Load, of_points
from fastpath_tools.forecast import command
from fastpath_tools.forecast.options import COMMAND
from fastpath_tools.loads import sources
from tests.support.simulation import HPA
from tests.support.verbs import Printed
from tests.tools.forecast.cards import candidate, card, weekly_load

FPA = HPA.replace("autoscaling/v2", "fastpath.io/v1alpha1").replace(
    "HorizontalPodAutoscaler", "FastPathAutoscaler"
)
START = "2026-11-02T00:00:00Z"

Run = Callable[..., Printed]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "web.yaml").write_text(FPA)
    (tmp_path / "hpa.yaml").write_text(HPA)
    (tmp_path / "load.csv").write_text(weekly_load(1))
    return tmp_path


@pytest.fixture
def run(folder: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run the verb; later arguments win."""

    def forecast(*arguments: str) -> Printed:
        given = ["--autoscaler", "web.yaml", "--load", "load.csv", "--pod-start", "90s", *arguments]
        return Printed(main.main(["forecast", *given]), *capfd.readouterr())

    return forecast


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The document of a load of 15 days: it takes seconds to make."""
    folder = tmp_path_factory.mktemp("forecast")
    (folder / "web.yaml").write_text(FPA)
    (folder / "load.csv").write_text(weekly_load(15))
    given = ["--autoscaler", str(folder / "web.yaml"), "--load", str(folder / "load.csv")]
    options = COMMAND.parse([*given, "--pod-start=90s", f"--start={START}", "--max-extra=50%"])[0]
    case, _, _ = command.read_case(options)
    return {"name": case.scenario.autoscaler.metadata.name, "card": command.make_card(case)}


@pytest.mark.timeout(120)
def test_a_load_that_repeats_has_a_forecast_that_acts(document: dict[str, Any]) -> None:
    made: ForecastCard = document["card"]
    assert made.verdict.none is not None
    assert made.verdict.none.whole.shortage > 0
    acting = made.verdict.acting
    assert acting is not None
    assert acting.whole.gain_over(made.verdict.none.whole) > 0.5
    assert made.verdict.lead == 90
    assert made.max_extra == 0.5
    # the points end where the load ends, but for the hours ahead
    assert made.now == 1_793_577_600 + 15 * DAY
    assert made.points[0].at == made.now - DAY


def test_each_format_shows_the_same_card(
    run: Run, document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = document["card"]
    monkeypatch.setattr(command, "make_card", lambda _: made)
    text = run("--start", START)
    assert (text.status, text.err) == (0, "")
    assert text.out.startswith(f"web: {made.verdict.chosen} would act: ")
    printed = json.loads(run("--start", START, "-o", "json").out)
    assert list(printed) == ["name", "card", "notes"]
    assert msgspec.convert(printed["card"], ForecastCard) == made
    drawn = run("--start", START, "-o", "svg").out
    assert drawn.startswith("<svg ")
    assert drawn.endswith("</svg>\n")


def test_without_numpy_the_extra_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    printed = run()
    assert (printed.status, printed.out) == (1, "")
    assert printed.err == (
        "fastpath forecast: needs numpy, which is not installed: "
        "pip install '.[tools]' in a clone of the repository\n"
    )


# -- what a case is made of ----------------------------------------------------------------------------------


def _case(folder: Path, *arguments: str) -> Case:
    given = ["--load=load.csv", "--pod-start=90s", *arguments]
    case, _, _ = command.read_case(COMMAND.parse(given)[0])
    return case


def test_the_kind_of_the_autoscaler_says_how_it_runs(folder: Path) -> None:
    assert _case(folder, "--autoscaler=web.yaml").policy.name == "fast"
    assert _case(folder, "--autoscaler=hpa.yaml").policy.name == "boost"
    assert _case(folder, "--autoscaler=hpa.yaml", "--policy=fast").policy.name == "fast"


def test_flags_win_over_what_the_autoscaler_asks_for(folder: Path) -> None:
    (folder / "web.yaml").write_text(f"{FPA}  forecast: {{history: 21d, maxExtra: 30%, mode: Floor}}\n")
    settings = _case(folder, "--autoscaler=web.yaml", "--history=14d").settings
    assert (settings.history, settings.max_extra, settings.mode) == (14 * DAY, 0.3, "Floor")
    annotated = HPA.replace(
        "namespace: shop", "namespace: shop, annotations: {fastpath.io/forecast: 'minGain=40%'}"
    )
    (folder / "hpa.yaml").write_text(annotated)
    assert _case(folder, "--autoscaler=hpa.yaml").settings.min_gain == 0.4


def test_loads_are_cut_to_whole_hours_of_the_history(folder: Path) -> None:
    (folder / "load.csv").write_text(f"seconds,load\n0,1\n800,2\n{10 * DAY},3\n")
    made = _case(folder, "--autoscaler=web.yaml", "--history=7d", "--start=2026-11-02T07:47:00Z")
    load = made.scenario.loads["requests"]
    assert load.seconds == 7 * DAY
    # the load ends at 07:47:00, and the last whole hour at 07:00
    end = made.scenario.epoch // SECOND + load.seconds
    assert end == 1_793_577_600 + 10 * DAY + 7 * 3600


def test_a_schedule_is_part_of_the_case(folder: Path) -> None:
    (folder / "mornings.yaml").write_text(
        "apiVersion: fastpath.io/v1alpha1\nkind: FastPathSchedule\n"
        "metadata: {name: mornings, namespace: shop}\n"
        "spec:\n"
        "  timeZone: Europe/Berlin\n"
        "  targets: [{kind: FastPathAutoscaler, name: web}]\n"
        "  windows: [{name: open, from: '08:00', to: '18:00', minReplicas: 7}]\n"
    )
    arguments = ["--autoscaler=web.yaml", "--schedule=mornings.yaml", f"--start={START}"]
    (schedule,) = _case(folder, *arguments).scenario.schedules
    assert schedule.name == "shop/mornings"


@pytest.mark.parametrize(
    ("start", "seconds", "begin", "kept"),
    [(0, 7200, 0, 7200), (600, 7200, 3600, 3600), (600, 3000, 3600, 0), (0, 3599, 0, 0)],
)
def test_whole_hours(start: int, seconds: int, begin: int, kept: int) -> None:
    loads: dict[str, Load] = {"a": of_points([(0, 1.0)], seconds), "b": of_points([(0, 1.0)], seconds + 900)}
    found, at = sources.whole_hours(loads, start)
    assert at == begin
    assert {load.seconds for load in found.values()} == {kept}


# -- a running scaler ----------------------------------------------------------------------------------------


def test_only_the_scaler_needs_numpy(
    monkeypatch: pytest.MonkeyPatch, serve: Callable[[Any], None], capfd: pytest.CaptureFixture[str]
) -> None:
    """What is shown of its card: tests/golden/forecast/running-scaler."""
    shown = {"card": card(candidate("week"), chosen="week", mode="Floor"), "floor": 12, "withheld": ""}
    serve({"forecast": msgspec.to_builtins(shown)})
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert main.main(["forecast", "shop/web", "-o", "json"]) == 0
    expected = json.loads(msgspec.json.encode({"name": "shop/web", **shown}))
    assert json.loads(capfd.readouterr().out) == expected
