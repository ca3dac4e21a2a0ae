"""The queries of rules for a question."""

import functools

from adapter.model.objects.label_selectors import LabelSelector
from adapter.rules import matchers
from adapter.rules.compile import Rule
from adapter.rules.matchers import Matcher
from adapter.rules.naming import NAMESPACES
from adapter.rules.query import MetricQuery
from adapter.rules.registry import CustomEntry


def metric_query(entry: CustomEntry, selector: LabelSelector, *, namespaced: bool) -> MetricQuery:
    """Return the common part of the queries for objects; NamingError, UnsupportedSelectorError."""
    converter = entry.rule.converter
    namespace_label = converter.label_for(NAMESPACES) if namespaced else ""
    object_label = converter.label_for(entry.resource.group_resource)
    build = MetricQuery if selector.requirements else _plain_query
    return build(entry.rule, entry.series, matchers.from_selector(selector), namespace_label, object_label)


_plain_query = functools.lru_cache(maxsize=1024)(MetricQuery)
"""Queries without a selector: the same object is found in the caches of answers without a comparison."""


def external_matchers(rule: Rule, selector: LabelSelector, namespace: str) -> list[Matcher]:
    """Return selector, then namespace unless the rule says `namespaced: false`; errors as `metric_query`."""
    parts = list(matchers.from_selector(selector))
    if rule.config.resources.namespaced:
        parts.append(Matcher(rule.converter.label_for(NAMESPACES), "=", namespace))
    return parts
