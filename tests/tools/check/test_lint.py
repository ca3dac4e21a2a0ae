"""Warnings about many metrics, and about our own examples; `tests/golden/check` has all others."""

from pathlib import Path

import pytest

from adapter.config import rules_file
from adapter.model.metrics import SeriesInfo
from adapter.model.objects.resources import BUILTIN
from adapter.rules.compile import compile_rules
from fastpath_tools.check import lint, lint_query
from fastpath_tools.live import chart_values as helm_values
from fastpath_tools.live import preview
from tests.support.world import compile_text

RULES = """
rules:
- seriesQuery: '{a!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
ROOT = Path(__file__).parents[3]


def test_many_metrics() -> None:
    known = [
        SeriesInfo(f"m{number}", frozenset({"namespace", "pod"}), 1) for number in range(lint.MANY_METRICS)
    ]
    ruleset = compile_text(RULES)
    few, many = (
        lint.lint([preview.preview_rule(ruleset.custom[0], given, external=False)], 15.0)
        for given in (known[1:], known)
    )
    assert few == []
    assert [(fault.path, fault.value, fault.expected) for fault in many] == [
        (
            "rules[0].seriesQuery",
            "1000 metrics",
            (
                "each is listed for every kind of object; seriesFilters or a narrower seriesQuery keep the "
                "list short"
            ),
        )
    ]


OWN_EXAMPLES = [
    ROOT / "manifests" / "base" / "custom.yaml",
    ROOT / "manifests" / "components" / "external" / "example-rules.yaml",
    ROOT / "manifests" / "components" / "resource-rules" / "resource.yaml",
    *sorted((ROOT / "docs" / "examples").glob("*.yaml")),
    *sorted((ROOT / "docs" / "examples" / "packs").glob("*/rules.yaml")),
]
SATURATES = {"gpu.yaml": ["DCGM_FI_DEV_GPU_UTIL"]}
"""What is said of our own examples: the comment of this one says so."""


@pytest.mark.parametrize(
    "path", OWN_EXAMPLES, ids=[f"{path.parent.name}-{path.stem}" for path in OWN_EXAMPLES]
)
def test_our_own_examples_have_no_warning(path: Path) -> None:
    text = path.read_text()
    read = helm_values.rules_from_chart if helm_values.is_chart_values(text) else rules_file.parse_rules
    parsed = read(text, path.name)
    assert (parsed.faults, parsed.fatal) == ((), ())
    ruleset, faults = compile_rules(parsed.config, BUILTIN)
    assert faults == ()
    warnings = lint.lint(preview.preview_rules(ruleset, {}), 15.0)
    assert [each.value for each in warnings] == SATURATES.get(path.name, [])
    if ruleset.resource is not None:
        resource = preview.preview_resource_rules(ruleset.resource)
        assert [[*lint_query.check_resource_query(each, 15.0)] for each in resource] == [[]] * 4
