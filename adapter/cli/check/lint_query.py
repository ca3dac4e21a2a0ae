"""Warnings about what a rule asks Prometheus: its selector of series and its query, as PromQL reads them.

A query is judged by its examples, with stand-ins for series and objects. Findings are (path below the rule,
value, sentence).
"""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import promql_parser as promql

from adapter.model.go_text import quote
from adapter.rules import label_flow, matchers
from adapter.rules.naming import NAMESPACES
from adapter.rules.preview import Example, Sketch, named_series, parse_selector

# A rate needs two samples; four scrapes leave room for one lost scrape and for the offset between window and
# scrapes.
SCRAPES_IN_WINDOW = 4

_RATES = frozenset({"rate", "irate", "increase", "delta", "idelta", "deriv"})
_LIKE_AN_EXPRESSION = re.compile(r"^\^|\$$|\.[*+]")
_BARE_WINDOW = re.compile(r"\[\s*([0-9]+(?:\.[0-9]+)?)\s*\]")
_LEADING_COMMA = re.compile(r"[{,]\s*,")

Finding = tuple[str, str, str]


def check(made: Sketch, scrape_interval: float) -> Iterator[Finding]:
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
            parsed = promql.parse(example.promql)
        except ValueError as error:
            yield (
                "metricsQuery",
                matchers.shorten(example.promql),
                f"this PromQL does not parse: {_unparsed(example, error)}",
            )
            return
        yield from _check_expressions(parsed, "metricsQuery")
        yield from _check_windows(example.promql, parsed, scrape_interval)
        yield from _check_result(made, example, parsed)


def _check_selector(made: Sketch) -> Iterator[Finding]:
    text = made.rule.config.series_query
    if not text:
        yield "seriesQuery", "", "there is no selector, and Prometheus refuses to list series without one"
        return
    try:
        selector = parse_selector(text)
    except ValueError as error:
        yield (
            "seriesQuery",
            matchers.shorten(text),
            f"Prometheus will refuse this: {matchers.shorten(str(error))}",
        )
        return
    yield from _check_expressions(selector, "seriesQuery")


def _check_template(made: Sketch) -> Iterator[Finding]:
    fields = made.rule.query.fields
    if made.external and "GroupBy" in fields:
        sentence = (
            "external metrics describe no object, so this is empty and the query is summed to one value"
        )
        yield "metricsQuery", "<<.GroupBy>>", sentence
    several = (
        named_series(made.rule.config.series_query) is None if made.known is None else len(made.series) > 1
    )
    if "Series" not in fields and several:
        sentence = "the query does not use <<.Series>> although seriesQuery may match several names"
        yield "metricsQuery", "", sentence
    if not {"LabelMatchers", "LabelValuesByName"} & set(fields):
        sentence = (
            "the query does not use <<.LabelMatchers>>, so neither namespace nor selector of a request "
            "changes the answer"
            if made.external
            else "the query does not use <<.LabelMatchers>>, so every request asks for all objects of "
            "all namespaces"
        )
        yield "metricsQuery", "", sentence


def _unparsed(example: Example, error: ValueError) -> str:
    """Return the parser's words, or better ones for the mistakes that are met most."""
    if "{{" in example.promql:
        return "templates are written << >>, not {{ }}"
    if _LEADING_COMMA.search(example.promql):
        return (
            "nothing stands before a comma; put <<.LabelMatchers>> last between the braces, for it may be "
            "empty"
        )
    reason = matchers.shorten(str(error))
    return (
        f"{reason} (a range such as [5m] belongs inside a function such as rate)"
        if "got matrix" in reason
        else reason
    )


def _check_expressions(parsed: Any, path: str) -> Iterator[Finding]:
    """Yield the matchers that compare with the text of a regular expression."""
    found: dict[str, str] = {}

    def look(node: Any) -> bool:
        if isinstance(node, promql.VectorSelector):
            for matcher in node.matchers.matchers:
                for operator, written, meant in _TEXT_OPERATORS:
                    if matcher.op == operator and _LIKE_AN_EXPRESSION.search(matcher.value):
                        found[f"{matcher.name}{written}{quote(matcher.value)}"] = meant
        return True

    promql.walk(parsed, look)
    for text, meant in found.items():
        yield path, text, f"this compares with the text itself; for a regular expression write {meant}"


_TEXT_OPERATORS = ((promql.MatchOp.Equal, "=", "=~"), (promql.MatchOp.NotEqual, "!=", "!~"))


def _check_windows(text: str, parsed: Any, scrape_interval: float) -> Iterator[Finding]:
    found: dict[str, None] = {}

    def look(node: Any) -> bool:
        if isinstance(node, promql.Call) and node.func.name in _RATES:
            for argument in node.args:
                if (
                    isinstance(argument, promql.MatrixSelector)
                    and argument.range.total_seconds() < SCRAPES_IN_WINDOW * scrape_interval
                ):
                    found[_window(text, argument.range.total_seconds())] = None
        return True

    promql.walk(parsed, look)
    for window in found:
        sentence = (
            f"shorter than {SCRAPES_IN_WINDOW} scrapes of {scrape_interval:g} s: one lost scrape and the "
            "value is gone"
        )
        yield "metricsQuery", f"[{window}]", sentence


def _window(text: str, seconds: float) -> str:
    """Return a window as the query has it: a bare number of seconds stays one."""
    bare = next((number for number in _BARE_WINDOW.findall(text) if float(number) == seconds), "")
    return bare or promql.display_duration(timedelta(seconds=seconds))


def _check_result(made: Sketch, example: Example, parsed: Any) -> Iterator[Finding]:
    """Yield what keeps the answer from being values of objects."""
    core = parsed
    while isinstance(core, promql.ParenExpr):
        core = core.expr
    if isinstance(core, promql.MatrixSelector | promql.SubqueryExpr | promql.StringLiteral):
        what = "a text" if isinstance(core, promql.StringLiteral) else "a range of samples, not a value"
        yield "metricsQuery", "", f"the result is {what}, so every request fails"
    elif made.external:
        return
    elif label_flow.is_scalar(core):
        yield "metricsQuery", "", "the result is a scalar, which belongs to no object, so every request fails"
    elif (culprit := label_flow.loses(core, example.label)) and (
        example is made.main or not _about_namespaces(example)
    ):
        # grouped by its objects alone, a query answers for no namespace, and that is rarely wanted of it
        kind = str(example.resource.group_resource) if example.resource else ""
        yield (
            "metricsQuery",
            culprit,
            f"the result has no label {example.label}, so {kind} are never found: group by it",
        )


def _about_namespaces(example: Example) -> bool:
    return example.resource is not None and example.resource.group_resource == NAMESPACES
