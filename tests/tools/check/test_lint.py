"""Warnings, each shown by the smallest rule that has it.

What a good rule must not be warned of stands beside it.
"""

from pathlib import Path

import promql_parser as promql
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
FREE = f"resources: {{namespaced: false}}, metricsQuery: 'sum(<<.Series>>{MATCHERS})'"
ROOT = Path(__file__).parents[3]


def warnings(text: str, scrape_interval: float = 15.0) -> list[tuple[str, str, str]]:
    found = lint.lint(preview.preview_rules(compile_text(text), {}), scrape_interval)
    assert all((fault.source, fault.line) == ("rules.yaml", 1) for fault in found)
    return [(fault.path, fault.value, fault.expected) for fault in found]


def custom(*rules: str) -> str:
    return f"rules: [{', '.join(f'{{{rule}}}' for rule in rules)}]"


def external(*rules: str) -> str:
    return f"externalRules: [{', '.join(f'{{{rule}}}' for rule in rules)}]"


GOOD_RULES = {
    "good": custom(f"seriesQuery: hits, {GOOD}"),
    "good external": external(f"seriesQuery: hits, {FREE}"),
    "named groups": custom(
        f"seriesQuery: a_b, name: {{matches: '(?P<x>.)_(.)', as: '$x-${{2}}-$2'}}, {GOOD}"
    ),
    "a dollar": custom(f"seriesQuery: a_b, name: {{as: '$$9_$0'}}, {GOOD}"),
    "one name, other kinds": custom(
        f"seriesQuery: hits, {GOOD}",
        f"seriesQuery: hits, resources: {{overrides: {{instance: {{resource: node}}}}}}, {SUM}",
    ),
    "one name in two APIs": (
        f"{custom(f'seriesQuery: hits, {GOOD}')}\n{external(f'seriesQuery: hits, {FREE}')}"
    ),
    "fixed query of a fixed name": custom(
        f"seriesQuery: hits, {POD}, metricsQuery: 'sum(hits{MATCHERS}) by (pod, namespace)'"
    ),
    "nodes": custom(f"seriesQuery: hits, resources: {{overrides: {{instance: {{resource: node}}}}}}, {SUM}"),
    "about pods only": custom(f"seriesQuery: hits, {POD}, metricsQuery: 'sum(hits{MATCHERS}) by (pod)'"),
    "values by name": external(
        "seriesQuery: hits, resources: {namespaced: false}, metricsQuery: "
        "'hits{a=\"<<.LabelValuesByName.a>>\"}'"
    ),
    "long enough": custom(f"seriesQuery: hits, {POD}, metricsQuery: 'rate(<<.Series>>{MATCHERS}[1m])'"),
    "expressions": custom(f'seriesQuery: \'hits{{a=~"x.*",b="x$y"}}\', {GOOD}'),
    "template of labels": custom(f"seriesQuery: hits, resources: {{template: '<<.Resource>>'}}, {SUM}"),
}


@pytest.mark.parametrize("text", GOOD_RULES.values(), ids=GOOD_RULES)
def test_no_warning(text: str) -> None:
    assert warnings(text) == []


# Rules file, and path, value and sentence of each warning.
CASES: dict[str, tuple[str, list[tuple[str, str, str]]]] = {
    "the name of the floors": (
        custom(f"seriesQuery: hits, name: {{as: 'fastpath_replicas'}}, {GOOD}"),
        [
            (
                "rules[0].name.as",
                "fastpath_replicas",
                (
                    "this name is reserved for the floors of boosted HPAs: --scaler and --serve-floors serve "
                    "those instead"
                ),
            )
        ],
    ),
    "an external series named as the floors": (
        external(f"seriesQuery: fastpath_replicas, {FREE}"),
        [
            (
                "externalRules[0].name.as",
                "fastpath_replicas",
                (
                    "this name is reserved for the floors of boosted HPAs: --scaler and --serve-floors serve "
                    "those instead"
                ),
            )
        ],
    ),
    "empty name": (
        custom(f"seriesQuery: hits, name: {{as: '$1_x'}}, {GOOD}"),
        [
            ("rules[0].name.as", "$1_x", "the metric name is empty, so no request finds it"),
            (
                "rules[0].name.as",
                "$1_x",
                "name.matches has no such group, so this is empty: write ${1} to end the name of the group",
            ),
        ],
    ),
    "unknown groups": (
        custom(f"seriesQuery: hits, name: {{as: 'a${{2}}$b'}}, {GOOD}"),
        [
            ("rules[0].name.as", "${2}", "name.matches has no such group, so this is empty"),
            ("rules[0].name.as", "$b", "name.matches has no such group, so this is empty"),
        ],
    ),
    "slash": (
        custom(f"seriesQuery: '{{a!=\"\"}}', name: {{as: a/b}}, {GOOD}"),
        [("rules[0].name.as", "a/b", "a name with a slash cannot be requested")],
    ),
    "capitals": (
        external(f"seriesQuery: Hits, {FREE}"),
        [
            (
                "externalRules[0].name.as",
                "Hits",
                "autoscalers request external metrics in lower case and never find a name with capitals",
            )
        ],
    ),
    "two rules": (
        custom(
            f"seriesQuery: hits, {GOOD}",
            f"seriesQuery: misses, {GOOD}",
            f"seriesQuery: x, name: {{as: hits}}, {GOOD}",
        ),
        [
            (
                "rules[2].name",
                "hits",
                "rules[0] defines the same metric; where both apply, the later rule is used",
            )
        ],
    ),
    "three rules": (
        external(*[f"seriesQuery: hits, {FREE}"] * 3),
        [
            (
                "externalRules[1].name",
                "hits",
                "externalRules[0] defines the same metric; where both apply, the later rule is used",
            ),
            (
                "externalRules[2].name",
                "hits",
                "externalRules[1] defines the same metric; where both apply, the later rule is used",
            ),
        ],
    ),
    "namespaced of a custom rule": (
        custom(f"seriesQuery: hits, resources: {{namespaced: false, template: '<<.Resource>>'}}, {SUM}"),
        [("rules[0].resources.namespaced", "false", "this affects externalRules only")],
    ),
    "external without a label for namespaces": (
        external("seriesQuery: hits, metricsQuery: 'x{<<.LabelMatchers>>}'"),
        [
            (
                "externalRules[0].resources",
                "",
                (
                    "no label for namespaces, so every request fails: add an override for namespace, or "
                    "namespaced: false"
                ),
            )
        ],
    ),
    "no resources": (
        custom(f"seriesQuery: hits, {SUM}"),
        [
            (
                "rules[0].resources",
                "",
                (
                    "neither overrides nor a template, so no series belongs to an object and the metric is "
                    "not listed"
                ),
            )
        ],
    ),
    "no label for namespaces": (
        custom(f"seriesQuery: hits, resources: {{overrides: {{pod: {{resource: pod}}}}}}, {SUM}"),
        [
            (
                "rules[0].resources.overrides",
                "",
                (
                    "no label for namespaces, so namespaced objects cannot be requested: add an override "
                    "for namespace"
                ),
            )
        ],
    ),
    "a label template that gives nothing for namespaces": (
        external(
            "seriesQuery: hits, resources: {template: '<<if .Group>><<.Resource>><<end>>'}, metricsQuery: "
            "'x{<<.LabelMatchers>>}'"
        ),
        [
            (
                "externalRules[0].resources",
                "",
                (
                    "no label for namespaces, so every request fails: add an override for namespace, or "
                    "namespaced: false"
                ),
            )
        ],
    ),
    "two labels for one kind": (
        custom(
            "seriesQuery: hits, resources: {overrides: {namespace: {resource: namespace}, pod: {resource: "
            f"pod}}, pod_name: {{resource: pods}}}}}}, {SUM}"
        ),
        [
            (
                "rules[0].resources.overrides.pod_name",
                "pods",
                "pod names the same resource; queries use the label that comes last",
            )
        ],
    ),
    "no selector": (
        custom(GOOD),
        [
            (
                "rules[0].seriesQuery",
                "",
                "there is no selector, and Prometheus refuses to list series without one",
            )
        ],
    ),
    "no selector of series": (
        custom(f"seriesQuery: sum(x), {GOOD}"),
        [
            (
                "rules[0].seriesQuery",
                "sum(x)",
                "Prometheus will refuse this: it is an expression, not a selector of series",
            )
        ],
    ),
    "text that looks like an expression": (
        custom(f'seriesQuery: \'hits{{a!="^b.*",c="d$"}}\', {GOOD}'),
        [
            (
                "rules[0].seriesQuery",
                'a!="^b.*"',
                "this compares with the text itself; for a regular expression write !~",
            ),
            (
                "rules[0].seriesQuery",
                'c="d$"',
                "this compares with the text itself; for a regular expression write =~",
            ),
        ],
    ),
    "the same in a query": (
        custom(f"seriesQuery: hits, {POD}, metricsQuery: 'hits{{code=\"5.+\",<<.LabelMatchers>>}}'"),
        [
            (
                "rules[0].metricsQuery",
                'code="5.+"',
                "this compares with the text itself; for a regular expression write =~",
            ),
        ],
    ),
    "no query": (
        custom(f"seriesQuery: hits, {POD}"),
        [("rules[0].metricsQuery", "", "there is no query, so every request for this metric fails")],
    ),
    "GroupBy of an external rule": (
        external(f"seriesQuery: hits, resources: {{namespaced: false}}, {SUM}"),
        [
            (
                "externalRules[0].metricsQuery",
                "<<.GroupBy>>",
                "external metrics describe no object, so this is empty and the query is summed to one value",
            )
        ],
    ),
    "one name for many": (
        custom(f"seriesQuery: '{{a!=\"\"}}', {POD}, metricsQuery: 'sum(hits{MATCHERS}) by (<<.GroupBy>>)'"),
        [
            (
                "rules[0].metricsQuery",
                "",
                "the query does not use <<.Series>> although seriesQuery may match several names",
            )
        ],
    ),
    "no matchers": (
        custom(f"seriesQuery: hits, {POD}, metricsQuery: 'sum(hits) by (pod)'"),
        [
            (
                "rules[0].metricsQuery",
                "",
                (
                    "the query does not use <<.LabelMatchers>>, so every request reads all objects of all "
                    "namespaces"
                ),
            )
        ],
    ),
    "no matchers, external": (
        external("seriesQuery: hits, resources: {namespaced: false}, metricsQuery: hits"),
        [
            (
                "externalRules[0].metricsQuery",
                "",
                (
                    "the query does not use <<.LabelMatchers>>, so neither namespace nor selector of a "
                    "request changes the answer"
                ),
            )
        ],
    ),
    "short windows": (
        custom(
            f"seriesQuery: hits, {POD}, metricsQuery: 'rate(<<.Series>>{MATCHERS}[30s]) + "
            f"increase(<<.Series>>{MATCHERS}[59s]) + max_over_time(<<.Series>>{MATCHERS}[1s]) + "
            f"rate(<<.Series>>{MATCHERS}[5m:1s])'"
        ),
        [
            (
                "rules[0].metricsQuery",
                "[30s]",
                "shorter than 4 scrapes of 15 s: the value is gone after one lost scrape",
            ),
            (
                "rules[0].metricsQuery",
                "[59s]",
                "shorter than 4 scrapes of 15 s: the value is gone after one lost scrape",
            ),
            (
                "rules[0].metricsQuery",
                "[1s]",
                "shorter than 1 scrape of 15 s: there is no value 93% of the time",
            ),
        ],
    ),
    "other templates": (
        custom(f"seriesQuery: hits, {POD}, metricsQuery: 'sum({{{{.Series}}}}{MATCHERS}) by (<<.GroupBy>>)'"),
        [
            (
                "rules[0].metricsQuery",
                'sum({{.Series}}{namespace="NAMESPACE",pod="NAME"}) by (pod)',
                "this PromQL does not parse: templates are written << >>, not {{ }}",
            )
        ],
    ),
    "a comma after nothing": (
        external(
            "seriesQuery: hits, resources: {namespaced: false}, metricsQuery: "
            "'sum(hits{<<.LabelMatchers>>,a=\"b\"})'"
        ),
        [
            (
                "externalRules[0].metricsQuery",
                'sum(hits{,a="b"})',
                (
                    "this PromQL does not parse: a comma has no matcher before it; put <<.LabelMatchers>> "
                    "last "
                    "between the braces, because it may be empty"
                ),
            )
        ],
    ),
    "a range in a sum": (
        custom(f"seriesQuery: hits, {POD}, metricsQuery: 'sum(hits{MATCHERS}[5m]) by (<<.GroupBy>>)'"),
        [
            (
                "rules[0].metricsQuery",
                'sum(hits{namespace="NAMESPACE",pod="NAME"}[5m]) by (pod)',
                (
                    "this PromQL does not parse: expected type vector in aggregation expression, got matrix "
                    "(a range such as [5m] belongs inside a function such as rate)"
                ),
            )
        ],
    ),
    "no PromQL": (
        custom(f"seriesQuery: hits, {POD}, metricsQuery: 'sum(hits{MATCHERS} by (<<.GroupBy>>)'"),
        [
            (
                "rules[0].metricsQuery",
                'sum(hits{namespace="NAMESPACE",pod="NAME"} by (pod)',
                "this PromQL does not parse: unclosed left parenthesis",
            )
        ],
    ),
    "a template that fails": (
        custom(f"seriesQuery: hits, {POD}, metricsQuery: '<<index .LabelMatchers 99>>'"),
        [
            (
                "rules[0].metricsQuery",
                "",
                "requests fail: 1:3: index: index 99 is out of range",
            )
        ],
    ),
    "a range of samples": (
        custom(f"seriesQuery: hits, {POD}, metricsQuery: '(hits{MATCHERS}[5m])'"),
        [
            (
                "rules[0].metricsQuery",
                "",
                "the result is a range of samples, not a value, so every request fails",
            )
        ],
    ),
    "a text": (
        external("seriesQuery: hits, resources: {namespaced: false}, metricsQuery: '\"<<.LabelMatchers>>\"'"),
        [("externalRules[0].metricsQuery", "", "the result is a text, so every request fails")],
    ),
    "a scalar": (
        custom(f"seriesQuery: hits, {POD}, metricsQuery: 'scalar(hits{MATCHERS})'"),
        [
            (
                "rules[0].metricsQuery",
                "",
                "the result is a scalar, which belongs to no object, so every request fails",
            )
        ],
    ),
    "no grouping": (
        custom(f"seriesQuery: hits, {POD}, metricsQuery: 'avg(hits{MATCHERS})'"),
        [
            (
                "rules[0].metricsQuery",
                "avg without a grouping",
                "the result has no label pod, so pods are never found: group by it",
            )
        ],
    ),
    "no grouping, namespaces only": (
        custom(
            "seriesQuery: hits, resources: {overrides: {ns: {resource: namespace}}}, metricsQuery: "
            f"'sum(hits{MATCHERS}) by (pod)'"
        ),
        [
            (
                "rules[0].metricsQuery",
                "sum by (pod)",
                "the result has no label ns, so namespaces are never found: group by it",
            )
        ],
    ),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES)
def test_warnings(text: str, expected: list[tuple[str, str, str]]) -> None:
    assert warnings(text) == expected


def test_a_bare_window_is_shown_as_written() -> None:
    rule = custom(f"seriesQuery: hits, {POD}, metricsQuery: 'rate(<<.Series>>{MATCHERS}[2])'")
    assert [value for _, value, _ in warnings(rule)] == ["[2]"]


def test_windows_are_measured_in_scrapes() -> None:
    rule = custom(f"seriesQuery: hits, {POD}, metricsQuery: 'rate(<<.Series>>{MATCHERS}[2m])'")
    assert warnings(rule, 30.0) == []
    assert warnings(rule, 60.0) == [
        (
            "rules[0].metricsQuery",
            "[2m]",
            "shorter than 4 scrapes of 60 s: the value is gone after one lost scrape",
        )
    ]


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


# Query, and what takes the label `pod` away.
QUERIES = {
    "selector": ("x", ""),
    "parentheses and sign": ("-(x)", ""),
    "sum": ("sum(x)", "sum without a grouping"),
    "by": ("sum by (pod) (x)", ""),
    "by another": ("max by (ns, job) (x)", "max by (ns, job)"),
    "without": ("sum without (job) (x)", ""),
    "without the label": ("sum without (pod) (x)", "sum without (pod)"),
    "lost further in": ("sum by (pod) (sum by (ns) (x))", "sum by (ns)"),
    "without, lost further in": ("sum without (job) (sum(x))", "sum without a grouping"),
    "topk picks": ("topk by (ns) (1, x)", ""),
    "topk of a sum": ("topk(1, sum(x))", "sum without a grouping"),
    "count_values names it": ('count_values("pod", x)', ""),
    "count_values": ('count_values("v", x)', "count_values without a grouping"),
    "rate": ("rate(x[5m])", ""),
    "function of a sum": ("clamp_max(sum(x), 1)", "sum without a grouping"),
    "histogram": ("histogram_quantile(0.9, sum by (le, pod) (rate(x[5m])))", ""),
    "histogram without it": ("histogram_quantile(0.9, sum by (le) (rate(x[5m])))", "sum by (le)"),
    "quantile by a scalar": ("histogram_quantile(scalar(y), sum by (le) (x))", "sum by (le)"),
    "function without series": ("day_of_week()", ""),
    "vector": ("vector(1)", "vector()"),
    "time": ("time()", "time()"),
    "scalar": ("scalar(x)", "scalar()"),
    "number": ("1", "a number"),
    "text": ('"a"', ""),
    "label_replace makes it": ('label_replace(sum(x), "pod", "a", "b", "c")', ""),
    "label_replace makes another": ('label_replace(sum(x), "job", "a", "b", "c")', "sum without a grouping"),
    "label_join makes it": ('label_join(sum(x), "pod", "-", "b", "c")', ""),
    "subquery": ("max_over_time(sum(x)[5m:])", "sum without a grouping"),
    "sides alike": ("a / b", ""),
    "left lost": ("sum(a) / b", "sum without a grouping"),
    "right lost": ("a / sum(b)", "sum without a grouping"),
    "scalar left": ("2 * x", ""),
    "scalar left, right lost": ("2 * sum(x)", "sum without a grouping"),
    "scalar right": ("x * scalar(sum(y))", ""),
    "scalars": ("sum(x) * (1 + -time())", "sum without a grouping"),
    "on": ("a / on (pod) b", ""),
    "on another": ("a / on (ns) b", "/ on (ns)"),
    "ignoring": ("a / ignoring (ns) b", ""),
    "ignoring it": ("a / ignoring (pod) b", "/ ignoring (pod)"),
    "bool alone": ("a == bool b", ""),
    "group_left": ("a / on (ns) group_left sum by (ns) (b)", ""),
    "group_left of a sum": ("sum by (ns) (a) / on (ns) group_left b", "sum by (ns)"),
    "group_left copies it": ("sum by (ns) (a) / on (ns) group_left (pod) b", ""),
    "group_left copies what is lost": ("a / on (ns) group_left (pod) sum by (ns) (b)", "sum by (ns)"),
    "group_right": ("sum by (ns) (a) / on (ns) group_right b", ""),
    "and": ("a and on (ns) sum by (ns) (b)", ""),
    "unless": ("sum(a) unless b", "sum without a grouping"),
    "or keeps one": ("a or vector(0)", ""),
    "or loses both": ("sum(a) or vector(0)", "vector()"),
}


@pytest.mark.parametrize(("query", "culprit"), QUERIES.values(), ids=QUERIES)
def test_loses(query: str, culprit: str) -> None:
    assert lint_query.loses(promql.parse(query), "pod") == culprit


@pytest.mark.parametrize(
    ("query", "scalar"),
    [
        ("1", True),
        ("(-1)", True),
        ("1 + time()", True),
        ("1 + x", False),
        ("scalar(x)", True),
        ("x", False),
        ("pi()", True),
    ],
)
def test_is_scalar(query: str, *, scalar: bool) -> None:
    assert lint_query.is_scalar(promql.parse(query)) is scalar
