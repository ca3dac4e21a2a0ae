"""Gauges that saturate: which queries they bound, up to which value, and what `check` says about it."""

import json
from pathlib import Path

import pytest
import yaml

from adapter.autoscaler.decide.decision import decide
from adapter.autoscaler.decide.history import History
from adapter.autoscaler.decide.observation import (
    ExternalReading,
    ObjectReading,
    Observation,
    PodsReading,
    Reading,
    Settings,
)
from adapter.autoscaler.decide.prepared_spec import prepare
from adapter.cli import main
from adapter.model.autoscaling import documents, fastpath_autoscaler
from fastpath_tools.check import lint, saturation
from fastpath_tools.live import preview
from tests.support.scaling import NOW, pods
from tests.support.world import compile_text

POD = "resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}"
M = "{<<.LabelMatchers>>}"

# A query of a rule about `SERIES`, and what bounds it: the series, and the largest result.
BOUNDS = {
    "the gauge": (f"avg(DCGM_FI_DEV_GPU_UTIL{M}) by (<<.GroupBy>>)", ("DCGM_FI_DEV_GPU_UTIL", 100)),
    "its maximum": (f"max(nv_gpu_utilization{M}) by (<<.GroupBy>>)", ("nv_gpu_utilization", 1)),
    "over time": (
        f"avg(avg_over_time(nv_gpu_utilization{M}[1m])) by (<<.GroupBy>>)",
        ("nv_gpu_utilization", 1),
    ),
    "of a subquery": (
        f"max(max_over_time((nv_gpu_utilization{M})[1m:5s])) by (<<.GroupBy>>)",
        ("nv_gpu_utilization", 1),
    ),
    "in per cent": (f"100 * avg(nv_gpu_utilization{M}) by (<<.GroupBy>>)", ("nv_gpu_utilization", 100)),
    "in per cent, reversed": (
        f"avg(nv_gpu_utilization{M}) by (<<.GroupBy>>) * 100",
        ("nv_gpu_utilization", 100),
    ),
    "as a share": (f"avg(DCGM_FI_DEV_GPU_UTIL{M}) by (<<.GroupBy>>) / (100)", ("DCGM_FI_DEV_GPU_UTIL", 1)),
    "by name": (
        'avg({__name__="nv_gpu_utilization",<<.LabelMatchers>>}) by (pod)',
        ("nv_gpu_utilization", 1),
    ),
    "a sum": (f"sum(nv_gpu_utilization{M}) by (<<.GroupBy>>)", ("nv_gpu_utilization", None)),
    "a cap that is a setting": (
        f"sum(vllm:num_requests_running{M}) by (<<.GroupBy>>)",
        ("vllm:num_requests_running", None),
    ),
    "a name like a share": (f"avg(slot_utilization{M}) by (<<.GroupBy>>)", ("slot_utilization", None)),
    "another": (f"avg(worker_busy_percent{M}) by (<<.GroupBy>>)", ("worker_busy_percent", None)),
    "joined with labels of pods": (
        f"avg(DCGM_FI_DEV_GPU_UTIL{M} * on(pod) group_left(app) kube_pod_labels) by (<<.GroupBy>>)",
        ("DCGM_FI_DEV_GPU_UTIL", None),
    ),
    "where something else holds": (
        f"avg(nv_gpu_utilization{M} and on(pod) ready) by (<<.GroupBy>>)",
        ("nv_gpu_utilization", 1),
    ),
    "two of them": (
        f"avg(nv_gpu_utilization{M}) by (pod) + avg(nv_cpu_utilization{M}) by (pod)",
        ("nv_gpu_utilization", None),
    ),
    "with a constant": (f"1 + avg(nv_gpu_utilization{M}) by (pod)", ("nv_gpu_utilization", None)),
    "less something": (f"avg(nv_gpu_utilization{M}) by (pod) - idle", ("nv_gpu_utilization", None)),
    "rounded": (f"ceil(avg(nv_gpu_utilization{M}) by (pod))", ("nv_gpu_utilization", None)),
    "per something": (f"avg(nv_gpu_utilization{M}) by (pod) / gpus", ("nv_gpu_utilization", None)),
    "the first of two": (
        f"avg(nv_gpu_utilization{M}) by (pod) or avg(nv_cpu_utilization{M}) by (pod)",
        ("nv_gpu_utilization", None),
    ),
    "with a queue": (
        f"sum(vllm:num_requests_running{M}) by (pod) + sum(vllm:num_requests_waiting{M}) by (pod)",
        None,
    ),
    "a queue": (f"sum(vllm:num_requests_waiting{M}) by (<<.GroupBy>>)", None),
    "or else a queue": (f"avg(nv_gpu_utilization{M}) by (pod) or queue", None),
    "how many": (f"count(nv_gpu_utilization{M} > 0.9) by (<<.GroupBy>>)", None),
    "its rate": (f"sum(rate(celery_worker_tasks_active{M}[5m])) by (<<.GroupBy>>)", None),
    "a queue less a gauge": (f"queue{M} - nv_gpu_utilization{M}", None),
    "a queue per gauge": (f"queue{M} / nv_gpu_utilization{M}", None),
    "a share of requests": (f"sum(request_ratio{M}) by (<<.GroupBy>>)", None),
    "a cache that is hit": (f"avg(cache_hit_ratio{M}) by (<<.GroupBy>>)", None),
    "a number": (f"1 + 2 + scalar(queue{M})", None),
    "no PromQL": (f"sum(nv_gpu_utilization{M}", None),
}


def rule(query: str, series: str = "SERIES", name: str = "load") -> str:
    return f"rules:\n- {{seriesQuery: {series}, name: {{as: {name}}}, {POD}, metricsQuery: '{query}'}}\n"


def previews(text: str) -> list[preview.RulePreview]:
    return preview.preview_rules(compile_text(text), {})


@pytest.mark.parametrize(("query", "expected"), BOUNDS.values(), ids=BOUNDS)
def test_what_bounds_a_query(query: str, expected: tuple[str, float | None] | None) -> None:
    (made,) = previews(rule(query))
    found = saturation.of_rule(made)
    assert (None if found is None else (found.series, found.largest)) == expected


def test_a_rule_of_many_series_is_left_alone() -> None:
    (made,) = previews(
        rule("sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)", "'{__name__=~\"nv_.+\"}'")
    )
    assert saturation.of_rule(made) is None


RUNNING = "sum(vllm:num_requests_running{<<.LabelMatchers>>}) by (<<.GroupBy>>)"


def warnings(text: str) -> list[tuple[str, str, str]]:
    return [(each.path, each.value, each.expected) for each in lint.lint(previews(text), 15.0)]


def test_the_advice_names_the_queue() -> None:
    assert warnings(rule(RUNNING, "vllm:num_requests_running")) == [
        (
            "rules[0].metricsQuery",
            "vllm:num_requests_running",
            (
                "cannot exceed --max-num-seqs, so at full load it does not say how much more is needed: read "
                "vllm:num_requests_waiting in its place, add it to this one, or serve it as a second metric"
            ),
        )
    ]


def test_without_a_queue_of_the_same_program_the_advice_is_general() -> None:
    ((_, value, sentence),) = warnings(
        rule("avg(slot_utilization{<<.LabelMatchers>>}) by (<<.GroupBy>>)", "slot_utilization")
    )
    assert value == "slot_utilization"
    assert sentence.endswith("needed: read a queue, or requests that arrive, as well")


def test_a_second_rule_for_the_queue_takes_the_advice() -> None:
    queue = rule(RUNNING.replace("running", "waiting"), "vllm:num_requests_waiting", "queue")
    assert warnings(rule(RUNNING, "vllm:num_requests_running") + queue.removeprefix("rules:\n")) == []


def test_a_longer_name_is_another_series() -> None:
    unacked = rule(
        "sum(rabbitmq_queue_messages_unacked{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
        "rabbitmq_queue_messages_unacked",
    )
    assert [value for _, value, _ in warnings(unacked)] == ["rabbitmq_queue_messages_unacked"]


def test_advised_series_do_not_saturate() -> None:
    for name, gauge in saturation.KNOWN.items():
        assert name not in gauge.advice
        for advised in gauge.advice:
            (made,) = previews(rule(f"sum({advised}{M}) by (<<.GroupBy>>)", f"'{{__name__=\"{advised}\"}}'"))
            assert made.series == (advised,)
            assert saturation.of_rule(made) is None


# --- autoscalers beside the rules

GPU = rule("avg(DCGM_FI_DEV_GPU_UTIL{<<.LabelMatchers>>}) by (<<.GroupBy>>)", "DCGM_FI_DEV_GPU_UTIL")
EXTERNAL = GPU.replace("rules:", "externalRules:").replace("name: {as: load}", "name: {as: load}")

AUTOSCALER = """\
apiVersion: {version}
kind: {kind}
metadata: {{name: web, namespace: shop}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: web}}
  minReplicas: 2
  maxReplicas: 9
{more}  metrics:
"""
HPA, FPA = ("autoscaling/v2", "HorizontalPodAutoscaler"), ("fastpath.io/v1alpha1", "FastPathAutoscaler")


def metric(target: str, kind: str = "Pods", name: str = "load") -> str:
    described = "describedObject: {kind: Service, name: web}, " if kind == "Object" else ""
    source = f"{{{described}metric: {{name: {name}}}, target: {{{target}}}}}"
    return f"  - {{type: {kind}, {kind.lower()}: {source}}}\n"


def autoscaler(*metrics: str, kind: tuple[str, str] = HPA, more: str = "") -> str:
    return AUTOSCALER.format(version=kind[0], kind=kind[1], more=more) + "".join(metrics)


def checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rules: str, manifest: str
) -> tuple[int, str, str]:
    """Return status, standard output and standard error of a check of a folder."""
    (tmp_path / "rules.yaml").write_text(rules)
    (tmp_path / "autoscaler.yaml").write_text(manifest)
    status = main.main(["check", str(tmp_path)])
    printed = capsys.readouterr()
    return status, printed.out, printed.err.replace(f"{tmp_path}/", "")


AVERAGE, VALUE = "type: AverageValue, averageValue: {}", "type: Value, value: {}"
PER_NODE = GPU.replace("pod: {resource: pod}", "service: {resource: service}")
UP = "  behavior: {scaleUp: {tolerance: 300m}}\n"

# Rules, manifest, and whether the metric can exceed its target by the tolerance.
REACH = {
    "well below the cap": (GPU, autoscaler(metric(AVERAGE.format(80))), True),
    "just below the tolerance": (GPU, autoscaler(metric(AVERAGE.format("90900m"))), True),
    "within the tolerance": (GPU, autoscaler(metric(AVERAGE.format(91))), False),
    "above the cap": (GPU, autoscaler(metric(AVERAGE.format(120))), False),
    "above the cap, FastPathAutoscaler": (GPU, autoscaler(metric(AVERAGE.format(120)), kind=FPA), False),
    "within a tolerance of its own": (GPU, autoscaler(metric(AVERAGE.format(77)), more=UP, kind=FPA), False),
    "beyond a tolerance of its own": (GPU, autoscaler(metric(AVERAGE.format(76)), more=UP, kind=FPA), True),
    "an object's value": (PER_NODE, autoscaler(metric(VALUE.format(95), "Object")), False),
    "an object's value below": (PER_NODE, autoscaler(metric(VALUE.format(80), "Object")), True),
    "a value divided by two replicas": (EXTERNAL, autoscaler(metric(AVERAGE.format(50), "External")), False),
    "and below": (EXTERNAL, autoscaler(metric(AVERAGE.format(40), "External")), True),
    "several samples, which are added up": (
        EXTERNAL.replace("<<.GroupBy>>", "gpu"),
        autoscaler(metric(VALUE.format(500), "External")),
        True,
    ),
    "the most of them": (
        EXTERNAL.replace("avg(", "topk(3, "),
        autoscaler(metric(VALUE.format(250), "External")),
        True,
    ),
    "a ratio of them": (
        EXTERNAL.replace("by (<<.GroupBy>>)", "by (gpu) / avg(x)"),
        autoscaler(metric(VALUE.format(250), "External")),
        True,
    ),
    "one sample in all, as a share": (
        EXTERNAL.replace("avg(", "0.01 * avg("),
        autoscaler(metric(VALUE.format(1), "External")),
        False,
    ),
    "a sum": (GPU.replace("avg", "sum"), autoscaler(metric(AVERAGE.format(500))), True),
}


@pytest.mark.parametrize(("rules", "manifest", "reachable"), REACH.values(), ids=REACH)
def test_a_target_above_the_cap_is_a_fault(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    rules: str,
    manifest: str,
    reachable: bool,  # noqa: FBT001 - a table's column
) -> None:
    status, _, errors = checked(tmp_path, capsys, rules, manifest)
    assert status == (0 if reachable else 2)
    assert ("so it never asks for more replicas" in errors) is not reachable


CAP = 100_000
"""The cap of the gauge in thousandths."""
READINGS: dict[str, Reading] = {
    "Pods": PodsReading({"web-0": CAP, "web-1": CAP}),
    "Object": ObjectReading(CAP),
    "External": ExternalReading([CAP]),
}
AT_THE_CAP = {name: row for name, row in REACH.items() if row[0] in {GPU, PER_NODE, EXTERNAL}}
"""The rows whose metric is the gauge itself."""


@pytest.mark.parametrize(("_", "manifest", "reachable"), AT_THE_CAP.values(), ids=AT_THE_CAP)
def test_decisions_at_the_cap_agree(_: str, manifest: str, reachable: bool) -> None:  # noqa: FBT001
    autoscaler = documents.read_document(yaml.safe_load(manifest))
    spec = prepare(fastpath_autoscaler.with_defaults(autoscaler), Settings())
    (metric,) = autoscaler.spec.metrics or ()
    seen = Observation(2, 2, "app=web", pods(2), [READINGS[metric.type]])
    assert (decide(spec, seen, History(), NOW).replicas > 2) is reachable


def test_the_fault_has_place_and_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, printed, errors = checked(tmp_path, capsys, GPU, autoscaler(metric(AVERAGE.format(95))))
    assert errors == (
        "fastpath check: autoscaler.yaml:9: spec.metrics[0].pods.target.averageValue: 95: shop/web: "
        "load cannot exceed 100, because DCGM_FI_DEV_GPU_UTIL cannot, so it never asks for more replicas: "
        "expected less than 90.91, which leaves the tolerance of 0.1\n"
    )
    assert printed.splitlines()[-1] == "1 rule, 0 external rules, 1 autoscaler, 2 warnings, 1 fault"


def test_an_autoscaler_whose_metrics_all_saturate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    queue = rule("sum(queue{<<.LabelMatchers>>}) by (<<.GroupBy>>)", "queue", "queue").removeprefix(
        "rules:\n"
    )
    sentence = "DCGM_FI_DEV_GPU_UTIL: shop/web: no metric says how much more is needed at full load"
    alone = checked(tmp_path, capsys, GPU + queue, autoscaler(metric(AVERAGE.format(50))))
    assert sentence in alone[1]
    second = metric(AVERAGE.format(5), name="queue")
    both = checked(tmp_path, capsys, GPU + queue, autoscaler(metric(AVERAGE.format(50)), second))
    assert sentence not in both[1]


def test_a_metric_that_no_rule_makes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    floor = metric(AVERAGE.format(1), "External", "fastpath_replicas")
    manifest = autoscaler(
        metric(AVERAGE.format(1), name="unknown_load"), metric(AVERAGE.format(1), "External", "x"), floor
    )
    status, printed, _ = checked(tmp_path, capsys, GPU, manifest)
    assert status == 0
    assert "unknown_load: shop/web: none of the rules of these files makes it" in printed
    assert "none of the externalRules" not in printed, "these files have none, so others have"
    assert "autoscaler.yaml:9" in printed


def test_a_rule_of_unknown_metrics_may_make_any(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = rule("sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)", "'{__name__=~\"a.+\"}'")
    many = many.replace("name: {as: load}", "name: {matches: a_(.*)}")
    _, printed, _ = checked(tmp_path, capsys, many, autoscaler(metric(AVERAGE.format(1))))
    assert "makes it" not in printed


def test_other_objects_of_a_manifest_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n---\n"
    manifest = service + autoscaler(metric(AVERAGE.format(50)))
    status, printed, errors = checked(tmp_path, capsys, GPU, manifest)
    assert (status, errors) == (0, "")
    assert "1 autoscaler" in printed


def test_a_faulty_autoscaler_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, errors = checked(tmp_path, capsys, GPU, autoscaler("  - {type: Pods}\n") + "---\nkind: [\n")
    assert status == 2
    assert "autoscaler.yaml:9: spec.metrics[0].pods: " in errors
    assert len(errors.splitlines()) == 2


@pytest.mark.parametrize("more", ["", "\nrules: []\n"], ids=["rules", "rules that cannot be read"])
def test_rules_that_mention_an_autoscaler_are_rules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str
) -> None:
    status, printed, errors = checked(
        tmp_path, capsys, f"# for a kind: HorizontalPodAutoscaler\n{GPU}{more}", autoscaler()
    )
    assert status == (2 if more else 0)
    assert ("rules.yaml:5: rules: " in errors) is bool(more)
    assert ("load" in printed) is not bool(more)


def test_autoscalers_of_the_api_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = yaml.safe_load(autoscaler(metric(AVERAGE.format(95))))
    given |= {"status": {"currentReplicas": 1}}
    given["metadata"] |= {"uid": "1", "resourceVersion": "7", "managedFields": []}
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": [given]})
    status, _, errors = checked(tmp_path, capsys, GPU, listed)
    assert status == 2
    assert "items[0].spec.metrics[0].pods.target.averageValue: 95" in errors
