"""The query that a rule sends for the metric of an autoscaler, made by the server's own code."""

from collections.abc import Sequence
from typing import NamedTuple

from adapter.errors import NamingError, TemplateError, UnsupportedSelectorError
from adapter.model import api_selectors
from adapter.model.autoscaling.hpa import MetricIdentifier, MetricSpec
from adapter.model.metrics import CustomMetricInfo
from adapter.model.resources import Catalogue
from adapter.rules import matchers
from adapter.rules.compile import Rule
from adapter.rules.matchers import Matcher
from adapter.rules.naming import NAMESPACES
from adapter.rules.query import MetricQuery
from adapter.rules.registry import Registry


class RuleQuery(NamedTuple):
    """The query that a rule sends for a metric; `label` has the names of its objects, "" without objects."""

    rule: Rule
    promql: str
    label: str = ""


def query_of(
    known: Registry,
    catalogue: Catalogue,
    namespace: str,
    metric: MetricSpec,
    pods: Sequence[str] | Matcher,
) -> RuleQuery | str:
    """Return the rule that makes a metric of type Pods, Object or External, and the query it sends for it.

    `pods` are names, none for all pods of the namespace, or the operator and value of a matcher of names.
    """
    try:
        if metric.external is not None:
            return _external_query(known, namespace, metric.external.metric)
        return _object_query(known, catalogue, namespace, metric, pods)
    except (NamingError, TemplateError, UnsupportedSelectorError, ValueError) as error:
        return f"the query of the metric cannot be made: {error}"


def _object_query(
    known: Registry,
    catalogue: Catalogue,
    namespace: str,
    metric: MetricSpec,
    pods: Sequence[str] | Matcher,
) -> RuleQuery | str:
    kind, group, name = "pods", "", ""
    if metric.object is not None:
        identifier, described = metric.object.metric, metric.object.described_object
        kind, group, name = described.kind, described.api_version.rpartition("/")[0], described.name
    else:
        assert metric.pods is not None
        identifier = metric.pods.metric
    resource = catalogue.lookup(kind, group or None)
    shown = f"{kind}.{group}" if group else kind
    if resource is None:
        return f"the cluster has no kind {shown}"
    is_namespaced = resource.group_resource != NAMESPACES
    entry = known.custom.get(CustomMetricInfo(resource.group_resource, is_namespaced, identifier.name))
    if entry is None:
        return f"no rule that was read makes {identifier.name} for {shown}"
    converter = entry.rule.converter
    try:
        label = converter.label_for(entry.resource.group_resource)
        namespace_label = converter.label_for(NAMESPACES) if is_namespaced else ""
    except (NamingError, TemplateError) as error:
        return (
            f"{entry.rule.config.path} has no label for namespaces ({error}), so no namespaced object can be "
            f"requested: add an override for namespace"
        )
    query = MetricQuery(entry.rule, entry.series, _matchers(identifier), namespace_label, label)
    if metric.pods is None:
        within = namespace if is_namespaced else None
        return RuleQuery(entry.rule, query.render(within, [name if is_namespaced else namespace]), label)
    if pods and not isinstance(pods, Matcher):
        return RuleQuery(entry.rule, query.render(namespace, pods), label)
    labels = [Matcher(namespace_label, "=", namespace)] if namespace_label else []
    named = pods._replace(label=label) if isinstance(pods, Matcher) else matchers.present(label)
    return RuleQuery(entry.rule, query.render_with([*labels, named]), label)


def _external_query(known: Registry, namespace: str, identifier: MetricIdentifier) -> RuleQuery | str:
    entry = known.external.get(identifier.name.lower())
    if entry is None:
        return f"no rule that was read makes the external metric {identifier.name.lower()}"
    parts = list(_matchers(identifier))
    if entry.rule.config.resources.namespaced:
        parts.append(Matcher(entry.rule.converter.label_for(NAMESPACES), "=", namespace))
    return RuleQuery(entry.rule, entry.rule.render(entry.series, parts, []))


def _matchers(identifier: MetricIdentifier) -> tuple[Matcher, ...]:
    return matchers.from_selector(api_selectors.compile_selector(identifier.selector))
