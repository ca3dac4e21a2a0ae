"""The object of `fastpath check --why`.

How it is written, which entry of the registry answers for it, and with which query. Where no entry answers,
the functions return a sentence with cause and remedy in its place.
"""

import difflib
from typing import NamedTuple

import msgspec

from adapter.errors import Fault, InputError, NamingError, TemplateError
from adapter.model.metrics import CustomMetricInfo
from adapter.model.objects.resources import APIResource, Catalogue
from adapter.model.visible import listed
from adapter.rules.matchers import Matcher
from adapter.rules.naming import NAMESPACES
from adapter.rules.query import MetricQuery
from adapter.rules.registry import CustomEntry, Registry

ALL = "*"


class Wanted(NamedTuple):
    """What the question is about.

    An object, all objects that match a selector (`name` is ``*``), or an external metric (`kind` is "").
    `namespace` is None at the root.
    """

    kind: str
    namespace: str | None
    name: str

    def __str__(self) -> str:
        return "/".join(part for part in (self.kind, self.namespace, self.name) if part)


def parse_wanted(text: str) -> Wanted:
    """Read ``KIND/NAMESPACE/NAME``, ``KIND/NAME``, or a namespace alone for an external metric."""
    parts = text.split("/")
    if not all(parts) or len(parts) > 3:
        kinds = "KIND/NAMESPACE/NAME, KIND/NAME for a kind without namespaces"
        expected = f"expected {kinds}, or NAMESPACE for an external metric"
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
            f"{metric} is an external metric ({external.rule.config.path}), which describes no object: read "
            "it with a metric of type External, or move the rule from externalRules to rules"
        )
    name, _, group = wanted.kind.partition(".")
    resource = catalogue.lookup(name, group or None)
    if resource is None:
        advice = "write its singular or plural name, with .GROUP if need be"
        if close := difflib.get_close_matches(name.lower(), catalogue.names(), n=1):
            advice = f"did you mean {close[0]}?"
        expected = f"expected a kind of object, not {wanted.kind}: {advice}"
        raise InputError([Fault("--object", str(wanted), expected)])
    key = CustomMetricInfo(resource.group_resource, wanted.namespace is not None, metric)
    entry = known.custom.get(key)
    if entry is not None:
        return entry
    other = known.custom.get(msgspec.structs.replace(key, namespaced=not key.namespaced))
    if other is None:
        return (
            f"{metric} is served for {listed(kinds)} and not for {resource.group_resource}, because no label "
            "of its series names them: add the label that does to resources.overrides, such as "
            f"{resource.singular}: {{resource: {resource.singular}}}"
        )
    return _wrong_scope(resource, metric, wanted)


def _wrong_scope(resource: APIResource, metric: str, wanted: Wanted) -> str:
    kind = resource.group_resource
    if wanted.namespace is None:
        return f"{kind} are namespaced: write {wanted.kind}/NAMESPACE/{wanted.name}"
    if kind == NAMESPACES:
        return f"namespaces are requested at the root, also by autoscalers: write {wanted.kind}/{wanted.name}"
    return (
        f"{kind} are served at the root only, but an autoscaler requests them in its own namespace and gets "
        f"404: read {metric} through an object that lives in the namespace, or as an external metric"
    )


def wrong_api(known: Registry, metric: str) -> str:
    kinds = kinds_of(known, metric)
    return (
        f"{metric} is a custom metric of {listed(kinds)} and not an external one: read it with a metric of "
        "type Pods or Object, or move the rule from rules to externalRules"
    )


def build_query(entry: CustomEntry, wanted: Wanted, selector: tuple[Matcher, ...]) -> MetricQuery | str:
    """Return the query that the API sends for an object, or the sentence that says why it has no query."""
    converter = entry.rule.converter
    try:
        namespace_label = converter.label_for(NAMESPACES) if wanted.namespace is not None else ""
        object_label = converter.label_for(entry.resource.group_resource)
        return MetricQuery(entry.rule, entry.series, selector, namespace_label, object_label)
    except (NamingError, TemplateError) as error:
        return (
            f"{entry.rule.config.path} has no label for namespaces ({error}), so no namespaced object can be "
            f"requested: add an override for namespace"
        )
