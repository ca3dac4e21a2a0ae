"""What `fastpath doctor` reads from the API server.

It may be asked each second, for a page that is looked at: status, count and values are read each time, all
else less often. What several autoscalers share (servers, rules, leaders, periods) is kept for a minute. What
the user may not read is `Unread` with the server's words.
"""

import itertools
import re
import statistics
from collections.abc import Iterator, Sequence
from typing import TypeVar
from urllib.parse import quote

from adapter.autoscaler.controller import ready_store
from adapter.config import rules_file
from adapter.config.rules_config import RulesConfig, ScrapeConfig
from adapter.errors import KubernetesError, RunError
from adapter.kubernetes.client import KubernetesClient
from adapter.kubernetes.discovery import fetch_discovery
from adapter.kubernetes.metrics_api import MetricsAPI, TimedCustomValue, TimedExternalValue
from adapter.model.autoscaling import floor
from adapter.model.autoscaling.fastpath_autoscaler import (
    API_VERSION,
    HPA_KIND,
    KIND,
    PLURAL,
    FastPathAutoscaler,
)
from adapter.model.autoscaling.floor import Floor
from adapter.model.autoscaling.hpa import CrossVersionObjectReference, MetricIdentifier, MetricSpec
from adapter.model.clock import Clock
from adapter.model.objects import api_selectors, apiservices
from adapter.model.objects.apiservices import Registration, ServiceReference
from adapter.model.objects.resources import BUILTIN, APIResource, Catalogue
from adapter.model.ready_times import ReadyTimes, decode_ledger
from adapter.model.timestamps import SECOND, parse_go_duration
from adapter.rules import matchers
from adapter.scrape.endpoints import FoundEndpoints
from fastpath_tools.live import api_objects, pod_patches, reading, registrations, resizes, targets, usages
from fastpath_tools.live.facts import (
    AnswerFacts,
    Leaders,
    MetricsPort,
    PatchRight,
    Period,
    Pulls,
    Reversal,
    Serving,
    TargetFacts,
    Unread,
)
from fastpath_tools.live.registrations import Owner

_SYNC_PERIOD = "--horizontal-pod-autoscaler-sync-period"
_DEFAULT_PERIOD = 15.0
_PODS = 200
"""How many pods of a selector are looked at."""

_EVENTS = 500
"""How many events of a kind and a namespace are looked at; the API server keeps an hour of them."""

GROUPS = {
    "Pods": "custom.metrics.k8s.io",
    "Object": "custom.metrics.k8s.io",
    "External": "external.metrics.k8s.io",
    "Resource": "metrics.k8s.io",
    "ContainerResource": "metrics.k8s.io",
}
"""The API that answers each type of metric."""

_LATELY = 600.0
"""For how many seconds the count of an autoscaler that something else lowered matters."""

_T = TypeVar("_T")


class LiveCluster:
    """A cluster with its autoscalers. `service` is Fastpath's.

    The namespace of a scaler's Lease has its floors and ready times too; without a Lease it is the namespace
    of the Service.
    """

    def __init__(
        self, client: KubernetesClient, clock: Clock, service: ServiceReference, lease_name: str
    ) -> None:
        self._client = client
        self._clock = clock
        self._service = service
        self._leases = reading.LeaseReader(client, service.namespace, lease_name, self._age)
        self._unready = reading.UnreadyReader(client, clock)
        self._metrics = MetricsAPI(client, clock, apiservices.HPA_READS["metrics.k8s.io"])

    async def _fetch(self, path: str, form: type[_T]) -> _T:
        """Return what is at a path. KubernetesError."""
        return await reading.fetch(self._client, path, form)

    async def _fetch_items(self, path: str, form: type[_T]) -> tuple[_T, ...]:
        return await reading.fetch_items(self._client, path, form)

    async def _fetch_pods(self, namespace: str, selector: str) -> tuple[api_objects.PodDocument, ...]:
        """Return the first pods that a selector matches. KubernetesError."""
        path = f"/api/v1/namespaces/{namespace}/pods?labelSelector={quote(selector)}&limit={_PODS}"
        return await self._fetch_items(path, api_objects.PodDocument)

    def _age(self, time: int | None) -> float | None:
        """Return how many seconds ago something was."""
        return None if time is None else self._clock.wall() - time / SECOND

    # -- one autoscaler --------------------------------------------------------------------------------------

    async def hpas(self, namespace: str) -> tuple[api_objects.HPA, ...]:
        """Return the HorizontalPodAutoscalers of a namespace, of all with "".

        KubernetesError; RunError if a user who may not list all may list those of a namespace.
        """
        within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        path = f"/apis/autoscaling/v2{within}/horizontalpodautoscalers"
        try:
            return await self._fetch_items(path, api_objects.HPA)
        except KubernetesError as error:
            if error.status == 403 and not namespace:
                text = "listing HPAs cluster-wide is forbidden; pass a namespace"
                raise RunError(f"{text}: {reading.why(error)}") from error
            raise

    async def fpas(self, namespace: str) -> tuple[FastPathAutoscaler, ...] | Unread:
        """Return the FastPathAutoscalers in the same way; none if the cluster lacks the kind."""
        within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        path = f"/apis/{API_VERSION}{within}/{PLURAL}"
        try:
            return await self._fetch_items(path, FastPathAutoscaler)
        except KubernetesError as error:
            return () if error.status == 404 else Unread(reading.why(error))

    known_fpas = reading.shared(fpas)

    async def check_namespace(self, namespace: str) -> None:
        """Raise RunError if the cluster has no such namespace; nothing if that may not be read."""
        if await self._exists(f"/api/v1/namespaces/{quote(namespace, safe='')}") is False:
            raise RunError(f"there is no namespace {namespace}")

    async def target(self, namespace: str, reference: CrossVersionObjectReference) -> TargetFacts | Unread:
        try:
            resource = await self._resource(reference, "spec.scaleTargetRef")
            if isinstance(resource, Unread):
                return resource
            place = _path(resource, namespace, reference.name)
            scale = await self._fetch(f"{place}/scale", api_objects.TargetScale)
        except KubernetesError as error:
            if error.status != 404:
                return Unread(reading.why(error))
            exists, name = await self._exists(place), f"{reference.kind} {reference.name}"
            if exists:
                change = "name a kind in spec.scaleTargetRef that has one, such as a Deployment"
                return Unread(f"{name} has no scale subresource, so nothing can scale it", change)
            if exists is None:
                return Unread(f"{name} does not exist or has no scale subresource; you may not get it")
            return Unread(f"{name} does not exist", f"correct spec.scaleTargetRef, or create {name}")
        return await self._scaled(namespace, reference, place, scale)

    async def _exists(self, path: str) -> bool | None:
        """Return whether there is an object, None if that may not be read."""
        try:
            await self._client.get(path)
        except KubernetesError as error:
            return False if error.status == 404 else None
        return True

    @reading.kept(29.5)
    async def _scaled(
        self,
        namespace: str,
        reference: CrossVersionObjectReference,
        path: str,
        scale: api_objects.TargetScale,
    ) -> TargetFacts:
        """Return the target at a path; a Scale of another version has it read again."""
        target = TargetFacts(scale.spec.replicas, scale.status.selector)
        if not target.selector:
            return target._replace(unread="its Scale has no selector")
        workload = await self._workload(path)
        target = target._replace(writer=targets.find_writer(workload))
        try:
            pods = await self._fetch_pods(namespace, target.selector)
        except KubernetesError as error:
            return target._replace(unread=reading.why(error))
        ready = [pod for pod in pods if pod.ready is not None]
        owner = next((one for one in workload.metadata.owner_references or () if one.controller), None)
        target = target._replace(
            ready=tuple(pod.metadata.name for pod in ready),
            starts=api_objects.measure_starts(ready),
            ports=usages.metrics_ports(ready[0]) if ready else (),
            resizes=resizes.find(ready),
            labels=frozenset(itertools.chain.from_iterable(pod.metadata.labels or () for pod in pods)),
            cost_writers=targets.find_cost_writers(pods),
            strangers=targets.find_strangers(pods, reference),
            owner="" if owner is None else f"{owner.kind} {owner.name}",
            containers=targets.find_containers(pods),
        )
        return await self._unready.read(
            namespace, f"{reference.kind} {reference.name}", target, workload, pods
        )

    @reading.kept(15.0)
    async def reversal(
        self, namespace: str, reference: CrossVersionObjectReference, autoscaler: str, scaled: int | None
    ) -> Reversal | None:
        """Return the last count that something else lowered, of an autoscaler that `scaled` lately."""
        since = round((self._clock.wall() - _LATELY) * SECOND)
        if reference.kind != "Deployment" or scaled is None or scaled < since:
            return None
        changes = await self._events(
            namespace, f"involvedObject.name={reference.name},reason=ScalingReplicaSet"
        )
        rescales = await self._events(namespace, f"involvedObject.name={autoscaler},reason=SuccessfulRescale")
        place = f"/apis/apps/v1/namespaces/{namespace}/deployments/{reference.name}"
        return targets.find_reversal(await self._workload(place), changes, rescales, since)

    async def _workload(self, path: str) -> api_objects.WorkloadDocument:
        """Return a target; one that says nothing if the user may not read it."""
        try:
            return await self._fetch(path, api_objects.WorkloadDocument)
        except KubernetesError:
            return api_objects.WorkloadDocument()

    async def _events(self, namespace: str, fields: str) -> tuple[api_objects.ObjectEvent, ...]:
        """Return the first events of a field selector, none if the user may not list them."""
        path = f"/api/v1/namespaces/{namespace}/events?fieldSelector={quote(fields)}&limit={_EVENTS}"
        try:
            return await self._fetch_items(path, api_objects.ObjectEvent)
        except KubernetesError:
            return ()

    @reading.shared
    async def pulls(self, namespace: str, pods: Sequence[str]) -> Pulls | None:
        """Return how long images of pods took to be pulled, as far as events say; None if nothing does."""
        events = await self._events(namespace, "involvedObject.kind=Pod,reason=Pulled")
        return api_objects.measure_pulls(events, frozenset(pods))

    async def _resource(self, reference: CrossVersionObjectReference, field: str) -> APIResource | Unread:
        """Return the resource of a reference, whose kind and group are exact for the HPA controller."""
        kind, group = reference.kind, reference.api_version.rpartition("/")[0]
        known = BUILTIN
        resource = BUILTIN.lookup(kind, group)
        if resource is None:
            known = await self.catalogue()
            resource = known.lookup(kind, group)
        if resource is not None and (resource.kind, resource.group) == (kind, group or resource.group):
            return resource
        change = "" if known is BUILTIN and resource is None else f"correct kind and apiVersion of {field}"
        return Unread(f"the cluster has no kind {kind}{f' in {group}' if group else ''}", change)

    async def answer(
        self, namespace: str, metric: MetricSpec, target: TargetFacts | Unread
    ) -> AnswerFacts | Unread:
        """Ask for a metric as the HPA controller does."""
        start = self._clock.monotonic()
        try:
            answer = await self._ask(namespace, metric, target)
        except ValueError as error:
            return Unread(f"the selector of the metric cannot be used: {error}")
        except KubernetesError as error:
            answer = AnswerFacts(0, error=matchers.shorten(reading.why(error)), status=error.status)
        if isinstance(answer, Unread):
            return answer
        return answer._replace(seconds=self._clock.monotonic() - start)

    @reading.shared
    async def floor(self, namespace: str, handshake: MetricSpec) -> AnswerFacts | Unread:
        """Ask for the floor by which an HPA would be boosted."""
        return await self.answer(namespace, handshake, Unread("a floor is about no pods"))

    async def _ask(
        self, namespace: str, metric: MetricSpec, target: TargetFacts | Unread
    ) -> AnswerFacts | Unread:
        if metric.external is not None:
            name, selector = _identified(metric.external.metric)
            return self._totaled(await self._metrics.external(namespace, name, selector))
        if metric.object is not None:
            described = metric.object.described_object
            resource = await self._resource(described, "describedObject")
            if isinstance(resource, Unread):
                return resource
            name, selector = _identified(metric.object.metric)
            place = str(resource.group_resource), namespace, described.name
            failure: KubernetesError | None = None
            values: Sequence[TimedCustomValue] = ()
            try:
                values = await self._metrics.described(*place, name, selector)
            except KubernetesError as error:
                failure = error
            path = _path(resource, namespace, described.name)
            if not values and await self._exists(path) is False:
                text = f"{described.kind} {described.name}, which metric {name} is of, does not exist"
                return Unread(text, "correct describedObject.name in spec.metrics")
            if failure is not None:
                raise failure
            return self._totaled(values)
        if isinstance(target, Unread):
            return Unread(f"the pods of the target are not known: {target.why}")
        if metric.pods is not None:
            name, selector = _identified(metric.pods.metric)
            return self._totaled(await self._metrics.pods(namespace, name, target.selector, selector))
        usages = await self._metrics.resource(namespace, target.selector)
        windows = [usage.window / SECOND for usage in usages if usage.window]
        ages = [age for usage in usages if (age := self._age(usage.timestamp)) is not None]
        age = statistics.median(ages) if ages else None
        return AnswerFacts(len(usages), window=max(windows, default=None), age=age)

    def _totaled(self, values: Sequence[TimedCustomValue] | Sequence[TimedExternalValue]) -> AnswerFacts:
        """Return the number and the sum of values, and the age of the oldest."""
        total = sum(float(value.value.approximate()) for value in values)
        ages = [age for value in values if (age := self._age(value.timestamp)) is not None]
        return AnswerFacts(len(values), total=total, age=max(ages, default=None))

    @reading.kept(300.0)
    async def counter_port(
        self, namespace: str, pods: tuple[str, ...], ports: tuple[MetricsPort, ...]
    ) -> MetricsPort | Unread | None:
        """Return the port where pods expose their CPU usage, None if none was seen to."""
        return await usages.find_port(self._client, namespace, pods, ports)

    # -- what autoscalers share ------------------------------------------------------------------------------

    @reading.shared
    async def catalogue(self) -> Catalogue:
        """Return the kinds of the cluster; the built-in ones if they cannot be read."""
        try:
            return (await fetch_discovery(self._client)).catalogue
        except KubernetesError:
            return BUILTIN

    @reading.shared
    async def serving(self, group: str) -> Serving | Unread:
        try:
            registration = await self._registration(group)
            warning = ""
            if group == "metrics.k8s.io":
                stable, beta = [
                    await registrations.fetch(self._client, f"{version}.{group}")
                    for version in ("v1", "v1beta1")
                ]
                warning = registrations.describe_resource_versions(stable, beta, self._service)
        except KubernetesError as error:
            return Unread(reading.why(error))
        if registration is None:
            return Serving(group, "")
        name = apiservices.names_of([group])[0]  # enters only the advice, which is not shown
        judged = registrations.judge(name, registration, self._service)
        ours = judged.owner is Owner.OURS
        fault, remedy = registrations.why_unavailable(registration), registrations.remedy(registration)
        owner = "Fastpath" if ours else judged.state.partition(" (")[0]
        return Serving(
            group, owner, ours, fault, warning, remedy if ours else registrations.hint(registration)
        )

    @reading.shared
    async def _registration(self, group: str) -> Registration | None:
        """Return the APIService of a group that the HPA controller reads. KubernetesError."""
        versions = [
            await registrations.fetch(self._client, f"{version}.{group}")
            for version in apiservices.HPA_READS[group]
        ]
        registered = [registration for registration in versions if registration is not None]
        if group == GROUPS["Pods"]:  # the others are read in a fixed version
            registered.sort(key=lambda registration: -registration.priority)
        return next(iter(registered), None)

    @reading.shared
    async def rules(self, group: str) -> RulesConfig | Unread:
        """Return the rules of the server behind an API, as far as they can be used."""
        try:
            registration = await self._registration(group)
            if registration is None or registration.service is None:
                return Unread(f"no Service serves {group}")
            namespace = registration.service.namespace
            path = f"/api/v1/namespaces/{namespace}"
            service = await self._fetch(f"{path}/services/{registration.service.name}", api_objects.Service)
            if not service.spec.selector:
                return Unread(f"Service {registration.service} selects no pods: give its rules with --config")
            selector = ",".join(f"{label}={value}" for label, value in service.spec.selector.items())
            pods = await self._fetch_pods(namespace, selector)
            places = {place for pod in pods for place in _rules_of(pod)}
            if not places:
                missing = f"the pods of Service {registration.service} reference no ConfigMap with rules"
                return Unread(f"{missing}: give them with --config")
            configs = []
            for name, wanted in sorted(places):
                read = await self._fetch(f"{path}/configmaps/{name}", api_objects.ConfigMap)
                configs += [
                    rules_file.parse_rules(text, f"ConfigMap {namespace}/{name}, {key}").config
                    for key, text in sorted((read.data or {}).items())
                    if wanted in {"", key}
                ]
        except KubernetesError as error:
            return Unread(f"the rules cannot be read, give them with --config: {reading.why(error)}")
        return rules_file.merge(configs)[0]

    @reading.shared
    async def endpoints(self, config: ScrapeConfig) -> FoundEndpoints | Unread:
        return await reading.find_endpoints(self._client, config)

    @reading.shared
    async def patch_right(self, namespace: str) -> PatchRight | Unread:
        """Return whether the scaler may patch the pods of a namespace."""
        where = self._service.namespace
        try:
            accounts = await pod_patches.find_accounts(self._client, where)
            for account in accounts:
                allowed = await pod_patches.may_patch(self._client, account, namespace)
                if allowed is None:
                    return Unread("you may not create SubjectAccessReviews")
                if not allowed or account == accounts[-1]:
                    return PatchRight(f"{account.namespace}/{account.name}", allowed, await self._version())
        except KubernetesError as error:
            return Unread(reading.why(error))
        return Unread(f"no Deployment of namespace {where} runs a scaler; --namespace names another one")

    async def _version(self) -> tuple[int, int] | None:
        """Return the version of the API server, None if it cannot be read."""
        try:
            version = await self._fetch("/version", api_objects.ServerVersion)
        except KubernetesError:
            return None
        match = re.match(r"v(\d{1,3})\.(\d{1,3})", version.git_version)
        return None if match is None else (int(match[1]), int(match[2]))

    @reading.shared
    async def period(self) -> Period:
        """Return how often the HPA controller decides, as its Pod says, else Kubernetes' default."""
        try:
            pods = await self._fetch_pods("kube-system", "component=kube-controller-manager")
        except KubernetesError:
            pods = ()
        for pod in pods:
            for container in pod.spec.containers:
                if texts := option_values(container.words, _SYNC_PERIOD):
                    where = f"{_SYNC_PERIOD[2:]} of Pod {pod.metadata.name}"
                    return Period(parse_go_duration(texts[-1]), where)
                return Period(_DEFAULT_PERIOD, f"the default: Pod {pod.metadata.name} does not set it")
        return Period(_DEFAULT_PERIOD, "Kubernetes' default; the controller's flags cannot be seen")

    async def leaders(self, namespace: str = "") -> Leaders | Unread:
        """Return the Leases of Fastpath's scaler, also of `namespace` if they cannot be listed in all."""
        return await self._leases.find(namespace)

    async def entry(self, namespace: str, uid: str) -> Floor | Unread | None:
        """Return the floor that Fastpath has published for an autoscaler, None for none."""
        entries = await self._entries(await self._place(namespace))
        return entries if isinstance(entries, Unread) else entries.get(uid)

    @reading.shared
    async def _entries(self, place: str) -> dict[str, Floor] | Unread:
        entries: dict[str, Floor] = {}
        try:
            for config_map in await self._labelled(floor.LABEL, place):
                entries |= floor.decode_floors(config_map.data)
        except (KubernetesError, ValueError) as error:
            return Unread(reading.why(error))
        return entries

    async def ready_times(self, namespace: str, uid: str) -> ReadyTimes | None:
        """Return the times that the scaler has stored for an autoscaler; None if they cannot be read."""
        text = (await self._ledgers(await self._place(namespace))).get(uid)
        try:
            return None if text is None else decode_ledger(text).times()
        except ValueError:
            return None

    @reading.shared
    async def _ledgers(self, place: str) -> dict[str, str]:
        try:
            config_maps = await self._labelled(ready_store.KIND.label, place)
        except KubernetesError:
            return {}
        return {uid: text for config_map in config_maps for uid, text in (config_map.data or {}).items()}

    async def _place(self, namespace: str) -> str:
        """Return the namespace of the scaler that decides the autoscalers of a namespace."""
        leaders = await self.leaders(namespace)
        owners = () if isinstance(leaders, Unread) else [one for one in leaders.found if one.owns(namespace)]
        places = {leader.namespace for leader in owners} or {self._service.namespace}
        return self._service.namespace if self._service.namespace in places else namespace

    async def _labelled(self, label: str, place: str) -> tuple[api_objects.ConfigMap, ...]:
        """Return the ConfigMaps of a namespace with a label. KubernetesError."""
        path = f"/api/v1/namespaces/{place}/configmaps?labelSelector={quote(f'{label}=true')}"
        return await self._fetch_items(path, api_objects.ConfigMap)


def absent(namespace: str, name: str, fpas: Sequence[FastPathAutoscaler] | Unread) -> RunError:
    """Return the error for an autoscaler that is neither an HPA nor among `fpas`."""
    key = f"{namespace}/{name}"
    if isinstance(fpas, Unread):
        return RunError(f"there is no {HPA_KIND} {key}, and {KIND}s cannot be read: {fpas.why}")
    return RunError(f"there is no {HPA_KIND} and no {KIND} {key}")


def _path(resource: APIResource, namespace: str, name: str) -> str:
    root = f"apis/{resource.group}" if resource.group else "api"
    within = f"/namespaces/{namespace}" if resource.namespaced else ""
    return f"/{root}/{resource.version}{within}/{resource.plural}/{quote(name, safe='')}"


def _identified(metric: MetricIdentifier) -> tuple[str, str]:
    """Return name and selector of a metric. ValueError for a selector that is not valid."""
    return metric.name, str(api_selectors.compile_selector(metric.selector))


def option_values(words: Sequence[str], name: str) -> list[str]:
    """Return the values of a flag in a command line."""
    values = [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]
    return values + [after for word, after in itertools.pairwise(words) if word == name]


def _rules_of(pod: api_objects.PodDocument) -> Iterator[tuple[str, str]]:
    """Yield ConfigMap and key ("" for all) of each file or folder that `--config` names in a pod."""
    config_maps = {volume.name: volume.config_map for volume in pod.spec.volumes or ()}
    for container in pod.spec.containers:
        for path in option_values(container.words, "--config"):
            for mount in container.volume_mounts or ():
                config_map = config_maps.get(mount.name)
                folder = mount.mount_path.rstrip("/")
                if config_map is None or not f"{path.rstrip('/')}/".startswith(f"{folder}/"):
                    continue
                below = mount.sub_path or path[len(folder) :].strip("/")
                keys = {item.path: item.key for item in config_map.items or ()}
                yield config_map.name, keys.get(below, below)
