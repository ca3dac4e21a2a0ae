"""An autoscaler of a live cluster and the rules behind its metrics. Only reads, and only what is named."""

import asyncio

from msgspec.structs import replace

from adapter.config import rules_file
from adapter.config.rules_file import RulesConfig
from adapter.errors import RunError
from adapter.kubernetes.client import KubernetesClient
from adapter.model.apiservices import ServiceReference
from adapter.model.autoscaling import fastpath_autoscaler
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND, KIND
from adapter.model.clock import Clock
from adapter.model.resources import Catalogue
from fastpath_tools.live.cluster import GROUPS, LiveCluster
from fastpath_tools.live.cluster_options import NAMESPACE, SERVICE
from fastpath_tools.live.facts import Unread
from fastpath_tools.loads.autoscaler import GivenAutoscaler


class LiveReader:
    """Reads one autoscaler of a cluster, its kinds and the rules of its metrics."""

    def __init__(self, client: KubernetesClient, clock: Clock) -> None:
        # the service matters only to questions that are not asked here
        self._cluster = LiveCluster(client, clock, ServiceReference(NAMESPACE, SERVICE), "")

    async def autoscaler(self, namespace: str, name: str) -> GivenAutoscaler:
        """Return an autoscaler by its name. RunError if it does not exist."""
        hpas, fpas = await asyncio.gather(self._cluster.hpas(namespace), self._cluster.fpas(namespace))
        for hpa in hpas:
            if hpa.metadata.name == name:
                found = fastpath_autoscaler.from_hpa(hpa)
                # the conversion drops those of boost, which say how long a raise is held
                meta = replace(found.metadata, annotations=hpa.metadata.annotations)
                place = f"{HPA_KIND} {namespace}/{name}"
                return GivenAutoscaler(replace(found, metadata=meta), HPA_KIND, place)
        for fpa in () if isinstance(fpas, Unread) else fpas:
            if fpa.metadata.name == name:
                return GivenAutoscaler(fpa, KIND, f"{KIND} {namespace}/{name}")
        await self._cluster.check_namespace(namespace)
        unread = f", and {KIND}s cannot be read: {fpas.why}" if isinstance(fpas, Unread) else ""
        raise RunError(f"there is no {HPA_KIND} and no {KIND} {namespace}/{name}{unread}")

    async def catalogue(self) -> Catalogue:
        return await self._cluster.catalogue()

    async def rules(self, kinds: set[str]) -> RulesConfig:
        """Return the rules of the servers that answer metrics of these types. RunError without rules."""
        configs = []
        for group in sorted({GROUPS[kind] for kind in kinds}):
            texts = await self._cluster.rules(group)
            if isinstance(texts, Unread):
                raise RunError(f"{group}: {texts.why}")
            configs += [rules_file.parse_rules(text, source).config for source, text in texts]
        return rules_file.merge(configs)[0]
