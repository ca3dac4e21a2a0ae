"""A stand-in for the HorizontalPodAutoscaler controller of kube-controller-manager.

The controller syncs every HorizontalPodAutoscaler of the cluster once in a period. It reads metrics only
through the metrics APIs, on the paths and in the order of the real controller's clients.
`autoscaler.decide.decision` computes the replicas, with the real controller's settings and by the legacy
algorithm or by behavior, as the object says. Each sync decides once, however often the write has to be
repeated. The controller records no events.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec
from msgspec.structs import replace

from adapter.autoscaler.decide import decision, prepared_spec
from adapter.autoscaler.decide.history import History
from adapter.autoscaler.decide.observation import NO_STATUS, Reading, Settings, Unavailable
from adapter.autoscaler.decide.sync import Decision
from adapter.errors import KubernetesError
from adapter.kubernetes import client, credentials
from adapter.kubernetes.client import KubernetesClient
from adapter.kubernetes.discovery import fetch_discovery
from adapter.kubernetes.metrics_api import MetricsAPI
from adapter.model import timestamps
from adapter.model.autoscaling.hpa import (
    CrossVersionObjectReference,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerStatus,
    MetricIdentifier,
    MetricSpec,
    Scale,
    decode_scalar,
    encode_scalar,
    with_defaults,
)
from adapter.model.clock import Clock
from adapter.model.objects import api_selectors
from adapter.model.objects.api_objects import ObjectMeta, Struct
from adapter.model.objects.label_selectors import LabelSelector
from adapter.model.objects.pods import Pod, facts_of
from adapter.model.objects.resources import APIResource, Catalogue
from adapter.model.timestamps import Instant
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from fastpath_tools.evaluate_document import EvaluateDocument, Metrics, observe

PERIOD = 15.0
"""``--horizontal-pod-autoscaler-sync-period`` by default, in seconds."""

_AUTOSCALERS = "/apis/autoscaling/v2"
_APIS = {
    "Pods": "custom",
    "Object": "custom",
    "External": "external",
    "Resource": "resource",
    "ContainerResource": "resource",
}
_CONFLICT = 409
_LOOK_SECONDS = 1.0
_WRITE_SECONDS = 10.0
_MANAGER = "kube-controller-manager"
_ATTEMPTS = 5
_PAUSE = 0.01
_JITTER = 0.1
"""``retry.DefaultRetry`` of client-go: attempts to write a Scale, seconds between them, and their jitter."""


class HPAKey(NamedTuple):
    namespace: str
    name: str


class _NamedObject(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class _NamedObjectList(Struct, frozen=True):
    items: tuple[_NamedObject, ...] | None = None


class _PodList(Struct, frozen=True):
    items: tuple[Pod, ...] | None = None


class Adapter(NamedTuple):
    """A server of the metrics APIs: its base URL, the PEM file of its authority, and the bearer token."""

    url: str
    authority: Path
    token: str


class NativeController:
    """Syncs every autoscaler of a cluster while `run` runs.

    `cluster` is the API server. `metrics` serves the metrics APIs: the API server, or a server behind it.
    `random` gives numbers in [0, 1); first syncs are spread over a period with it, as those of objects of
    different age are.
    """

    def __init__(
        self,
        cluster: KubernetesClient,
        metrics: MetricsAPI,
        clock: Clock,
        *,
        period: float = PERIOD,
        settings: Settings | None = None,
        random: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._clock = clock
        self._period = period
        self._settings = settings or Settings()
        self._random = random
        self._catalogue = Catalogue(())
        self._histories: dict[HPAKey, History] = {}
        self._selectors: dict[HPAKey, LabelSelector] = {}

    async def start(self) -> None:
        """Discover the kinds of the cluster; KubernetesError if that fails."""
        self._catalogue = (await fetch_discovery(self._cluster)).catalogue

    async def run(self) -> None:
        following: dict[HPAKey, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as group:
            while True:
                listed = await self._list()
                keys = set(following if listed is None else listed)
                for key in keys - following.keys():
                    following[key] = group.create_task(self._sync_loop(key), name=f"native autoscaler {key}")
                for key in following.keys() - keys:
                    following.pop(key).cancel()
                for key in (self._histories.keys() | self._selectors.keys()) - keys:
                    self._histories.pop(key, None)
                    self._selectors.pop(key, None)
                await asyncio.sleep(min(_LOOK_SECONDS, self._period))

    async def sync(self, key: HPAKey) -> Decision | None:
        """Sync one autoscaler now; None if the object cannot be read, which changes nothing."""
        path = f"{_AUTOSCALERS}/namespaces/{key.namespace}/horizontalpodautoscalers/{key.name}"
        try:
            document = msgspec.json.decode((await self._cluster.get(path)).content)
        except KubernetesError:
            return None
        hpa = msgspec.convert(document, HorizontalPodAutoscaler, dec_hook=decode_scalar)
        hpa = replace(hpa, spec=with_defaults(hpa.spec))
        outcome = await self._reconcile(key, hpa)
        self._histories[key] = outcome.history
        if outcome.status_changed:
            document["status"] = _plain(outcome.status)
            with contextlib.suppress(KubernetesError):  # the next sync tries again
                await self._put(f"{path}/status", document)
        return outcome

    async def _list(self) -> list[HPAKey] | None:
        """Return all autoscalers, None if they cannot be read."""
        try:
            body = await self._cluster.get(f"{_AUTOSCALERS}/horizontalpodautoscalers")
        except KubernetesError:
            return None
        listed = msgspec.json.decode(body.content, type=_NamedObjectList, dec_hook=decode_scalar)
        return [HPAKey(hpa.metadata.namespace, hpa.metadata.name) for hpa in listed.items or ()]

    async def _sync_loop(self, key: HPAKey) -> None:
        """Sync one autoscaler, each time a period after the end of the last sync."""
        await asyncio.sleep(self._random() * self._period)
        while True:
            await self.sync(key)
            await asyncio.sleep(self._period)

    async def _reconcile(self, key: HPAKey, hpa: HorizontalPodAutoscaler) -> Decision:
        ready = prepared_spec.prepare(hpa, self._settings)
        history = self._histories.get(key, History())
        now = timestamps.span_of(self._clock.wall())
        try:
            path = self._scale_path(key.namespace, hpa.spec.scale_target_ref)
            written = msgspec.json.decode((await self._cluster.get(path)).content)
        except KubernetesError as error:
            return decision.without_scale(ready, hpa.status or NO_STATUS, str(error), history, now)
        scale = msgspec.convert(written, Scale, dec_hook=decode_scalar)
        pods = await self._pods(key.namespace, scale.status.selector)
        document = EvaluateDocument(
            Instant(now), replace(hpa, spec=replace(hpa.spec, metrics=())), scale, pods=pods
        )
        readings = [await self._read(document, metric, key.namespace) for metric in hpa.spec.metrics or ()]
        selector = decision.read_selector(scale.status.selector)
        is_within = ready.limits.lowest <= scale.spec.replicas <= ready.limits.highest
        # The controller remembers it before it reads metrics, and not while the count is beyond the limits.
        if selector is not None and scale.spec.replicas and is_within:
            self._selectors[key] = selector
        observation = replace(observe(document), readings=readings, selected_by=self._selected_by(key, pods))
        outcome = decision.decide(ready, observation, history, now)
        if outcome.rescale:
            problem = await self._rescale(path, written, outcome.replicas)
            if problem:
                outcome = decision.decide(ready, replace(observation, write_error=problem), history, now)
        return outcome

    def _selected_by(self, key: HPAKey, pods: Sequence[Pod]) -> tuple[str, ...]:
        """Return the autoscalers of a namespace whose known selector matches any of these pods."""
        labels = [facts_of(pod).labels for pod in pods]
        return tuple(
            f"{other.namespace}/{other.name}"
            for other, selector in sorted(self._selectors.items())
            if other.namespace == key.namespace and any(map(selector.matches, labels))
        )

    async def _rescale(self, path: str, scale: dict[str, Any], replicas: int) -> str:
        """Write a count; return the final error, "" for none.

        After a conflict the same count is written onto the current object, as upstream does: a foreign change
        in between is overwritten.
        """
        problem = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(_PAUSE * (1 + _JITTER * self._random()))
            try:
                await self._put(path, scale | {"spec": {"replicas": replicas}})
            except KubernetesError as error:
                problem = str(error)
                with contextlib.suppress(KubernetesError):
                    scale = msgspec.json.decode((await self._cluster.get(path)).content)
                if error.status != _CONFLICT:
                    return problem
            else:
                return ""
        return problem

    def _scale_path(self, namespace: str, target: CrossVersionObjectReference) -> str:
        resource = self._find_resource(target)
        base = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.version}"
        return f"{base}/namespaces/{namespace}/{resource.plural}/{target.name}/scale"

    def _find_resource(self, reference: CrossVersionObjectReference) -> APIResource:
        group = reference.api_version.rpartition("/")[0]
        for resource in self._catalogue:
            if (resource.kind, resource.group) == (reference.kind, group):
                return resource
        raise KubernetesError(404, "NotFound", f'no matches for kind "{reference.kind}" in group "{group}"')

    async def _pods(self, namespace: str, selector: str) -> tuple[Pod, ...]:
        """Return the pods of a selector, none if it is empty or on an error, which `decide` reports."""
        if decision.read_selector(selector) is None:
            return ()
        query = urlencode({"labelSelector": selector})
        try:
            body = await self._cluster.get(f"/api/v1/namespaces/{namespace}/pods?{query}")
        except KubernetesError:
            return ()
        return msgspec.json.decode(body.content, type=_PodList, dec_hook=decode_scalar).items or ()

    async def _read(self, document: EvaluateDocument, metric: MetricSpec, namespace: str) -> Reading:
        """Return the reading of one metric from its own response, as `fastpath evaluate` does."""
        api = _APIS[metric.type]
        try:
            metrics = await self._ask(metric, namespace, document.scale.status.selector)
        except (KubernetesError, ValueError) as error:
            return Unavailable("Failed", f"unable to fetch metrics from {api} metrics API: {error}")
        if metric.external is not None:
            # The server has applied the selector; the labels in its answer need not repeat it.
            plain = replace(metric.external, metric=MetricIdentifier(metric.external.metric.name))
            metric = replace(metric, external=plain)
        hpa = replace(document.hpa, spec=replace(document.hpa.spec, metrics=(metric,)))
        (reading,) = observe(replace(document, hpa=hpa, metrics=metrics)).readings
        return reading

    async def _ask(self, metric: MetricSpec, namespace: str, selector: str) -> Metrics:
        if metric.pods is not None:
            name = metric.pods.metric
            values = await self._metrics.pods(namespace, name.name, selector, _text(name))
            return Metrics(custom=tuple(values))
        if metric.object is not None:
            name = metric.object.metric
            resource = str(self._find_resource(metric.object.described_object).group_resource)
            described = resource, namespace, metric.object.described_object.name
            return Metrics(custom=tuple(await self._metrics.described(*described, name.name, _text(name))))
        if metric.external is not None:
            name = metric.external.metric
            return Metrics(external=tuple(await self._metrics.external(namespace, name.name, _text(name))))
        return Metrics(resource=tuple(await self._metrics.resource(namespace, selector)))

    async def _put(self, path: str, document: dict[str, Any]) -> None:
        content = msgspec.json.encode(document)
        by = {"fieldManager": _MANAGER}
        await self._cluster.write(
            "PUT", path, content, parameters=by, seconds=_WRITE_SECONDS, check=_unfenced
        )


@contextlib.asynccontextmanager
async def running(
    kubeconfig: Path,
    adapter: Adapter,
    directory: Path,
    clock: Clock,
    *,
    period: float = PERIOD,
    settings: Settings | None = None,
    random: Callable[[], float],
) -> AsyncIterator[None]:
    """Run a controller on a cluster. It sends the adapter the API server's requests."""
    problems = ProblemLog(Monitoring(), clock)
    async with contextlib.AsyncExitStack() as stack:
        files = kubeconfig, _write_kubeconfig(adapter, directory / "native-controller-kubeconfig")
        loaded = [await credentials.load_configuration([file], clock, problems) for file in files]
        cluster, metrics = [
            await stack.enter_async_context(await client.connect(config, random=random)) for config in loaded
        ]
        asking = MetricsAPI(metrics, clock, ("v1beta1",))
        controller = NativeController(cluster, asking, clock, period=period, settings=settings, random=random)
        await controller.start()
        task = asyncio.create_task(controller.run(), name="native controller")
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _write_kubeconfig(adapter: Adapter, path: Path) -> Path:
    server = {"server": adapter.url, "certificate-authority": str(adapter.authority)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "adapter",
        "clusters": [{"name": "adapter", "cluster": server}],
        "users": [{"name": "controller", "user": {"token": adapter.token}}],
        "contexts": [{"name": "adapter", "context": {"cluster": "adapter", "user": "controller"}}],
    }
    path.write_text(json.dumps(document))  # JSON is YAML
    return path


def _text(metric: MetricIdentifier) -> str:
    """Return the selector of a metric as the controller's clients write it; ValueError for an invalid one."""
    return str(api_selectors.compile_selector(metric.selector))


def _plain(status: HorizontalPodAutoscalerStatus) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(status, enc_hook=encode_scalar)
    return {"desiredReplicas": status.desired_replicas} | plain


def _unfenced() -> None:
    """Allow every write: this controller has no other instance."""
