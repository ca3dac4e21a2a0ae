"""Of which time values are: how far queries look back, and the age of the samples behind an answer."""

import pytest

from adapter.model.metrics import Sample
from adapter.rules import lookback
from adapter.rules.matchers import Matcher
from adapter.rules.template import template
from tests.support.answers import answers


@pytest.mark.parametrize(("query", "seconds"), answers("rules/lookback", "lookback"))
def test_lookback(query: str, seconds: float | None) -> None:
    assert lookback.lookback_of(query) == seconds


PARTS = [Matcher("queue", "=", "q1"), Matcher("namespace", "=", "web")]
SELECTOR = 'lag{queue="q1",namespace="web"}'


@pytest.mark.parametrize(("query", "companion", "labels"), answers("rules/lookback", "companions"))
def test_companion(query: str, companion: str, labels: list[str] | None) -> None:
    found = lookback.age_query(query, "lag", PARTS)
    assert (found.promql, found.labels) == (companion, None if labels is None else tuple(labels))


def sample(value: float, **labels: str) -> Sample:
    return Sample(labels, value, 1000.0)


def test_items_are_told_apart_by_the_labels_of_the_grouping() -> None:
    young, old, unknown = sample(1, a="x"), sample(2, a="y"), sample(3, a="z")
    companion = lookback.age_query(f"sum by (a) ({SELECTOR})", "lag", PARTS)
    fresh = companion.fresh([young, old, unknown], [sample(970, a="x"), sample(969.9, a="y")], 970)
    assert fresh == [young]


def test_without_grouping_by_all_labels_but_the_name() -> None:
    young, old = sample(1, __name__="lag", a="x", b="1"), sample(2, __name__="lag", a="x", b="2")
    companion = lookback.age_query(SELECTOR, "lag", PARTS)
    assert companion.fresh([young, old], [sample(970, a="x", b="1"), sample(1, a="x", b="2")], 970) == [young]


@pytest.mark.parametrize(("oldest", "kept"), [(970.0, 2), (960.0, 0)])
def test_the_oldest_counts_for_all_where_items_cannot_be_told_apart(oldest: float, kept: int) -> None:
    companion = lookback.age_query(f"topk(2, {SELECTOR})", "lag", PARTS)
    assert len(companion.fresh([sample(1, a="x"), sample(2, a="y")], [sample(oldest)], 970)) == kept


def test_a_time_that_is_no_number_is_too_old() -> None:
    companion = lookback.age_query(f"sum({SELECTOR})", "lag", PARTS)
    assert companion.fresh([sample(1)], [sample(float("nan"))], 970) == []


@pytest.mark.parametrize(("query", "selector"), answers("rules/lookback", "usages"))
def test_the_companion_of_a_usage(query: str, selector: str | None) -> None:
    companion = lookback.usage_age(template.parse(query))
    if selector is None:
        assert companion is None
    else:
        assert companion is not None
        assert companion.text == f"min(timestamp({selector})) by (<<.GroupBy>>)"


def test_the_oldest_of_items() -> None:
    companion = lookback.age_query(f"sum({SELECTOR}) by (q)", "lag", PARTS)

    def series(queue: str, value: float) -> Sample:
        return Sample({"q": queue}, value, 0.0)

    items = [{"q": "a"}, {"q": "b"}]
    assert companion.oldest(items, [series("a", 50.0), series("b", 40.0), series("other", 10.0)]) == 40.0
    assert companion.oldest(items, [series("a", 50.0)]) is None, "one is not known"
    assert companion.oldest(items, [series("a", 50.0), series("b", float("nan"))]) is None
    assert companion.oldest([], [series("a", 50.0)]) is None
