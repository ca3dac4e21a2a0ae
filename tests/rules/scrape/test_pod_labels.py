"""Queries evaluated for one pod, and the reasons why others have no single value for it."""

import math

import pytest

from adapter.errors import UnscrapableError
from adapter.model.objects.label_selectors import parse_selector
from adapter.rules import matchers
from adapter.rules.matchers import Matcher
from adapter.rules.scrape.scraped_query import PodLabels, ScrapedQuery, compile_query, merge_selections
from adapter.rules.scrape.series import PodSeries
from adapter.rules.template import template
from tests.support.answers import answers
from tests.support.scraping import evaluate, parse, record

SERIES = "jobs"
NAMES = ("jobs", "jobs_sum", "jobs_count", "other")
LABELS = PodLabels("pod", "namespace")
POD = ("shop", "web-0")
WINDOW = 5.0


def compiled(query: str) -> ScrapedQuery:
    text = query.replace("S{", "<<.Series>>{<<.LabelMatchers>>,").replace(",}", "}")
    return compile_query(template.parse(text.replace("by pod", "by (<<.GroupBy>>)")), pod=LABELS)


def pod(*bodies: str) -> PodSeries:
    """Return what scrapes a second apart have shown."""
    series = PodSeries()
    for time, body in enumerate(bodies):
        record(series, parse(body.encode(), NAMES), time, time, WINDOW)
    return series


def value(query: str, *bodies: str, selector: str = "") -> float | None:
    parts = matchers.from_selector(parse_selector(selector))
    elements = evaluate(compiled(query), pod(*bodies), SERIES, POD, parts, WINDOW).elements
    assert len(elements) <= 1
    return elements[0].value if elements else None


TWO = 'jobs{kind="a",code="200"} 3\njobs{kind="b",code="500"} 5'


@pytest.mark.parametrize(("query", "expected"), answers("scrape/pod_labels", "values"))
def test_a_value(query: str, expected: float | None) -> None:
    assert value(query, TWO) == expected


def test_a_bound_of_no_number_is_no_number() -> None:
    bounded = value("clamp_min(0 * sum(S{}) by pod / 0, 1)", TWO)

    assert bounded is not None
    assert math.isnan(bounded)


COUNTER = [f'jobs{{a="1"}} {10 * time}\njobs{{a="2"}} {time}' for time in range(6)]


@pytest.mark.parametrize(("query", "expected"), answers("scrape/pod_labels", "counters"))
def test_counters(query: str, expected: float) -> None:
    assert value(query, *COUNTER) == pytest.approx(expected)
    assert value(query, COUNTER[0]) is None
    assert compiled(query).counts


def test_a_series_without_a_rate_yet_is_left_out() -> None:
    assert value("sum(rate(S{}[2m])) by pod", *COUNTER[:5], COUNTER[5] + '\njobs{a="3"} 7') == pytest.approx(
        11
    )


def test_a_series_that_has_just_gone_has_a_rate_and_no_last_value() -> None:
    bodies = [*COUNTER[:5], 'jobs{a="2"} 5']

    assert value("sum(rate(S{}[2m])) by pod", *bodies) == pytest.approx(11)
    assert value("sum(S{}) by pod", *bodies) == 5
    rates = evaluate(compiled("sum(rate(S{}[2m])) by pod"), pod(*bodies), SERIES, POD, (), WINDOW)
    assert rates.time == 5, "the series that has gone makes the other no older"


def test_a_ratio_of_two_series() -> None:
    query = compiled(
        "sum(rate(<<.Series>>_sum{<<.LabelMatchers>>}[1m])) by pod / "
        "sum(rate(<<.Series>>_count{<<.LabelMatchers>>}[1m])) by pod"
    )
    bodies = [f"jobs_sum {time * 3}\njobs_count {time * 2}" for time in range(6)]

    (ratio,) = evaluate(query, pod(*bodies), SERIES, POD, (), WINDOW).elements

    assert ratio.value == pytest.approx(1.5)
    assert query.series_names("jobs") == {"jobs_sum", "jobs_count"}


@pytest.mark.parametrize(("selector", "expected"), answers("scrape/pod_labels", "selectors"))
def test_a_metric_selector(selector: str, expected: float | None) -> None:
    assert value("sum(S{}) by pod", TWO, selector=selector) == expected


def test_the_labels_of_the_pod_are_not_taken_from_what_it_shows() -> None:
    body = 'jobs{pod="other",namespace="elsewhere"} 1\njobs{pod="web-0"} 2'

    assert value("sum(S{}) by (namespace, pod)", body) == 3
    assert value('sum(S{pod="other"}) by pod', body) is None


def test_matchers_on_the_labels_of_the_pod_select_no_series() -> None:
    query = compiled('sum(S{pod="web-0",kind="a"}) by pod')

    assert merge_selections([(query, SERIES)]) == {SERIES: frozenset({(Matcher("kind", "=", "a"),)})}


def test_labels_that_prometheus_adds_may_be_those_of_the_pod() -> None:
    query = 'sum(<<.Series>>{<<.LabelMatchers>>,job="shop"}) by (<<.GroupBy>>)'

    answer = evaluate(
        compile_query(template.parse(query), pod=PodLabels("instance", "job")), pod(TWO), SERIES, POD, (), 5.0
    )

    assert [element.value for element in answer.elements] == [8]


def test_a_value_is_as_old_as_the_oldest_of_its_newest_samples() -> None:
    series = PodSeries()
    record(series, parse(b'jobs{a="1"} 1 7000\njobs{a="2"} 1', NAMES), 10, 10, WINDOW)

    answer = evaluate(compiled("sum(S{}) by pod"), series, SERIES, POD, (), WINDOW)

    assert (answer.elements[0].value, answer.time) == (2, 7)


def test_many_series_are_matched_in_steps() -> None:
    body = "\n".join(f'jobs{{kind="{number}"}} 1' for number in range(200))
    tests = ",".join(f'kind!="{number}"' for number in range(20))
    assert value(f"sum(S{{{tests}}}) by pod", body) == 180


def test_a_gauge_needs_no_more_than_the_last_scrape() -> None:
    assert not compiled("sum(last_over_time(S{}[2m])) by pod").counts


def test_without_a_namespace_label_pods_are_told_apart_by_name_alone() -> None:
    query = template.parse('sum(<<.Series>>{<<.LabelMatchers>>,namespace="n"}) by (<<.GroupBy>>)')
    exposed = pod('jobs{namespace="n"} 4')

    answer = evaluate(compile_query(query, pod=PodLabels("pod", "")), exposed, SERIES, POD, (), WINDOW)

    assert [element.value for element in answer.elements] == [4]


@pytest.mark.parametrize(("query", "reason"), answers("scrape/pod_labels", "refused"))
def test_what_cannot_be_evaluated_is_refused_with_the_reason(query: str, reason: str) -> None:
    with pytest.raises(UnscrapableError) as raised:
        compiled(query)
    text = str(raised.value)
    assert text == reason or (reason.endswith(" ") and text.startswith(reason))
