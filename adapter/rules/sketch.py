"""What a rule would do, told without or with the series that exist: names, objects, an example query, whether it merges.

For people: `fastpath check` prints it. Nothing of a live answer is computed here.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import promql_parser as promql

from adapter.errors import NamingError, TemplateError
from adapter.model.metrics import SeriesInfo
from adapter.model.resources import APIResource
from adapter.model.selectors import EVERYTHING
from adapter.rules import matchers
from adapter.rules.compile import Rule
from adapter.rules.matchers import Matcher
from adapter.rules.naming import NAMESPACES
from adapter.rules.query import MetricQuery
from adapter.rules.registry import ROOT_SCOPED
from adapter.rules.separable import Separability

# Stand for a series, a namespace and an object that nobody has named yet.
SERIES, NAMESPACE, OBJECT = "SERIES", "NAMESPACE", "NAME"

_LITERAL = re.compile(r"\^?([a-zA-Z_:][a-zA-Z0-9_:]*)\$?\Z")


class Example(NamedTuple):
    """How a question about one kind of object is asked. `promql` is "" when it cannot be, and then `fault` says why."""

    resource: APIResource | None
    promql: str
    separability: Separability | None
    fault: str = ""


class Sketch(NamedTuple):
    """What a rule would do. `series` are the names it takes; empty when no series is known or named in the rule."""

    rule: Rule
    series: tuple[str, ...]
    metrics: tuple[str, ...]
    examples: tuple[Example, ...]


def named_series(series_query: str) -> str | None:
    """Return the one series name that a selector means, None when it means several or does not parse."""
    selector = _selector(series_query)
    if selector is None:
        return None
    if selector.name:
        return str(selector.name)
    for matcher in selector.matchers.matchers:
        if matcher.name == "__name__" and matcher.op in (promql.MatchOp.Equal, promql.MatchOp.Re):
            literal = _LITERAL.match(matcher.value)
            return literal[1] if literal else None
    return None


def named_labels(series_query: str) -> frozenset[str]:
    """Return the labels that a selector demands to be there: those with a matcher that the empty value does not pass."""
    selector = _selector(series_query)
    if selector is None:
        return frozenset()
    return frozenset(
        matcher.name
        for matcher in selector.matchers.matchers
        if matcher.name != "__name__"
        and ((matcher.op == promql.MatchOp.NotEqual and not matcher.value) or (matcher.op in (promql.MatchOp.Equal, promql.MatchOp.Re) and matcher.value))
    )


def _selector(text: str) -> promql.VectorSelector | None:
    try:
        parsed = promql.parse(text)
    except ValueError:
        return None
    return parsed if isinstance(parsed, promql.VectorSelector) else None


def sketch_custom(rule: Rule, known: Sequence[SeriesInfo] | None) -> Sketch:
    """Return what a custom rule would do with the series `known`, or with what its own text names when that is None."""
    series, labels = _evidence(rule, known)
    resources = rule.converter.resources_for(labels)
    shown = series[-1] if series else SERIES
    return Sketch(rule, series, _metrics(rule, series), tuple(_custom_example(rule, resource, shown) for resource in resources))


def sketch_external(rule: Rule, known: Sequence[SeriesInfo] | None) -> Sketch:
    """Return what an external rule would do; as `sketch_custom`."""
    series, _ = _evidence(rule, known)
    shown = series[-1] if series else SERIES
    try:
        parts = [] if not rule.config.resources.namespaced else [Matcher(rule.converter.label_for(NAMESPACES), "=", NAMESPACE)]
        example = Example(None, rule.render(shown, parts, []), None)
    except (NamingError, TemplateError) as error:
        example = Example(None, "", None, str(error))
    return Sketch(rule, series, _metrics(rule, series), (example,))


def _evidence(rule: Rule, known: Sequence[SeriesInfo] | None) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the series names that the rule takes, and all labels that they have."""
    if known is None:
        name = named_series(rule.config.series_query)
        labels = named_labels(rule.config.series_query) | rule.converter.by_label.keys()
        return ((name,) if name and rule.namer.name(name) is not None else ()), labels
    taken = [series for series in known if rule.namer.name(series.name) is not None]
    return tuple(series.name for series in taken), frozenset().union(*(series.labels for series in taken))


def _metrics(rule: Rule, series: Iterable[str]) -> tuple[str, ...]:
    names = (rule.namer.name(name) for name in series)
    return tuple(sorted({name for name in names if name is not None}))


def _custom_example(rule: Rule, resource: APIResource, series: str) -> Example:
    root = resource.group_resource in ROOT_SCOPED
    try:
        namespace_label = "" if root else rule.converter.label_for(NAMESPACES)
        object_label = rule.converter.label_for(resource.group_resource)
        query = MetricQuery(rule, series, matchers.from_selector(EVERYTHING), namespace_label, object_label)
        name = NAMESPACE if resource.group_resource == NAMESPACES else OBJECT
        return Example(resource, query.render(None if root else NAMESPACE, [name]), query.separability)
    except (NamingError, TemplateError) as error:
        return Example(resource, "", None, str(error))
