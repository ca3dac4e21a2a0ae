"""Queries over scraped endpoints: what is refused, what is kept, and how answers fail."""

import math

import pytest

from adapter.errors import UnionError, UnscrapableError
from adapter.model import steps
from adapter.rules.matchers import Matcher
from adapter.rules.scrape.scraped_query import Answer, PodLabels, compile_query, merge_selections
from adapter.rules.scrape.series import PodSeries, attach
from adapter.rules.template import template
from tests.support.answers import answers
from tests.support.scraping import parse, record

GAUGE = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"


def endpoint(body: str, *, pod: str = "a", times: int = 1) -> PodSeries:
    series = PodSeries(lambda exposed: attach(exposed, {"pod": pod}, honor=False))
    for at in range(times):
        record(series, parse(body.encode(), {"depth", "other"}), float(at), 0.0, 10.0)
    return series


def answer(query: str, *endpoints: PodSeries, selector: tuple[Matcher, ...] = ()) -> Answer:
    compiled = compile_query(template.parse(query))
    return steps.run(compiled.evaluate(endpoints, "depth", selector, 5.0))


@pytest.mark.parametrize("pod", [None, PodLabels("pod", "namespace")], ids=["endpoints", "pod"])
@pytest.mark.parametrize(("query", "reason"), answers("scrape/scraped_query", "refused"))
def test_a_query_that_cannot_be_evaluated_is_refused(query: str, reason: str, pod: PodLabels | None) -> None:
    with pytest.raises(UnscrapableError) as raised:
        compile_query(template.parse(query), pod=pod)

    assert str(raised.value).startswith(reason)


@pytest.mark.parametrize(("query", "reason"), answers("scrape/scraped_query", "refused of endpoints"))
def test_a_query_over_endpoints_is_refused(query: str, reason: str) -> None:
    with pytest.raises(UnscrapableError) as raised:
        compile_query(template.parse(query), absent=("job",))

    assert str(raised.value).startswith(reason)


def test_a_query_says_which_series_it_needs() -> None:
    query = template.parse('sum(rate(<<.Series>>_total{a="1",<<.LabelMatchers>>}[1m])) / sum(other)')
    compiled = compile_query(query)

    assert compiled.counts
    assert merge_selections([(compiled, "hits")]) == {
        "hits_total": frozenset({(Matcher("a", "=", "1"),)}),
        "other": frozenset({()}),
    }
    assert not compile_query(template.parse(GAUGE)).counts


def test_the_time_is_that_of_the_oldest_sample_in_use() -> None:
    old, new = endpoint("depth 1\n", pod="a"), endpoint("depth 2\n", pod="b", times=3)

    assert answer(GAUGE, old, new).time == 0.0
    assert answer(GAUGE, old, new, selector=(Matcher("pod", "=", "b"),)).time == 2.0


def test_a_counter_that_the_last_scrape_lacks_still_has_its_rate() -> None:
    series = PodSeries()
    for at, body in enumerate((b"depth 1\n", b"depth 4\n", b"depth 6\n", b"depth 10\n", b"other 1\n")):
        record(series, parse(body, {"depth", "other"}), float(at), 0.0, 10.0)

    found = answer("sum(rate(<<.Series>>{<<.LabelMatchers>>}[1m]))", series)

    assert [element.value for element in found.elements] == [3.0]
    assert (found.time, found.shown) == (3.0, True)
    assert answer(GAUGE, series).elements == ()


def test_without_series_there_is_no_time() -> None:
    shown = endpoint('depth{queue="a"} 1\n')

    found = answer(GAUGE, shown, selector=(Matcher("queue", "=", "b"),))
    assert (found.elements, found.time, found.shown) == ((), math.inf, True)
    assert not answer(GAUGE, endpoint("other 1\n")).shown


def test_a_selector_without_label_matchers_takes_no_selector_of_the_question() -> None:
    exposed = endpoint('depth{queue="a"} 1\nother 2\n')

    found = answer(f"{GAUGE} + sum(other)", exposed, selector=(Matcher("queue", "=", "a"),))

    assert [element.value for element in found.elements] == [3]


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("depth / on () other", "a series on the left matches several on the right"),
        ('depth / on () other{pod="a"}', "several series on the left match one on the right"),
    ],
)
def test_a_match_that_is_not_one_to_one_fails(query: str, error: str) -> None:
    body = "depth 1\nother 2\n"
    with pytest.raises(UnionError, match=error):
        answer(query, endpoint(body, pod="a"), endpoint(body, pod="b"))


def test_too_many_samples_are_an_error() -> None:
    body = "".join(f'depth{{queue="{number}"}} 1\n' for number in range(2_000))
    pods = [endpoint(body, pod=f"p{number}") for number in range(6)]

    with pytest.raises(UnionError, match="the query has more than 10000 samples"):
        answer("<<.Series>>{<<.LabelMatchers>>}", *pods)
    five = answer("<<.Series>>{<<.LabelMatchers>>}", *pods[:5])
    assert [element.value for element in five.elements] == [1] * 10_000


@pytest.mark.parametrize("grouping", ["", "by (queue)"])
def test_large_evaluations_take_several_steps(grouping: str) -> None:
    body = "".join(f'depth{{queue="{number}"}} 1\n' for number in range(2000))
    compiled = compile_query(template.parse(f"sum(<<.Series>>{{<<.LabelMatchers>>}}) {grouping}"))

    steps = compiled.evaluate([endpoint(body)], "depth", (), 5.0)

    assert sum(1 for _ in steps) >= 2


@pytest.mark.parametrize(("exposed", "honor", "labels"), answers("scrape/scraped_query", "attached"))
def test_attached_labels(exposed: dict[str, str], *, honor: bool, labels: dict[str, str]) -> None:
    assert attach(exposed, {"pod": "p"}, honor=honor) == labels
