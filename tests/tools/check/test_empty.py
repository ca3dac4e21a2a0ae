"""What becomes of a value, and what is asked where a value is missing.

`tests/golden/check/why-*` has the sentences for the causes.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adapter import errors
from adapter.config.rules_config import OnNaN
from adapter.model import steps
from adapter.model.metrics import HISTOGRAM, Sample
from adapter.model.objects.resources import BUILTIN, APIResource, Catalogue
from adapter.rules import registry
from adapter.rules.matchers import Matcher
from adapter.rules.query import MetricQuery
from adapter.rules.registry import CustomEntry, Registry
from fastpath_tools.check import empty, report
from fastpath_tools.check.empty import EmptyCase, Value
from fastpath_tools.check.wanted import Wanted, build_query, locate, parse_wanted
from tests.support.answers import answers
from tests.support.world import compile_text, series

TRANSCRIPTS = Path(__file__).parents[2] / "golden" / "check"
WIDGET = APIResource(
    "x.io", "v1", "widgets", "widget", "Widget", namespaced=False, verbs=frozenset(), preferred=True
)
CATALOGUE = Catalogue([*BUILTIN, WIDGET])
RULES = (Path(__file__).parents[2] / "data" / "rules" / "overrides.yaml").read_text()
SERIES = series({"__name__": "load", "namespace": "a", "pod": "b", "node": "c", "widget": "d"})


def known() -> Registry:
    return steps.run(
        registry.building(
            compile_text(RULES, CATALOGUE), steps.run(registry.remembering({}, "load", SERIES)), 1
        )
    )


def entry(metric: str, wanted: str) -> CustomEntry:
    found = locate(known(), CATALOGUE, metric, parse_wanted(wanted))
    assert isinstance(found, CustomEntry)
    return found


@pytest.mark.parametrize(("text", "wanted"), answers("check/empty", "wanted"))
def test_parse_wanted(text: str, wanted: list[Any]) -> None:
    assert parse_wanted(text) == Wanted(*wanted)
    assert str(Wanted(*wanted)) == text


@pytest.mark.parametrize("text", ["", "/", "pod/", "pod//a", "pod/a/b/c"])
def test_parse_wanted_refuses(text: str) -> None:
    with pytest.raises(errors.InputError, match="expected KIND/NAMESPACE/NAME"):
        parse_wanted(text)


@pytest.mark.parametrize("wanted", ["widgets.x.io/a", "widgets.x.io/shop/a"])
def test_a_root_kind_of_the_cluster_is_found_as_prometheus_adapter_finds_it(wanted: str) -> None:
    assert str(entry("load", wanted).resource.group_resource) == "widgets.x.io"


def query_of(metric: str, wanted: str) -> MetricQuery:
    query = build_query(entry(metric, wanted), parse_wanted(wanted), (Matcher("code", "=", "200"),))
    assert isinstance(query, MetricQuery)
    return query


def test_build_query() -> None:
    query = query_of("load", "pod/shop/web-0")
    assert query.render("shop", ["web-0"]) == 'load{code="200",namespace="shop",pod="web-0"}'
    assert query_of("load", "node/a").render(None, ["a"]) == 'load{code="200",node="a"}'


def number(text: str) -> float:
    return HISTOGRAM if text == "histogram" else float(text)


@pytest.mark.parametrize(("value", "zero", "expected"), answers("check/empty", "values"))
def test_value_of(value: str, *, zero: bool, expected: list[str]) -> None:
    answer = empty.value_of(Sample({}, number(value), 0.0), OnNaN.ZERO if zero else None, external=False)
    assert list(answer[:2]) == expected[:2]
    assert expected[2] in answer.remedy
    assert ("onNaN" in answer.remedy) is ("onNaN" in expected[2])
    assert answer.refused is (value == "1e17")


@pytest.mark.parametrize(
    ("on_nan", "outcome"),
    [(None, ": requests fail"), (OnNaN.ZERO, ": requests fail"), (OnNaN.DROP, " and is left out")],
)
def test_a_sum_without_a_part_is_refused(on_nan: OnNaN | None, outcome: str) -> None:
    answer = empty.value_of(Sample({}, math.inf, 0.0), on_nan, external=True)
    assert answer.fault == f"+Inf is not a finite number{outcome}"
    assert answer.refused is (on_nan is not OnNaN.DROP)


@pytest.mark.parametrize(("value", "shown"), answers("check/empty", "numbers"))
def test_show_number(value: str, shown: str) -> None:
    assert report.show_number(float(value)) == shown


@pytest.mark.parametrize(("kind", "sentence"), answers("check/empty", "refused"))
def test_refused(kind: str, sentence: str) -> None:
    assert empty.refused(errors.PrometheusError(kind, "no")) == sentence


def values_of(*values: float) -> list[Value]:
    return [empty.value_of(Sample({}, value, 0.0), None, external=False) for value in values]


@pytest.mark.parametrize(("values", "on_nan", "said"), answers("check/empty", "faulty"))
def test_values_without_a_quantity(values: str, on_nan: str | None, said: str) -> None:
    sentence = empty.faulty(values_of(*map(number, values.split())), OnNaN(on_nan) if on_nan else None)
    assert sentence.startswith(said)
    assert bool(sentence) is bool(said)
    assert ("clamp_max" in sentence) is ("beyond" in said)


def test_a_negative_value() -> None:
    assert empty.negative(values_of(1.0, 0.0)) == ""
    assert empty.negative(values_of(2.0, -0.5)).startswith(
        "-500m is negative, and an HPA takes a negative sum"
    )


def test_other_sentences() -> None:
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


@pytest.mark.parametrize(
    ("around", "exists", "sentence"),
    [
        ([], False, "neither the cluster nor Prometheus has pod/shop/a: check kind, namespace and name"),
        (
            [Sample({"pod": "b"}, 1, 0)],
            True,
            (
                "load has other pods in namespace shop (b) and not a: it is in the cluster, so check that it "
                "is scraped"
            ),
        ),
    ],
)
def test_what_the_cluster_has_counts(around: Sequence[Sample], sentence: str, *, exists: bool) -> None:
    query, wanted = query_of("load", "pod/shop/a"), parse_wanted("pod/shop/a")
    case = EmptyCase(
        query.rule.path, query.series, query.namespace_label, "shop", [], around, frozenset(), "10m0s"
    )
    resource = entry("load", "pod/shop/a").resource
    found = empty.no_sample_of_object(case, wanted, "a", query.object_label, resource, exists=exists)
    assert found == sentence


def test_no_sentence_ends_with_a_stop() -> None:
    """A sentence without a value is the last line of a trace; it names one cause and one remedy."""
    printed = [path.read_text().splitlines() for path in TRANSCRIPTS.glob("why-*/transcript")]
    sentences = [line for lines in printed for line, status in itertools.pairwise(lines) if status == "? 1"]
    assert sentences
    assert [each for each in sentences if each.endswith(".") or ":" not in each] == []


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
    assert empty.external_followups("queue", "", "shop", ()) == ("count by () (queue{})", "count (queue{})")
