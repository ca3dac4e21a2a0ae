"""The sources of metrics: the rule that makes one, its query, and the series that the query reads.

The query is the one that the server sends, made by the same code.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import promql_parser as promql

from adapter.config.rules_config import Parsed
from adapter.errors import NamingError, PrometheusError, TemplateError, UnscrapableError
from adapter.model import steps
from adapter.model.autoscaling.hpa import MetricSpec
from adapter.model.clock import Clock
from adapter.model.metrics import SeriesInfo
from adapter.provider import spec_queries
from adapter.rules import compile as compiler
from adapter.rules import lookback, matchers, parsing, registry
from adapter.rules.compile import Rule, Ruleset, UsageEntry
from adapter.rules.matchers import Matcher
from adapter.rules.naming import NAMESPACES
from adapter.rules.registry import Registry
from adapter.rules.resource import PODS
from adapter.rules.scrape import scraped_query
from adapter.rules.scrape.scraped_query import PodLabels
from fastpath_tools.live import preview, reading
from fastpath_tools.live.cluster import GROUPS, LiveCluster
from fastpath_tools.live.facts import SeriesFacts, SourceFacts, TargetFacts, Unread
from fastpath_tools.live.preview import SeriesLists
from fastpath_tools.live.servers import PrometheusReader

_WINDOWS = (("5m", 300.0), ("1m", 60.0), ("10s", 10.0))
"""The windows over which samples are counted; the longest that the series are old enough for."""

_PODS = 20
_SELECTORS = 4
"""How many pods a query names, and how many selectors of a query are looked at."""


@dataclass(eq=False)  # its answers are kept in it
class SourceReader:
    """Finds the sources of metrics.

    `given` are rules from files, None to read them from the cluster. `prometheus` is None without an address.
    """

    cluster: LiveCluster
    given: Parsed | None
    prometheus: PrometheusReader | None
    clock: Clock

    async def source(
        self, namespace: str, metric: MetricSpec, target: TargetFacts | Unread
    ) -> SourceFacts | Unread | None:
        """Return the source of a metric, None for one that no rule of custom or external metrics makes."""
        if metric.type not in {"Pods", "Object", "External"}:
            return None
        known = await self._registry(GROUPS[metric.type])
        if isinstance(known, Unread):
            return known
        pods = () if isinstance(target, Unread) else target.ready[:_PODS]
        rule_query = spec_queries.query_of(known, await self.cluster.catalogue(), namespace, metric, pods)
        if isinstance(rule_query, str):
            return await self._unmatched(namespace, metric, pods) or Unread(rule_query)
        rule, query = rule_query.rule, rule_query.promql
        of_pods, scrape = metric.type == "Pods", rule.config.scrape
        endpoints = None
        if scrape is not None and scrape.source is not None:
            endpoints = await self.cluster.endpoints(scrape)
        return SourceFacts(
            rule.path,
            query,
            lookback.lookback_of(query),
            await self._series(query),
            scrape if of_pods or endpoints is not None else None,
            of_pods and _is_scrapable(rule),
            rule.config.ttl or 0.0,
            endpoints,
        )

    async def _unmatched(self, namespace: str, metric: MetricSpec, pods: Sequence[str]) -> SourceFacts | None:
        """Return the source of a metric whose rule selects no series, None if no rule names the metric."""
        ruleset = await self._ruleset(GROUPS[metric.type])
        if isinstance(ruleset, Unread) or self.prometheus is None:
            return None
        named = steps.run(registry.building(ruleset, remember_series(ruleset, {}), 1))
        catalogue = await self.cluster.catalogue()
        rule_query = spec_queries.query_of(named, catalogue, namespace, metric, pods)
        if isinstance(rule_query, str):
            return None
        selector = rule_query.rule.config.series_query
        try:
            series = SeriesFacts(False, excluding=await self._excluding(selector))
        except PrometheusError:
            return None
        return SourceFacts(f"{rule_query.rule.path}.seriesQuery", selector, None, series)

    async def scrapes(self, metrics: Sequence[MetricSpec]) -> bool:
        """Tell whether one of these metrics may be scraped: a rule of its API has `scrape`."""
        for group in {GROUPS[metric.type] for metric in metrics if metric.type in GROUPS}:
            rules = await self._ruleset(group)
            every = () if isinstance(rules, Unread) else (*rules.custom, *rules.external)
            if any(rule.config.scrape is not None for rule in every):
                return True
        return False

    async def usage(self) -> UsageEntry | None:
        """Return how pods are scraped for their CPU; None without a rule that can be read."""
        for group in dict.fromkeys(GROUPS.values()):  # the rules are Fastpath's, which may serve any of them
            ruleset = await self._ruleset(group)
            if not isinstance(ruleset, Unread) and (usage := ruleset.usage) is not None:
                return usage
        return None

    # -- rules -----------------------------------------------------------------------------------------------

    @reading.shared
    async def _registry(self, group: str) -> Registry | Unread:
        ruleset = await self._ruleset(group)
        if isinstance(ruleset, Unread):
            return ruleset
        lists: SeriesLists = {}
        if self.prometheus is not None:
            lists = await self.prometheus.lists(ruleset.selectors())
        return steps.run(registry.building(ruleset, remember_series(ruleset, lists), 1))

    @reading.shared
    async def _ruleset(self, group: str) -> Ruleset | Unread:
        parsed = self.given
        if parsed is None:
            config = await self.cluster.rules(group)
            if isinstance(config, Unread):
                return config
            parsed = Parsed(config)
        ruleset, _ = compiler.compile_rules(parsed.config, await self.cluster.catalogue())
        return ruleset

    # -- Prometheus ------------------------------------------------------------------------------------------

    @reading.shared
    async def delay(self) -> float | Unread:
        """Return how many seconds of the newest past the engine hides: how far its now is behind ours."""
        if self.prometheus is None:
            return Unread("give --prometheus-url")
        now = self.clock.wall()
        try:
            seen = await self._one("time()", now)
        except PrometheusError as error:
            return Unread(f"cannot query Prometheus: {error}")
        return 0.0 if seen is None else max(now - seen, 0.0)

    async def _series(self, query: str) -> SeriesFacts | Unread:
        """Return how often the series of a query are scraped.

        Of several the slowest counts: the result is no newer than that.
        """
        if self.prometheus is None:
            return Unread("how often Prometheus scrapes is not known: give --prometheus-url")
        facts: list[SeriesFacts] = []
        try:
            for selector in selectors_of(query)[:_SELECTORS]:
                newest = await self._one(f"max(timestamp({selector}))", self.clock.wall())
                if newest is not None:
                    age = self.clock.wall() - newest
                    facts.append(SeriesFacts(True, await self._interval(selector), age))
            if not facts:
                return SeriesFacts(False, excluding=await self._excluding(query))
        except PrometheusError as error:
            return Unread(f"cannot query Prometheus: {error}")
        return max(facts, key=lambda each: (each.interval or 0.0, each.age or 0.0))

    async def _excluding(self, query: str) -> str:
        """Return the matcher without which a selector of the query has series, "" if there is no such one.

        Samples may come between two queries, so all series are asked for again, at the time of the others.
        """
        now = self.clock.wall()
        for name, written in _selectors(query)[:_SELECTORS]:
            for matcher in written:
                others = matchers.join(other for other in written if other != matcher)
                if not name and not others:
                    continue
                if await self._one(f"count({name}{{{others}}})", now) is None:
                    continue
                if await self._one(f"count({name}{{{matchers.join(written)}}})", now) is None:
                    return f"{name} has series, but not with {matcher}"
        return ""

    async def _interval(self, selector: str) -> float | None:
        for window, length in _WINDOWS:
            samples = f"count_over_time({selector}[{window}]) and {selector} offset {window}"
            count = await self._one(f"avg({samples})", self.clock.wall())
            if count is not None and count >= 2:
                return length / count
        return None

    async def _one(self, query: str, at: float) -> float | None:
        """Return the first value of a query, None without one. PrometheusError."""
        assert self.prometheus is not None
        result = await self.prometheus.client.query(query, at)
        return result.samples[0].value if result.samples else None


def selectors_of(query: str) -> list[str]:
    """Return the selectors of series in a query, without offsets, each once; none for what does not parse."""
    return [f"{name}{{{matchers.join(written)}}}" for name, written in _selectors(query)]


def _selectors(query: str) -> list[tuple[str, tuple[Matcher, ...]]]:
    try:
        parsed = parsing.parse(query)
    except ValueError:
        return []
    nodes = [node for node in parsing.nodes(parsed) if isinstance(node, promql.VectorSelector)]
    matched = [tuple(map(parsing.read_matcher, node.matchers.matchers)) for node in nodes]
    return list(dict.fromkeys(zip((node.name or "" for node in nodes), matched, strict=True)))


def remember_series(ruleset: Ruleset, lists: SeriesLists) -> registry.SeriesMemory:
    """Return the series of the rules; where Prometheus does not say, those that the rules name."""
    memory: dict[str, tuple[registry.KnownSeries, ...]] = {}
    for rule_preview in preview.preview_rules(ruleset, {}):
        selector = rule_preview.rule.config.series_query
        series = lists.get(selector)
        if series is None or isinstance(series, PrometheusError):
            series = tuple(SeriesInfo(name, rule_preview.labels, 0) for name in rule_preview.series)
        memory = steps.run(registry.remembering(memory, selector, series))
    return memory


def _is_scrapable(rule: Rule) -> bool:
    """Tell whether `scrape` could be added to a rule that has none."""
    if rule.config.scrape is not None:
        return False
    try:
        pod_label = rule.converter.label_for(PODS)
        labels = PodLabels(pod_label, rule.converter.label_for(NAMESPACES))
        scraped_query.compile_query(rule.query, pod=labels)
    except (NamingError, TemplateError, UnscrapableError):
        return False
    return True
