"""What `fastpath doctor` reads of one autoscaler.

Its object, its target with the pods, the values that it gets. What the user may not read is `Unread` with the
server's words.
"""

import statistics
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote

from adapter.cli.doctor.cluster import ClusterContext, age_of, fetch, fetch_pods, why
from adapter.cli.doctor.codec import FPA, HPA, ItemList, PodDocument
from adapter.cli.doctor.facts import AnswerFacts, Starts, TargetFacts, Unread
from adapter.errors import KubernetesError, RunError
from adapter.kubernetes.client import KubernetesClient
from adapter.kubernetes.metrics_api import Described, MetricsAPI
from adapter.model import api_selectors
from adapter.model.autoscaling.fastpath_autoscaler import API_VERSION, PLURAL
from adapter.model.autoscaling.hpa import CrossVersionObjectReference, MetricIdentifier, MetricSpec, Scale
from adapter.model.clock import Clock
from adapter.model.resources import BUILTIN, APIResource
from adapter.model.timestamps import SECOND
from adapter.rules import matchers

_HPAS = "/apis/autoscaling/v2"
_FPAS = f"/apis/{API_VERSION}"

GROUPS = {
    "Pods": "custom.metrics.k8s.io",
    "Object": "custom.metrics.k8s.io",
    "External": "external.metrics.k8s.io",
    "Resource": "metrics.k8s.io",
    "ContainerResource": "metrics.k8s.io",
}
"""The API that answers each type of metric."""


class Workload(NamedTuple):
    """The target of an autoscaler: its facts, and the names of its pods."""

    target: TargetFacts | Unread
    pods: tuple[str, ...] = ()


class AutoscalerReader:
    """The autoscalers of a cluster, their targets, and the answers that they get."""

    def __init__(self, client: KubernetesClient, clock: Clock, around: ClusterContext) -> None:
        self._client = client
        self._clock = clock
        self._around = around
        self._metrics = MetricsAPI(client)

    async def hpas(self, namespace: str) -> tuple[HPA, ...]:
        """Return the autoscalers of a namespace, of all with "". KubernetesError."""
        within = f"/namespaces/{namespace}" if namespace else ""
        return (await fetch(self._client, f"{_HPAS}{within}/horizontalpodautoscalers", ItemList[HPA])).items

    async def fpas(self, namespace: str) -> tuple[FPA, ...] | Unread:
        """Return the FastPathAutoscalers of a namespace, of all with "".

        None if the cluster lacks the kind.
        """
        within = f"/namespaces/{namespace}" if namespace else ""
        try:
            return (await fetch(self._client, f"{_FPAS}{within}/{PLURAL}", ItemList[FPA])).items
        except KubernetesError as error:
            return () if error.status == 404 else Unread(why(error))

    async def check_namespace(self, namespace: str) -> None:
        """Raise RunError if the cluster has no such namespace; nothing where that may not be read."""
        try:
            await self._client.get(f"/api/v1/namespaces/{quote(namespace, safe='')}")
        except KubernetesError as error:
            if error.status == 404:
                raise RunError(f"there is no namespace {namespace}") from error

    async def workload(self, namespace: str, reference: CrossVersionObjectReference) -> Workload:
        """Return the Scale of a target, and its pods."""
        try:
            resource = await self._resource(reference.kind, reference.api_version)
            if resource is None:
                return Workload(Unread(f"the cluster has no kind {reference.kind}"))
            path = f"{_root(resource)}/namespaces/{namespace}/{resource.plural}/{reference.name}/scale"
            scale = await fetch(self._client, path, Scale)
        except KubernetesError as error:
            return Workload(Unread(why(error)))
        target = TargetFacts(scale.spec.replicas, scale.status.selector)
        if not target.selector:
            return Workload(target)
        try:
            pods = await fetch_pods(self._client, namespace, target.selector)
        except KubernetesError:
            return Workload(target)
        ready = [pod for pod in pods if pod.ready is not None]
        facts = target._replace(ready=len(ready), starts=starts_of(ready))
        return Workload(facts, tuple(pod.metadata.name for pod in ready))

    async def _resource(self, kind: str, api_version: str) -> APIResource | None:
        group = api_version.rpartition("/")[0]
        return BUILTIN.lookup(kind, group) or (await self._around.catalogue()).lookup(kind, group)

    async def answer(
        self, hpa: HPA, metric: MetricSpec, target: TargetFacts | Unread
    ) -> AnswerFacts | Unread:
        """Ask for a metric as the HPA does."""
        namespace = hpa.metadata.namespace
        asked = self._clock.monotonic()
        try:
            if metric.external is not None:
                selector = _selector_text(metric.external.metric)
                external = await self._metrics.external(namespace, metric.external.metric.name, selector)
                values = [float(each.value.approximate()) for each in external]
                return AnswerFacts(len(values), self._clock.monotonic() - asked, sum(values))
            if metric.object is not None:
                described = metric.object.described_object
                resource = await self._resource(described.kind, described.api_version)
                if resource is None:
                    return Unread(f"the cluster has no kind {described.kind}")
                place = Described(str(resource.group_resource), namespace, described.name)
                selector = _selector_text(metric.object.metric)
                custom = await self._metrics.described(place, metric.object.metric.name, selector)
                values = [float(each.value.approximate()) for each in custom]
                return AnswerFacts(len(values), self._clock.monotonic() - asked, sum(values))
            if isinstance(target, Unread):
                return Unread(f"whose pods are asked about is not known: {target.why}")
            if metric.pods is not None:
                selector = _selector_text(metric.pods.metric)
                custom = await self._metrics.pods(
                    namespace, metric.pods.metric.name, target.selector, selector
                )
                return AnswerFacts(len(custom), self._clock.monotonic() - asked)
            usages = await self._metrics.resource(namespace, target.selector)
        except ValueError as error:
            return Unread(f"the selector of the metric cannot be used: {error}")
        except KubernetesError as error:
            return AnswerFacts(
                0, self._clock.monotonic() - asked, error=matchers.shorten(why(error)), status=error.status
            )
        took = self._clock.monotonic() - asked
        windows = [each.window / SECOND for each in usages if each.window]
        ages = [age for each in usages if (age := age_of(self._clock, each.timestamp)) is not None]
        return AnswerFacts(
            len(usages),
            took,
            window=max(windows, default=None),
            age=statistics.median(ages) if ages else None,
        )


def starts_of(pods: Sequence[PodDocument]) -> Starts | None:
    """Return how long pods took to become ready, of those that never restarted; None without one."""
    took = [
        (pod.ready.last_transition_time - pod.metadata.creation_timestamp) / SECOND
        for pod in pods
        if pod.ready is not None
        and pod.ready.last_transition_time is not None
        and pod.metadata.creation_timestamp is not None
        and not any(each.restart_count for each in pod.status.container_statuses or ())
    ]
    took = [max(each, 0.0) for each in took]
    return Starts(statistics.median(took), max(took), len(took)) if took else None


def _root(resource: APIResource) -> str:
    return f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"


def _selector_text(metric: MetricIdentifier) -> str:
    return str(api_selectors.compile_selector(metric.selector))
