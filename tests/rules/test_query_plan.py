import itertools

import pytest
import re2
import yaml
from hypothesis import given
from hypothesis import strategies as st

from adapter.model.metrics import Sample
from adapter.model.objects.label_selectors import parse_selector
from adapter.rules import matchers, query_plan
from adapter.rules.query import MetricQuery
from adapter.rules.query_plan import Objects, PlannedQuery, QueryKind
from tests.support.world import compile_rule

SUM = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
# Mergeable within a namespace, not across: one side of the product has the namespace, the other has not.
HALF = "x{<<.LabelMatchers>>} * on (ns, pod) sum by (pod) (y{<<.LabelMatchers>>})"


def metric_query(template: str = SUM, selector: str = "", namespace_label: str = "ns") -> MetricQuery:
    rule = compile_rule(yaml.safe_dump({"rules": [{"seriesQuery": "x", "metricsQuery": template}]}))
    parts = matchers.from_selector(parse_selector(selector))
    return MetricQuery(rule, "x", parts, namespace_label, "pod" if namespace_label else "node")


ROOT = metric_query(namespace_label="")


def test_alone_is_as_upstream_sends_it() -> None:
    planned = query_plan.ask_alone(metric_query(selector="a=1"), Objects("web", ("p.1", "q")))
    assert planned == PlannedQuery(
        'sum(x{a="1",ns="web",pod=~"p.1|q"}) by (pod)', QueryKind.ALONE, "web", joined=False
    )


def merged(promql: str, namespace: str | None, *, joined: bool = False) -> PlannedQuery:
    return PlannedQuery(promql, QueryKind.MERGED, namespace, joined)


MERGED: dict[str, tuple[MetricQuery, list[Objects], list[PlannedQuery]]] = {
    "one question is not merged": (
        metric_query(),
        [Objects("web", ("p.1", "q"))],
        [PlannedQuery('sum(x{ns="web",pod=~"p.1|q"}) by (pod)', QueryKind.ALONE, "web", joined=False)],
    ),
    "one namespace, names once each, dots escaped": (
        metric_query(selector="a=1"),
        [Objects("web", ("p.1", "q")), Objects("web", ("q", "r"))],
        [merged(r'sum(x{a="1",ns="web",pod=~"p\\.1|q|r"}) by (pod)', "web")],
    ),
    "several questions for one object": (
        metric_query(),
        [Objects("web", ("p",)), Objects("web", ("p", "p"))],
        [merged('sum(x{ns="web",pod="p"}) by (pod)', "web")],
    ),
    "namespaces": (
        metric_query(selector="a=1"),
        [Objects("web", ("p", "q")), Objects("db", ("q",))],
        [merged('sum by (pod, ns) (x{a="1",ns=~"db|web",pod=~"p|q"})', None, joined=True)],
    ),
    "namespaces that cannot share a query": (
        metric_query(HALF),
        [Objects("web", ("p",)), Objects("db", ("q",)), Objects("web", ("r",))],
        [
            merged('x{ns="web",pod=~"p|r"} * on (ns, pod) sum by (pod) (y{ns="web",pod=~"p|r"})', "web"),
            merged('x{ns="db",pod="q"} * on (ns, pod) sum by (pod) (y{ns="db",pod="q"})', "db"),
        ],
    ),
    "kinds without a namespace": (
        ROOT,
        [Objects(None, ("n1",)), Objects(None, ("n2",))],
        [merged('sum(x{node=~"n1|n2"}) by (node)', None)],
    ),
}


@pytest.mark.parametrize(("query", "questions", "expected"), MERGED.values(), ids=MERGED)
def test_merge(query: MetricQuery, questions: list[Objects], expected: list[PlannedQuery]) -> None:
    assert list(query_plan.merge(query, questions)) == expected


SWEPT = {
    "namespaced": (
        metric_query(selector="a=1"),
        PlannedQuery('sum by (pod, ns) (x{a="1",ns!="",pod!=""})', QueryKind.SWEEP, None, joined=True),
    ),
    "root": (ROOT, PlannedQuery('sum(x{node!=""}) by (node)', QueryKind.SWEEP, None, joined=False)),
}


@pytest.mark.parametrize(("query", "expected"), SWEPT.values(), ids=SWEPT)
def test_sweep(query: MetricQuery, expected: PlannedQuery) -> None:
    assert query.sweepable
    assert query_plan.sweep(query) == expected


@pytest.mark.parametrize(
    "query",
    [metric_query(HALF), metric_query("topk(1, x{<<.LabelMatchers>>})")],
    ids=["namespaces cannot share a query", "not separable"],
)
def test_no_sweep(query: MetricQuery) -> None:
    assert not query.sweepable


def test_samples_of_a_joined_query_say_where_they_belong() -> None:
    query = metric_query()
    planned = next(query_plan.merge(query, [Objects("a", ("p",)), Objects("b", ("p",))]))
    samples = [Sample({"ns": "a", "pod": "p"}, 1, 0), Sample({"ns": "b"}, 2, 0), Sample({}, 3, 0)]
    assert [place for place, _ in query_plan.place_samples(query, planned, samples)] == [
        ("a", "p"),
        ("b", ""),
        ("", ""),
    ]


@pytest.mark.parametrize(
    ("query", "namespace"), [(metric_query(), "web"), (ROOT, None)], ids=["namespaced", "root"]
)
def test_samples_of_one_namespace(query: MetricQuery, namespace: str | None) -> None:
    planned = query_plan.ask_alone(query, Objects(namespace, ("p",)))
    samples = [Sample({query.object_label: "p", "ns": "elsewhere"}, 1, 0), Sample({}, 2, 0)]
    places = [place for place, _ in query_plan.place_samples(query, planned, samples)]
    assert places == [(namespace or "", "p"), (namespace or "", "")]


# Long lists.

LONG = tuple(f"pod-{number:04}.x" for number in range(200))


def test_a_long_list_is_split_at_the_limit_and_answers_all() -> None:
    planned = list(query_plan.merge(metric_query(), [Objects("web", LONG)], limit=1000))
    assert len(planned) > 1
    assert all(len(one.promql) <= 1000 for one in planned)
    assert all(one.kind is QueryKind.ALONE and one.namespace == "web" for one in planned)
    assert [name for one in planned for name in LONG if name.replace(".", r"\\.") in one.promql] == list(LONG)


def test_a_short_list_over_a_tiny_limit_still_asks_for_one_name_at_a_time() -> None:
    planned = list(query_plan.merge(metric_query(), [Objects("web", ("a", "b"))], limit=1))
    assert [one.promql for one in planned] == [
        'sum(x{ns="web",pod="a"}) by (pod)',
        'sum(x{ns="web",pod="b"}) by (pod)',
    ]


def test_every_selector_of_the_template_repeats_the_names() -> None:
    double = metric_query("sum by (pod) (x{<<.LabelMatchers>>}) / sum by (pod) (y{<<.LabelMatchers>>})")
    planned = list(query_plan.merge(double, [Objects("web", LONG)], limit=1000))
    assert len(planned) > len(list(query_plan.merge(metric_query(), [Objects("web", LONG)], limit=1000)))
    assert all(len(one.promql) <= 1000 for one in planned)


def test_long_lists_of_several_namespaces() -> None:
    questions = [Objects(namespace, LONG[start::3]) for start, namespace in enumerate(("a", "b", "c"))]
    planned = list(query_plan.merge(metric_query(), questions, limit=1000))
    assert len(planned) > 1
    assert all(len(one.promql) <= 1000 for one in planned)
    assert {one.namespace for one in planned} == {
        "c",
        None,
    }  # where only one namespace is left it is asked as such
    asked = {
        (namespace, name)
        for one in planned
        for namespace, name in itertools.product("abc", LONG)
        if selects(one, namespace, name)
    }
    assert asked >= {(question.namespace, name) for question in questions for name in question.names}


def selects(planned: PlannedQuery, namespace: str, name: str) -> bool:
    """Whether a query of the SUM template asks for an object, reading its matchers as Prometheus does."""
    return all(
        re2.fullmatch(value.replace(r"\\", "\\"), wanted) is not None if operator == "=~" else value == wanted
        for wanted, label in ((namespace, "ns"), (name, "pod"))
        for operator, value in re2.findall(rf'{label}(=~?)"([^"]*)"', planned.promql)
    )


names = st.text("ab.-", min_size=1, max_size=3)
questions = st.lists(
    st.builds(
        Objects, st.sampled_from(["n1", "n.2", "n3"]), st.lists(names, min_size=1, max_size=4).map(tuple)
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.timeout(60)
@given(
    asked=questions,
    limit=st.sampled_from([60, 100, query_plan.MAX_QUERY_LENGTH]),
    template=st.sampled_from([SUM, HALF]),
)
def test_every_object_is_requested_exactly_once_or_in_a_query_that_tells_it_apart(
    asked: list[Objects], limit: int, template: str
) -> None:
    planned = list(query_plan.merge(metric_query(template), asked, limit))
    for question in asked:
        for name in question.names:
            assert question.namespace is not None
            found = [one for one in planned if selects(one, question.namespace, name)]
            assert found
            assert all(one.joined or one.namespace == question.namespace for one in found)
            assert len([one for one in found if not one.joined]) <= 1


# What rides along.

RECENT = [Objects("a", ("p1",)), Objects("b", ("p2",)), Objects("a", ("p3",))]

COMPANIONS = {
    "all that fit": (metric_query(), query_plan.MAX_QUERY_LENGTH, RECENT),
    "only of the same namespace": (metric_query(HALF), query_plan.MAX_QUERY_LENGTH, [RECENT[0], RECENT[2]]),
    "no room": (metric_query(), 1, []),
    "room for one": (metric_query(), 48, RECENT[:1]),
}


@pytest.mark.parametrize(("query", "limit", "expected"), COMPANIONS.values(), ids=COMPANIONS)
def test_companions(query: MetricQuery, limit: int, expected: list[Objects]) -> None:
    assert query_plan.prefetch(query, [Objects("a", ("p",))], RECENT, limit) == expected


def test_a_question_weighs_what_its_names_cost() -> None:
    names = ("web-0", "a.b.c", "")
    assert query_plan._weight(Objects("n.s", names)) == sum(map(query_plan._cost, ("n.s", *names)))


def test_companions_of_a_kind_without_a_namespace() -> None:
    recent = [Objects(None, ("n2",))]
    assert query_plan.prefetch(ROOT, [Objects(None, ("n1",))], recent) == recent
