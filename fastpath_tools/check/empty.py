"""Why a metric that is served has no value: one sentence that names the cause and the remedy.

Here are the further queries that tell causes apart, and the sentences for their answers; `follow` sends the
queries. `missing` explains why a metric is not served at all.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from adapter.config.rules_config import OnNaN
from adapter.errors import PrometheusError, TemplateError
from adapter.model import quantity
from adapter.model.go_text import quote
from adapter.model.metrics import QueryResult, Sample
from adapter.model.objects.resources import APIResource
from adapter.model.visible import counted, listed
from adapter.rules import matchers
from adapter.rules.matchers import Matcher
from adapter.rules.query import HISTOGRAM, INFINITE, NAN, OVERFLOW, TOO_LARGE, Dropped, MetricQuery, milli_of
from fastpath_tools.check import report
from fastpath_tools.check.missing import guess_overrides
from fastpath_tools.check.wanted import Wanted

# Kinds of PrometheusError that are about the query and not about the way to Prometheus.
OF_THE_QUERY = frozenset({"query", "type"})


class Value(NamedTuple):
    """What an object's sample comes to: a quantity, or why it has none and what gives it one.

    `refused`: every request that reads it fails.
    """

    quantity: str
    fault: str = ""
    remedy: str = ""
    refused: bool = False


_DIVIDES = "let metricsQuery return a number, or nothing, where it divides by zero"
_REMEDIES = {
    NAN: f"{_DIVIDES}, or set onNaN: zero on the rule",
    INFINITE: _DIVIDES,
    HISTOGRAM: (
        "let metricsQuery take a number from it with histogram_count, histogram_sum, histogram_avg or "
        "histogram_quantile"
    ),
}


def value_of(sample: Sample, on_nan: OnNaN | None, *, external: bool) -> Value:
    shown = report.show_number(sample.value)
    milli = milli_of(sample.value, nan_is_zero=on_nan is OnNaN.ZERO)
    if milli is OVERFLOW:
        fault = f"{shown} is {TOO_LARGE}: requests fail"
        return Value("", fault, "let metricsQuery limit it with clamp_max, or count in a larger unit", True)
    if isinstance(milli, Dropped):
        refused = external and on_nan is not OnNaN.DROP  # the sum of what is left would be too small
        outcome = ": requests fail" if refused else " and is left out"
        return Value("", f"{shown} is not a finite number{outcome}", _REMEDIES[milli], refused)
    return Value(quantity.format_milli(milli))


def refused(error: PrometheusError) -> str:
    if error.kind == "type":
        return f"{error}, so every request fails: let metricsQuery give one sample for each object"
    if error.kind == "query":
        return f"Prometheus refuses the query ({error}): fix metricsQuery, or what the selector puts into it"
    return f"Prometheus does not answer the query ({error}): check its address and its load"


def partial(warning: str) -> str:
    return (
        f"the answer has a warning ({warning}), so it may lack data and counts as a failed query: fix what "
        "it names, or set onWarnings: accept on the rule"
    )


def unusable(query: MetricQuery, result: QueryResult, name: str) -> str:
    label = query.object_label
    place = query.rule.path
    if result.type != "vector":
        gives = f"the metricsQuery of {place} gives a {result.type} without object labels"
        return f"{gives}: keep the label {label}"
    have = sorted({sample.labels[label] for sample in result.samples if label in sample.labels})
    if not have:
        lacks = f"the result of {place} has no label {label}, so no sample matches an object"
        return f"{lacks}: group it by (<<.GroupBy>>)"
    lacks = f"the result of {place} has {listed(have)} but not {name}"
    return f"{lacks}: use <<.LabelMatchers>> in every selector of it"


def no_number(metric: str, wanted: object, value: Value) -> str:
    return f"{metric} of {wanted} has no value: {value.fault}; {value.remedy}"


def no_query(place: str, error: TemplateError) -> str:
    return f"{place} gives no query, so every request fails: {error}"


def no_object(wanted: Wanted) -> str:
    return (
        f"Prometheus has a value for {wanted} and the cluster has no such object: an autoscaler lists "
        f"objects first and never requests it, so check the name"
    )


def too_old(place: str, names: Sequence[str], age: str, allowed: str) -> str:
    return (
        f"the samples of {listed(names)} are {age} old and left out: {place} allows maxSampleAge {allowed}, "
        "so scrape them more often or allow more"
    )


class Followups(NamedTuple):
    """Queries that tell why a query has no sample: without what was named, and without the namespace."""

    named: str
    around: str


def object_followups(query: MetricQuery, wanted: Wanted, name: str) -> Followups:
    """Return the queries that count the series of the object wherever they are, and the objects around it."""
    labels = (query.namespace_label, query.object_label)
    by = ", ".join(matchers.write_label(label) for label in labels if label)
    around = matchers.present(query.object_label)
    if query.namespace_label:
        around = Matcher(query.namespace_label, "=", wanted.namespace or "")
    return Followups(
        f"count by ({by}) ({query.series}{{{Matcher(query.object_label, '=', name)}}})",
        f"count by ({matchers.write_label(query.object_label)}) ({query.series}{{{around}}})",
    )


def external_followups(series: str, label: str, namespace: str, selector: Sequence[Matcher]) -> Followups:
    """Return the queries that count the series of a selector anywhere, and all series of the namespace."""
    around = matchers.join([Matcher(label, "=", namespace)] if label else [])
    return Followups(
        f"count by ({matchers.write_label(label) if label else ''}) ({series}{{{matchers.join(selector)}}})",
        f"count ({series}{{{around}}})",
    )


@dataclass(frozen=True, slots=True)
class EmptyCase:
    """A query without a sample of what was asked about, and what the follow-ups found.

    `place` is the path of the rule, `namespace_label` "" where the query has none, `labels` are those of the
    series.
    """

    place: str
    series: str
    namespace_label: str
    namespace: str | None
    named: Sequence[Sample]
    around: Sequence[Sample]
    labels: frozenset[str]
    look_back: str
    causes: Sequence[str] = ()

    @property
    def namespaces(self) -> list[str]:
        """The namespaces of the series that were named, "" for series without the label."""
        return sorted({sample.labels.get(self.namespace_label, "") for sample in self.named})

    @property
    def is_there(self) -> bool:
        """Whether the series that were named are in the namespace."""
        return bool(self.named) and (not self.namespace_label or self.namespace in self.namespaces)


def no_sample_of_object(
    case: EmptyCase, wanted: Wanted, name: str, label: str, resource: APIResource, *, exists: bool | None
) -> str:
    """Return the sentence for an object without a sample.

    `label` holds the names of objects; `exists` says whether the API server has the object, None where it was
    not asked.
    """
    if exists is False:
        return f"neither the cluster nor Prometheus has {wanted}: check kind, namespace and name"
    if case.is_there:
        return query_gives_nothing(case)
    series, mapped = case.series, case.namespace_label
    if case.named:
        spaces = case.namespaces
        have = f"without the label {mapped}"
        if any(spaces):
            have = f"only with {mapped}={listed(map(quote, spaces))}, the namespace of the exporter"
        remedy = f"map the label that holds the object's own namespace{namespace_guess(case.labels, mapped)}"
        return f"{series} has {label}={quote(name)} {have}: {remedy}"
    names = sorted({sample.labels.get(label, "") for sample in case.around} - {""})
    place = f" in namespace {case.namespace}" if mapped else ""
    if names:
        there = "check the name, and that it is scraped"
        if exists:
            there = "it is in the cluster, so check that it is scraped"
        return f"{series} has other {resource.plural}{place} ({listed(names)}) and not {name}: {there}"
    also = f", and that {mapped} holds the namespace of the objects" if mapped else ""
    return (
        f"{series} was there in the last {case.look_back} but has no sample now{place}: check that its "
        f"targets are up{also}"
    )


def no_sample_of_external(case: EmptyCase, selector: str) -> str:
    """Return the sentence for an external metric without a sample that passes `selector`."""
    if case.is_there:
        return query_gives_nothing(case)
    series, mapped = case.series, case.namespace_label
    if case.named:
        spaces = case.namespaces
        have = f"{mapped}={listed(map(quote, spaces))}" if any(spaces) else f"no label {mapped}"
        return (
            f"{series} has {have}, and an external metric is read in the namespace of the autoscaler "
            f"({case.namespace}): map the label that holds it{namespace_guess(case.labels, mapped)}, or set "
            f"resources.namespaced: false on {case.place}"
        )
    if case.around and selector:
        labels = listed(sorted(case.labels))
        return f"no series of {series} matches the selector {selector}: compare it with the labels ({labels})"
    return (
        f"{series} was there in the last {case.look_back} but has no sample now: check that its targets are "
        "up"
    )


def query_gives_nothing(case: EmptyCase) -> str:
    usual = (
        "a rate needs two samples within its window, and every other matcher and operand has to find "
        "something; run it part by part"
    )
    return (
        f"the series {case.series} are there, but the metricsQuery of {case.place} returns nothing for them: "
        f"{'; '.join(case.causes) or usual}"
    )


def namespace_guess(labels: Iterable[str], mapped: str) -> str:
    """Return " (such as ...)" for another label that may hold namespaces, "" without one."""
    guesses = guess_overrides(label for label in sorted(labels) if label != mapped and "namespace" in label)
    return f", such as {guesses[0]}" if guesses else ""


def can_be_asked_for(metric: str) -> bool:
    """Tell whether an autoscaler can ask for an external metric: its client writes the name in lower case."""
    return metric == metric.lower()


def faulty(values: Sequence[Value], on_nan: OnNaN | None) -> str:
    """Return which values have no quantity and what gives them one, "" if none is missed."""
    lost = [value for value in values if value.fault and (value.refused or on_nan is not OnNaN.DROP)]
    if not lost:
        return ""
    worst = max(lost, key=lambda value: value.refused)
    have = f"{len(lost)} of {counted(len(values), 'value', 'values')} {'has' if len(lost) == 1 else 'have'}"
    return f"{have} no quantity ({worst.fault}): {worst.remedy}"


def negative(values: Sequence[Value]) -> str:
    """Return what an HPA does with the first negative value of an external metric, "" without one."""
    quantity = next((value.quantity for value in values if value.quantity.startswith("-")), "")
    return quantity and (
        f"{quantity} is negative, and an HPA takes a negative sum of an external metric for the largest "
        "number and scales to maxReplicas: let metricsQuery keep it at 0 or more with clamp_min"
    )


def served(metric: str, number: int) -> str:
    if not can_be_asked_for(metric):
        return (
            f"{metric} is served, but autoscalers request external metrics in lower case and never find it: "
            f"give it a lower-case name through name.as"
        )
    adds = ", which an autoscaler adds up" if number > 1 else ""
    return f"{metric} is served: {counted(number, 'value', 'values')}{adds}"


def no_namespace_label(place: str) -> str:
    return (
        f"{place} names no label for namespaces, so every request fails: add an override for namespace, or "
        "set resources.namespaced: false"
    )
