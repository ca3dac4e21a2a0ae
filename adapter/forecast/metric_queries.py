"""The queries that rebuild the demand behind a metric of an autoscaler, from the query of its own rule.

The demand is what all pods had together:

- Pods metrics and resources: the sum over the pods that have a sample.
- AverageValue of an object or of series: the value itself, the sum of the series.
- Value of an object or of series: the value times the number of ready pods.

The pods of the past are known by their names alone: those that the target's kind gives its pods.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from adapter.bounds.forecast.job import HistoryQuery
from adapter.config.rules_config import OnNaN
from adapter.errors import Fault, InputError, NamingError, NotSyncedError, TemplateError
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.autoscaling.hpa import CrossVersionObjectReference, MetricSpec
from adapter.model.go_text import quote
from adapter.model.objects.resources import Catalogue
from adapter.provider import spec_queries
from adapter.provider.relist import Relister
from adapter.provider.spec_queries import RuleQuery
from adapter.rules import matchers
from adapter.rules.compile import Ruleset
from adapter.rules.matchers import Matcher
from adapter.rules.registry import Registry
from adapter.rules.resource import PODS

_HASH = "[bcdfghjklmnpqrstvwxz2456789]"
"""A character of the parts of a name that Kubernetes generates."""

_USAGE = {
    "cpu": "rate(container_cpu_usage_seconds_total{%s}[2m])",
    "memory": "container_memory_working_set_bytes{%s}",
}
"""What cAdvisor measures, for rules files without resourceRules."""


class HistoryQueries(NamedTuple):
    """The queries for one metric; each has one series at most.

    `least` is that of the smallest value of a pod, "" if it says nothing about the pods. `rule` is the place
    of the rule, "" for cAdvisor's series.
    """

    total: str
    least: str
    rule: str


class Places(NamedTuple):
    """Where the pods of an autoscaler are found.

    `pods` is a regular expression of their names. `ready` is the query for the number of ready pods.
    """

    namespace: str
    pods: str
    ready: str


def build_places(autoscaler: FastPathAutoscaler, namespace: str, pods: str, ready: str) -> Places:
    """Return where the pods are found; an empty `pods` or `ready` gives the default. InputError."""
    pattern = pods or pod_names(autoscaler.spec.scale_target_ref)
    try:
        re.compile(pattern)
    except (re.error, RecursionError) as error:
        expected = f"expected a regular expression of pod names: {error}"
        raise InputError([Fault("--pods", pods, expected)]) from error
    within = f"namespace={quote(namespace)},pod=~{quote(pattern)}"
    return Places(namespace, pattern, ready or f'sum(kube_pod_status_ready{{{within},condition="true"}})')


def pod_names(target: CrossVersionObjectReference) -> str:
    """Return the regular expression of the names that the pods of a target have."""
    name = re.escape(target.name).replace("\\-", "-")
    if target.kind == "StatefulSet":
        return f"{name}-[0-9]+"
    suffix = f"{_HASH}{{5}}"
    if target.kind in {"ReplicaSet", "ReplicationController"}:
        return f"{name}-{suffix}"
    if target.kind == "Deployment":
        return f"{name}-{_HASH}{{1,10}}-{suffix}"
    return f"{name}-.+"


def build_queries(
    metric: MetricSpec,
    known: Registry,
    catalogue: Catalogue,
    ruleset: Ruleset,
    places: Places,
    path: str,
    advice: str = "",
) -> HistoryQueries:
    """Return the queries for a metric; `path` is its place in the autoscaler. InputError, with `advice`."""
    if metric.resource is not None:
        return _usage(metric.resource.name, ruleset, places, path)
    query = spec_queries.query_of(known, catalogue, places.namespace, metric, Matcher("", "=~", places.pods))
    if isinstance(query, str):
        source = metric.pods or metric.object or metric.external
        name = source.metric.name if source is not None else metric.type
        raise InputError([Fault(path, name, f"{query}{advice}")])
    rule = query.rule.config.path
    if metric.pods is not None:
        # of several samples of one pod the autoscaler takes one
        per_pod = f"max by ({matchers.write_label(query.label)}) ({query.promql}\n)"
        return HistoryQueries(f"sum({per_pod})", f"min({per_pod})", rule)
    value = _value(metric, query)
    outer = metric.object or metric.external
    assert outer is not None
    if outer.target.average_value is not None:
        return HistoryQueries(value, "", rule)
    return HistoryQueries(f"{value} * sum({places.ready}\n)", value, rule)


def _value(metric: MetricSpec, query: RuleQuery) -> str:
    """Return the query for the one value that the autoscaler sees."""
    if metric.object is not None:
        return f"max({query.promql}\n)"
    if query.rule.config.on_nan is OnNaN.DROP:
        return f"sum(({query.promql}\n) < Inf)"
    return f"sum({query.promql}\n)"  # one sample that is NaN makes the metric unavailable, and a gap here


def _usage(resource: str, ruleset: Ruleset, places: Places, path: str) -> HistoryQueries:
    """Return the queries for the usage of a resource, by the resource rules or else from cAdvisor."""
    rules = ruleset.resource
    if rules is not None and resource in _USAGE:
        query = rules.containers.cpu if resource == "cpu" else rules.containers.memory
        try:
            usage = query.metric_query(PODS)
            label = usage.object_label
            parts = [Matcher(usage.namespace_label, "=", places.namespace), Matcher(label, "=~", places.pods)]
            promql, rule = usage.render_with(parts), query.path
        except (NamingError, TemplateError) as error:
            raise InputError([Fault(query.path, "", f"the query cannot be made: {error}")]) from error
    elif resource in _USAGE:
        label, rule = "pod", ""
        of_pods = [
            Matcher("namespace", "=", places.namespace),
            Matcher("pod", "=~", places.pods),
            *(Matcher("container", "!=", name) for name in ("", "POD")),
        ]
        promql = _USAGE[resource] % matchers.join(of_pods)
    else:
        expected = "expected cpu or memory: the history of other resources is not known"
        raise InputError([Fault(path, resource, expected)])
    per_pod = f"sum by ({matchers.write_label(label)}) ({promql}\n)"
    return HistoryQueries(f"sum({per_pod})", f"min({per_pod})", rule)


class RuleHistories:
    """The queries for forecasts, by the rules that the scaler has; a metric that is scraped has one, too.

    `catalogue` returns the kinds of the cluster.
    """

    def __init__(self, relister: Relister, catalogue: Callable[[], Catalogue]) -> None:
        self._relister = relister
        self._catalogue = catalogue

    def build_queries(self, autoscaler: FastPathAutoscaler) -> tuple[HistoryQuery, ...]:
        """Return the query for the total of each metric.

        Raises InputError for a metric that has none, NotSyncedError before the rules are known.
        """
        relister = self._relister
        if not relister.attempted.is_set():
            raise NotSyncedError("the series of the rules are not listed yet")
        known, catalogue, ruleset = relister.registry, self._catalogue(), relister.ruleset
        places = build_places(autoscaler, autoscaler.metadata.namespace, "", "")
        queries: dict[str, HistoryQuery] = {}
        for name, metric, path in name_metrics(autoscaler.spec.metrics or ()):
            if name in queries:
                raise InputError(
                    [Fault(path, name, f"a second metric {name}: a forecast needs different names")]
                )
            total = build_queries(metric, known, catalogue, ruleset, places, path).total
            queries[name] = HistoryQuery(name, total)
        return tuple(queries.values())


def name_metrics(specs: Sequence[MetricSpec]) -> list[tuple[str, MetricSpec, str]]:
    """Return name, spec and place of each metric, as a simulation names them."""
    named = []
    for place, spec in enumerate(specs):
        source, resource = spec.pods or spec.object or spec.external, spec.resource
        name = spec.type if resource is None else resource.name
        named.append((name if source is None else source.metric.name, spec, f"spec.metrics[{place}]"))
    return named
