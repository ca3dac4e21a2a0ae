"""Warnings about what a rule asks Prometheus: its selector of series and its query, as PromQL reads them.

A query is judged by its examples, with stand-ins for series and objects. Findings are (path below the rule,
value, sentence).
"""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import promql_parser as promql

from adapter.errors import Fault
from adapter.model.go_text import quote
from adapter.rules import matchers, parsing
from adapter.rules.naming import NAMESPACES
from fastpath_tools.live.preview import (
    SCRAPES_IN_WINDOW,
    Example,
    ResourcePreview,
    RulePreview,
    named_series,
    parse_selector,
)

_RATES = frozenset({"rate", "irate", "increase", "delta", "idelta", "deriv"})
_LIKE_AN_EXPRESSION = re.compile(r"^\^|\$$|\.[*+]")
_BARE_WINDOW = re.compile(r"\[\s*([0-9]+(?:\.[0-9]+)?)\s*\]")
_LEADING_COMMA = re.compile(r"[{,]\s*,")

Finding = tuple[str, str, str]


def check(made: RulePreview, scrape_interval: float) -> Iterator[Finding]:
    """Yield the warnings about one rule; `scrape_interval` in seconds."""
    yield from _check_selector(made)
    query = made.rule.config.metrics_query
    if not query:
        yield "metricsQuery", "", "there is no query, so every request for this metric fails"
        return
    yield from _check_template(made)
    main_first = sorted(made.examples, key=lambda example: example is not made.main)
    for example in main_first:
        if not example.promql:
            if example.fault_path == "metricsQuery":  # a missing label is said where labels are looked at
                yield "metricsQuery", "", f"requests fail: {example.fault}"
            continue
        try:
            parsed = parsing.parse(example.promql)
        except ValueError as error:
            sentence = f"this PromQL does not parse: {_unparsed(example, error)}"
            yield "metricsQuery", matchers.shorten(example.promql), sentence
            return
        yield from _check_expressions(parsed, "metricsQuery")
        yield from _check_windows(example.promql, parsed, scrape_interval)
        yield from _check_result(made, example, parsed)


def _check_selector(made: RulePreview) -> Iterator[Finding]:
    text = made.rule.config.series_query
    if not text:
        yield "seriesQuery", "", "there is no selector, and Prometheus refuses to list series without one"
        return
    try:
        selector = parse_selector(text)
    except ValueError as error:
        sentence = f"Prometheus will refuse this: {matchers.shorten(str(error))}"
        yield "seriesQuery", matchers.shorten(text), sentence
        return
    yield from _check_expressions(selector, "seriesQuery")


def _check_template(made: RulePreview) -> Iterator[Finding]:
    fields = made.rule.query.fields
    if made.external and "GroupBy" in fields:
        reason = "external metrics describe no object, so this is empty"
        yield "metricsQuery", "<<.GroupBy>>", f"{reason} and the query is summed to one value"
    has_several = len(made.series) > 1
    if made.known is None:
        has_several = named_series(made.rule.config.series_query) is None
    if "Series" not in fields and has_several:
        sentence = "the query does not use <<.Series>> although seriesQuery may match several names"
        yield "metricsQuery", "", sentence
    if not {"LabelMatchers", "LabelValuesByName"} & set(fields):
        effect = "every request reads all objects of all namespaces"
        if made.external:
            effect = "neither namespace nor selector of a request changes the answer"
        yield "metricsQuery", "", f"the query does not use <<.LabelMatchers>>, so {effect}"


def _unparsed(example: Example, error: ValueError) -> str:
    """Return the parser's words, or better ones for the mistakes that are met most."""
    if "{{" in example.promql:
        return "templates are written << >>, not {{ }}"
    if _LEADING_COMMA.search(example.promql):
        remedy = "put <<.LabelMatchers>> last between the braces, because it may be empty"
        return f"a comma has no matcher before it; {remedy}"
    reason = matchers.shorten(str(error))
    is_range = "got matrix" in reason
    return f"{reason}{' (a range such as [5m] belongs inside a function such as rate)' if is_range else ''}"


def _check_expressions(parsed: Any, path: str) -> Iterator[Finding]:
    """Yield the matchers that compare with the text of a regular expression."""
    meanings: dict[str, str] = {}
    for node in _nodes(parsed):
        if isinstance(node, promql.VectorSelector):
            for matcher in node.matchers.matchers:
                for operator, written, meant in _TEXT_OPERATORS:
                    if matcher.op == operator and _LIKE_AN_EXPRESSION.search(matcher.value):
                        meanings[f"{matcher.name}{written}{quote(matcher.value)}"] = meant
    for text, meant in meanings.items():
        yield path, text, f"this compares with the text itself; for a regular expression write {meant}"


_TEXT_OPERATORS = ((promql.MatchOp.Equal, "=", "=~"), (promql.MatchOp.NotEqual, "!=", "!~"))


def _check_windows(text: str, parsed: Any, scrape_interval: float) -> Iterator[Finding]:
    ranges = [
        argument.range.total_seconds()
        for node in _nodes(parsed)
        if isinstance(node, promql.Call) and node.func.name in _RATES
        for argument in node.args
        if isinstance(argument, promql.MatrixSelector)
    ]
    bare = {float(number): number for number in reversed(_BARE_WINDOW.findall(text))}
    for seconds in dict.fromkeys(ranges):
        if seconds < SCRAPES_IN_WINDOW * scrape_interval:
            # a bare number of seconds stays one
            window = bare.get(seconds) or promql.display_duration(timedelta(seconds=seconds))
            scrapes = f"{SCRAPES_IN_WINDOW} scrapes of {scrape_interval:g} s"
            sentence = f"shorter than {scrapes}: the value is gone after one lost scrape"
            yield "metricsQuery", f"[{window}]", sentence


def _nodes(parsed: Any) -> list[Any]:
    """Return a parsed query and all its parts."""
    nodes: list[Any] = []

    def collect(node: Any) -> bool:
        nodes.append(node)
        return True

    promql.walk(parsed, collect)
    return nodes


def _check_result(made: RulePreview, example: Example, parsed: Any) -> Iterator[Finding]:
    """Yield what keeps the answer from being values of objects."""
    core = parsed
    while isinstance(core, promql.ParenExpr):
        core = core.expr
    if isinstance(core, promql.MatrixSelector | promql.SubqueryExpr | promql.StringLiteral):
        what = "a text" if isinstance(core, promql.StringLiteral) else "a range of samples, not a value"
        yield "metricsQuery", "", f"the result is {what}, so every request fails"
    elif made.external:
        return
    elif is_scalar(core):
        yield "metricsQuery", "", "the result is a scalar, which belongs to no object, so every request fails"
    elif culprit := loses(core, example.label):
        kind = None if example.resource is None else example.resource.group_resource
        # grouped by its objects alone, a query answers for no namespace, and that is rarely wanted of it
        if example is made.main or kind != NAMESPACES:
            sentence = (
                f"the result has no label {example.label}, so {kind or ''} are never found: group by it"
            )
            yield "metricsQuery", culprit, sentence


def check_resource_query(made: ResourcePreview) -> Iterator[Fault]:
    """Yield what keeps the answer to a template of the resource rules from being usages."""
    for value, sentence in _resource_findings(made):
        yield Fault(made.path, matchers.shorten(value), sentence, made.config.source, made.config.line)


def _resource_findings(made: ResourcePreview) -> Iterator[tuple[str, str]]:
    """Yield value and sentence."""
    example, part_label = made.main, made.query.part_label
    if not example.promql:
        yield "", f"no usage is ever served: {example.fault}"
        return
    try:
        parsed = parsing.parse(example.promql)
    except ValueError as error:
        yield example.promql, f"this PromQL does not parse: {matchers.shorten(str(error))}"
        return
    kind = "pods" if part_label is not None else "nodes"
    if culprit := loses(parsed, example.label):
        yield culprit, f"the result has no label {example.label}, so {kind} are never found: group by it"
    elif part_label and (culprit := loses(parsed, part_label)):
        yield culprit, f"the result has no label {part_label}, so a pod has one container without a name"
    elif part_label == "":
        yield "", "there is no containerLabel, so a pod has one container without a name"


# --- label flow: whether the result of a query can have a label, without which its values match no objects
#
# Only PromQL's operators are followed, because the labels of the series are not known. If they do not decide,
# the label may exist. `rules.mergeable` decides a related question: whether a query keeps objects apart.

# These return the label sets of their series, regardless of the grouping.
_PICKING = frozenset({"topk", "bottomk", "limitk", "limit_ratio"})
_WITHOUT_LABELS = frozenset({"scalar", "vector", "time", "pi"})


def loses(node: Any, label: str) -> str:
    """Return the part of a parsed query that drops `label`, in words, or "" if the label may survive."""
    match node:
        case promql.NumberLiteral():
            return "a number"
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            return loses(node.expr, label)
        case promql.Call():
            return _call(node, label)
        case promql.AggregateExpr():
            return _aggregate(node, label)
        case promql.BinaryExpr():
            return _binary(node, label)
        case _:
            return ""


def _call(node: Any, label: str) -> str:
    name = node.func.name
    if name in _WITHOUT_LABELS:
        return f"{name}()"
    if name in {"label_replace", "label_join"} and node.args[1].val == label:
        return ""
    vectors = [
        part for part in node.args if not isinstance(part, promql.StringLiteral) and not is_scalar(part)
    ]
    return loses(vectors[0], label) if vectors else ""


def _aggregate(node: Any, label: str) -> str:
    operator = str(node.op)
    if operator in _PICKING:
        return loses(node.expr, label)
    if operator == "count_values" and node.param.val == label:
        return ""
    if node.modifier is None:
        return f"{operator} without a grouping"
    listed = ", ".join(node.modifier.labels)
    if node.modifier.type == promql.AggModifierType.By:
        return loses(node.expr, label) if label in node.modifier.labels else f"{operator} by ({listed})"
    return f"{operator} without ({listed})" if label in node.modifier.labels else loses(node.expr, label)


def _binary(node: Any, label: str) -> str:
    operator = str(node.op).strip()
    left, right = loses(node.lhs, label), loses(node.rhs, label)
    if is_scalar(node.lhs):
        return right
    if is_scalar(node.rhs) or operator in {"and", "unless"}:
        return left
    if operator == "or":
        return left and right
    modifier = node.modifier
    # with group_left or group_right the result has the labels of the many side, and those that it names
    if modifier is not None and modifier.card != promql.VectorMatchCardinality.OneToOne:
        many, one = (
            (left, right) if modifier.card == promql.VectorMatchCardinality.ManyToOne else (right, left)
        )
        return one if label in (modifier.group_labels or ()) else many
    if modifier is not None and modifier.matching is not None:
        listed = ", ".join(modifier.matching.labels)
        on = modifier.matching.type == promql.LabelModifierType.Include
        if (label in modifier.matching.labels) is not on:
            return f"{operator} {'on' if on else 'ignoring'} ({listed})"
    return left or right


def is_scalar(node: Any) -> bool:
    while isinstance(node, promql.ParenExpr | promql.UnaryExpr):
        node = node.expr
    if isinstance(node, promql.BinaryExpr):
        return is_scalar(node.lhs) and is_scalar(node.rhs)
    return isinstance(node, promql.NumberLiteral) or (
        isinstance(node, promql.Call) and node.func.name in {"scalar", "time", "pi"}
    )
