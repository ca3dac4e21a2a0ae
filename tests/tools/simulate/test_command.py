import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adapter.model.autoscaling.fastpath_autoscaler import API_VERSION, HPA_KIND, KIND
from fastpath_forecast.simulate import load as loads
from fastpath_forecast.simulate.load import LoadSpan
from fastpath_tools.loads import sources, wording
from tests.support.answers import answers
from tests.support.simulation import HPA
from tests.support.verbs import Printed

Run = Callable[..., Printed]
FIGURES = answers("simulate/command", "figures")


def _json(printed: Printed) -> Any:
    assert (printed.status, printed.err) == (0, "")
    return json.loads(printed.out)


def test_json_has_the_keys_of_the_contract_in_their_order(simulated: Run) -> None:
    document = _json(simulated("-o", "json"))
    assert list(document) == ["load", "policies"]
    # 60 s of 20, 540 s of 120, 600 s of 40
    assert document["load"] == {"seconds": 1200, "mean": 75.0, "max": 120.0}
    assert [policy["policy"] for policy in document["policies"]] == ["native", "fast", "boost"]
    for policy in document["policies"]:
        assert list(policy) == ["policy", *FIGURES, "eta", "spread"]
        assert list(policy["spread"]) == FIGURES
        for name in FIGURES:
            least, most = policy["spread"][name]
            assert least <= policy[name] <= most, name


def test_fixed_equals_arithmetic(simulated: Run) -> None:
    document = _json(simulated("-o", "json", "--policy", "fixed:replicas=4"))
    (policy,) = document["policies"]
    spread = policy.pop("spread")
    # need: 2 pods for 60 s, 12 for 540 s, 4 for 600 s
    assert policy == {
        "policy": "fixed:replicas=4",
        "shortagePodSeconds": 540 * 8.0,
        "excessPodSeconds": 60 * 2.0,
        "podSeconds": 4800.0,
        "needPodSeconds": 9000.0,
        "shortSeconds": 540,
        "changes": 0,
        "maxReplicas": 4,
        "secondsAtMax": 0,
        "backlogMax": 540 * 80.0,
        "thetaU": 30.0,  # 540 s of 8/12 in 1,200 s
        "thetaO": 5.0,  # 60 s of 2/2
        "timeU": 45.0,
        "timeO": 5.0,
        "busySecondsEnded": 0.0,
        "busySecondsEndedIdle": 0.0,
        "eta": None,
    }
    assert spread == {name: [policy[name], policy[name]] for name in FIGURES}


def test_the_elastic_speedup_is_against_the_baseline(simulated: Run) -> None:
    flags = [word for count in (4, 6, 40) for word in ("--policy", f"fixed:replicas={count}")]
    flags += ["--baseline", "fixed:replicas=4"]
    etas = [policy["eta"] for policy in _json(simulated("-o", "json", *flags))["policies"]]
    # 6 pods: 540 s of 6/12; 60 s of 4/2 and 600 s of 2/4; short for 540 s, and too many for 660 s
    quotients = (0.3 / 0.225) * (0.05 / 0.35) * (45 / 45) * (5 / 55)
    assert etas == [
        {"baseline": "fixed:replicas=4", "value": 1.0},
        {"baseline": "fixed:replicas=4", "value": pytest.approx(quotients**0.25, abs=1e-6)},
        {"baseline": "fixed:replicas=4", "value": None},
    ]


def test_what_scale_downs_end_is_compared_with_and_without_the_idlest_first(
    simulated: Run, folder: Path
) -> None:
    """An even load ends the same, and the text has a line only where it differs."""
    names = "busySecondsEnded", "busySecondsEndedIdle"
    ended = {}
    for spread in ("0", "1"):
        document = _json(simulated("-o", "json", "--phases", "2", "--load-spread", spread))
        ended[spread] = {
            policy["policy"]: [policy[name] for name in names] for policy in document["policies"]
        }
    assert all(usual == idle > 0 for usual, idle in ended["0"].values())
    assert ended["1"]["native"][0] == ended["1"]["native"][1] > 0
    assert all(ended["1"][policy][1] < ended["1"][policy][0] for policy in ("fast", "boost"))
    line = "busy seconds ended by scale-downs: "
    assert line not in simulated("--phases", "2").out
    written = ", ".join(
        f"{usual:.1f} with {policy}" + ("" if usual == idle else f" ({idle:.1f} with scaleDown.prefer Idle)")
        for policy, (usual, idle) in ended["1"].items()
    )
    for output in ("text", "markdown"):
        assert line + written in simulated("-o", output, "--phases", "2", "--load-spread", "1").out
    # with the option in the spec the other figures are those of its run
    (folder / "fpa.yaml").write_text(
        HPA.replace("autoscaling/v2", API_VERSION).replace(HPA_KIND, KIND) + "  scaleDown: {prefer: Idle}\n"
    )
    flags = ("--autoscaler", "fpa.yaml", "-o", "json", "--phases", "2", "--load-spread", "1")
    (policy,) = _json(simulated(*flags, "--policy", "fast"))["policies"]
    assert [policy[name] for name in names] == ended["1"]["fast"]


@pytest.mark.parametrize("output", ["text", "json", "markdown", "svg"])
def test_the_same_seed_gives_the_same_bytes(simulated: Run, folder: Path, output: str) -> None:
    (folder / "starts").write_text("10s\n20s\n45s\n")
    arguments = ("-o", output, "--pod-start", "starts", "--phases", "2", "--seed")
    first, second, other = (simulated(*arguments, seed).out for seed in ("3", "3", "4"))
    assert first == second != other


def test_the_order_of_policies_changes_only_the_order_of_the_results(simulated: Run, folder: Path) -> None:
    (folder / "starts").write_text("10s\n20s\n45s\n")
    policies = ["native", "fast", "boost", "fixed:replicas=3"]
    found = []
    for order in (policies, policies[::-1]):
        flags = [word for policy in order for word in ("--policy", policy)]
        document = _json(simulated("-o", "json", "--pod-start", "starts", "--phases", "3", *flags))
        assert [policy["policy"] for policy in document["policies"]] == order
        found.append(sorted(document["policies"], key=lambda policy: str(policy["policy"])))
    assert found[0] == found[1]


@pytest.mark.parametrize("processes", [1, 2])
def test_a_terminal_shows_how_many_policies_are_done(
    simulated: Run, monkeypatch: pytest.MonkeyPatch, divide: Callable[[], None], processes: int
) -> None:
    if processes > 1:
        divide()
    arguments = ("--policy", "fixed:replicas=4", "--policy", "fast")
    without = simulated(*arguments)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    shown = simulated(*arguments)
    assert (without.status, without.err) == (0, "")
    assert shown.out == without.out
    assert "simulating" in shown.err
    assert "100%" in shown.err


def test_processes_give_what_one_process_gives(simulated: Run, divide: Callable[[], None]) -> None:
    alone = simulated("-o", "svg", "--phases", "2", "--policy", "native", "--policy", "fast")
    divide()
    assert simulated("-o", "svg", "--phases", "2", "--policy", "native", "--policy", "fast") == alone


def test_gaps_saturation_and_lengths_are_noted() -> None:
    nan = float("nan")
    gappy = loads.of_points([(0, 5.0), (60, nan), (90, 6.0)], 120, (LoadSpan(0, 30),))
    both = {"requests": gappy, "queue": loads.of_points([(0, 1.0)], 150)}
    assert wording.load_document({"requests": gappy}) == {
        "seconds": 120,
        "mean": pytest.approx(480 / 90, abs=1e-6),
        "max": 6.0,
        "gapSeconds": 30,
        "saturatedSeconds": 30,
    }
    assert wording.load_document(both)["metrics"] == {
        "requests": {"mean": pytest.approx(480 / 90, abs=1e-6), "max": 6.0},
        "queue": {"mean": 1.0, "max": 1.0},
    }
    gaps, saturated, lengths = wording.load_notes(both)
    assert gaps.startswith("30s of the load (25.0 %) are gaps without a sample")
    assert saturated.startswith("in 30s (25.0 %) all pods were saturated")
    assert lengths == "the loads differ in length: the first 2m0s of each are simulated"
    empty = {"requests": loads.of_points([(0, nan)], 60)}
    assert wording.load_document(empty)["mean"] is None


@pytest.mark.parametrize("processes", [1, 2])
def test_a_load_for_more_pods_than_a_simulation_holds(
    simulated: Run, folder: Path, divide: Callable[[], None], processes: int
) -> None:
    if processes > 1:
        divide()
    (folder / "web.yaml").write_text(HPA.replace("maxReplicas: 40", "maxReplicas: 2000000000"))
    (folder / "load.csv").write_text("seconds,load\n0,1e15\n60,1\n")
    printed = simulated("--policy", "native", "--policy", "fast")
    assert (printed.status, printed.out) == (2, "")
    assert re.fullmatch(
        r"fastpath simulate: replicas: \d+: expected at most 100000, the most pods that a simulation holds\n",
        printed.err,
    )


def test_an_autoscaler_of_either_kind_gives_the_same_figures(simulated: Run, folder: Path) -> None:
    _, spec = HPA.split("metadata:", 1)
    (folder / "fpa.yaml").write_text(f"apiVersion: {API_VERSION}\nkind: {KIND}\nmetadata:{spec}")
    arguments = ("--policy", "native", "--policy", "fast", "-o", "json")
    assert _json(simulated(*arguments)) == _json(simulated("--autoscaler", "fpa.yaml", *arguments))


def test_start_up_times_are_rounded_up_to_seconds(folder: Path) -> None:
    (folder / "starts").write_text("20s\n\n1.2s\n1m\n0s\n")
    assert sources.read_start_ups("1m30s") == [90]
    assert sources.read_start_ups("200ms") == [1]
    assert sources.read_start_ups("starts") == [20, 2, 60, 0]
