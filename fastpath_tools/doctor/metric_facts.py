"""What is read of one metric: its value as the HPA controller gets it, its rule, and what its pods expose."""

from collections.abc import Sequence

import msgspec

from adapter.model.autoscaling import boost
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.autoscaling.hpa import Condition, MetricSpec, decode_scalar
from fastpath_tools.live import resizes, usages
from fastpath_tools.live.api_objects import HPA
from fastpath_tools.live.cluster import GROUPS, LiveCluster
from fastpath_tools.live.facts import MetricFacts, TargetFacts, Unread, UsageFacts, UsageVerdict
from fastpath_tools.live.scaler_access import LeaderReader
from fastpath_tools.live.sources import SourceReader

USAGES = frozenset({"Resource", "ContainerResource"})
"""The types of metrics that are about CPU or memory."""


class MetricReader:
    def __init__(self, cluster: LiveCluster, sources: SourceReader, scaler: LeaderReader) -> None:
        self._cluster = cluster
        self._sources = sources
        self._scaler = scaler

    async def read(
        self,
        autoscaler: HPA | FastPathAutoscaler,
        place: int,
        metric: MetricSpec,
        target: TargetFacts | Unread,
    ) -> MetricFacts:
        """Return the facts of a metric; `place` is its place among the autoscaler's own."""
        if metric.type not in GROUPS:
            unread = Unread(f"the type of the metric, {metric.type or 'none'}, is not known to this version")
            return MetricFacts(label(metric), metric, unread, unread, unread)
        namespace = autoscaler.metadata.namespace
        serving = await self._cluster.serving(GROUPS[metric.type])
        source = await self._sources.source(namespace, metric, target)
        answer = await self._cluster.answer(namespace, metric, target)
        facts = MetricFacts(label(metric), metric, serving, answer, source)
        if metric.type not in USAGES:
            return facts
        return facts._replace(
            usage=await self._usage(autoscaler, place, metric, target), resize=_resize(metric, target)
        )

    async def scrape_fault(self, autoscaler: HPA | FastPathAutoscaler, own: Sequence[MetricSpec]) -> str:
        """Return which scrape fails for its own metrics, as its scaler shows it, "" for none."""
        if not await self._sources.scrapes(own):
            return ""
        meta = autoscaler.metadata
        document = await self._scaler.read(
            await self._cluster.leaders(meta.namespace), meta.namespace, meta.name
        )
        shown = () if isinstance(document, Unread) else document.get("metrics", ())
        for metric, seen in zip(own, shown, strict=False):
            if fault := seen.get("scrapeFault"):
                return f"a scrape for {label(metric)} fails: {fault}"
        return ""

    async def _usage(
        self,
        autoscaler: HPA | FastPathAutoscaler,
        place: int,
        metric: MetricSpec,
        target: TargetFacts | Unread,
    ) -> UsageFacts | None:
        """Return what is known of the pods' own usage; None for another resource than CPU."""
        resource, container = _resource(metric)
        if resource != "cpu":
            return None
        rule = await self._sources.usage()
        usage = UsageFacts()
        if rule is not None:
            query = rule.rule.scraped
            is_rate = query is not None and query.counts
            verdict = await self._verdict(autoscaler, place)
            usage = UsageFacts(rule.rule.path, rule.rule.config.scrape, is_rate, verdict)
        if usage.verdict != UsageVerdict() or isinstance(target, Unread):
            return usage if usage.rule else None
        ports = tuple(port for port in target.ports if container in {"", port.container})
        namespace = autoscaler.metadata.namespace
        return usage._replace(port=await self._cluster.counter_port(namespace, target.ready, ports))

    async def _verdict(self, autoscaler: HPA | FastPathAutoscaler, place: int) -> UsageVerdict:
        """Return whether the scaler uses what pods expose: by its conditions, or as the owner shows it."""
        meta = autoscaler.metadata
        if isinstance(autoscaler, FastPathAutoscaler):
            return usages.read_verdict((autoscaler.status and autoscaler.status.conditions) or ())
        if not boost.read_annotations(meta.annotations).mode:
            return UsageVerdict()  # the scaler does not follow it
        leaders = await self._cluster.leaders(meta.namespace)
        document = await self._scaler.read(leaders, meta.namespace, meta.name)
        if isinstance(document, Unread):
            return UsageVerdict(None, document.why)
        listed = document["status"].get("conditions") or []
        conditions = msgspec.convert(listed, tuple[Condition, ...], dec_hook=decode_scalar)
        inputs = [] if document["last"] is None else document["last"]["inputs"]
        return usages.read_verdict(conditions, inputs[place] if place < len(inputs) else {})


def _resource(metric: MetricSpec) -> tuple[str, str]:
    """Return resource and container of a resource metric."""
    source = metric.resource or metric.container_resource
    assert source is not None
    return source.name, getattr(source, "container", "")


def _resize(metric: MetricSpec, target: TargetFacts | Unread) -> str:
    """Return which requests a target utilization counts against, "" if those of the spec are in effect."""
    source = metric.resource or metric.container_resource
    if isinstance(target, Unread) or source is None or source.target.average_utilization is None:
        return ""
    return resizes.describe(target.resizes, len(target.ready), *_resource(metric))


def label(metric: MetricSpec) -> str:
    """Return the name of a metric as hops have it."""
    if metric.container_resource is not None:
        return f"{metric.container_resource.name} of container {metric.container_resource.container}"
    if metric.resource is not None:
        return metric.resource.name
    source = metric.pods or metric.object or metric.external
    return source.metric.name if source is not None else metric.type or "metric without a type"
