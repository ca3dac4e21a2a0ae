"""An autoscaler of a live cluster and the rules behind its metrics. Only reads, and only what is named."""

import asyncio

from msgspec.structs import replace

from adapter.config import rules_file
from adapter.config.rules_file import RulesConfig
from adapter.errors import RunError
from adapter.model.autoscaling import fastpath_autoscaler
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND, KIND
from fastpath_tools.live.cluster import GROUPS, LiveCluster, absent
from fastpath_tools.live.facts import Unread
from fastpath_tools.loads.autoscaler import GivenAutoscaler


async def find_autoscaler(cluster: LiveCluster, namespace: str, name: str) -> GivenAutoscaler:
    """Return an autoscaler by its name. RunError if it does not exist."""
    hpas, fpas = await asyncio.gather(cluster.hpas(namespace), cluster.fpas(namespace))
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
    await cluster.check_namespace(namespace)
    raise absent(namespace, name, fpas)


async def find_rules(cluster: LiveCluster, kinds: set[str]) -> RulesConfig:
    """Return the rules of the servers that answer metrics of these types. RunError without rules."""
    configs = []
    for group in sorted({GROUPS[kind] for kind in kinds}):
        texts = await cluster.rules(group)
        if isinstance(texts, Unread):
            raise RunError(f"{group}: {texts.why}")
        configs += [rules_file.parse_rules(text, source).config for source, text in texts]
    return rules_file.merge(configs)[0]
