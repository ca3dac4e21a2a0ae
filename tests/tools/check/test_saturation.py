"""Gauges that saturate: which queries they bound, and up to which value.

`tests/golden/check` has what `check` says about it.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.autoscaler.decide import observation
from adapter.autoscaler.decide.decision import decide
from adapter.autoscaler.decide.history import History
from adapter.autoscaler.decide.prepared_spec import prepare
from adapter.model.autoscaling import documents, fastpath_autoscaler
from fastpath_tools.check import saturation
from fastpath_tools.live import preview
from tests.support.answers import answers
from tests.support.scaling import NOW, pods
from tests.support.world import compile_text

POD = "resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}"
M = "{<<.LabelMatchers>>}"
TARGETS = Path(__file__).parents[2] / "golden" / "check" / "targets-of-saturated-gauges"


def rule(query: str, series: str = "SERIES", name: str = "load") -> str:
    return f"rules:\n- {{seriesQuery: {series}, name: {{as: {name}}}, {POD}, metricsQuery: '{query}'}}\n"


def previews(text: str) -> list[preview.RulePreview]:
    return preview.preview_rules(compile_text(text), {})


@pytest.mark.parametrize(("query", "bound"), answers("check/saturation", "bounds"))
def test_what_bounds_a_query(query: str, bound: list[Any] | None) -> None:
    """A bound is a series and the largest result, None where that is not known."""
    (made,) = previews(rule(query))
    found = saturation.of_rule(made)
    assert (found and [found.series, found.largest]) == bound


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
READINGS: dict[str, observation.Reading] = {
    "Pods": observation.PodsReading({"web-0": CAP, "web-1": CAP}),
    "Object": observation.ObjectReading(CAP),
    "External": observation.ExternalReading([CAP]),
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
        spec = prepare(fastpath_autoscaler.with_defaults(autoscaler), observation.Settings())
        seen = observation.Observation(2, 2, "app=web", pods(2), [READINGS[metric.type]])
        grows = decide(spec, seen, History(), NOW).replicas > 2
        fault = re.compile(
            rf"! .* {manifests.name}:.* shop/{autoscaler.metadata.name}: {GAUGE} cannot exceed"
        )
        assert grows is (fault.search(printed) is None), autoscaler.metadata.name
        agreed += 1
    assert agreed
