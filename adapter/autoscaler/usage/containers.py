"""Which container of a pod a scraped usage is of, and what the containers of a pod use and may use.

A sidecar is a container as the others are: metrics APIs list its usage, and an HPA adds it.
"""

import math
from collections.abc import Mapping, Sequence

from adapter.autoscaler.decide.observation import sum_usage
from adapter.model.autoscaling.hpa import PodMetrics
from adapter.model.objects.pods import PodFacts
from adapter.rules.compile import UsageEntry


def find_container(pod: PodFacts, entry: UsageEntry) -> str:
    """Return the container that the values are about, "" if it is not known."""
    scrape = entry.rule.config.scrape
    assert scrape is not None, "usages are scraped"
    only = pod.containers[0].name if is_alone(pod) else ""
    return entry.container or only or pod.port_owners.get(scrape.access.port, "")


def is_alone(pod: PodFacts) -> bool:
    """Tell whether a pod has one container and no sidecar."""
    if len(pod.containers) > 1 or not pod.init_containers:
        return len(pod.containers) == 1
    return not any(init.restart_policy == "Always" for init in pod.init_containers)


def find_limit(pod: PodFacts, container: str) -> float:
    """Return the limit of a container in thousandths, infinity without one or if it is not known which."""
    for other in (*pod.containers, *pod.init_containers):
        if other.name == container and other.resources is not None and other.resources.limits:
            limit = other.resources.limits.get("cpu")
            return math.inf if limit is None else float(limit.milli)
    return math.inf


def usage_of_others(
    items: Mapping[str, PodMetrics], pods: Sequence[PodFacts], entry: UsageEntry
) -> dict[str, int]:
    """Return what the other containers of each pod used last; that of "" is the mean, for new pods."""
    others: dict[str, int] = {}
    for pod in pods:
        if is_alone(pod) or (item := items.get(pod.name)) is None:
            continue
        whole, part = sum_usage(item, "cpu", ""), sum_usage(item, "cpu", find_container(pod, entry))
        if whole is not None and part is not None:
            others[pod.name] = whole - part
    if others:
        others[""] = round(sum(others.values()) / len(others))
    return others
