"""What a query loses of its labels, what may leave it without a value, and stand-ins that stay inside.

`tests/golden/check` has the warnings that the text of a rule shows.
"""

import promql_parser as promql
import pytest

from fastpath_tools.check import lint_query
from tests.support.answers import answers

POD = "resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}"


@pytest.mark.parametrize(("query", "culprit"), answers("check/lint_query", "losses"))
def test_loses(query: str, culprit: str) -> None:
    """The culprit takes the label `pod` away."""
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
