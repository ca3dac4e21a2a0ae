"""What a query loses of its labels, what may leave it without a value, and stand-ins that stay inside.

`tests/golden/check` has the warnings that the text of a rule shows.
"""

import promql_parser as promql
import pytest

from fastpath_tools.check import lint_query
from tests.support.answers import answers

POD = "resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}"
M = "{<<.LabelMatchers>>}"


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


@pytest.mark.parametrize(("query", "scalar"), answers("check/lint_query", "is scalar"))
def test_is_scalar(query: str, *, scalar: bool) -> None:
    assert lint_query.is_scalar(promql.parse(query)) is scalar


def test_what_a_query_without_a_value_may_lack() -> None:
    query = 'histogram_quantile(0.9, sum(rate(lat_bucket{pod="a"}[15s])) by (pod))'
    window, needs = lint_query.causes(query, 15)
    assert window.startswith("[15s]: ")
    assert needs == "sum by (pod): histogram_quantile of lat_bucket needs the label le: group by it too"
    assert lint_query.causes("rate(", 15) == []


@pytest.mark.parametrize("query", answers("check/lint_query", "placeholders"))
@pytest.mark.parametrize("scrape", ["", ", scrape: {port: metrics}"])
def test_no_placeholder_is_in_a_message(query: str, scrape: str, cli: object) -> None:
    escaped = query.replace("'", "''")
    rule = f"{{seriesQuery: hits, {POD}, metricsQuery: '{escaped}'{scrape}}}"
    assert callable(cli)
    printed = cli("check", "-", stdin=f"rules: [{rule}]")
    assert "_slot" not in printed.out + printed.err
    assert printed.out
