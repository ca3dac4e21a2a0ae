"""`--schedule` and `--start` on the command line. What the report says of them: tests/golden/simulate."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.support import schedules
from tests.support.verbs import Printed

Run = Callable[..., Printed]
START = ("--start", "2026-11-23T06:50:00Z")
GIVEN = ("--schedule", "office.yaml", *START)


@pytest.fixture
def office(folder: Path) -> None:
    """Write office.yaml, with a floor of 20 from the 600th second of the load on."""
    window = {"from": "07:00", "to": "18:30", "minReplicas": 20}
    (folder / "office.yaml").write_text(yaml.safe_dump(schedules.document(window, zone="Etc/UTC")))


def pod_seconds(printed: Printed) -> dict[str, float]:
    assert (printed.status, printed.err) == (0, "")
    return {each["policy"]: each["podSeconds"] for each in json.loads(printed.out)["policies"]}


@pytest.mark.usefixtures("office")
def test_a_schedule_is_for_fast_and_boost(simulated: Run) -> None:
    """12 pods are needed until second 600, when the window begins: from 601 to 1199 there are 20.

    Without a schedule the 12 pods stay until 899, for the stabilization window, and then 4.
    """
    policies = [word for name in ("native", "fast:window=0", "boost") for word in ("--policy", name)]
    runs = [simulated("-o", "json", *policies, *arguments) for arguments in ((), GIVEN)]
    without, found = map(pod_seconds, runs)
    assert found["native"] == without["native"]
    assert found["fast:window=0"] - without["fast:window=0"] == 599 * 20 - (299 * 12 + 300 * 4)
    assert found["boost"] > without["boost"] + 5000


@pytest.mark.usefixtures("office")
def test_files_can_be_repeated_and_the_namespace_may_be_absent(simulated: Run, folder: Path) -> None:
    document = schedules.document({"from": "00:00", "to": "24:00", "minReplicas": 30}, zone="Etc/UTC")
    document["metadata"] = {"name": "always"}
    (folder / "always.yaml").write_text(yaml.safe_dump(document))
    arguments = (*GIVEN, "--schedule", "always.yaml", "--policy", "fast", "-o", "json")
    assert pod_seconds(simulated(*arguments)) == {"fast": 1200 * 30}


@pytest.mark.parametrize("output", ["text", "json", "svg"])
@pytest.mark.usefixtures("office")
def test_the_same_seed_and_start_give_the_same_bytes(simulated: Run, folder: Path, output: str) -> None:
    (folder / "starts").write_text("10s\n20s\n45s\n")
    arguments = (*GIVEN, "-o", output, "--pod-start", "starts", "--phases", "2", "--policy", "fast")
    first, second = (simulated(*arguments).out for _ in range(2))
    other = simulated(*arguments, "--start", "2026-11-23T06:45:00Z").out
    assert first == second != other


@pytest.mark.usefixtures("office")
def test_the_start_is_an_instant_in_any_offset(simulated: Run) -> None:
    utc = simulated("--schedule", "office.yaml", "--start", "2026-11-23T06:50:00Z")
    assert simulated("--schedule", "office.yaml", "--start", "2026-11-23T07:50:00+01:00") == utc


@pytest.mark.parametrize("output", ["text", "json", "svg"])
def test_the_start_has_no_effect_without_a_schedule(simulated: Run, output: str) -> None:
    arguments = ("--policy", "fast", "-o", output)
    without = simulated(*arguments)
    assert without.status == 0
    assert simulated(*arguments, *START) == without


@pytest.mark.usefixtures("office")
def test_suggestions_have_the_schedule(simulated: Run) -> None:
    arguments = ("--suggest", "--phases", "1", "-o", "json")
    plain, found = (json.loads(simulated(*arguments, *more).out)["front"] for more in ((), GIVEN))
    assert plain != found
