import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adapter.cli import main
from adapter.model.autoscaling.fastpath_autoscaler import API_VERSION, HPA_KIND, KIND
from fastpath_forecast.simulate import load as loads
from fastpath_forecast.simulate.load import LoadSpan
from fastpath_tools.loads import wording
from fastpath_tools.simulate import running
from tests.support.simulation import HPA, Printed

Run = Callable[..., Printed]
FIGURES = [
    "shortagePodSeconds",
    "excessPodSeconds",
    "podSeconds",
    "needPodSeconds",
    "shortSeconds",
    "changes",
    "maxReplicas",
    "secondsAtMax",
    "backlogMax",
    "thetaU",
    "thetaO",
    "timeU",
    "timeO",
    "busySecondsEnded",
    "busySecondsEndedIdle",
]


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


def test_counts_stay_integers_and_amounts_stay_fractions(simulated: Run) -> None:
    out = simulated("-o", "json", "--policy", "fixed:replicas=4").out
    assert '"shortSeconds": 540,' in out
    assert '"shortagePodSeconds": 4320.0,' in out


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


@pytest.mark.parametrize("worth", [running.WORTH, 0], ids=["one process", "processes"])
def test_a_terminal_shows_how_many_policies_are_done(
    simulated: Run, monkeypatch: pytest.MonkeyPatch, worth: int
) -> None:
    monkeypatch.setattr(running, "WORTH", worth)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    arguments = ("--policy", "fixed:replicas=4", "--policy", "fast")
    without = simulated(*arguments)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    shown = simulated(*arguments)
    assert (without.status, without.err) == (0, "")
    assert shown.out == without.out
    assert "simulating" in shown.err
    assert "100%" in shown.err


def test_processes_give_what_one_process_gives(simulated: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = simulated("-o", "svg", "--phases", "2", "--policy", "native", "--policy", "fast")
    monkeypatch.setattr(running, "WORTH", 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert simulated("-o", "svg", "--phases", "2", "--policy", "native", "--policy", "fast") == alone


def test_the_text_is_a_table_with_notes(simulated: Run) -> None:
    printed = simulated("--policy", "fixed:replicas=4", "--policy", "fixed:replicas=40")
    lines = printed.out.splitlines()
    assert lines[:3] == [
        "web: 20m0s of requests with a mean of 75 and at most 120",
        "Pods are ready 20s after a written count; the figures are means of 8 phases.",
        "",
    ]
    head = (
        "POLICY SHORTAGE OF NEED VS FIRST POD SECONDS OF NEED VS FIRST ΘU / ΘO TU / TO SPEED-UP "
        "SHORT FOR CHANGES MOST PODS AT MAX"
    )
    elastic = "30.0 / 5.0 % 45.0 / 5.0 % -"
    assert [" ".join(line.split()) for line in lines[3:7]] == [
        head,
        f"fixed:replicas=4 4,320 48.0 % 100.0 % 4,800 53.3 % 100.0 % {elastic} 9m0s 0 4 0s",
        "fixed:replicas=40 0 0.0 % 0.0 % 48,000 533.3 % 1000.0 % 0.0 / 650.0 % 0.0 / 100.0 % - 0s 0 40 20m0s",
        "",
    ]
    assert len({len(line) for line in lines[3:6]}) == 1
    limit = "shortage then may be due to the limit, not to the reaction"
    assert lines[7:] == [
        f"at maxReplicas: fixed:replicas=40 for 20m0s; {limit}",
        "the most load that waits at once: 43,200 with fixed:replicas=4, 0 with fixed:replicas=40",
    ]


def test_the_markdown_is_a_section_with_a_table(simulated: Run) -> None:
    lines = simulated("-o", "markdown", "--policy", "fixed:replicas=4", "--phases", "1").out.splitlines()
    assert lines[0] == "### Simulation of `web`"
    assert lines[2] == "20m0s of requests with a mean of 75 and at most 120."
    assert lines[3].endswith("; the figures are those of one phase.")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert cells[0][:3] == ["policy", "shortage", "of need"]
    assert set(cells[1]) == {"---", "---:"}
    assert cells[2][:3] == ["fixed:replicas=4", "4,320", "48.0 %"]
    assert {len(row) for row in cells} == {14}
    assert lines[-1].startswith("- the most load that waits at once: 43,200 with")


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


@pytest.mark.parametrize(
    ("budget", "status"),
    [("shortage<=48%", 3), ("shortage<=50%,pods<=200%", 0), ("pods<=199.9%,shortage<=100%", 3)],
)
def test_a_budget_compares_the_last_policy_with_the_first(simulated: Run, budget: str, status: int) -> None:
    # 4 pods lack 8 of 12 for 540 s, 8 pods lack 4 of them: half; and cost twice as much.
    flags = [word for count in (4, 40, 8) for word in ("--policy", f"fixed:replicas={count}")]
    printed = simulated(*flags, "--budget", budget)
    assert printed.status == status
    assert ("Budget not kept: " in printed.out) == (status == 3)
    assert ("Budget kept: " in printed.out) == (budget != "shortage<=48%")
    sentences = printed.err.splitlines()
    assert len(sentences) == (status == 3)
    if budget == "shortage<=48%":
        found = "shortage of fixed:replicas=8: 50.0 % of the shortage of fixed:replicas=4; the budget is 48 %"
        assert sentences == [f"fastpath simulate: budget not kept: {found}"]


def test_a_shortage_beside_none_breaks_any_budget(simulated: Run) -> None:
    policies = ("--policy", "fixed:replicas=12", "--policy", "fixed:replicas=11")
    printed = simulated(*policies, "--budget", "shortage<=1000%", "-o", "json")
    assert printed.status == 3
    assert "shortage of fixed:replicas=11: 540 pod seconds, and 0 of fixed:replicas=12" in printed.err
    assert json.loads(printed.out)["policies"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--budget", "speed<=5%"), '--budget: "speed<=5%": expected shortage or pods before <=, such as '),
        (("--budget", "pods<=110"), '--budget: "pods<=110": expected KEY<=PERCENT%, such as '),
        (("--budget", "pods<=1%,pods<=2%"), '--budget: "pods<=1%,pods<=2%": expected pods once'),
        (
            ("--budget", "pods<=1%", "--policy", "fast"),
            "--budget: pods<=1%: expected at least two policies to compare",
        ),
        (("--suggest", "--budget", "pods<=1%"), "--suggest: cannot be combined with --budget"),
        (("--suggest", "-o", "svg"), "--suggest: cannot be combined with -o svg"),
        (("--phases", "0"), '--phases: "0": expected 1 to 1000'),
        (("--capacity-ratio", "nan"), '--capacity-ratio: "nan": expected'),
        (("--load-spread", "-0.1"), '--load-spread: "-0.1": expected a number from 0 to 10'),
        (("--backlog", "keep"), '--backlog: "keep": expected carry or drop'),
        (("--request", "0"), '--request: "0": expected a quantity above 0'),
        (("--request", "many"), '--request: "many": expected a quantity above 0'),
        (("-o", "png"), '--output: "png": expected text, json, markdown or svg'),
        (("--policy", "quick"), "--policy: quick: expected native, fast, boost, fixed"),
        (
            ("--policy", "keda:minReplicas=0"),
            "--policy: keda:minReplicas=0: expected minReplicas of 1 or more: the activation of KEDA is not",
        ),
        (
            ("--policy", "fast", "--policy", "native", "--baseline", "boost"),
            "--baseline: boost: expected one of the policies: fast, native",
        ),
        (("--policy", "fast:behavior=b.yaml"), "b.yaml: expected a readable file: No such file"),
        (
            ("--policy", "native:minReplicas=50"),
            "--policy: native:minReplicas=50: spec.maxReplicas: Invalid value: 40: must be greater than or",
        ),
        (("--pod-start", "20"), '--pod-start: "20": expected a duration such as 20s, or a file'),
        (("--pod-start", "-1s"), "--pod-start: -1s: expected a duration from 0s to 24h"),
        (("--pod-start", "none"), "none: expected a readable file: No such file"),
        (("--load", "load.csv"), "--load: requests: expected one load for each metric"),
    ],
)
def test_bad_input_is_one_sentence(simulated: Run, arguments: tuple[str, ...], message: str) -> None:
    printed = simulated(*arguments)
    assert (printed.status, printed.out) == (2, "")
    assert len(printed.err.splitlines()) == 1
    assert printed.err.startswith(f"fastpath simulate: {message}")


@pytest.mark.parametrize("worth", [running.WORTH, 0])
def test_a_load_for_more_pods_than_a_simulation_holds(
    simulated: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, worth: int
) -> None:
    monkeypatch.setattr(running, "WORTH", worth)
    (folder / "web.yaml").write_text(HPA.replace("maxReplicas: 40", "maxReplicas: 2000000000"))
    (folder / "load.csv").write_text("seconds,load\n0,1e15\n60,1\n")
    printed = simulated("--policy", "native", "--policy", "fast")
    assert (printed.status, printed.out) == (2, "")
    assert re.fullmatch(
        r"fastpath simulate: replicas: \d+: expected at most 100000, the most pods that a simulation holds\n",
        printed.err,
    )


def test_what_is_required_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    assert main.main(["simulate"]) == 2
    places = [line.split(": ")[1] for line in capfd.readouterr().err.splitlines()]
    assert places == ["--autoscaler", "--load", "--pod-start"]


def test_an_autoscaler_of_either_kind_gives_the_same_figures(simulated: Run, folder: Path) -> None:
    _, spec = HPA.split("metadata:", 1)
    (folder / "fpa.yaml").write_text(f"apiVersion: {API_VERSION}\nkind: {KIND}\nmetadata:{spec}")
    arguments = ("--policy", "native", "--policy", "fast", "-o", "json")
    assert _json(simulated(*arguments)) == _json(simulated("--autoscaler", "fpa.yaml", *arguments))
