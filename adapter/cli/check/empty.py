"""Why a metric that is served has no value for an object: one sentence that names the cause and the remedy.

Here: what an object is called on the command line, which entry of the registry answers for it, which further queries tell causes
apart, and what their answers mean. Asking is the caller's. Why a metric is not served at all: `absence`; external metrics:
`diagnosis_external`.
"""

import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from adapter.cli.check.missing import guess_overrides
from adapter.errors import Fault, InputError, NamingError, PrometheusError, TemplateError
from adapter.model import milli as quantity
from adapter.model.metrics import QueryResult, Sample
from adapter.model.resources import APIResource, Catalogue
from adapter.rules import matchers
from adapter.rules.matchers import Matcher
from adapter.rules.naming import NAMESPACES
from adapter.rules.query import HISTOGRAM, Dropped, MetricQuery, milli_of
from adapter.rules.registry import CustomEntry, CustomKey, Registry
from adapter.rules.trace import listed

ALL = "*"

# Kinds of PrometheusError that are about the query and not about the way to Prometheus.
OF_THE_QUERY = frozenset({"query", "type"})


class Wanted(NamedTuple):
    """What was asked about: an object, all objects that match a selector (`name` is ``*``), or an external metric (`kind` is "").

    `namespace` is None at the root.
    """

    kind: str
    namespace: str | None
    name: str

    def __str__(self) -> str:
        """Return it as people write it."""
        return "/".join(part for part in (self.kind, self.namespace, self.name) if part)


def parse_wanted(text: str) -> Wanted:
    """Read ``KIND/NAMESPACE/NAME``, ``KIND/NAME`` at the root, or a namespace alone for an external metric."""
    parts = text.split("/")
    if not all(parts) or len(parts) > 3:
        expected = "expected KIND/NAMESPACE/NAME, KIND/NAME for a kind without namespaces, or NAMESPACE for an external metric"
        raise InputError([Fault("--object", text, expected)])
    if len(parts) == 1:
        return Wanted("", parts[0], "")
    return Wanted(parts[0], parts[1] if len(parts) == 3 else None, parts[-1])


def kinds_of(known: Registry, metric: str) -> list[str]:
    """Return the kinds that a metric is served for, as the API names them."""
    return sorted({str(key.resource) for key in known.custom if key.metric == metric})


def locate(known: Registry, catalogue: Catalogue, metric: str, wanted: Wanted) -> CustomEntry | str:
    """Return the entry that answers for an object, or the sentence that says why none does.

    Raises InputError for a kind that the cluster does not have.
    """
    kinds = kinds_of(known, metric)
    external = known.external.get(metric)
    if not kinds and external is not None:
        return (
            f"{metric} is an external metric ({external.rule.config.path}), which describes no object: read it with a metric of "
            "type External, or move the rule from externalRules to rules"
        )
    name, _, group = wanted.kind.partition(".")
    resource = catalogue.lookup(name, group or None)
    if resource is None:
        close = difflib.get_close_matches(name.lower(), catalogue.names(), n=1)
        advice = (
            f"did you mean {close[0]}?"
            if close
            else "write its singular or plural name, with .GROUP if need be"
        )
        raise InputError(
            [Fault("--object", str(wanted), f"expected a kind of object, not {wanted.kind}: {advice}")]
        )
    key = CustomKey(resource.group_resource, wanted.namespace is not None, metric)
    entry = known.custom.get(key)
    if entry is not None:
        return entry
    other = known.custom.get(msgspec.structs.replace(key, namespaced=not key.namespaced))
    if other is None:
        return (
            f"{metric} is served for {listed(kinds)} and not for {resource.group_resource}, because no label of its series "
            f"names them: add the label that does to resources.overrides, such as {resource.singular}: "
            f"{{resource: {resource.singular}}}"
        )
    return _wrong_scope(resource, metric, wanted)


def _wrong_scope(resource: APIResource, metric: str, wanted: Wanted) -> str:
    kind = resource.group_resource
    if wanted.namespace is None:
        return f"{kind} live in namespaces: write {wanted.kind}/NAMESPACE/{wanted.name}"
    if kind == NAMESPACES:
        return (
            f"a namespace is asked for at the root, as autoscalers do too: write {wanted.kind}/{wanted.name}"
        )
    return (
        f"{kind} are served at the root only, but an autoscaler asks for them under its own namespace and gets 404: read "
        f"{metric} through an object that lives in the namespace, or as an external metric"
    )


def wrong_api(known: Registry, metric: str) -> str:
    """Return the sentence for a custom metric that was asked for as an external one."""
    kinds = kinds_of(known, metric)
    return (
        f"{metric} is a custom metric of {listed(kinds)} and not an external one: read it with a metric of type Pods or Object, or "
        "move the rule from rules to externalRules"
    )


def build_query(entry: CustomEntry, wanted: Wanted, selector: tuple[Matcher, ...]) -> MetricQuery | str:
    """Return the query that the API sends for an object, or the sentence that says why there is none."""
    converter = entry.rule.converter
    try:
        namespace_label = converter.label_for(NAMESPACES) if wanted.namespace is not None else ""
        return MetricQuery(
            entry.rule,
            entry.series,
            selector,
            namespace_label,
            converter.label_for(entry.resource.group_resource),
        )
    except (NamingError, TemplateError) as error:
        return (
            f"{entry.rule.config.path} has no label for namespaces ({error}), so nothing in a namespace can be asked for: add an "
            "override for namespace"
        )


class Value(NamedTuple):
    """What an object's sample comes to: a quantity, or why there is none."""

    quantity: str
    fault: str = ""


def show_number(value: float) -> str:
    """Return a sample's value as Prometheus prints it, shortened to ten digits."""
    return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(text := f"{value:.10g}", text)


def value_of(sample: Sample, *, nan_is_zero: bool) -> Value:
    """Return what a sample is served as."""
    try:
        milli = milli_of(sample.value, nan_is_zero=nan_is_zero)
    except OverflowError:
        return Value(
            "", f"{show_number(sample.value)} is beyond 9.2e15, which no quantity holds: requests fail"
        )
    if isinstance(milli, Dropped):
        shown = "a native histogram" if milli == HISTOGRAM else show_number(sample.value)
        return Value("", f"{shown} is no number to scale by and is left out")
    return Value(quantity.format_milli(milli))


def refused(error: PrometheusError) -> str:
    """Return the sentence for a query without an answer."""
    if error.kind == "type":
        return f"{error}, so every request fails: let metricsQuery give one sample for each object"
    if error.kind == "query":
        return f"Prometheus refuses the query ({error}): mend metricsQuery, or what the selector puts into it"
    return f"Prometheus does not answer the query ({error}): check its address and its load"


def partial(warning: str) -> str:
    """Return the sentence for an answer that came with a warning."""
    return (
        f"the answer has a warning ({warning}), so it may lack data and counts as a failed query: repair what it names, or set "
        "onWarnings: accept on the rule"
    )


def unusable(query: MetricQuery, result: QueryResult, name: str) -> str:
    """Return the sentence for an answer that is no vector, or that has samples and none of the object."""
    label = query.object_label
    place = query.rule.path
    if result.type != "vector":
        return f"the metricsQuery of {place} gives a {result.type}, which belongs to no object: let it keep the label {label}"
    have = sorted({sample.labels[label] for sample in result.samples if label in sample.labels})
    if not have:
        return f"the result of {place} has no label {label}, so no sample finds its object: group it by (<<.GroupBy>>)"
    return f"the result of {place} is about {listed(have)} and not about {name}: use <<.LabelMatchers>> in every selector of it"


def no_number(metric: str, wanted: object, value: float) -> str:
    """Return the sentence for a value that is NaN or infinite."""
    zero = ", or set onNaN: zero on the rule" if math.isnan(value) else ""
    return (
        f"the value of {metric} for {wanted} is {show_number(value)} and left out, never served as zero: let metricsQuery return a number, or "
        f"nothing, where it divides by zero{zero}"
    )


def no_query(place: str, error: TemplateError) -> str:
    """Return the sentence for a query that its template does not give."""
    return f"{place} gives no query, so every request fails: {error}"


def no_object(wanted: Wanted) -> str:
    """Return the sentence for a value that describes nothing the cluster has."""
    return (
        f"Prometheus has a value for {wanted} and the cluster has no such object: autoscalers list objects first and never ask for "
        "it, so check the name"
    )


def too_old(place: str, names: Sequence[str], age: str, allowed: str) -> str:
    """Return the sentence for samples older than the rule allows."""
    return (
        f"the samples of {listed(names)} are {age} old and left out: {place} allows maxSampleAge {allowed}, so have them scraped more "
        "often or allow more"
    )


class Followups(NamedTuple):
    """Queries that tell why a query has no sample: without what was named, and without the namespace."""

    named: str
    around: str


def object_followups(query: MetricQuery, wanted: Wanted, name: str) -> Followups:
    """Return the queries that count the series of the object wherever they are, and the objects around it."""
    by = ", ".join(
        matchers.write_label(label) for label in (query.namespace_label, query.object_label) if label
    )
    around = (
        Matcher(query.namespace_label, "=", wanted.namespace or "")
        if query.namespace_label
        else matchers.present(query.object_label)
    )
    return Followups(
        f"count by ({by}) ({query.series}{{{Matcher(query.object_label, '=', name)}}})",
        f"count by ({matchers.write_label(query.object_label)}) ({query.series}{{{around}}})",
    )


@dataclass(frozen=True, slots=True)
class Nothing:
    """A query without a sample of what was asked about, and what the follow-ups found.

    `labels` are those of the series, `exists` whether the API server has the object (None: not asked).
    """

    query: MetricQuery
    wanted: Wanted
    name: str
    resource: APIResource
    named: Sequence[Sample]
    around: Sequence[Sample]
    labels: frozenset[str]
    exists: bool | None
    look_back: str


def explain_nothing(case: Nothing) -> str:
    """Return the sentence for an object without a sample."""
    query, namespace = case.query, case.wanted.namespace
    series, label = query.series, query.object_label
    if case.exists is False:
        return f"neither the cluster nor Prometheus has {case.wanted}: check kind, namespace and name"
    spaces = sorted({sample.labels.get(query.namespace_label, "") for sample in case.named})
    if case.named and (not query.namespace_label or namespace in spaces):
        return query_gives_nothing(query.rule.path, series)
    if case.named:
        have = (
            f"only with {query.namespace_label}={listed(map(repr, spaces))}"
            if any(spaces)
            else "without that label"
        )
        guess = namespace_guess(case.labels, query.namespace_label)
        return (
            f"{series} has {label}={case.name!r} {have}, not {query.namespace_label}={namespace!r}: the label holds the namespace of "
            f"the exporter; map the one that holds the object's own{guess}"
        )
    names = sorted({sample.labels.get(label, "") for sample in case.around} - {""})
    place = f" in namespace {namespace}" if query.namespace_label else ""
    if names:
        there = (
            "it is in the cluster, so check that it is scraped"
            if case.exists
            else "check the name, and that it is scraped"
        )
        return (
            f"{series} has other {case.resource.plural}{place} ({listed(names)}) and not {case.name}: {there}"
        )
    return (
        f"{series} was there in the last {case.look_back} but has no sample now{place}: check that its targets are up"
        + (
            f", and that {query.namespace_label} holds the namespace of the objects"
            if query.namespace_label
            else ""
        )
    )


def query_gives_nothing(place: str, series: str) -> str:
    """Return the sentence for a query without a sample although the series are there."""
    return (
        f"the series {series} are there, but the metricsQuery of {place} makes nothing of them: a rate needs two samples within its "
        "window, and every other matcher and operand has to find something; ask it part by part"
    )


def namespace_guess(labels: Iterable[str], mapped: str) -> str:
    """Return " (such as ...)" for another label that may hold namespaces, "" if there is none."""
    guesses = guess_overrides(label for label in sorted(labels) if label != mapped and "namespace" in label)
    return f", such as {guesses[0]}" if guesses else ""
