"""Warnings: what loads and would still surprise its author. Each is a mistake met in public configurations.

A warning has a place, a value and a sentence, as a fault has; unlike a fault it stops nothing.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import promql_parser as promql

from adapter.errors import Fault, NamingError
from adapter.rules import matchers
from adapter.rules.compile import Rule, Ruleset
from adapter.rules.naming import NAMESPACES
from adapter.rules.sketch import Sketch, named_series, sketch_custom, sketch_external

# A rate needs two samples; four scrapes leave room for one lost scrape and for the offset between window and scrapes.
SCRAPES_IN_WINDOW = 4
_RATES = frozenset({"rate", "irate", "increase", "delta", "idelta", "deriv"})
_REFERENCE = re.compile(r"\$([A-Za-z0-9_]+)")


def lint(ruleset: Ruleset, sketches: Iterable[Sketch], scrape_interval: float) -> list[Fault]:
    """Return the warnings for rules and what they would do; `scrape_interval` in seconds."""
    external = set(ruleset.external)
    found: list[Fault] = []
    by_metric: dict[tuple[bool, str], Rule] = {}
    for sketch in sketches:
        rule, is_external = sketch.rule, sketch.rule in external
        found += _name_warnings(rule, sketch.metrics, is_external=is_external)
        found += _query_warnings(sketch, scrape_interval, is_external=is_external)
        for metric in sketch.metrics:
            earlier = by_metric.setdefault((is_external, metric), rule)
            if earlier is not rule and _share_resources(earlier, rule, is_external=is_external):
                found.append(_warning(rule, "name", metric, f"{earlier.config.path} makes the same metric; the later rule answers where both could"))
                by_metric[is_external, metric] = rule
    return list(dict.fromkeys(found))  # what is true for pods is often true for namespaces too


def sketches(ruleset: Ruleset) -> list[Sketch]:
    """Return what all rules would do, told from their text alone."""
    return [*(sketch_custom(rule, None) for rule in ruleset.custom), *(sketch_external(rule, None) for rule in ruleset.external)]


def _share_resources(first: Rule, second: Rule, *, is_external: bool) -> bool:
    if is_external:
        return True
    known = [{each.resource for each in sketch_custom(rule, None).examples} for rule in (first, second)]
    return bool(known[0] & known[1]) or not (known[0] and known[1])


def _name_warnings(rule: Rule, metrics: Iterable[str], *, is_external: bool) -> Iterator[Fault]:
    expansion = rule.config.name_as
    if rule.namer.expansion and all(piece.group is None for piece in rule.namer.expansion):
        metrics = {*metrics, "".join(piece.text for piece in rule.namer.expansion)}
    for metric in sorted(metrics):
        if not metric:
            yield _warning(rule, "name.as", expansion, "the metric name comes out empty and can never be asked for")
        if "/" in metric:
            yield _warning(rule, "name.as", metric, "a name with a slash can never be asked for")
        if is_external and metric != metric.lower():
            yield _warning(rule, "name.as", metric, "HorizontalPodAutoscalers ask for external metrics in lower case and never find a name with capitals")
    for reference in _REFERENCE.findall(expansion):
        if not reference.isdigit() and reference not in rule.namer.matches.groupindex:
            yield _warning(rule, "name.as", f"${reference}", f"there is no such group, so this is empty: write ${{{_leading_number(reference)}}} to end the name of the group")


def _leading_number(reference: str) -> str:
    digits = re.match(r"\d+", reference)
    return digits[0] if digits else reference


def _query_warnings(sketch: Sketch, scrape_interval: float, *, is_external: bool) -> Iterator[Fault]:
    rule = sketch.rule
    query = rule.config.metrics_query
    yield from _label_warnings(rule, is_external=is_external)
    if not query:
        yield _warning(rule, "metricsQuery", "", "there is no query, so every request for this metric fails")
        return
    if is_external and "GroupBy" in rule.query.fields():
        yield _warning(rule, "metricsQuery", "<<.GroupBy>>", "external metrics describe no object, so this is empty and the query is summed to one value")
    fixed = named_series(rule.config.series_query)
    if "Series" not in rule.query.fields() and fixed is None and len(sketch.series) != 1:
        yield _warning(rule, "metricsQuery", "", "the query does not use <<.Series>> although seriesQuery may match several names")
    for example in sketch.examples:
        if not example.promql:
            yield _warning(rule, "resources", str(example.resource.group_resource) if example.resource else "namespaces", f"requests fail: {example.fault}")
            continue
        try:
            parsed = promql.parse(example.promql)
        except ValueError as error:
            yield _warning(rule, "metricsQuery", matchers.shorten(example.promql), f"this PromQL does not parse: {matchers.shorten(str(error))}")
            return
        yield from _window_warnings(rule, parsed, scrape_interval)
        if example.resource is not None and _loses_label(parsed, rule.converter.label_for(example.resource.group_resource)):
            label = rule.converter.label_for(example.resource.group_resource)
            yield _warning(rule, "metricsQuery", "", f"the result has no label {label}, so {example.resource.group_resource} are never found: group by it")


def _label_warnings(rule: Rule, *, is_external: bool) -> Iterator[Fault]:
    resources = rule.config.resources
    if not is_external and not resources.namespaced:
        yield _warning(rule, "resources.namespaced", "false", "this has an effect on externalRules only")
    try:
        rule.converter.label_for(NAMESPACES)
    except NamingError:
        if is_external and resources.namespaced:
            yield _warning(rule, "resources", "", "no label for namespaces, so every request fails: add an override for namespace, or namespaced: false")
        elif not is_external and rule.converter.by_label:
            yield _warning(rule, "resources.overrides", "", "no label for namespaces, so objects in namespaces cannot be asked for: add an override for namespace")
    if not is_external and not rule.converter.by_label and rule.converter.template is None:
        yield _warning(rule, "resources", "", "neither overrides nor a template: no object is ever found on the series, and the metric is not listed")
    seen: dict[object, str] = {}
    for label, resource in rule.converter.by_label.items():
        earlier = seen.setdefault(resource.group_resource, label)
        if earlier != label:
            yield _warning(rule, f"resources.overrides.{label}", str(resource.group_resource), f"{earlier} names the same resource; queries use {label}, the one that comes last")


def _window_warnings(rule: Rule, node: Any, scrape_interval: float) -> Iterator[Fault]:
    found: dict[str, None] = {}

    def look(part: Any) -> bool:
        if isinstance(part, promql.Call) and part.func.name in _RATES:
            for argument in part.args:
                if isinstance(argument, promql.MatrixSelector) and argument.range.total_seconds() < SCRAPES_IN_WINDOW * scrape_interval:
                    found[promql.display_duration(argument.range)] = None
        return True

    promql.walk(node, look)
    for window in found:
        yield _warning(rule, "metricsQuery", f"[{window}]", f"shorter than {SCRAPES_IN_WINDOW} scrapes of {scrape_interval:g} s: the value comes and goes with a single lost scrape")


def _loses_label(node: Any, label: str) -> bool:
    """Whether an aggregation at the top drops the label that names the objects."""
    while isinstance(node, promql.ParenExpr | promql.UnaryExpr):
        node = node.expr
    if isinstance(node, promql.Call) and node.func.name in {"scalar", "vector", "time"}:
        return True
    if not isinstance(node, promql.AggregateExpr) or str(node.op) in {"topk", "bottomk", "limitk", "limit_ratio"}:
        return False
    if node.modifier is None:
        return True
    by = node.modifier.type == promql.AggModifierType.By
    return (label in node.modifier.labels) is not by


def _warning(rule: Rule, path: str, value: str, sentence: str) -> Fault:
    return Fault(f"{rule.config.path}.{path}", value, sentence, rule.config.source, rule.config.line)


