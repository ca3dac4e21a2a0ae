"""PromQL of dashboards and alerts, held against the table of metrics: which metrics and labels it names."""

from collections.abc import Callable, Iterator
from typing import Any

import promql_parser as promql

from adapter.telemetry import metrics

TARGET_LABELS = frozenset({"job", "instance", "namespace", "pod"})
"""Labels that a scrape by prometheus-operator adds; of those only the ones that expressions may use."""

_PROCESS = (
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_virtual_memory_bytes",
)
_OF_EVERY_TARGET = ("up",)

Labels = frozenset[str]
NONE: Labels = frozenset()


def _known() -> dict[str, Labels]:
    """Return the labels of every series name."""
    known = dict.fromkeys((*_PROCESS, *_OF_EVERY_TARGET), TARGET_LABELS)
    for row in metrics.METRICS:
        labels = TARGET_LABELS | set(row.labels)
        if row.type == "histogram":
            known |= {f"{row.name}_bucket": labels | {"le"}, f"{row.name}_sum": labels}
            known |= {f"{row.name}_count": labels}
        else:
            known[row.name] = labels
    return known


KNOWN = _known()


class UnknownNameError(Exception):
    """An expression names a metric or a label that does not exist."""


def labels_of(expression: str) -> Labels:
    """Return the labels that the result of an expression has; UnknownNameError, ValueError for its syntax."""
    return _labels(promql.parse(expression))


def selectors_of(expression: str) -> list[str]:
    """Return the names of all metrics in an expression, in their order."""
    found = (part.name for part in _walk(promql.parse(expression)) if isinstance(part, promql.VectorSelector))
    return [name for name in found if name is not None]


def _walk(node: Any) -> Iterator[Any]:
    yield node
    for part in _parts(node):
        yield from _walk(part)


def _parts(node: Any) -> list[Any]:
    if isinstance(node, promql.BinaryExpr):
        return [node.lhs, node.rhs]
    if isinstance(node, promql.Call):
        return list(node.args)
    if isinstance(node, promql.MatrixSelector):
        return [node.vector_selector]
    if isinstance(node, promql.AggregateExpr):
        return [node.expr, *([node.param] if node.param is not None else [])]
    if isinstance(node, promql.ParenExpr | promql.UnaryExpr | promql.SubqueryExpr):
        return [node.expr]
    return []


def _labels(node: Any) -> Labels:
    if isinstance(node, promql.VectorSelector):
        return _of_selector(node)
    if isinstance(node, promql.AggregateExpr):
        inner = _labels(node.expr)
        if str(node.op) in {"topk", "bottomk"}:  # these keep series as they are
            return inner
        if node.modifier is None:
            return NONE
        named = _require(node.modifier.labels, inner, node)
        is_by = node.modifier.type == promql.AggModifierType.By
        return named if is_by else inner - named
    if isinstance(node, promql.BinaryExpr):
        return _of_binary(node)
    if isinstance(node, promql.Call):
        return _CALLS.get(node.func.name, _of_first)(node)
    parts = [_labels(part) for part in _parts(node)]
    return parts[0] if parts else NONE


def _of_selector(node: Any) -> Labels:
    if node.name not in KNOWN:
        raise UnknownNameError(f"no metric is named {node.name}")
    labels = KNOWN[node.name]
    _require([matcher.name for matcher in node.matchers.matchers], labels, node)
    return labels


def _of_binary(node: Any) -> Labels:
    left, right = _labels(node.lhs), _labels(node.rhs)
    matching = None if node.modifier is None else node.modifier.matching
    if matching is not None:
        _require(matching.labels, left, node)
        _require(matching.labels, right, node)
    if str(node.op) == "or":
        return left & right
    return left or right


def _of_first(node: Any) -> Labels:
    labels = [_labels(argument) for argument in node.args]
    return max(labels, key=len, default=NONE)


def _of_label_replace(node: Any) -> Labels:
    vector, target, _, source, _ = node.args
    labels = _labels(vector)
    _require([source.val], labels, node)
    return labels | {target.val}


def _of_quantile(node: Any) -> Labels:
    labels = _labels(node.args[1])
    _require(["le"], labels, node)
    return labels - {"le"}


def _of_absent(node: Any) -> Labels:
    _labels(node.args[0])
    return NONE


_CALLS: dict[str, Callable[[Any], Labels]] = {
    "label_replace": _of_label_replace,
    "histogram_quantile": _of_quantile,
    "absent": _of_absent,
}


def _require(named: list[str], labels: Labels, node: Any) -> Labels:
    if unknown := set(named) - labels:
        raise UnknownNameError(f"{', '.join(sorted(unknown))} is no label of {node}")
    return frozenset(named)
