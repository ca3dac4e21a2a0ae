"""`--schedule` and `--start` on the command line, and what the report says about schedules."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import schedules
from tests.support.simulation import HPA, Printed

Run = Callable[..., Printed]
START = ("--start", "2026-11-23T06:50:00Z")
GIVEN = ("--schedule", "office.yaml", *START)


@pytest.fixture
def office(folder: Path) -> Callable[..., None]:
    """Write office.yaml; by default with a floor of 20 from the 600th second of the load on."""

    def write(*windows: dict[str, Any], **spec: Any) -> None:
        listed = windows or ({"from": "07:00", "to": "18:30", "minReplicas": 20},)
        document = schedules.document(*listed, zone="Etc/UTC", **spec)
        (folder / "office.yaml").write_text(yaml.safe_dump(document))

    write()
    return write


def pod_seconds(printed: Printed) -> dict[str, float]:
    assert (printed.status, printed.err) == (0, "")
    return {each["policy"]: each["podSeconds"] for each in json.loads(printed.out)["policies"]}


def notes(printed: Printed) -> list[str]:
    assert (printed.status, printed.err) == (0, "")
    return printed.out.partition("\n\n")[2].partition("\n\n")[2].splitlines()


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


def test_the_report_says_what_the_schedule_leaves_open(simulated: Run, office: Callable[..., None]) -> None:
    policies = [word for name in ("native", "fixed:replicas=4", "boost") for word in ("--policy", name)]
    office({"from": "07:00", "to": "18:30", "minReplicas": 50, "maxReplicas": 60}, ready="ByStart")
    assert notes(simulated(*GIVEN, *policies))[:5] == [
        "the load begins at 2026-11-23T06:50:00Z",
        "schedule shop/office: floors begin at most 20s before their windows",
        "schedule shop/office: a floor of 50 is above maxReplicas: it counts as 40",
        "native and fixed have no schedule: an HPA follows one only with boost",
        "boost has the floors of schedules and not the ceilings: boost never lowers a count",
    ]
    office({"from": "09:00", "to": "18:30", "minReplicas": 20})
    assert notes(simulated(*GIVEN, "--policy", "fast"))[:2] == [
        "the load begins at 2026-11-23T06:50:00Z",
        "schedule shop/office: no window is active in the time of the load",
    ]


@pytest.mark.usefixtures("office")
def test_suggestions_have_the_schedule(simulated: Run) -> None:
    arguments = ("--suggest", "--phases", "1", "-o", "json")
    plain, found = (json.loads(simulated(*arguments, *more).out)["front"] for more in ((), GIVEN))
    assert plain != found
    assert "native has no schedule" in simulated("--suggest", "--phases", "1", *GIVEN).out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--schedule", "office.yaml"),
            "--start: expected when the load begins such as 2026-11-27T07:00:00Z: --schedule needs it",
        ),
        (
            ("--schedule", "office.yaml", "--start", "08:00"),
            '--start: "08:00": expected an RFC 3339 time from 1971 to 2199 such as 2026-11-27T07:00:00Z',
        ),
        (
            ("--schedule", "office.yaml", "--start", "9999-12-31T23:59:59Z"),
            '--start: "9999-12-31T23:59:59Z": expected an RFC 3339 time from 1971 to 2199',
        ),
        (("--schedule", "", *START), '--schedule: "": expected a file'),
        (("--schedule", "none.yaml", *START), "none.yaml: expected a readable file: No such file"),
        (("--schedule", "web.yaml", *START), "web.yaml: expected a FastPathSchedule; the files have"),
        (
            ("--schedule", "office.yaml", "--schedule", "office.yaml", *START),
            "office.yaml: metadata.name: shop/office: expected each schedule once",
        ),
        (
            (*GIVEN, "--namespace", "bank"),
            "--schedule: shop/office: expected the target HorizontalPodAutoscaler bank/web, which is ",
        ),
    ],
)
@pytest.mark.usefixtures("office")
def test_bad_input_is_one_sentence(simulated: Run, arguments: tuple[str, ...], message: str) -> None:
    printed = simulated(*arguments)
    assert (printed.status, printed.out) == (2, "")
    assert len(printed.err.splitlines()) == 1
    assert printed.err.startswith(f"fastpath simulate: {message}")


def test_a_schedule_names_the_kind_too(simulated: Run, office: Callable[..., None], folder: Path) -> None:
    named = {"FastPathAutoscaler": "web", "HorizontalPodAutoscaler": "api"}
    office(targets=[{"kind": kind, "name": name} for kind, name in named.items()])
    printed = simulated(*GIVEN)
    assert printed.status == 2
    found = "it has FastPathAutoscaler shop/web, HorizontalPodAutoscaler shop/api"
    assert printed.err.rstrip().endswith(f"which is simulated; {found}")
    api = HPA.replace("autoscaling/v2", "fastpath.io/v1alpha1").replace(
        "HorizontalPodAutoscaler", "FastPathAutoscaler"
    )
    (folder / "web.yaml").write_text(api)
    assert simulated(*GIVEN, "--policy", "fast").status == 0
