"""Gauges that saturate: which queries they bound, and up to which value.

`tests/golden/check` has what `check` says about it.
"""

import re
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
from adapter.model.autoscaling import documents, fastpath_autoscaler
from fastpath_tools.check import saturation
from fastpath_tools.live import preview
from tests.support.scaling import NOW, pods
from tests.support.world import compile_text

POD = "resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}"
M = "{<<.LabelMatchers>>}"
TARGETS = Path(__file__).parents[2] / "golden" / "check" / "targets-of-saturated-gauges"

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


def test_advised_series_do_not_saturate() -> None:
    for name, gauge in saturation.KNOWN.items():
        assert name not in gauge.advice
        for advised in gauge.advice:
            (made,) = previews(rule(f"sum({advised}{M}) by (<<.GroupBy>>)", f"'{{__name__=\"{advised}\"}}'"))
            assert made.series == (advised,)
            assert saturation.of_rule(made) is None


# --- autoscalers beside the rules

CAP = 100_000
"""The cap of the gauge in thousandths."""
READINGS: dict[str, Reading] = {
    "Pods": PodsReading({"web-0": CAP, "web-1": CAP}),
    "Object": ObjectReading(CAP),
    "External": ExternalReading([CAP]),
}
GAUGE = "load"
"""The metric of the transcript's rules that is the gauge itself."""


@pytest.mark.parametrize("names", ["pods", "services", "external"])
def test_decisions_at_the_cap_agree_with_the_transcript(names: str) -> None:
    """A target is a fault if and only if an autoscaler that sees the cap does not grow."""
    printed = (TARGETS / "transcript").read_text()
    manifests = TARGETS / f"of-{names}.yaml"
    agreed = 0
    for tree in yaml.safe_load_all(manifests.read_text()):
        autoscaler = documents.read_document(tree)
        (metric,) = autoscaler.spec.metrics or ()
        source = metric.pods or metric.object or metric.external
        if source is None or source.metric.name != GAUGE:
            continue
        spec = prepare(fastpath_autoscaler.with_defaults(autoscaler), Settings())
        seen = Observation(2, 2, "app=web", pods(2), [READINGS[metric.type]])
        grows = decide(spec, seen, History(), NOW).replicas > 2
        fault = re.compile(
            rf"! .* {manifests.name}:.* shop/{autoscaler.metadata.name}: {GAUGE} cannot exceed"
        )
        assert grows is (fault.search(printed) is None), autoscaler.metadata.name
        agreed += 1
    assert agreed
