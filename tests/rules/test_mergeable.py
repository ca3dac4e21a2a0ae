import promql_parser as promql
import pytest

from adapter.rules import mergeable, parsing
from adapter.rules.mergeable import Separability
from adapter.rules.template import template
from tests.support.refusals import JOIN_REFUSALS, REFUSALS, Refusal


def analyse(text: str, object_label: str = "pod", namespace_label: str = "namespace") -> Separability:
    return mergeable.analyse(template.parse(text), object_label, namespace_label)


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
def test_refused(refusal: Refusal) -> None:
    verdict = analyse(refusal.template, refusal.object_label)
    assert verdict.reason
    assert verdict.reason.startswith(refusal.reason)
    assert verdict.reason == refusal.reason or refusal.reason.endswith(": ")
    assert verdict.joined == ""


@pytest.mark.parametrize("refusal", JOIN_REFUSALS.values(), ids=JOIN_REFUSALS)
def test_not_joined(refusal: Refusal) -> None:
    assert analyse(refusal.template) == Separability(join_reason=refusal.reason)


JOINED = {
    "by the object": ("sum by (pod) (x{@})", "sum by (pod, namespace) (x{@})"),
    "by the variable": ("sum(x{@}) by (<<.GroupBy>>)", "sum by (pod, namespace) (x{@})"),
    "by both already": ("sum by (namespace, pod) (x{@})", "sum by (namespace, pod) (x{@})"),
    "by more": ("max by (pod, le) (x{@})", "max by (pod, le, namespace) (x{@})"),
    "without others": ("avg without (instance) (x{@})", "avg without (instance) (x{@})"),
    "a label that needs quotes": ('min without ("a.b") (x{@})', 'min without ("a.b") (x{@})'),
    "no grouping at all": ("x{@}", "x{@}"),
    "parameter": ("quantile by (pod) (0.5, x{@})", "quantile by (pod, namespace) (0.5, x{@})"),
    "group": ("group by (pod) (x{@})", "group by (pod, namespace) (x{@})"),
    "count": ("count by (pod) (x{@})", "count by (pod, namespace) (x{@})"),
    "stddev": ("stddev by (pod) (x{@})", "stddev by (pod, namespace) (x{@})"),
    "stdvar": ("stdvar by (pod) (x{@})", "stdvar by (pod, namespace) (x{@})"),
    "its own matchers": (
        'x{a="b",@,c!="d",e=~"f.*",g!~"\\\\d"}',
        'x{a="b",@,c!="d",e=~"f.*",g!~"\\\\d"}',
    ),
    "a label of ours that is there": (
        'sum by (pod) (x{pod!="",@,namespace=~".+"})',
        'sum by (pod, namespace) (x{pod!="",@,namespace=~".+"})',
    ),
    "no name": ('{__name__=~"x|y",@}', '{__name__=~"x|y",@}'),
    "the series variable": ("<<.Series>>_bucket{@}", "fastpath_series_slot_bucket{@}"),
    "range": ("rate(x{@}[5m])", "rate(x{@}[5m])"),
    "several units": ("rate(x{@}[1h30m])", "rate(x{@}[1h30m])"),
    "milliseconds": ("rate(x{@}[1500ms])", "rate(x{@}[1s500ms])"),
    "offset": ("x{@} offset 1d", "x{@} offset 1d"),
    "negative offset": ("rate(x{@}[5m] offset -5m)", "rate(x{@}[5m] offset -5m)"),
    "at": ("x{@} @ 1700000000.5", "x{@} @ 1700000000.500"),
    "at the start": ("x{@} @ start()", "x{@} @ start()"),
    "at the end": ("x{@} @ end() offset 5m", "x{@} @ end() offset 5m"),
    "subquery": (
        "max_over_time(sum by (pod) (x{@})[1h:1m] offset 5m)",
        "max_over_time(sum by (pod, namespace) (x{@})[1h:1m] offset 5m)",
    ),
    "subquery without a step": ("max_over_time(x{@}[1h:])", "max_over_time(x{@}[1h:])"),
    "minus": ("-sum by (pod) (x{@})", "-sum by (pod, namespace) (x{@})"),
    "parentheses": ("(sum by (pod) (x{@}))", "(sum by (pod, namespace) (x{@}))"),
    "number on the left": ("100 * sum by (pod) (x{@})", "100.0 * sum by (pod, namespace) (x{@})"),
    "number on the right": ("sum by (pod) (x{@}) / 1e20", "sum by (pod, namespace) (x{@}) / 1e+20"),
    "infinity": ("x{@} < Inf", "x{@} < Inf"),
    "infinity, negative": ("x{@} > -Inf", "x{@} > -Inf"),
    "not a number": ("x{@} * NaN", "x{@} * NaN"),
    "time": ("time() - x{@}", "time() - x{@}"),
    "pi": ("x{@} * pi() ^ 2", "x{@} * pi() ^ 2.0"),
    "comparison": ("x{@} > bool 5", "x{@} > bool 5.0"),
    "comparison of vectors": ("x{@} >= bool y{@}", "x{@} >= bool y{@}"),
    "all labels": (
        "sum by (pod) (x{@}) / sum by (pod) (y{@})",
        "sum by (pod, namespace) (x{@}) / sum by (pod, namespace) (y{@})",
    ),
    "on": (
        "sum by (pod) (x{@}) / on (pod) sum by (pod) (y{@})",
        "sum by (pod, namespace) (x{@}) / on (pod, namespace) sum by (pod, namespace) (y{@})",
    ),
    "on, the sides differ": (
        "x{@} / on (pod) sum by (pod) (y{@})",
        "x{@} / on (pod, namespace) sum by (pod, namespace) (y{@})",
    ),
    "on the namespace too": ("x{@} / on (pod, namespace) y{@}", "x{@} / on (pod, namespace) y{@}"),
    "what on() gives has the namespace added": (
        "(x{@} / on (pod) y{@}) + sum by (pod) (z{@})",
        "(x{@} / on (pod, namespace) y{@}) + sum by (pod, namespace) (z{@})",
    ),
    "group_left": (
        "x{@} * on (pod) group_left (node) y{@}",
        "x{@} * on (pod, namespace) group_left (node) y{@}",
    ),
    "group_right": (
        "sum by (pod) (x{@}) * on (pod) group_right () y{@}",
        "sum by (pod, namespace) (x{@}) * on (pod, namespace) group_right () y{@}",
    ),
    "and": (
        "x{@} and on (pod) sum by (pod) (y{@})",
        "x{@} and on (pod, namespace) sum by (pod, namespace) (y{@})",
    ),
    "or": ("x{@} or on (pod) y{@}", "x{@} or on (pod, namespace) y{@}"),
    "unless": ("x{@} unless y{@}", "x{@} unless y{@}"),
    "an unadded namespace behind an added one": (
        "sum by (pod, namespace) (sum by (pod) (x{@})) + sum by (pod) (y{@})",
        "sum by (pod, namespace) (sum by (pod, namespace) (x{@})) + sum by (pod, namespace) (y{@})",
    ),
    "histogram": (
        "histogram_quantile(0.9, sum by (le, pod) (rate(x_bucket{@}[5m])))",
        "histogram_quantile(0.9, sum by (le, pod, namespace) (rate(x_bucket{@}[5m])))",
    ),
    "a function's number is a product": (
        "clamp_max(sum by (pod) (x{@}), 2 * 3)",
        "clamp_max(sum by (pod, namespace) (x{@}), 2.0 * 3.0)",
    ),
    "texts keep their meaning": ("x{a='\"\\\\',@}", 'x{a="\\"\\\\",@}'),
}  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), JOINED.values(), ids=JOINED)
def test_joined(text: str, expected: str) -> None:
    verdict = analyse(text.replace("@}", "<<.LabelMatchers>>}").replace(",@,", ",<<.LabelMatchers>>,"))
    slot = parsing.MATCHERS
    assert verdict == Separability(joined=expected.replace("@}", f"{slot}}}").replace(",@,", f",{slot},"))
    promql.parse(verdict.joined)


def test_the_verdict_is_about_one_kind_of_object() -> None:
    query = "sum(x{<<.LabelMatchers>>}) by (service)"
    assert not analyse(query, "service").reason
    assert analyse(query, "pod").reason == "sum by (service) does not name pod"


def test_sides_that_differ_do_no_harm_without_a_namespace() -> None:
    query = "sum by (node) (x{<<.LabelMatchers>>}) * on (node) group_left () y{<<.LabelMatchers>>}"
    assert analyse(query, "node", "") == Separability()


def test_a_matcher_on_the_namespace_label_is_no_matter_where_questions_have_none() -> None:
    query = 'sum by (node) (x{<<.LabelMatchers>>,namespace="kube-system"})'
    assert not analyse(query, "node", "").reason
