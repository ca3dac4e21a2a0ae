"""Warnings about series that exist, and those about our own examples.

`tests/golden/check` has the warnings that a rule's own text shows.
"""

from pathlib import Path

import pytest

from adapter.config import rules_file
from adapter.model.metrics import SeriesInfo
from adapter.model.resources import BUILTIN
from adapter.rules.compile import compile_rules
from fastpath_tools.check import lint, lint_query
from fastpath_tools.live import chart_values as helm_values
from fastpath_tools.live import preview
from tests.support.world import compile_text, series

MATCHERS = "{<<.LabelMatchers>>}"
POD = "resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}"
SUM = f"metricsQuery: 'sum(<<.Series>>{MATCHERS}) by (<<.GroupBy>>)'"
GOOD = f"{POD}, {SUM}"
ROOT = Path(__file__).parents[3]


def custom(*rules: str) -> str:
    return f"rules: [{', '.join(f'{{{rule}}}' for rule in rules)}]"


def external(*rules: str) -> str:
    return f"externalRules: [{', '.join(f'{{{rule}}}' for rule in rules)}]"


def real(rule: str, *known: SeriesInfo, outside: bool = False) -> list[tuple[str, str, str]]:
    text = external(rule) if outside else custom(rule)
    ruleset = compile_text(text)
    made = preview.preview_rule((*ruleset.custom, *ruleset.external)[0], known, external=outside)
    return [(fault.path, fault.value, fault.expected) for fault in lint.lint([made], 15.0)]


SEEN = series({"__name__": "hits", "namespace": "a", "pod": "b"})

# Rule, series that exist, whether it is external, and the warnings.
OF_SERIES = {
    "good": (f"seriesQuery: hits, {GOOD}", SEEN, False, []),
    "none": (
        f"seriesQuery: hits, {GOOD}",
        (),
        False,
        [("rules[0].seriesQuery", "", "no series matches now, so the rule serves nothing")],
    ),
    "all dropped": (
        f"seriesQuery: hits, seriesFilters: [{{isNot: hits}}], {GOOD}",
        SEEN,
        False,
        [
            (
                "rules[0].seriesFilters",
                "",
                "all 1 names are dropped by seriesFilters or name.matches: see --why METRIC",
            )
        ],
    ),
    "names that PromQL cannot write": (
        f"seriesQuery: hits, {GOOD}",
        (*SEEN, SeriesInfo('x or y\x1b["', frozenset({"namespace", "pod"}), 1)),
        False,
        [
            (
                "rules[0].seriesQuery",
                "",
                (
                    '1 series name is left out, such as "x or y\\x1b[\\"": expected names that PromQL can '
                    "write without quotes, "
                    "of letters, digits, underscores and colons"
                ),
            )
        ],
    ),
    "no name that PromQL can write": (
        f"seriesQuery: hits, {GOOD}",
        (SeriesInfo("a.b", frozenset(), 1), SeriesInfo("c.d", frozenset(), 1)),
        False,
        [
            (
                "rules[0].seriesQuery",
                "",
                (
                    '2 series names are left out, such as "a.b": expected names that PromQL can write '
                    "without quotes, of "
                    "letters, digits, underscores and colons"
                ),
            )
        ],
    ),
    "a label that is nowhere": (
        (
            "seriesQuery: hits, resources: {overrides: {namespace: {resource: namespace}, instance: "
            f"{{resource: node}}}}}}, {SUM}"
        ),
        SEEN,
        False,
        [("rules[0].resources.overrides.instance", "", "no series of this rule has the label")],
    ),
    "no label names an object": (
        f"seriesQuery: hits, resources: {{template: 'kube_<<.Resource>>'}}, {SUM}",
        SEEN,
        False,
        [
            (
                "rules[0].resources",
                "",
                "no label of the series names a kind of object, so the metric is not listed",
            )
        ],
    ),
    "several names for a fixed query": (
        f"seriesQuery: '{{a!=\"\"}}', {POD}, metricsQuery: 'sum(hits{MATCHERS}) by (<<.GroupBy>>)'",
        (*SEEN, *series({"__name__": "misses", "namespace": "a", "pod": "b"})),
        False,
        [
            (
                "rules[0].metricsQuery",
                "",
                "the query does not use <<.Series>> although seriesQuery may match several names",
            )
        ],
    ),
    "one name for a fixed query": (
        f"seriesQuery: '{{a!=\"\"}}', {POD}, metricsQuery: 'sum(hits{MATCHERS}) by (<<.GroupBy>>)'",
        SEEN,
        False,
        [],
    ),
    "external: only the label for namespaces counts": (
        (
            "seriesQuery: hits, resources: {overrides: {ns: {resource: namespace}, x: {resource: node}}}, "
            f"metricsQuery: 'sum(hits{MATCHERS})'"
        ),
        SEEN,
        True,
        [("externalRules[0].resources.overrides.ns", "", "no series of this rule has the label")],
    ),
    "external without namespaces: none counts": (
        (
            "seriesQuery: hits, resources: {namespaced: false, overrides: {ns: {resource: namespace}}}, "
            f"metricsQuery: 'sum(hits{MATCHERS})'"
        ),
        SEEN,
        True,
        [],
    ),
}


@pytest.mark.parametrize(("rule", "known", "outside", "expected"), OF_SERIES.values(), ids=OF_SERIES)
def test_warnings_about_series_that_exist(
    rule: str, known: tuple[SeriesInfo, ...], *, outside: bool, expected: list[tuple[str, str, str]]
) -> None:
    assert real(rule, *known, outside=outside) == expected


def test_many_metrics() -> None:
    known = [
        SeriesInfo(f"m{number}", frozenset({"namespace", "pod"}), 1) for number in range(lint.MANY_METRICS)
    ]
    rule = f"seriesQuery: '{{a!=\"\"}}', {GOOD}"
    assert real(rule, *known[1:]) == []
    assert real(rule, *known) == [
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
