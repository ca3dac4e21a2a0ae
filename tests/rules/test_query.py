import math
from dataclasses import replace
from typing import Any

import pytest
import yaml

from adapter.errors import TemplateError
from adapter.model.metrics import Sample
from adapter.model.objects.label_selectors import parse_selector
from adapter.rules import matchers
from adapter.rules.query import INFINITE, NAN, OVERFLOW, Dropped, MetricQuery, last_samples, milli_of
from tests.support.answers import answers
from tests.support.world import compile_rule

QUERY = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"


def metric_query(template: str = QUERY, **parts: Any) -> MetricQuery:
    rule = compile_rule(yaml.safe_dump({"rules": [{"seriesQuery": "x", "metricsQuery": template}]}))
    selector = matchers.from_selector(parse_selector(parts.pop("selector", "")))
    return MetricQuery(
        rule, "hits", selector, parts.get("namespace_label", "ns"), parts.get("object_label", "pod")
    )


@pytest.mark.parametrize(("parts", "namespace", "names", "expected"), answers("rules/query", "rendered"))
def test_render(parts: dict[str, str], namespace: str | None, names: list[str], expected: str) -> None:
    assert metric_query(**parts).render(namespace, names) == expected


FAILING = {
    "empty output": "<<if false>>x<<end>>",
    "empty template": "",
    "unknown field": "<<.LabelMatchersByName>>",
}


@pytest.mark.parametrize("template", FAILING.values(), ids=FAILING)
def test_render_fails(template: str) -> None:
    with pytest.raises(TemplateError):
        metric_query(template).render("web", ["a"])


def test_joined_has_the_namespace_in_its_grouping() -> None:
    query = metric_query()
    parts = [matchers.for_any_of("ns", ["a", "b"]), matchers.for_any_of("pod", ["p.1"])]
    assert not query.separability.reason
    assert query.render_joined(parts) == 'sum by (pod, ns) (hits{ns=~"a|b",pod="p.1"})'


def test_the_last_sample_of_an_object_counts() -> None:
    samples = [
        Sample({"pod": "a"}, 1, 0),
        Sample({"pod": "b"}, 2, 0),
        Sample({"pod": "a"}, 3, 0),
        Sample({}, 4, 0),
    ]
    assert last_samples(samples, "pod") == {"a": samples[2], "b": samples[1], "": samples[3]}


def test_parts_are_grouped_by_beside_the_object() -> None:
    query = replace(metric_query(), part_label="container")
    assert query.render("web", ["a"]) == 'sum(hits{ns="web",pod="a"}) by (pod,container)'
    parts = [matchers.for_any_of("ns", ["a", "b"]), matchers.for_any_of("pod", ["p"])]
    assert query.render_joined(parts) == 'sum by (pod, container, ns) (hits{ns=~"a|b",pod="p"})'


def test_an_object_has_one_sample_or_one_for_each_of_its_parts() -> None:
    one, other, nameless = (
        Sample({"container": "a"}, 1, 0),
        Sample({"container": "b"}, 1, 0),
        Sample({}, 1, 0),
    )
    whole, parted = metric_query(), replace(metric_query(), part_label="container")
    assert whole.doubles(other, [one])
    assert not parted.doubles(other, [one, nameless])
    assert parted.doubles(one, [other, one])
    assert parted.doubles(nameless, [one, nameless])


MILLI: dict[float, int | Dropped] = {
    64.1: 64099, 2.01: 2009, -1.5: -1500, math.nan: NAN, math.inf: INFINITE, -math.inf: INFINITE,
    9.3e15: OVERFLOW,
}  # fmt: skip


@pytest.mark.parametrize(("value", "expected"), MILLI.items(), ids=map(str, MILLI))
def test_milli(value: float, expected: int | Dropped) -> None:
    assert milli_of(value, nan_is_zero=False) == expected


def test_nan_as_zero() -> None:
    assert milli_of(math.nan, nan_is_zero=True) == 0
    assert milli_of(math.inf, nan_is_zero=True) == INFINITE
