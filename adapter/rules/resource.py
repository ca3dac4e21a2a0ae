"""The rules of the resource metrics API: queries and samples of the cpu and memory of containers and nodes.

They differ from other rules in that they name no series and no metric, and in that a pod has several samples,
one for each of its containers. A usage is complete or absent: a value that is missing, NaN, infinite or
negative is absent, and because an absent value of one container would make the pod's sum too small, the pod
is absent too.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from adapter.config.rules_config import ResourceRulesConfig
from adapter.model.metrics import ContainerUsage, GroupResource, ObjectUsage, Sample, Usage
from adapter.rules.naming import NAMESPACES, ResourceConverter
from adapter.rules.query import Dropped, MetricQuery, QueryRule, last_samples, milli_of

PODS = GroupResource("", "pods")
NODES = GroupResource("", "nodes")
KINDS: Mapping[str, GroupResource] = {"pods": PODS, "nodes": NODES}

NEGATIVE = Dropped("negative")
INCOMPLETE = Dropped("incomplete")


@dataclass(frozen=True, slots=True, eq=False)
class ResourceQuery(QueryRule):
    """One of the four templates, such as ``resourceRules.cpu.containerQuery``.

    `part_label` has the names of containers; it is None for nodes. `age` queries the times of the oldest
    samples; it is None if the query does not show which samples those are.
    """

    converter: ResourceConverter
    part_label: str | None = None
    age: "ResourceQuery | None" = None

    def metric_query(self, resource: GroupResource) -> MetricQuery:
        """Return the query for all requests for pods, or for nodes. Raises NamingError or TemplateError."""
        namespace_label = self.converter.label_for(NAMESPACES) if resource == PODS else ""
        return MetricQuery(self, "", (), namespace_label, self.converter.label_for(resource), self.part_label)


class CpuAndMemory(NamedTuple):
    cpu: ResourceQuery
    memory: ResourceQuery

    @property
    def tells_ages(self) -> bool:
        """Whether the times of the samples behind both can be queried."""
        return self.cpu.age is not None and self.memory.age is not None


@dataclass(frozen=True, slots=True, eq=False)
class ResourceRules:
    config: ResourceRulesConfig
    containers: CpuAndMemory
    nodes: CpuAndMemory

    def pair(self, resource: GroupResource) -> CpuAndMemory:
        return self.containers if resource == PODS else self.nodes


class UsageSamples(NamedTuple):
    """The samples of one object in the order received, and the label with the names of its containers."""

    samples: Sequence[Sample]
    label: str | None = None


class Absent(NamedTuple):
    """Why an object has no usage: a label of a self-metric, and a sentence for the log."""

    reason: Dropped
    text: str


def pod_usage(
    namespace: str, name: str, labels: Mapping[str, str], cpu: UsageSamples, memory: UsageSamples
) -> ObjectUsage | Absent | None:
    """Return the usage of a pod, why it is absent, or None without samples of cpu or of memory.

    Containers are keyed by their label, a missing one counts as ""; the last sample of a container counts. A
    pod with a container that lacks one of the values is absent: readers add containers up, and some take a
    missing value for 0.
    """
    if not cpu.samples or not memory.samples:
        return None
    cpus, memories = (last_samples(one.samples, one.label or "") for one in (cpu, memory))
    if lonely := sorted(cpus.keys() ^ memories.keys()):
        there, missing = ("cpu", "memory") if lonely[0] in cpus else ("memory", "cpu")
        return Absent(INCOMPLETE, f"container {lonely[0]!r} has {there} and no {missing}")
    containers = []
    for container in sorted(cpus):
        usage = _usage(cpus[container], memories[container])
        if isinstance(usage, Dropped):
            return Absent(usage, f"container {container!r} has an unusable value ({usage})")
        containers.append(ContainerUsage(container, usage))
    total = Usage(sum(part.usage.cpu for part in containers), sum(part.usage.memory for part in containers))
    earliest = min(sample.time for sample in (*cpu.samples, *memory.samples))
    return ObjectUsage(namespace, name, labels, earliest, total, tuple(containers))


def node_usage(
    name: str, labels: Mapping[str, str], cpu: UsageSamples, memory: UsageSamples
) -> ObjectUsage | Absent | None:
    """Return the usage of a node from its first samples, as upstream, or why it is absent; None without."""
    if not cpu.samples or not memory.samples:
        return None
    first_cpu, first_memory = cpu.samples[0], memory.samples[0]
    usage = _usage(first_cpu, first_memory)
    if isinstance(usage, Dropped):
        return Absent(usage, f"the node has an unusable value ({usage})")
    return ObjectUsage("", name, labels, min(first_cpu.time, first_memory.time), usage)


def _usage(cpu: Sample, memory: Sample) -> Usage | Dropped:
    milli_cpu, milli_memory = _milli(cpu.value), _milli(memory.value)
    if isinstance(milli_cpu, Dropped):
        return milli_cpu
    return milli_memory if isinstance(milli_memory, Dropped) else Usage(milli_cpu, milli_memory)


def _milli(value: float) -> int | Dropped:
    """Return thousandths, truncated as upstream does, or why a value is absent, which upstream makes 0."""
    if -math.inf < value < 0:
        return NEGATIVE
    return milli_of(value, nan_is_zero=False)
