"""What rules and resource rules define: their metrics, objects and example queries, and whether these merge.

A rule is previewed with the series of Prometheus if they are known, otherwise with what the rule itself
names.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import promql_parser as promql

from adapter.config.rules_config import ResourceRulesConfig, RuleConfig
from adapter.errors import NamingError, PrometheusError, TemplateError
from adapter.model.metrics import GroupResource, SeriesInfo
from adapter.model.objects.resources import APIResource
from adapter.rules import matchers, parsing
from adapter.rules.compile import Rule, Ruleset
from adapter.rules.matchers import Matcher
from adapter.rules.mergeable import Separability
from adapter.rules.naming import NAMESPACES
from adapter.rules.query import MetricQuery
from adapter.rules.registry import ROOT_SCOPED
from adapter.rules.resource import NODES, PODS, ResourceQuery, ResourceRules

SeriesLists = Mapping[str, tuple[SeriesInfo, ...] | PrometheusError]
"""By series selector: the series that it matches, or why they are unknown."""

# Placeholders for a series, a namespace and an object.
SERIES, NAMESPACE, OBJECT = "SERIES", "NAMESPACE", "NAME"

CUSTOM, EXTERNAL, RESOURCE = "custom.metrics.k8s.io", "external.metrics.k8s.io", "metrics.k8s.io"

# A regular expression that matches the names alone that it has.
_LITERALS = re.compile(r"\^?(\()?[\w:]+(?:\|[\w:]+)*(?(1)\))\$?\Z", re.ASCII)


class Example(NamedTuple):
    """The queries for one kind of object, or for an external metric (`resource` None).

    `promql` is for one object, `everything` for all of them. Both are "" if there is no query; then `fault`
    says why, and `fault_path` where in the rule. `label` has the names of the objects; it is "" for external
    metrics.
    """

    resource: APIResource | None
    promql: str
    everything: str = ""
    label: str = ""
    separability: Separability | None = None
    fault: str = ""
    fault_path: str = ""


class RulePreview(NamedTuple):
    """What a rule defines.

    `known` are the series of its selector, None if Prometheus was not queried. `series` are the names it
    takes, of `known` or from the rule itself; `labels` are the labels of these series.
    """

    rule: Rule
    external: bool
    known: tuple[SeriesInfo, ...] | None
    series: tuple[str, ...]
    labels: frozenset[str]
    metrics: tuple[str, ...]
    examples: tuple[Example, ...]

    @property
    def config(self) -> RuleConfig:
        return self.rule.config

    @property
    def path(self) -> str:
        return self.rule.config.path

    @property
    def api(self) -> str:
        return EXTERNAL if self.external else CUSTOM

    @property
    def main(self) -> Example | None:
        """The most telling example: one that is not about namespaces, if there is one."""
        others = (
            example
            for example in self.examples
            if example.resource is None or example.resource.group_resource != NAMESPACES
        )
        return next(others, next(iter(self.examples), None))


class ResourcePreview(NamedTuple):
    """What one of the four templates of the resource rules defines.

    The `fault_path` of the example is ``resources`` where a label is missing, else the template's own key.
    """

    query: ResourceQuery
    config: ResourceRulesConfig
    main: Example

    @property
    def path(self) -> str:
        """The template's place, such as ``resourceRules.cpu.containerQuery``."""
        return self.query.path

    @property
    def api(self) -> str:
        return RESOURCE


def parse_selector(text: str) -> promql.VectorSelector:
    """Parse a `seriesQuery`. Raises ValueError with the reason."""
    parsed = parsing.parse(text)
    if not isinstance(parsed, promql.VectorSelector) or parsed.offset is not None or parsed.at is not None:
        what = (
            "an expression"
            if not isinstance(parsed, promql.VectorSelector)
            else "a selector with offset or @"
        )
        raise ValueError(f"it is {what}, not a selector of series")
    return parsed


def named_series(series_query: str) -> str | None:
    """Return the only series name that a selector matches, None if it matches several or does not parse."""
    names = selected_names(series_query)
    return names[0] if len(names) == 1 else None


def selected_names(series_query: str) -> tuple[str, ...]:
    """Return the series names that a selector lists, none if it may match others or does not parse."""
    selector = _selector(series_query)
    if selector is None:
        return ()
    if selector.name:
        return (str(selector.name),)
    for matcher in selector.matchers.matchers:
        if matcher.name == "__name__" and matcher.op == promql.MatchOp.Equal:
            return (str(matcher.value),)
        if matcher.name == "__name__" and matcher.op == promql.MatchOp.Re:
            return tuple(matcher.value.strip("^$()").split("|")) if _LITERALS.match(matcher.value) else ()
    return ()


def demanded_labels(series_query: str) -> frozenset[str]:
    """Return the labels that a series needs to match a selector; empty for a text that does not parse."""
    selector = _selector(series_query)
    known = () if selector is None else selector.matchers.matchers
    # a missing label counts as the empty text
    return frozenset(one.name for one in known if one.name != "__name__" and not _passes(one, ""))


def may_name(series_query: str, name: str) -> bool:
    """Whether a selector can match series of a name; false for a text that does not parse."""
    selector = _selector(series_query)
    if selector is None or selector.name not in {None, name}:
        return False
    return all(_passes(matcher, name) for matcher in selector.matchers.matchers if matcher.name == "__name__")


def _selector(text: str) -> promql.VectorSelector | None:
    try:
        return parse_selector(text)
    except ValueError:
        return None


def _passes(matcher: promql.Matcher, text: str) -> bool:
    if matcher.op == promql.MatchOp.Equal:
        return bool(matcher.value == text)
    if matcher.op == promql.MatchOp.NotEqual:
        return bool(matcher.value != text)
    try:
        expression = matchers.compile_expression(f"^(?:{matcher.value})$")
    except ValueError:  # the parser's regular expressions are not quite Go's: undecided
        return True
    return (expression.search(text) is not None) is (matcher.op == promql.MatchOp.Re)


def preview_rules(ruleset: Ruleset, lists: SeriesLists) -> list[RulePreview]:
    """Return what the rules define, custom rules first; selectors may be absent from `lists`."""
    rules = [(rule, False) for rule in ruleset.custom] + [(rule, True) for rule in ruleset.external]
    previews = []
    for rule, external in rules:
        known = lists.get(rule.config.series_query)
        known = None if isinstance(known, PrometheusError) else known
        previews.append(preview_rule(rule, known, external=external))
    return previews


def preview_rule(rule: Rule, known: Sequence[SeriesInfo] | None, *, external: bool) -> RulePreview:
    """Return what a rule defines from the series `known`, or from its own text if that is None."""
    if known is None:
        name = named_series(rule.config.series_query)
        series: tuple[str, ...] = (name,) if name and rule.namer.name(name) is not None else ()
        labels = frozenset(demanded_labels(rule.config.series_query) | rule.converter.by_label.keys())
    else:
        taken = [one for one in known if rule.namer.name(one.name) is not None]
        series = tuple(one.name for one in taken)
        labels = frozenset().union(*(one.labels for one in taken))
    shown = series[-1] if series else SERIES
    if external:
        examples: tuple[Example, ...] = (_external_example(rule, shown),)
    else:
        kinds = sorted(rule.converter.resources_for(labels), key=lambda kind: str(kind.group_resource))
        examples = tuple(_custom_example(rule, kind, shown) for kind in kinds)
    metrics = {metric for name in series if (metric := rule.namer.name(name)) is not None}
    return RulePreview(
        rule,
        external,
        None if known is None else tuple(known),
        series,
        labels,
        tuple(sorted(metrics)),
        examples,
    )


def _custom_example(rule: Rule, resource: APIResource, series: str) -> Example:
    kind = resource.group_resource
    try:
        namespace_label = "" if kind in ROOT_SCOPED else rule.converter.label_for(NAMESPACES)
        query = MetricQuery(rule, series, (), namespace_label, rule.converter.label_for(kind))
    except (NamingError, TemplateError) as error:
        return Example(resource, "", fault=str(error), fault_path="resources")
    return _example(query, resource, NAMESPACE if kind == NAMESPACES else OBJECT, "metricsQuery")


def _external_example(rule: Rule, series: str) -> Example:
    try:
        label = rule.converter.label_for(NAMESPACES) if rule.config.resources.namespaced else ""
    except (NamingError, TemplateError) as error:
        return Example(None, "", fault=str(error), fault_path="resources")
    one = [Matcher(label, "=", NAMESPACE)] if label else []
    everything = [matchers.present(label)] if label else []
    try:
        return Example(None, rule.render(series, one, []), rule.render(series, everything, []))
    except TemplateError as error:
        return Example(None, "", fault=str(error), fault_path="metricsQuery")


def preview_resource_rules(rules: ResourceRules) -> tuple[ResourcePreview, ...]:
    """Return what the four templates define: cpu before memory, containers before nodes."""
    containers, nodes = rules.containers, rules.nodes
    queries = (containers.cpu, nodes.cpu, containers.memory, nodes.memory)
    kinds = (PODS, NODES, PODS, NODES)
    return tuple(
        ResourcePreview(query, rules.config, _resource_example(query, kind))
        for query, kind in zip(queries, kinds, strict=True)
    )


def _resource_example(query: ResourceQuery, kind: GroupResource) -> Example:
    resource = query.converter.catalogue.find(kind)
    try:
        metric_query = query.metric_query(kind)
    except (NamingError, TemplateError) as error:
        return Example(resource, "", fault=str(error), fault_path="resources")
    return _example(metric_query, resource, OBJECT, query.path.rpartition(".")[2])


def _example(query: MetricQuery, resource: APIResource | None, name: str, template: str) -> Example:
    """Return the queries for an object called `name`, and for all; `template` is the key of the template."""
    label = query.object_label
    present = [matchers.present(used) for used in (query.namespace_label, label) if used]
    try:
        one, everything = query.render(NAMESPACE, [name]), query.render_with(present)
    except TemplateError as error:
        return Example(resource, "", label=label, fault=str(error), fault_path=template)
    return Example(resource, one, everything, label, query.separability)


# A rate needs two samples; four scrapes leave room for one lost scrape and for the offset between window and
# scrapes.
SCRAPES_IN_WINDOW = 4
