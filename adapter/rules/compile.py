"""Compiles the configuration to rules that name series and render queries, with a fault for each mistake.

`config` has checked shape and types. This module parses templates, regular expressions and names of
resources. A rule with a fault is left out; the others are used.
"""

import difflib
from collections.abc import Callable
from dataclasses import dataclass

import promql_parser as promql

from adapter.config import rules_config
from adapter.errors import Fault, NamingError, TemplateError, UnscrapableError
from adapter.model import quantity
from adapter.model.objects.resources import APIResource, Catalogue
from adapter.rules import lookback, matchers, naming, parsing
from adapter.rules.naming import NAMESPACES, MetricNamer, ResourceConverter
from adapter.rules.query import Dropped, QueryRule, milli_of
from adapter.rules.resource import PODS, CpuAndMemory, ResourceQuery, ResourceRules
from adapter.rules.scrape import scraped_query
from adapter.rules.scrape.scraped_query import PodLabels, ScrapedQuery
from adapter.rules.template import template
from adapter.rules.template.template import LabelTemplate, Template

# The time of the oldest sample of each object.
_AGE = template.parse("min(timestamp(<<.Series>>{<<.LabelMatchers>>})) by (<<.GroupBy>>)")

# Called with the path below the rule, the value there, and what was expected.
Report = Callable[[str, str, str], None]


@dataclass(frozen=True, slots=True, eq=False)
class Rule(QueryRule):
    """One compiled rule of a rules file.

    `age` queries the time of the oldest sample of each object. Each rule has its own: queries merge by rule.
    `scraped` is the query for one scraped pod, or that of an external rule for all its endpoints together;
    None without `scrape`. `named_series` is the series that an external rule with `scrape` names, which
    exists whether Prometheus has seen it or not.
    """

    config: rules_config.RuleConfig
    namer: MetricNamer
    converter: ResourceConverter
    age: QueryRule
    scraped: ScrapedQuery | None = None
    named_series: str = ""

    def milli(self, value: float) -> int | Dropped:
        """Return thousandths of a sample's value as `milli_of`, by the rule's `onNaN`."""
        try:
            return quantity.milli_from_float(value)  # most values are numbers, and there are many
        except OverflowError:
            return milli_of(value, nan_is_zero=self.config.on_nan is rules_config.OnNaN.ZERO)


@dataclass(frozen=True, slots=True)
class UsageEntry:
    """How pods tell their own usage of CPU: the rule of their scrapes, and the container it is about.

    `container` is "" for the container that has the scraped port. The rule names its series itself.
    """

    rule: Rule
    container: str
    series: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Ruleset:
    """The rules in use: `custom` and `external`, each in file order; a later rule takes precedence.

    `resource` is None without resource rules, and if they have a fault. `usage` is None if no CPU is scraped.
    """

    custom: tuple[Rule, ...] = ()
    external: tuple[Rule, ...] = ()
    resource: ResourceRules | None = None
    usage: UsageEntry | None = None

    def selectors(self) -> tuple[str, ...]:
        """Return the distinct series selectors in order."""
        return tuple(dict.fromkeys(rule.config.series_query for rule in (*self.custom, *self.external)))


EMPTY = Ruleset()


def compile_rules(
    config: rules_config.RulesConfig, catalogue: Catalogue, known: Ruleset = EMPTY
) -> tuple[Ruleset, tuple[Fault, ...]]:
    """Return the usable rules and every fault of the others.

    Resource rules are used as a whole or not at all.

    A rule that is unchanged since `known`, which was compiled with the same catalogue, is taken over with its
    identity, and so are the resource rules. Cached answers to its queries thereby stay in use, which matters
    while Prometheus is down.
    """
    faults: list[Fault] = []
    before = {(rule.config.source, rule.config.path): rule for rule in known.custom + known.external}

    def compiled(entry: rules_config.RuleConfig, *, describes: bool) -> Rule | None:
        rule = before.get((entry.source, entry.path))
        if rule is not None and rule.config == entry:
            return rule
        return _compile_rule(entry, catalogue, faults, describes=describes)

    custom = [rule for entry in config.rules if (rule := compiled(entry, describes=True))]
    external = [rule for entry in config.external_rules if (rule := compiled(entry, describes=False))]
    resource: ResourceRules | None = None
    usage: UsageEntry | None = None
    if config.resource_rules is not None:
        usage = _compile_usage(config.resource_rules, catalogue, faults, known.usage)
        if known.resource is not None and known.resource.config == config.resource_rules:
            resource = known.resource
        elif config.resource_rules.queries:
            resource = _compile_resource_rules(config.resource_rules, catalogue, faults)
    return Ruleset(tuple(custom), tuple(external), resource, usage), tuple(faults)


def _compile_rule(
    config: rules_config.RuleConfig,
    catalogue: Catalogue,
    faults: list[Fault],
    *,
    describes: bool = True,
    key: str = "metricsQuery",
) -> Rule | None:
    """Return the rule, None after a fault. `describes`: its metrics describe objects.

    External metrics do not. `key` is that of the query.
    """
    before = len(faults)

    def report(path: str, value: str, expected: str) -> None:
        faults.append(
            rules_config.fault_at(config, f"{config.path}.{path}", matchers.shorten(value), expected)
        )

    converter = _compile_converter(config.resources, catalogue, report)
    query = _parse_query(config.metrics_query, key, report)
    filters = [(entry.is_ or entry.is_not, not entry.is_not) for entry in config.series_filters]
    namer = naming.compile_namer(filters, config.name_matches, config.name_as, report)
    scraped = None
    named = ""
    if config.scrape is not None and converter is not None and query is not None:
        pod = _pod_labels(converter, report) if describes else None
        if not describes:
            named = _named_series(config.series_query, report)
        if pod is not None or not describes:
            scraped = _compile_scraped_query(config, pod, query, key, report)
    if len(faults) > before or converter is None or query is None or namer is None:
        return None
    accepts = config.on_warnings is rules_config.OnWarnings.ACCEPT
    age = QueryRule(config.path, _AGE, accepts)
    return Rule(config.path, query, accepts, config, namer, converter, age, scraped, named)


def _pod_labels(converter: ResourceConverter, report: Report) -> PodLabels | None:
    try:
        pod_label = converter.label_for(PODS)
    except NamingError as error:
        expected = "expected a rule that names pods, by resources.template or resources.overrides"
        report("scrape", "", f"{expected}: {error}")
        return None
    try:
        return PodLabels(pod_label, converter.label_for(NAMESPACES))
    except NamingError:
        return PodLabels(pod_label, "")


def _named_series(selector: str, report: Report) -> str:
    """Return the one series that a selector names, "" after a report."""
    try:
        parsed = parsing.parse(selector)
    except ValueError:
        parsed = None
    is_plain = isinstance(parsed, promql.VectorSelector) and not parsed.matchers.or_matchers
    name = parsing.series_name(parsed) if is_plain else ""
    if not matchers.is_series_name(name):
        expected = (
            "expected the name of one series, such as queue_depth{...}: endpoints are scraped for it before "
            "Prometheus has seen it"
        )
        report("seriesQuery", selector, expected)
    return name


def _compile_scraped_query(
    config: rules_config.RuleConfig, pod: PodLabels | None, query: Template, key: str, report: Report
) -> ScrapedQuery | None:
    """Return the query for one pod, or for all endpoints together; None after a report."""
    source = config.scrape.source if config.scrape is not None else None
    absent = () if source is None or source.service else ("job",)  # the name of a PodMonitor
    try:
        return scraped_query.compile_query(query, pod=pod, absent=absent)
    except UnscrapableError as error:
        about = "" if pod is None else " for one pod by itself"
        expected = f"expected a query that scrape can evaluate{about}: {parsing.show(str(error))}"
        report(key, config.metrics_query, expected)
        return None


def _parse_query(text: str, path: str, report: Report) -> Template | None:
    if excess := parsing.find_excess(text):
        report(path, text, f"expected a shorter query: {excess}")
        return None
    try:
        return template.parse(text)
    except TemplateError as error:
        report(path, text, f"expected a Go template with << >>: {error}")
        return None


def _compile_converter(
    config: rules_config.ResourcesConfig, catalogue: Catalogue, report: Report
) -> ResourceConverter | None:
    """Return the converter of a rule, or None after a report."""
    label_template, pattern = None, None
    good = True
    if config.template:
        try:
            label_template = LabelTemplate(config.template)
            pattern = matchers.compile_expression(label_template.pattern())
            if "resource" not in pattern.groupindex:
                raise TemplateError("it has none")  # noqa: TRY301 - as the parser's
        except (TemplateError, ValueError) as error:
            good = False
            expected = f"expected a label name with <<.Resource>> in it: {error}"
            report("resources.template", config.template, expected)
    overrides: dict[str, APIResource] = {}
    for override in config.overrides:
        resource = catalogue.lookup(override.resource, override.group or None)
        if resource is None:
            good = False
            shown = f"{override.resource}.{override.group}" if override.group else override.resource
            close = difflib.get_close_matches(override.resource.lower(), catalogue.names(), n=1)
            hint = f" (did you mean {close[0]}?)" if close else ", singular or plural, not a short name"
            place = f"resources.overrides.{override.label}"
            report(place, shown, f"expected a resource of the cluster{hint}")
        else:
            overrides[override.label] = resource
    return ResourceConverter(overrides, label_template, pattern, catalogue) if good else None


def _compile_resource_rules(
    config: rules_config.ResourceRulesConfig, catalogue: Catalogue, faults: list[Fault]
) -> ResourceRules | None:
    cpu = _compile_resource_rule(config, "cpu", config.cpu, catalogue, faults)
    memory = _compile_resource_rule(config, "memory", config.memory, catalogue, faults)
    return None if cpu is None or memory is None else ResourceRules(config, *map(CpuAndMemory, cpu, memory))


_COUNTER = "sum(rate(process_cpu_seconds_total{<<.LabelMatchers>>}[1m])) by (<<.GroupBy>>)"
"""What Prometheus' client libraries expose of their process. The window is that of `scrape`."""


_PLAIN = rules_config.ResourcesConfig("<<.Resource>>")
"""The labels of a scraped usage whose rule names none: a scrape belongs to its pod, whatever these are."""


def _compile_usage(
    config: rules_config.ResourceRulesConfig,
    catalogue: Catalogue,
    faults: list[Fault],
    known: UsageEntry | None,
) -> UsageEntry | None:
    """Return the rule by which pods are scraped for their CPU, None without one and after a fault."""
    scraped = config.cpu
    if scraped.scrape is None:
        return None
    rule = rules_config.RuleConfig(
        f"{config.path}.cpu.scrape",
        config.source,
        config.line,
        resources=_PLAIN if scraped.resources == rules_config.ResourcesConfig() else scraped.resources,
        metrics_query=scraped.scrape.query or _COUNTER,
        scrape=scraped.scrape.scrape,
        lines=config.lines,
    )
    if "<<.Series>>" in rule.metrics_query.replace(" ", ""):
        expected = "expected the name of a series: <<.Series>> stands for none here"
        text = matchers.shorten(rule.metrics_query)
        faults.append(rules_config.fault_at(rule, f"{rule.path}.query", text, expected))
        return None
    compiled = known.rule if known is not None and known.rule.config == rule else None
    compiled = compiled or _compile_rule(rule, catalogue, faults, key="query")
    return None if compiled is None else UsageEntry(compiled, scraped.scrape.container)


def _compile_resource_rule(
    whole: rules_config.ResourceRulesConfig,
    kind: str,
    config: rules_config.ResourceRuleConfig,
    catalogue: Catalogue,
    faults: list[Fault],
) -> tuple[ResourceQuery, ResourceQuery] | None:
    """Return the queries for containers and nodes, or None after a report of each fault."""
    place = f"{whole.path}.{kind}"

    def report(below: str, value: str, expected: str) -> None:
        faults.append(rules_config.fault_at(whole, f"{place}.{below}", matchers.shorten(value), expected))

    converter = _compile_converter(config.resources, catalogue, report)
    containers = _parse_query(config.container_query, "containerQuery", report)
    nodes = _parse_query(config.node_query, "nodeQuery", report)
    if converter is None or containers is None or nodes is None:
        return None
    accepts = whole.on_warnings is rules_config.OnWarnings.ACCEPT

    def compiled(key: str, query: Template, label: str | None) -> ResourceQuery:
        path = f"{place}.{key}"
        times = lookback.usage_age(query)
        age = None if times is None else ResourceQuery(path, times, accepts, converter, label)
        return ResourceQuery(path, query, accepts, converter, label, age)

    return compiled("containerQuery", containers, config.container_label), compiled("nodeQuery", nodes, None)
