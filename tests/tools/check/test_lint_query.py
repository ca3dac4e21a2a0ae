"""What the text of a rule shows: windows with too few samples, histograms, counters, names, templates."""

import re
from collections.abc import Sequence

import pytest

from adapter.model.metrics import SeriesInfo
from fastpath_tools.check import lint, lint_query
from fastpath_tools.live import preview
from tests.support.world import compile_text, series

POD = "resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}"
M = "{<<.LabelMatchers>>}"
SUM = f"sum(<<.Series>>{M}) by (<<.GroupBy>>)"


def findings(
    series_query: str,
    metrics_query: str = SUM,
    more: str = "",
    *,
    known: Sequence[SeriesInfo] | None = None,
    scrape_interval: float = 15.0,
) -> list[tuple[str, str, str]]:
    rule = f"{{seriesQuery: '{series_query}', {POD}, metricsQuery: '{metrics_query}'{more}}}"
    lists = {} if known is None else {series_query: tuple(known)}
    previews = preview.preview_rules(compile_text(f"rules: [{rule}]"), lists)
    faults = lint.lint(previews, scrape_interval)
    return [(fault.path.removeprefix("rules[0]."), fault.value, fault.expected) for fault in faults]


NEVER, LOST = "it never has the two samples", "the value is gone after one lost scrape"


@pytest.mark.parametrize(
    ("call", "window", "sentence"),
    [
        ("rate(hits[15s])", "[15s]", NEVER),
        ("rate(hits[10s])", "[10s]", NEVER),
        ("rate(hits[15])", "[15]", NEVER),
        ("rate(hits[15s] offset 1h)", "[15s]", NEVER),
        ("rate(hits[15s] @ end())", "[15s]", NEVER),
        ("predict_linear(hits[15s], 60)", "[15s]", NEVER),
        ("irate(hits[20s])", "[20s]", "no value 67% of the time"),
        ("delta(hits[29s])", "[29s]", "no value 7% of the time"),
        ("increase(hits[30s])", "[30s]", LOST),
        ("increase(hits[59s])", "[59s]", LOST),
        ("increase(hits[1m])", "", ""),
        ("max_over_time(hits[10s])", "[10s]", "no value 33% of the time"),
        ("changes(hits[10s])", "[10s]", "no value 33% of the time"),
        ("quantile_over_time(0.9, hits[10s])", "[10s]", "no value 33% of the time"),
        ("max_over_time(hits[15s])", "", ""),
        ("increase(hits[1m:1m])", "[1m:1m]", NEVER),
        ("increase(hits[1m:])", "[1m:]", NEVER),
        ("increase(hits[90s:1m])", "[1m30s:1m]", "shorter than 2 steps of 60 s: there is no value 50% of"),
        ("increase(hits[2m:1m])", "", ""),
        ("max_over_time(hits[30s:1m])", "[30s:1m]", "no value 50% of the time"),
        ("max_over_time(rate(hits[15s])[10m:1m])", "[15s]", NEVER),
        ("max_over_time(rate(hits[2m])[10m:1m])", "", ""),
        ("rate(hits[1m:1s])", "", ""),
    ],
)
def test_windows(call: str, window: str, sentence: str) -> None:
    query = f"sum({call.replace('hits', f'<<.Series>>{M}')}) by (<<.GroupBy>>)"
    found = [one for one in findings("hits", query) if one[1].startswith("[")]
    assert [(path, value) for path, value, _ in found] == ([("metricsQuery", window)] if window else [])
    assert all(sentence in said for *_, said in found)


def test_windows_are_compared_with_the_scrape_interval() -> None:
    query = f"sum(rate(<<.Series>>{M}[1m])) by (<<.GroupBy>>)"
    assert findings("hits", query, scrape_interval=15) == []
    assert NEVER in findings("hits", query, scrape_interval=60)[0][2]


@pytest.mark.parametrize(("age", "missing"), [("10s", "33%"), ("15s", ""), ("1m", "")])
def test_ages_are_compared_with_the_scrape_interval(age: str, missing: str) -> None:
    found = findings("hits", more=f", maxSampleAge: {age}")
    said = f"shorter than a scrape of 15 s: samples are older than this {missing} of the time and left out"
    assert found == ([("maxSampleAge", "10 s", said)] if missing else [])


QUANTILE = f"histogram_quantile(0.9, sum(rate(<<.Series>>{M}[2m])) by (<<.GroupBy>>))"
BASE = "a histogram has no series of its own name: select NAME_bucket, and write <<.Series>> for it"
NEEDS = "histogram_quantile of lat_bucket needs the label le: group by it too"


@pytest.mark.parametrize(
    ("name", "query", "found"),
    [
        ("lat_bucket", QUANTILE, [("sum by (pod)", NEEDS)]),
        ("lat_bucket", QUANTILE.replace("GroupBy>>", "GroupBy>>, le"), []),
        ("lat_bucket", QUANTILE.replace(" by (<<.GroupBy>>)", ""), [("sum without a grouping", NEEDS)]),
        ("lat", QUANTILE, []),
        (
            "lat",
            QUANTILE.replace("<<.Series>>", "<<.Series>>_bucket"),
            [
                (
                    "<<.Series>>_bucket",
                    BASE,
                ),
                ("sum by (pod)", NEEDS),
            ],
        ),
        (
            "lat_bucket",
            f"sum(rate(<<.Series>>{M}[2m])) by (<<.GroupBy>>)",
            [("lat_bucket", "a bucket counts those below it too: read _count, or choose one le")],
        ),
        (
            "lat_bucket",
            'sum(rate(<<.Series>>{<<.LabelMatchers>>,le="0.5"}[2m])) by (<<.GroupBy>>)',
            [],
        ),
        (
            "hits_total",
            SUM,
            [("hits_total", "a counter only grows until its process starts again: read its rate")],
        ),
        ("hits_total", f"sum(rate(<<.Series>>{M}[2m])) by (<<.GroupBy>>)", []),
        ("put_total", f"sum(<<.Series>>{M} - got_total{M}) by (<<.GroupBy>>)", []),
    ],
)
def test_histograms_and_counters(name: str, query: str, found: list[tuple[str, str]]) -> None:
    wanted = [one for one in findings(name, query) if not one[2].startswith("the result has no label")]
    assert [(value, sentence) for _, value, sentence in wanted] == found


def test_what_a_query_without_a_value_may_lack() -> None:
    query = 'histogram_quantile(0.9, sum(rate(lat_bucket{pod="a"}[15s])) by (pod))'
    window, needs = lint_query.causes(query, 15)
    assert window.startswith("[15s]: ")
    assert needs == f"sum by (pod): {NEEDS}"
    assert lint_query.causes("rate(", 15) == []


NO_TEMPLATE = "this is no template: only metricsQuery and resources.template are"


@pytest.mark.parametrize(
    ("more", "path", "value"),
    [
        (", name: {as: '<<.Series>>_sum'}", "name.as", "<<.Series>>_sum"),
        (", name: {as: '<<index .LabelValuesByName \"Q\">>'}", "name.as", '<<index .LabelValuesByName "Q">>'),
        (", name: {as: '{{ .Values.name }}'}", "name.as", "{{ .Values.name }}"),
        (", name: {matches: '^<<.Series>>$'}", "name.matches", "^<<.Series>>$"),
        (", seriesFilters: [{is: '<<.Series>>'}]", "seriesFilters[0].is", "<<.Series>>"),
        (", seriesFilters: [{is: hits}, {isNot: '{{ .x }}'}]", "seriesFilters[1].isNot", "{{ .x }}"),
    ],
)
def test_a_template_where_none_is_read(more: str, path: str, value: str) -> None:
    found = findings("hits", more=more)
    assert (path, value, NO_TEMPLATE) in found
    assert not any("capitals" in sentence for *_, sentence in found)


def test_a_template_in_the_selector() -> None:
    assert ("seriesQuery", "<<.Series>>", NO_TEMPLATE) in findings("<<.Series>>")
    found = findings("hits", "sum(rate(${1}_total[2m]))")
    assert any(sentence.endswith("are for name.as: the series is <<.Series>>") for *_, sentence in found)


@pytest.mark.parametrize(
    ("selector", "more", "path", "value"),
    [
        ("hits_count", ", name: {matches: '^(.*)_total$'}", "name.matches", "^(.*)_total$"),
        ("orders", ", seriesFilters: [{isNot: ^ord}]", "seriesFilters", "isNot ^ord"),
        ("orders", ", seriesFilters: [{is: ^x}, {isNot: ^y}]", "seriesFilters", "is ^x"),
        ('{__name__="orders"}', ", seriesFilters: [{is: ^x}]", "seriesFilters", "is ^x"),
        ('{__name__=~"^(a|b)$"}', ", name: {matches: c}", "name.matches", "c"),
        ('{__name__=~"a|b"}', ", name: {matches: c}", "name.matches", "c"),
    ],
)
def test_names_that_a_rule_excludes(selector: str, more: str, path: str, value: str) -> None:
    found = findings(selector, more=more)
    names = re.findall(r"\b(?:hits_count|orders|a|b)\b", selector)
    assert found == [(path, value, f"it excludes {', '.join(names)}, so the rule serves nothing")]


@pytest.mark.parametrize(
    ("selector", "more"),
    [
        ('{__name__=~"a|b"}', ", name: {matches: b}"),
        ('{__name__=~"a.*"}', ", name: {matches: ^b}"),
        ("orders", ", name: {matches: ord}, seriesFilters: [{is: ^o}]"),
    ],
)
def test_names_that_a_rule_takes(selector: str, more: str) -> None:
    assert not any("excludes" in sentence for *_, sentence in findings(selector, more=more))


def test_names_that_exist_are_judged_in_place_of_those_in_the_text() -> None:
    known = series({"__name__": "hits", "pod": "a", "namespace": "b"})
    assert findings("hits", known=known) == []
    assert [sentence for *_, sentence in findings("hits", more=", name: {matches: x}", known=known)] == [
        "all 1 names are dropped by seriesFilters or name.matches: see --why METRIC"
    ]


@pytest.mark.parametrize("selector", ['{__name__="a.b"}', '{"a.b"}', '{"a.b","k8s.pod"!=""}'])
def test_names_that_need_quotes(selector: str) -> None:
    sentence = "a name that PromQL cannot write without quotes: such series are left out"
    assert ("seriesQuery", "a.b", sentence) in findings(selector)


@pytest.mark.parametrize(
    ("expression", "sign"),
    [("^node_(.*) ", " "), ("^a-b$", "-"), (r"^a\.b", "."), ("^a b$", " "), ("a/b", "/")],
)
def test_expressions_that_no_name_matches(expression: str, sign: str) -> None:
    for more, path in (
        (f", name: {{matches: '{expression}'}}", "name.matches"),
        (f", seriesFilters: [{{is: '{expression}'}}]", "seriesFilters[0].is"),
    ):
        found = findings('{__name__=~"a.*"}', more=more)
        assert (path, expression, f'the name of a series has no "{sign}", so this matches none') in found


@pytest.mark.parametrize(
    "expression",
    [
        "^a(-b)?$",
        "^a[-. ]b",
        "^(?P<x>a)_b$",
        "(?i)ab",
        "a-?b",
        "a|b-c",
        r"^\w+$",
        "a{2}",
        "^.*$",
        r"a\.?b",
        "a:b",
    ],
)
def test_expressions_that_some_name_may_match(expression: str) -> None:
    found = findings('{__name__=~"a.*"}', more=f", name: {{matches: '{expression}', as: x}}")
    assert not any("matches none" in sentence for *_, sentence in found)


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        ('hits{pod!=""} offset 1m', "a selector with offset or @"),
        ("hits @ 5", "a selector with offset or @"),
        ("rate(hits[1m])", "an expression"),
        ("(hits)", "an expression"),
        ("hits[5m]", "an expression"),
    ],
)
def test_what_is_no_selector_of_series(selector: str, why: str) -> None:
    refused = f"Prometheus will refuse this: it is {why}, not a selector of series"
    assert ("seriesQuery", selector, refused) in findings(selector)


@pytest.mark.parametrize(
    "query",
    [
        "avg_over_time(<<.Series>>[30s])",
        f"<<.Series>>{M} + sum(<<.Series>>)",
        f"sum(<<.Series>>{M}",
        f"rate(<<.Series>>{M}) by <<.Series>>",
        f"sum(<<.Series>>{M}) by (<<.Series>>)",
        f"<<.Series>>{M} * on (<<.Series>>) <<.Series>>{M}",
        'sum(<<.Series>>{pod="<<.LabelMatchers>>"})',
        "<<.LabelMatchers>> + <<.Series>>",
        f"absent(<<.Series>>{M})",
        f"topk(<<.Series>>, <<.Series>>{M})",
        f"label_replace(<<.Series>>{M}, 'a', <<.Series>>, 'b', '')",
    ],
)
@pytest.mark.parametrize("scrape", ["", ", scrape: {port: metrics}"])
def test_no_placeholder_is_in_a_message(query: str, scrape: str, cli: object) -> None:
    escaped = query.replace("'", "''")
    rule = f"{{seriesQuery: hits, {POD}, metricsQuery: '{escaped}'{scrape}}}"
    assert callable(cli)
    printed = cli("check", "-", stdin=f"rules: [{rule}]")
    assert "_slot" not in printed.out + printed.err
    assert printed.out
