"""The CPU that pods expose themselves: where they do, and whether the scaler uses it.

Pods are read through the API server (`pods/proxy`), so a kubeconfig is enough. A pod chooses what it answers:
the body is bounded and only searched for the name of a series, and nothing of it is shown.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from adapter.config.rules_config import MAX_BYTES
from adapter.errors import KubernetesError
from adapter.kubernetes.client import KubernetesClient
from adapter.model.autoscaling.hpa import Condition
from adapter.model.autoscaling.status import FAST_USAGE
from fastpath_tools.live.api_objects import PodDocument
from fastpath_tools.live.facts import MetricsPort, Unread, UsageVerdict

COUNTER = "process_cpu_seconds_total"
"""What Prometheus' client libraries expose of the CPU that their process used."""

_SAMPLE = re.compile(rb"^" + COUNTER.encode() + rb"[ \t{]", re.MULTILINE)

_PODS = 2
_PORTS = 3
"""How many pods are read at most, and how many ports of each."""

SECONDS = 2.0
"""The timeout of one of these requests."""

_PATH = re.compile(r"(?:/[A-Za-z0-9][A-Za-z0-9._-]*)+")
"""A path without dot segments, which would lead to other objects of the API server."""

_ASKED = re.compile(r"(?P<metrics>.*(?:metric|prom).*)|(?:http|web|admin|management).*|")
"""Names of ports that may be asked; a port of another protocol should not see a request."""


def metrics_ports(pod: PodDocument) -> tuple[MetricsPort, ...]:
    """Return the ports where a pod may expose metrics, the likeliest first."""
    ports = sorted(_ports(pod), key=lambda rated: rated[0])
    return tuple(dict.fromkeys(port for _, port in ports))[:_PORTS]


def _ports(pod: PodDocument) -> Iterator[tuple[int, MetricsPort]]:
    """Yield the ports, each with its place in the order."""
    annotations = pod.metadata.annotations or {}
    annotated, path = annotations.get("prometheus.io/port", ""), annotations.get("prometheus.io/path", "")
    path = path if _PATH.fullmatch(path) else "/metrics"
    for container in pod.spec.containers:
        for port in container.ports or ():
            number, named = port.container_port, _ASKED.fullmatch(port.name)
            key = port.name or str(number)
            if port.protocol != "TCP" or not 0 < number < 65536:
                continue
            if str(number) == annotated:
                yield 0, MetricsPort(key, number, path, container.name)
            elif named is not None:
                rank = 1 if named["metrics"] else 2
                yield rank, MetricsPort(key, number, "/metrics", container.name)


async def find_port(
    client: KubernetesClient, namespace: str, pods: Sequence[str], ports: Sequence[MetricsPort]
) -> MetricsPort | Unread | None:
    """Return the first port where a pod exposes `COUNTER`, None if none does."""
    for pod in pods[:_PODS]:
        answered = False
        for port in ports:
            path = f"/api/v1/namespaces/{namespace}/pods/{pod}:{port.number}/proxy{port.path}"
            try:
                async with asyncio.timeout(SECONDS):
                    body = await client.get_start(path, MAX_BYTES)
            except KubernetesError as error:
                if error.status == 403 and "pods/proxy" in error.said:
                    return Unread("you may not read pods through the API server (get pods/proxy)")
                continue
            except TimeoutError:
                continue
            answered = True
            if _SAMPLE.search(body):
                return port
        if answered:
            break
    return None


def read_verdict(conditions: Iterable[Condition], given: Mapping[str, Any] | None = None) -> UsageVerdict:
    """Return whether the scaler uses the usage that pods expose.

    `conditions` are those of the autoscaler, and `given` is what the scaler shows of the metric, if known.
    """
    condition = next((one for one in conditions if one.type == FAST_USAGE), None)
    if condition is None:
        return UsageVerdict(None, "the scaler has no such rule")
    if condition.status == "True" or (given is not None and "faster" in given):
        return UsageVerdict(True)
    why = condition.message if given is None else given.get("notFaster") or condition.message
    return UsageVerdict(False, why, condition.reason)
