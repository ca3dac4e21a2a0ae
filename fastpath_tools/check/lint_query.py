"""Warnings about what a rule asks Prometheus: its selector of series and its query, as PromQL reads them.

A query is judged by its examples, with stand-ins for series and objects. Findings are (path below the rule,
value, sentence).
"""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import promql_parser as promql

from adapter.config.rules_config import fault_at
from adapter.errors import Fault
from adapter.model.go_text import quote
from adapter.model.visible import counted
from adapter.rules import matchers, parsing
from adapter.rules.naming import NAMESPACES
from fastpath_tools.live import preview

_RATES = frozenset({"rate", "irate", "increase", "delta", "idelta", "deriv"})
_OF_TWO = _RATES | {"predict_linear", "holt_winters", "double_exponential_smoothing"}
"""Functions that take two samples; others of a range take one."""

_SUBQUERY_STEP = timedelta(minutes=1)
"""What a subquery without a step takes: the default of Prometheus' evaluation interval."""

_LIKE_AN_EXPRESSION = re.compile(r"^\^|\$$|\.[*+]")
_BARE_WINDOW = re.compile(r"\[\s*([0-9]+(?:\.[0-9]+)?)\s*\]")
_OF_ONE_BUCKET = re.compile(r"\ble\s*[=!]")
_SERIES_BUCKET = re.compile(r"<<\s*\.Series\s*>>_bucket")
TEMPLATE = re.compile(r"<<.*>>|\{\{.*\}\}")
_LEADING_COMMA = re.compile(r"[{,]\s*,")

Finding = tuple[str, str, str]


def check(made: preview.RulePreview, scrape_interval: float) -> Iterator[Finding]:
    """Yield the warnings about one rule; `scrape_interval` in seconds."""
    yield from _check_selector(made)
    query = made.rule.config.metrics_query
    if not query:
        yield "metricsQuery", "", "there is no query, so every request for this metric fails"
        return
    age = made.rule.config.max_sample_age
    if age is not None and age < scrape_interval and made.rule.scraped is None:
        missing = f"samples are older than this {1 - age / scrape_interval:.0%} of the time and left out"
        yield "maxSampleAge", f"{age:g} s", f"shorter than a scrape of {scrape_interval:g} s: {missing}"
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
        for window, sentence in _windows(example.promql, parsed, scrape_interval):
            yield "metricsQuery", window, sentence
        if example is made.main:
            yield from _check_kinds(example.promql, parsed)
        yield from _check_result(made, example, parsed)


def _check_selector(made: preview.RulePreview) -> Iterator[Finding]:
    text = made.rule.config.series_query
    if not text:
        yield "seriesQuery", "", "there is no selector, and Prometheus refuses to list series without one"
        return
    try:
        selector = preview.parse_selector(text)
    except ValueError as error:
        reason = matchers.shorten(str(error))
        if not TEMPLATE.search(text):
            yield "seriesQuery", matchers.shorten(text), f"Prometheus will refuse this: {reason}"
        return
    yield from _check_expressions(selector, "seriesQuery")


def _check_template(made: preview.RulePreview) -> Iterator[Finding]:
    fields = made.rule.query.fields
    if made.external and "GroupBy" in fields:
        yield "metricsQuery", "<<.GroupBy>>", "external metrics describe no object, so this is empty"
    if not made.known and _SERIES_BUCKET.search(made.rule.query.text):
        sentence = (
            "a histogram has no series of its own name: select NAME_bucket, and write <<.Series>> for it"
        )
        yield "metricsQuery", "<<.Series>>_bucket", sentence
    has_several = len(made.series) > 1
    if made.known is None:
        has_several = preview.named_series(made.rule.config.series_query) is None
    if "Series" not in fields and has_several:
        sentence = "the query does not use <<.Series>> although seriesQuery may match several names"
        yield "metricsQuery", "", sentence
    if not {"LabelMatchers", "LabelValuesByName"} & set(fields):
        effect = "every request reads all objects of all namespaces"
        if made.external:
            effect = "neither namespace nor selector of a request changes the answer"
        yield "metricsQuery", "", f"the query does not use <<.LabelMatchers>>, so {effect}"


def _unparsed(example: preview.Example, error: ValueError) -> str:
    """Return the parser's words, or better ones for the mistakes that are met most."""
    if "{{" in example.promql:
        return "templates are written << >>, not {{ }}"
    if _LEADING_COMMA.search(example.promql):
        remedy = "put <<.LabelMatchers>> last between the braces, because it may be empty"
        return f"a comma has no matcher before it; {remedy}"
    if re.search(r"\$\{?\w", example.promql):
        return "references such as ${1} are for name.as: the series is <<.Series>>"
    reason = matchers.shorten(str(error))
    is_range = "got matrix" in reason
    return f"{reason}{' (a range such as [5m] belongs inside a function such as rate)' if is_range else ''}"


def _check_expressions(parsed: Any, path: str) -> Iterator[Finding]:
    """Yield the matchers that compare with the text of a regular expression."""
    meanings: dict[str, str] = {}
    for node in parsing.nodes(parsed):
        if isinstance(node, promql.VectorSelector):
            for matcher in node.matchers.matchers:
                for operator, written, meant in _TEXT_OPERATORS:
                    if matcher.op == operator and _LIKE_AN_EXPRESSION.search(matcher.value):
                        meanings[f"{matcher.name}{written}{quote(matcher.value)}"] = meant
    for text, meant in meanings.items():
        yield path, text, f"this compares with the text itself; for a regular expression write {meant}"


_TEXT_OPERATORS = ((promql.MatchOp.Equal, "=", "=~"), (promql.MatchOp.NotEqual, "!=", "!~"))


def _windows(text: str, parsed: Any, scrape_interval: float) -> Iterator[tuple[str, str]]:
    """Yield each window with too few samples, and what that does to the value."""
    bare = {float(number): number for number in reversed(_BARE_WINDOW.findall(text))}
    windows: dict[tuple[str, str], None] = {}
    for call in parsing.nodes(parsed):
        for argument in call.args if isinstance(call, promql.Call) else ():
            if not isinstance(argument, promql.MatrixSelector | promql.SubqueryExpr):
                continue
            length, step, every = argument.range or timedelta(), scrape_interval, "scrape"
            # a bare number of seconds stays one
            window = bare.get(length.total_seconds()) or promql.display_duration(length)
            if isinstance(argument, promql.SubqueryExpr):
                given, every = argument.step or _SUBQUERY_STEP, "step"
                step = given.total_seconds()
                window += f":{promql.display_duration(given) if argument.step else ''}"
            if sentence := _shortage(call.func.name, length.total_seconds(), step, every):
                windows[f"[{window}]", sentence] = None
    yield from windows


def _shortage(function: str, seconds: float, step: float, every: str) -> str:
    """Return what is wrong with the number of samples in a window, "" for nothing.

    A window leaves out its first instant, as in Prometheus 3: in one as long as a step is one sample.
    """
    least = 2 if function in _OF_TWO else 1
    if least == 2 and seconds <= step:
        return f"no longer than one {every} of {step:g} s: it never has the two samples of a value"
    if seconds < least * step:
        missing = least - seconds / step
        steps = counted(least, every, f"{every}s")
        return f"shorter than {steps} of {step:g} s: there is no value {missing:.0%} of the time"
    if function in _RATES and every == "scrape" and seconds < preview.SCRAPES_IN_WINDOW * step:
        scrapes = f"{preview.SCRAPES_IN_WINDOW} scrapes of {step:g} s"
        return f"shorter than {scrapes}: the value is gone after one lost scrape"
    return ""


def causes(text: str, scrape_interval: float) -> list[str]:
    """Return what a query has that may leave it without a value, for one that gave none."""
    try:
        parsed = parsing.parse(text)
    except ValueError:
        return []
    findings = (*_windows(text, parsed, scrape_interval), *(kind[1:] for kind in _check_kinds(text, parsed)))
    return [f"{value}: {sentence}" for value, sentence in findings]


def _check_kinds(text: str, parsed: Any) -> Iterator[Finding]:
    """Yield labels that a request lacks, and histograms and counters that are read as something else."""
    bucket = _reads(parsed, "_bucket")
    calls = [node for node in parsing.nodes(parsed) if isinstance(node, promql.Call)]
    quantiles = [call for call in calls if call.func.name in {"histogram_quantile", "histogram_fraction"}]
    for call in quantiles:
        if bucket and (culprit := loses(call.args[-1], "le")):
            sentence = f"{call.func.name} of {bucket} needs the label le: group by it too"
            yield "metricsQuery", culprit, sentence
    if bucket and not quantiles and not _OF_ONE_BUCKET.search(text):
        yield "metricsQuery", bucket, "a bucket counts those below it too: read _count, or choose one le"
    if "<no value>" in text:
        yield "metricsQuery", "<no value>", "requests without the label ask for this: use <<.LabelMatchers>>"
    core = parsed
    while isinstance(core, promql.ParenExpr | promql.AggregateExpr):
        core = core.expr
    if isinstance(core, promql.VectorSelector) and (counter := _reads(core, "_total")):
        yield "metricsQuery", counter, "a counter only grows until its process starts again: read its rate"


def _reads(parsed: Any, suffix: str) -> str:
    """Return the first series of a parsed query whose name ends so, "" for none."""
    selectors = (node for node in parsing.nodes(parsed) if isinstance(node, promql.VectorSelector))
    return next((name for one in selectors if (name := parsing.series_name(one)).endswith(suffix)), "")


def _check_result(made: preview.RulePreview, example: preview.Example, parsed: Any) -> Iterator[Finding]:
    """Yield what keeps the answer from being values of objects."""
    core = parsing.unwrapped(parsed)
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


def check_resource_query(made: preview.ResourcePreview, scrape_interval: float) -> Iterator[Fault]:
    """Yield what keeps the answer to a template of the resource rules from being usages."""
    for value, sentence in _resource_findings(made, scrape_interval):
        yield fault_at(made.config, made.path, matchers.shorten(value), sentence)


def _resource_findings(made: preview.ResourcePreview, scrape_interval: float) -> Iterator[tuple[str, str]]:
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
    yield from _windows(example.promql, parsed, scrape_interval)
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
