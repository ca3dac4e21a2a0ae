"""PromQL of dashboards and alerts, held against the table of metrics: which metrics and labels it names."""

import re
from collections.abc import Iterator
from typing import Any

import promql_parser as promql

from adapter.telemetry import metrics

TARGET_LABELS = frozenset({"job", "instance", "namespace", "pod"})
"""Labels that a scrape by prometheus-operator adds; of those only the ones that expressions may use."""

_OF_EVERY_TARGET = """
up process_cpu_seconds_total process_max_fds process_open_fds process_resident_memory_bytes
process_start_time_seconds process_virtual_memory_bytes
"""
KNOWN = dict.fromkeys(_OF_EVERY_TARGET.split(), TARGET_LABELS) | {
    f"{row.name}{part}": TARGET_LABELS | {*row.labels, *(("le",) if part == "_bucket" else ())}
    for row in metrics.METRICS
    for part in (("_bucket", "_sum", "_count") if row.type == "histogram" else ("",))
}
"""The labels of every series name."""


def selectors_of(expression: str) -> list[str]:
    """Return the names of all metrics in an expression, in their order."""
    return [selector.name for selector in _selectors(promql.parse(expression))]


def labels_of(expression: str) -> frozenset[str]:
    """Return the labels that an expression may group by; a KeyError or AssertionError for others in it."""
    selectors = [*_selectors(promql.parse(expression))]
    for selector in selectors:
        named = {matcher.name for matcher in selector.matchers.matchers}
        assert named <= KNOWN[selector.name], expression
    labels = frozenset[str]().union(*(KNOWN[selector.name] for selector in selectors))
    labels |= set(re.findall(r'label_replace\(.*?, "(\w+)"', expression, re.DOTALL))
    grouped = re.findall(r"\b(?:by|without|on|ignoring) ?\(([^)]*)\)", expression)
    assert {name for names in grouped for name in re.findall(r"\w+", names)} <= labels, expression
    return labels


def _selectors(node: Any) -> Iterator[Any]:
    if isinstance(node, promql.VectorSelector):
        yield node
    for name in ("lhs", "rhs", "vector_selector", "expr", "param"):
        part = getattr(node, name, None)
        if part is not None:
            yield from _selectors(part)
    for argument in getattr(node, "args", ()):
        yield from _selectors(argument)
