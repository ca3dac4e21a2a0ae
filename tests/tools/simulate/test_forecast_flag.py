"""`--forecast`: a policy with the floors that forecasts would have had, and what is said of them."""

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from adapter.autoscaler.decide.restraint import Restraint
from adapter.cli import main
from adapter.model.autoscaling.forecast import DAY
from adapter.model.timestamps import SECOND
from fastpath_forecast.simulate.engine import EPOCH
from fastpath_forecast.simulate.policies import read_policy
from fastpath_forecast.simulate.schedules import ForecastMinimums
from fastpath_forecast.simulate.simulation import Scenario, simulate
from fastpath_tools.simulate.recording import Recording
from tests.support.simulation import HPA, autoscaler, steps
from tests.support.verbs import Printed
from tests.tools.forecast.cards import weekly_load

Run = Callable[..., Printed]

pytestmark = pytest.mark.timeout(120)

ASKING = HPA.replace(
    "namespace: shop", "namespace: shop, annotations: {fastpath.io/forecast: 'maxExtra=50%'}"
)


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is printed of eight days, with and without the flag: a verdict takes seconds."""
    folder = tmp_path_factory.mktemp("simulate")
    (folder / "web.yaml").write_text(ASKING)
    (folder / "load.csv").write_text(weekly_load(8))
    given = ["--autoscaler", folder / "web.yaml", "--load", folder / "load.csv", "--pod-start=90s"]
    patch = pytest.MonkeyPatch()
    printed: dict[str, list[str]] = {"with": [], "without": []}
    for name, flags in (("with", ["--forecast"]), ("without", [])):
        patch.setattr("builtins.print", lambda text, end, to=printed[name]: to.append(text))
        status = main.main(["simulate", *map(str, given), "--phases=1", "--policy=fast", "-o=json", *flags])
        patch.undo()
        assert status == 0
    return {name: json.loads("".join(texts)) for name, texts in printed.items()}


def test_the_row_with_a_forecast_stands_after_the_plain_one(documents: dict[str, Any]) -> None:
    plain, acted = documents["with"]["policies"]
    assert (plain["policy"], acted["policy"]) == ("fast", "fast with forecast")
    assert acted["shortagePodSeconds"] < plain["shortagePodSeconds"]
    assert acted["podSeconds"] > plain["podSeconds"]
    assert acted["needPodSeconds"] == plain["needPodSeconds"]


def test_the_plain_row_is_that_of_a_run_without_the_flag(documents: dict[str, Any]) -> None:
    assert documents["with"]["policies"][0] == documents["without"]["policies"][0]
    assert "forecasts" not in documents["without"]


def test_each_day_has_its_verdict(documents: dict[str, Any]) -> None:
    (forecast,) = documents["with"]["forecasts"]
    assert forecast["policy"] == "fast with forecast"
    *short, last = forecast["verdicts"]
    for day, each in enumerate(short, 1):
        assert each == {"second": day * DAY, "candidate": "", "missing": f"{day} of 7 days of history"}
    assert len(short) == 6
    assert forecast["compared"].startswith("on the day with a floor ")
    assert "the same pods by " in forecast["compared"]
    assert (last["second"], last["missing"]) == (7 * DAY, "")
    assert last["candidate"]


def test_without_numpy_the_extra_is_named(simulated: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    printed = simulated("--forecast")
    assert printed.status == 1
    assert "pip install '.[tools]' in a clone of the repository" in printed.err
    assert simulated("--policy=fast").status == 0


def test_the_picture_names_the_floors(simulated: Run) -> None:
    drawn = simulated("--policy=fast", "--forecast", "--phases=1", "-o=svg")
    assert drawn.status == 0
    assert drawn.out.count('<g class="panel">') == 2
    assert "<title>fast with forecast</title>" in drawn.out


def test_a_count_that_a_forecast_holds_is_told_from_one_that_a_schedule_holds() -> None:
    recording = Recording(3600, 12)
    forecast = ForecastMinimums(EPOCH // SECOND, 600, [0, 8, 8, 0, 0, 0])
    scenario = Scenario(autoscaler(), {"load": steps(3600, (0, 20.0))}, (20,), phases=1, forecast=forecast)
    simulate(scenario, read_policy("fast"), observer=recording)
    restraints = [column.restraint for column in recording.columns]
    by_forecast = {place for place, each in enumerate(restraints) if each is Restraint.FORECAST}
    assert by_forecast
    assert by_forecast <= {2, 3, 4, 5}
    assert Restraint.SCHEDULED not in restraints
