"""Decides once per rule, from its PromQL, whether requests may be merged into one query.

A query is separable if its answer for many objects, split by the object's label, equals the answers for each
object alone: every part of the expression keeps objects apart. `analyse` walks the parsed query and refuses
the first part that does not, with the reason. On the way it prints the joined form, which has the namespace
label in every grouping, so that objects of many namespaces can share a query. Names and selectors are not
known here; a placeholder matcher replaces them.

promql-parser cannot print the joined form: the grouping of its nodes cannot be changed, and its text does not
escape strings.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

import promql_parser as promql

from adapter.errors import NotSeparableError, TemplateError
from adapter.model.go_text import quote
from adapter.rules import matchers, parsing
from adapter.rules.template.template import Template

_AGGREGATIONS = frozenset({"sum", "min", "max", "avg", "count", "group", "stddev", "stdvar", "quantile"})
_SET_OPERATORS = frozenset({"and", "or", "unless"})
# Functions that work series by series, or group by all labels but `le` (histogram_*).
SERIES_FUNCTIONS = frozenset({
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh",
    "avg_over_time", "ceil", "changes", "clamp", "clamp_max", "clamp_min", "cos",
    "cosh", "count_over_time", "day_of_month", "day_of_week", "day_of_year", "days_in_month", "deg",
    "delta", "deriv", "double_exponential_smoothing", "exp", "first_over_time", "floor", "histogram_avg",
    "histogram_count", "histogram_fraction", "histogram_quantile", "histogram_stddev", "histogram_stdvar",
    "histogram_sum", "hour",
    "idelta", "increase", "irate", "last_over_time", "ln", "log10", "log2",
    "mad_over_time", "max_over_time", "min_over_time", "minute", "month", "predict_linear",
    "present_over_time",
    "quantile_over_time", "rad", "rate", "resets", "round", "sgn", "sin",
    "sinh", "sqrt", "stddev_over_time", "stdvar_over_time", "sum_over_time", "tan", "tanh",
    "timestamp", "year",
})  # fmt: skip
_SCALAR_FUNCTIONS = frozenset({"pi", "time"})
_NO_MODIFIER = promql.BinModifier(promql.VectorMatchCardinality.OneToOne, return_bool=False)
# Labels that functions drop implicitly.
_FLEETING = frozenset({"__name__", "le"})


@dataclass(frozen=True, slots=True)
class Separability:
    """Whether requests for one kind of object may share a query.

    `reason` says why those of one namespace may not, "" if they may. `joined` is the query with the namespace
    label in every grouping and with both placeholders. It is empty if namespaces may not share a query;
    `join_reason` says why.
    """

    reason: str = ""
    joined: str = ""
    join_reason: str = ""


class _QueryPart(NamedTuple):
    """The joined text of a part, and whether only the joined form of its result has the namespace label."""

    text: str
    scalar: bool = False
    added: bool = False


def analyse(
    template: Template, object_label: str, namespace_label: str, part_label: str | None = None
) -> Separability:
    """Decide for the objects named by `object_label`; `namespace_label` is "" for cluster-scoped objects.

    `part_label` is in `.GroupBy` beside the object's label, if objects have parts.
    """
    group_by = ",".join(map(matchers.write_label, filter(None, (object_label, part_label))))
    try:
        expression = parsing.parse_rule(template, group_by)
    except TemplateError as error:
        return Separability(reason=str(error))
    if fleeting := sorted(_FLEETING & {object_label, namespace_label}):
        return Separability(reason=f"{fleeting[0]} names the objects, and functions drop it")
    walk = _Walk(object_label, namespace_label)
    try:
        part = walk.visit(expression)
        if part.scalar:
            return Separability(reason="the query is a scalar")
        if isinstance(parsing.unwrapped(expression), promql.MatrixSelector | promql.SubqueryExpr):
            return Separability(reason="the query is a range of samples")
    except NotSeparableError as error:
        return Separability(reason=parsing.show(str(error)))
    if not namespace_label:
        return Separability()
    if walk.join_fault:
        return Separability(join_reason=parsing.show(walk.join_fault))
    return Separability(joined=part.text)


class _Walk:
    """One pass over a query: refuses what mixes objects, and prints the joined form."""

    def __init__(self, object_label: str, namespace_label: str) -> None:
        self.object_label = object_label
        self.namespace_label = namespace_label
        self.own_labels = {object_label, namespace_label} - {""}
        self.join_fault = ""

    def visit(self, node: Any) -> _QueryPart:
        """Return the joined text of `node`. Raises NotSeparableError with the reason."""
        visitor = _VISITORS.get(type(node))
        if visitor is None:
            raise NotSeparableError("a string stands where a number is expected")
        return visitor(self, node)

    def wrap(self, node: Any, before: str, after: str) -> _QueryPart:
        """Return the text of the one operand of `node` between two others."""
        inner = self.visit(node.expr)
        return inner._replace(text=f"{before}{inner.text}{after}")

    def selector(self, node: Any, span: str = "") -> _QueryPart:
        return _QueryPart(f"{self._selector_text(node)}{span}{_modifiers(node)}")

    def subquery(self, node: Any) -> _QueryPart:
        step = promql.display_duration(node.step) if node.step else ""
        return self.wrap(node, "", f"[{promql.display_duration(node.range)}:{step}]{_modifiers(node)}")

    def call(self, node: Any) -> _QueryPart:
        name = node.func.name
        if name in _SCALAR_FUNCTIONS:
            return _QueryPart(f"{name}()", scalar=True)
        if name not in SERIES_FUNCTIONS:
            raise NotSeparableError(f"{name}() cannot be split by object")
        arguments = [self.visit(argument) for argument in node.args]
        vectors = [argument for argument in arguments if not argument.scalar]
        if not vectors:
            raise NotSeparableError(f"{name}() reads no series")
        return _QueryPart(
            f"{name}({', '.join(argument.text for argument in arguments)})", added=vectors[0].added
        )

    def aggregate(self, node: Any) -> _QueryPart:
        operator = str(node.op)
        if operator not in _AGGREGATIONS:
            raise NotSeparableError(f"{operator} combines several objects")
        if node.modifier is None:
            raise NotSeparableError(f"{operator} without a grouping gives one value for all objects")
        by = node.modifier.type == promql.AggModifierType.By
        labels = list(node.modifier.labels)
        inner = self.visit(node.expr)
        # the parser takes numbers only as a parameter
        parameter = "" if node.param is None else f"{self.visit(node.param).text}, "
        added = inner.added
        if by:
            if self.object_label not in labels:
                raise NotSeparableError(
                    f"{operator} by ({', '.join(labels)}) does not name {self.object_label}"
                )
            if self.namespace_label and self.namespace_label not in labels:
                labels.append(self.namespace_label)
                added = True
        elif dropped := sorted(self.own_labels & set(labels)):
            raise NotSeparableError(f"{operator} without ({', '.join(labels)}) drops {dropped[0]}")
        grouping = f"{'by' if by else 'without'} ({', '.join(map(_label, labels))})"
        return _QueryPart(f"{operator} {grouping} ({parameter}{inner.text})", added=added)

    def binary(self, node: Any) -> _QueryPart:
        left, right = self.visit(node.lhs), self.visit(node.rhs)
        operator = str(node.op).strip()
        modifier = node.modifier or _NO_MODIFIER
        returns_bool = " bool" if modifier.return_bool else ""
        if left.scalar or right.scalar:
            vector = right if left.scalar else left
            text = f"{left.text} {operator}{returns_bool} {right.text}"
            return _QueryPart(text, scalar=left.scalar and right.scalar, added=vector.added)
        fills = modifier.fill_values
        if fills.lhs is not None or fills.rhs is not None:
            raise NotSeparableError("fill values stand in for objects that have no series")
        if modifier.matching is None:
            if left.added != right.added:
                self.join_fault = f"the sides of {operator} differ in the label {self.namespace_label}"
            return _QueryPart(f"{left.text} {operator}{returns_bool} {right.text}", added=left.added)
        if modifier.matching.type != promql.LabelModifierType.Include:
            raise NotSeparableError("ignoring() may match objects with one another")
        return self._matched_on(left, right, f"{operator}{returns_bool}", operator, modifier)

    def _matched_on(
        self, left: _QueryPart, right: _QueryPart, shown: str, operator: str, modifier: Any
    ) -> _QueryPart:
        """Join two vectors with on(...), which must have the object's label; the namespace's is added."""
        labels = list(modifier.matching.labels)
        if self.object_label not in labels:
            raise NotSeparableError(f"on ({', '.join(labels)}) does not name {self.object_label}")
        carried = list(modifier.group_labels or ())
        if copied := sorted(self.own_labels & set(carried)):
            raise NotSeparableError(f"the group modifier copies {copied[0]} from one object to another")
        names_namespace = self.namespace_label in labels
        if names_namespace and left.added != right.added:
            self.join_fault = f"the sides of {operator} differ in the label {self.namespace_label}"
        if self.namespace_label and not names_namespace:
            labels.append(self.namespace_label)
        group = ""
        if modifier.card == promql.VectorMatchCardinality.ManyToOne:
            group, added = f" group_left ({', '.join(map(_label, carried))})", left.added
        elif modifier.card == promql.VectorMatchCardinality.OneToMany:
            group, added = f" group_right ({', '.join(map(_label, carried))})", right.added
        elif operator in _SET_OPERATORS:
            if operator == "or" and left.added != right.added:
                self.join_fault = f"the sides of or differ in the label {self.namespace_label}"
            added = left.added
        else:  # one to one: the result has just the labels of on()
            added = left.added if names_namespace else bool(self.namespace_label)
        return _QueryPart(
            f"{left.text} {shown} on ({', '.join(map(_label, labels))}){group} {right.text}", added=added
        )

    def _selector_text(self, node: Any) -> str:
        """Return the selector. It must have `.LabelMatchers` once, and no matcher of its own on our labels.

        A matcher that requires one of our labels to exist is allowed: `.LabelMatchers` does too.
        """
        if node.matchers.or_matchers:
            raise NotSeparableError("a selector joins matchers with or")
        shown = node.name or "{...}"
        count = 0
        texts = []
        for matcher in node.matchers.matchers:
            if matcher.name == parsing.LABEL:
                count += 1
            elif matcher.name in self.own_labels and (str(matcher.op), matcher.value) not in _PRESENT:
                raise NotSeparableError(f"{shown} has a matcher of its own on {matcher.name}")
            elif parsing.LABEL in matcher.value:
                raise NotSeparableError(f"{shown} has <<.LabelMatchers>> inside a text")
            texts.append(f"{_label(matcher.name)}{parsing.OPERATORS[str(matcher.op)]}{quote(matcher.value)}")
        if count != 1:
            raise NotSeparableError(f"{shown} is selected without <<.LabelMatchers>>")
        return f"{node.name or ''}{{{','.join(texts)}}}"


_PRESENT = frozenset({(str(promql.MatchOp.NotEqual), ""), (str(promql.MatchOp.Re), ".+")})

_VISITORS: Mapping[type, Callable[[_Walk, Any], _QueryPart]] = {
    promql.NumberLiteral: lambda _, node: _QueryPart(_number(node.val), scalar=True),
    promql.ParenExpr: lambda walk, node: walk.wrap(node, "(", ")"),
    promql.UnaryExpr: lambda walk, node: walk.wrap(node, "-", ""),
    promql.VectorSelector: _Walk.selector,
    promql.MatrixSelector: lambda walk, node: walk.selector(
        node.vector_selector, f"[{promql.display_duration(node.range)}]"
    ),
    promql.SubqueryExpr: _Walk.subquery,
    promql.Call: _Walk.call,
    promql.AggregateExpr: _Walk.aggregate,
    promql.BinaryExpr: _Walk.binary,
}


def _number(value: float) -> str:
    """Return a float as PromQL reads it back: Python's shortest form, `Inf` and `NaN` by name."""
    text = repr(value)
    return {"inf": "Inf", "-inf": "-Inf", "nan": "NaN"}.get(text, text)


def _label(name: str) -> str:
    if parsing.SERIES in name:
        raise NotSeparableError("<<.Series>> is part of a label's name")
    return matchers.write_label(name)


def _modifiers(node: Any) -> str:
    """Return ` offset ...` and ` @ ...` of a selector or subquery."""
    text = ""
    if node.at is not None:
        if node.at.type == promql.AtModifierType.At:
            text += f" @ {node.at.at.timestamp():.3f}"
        else:
            text += " @ start()" if node.at.type == promql.AtModifierType.Start else " @ end()"
    if node.offset is not None:
        sign = "-" if node.offset < timedelta(0) else ""
        text += f" offset {sign}{promql.display_duration(abs(node.offset))}"
    return text
