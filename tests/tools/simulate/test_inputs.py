from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from adapter.errors import InputError
from adapter.model.autoscaling import boost
from fastpath_tools.loads import sources
from tests.support.simulation import HPA, Printed

Run = Callable[..., Printed]
TWO = HPA + (
    "  - type: External\n"
    "    external: {metric: {name: queue}, target: {type: AverageValue, averageValue: 30}}\n"
)
PLAIN = HPA[: HPA.index("  metrics:")]


def _fault(read: Callable[[], object]) -> str:
    with pytest.raises(InputError) as caught:
        read()
    assert len(caught.value.faults) == 1
    return str(caught.value)


# -- the autoscaler


def test_other_objects_of_the_file_are_skipped(folder: Path) -> None:
    (folder / "all.yaml").write_text(f"kind: ConfigMap\napiVersion: v1\n---\n{HPA}")
    given = sources.read_autoscaler("all.yaml")
    found = given.autoscaler.metadata.name, given.kind, given.place
    assert found == ("web", "HorizontalPodAutoscaler", "all.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "kind: ConfigMap\n",
            "web.yaml: expected one HorizontalPodAutoscaler or FastPathAutoscaler; the file has",
        ),
        (
            f"{HPA}---\n{HPA}",
            "web.yaml:12: expected one HorizontalPodAutoscaler or FastPathAutoscaler; the file",
        ),
        (HPA.replace("maxReplicas: 40", "maxReplica: 40"), "web.yaml:7: spec.maxReplica: 40: unknown field"),
        ("kind: [", "web.yaml:"),
    ],
)
def test_a_file_has_one_valid_autoscaler(folder: Path, text: str, message: str) -> None:
    (folder / "web.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        sources.read_autoscaler("web.yaml")
    assert str(caught.value.faults[0]).startswith(message)


def test_an_hpa_without_metrics_has_the_default_and_needs_a_request(simulated: Run, folder: Path) -> None:
    (folder / "web.yaml").write_text(PLAIN)
    refused = simulated()
    assert refused.status == 2
    assert refused.err == (
        "fastpath simulate: web.yaml: spec.metrics[0]: cpu: a target utilization needs --request, the "
        "request of one pod such as 500m\n"
    )
    assert "of cpu with a mean of 75" in simulated("--request", "10").out


def test_the_metric_of_boost_is_left_out(folder: Path) -> None:
    source = f"{{metric: {{name: {boost.METRIC}}}, target: {{type: Value, value: 1}}}}"
    floor = f"  - type: External\n    external: {source}\n"
    (folder / "web.yaml").write_text(HPA + floor)
    autoscaler = sources.read_autoscaler("web.yaml").autoscaler
    assert [metric.type for metric in autoscaler.spec.metrics or ()] == ["Pods"]


# -- loads


def test_loads_of_several_metrics_are_named(simulated: Run, folder: Path) -> None:
    (folder / "web.yaml").write_text(TWO)
    (folder / "queue.csv").write_text("seconds,load\n0,30\n1199,30\n")
    printed = simulated(load=("--load", "queue=queue.csv", "--load", "requests=load.csv"))
    assert printed.status == 0
    both = "requests with a mean of 75 and at most 120; queue with a mean of 30 and at most 30"
    assert printed.out.startswith(f"web: 20m0s of {both}\n")


@pytest.mark.parametrize(
    ("files", "names", "message"),
    [
        (
            ["load.csv"],
            ["a", "b"],
            '--load: "load.csv": expected NAME=FILE: the autoscaler has the metrics a, b',
        ),
        (["c=load.csv"], ["a", "b"], '--load: "c": expected a metric of the autoscaler: a, b'),
        (["c=load.csv"], ["a"], '--load: "c": expected a metric of the autoscaler: a'),
        (["a=load.csv"], ["a", "b"], "--load: b: expected b=FILE: the autoscaler has this metric"),
        (["a=load.csv", "a=load.csv"], ["a"], "--load: a: expected one load for each metric"),
        (["none.csv"], ["a"], "none.csv: expected a readable file: No such file or directory"),
    ],
)
def test_a_load_belongs_to_a_metric(
    folder: Path, files: Sequence[str], names: Sequence[str], message: str
) -> None:
    assert _fault(lambda: sources.read_loads(files, names)) == message


def test_a_path_may_have_an_equals_sign(folder: Path) -> None:
    (folder / "run=1.csv").write_text("seconds,load\n0,1\n")
    assert sources.read_loads(["./run=1.csv"], ["a"])["a"].seconds == 1


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("5,1\n3,1\n", "load.csv:2: seconds: 5: expected 0, the start"),
        ("0,1\n5,1\n3,1\n", "load.csv:4: seconds: 3: expected more than 5: seconds increase"),
        ("0,-1\n", "load.csv:2: load: -1: expected a number from 0 to 1e+15"),
        ("0,1e300\n", "load.csv:2: load: 1e300: expected a number from 0 to 1e+15"),
    ],
)
def test_a_bad_row_is_named(simulated: Run, folder: Path, rows: str, message: str) -> None:
    (folder / "load.csv").write_text(f"seconds,load\n{rows}")
    assert simulated() == (2, "", f"fastpath simulate: {message}\n")


# -- start-up times


def test_start_up_times_are_rounded_up_to_seconds(folder: Path) -> None:
    (folder / "starts").write_text("20s\n\n1.2s\n1m\n0s\n")
    assert sources.read_start_ups("1m30s") == [90]
    assert sources.read_start_ups("200ms") == [1]
    assert sources.read_start_ups("starts") == [20, 2, 60, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("20s\nsoon\n", 'starts:2: "soon": expected a duration from 0s to 24h such as 20s'),
        ("25h\n", 'starts:1: "25h": expected a duration from 0s to 24h such as 20s'),
        ("\n", "starts: expected a duration such as 20s on each line"),
    ],
)
def test_a_file_of_start_up_times_has_durations(folder: Path, text: str, message: str) -> None:
    (folder / "starts").write_text(text)
    assert _fault(lambda: sources.read_start_ups("starts")) == message


# -- policies


@pytest.mark.parametrize("nested", [False, True])
def test_a_policy_overrides_behavior(simulated: Run, folder: Path, *, nested: bool) -> None:
    behavior = "scaleUp: {selectPolicy: Disabled}"
    (folder / "b.yaml").write_text(f"behavior: {{{behavior}}}\n" if nested else f"{behavior}\n")
    row = simulated("--policy", "native:behavior=b.yaml").out.splitlines()[4].split()
    # nothing is raised: the two pods of the start stay
    assert (row[0], row[-3:-1]) == ("native:behavior=b.yaml", ["0", "2"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scaleUp: {window: 3}", "b.yaml:1: scaleUp.window: 3: unknown field"),
        ("behavior:\n  scaleup: {}", "b.yaml:2: behavior.scaleup: {}: unknown field, did you mean scaleUp?"),
        (
            "scaleDown:\n  stabilizationWindowSeconds: -1",
            "b.yaml:2: scaleDown.stabilizationWindowSeconds: Invalid value: -1: must be greater than or",
        ),
        ("[]", "b.yaml:1: []: expected a behavior with scaleUp and scaleDown"),
        ("", "b.yaml: expected one document with a behavior"),
        ("{", "b.yaml:"),
    ],
)
def test_a_bad_behavior_is_named(simulated: Run, folder: Path, text: str, message: str) -> None:
    (folder / "b.yaml").write_text(text)
    printed = simulated("--policy", "fast:behavior=b.yaml")
    assert (printed.status, printed.out) == (2, "")
    assert printed.err.startswith(f"fastpath simulate: {message}")


def test_a_target_needs_one_metric(simulated: Run, folder: Path) -> None:
    (folder / "web.yaml").write_text(TWO)
    files = ("--load", "queue=load.csv", "--load", "requests=load.csv")
    message = "--policy: fast:target=3: target: expected an autoscaler with one metric, this one has 2"
    assert simulated("--policy", "fast:target=3", load=files) == (2, "", f"fastpath simulate: {message}\n")
