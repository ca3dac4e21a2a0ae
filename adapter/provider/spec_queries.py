"""The queries of rules for the metric of an autoscaler, as forecasts and tools send them."""

from collections.abc import Sequence
from typing import NamedTuple

from adapter.errors import NamingError, TemplateError, UnsupportedSelectorError
from adapter.model.autoscaling.hpa import MetricSpec
from adapter.model.metrics import CustomMetricInfo
from adapter.model.objects import api_selectors
from adapter.model.objects.resources import Catalogue
from adapter.provider import rule_queries
from adapter.rules import matchers
from adapter.rules.compile import Rule
from adapter.rules.matchers import Matcher
from adapter.rules.naming import NAMESPACES
from adapter.rules.registry import Registry


class RuleQuery(NamedTuple):
    """The query that a rule sends for a metric; `label` has the names of its objects, "" without objects."""

    rule: Rule
    promql: str
    label: str = ""


def query_of(
    known: Registry, catalogue: Catalogue, namespace: str, metric: MetricSpec, pods: Sequence[str] | Matcher
) -> RuleQuery | str:
    """Return the rule that makes a metric of type Pods, Object or External, and the query it sends for it.

    `pods` are names, none for all pods of the namespace, or the operator and value of a matcher of names.
    """
    try:
        if metric.external is None:
            return _object_query(known, catalogue, namespace, metric, pods)
        name = metric.external.metric.name.lower()
        entry = known.external.get(name)
        if entry is None:
            return f"no rule that was read makes the external metric {name}"
        selector = api_selectors.compile_selector(metric.external.metric.selector)
        parts = rule_queries.external_matchers(entry.rule, selector, namespace)
        return RuleQuery(entry.rule, entry.rule.render(entry.series, parts, []))
    except (NamingError, TemplateError, UnsupportedSelectorError, ValueError) as error:
        return f"the query of the metric cannot be made: {error}"


def _object_query(
    known: Registry, catalogue: Catalogue, namespace: str, metric: MetricSpec, pods: Sequence[str] | Matcher
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
    namespaced = resource.group_resource != NAMESPACES
    entry = known.custom.get(CustomMetricInfo(resource.group_resource, namespaced, identifier.name))
    if entry is None:
        return f"no rule that was read makes {identifier.name} for {shown}"
    selector = api_selectors.compile_selector(identifier.selector)
    try:
        query = rule_queries.metric_query(entry, selector, namespaced=namespaced)
    except (NamingError, TemplateError) as error:
        return (
            f"{entry.rule.config.path} has no label for namespaces ({error}), so no namespaced object can be "
            f"requested: add an override for namespace"
        )
    label = query.object_label
    if metric.pods is None:
        within, name = (namespace, name) if namespaced else (None, namespace)
        return RuleQuery(entry.rule, query.render(within, [name]), label)
    if pods and not isinstance(pods, Matcher):
        return RuleQuery(entry.rule, query.render(namespace, pods), label)
    within_namespace = Matcher(query.namespace_label, "=", namespace)
    named = pods._replace(label=label) if isinstance(pods, Matcher) else matchers.present(label)
    return RuleQuery(entry.rule, query.render_with([within_namespace, named]), label)
