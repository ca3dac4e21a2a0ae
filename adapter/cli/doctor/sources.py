"""The sources of metrics.

The rule that makes one, the query that it sends, and the series that the query reads. The query is the one
that the server sends, made by the same code.
"""

from collections.abc import Sequence
from typing import NamedTuple

import promql_parser as promql

from adapter.cli.check.servers import PrometheusReader
from adapter.cli.check.wanted import Wanted, build_query, locate
from adapter.cli.doctor.cluster import ClusterContext
from adapter.cli.doctor.facts import Scraped, SeriesFacts, SourceFacts, Unread
from adapter.cli.doctor.read import GROUPS
from adapter.config import rules_file
from adapter.config.rules_file import Parsed
from adapter.errors import (
    NamingError,
    PrometheusError,
    TemplateError,
    UnscrapableError,
    UnsupportedSelectorError,
)
from adapter.model.autoscaling.hpa import MetricIdentifier, MetricSpec
from adapter.model.clock import Clock
from adapter.model.go_text import quote
from adapter.model.metrics import SeriesInfo
from adapter.model.resources import APIResource
from adapter.model.selectors import api_selectors
from adapter.prometheus.client import Querier
from adapter.rules import compile as compiler
from adapter.rules import lookback, matchers, preview, registry
from adapter.rules.compile import Rule, Ruleset
from adapter.rules.matchers import Matcher
from adapter.rules.naming import NAMESPACES
from adapter.rules.registry import Registry
from adapter.rules.resource import PODS
from adapter.rules.scrape import pod_query as scrape
from adapter.rules.trace import Lists

_WINDOWS = (("5m", 300.0), ("1m", 60.0), ("10s", 10.0))
"""Over which times samples are counted, the longest that the series are old enough for."""

_PODS = 20
_SELECTORS = 4


class _Rules(NamedTuple):
    """The rules behind an API, and what they make of the series there are."""

    ruleset: Ruleset
    known: Registry


class SourceReader:
    """The rules, and Prometheus where there is an address of it."""

    def __init__(
        self, around: ClusterContext, given: Parsed | None, prometheus: PrometheusReader | None, clock: Clock
    ) -> None:
        """`given` are rules from files; with None they are read from the cluster."""
        self._around = around
        self._given = given
        self._prometheus = prometheus
        self._clock = clock

    async def delay(self) -> float | Unread:
        """Return how many seconds of the newest past the engine hides.

        What it takes for now, beside what it was asked for.
        """
        if self._prometheus is None:
            return Unread("give --prometheus-url")
        return await self._around.once("delay", lambda: self._read_delay(self._querier))

    async def _read_delay(self, querier: Querier) -> float | Unread:
        now = self._clock.wall()
        try:
            result = await querier.query("time()", now)
        except PrometheusError as error:
            return Unread(f"Prometheus cannot be asked: {error}")
        return max(now - result.samples[0].value, 0.0) if result.samples else 0.0

    @property
    def _querier(self) -> Querier:
        assert self._prometheus is not None
        return self._prometheus.client

    async def source(
        self, namespace: str, metric: MetricSpec, pods: Sequence[str]
    ) -> SourceFacts | Unread | None:
        """Return where a metric comes from, None for one that no rule of custom or external metrics makes."""
        group = GROUPS.get(metric.type, "")
        if metric.type in {"Resource", "ContainerResource"} or not group:
            return None
        rules = await self._around.once(f"ruleset {group}", lambda: self._read_rules(group))
        if isinstance(rules, Unread):
            return rules
        try:
            made = await self._query_of(rules, namespace, metric, pods)
        except (NamingError, TemplateError, UnsupportedSelectorError, ValueError) as error:
            return Unread(f"the query of the metric cannot be made: {error}")
        if isinstance(made, Unread):
            return made
        rule, query = made
        pod_query = None if metric.type != "Pods" else rule.config.scrape
        scraped = None if pod_query is None else Scraped(pod_query.access.interval, pod_query.window)
        return SourceFacts(
            rule.path,
            query,
            lookback.lookback_of(query),
            await self._series(query),
            scraped,
            metric.type == "Pods" and _is_scrapable(rule),
            rule.config.ttl or 0.0,
        )

    # -- rules -----------------------------------------------------------------------------------------------
    # ---------------

    async def _read_rules(self, group: str) -> "_Rules | Unread":
        parsed = self._given
        if parsed is None:
            texts = await self._around.rules(group)
            if isinstance(texts, Unread):
                return texts
            configs = [rules_file.parse_rules(text, source).config for source, text in texts]
            parsed = Parsed(rules_file.merge(configs)[0], (), ())
        catalogue = await self._around.catalogue()
        ruleset, _ = compiler.compile_rules(parsed.config, catalogue)
        return _Rules(ruleset, registry.build(ruleset, await self._memory(ruleset), 1))

    async def _memory(self, ruleset: Ruleset) -> registry.SeriesMemory:
        """Return the series of the rules.

        Those there are, and where Prometheus does not say, those that the rules name.
        """
        lists: Lists = {} if self._prometheus is None else await self._prometheus.lists(ruleset.selectors())
        memory: dict[str, tuple[registry.KnownSeries, ...]] = {}
        for made in [
            *(preview.sketch(rule, None, external=False) for rule in ruleset.custom),
            *(preview.sketch(rule, None, external=True) for rule in ruleset.external),
        ]:
            selector = made.rule.config.series_query
            found = lists.get(selector)
            if found is None or isinstance(found, PrometheusError):
                found = tuple(SeriesInfo(name, made.labels, 0) for name in made.series)
            memory = registry.remember(memory, selector, found)
        return memory

    async def _query_of(
        self, rules: "_Rules", namespace: str, metric: MetricSpec, pods: Sequence[str]
    ) -> tuple[Rule, str] | Unread:
        """Return the rule that makes a metric, and the query it sends for it."""
        if metric.external is not None:
            return _external_query(rules.known, namespace, metric.external.metric)
        identifier, wanted = None, None
        if metric.pods is not None:
            identifier, wanted = metric.pods.metric, Wanted("pods", namespace, "")
        elif metric.object is not None:
            described = metric.object.described_object
            group = described.api_version.rpartition("/")[0]
            kind = f"{described.kind}.{group}" if group else described.kind
            root = _is_namespace((await self._around.catalogue()).lookup(described.kind, group))
            place = Wanted(kind, None, namespace) if root else Wanted(kind, namespace, described.name)
            identifier, wanted = metric.object.metric, place
        assert identifier is not None
        assert wanted is not None
        entry = locate(rules.known, await self._around.catalogue(), identifier.name, wanted)
        if isinstance(entry, str):
            return Unread(f"no rule that was read makes {identifier.name} for {wanted.kind}")
        query = build_query(entry, wanted, _matchers(identifier))
        if isinstance(query, str):
            return Unread(query)
        if metric.pods is None:
            return entry.rule, query.render(wanted.namespace, [wanted.name])
        if pods:
            return entry.rule, query.render(namespace, pods[:_PODS])
        within = [Matcher(query.namespace_label, "=", namespace)] if query.namespace_label else []
        return entry.rule, query.render_with([*within, matchers.present(query.object_label)])

    # -- series ----------------------------------------------------------------------------------------------
    # ---------------

    async def _series(self, query: str) -> SeriesFacts | Unread:
        """Return how often the series of a query are scraped.

        Of several the slowest, for a value is no newer than that.
        """
        if self._prometheus is None:
            return Unread("how often Prometheus scrapes is not known: give --prometheus-url")
        found: list[SeriesFacts] = []
        try:
            for selector in selectors_of(query)[:_SELECTORS]:
                newest = await self._one(f"max(timestamp({selector}))")
                if newest is not None:
                    age = self._clock.wall() - newest
                    found.append(SeriesFacts(True, await self._interval(selector), age))
        except PrometheusError as error:
            return Unread(f"Prometheus cannot be asked: {error}")
        if not found:
            return SeriesFacts(False)
        return max(found, key=lambda each: (each.interval or 0.0, each.age or 0.0))

    async def _interval(self, selector: str) -> float | None:
        for window, length in _WINDOWS:
            count = await self._one(
                f"avg(count_over_time({selector}[{window}]) and {selector} offset {window})"
            )
            if count is not None and count >= 2:
                return length / count
        return None

    async def _one(self, query: str) -> float | None:
        result = await self._querier.query(query, self._clock.wall())
        return result.samples[0].value if result.samples else None


def selectors_of(query: str) -> list[str]:
    """Return the selectors of series in a query, without offsets, each once; none for what does not parse."""
    found: dict[str, None] = {}

    def look(node: object) -> bool:
        if isinstance(node, promql.VectorSelector):
            written = [
                f"{matchers.write_label(each.name)}{_OPERATORS[str(each.op)]}{quote(each.value)}"
                for each in node.matchers.matchers
            ]
            found[f"{node.name or ''}{{{','.join(written)}}}"] = None
        return True

    try:
        promql.walk(promql.parse(query), look)
    except ValueError:
        return []
    return list(found)


_OPERATORS = {"MatchOp.Equal": "=", "MatchOp.NotEqual": "!=", "MatchOp.Re": "=~", "MatchOp.NotRe": "!~"}


def _external_query(
    known: Registry, namespace: str, identifier: MetricIdentifier
) -> tuple[Rule, str] | Unread:
    entry = known.external.get(identifier.name.lower())
    if entry is None:
        return Unread(f"no rule that was read makes the external metric {identifier.name.lower()}")
    parts = list(_matchers(identifier))
    if entry.rule.config.resources.namespaced:
        parts.append(Matcher(entry.rule.converter.label_for(NAMESPACES), "=", namespace))
    return entry.rule, entry.rule.render(entry.series, parts, [])


def _matchers(identifier: MetricIdentifier) -> tuple[Matcher, ...]:
    return matchers.from_selector(api_selectors.compile_selector(identifier.selector))


def _is_namespace(resource: APIResource | None) -> bool:
    return resource is not None and resource.group_resource == NAMESPACES


def _is_scrapable(rule: Rule) -> bool:
    """Tell whether `scrape` could be added to a rule that has none."""
    if rule.config.scrape is not None:
        return False
    try:
        pod_label = rule.converter.label_for(PODS)
        scrape.compile_query(rule.query, pod_label, rule.converter.label_for(NAMESPACES))
    except (NamingError, TemplateError, UnscrapableError):
        return False
    return True
