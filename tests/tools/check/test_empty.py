"""Every cause of a missing value, by the smallest case that has it."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

from adapter import errors
from adapter.config.rules_config import OnNaN
from adapter.model.metrics import HISTOGRAM, QueryResult, Sample
from adapter.model.resources import BUILTIN, APIResource, Catalogue
from adapter.rules import registry
from adapter.rules.matchers import Matcher
from adapter.rules.query import MetricQuery
from adapter.rules.registry import CustomEntry, Registry
from fastpath_tools.check import empty, report
from fastpath_tools.check.empty import EmptyCase, Value
from fastpath_tools.check.wanted import Wanted, build_query, locate, parse_wanted, wrong_api
from tests.support.world import compile_text, scalar, series, vector

WIDGET = APIResource(
    "x.io", "v1", "widgets", "widget", "Widget", namespaced=False, verbs=frozenset(), preferred=True
)
CATALOGUE = Catalogue([*BUILTIN, WIDGET])
RULES = """
rules:
- seriesQuery: load
  resources:
    overrides:
      namespace: {resource: namespace}
      pod: {resource: pod}
      node: {resource: node}
      widget: {resource: widget}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
- seriesQuery: load
  resources: {overrides: {pod: {resource: pod}}}
  name: {as: anywhere}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
externalRules:
- {seriesQuery: load, name: {as: backlog}, metricsQuery: x}
"""
SERIES = series({"__name__": "load", "namespace": "a", "pod": "b", "node": "c", "widget": "d"})


def known() -> Registry:
    return registry.build(compile_text(RULES, CATALOGUE), registry.remember({}, "load", SERIES), 1)


def entry(metric: str, wanted: str) -> CustomEntry:
    found = locate(known(), CATALOGUE, metric, parse_wanted(wanted))
    assert isinstance(found, CustomEntry)
    return found


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("pod/shop/web-0", Wanted("pod", "shop", "web-0")),
        ("deployments.apps/shop/*", Wanted("deployments.apps", "shop", "*")),
        ("node/a", Wanted("node", None, "a")),
        ("shop", Wanted("", "shop", "")),
    ],
)
def test_parse_wanted(text: str, wanted: Wanted) -> None:
    assert parse_wanted(text) == wanted
    assert str(wanted) == text


@pytest.mark.parametrize("text", ["", "/", "pod/", "pod//a", "pod/a/b/c"])
def test_parse_wanted_refuses(text: str) -> None:
    with pytest.raises(errors.InputError, match="expected KIND/NAMESPACE/NAME"):
        parse_wanted(text)


# Metric, object, and the kind and series found, or the sentence.
LOCATED = {
    "pod": ("load", "Pods/shop/a", "pods"),
    "namespace": ("load", "namespace/shop", "namespaces"),
    "node": ("load", "node/a", "nodes"),
    "root kind of the cluster": ("load", "widgets.x.io/a", "widgets.x.io"),
    "root kind of the cluster, as prometheus-adapter has it": ("load", "widgets.x.io/shop/a", "widgets.x.io"),
    "external": (
        "backlog",
        "pod/shop/a",
        (
            "backlog is an external metric (externalRules[0]), which describes no object: read it with a "
            "metric of type External, or move the rule from externalRules to rules"
        ),
    ),
    "another kind": (
        "load",
        "service/shop/a",
        (
            "load is served for namespaces, nodes, pods, widgets.x.io and not for services, because no label "
            "of its series names them: add the label that does to resources.overrides, such as service: "
            "{resource: service}"
        ),
    ),
    "pod at the root": ("load", "pod/a", "pods are namespaced: write pod/NAMESPACE/a"),
    "namespace below itself": (
        "load",
        "namespaces/a/a",
        "namespaces are requested at the root, also by autoscalers: write namespaces/a",
    ),
    "node in a namespace": (
        "load",
        "node/shop/a",
        (
            "nodes are served at the root only, but an autoscaler requests them in its own namespace and "
            "gets 404: read load through an object that lives in the namespace, or as an external metric"
        ),
    ),
}


@pytest.mark.parametrize(("metric", "wanted", "expected"), LOCATED.values(), ids=LOCATED)
def test_locate(metric: str, wanted: str, expected: str) -> None:
    found = locate(known(), CATALOGUE, metric, parse_wanted(wanted))
    assert (found if isinstance(found, str) else str(found.resource.group_resource)) == expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("pood/shop/a", "not pood: did you mean pod?"),
        ("xyz.y/shop/a", "not xyz.y: write its singular or plural name, with .GROUP if need be"),
        ("ns.x/a/a", "not ns.x: write its singular or plural name, with .GROUP if need be"),
    ],
)
def test_a_kind_that_does_not_exist(wanted: str, expected: str) -> None:
    with pytest.raises(errors.InputError) as refused:
        locate(known(), CATALOGUE, "load", parse_wanted(wanted))
    assert str(refused.value.faults[0]) == f"--object: {wanted}: expected a kind of object, {expected}"


def test_wrong_api() -> None:
    assert wrong_api(known(), "anywhere") == (
        "anywhere is a custom metric of pods and not an external one: read it with a metric of type Pods or "
        "Object, or move the rule from rules to externalRules"
    )


def query_of(metric: str, wanted: str) -> MetricQuery:
    query = build_query(entry(metric, wanted), parse_wanted(wanted), (Matcher("code", "=", "200"),))
    assert isinstance(query, MetricQuery)
    return query


def test_build_query() -> None:
    query = query_of("load", "pod/shop/web-0")
    assert query.render("shop", ["web-0"]) == 'load{code="200",namespace="shop",pod="web-0"}'
    assert query_of("load", "node/a").render(None, ["a"]) == 'load{code="200",node="a"}'


def test_build_query_without_a_label() -> None:
    assert build_query(entry("anywhere", "pod/shop/a"), parse_wanted("pod/shop/a"), ()) == (
        "rules[1] has no label for namespaces (no generic resource label form specified for this metric), so "
        "no namespaced object can be requested: add an override for namespace"
    )


@pytest.mark.parametrize(
    ("value", "zero", "expected"),
    [
        (1.5, False, ("1500m", "", "")),
        (math.nan, True, ("0", "", "")),
        (math.nan, False, ("", "NaN is not a finite number and is left out", "or set onNaN: zero")),
        (-math.inf, True, ("", "-Inf is not a finite number and is left out", "where it divides by zero")),
        (HISTOGRAM, True, ("", "a native histogram is not a finite number and is left out", "histogram_avg")),
        (1e17, False, ("", "1e+17 is beyond 9.2e15, the limit of a quantity: requests fail", "clamp_max")),
    ],
)
def test_value_of(value: float, *, zero: bool, expected: tuple[str, str, str]) -> None:
    answer = empty.value_of(Sample({}, value, 0.0), nan_is_zero=zero)
    assert answer[:2] == expected[:2]
    assert expected[2] in answer.remedy
    assert ("onNaN" in answer.remedy) is ("onNaN" in expected[2])
    assert answer.refused is (value == 1e17)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.0, "1"),
        (0.1234567890123, "0.123456789"),
        (math.nan, "NaN"),
        (math.inf, "+Inf"),
        (1795190000.5, "1795190000"),
    ],
)
def test_show_number(value: float, shown: str) -> None:
    assert report.show_number(value) == shown


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("type", "no, so every request fails: let metricsQuery give one sample for each object"),
        ("query", "Prometheus refuses the query (no): fix metricsQuery, or what the selector puts into it"),
        ("timeout", "Prometheus does not answer the query (no): check its address and its load"),
    ],
)
def test_refused(kind: str, sentence: str) -> None:
    assert empty.refused(errors.PrometheusError(kind, "no")) == sentence


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (
            scalar(1),
            ("the metricsQuery of rules[0] gives a scalar without object labels: keep the label pod"),
        ),
        (
            vector(({"x": "y"}, 1)),
            (
                "the result of rules[0] has no label pod, so no sample matches an object: group it by "
                "(<<.GroupBy>>)"
            ),
        ),
        (
            vector(({"pod": "b"}, 1), ({"pod": "c"}, 1), ({}, 1)),
            ("the result of rules[0] has b, c but not a: use <<.LabelMatchers>> in every selector of it"),
        ),
    ],
    ids=["scalar", "no label", "others"],
)
def test_unusable(result: QueryResult, sentence: str) -> None:
    assert empty.unusable(query_of("load", "pod/shop/a"), result, "a") == sentence


def test_no_number() -> None:
    value = empty.value_of(Sample({}, math.inf, 0.0), nan_is_zero=True)
    assert empty.no_number("load", "pod/a/b", value) == (
        "load of pod/a/b has no value: +Inf is not a finite number and is left out; let metricsQuery return "
        "a number, or nothing, where it divides by zero"
    )


def values_of(*values: float) -> list[Value]:
    return [empty.value_of(Sample({}, value, 0.0), nan_is_zero=False) for value in values]


@pytest.mark.parametrize(
    ("values", "on_nan", "said"),
    [
        ([1.0, math.nan], None, "1 of 2 values has no quantity (NaN is not a finite number"),
        ([1.0], None, ""),
        ([math.inf, HISTOGRAM], None, "2 of 2 values have no quantity (+Inf is not a finite number"),
        ([math.nan, math.inf, HISTOGRAM], OnNaN.DROP, ""),
        ([math.nan, 1e17], OnNaN.DROP, "1 of 2 values has no quantity (1e+17 is beyond 9.2e15"),
        ([math.nan, -1e17], None, "2 of 2 values have no quantity (-1e+17 is beyond 9.2e15"),
    ],
)
def test_values_without_a_quantity(values: list[float], on_nan: OnNaN | None, said: str) -> None:
    sentence = empty.faulty(values_of(*values), on_nan)
    assert sentence.startswith(said)
    assert bool(sentence) is bool(said)
    assert ("clamp_max" in sentence) is ("beyond" in said)


def test_a_negative_value() -> None:
    assert empty.negative(values_of(1.0, 0.0)) == ""
    assert empty.negative(values_of(2.0, -0.5)).startswith(
        "-500m is negative, and an HPA takes a negative sum"
    )


def test_other_sentences() -> None:
    assert empty.no_query("rules[0]", errors.TemplateError("it is empty")) == (
        "rules[0] gives no query, so every request fails: it is empty"
    )
    assert empty.no_object(Wanted("pod", "a", "b")).startswith(
        "Prometheus has a value for pod/a/b and the cluster has no such object"
    )
    assert empty.too_old("rules[0]", ["a", "b"], "1m0s", "30s") == (
        "the samples of a, b are 1m0s old and left out: rules[0] allows maxSampleAge 30s, so scrape "
        "them more often or allow more"
    )


def test_followups() -> None:
    query = query_of("load", "pod/shop/a")
    assert empty.object_followups(query, Wanted("pod", "shop", "a"), "a") == (
        'count by (namespace, pod) (load{pod="a"})',
        'count by (pod) (load{namespace="shop"})',
    )
    assert empty.object_followups(query_of("load", "node/a"), Wanted("node", None, "a"), "a") == (
        'count by (node) (load{node="a"})',
        'count by (node) (load{node!=""})',
    )


def test_followups_with_labels_that_need_quotes() -> None:
    query = query_of("load", "pod/shop/a")
    quoted = replace(query, namespace_label="k8s.ns", object_label="k8s.pod")
    assert empty.object_followups(quoted, Wanted("pod", "shop", "a"), "a") == (
        'count by ("k8s.ns", "k8s.pod") (load{"k8s.pod"="a"})',
        'count by ("k8s.pod") (load{"k8s.ns"="shop"})',
    )


MAKES_NOTHING = (
    "the series load are there, but the metricsQuery of rules[0] returns nothing for them: a rate needs two "
    "samples within its window, and every other matcher and operand has to find something; run it part by "
    "part"
)
ELSEWHERE = (
    "load has pod='a' only with namespace='other', not namespace='shop': the label holds the namespace of "
    "the exporter; map the one that holds the object's own"
)

# Object, samples of the two follow-ups (their labels), labels of the series, whether the object exists, and
# the sentence.
NOTHING: dict[
    str, tuple[str, Sequence[dict[str, str]], Sequence[dict[str, str]], set[str], bool | None, str]
] = {
    "nowhere": (
        "pod/shop/a",
        [],
        [],
        set(),
        False,
        "neither the cluster nor Prometheus has pod/shop/a: check kind, namespace and name",
    ),
    "series are there": (
        "pod/shop/a",
        [{"namespace": "shop", "pod": "a"}],
        [{"pod": "a"}],
        set(),
        None,
        MAKES_NOTHING,
    ),
    "series of a root kind are there": ("node/a", [{"node": "a"}], [], set(), True, MAKES_NOTHING),
    "in another namespace": (
        "pod/shop/a",
        [{"namespace": "other", "pod": "a"}],
        [],
        {"namespace", "pod"},
        None,
        ELSEWHERE,
    ),
    "in another namespace, with a hint": (
        "pod/shop/a",
        [{"namespace": "other", "pod": "a"}],
        [],
        {"namespace", "exported_namespace", "pod"},
        None,
        f"{ELSEWHERE}, such as exported_namespace: {{resource: namespace}}",
    ),
    "without the label": (
        "pod/shop/a",
        [{"pod": "a"}],
        [],
        {"pod"},
        None,
        (
            "load has pod='a' without that label, not namespace='shop': the label holds the namespace of the "
            "exporter; map the one that holds the object's own"
        ),
    ),
    "others are there": (
        "pod/shop/a",
        [],
        [{"pod": "c"}, {"pod": "b"}, {}],
        set(),
        None,
        "load has other pods in namespace shop (b, c) and not a: check the name, and that it is scraped",
    ),
    "others are there and the object is": (
        "pod/shop/a",
        [],
        [{"pod": "b"}],
        set(),
        True,
        (
            "load has other pods in namespace shop (b) and not a: it is in the cluster, so check that it is "
            "scraped"
        ),
    ),
    "others at the root": (
        "node/a",
        [],
        [{"node": "b"}],
        set(),
        None,
        "load has other nodes (b) and not a: check the name, and that it is scraped",
    ),
    "nothing any more": (
        "pod/shop/a",
        [],
        [],
        set(),
        None,
        (
            "load was there in the last 10m0s but has no sample now in namespace shop: check that its "
            "targets are up, and that namespace holds the namespace of the objects"
        ),
    ),
    "nothing any more at the root": (
        "node/a",
        [],
        [],
        set(),
        True,
        "load was there in the last 10m0s but has no sample now: check that its targets are up",
    ),
}


@pytest.mark.parametrize(
    ("wanted", "named", "around", "labels", "exists", "sentence"), NOTHING.values(), ids=NOTHING
)
def test_explain_nothing(
    wanted: str,
    named: Sequence[dict[str, str]],
    around: Sequence[dict[str, str]],
    labels: set[str],
    *,
    exists: bool | None,
    sentence: str,
) -> None:
    query, sought = query_of("load", wanted), parse_wanted(wanted)
    case = EmptyCase(
        query.rule.path,
        query.series,
        query.namespace_label,
        sought.namespace,
        [Sample(each, 1, 0) for each in named],
        [Sample(each, 1, 0) for each in around],
        frozenset(labels),
        "10m0s",
    )
    resource = entry("load", wanted).resource
    found = empty.no_sample_of_object(case, sought, "a", query.object_label, resource, exists=exists)
    assert found == sentence


def test_no_sentence_ends_with_a_stop() -> None:
    """They are the last line of a trace; it names one cause and one remedy."""
    sentences = [each[-1] for each in NOTHING.values()]
    assert all(re.search(r"[^.]$", str(each)) and ":" in str(each) for each in sentences)


def test_an_answer_with_a_warning() -> None:
    assert empty.partial("store away") == (
        "the answer has a warning (store away), so it may lack data and counts as a failed query: fix what "
        "it names, or set onWarnings: accept on the rule"
    )


SELECTOR = (Matcher("queue", "=", "mail"),)


def test_followups_of_an_external_metric() -> None:
    assert empty.external_followups("queue", "ns", "shop", SELECTOR) == (
        'count by (ns) (queue{queue="mail"})',
        'count (queue{ns="shop"})',
    )
    assert empty.external_followups("queue", "k8s.ns", "shop", ()) == (
        'count by ("k8s.ns") (queue{})',
        'count (queue{"k8s.ns"="shop"})',
    )
    assert empty.external_followups("queue", "", "shop", ()) == (
        "count by () (queue{})",
        "count (queue{})",
    )


EXTERNAL_EMPTY = (
    "the series queue are there, but the metricsQuery of externalRules[0] returns nothing for them: a rate "
    "needs two samples within its window, and every other matcher and operand has to find something; run it "
    "part by part"
)
OUTSIDE = (
    "and an external metric is read in the namespace of the autoscaler (shop): map the label that holds it"
)
REMEDY = "or set resources.namespaced: false on externalRules[0]"

# Label for namespaces, selector, samples of the two follow-ups (their labels), labels of the series, and the
# sentence.
EXTERNALS: dict[str, tuple[str, str, Sequence[dict[str, str]], Sequence[dict[str, str]], set[str], str]] = {
    "series are there": ("ns", "", [{"ns": "shop"}], [{}], set(), EXTERNAL_EMPTY),
    "series are there, not namespaced": ("", "", [{}], [{}], set(), EXTERNAL_EMPTY),
    "other namespaces": (
        "ns",
        "",
        [{"ns": "b"}, {"ns": "a"}],
        [],
        {"ns"},
        f"queue has ns='a', 'b', {OUTSIDE}, {REMEDY}",
    ),
    "other namespaces, with a hint": (
        "ns",
        "",
        [{"ns": "b"}],
        [],
        {"ns", "exported_namespace"},
        f"queue has ns='b', {OUTSIDE}, such as exported_namespace: {{resource: namespace}}, {REMEDY}",
    ),
    "no such label": ("ns", "", [{}], [], set(), f"queue has no label ns, {OUTSIDE}, {REMEDY}"),
    "the selector": (
        "ns",
        'queue="mail"',
        [],
        [{}],
        {"ns", "queue"},
        'no series of queue matches the selector queue="mail": compare it with the labels (ns, queue)',
    ),
    "nothing any more": (
        "ns",
        "",
        [],
        [{}],
        set(),
        "queue was there in the last 10m0s but has no sample now: check that its targets are up",
    ),
}


@pytest.mark.parametrize(
    ("label", "selector", "named", "around", "labels", "sentence"),
    EXTERNALS.values(),
    ids=EXTERNALS,
)
def test_explain_no_external_value(
    label: str,
    selector: str,
    named: Sequence[dict[str, str]],
    around: Sequence[dict[str, str]],
    labels: set[str],
    sentence: str,
) -> None:
    case = EmptyCase(
        "externalRules[0]",
        "queue",
        label,
        "shop",
        [Sample(each, 1, 0) for each in named],
        [Sample(each, 1, 0) for each in around],
        frozenset(labels),
        "10m0s",
    )
    assert empty.no_sample_of_external(case, selector) == sentence


@pytest.mark.parametrize(
    ("metric", "number", "sentence"),
    [
        ("queue", 1, "queue is served: 1 value"),
        ("queue", 2, "queue is served: 2 values, which an autoscaler adds up"),
        (
            "Queue",
            1,
            (
                "Queue is served, but autoscalers request external metrics in lower case and never find it: "
                "give it a lower-case name through name.as"
            ),
        ),
    ],
)
def test_served(metric: str, number: int, sentence: str) -> None:
    assert empty.served(metric, number) == sentence


def test_no_namespace_label() -> None:
    assert empty.no_namespace_label("externalRules[0]") == (
        "externalRules[0] names no label for namespaces, so every request fails: add an override for "
        "namespace, or set resources.namespaced: false"
    )
