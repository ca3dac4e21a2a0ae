"""What all autoscalers of a cluster share, read once.

The servers of the metrics APIs, their rules, leaders and periods. What the user may not read is `Unread` with
the server's words.
"""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from adapter.cli.doctor.codec import ConfigMap, ItemList, LeaseDocument, PodDocument, Service
from adapter.cli.doctor.facts import Leader, Period, Serving, Unread
from adapter.errors import KubernetesError
from adapter.kubernetes import apiservices as registrations
from adapter.kubernetes.client import KubernetesClient
from adapter.kubernetes.discovery import fetch_catalogue
from adapter.model import apiservices
from adapter.model.apiservices import Owner, ServiceReference
from adapter.model.autoscaling import floor, shards
from adapter.model.autoscaling.floor import Floor
from adapter.model.autoscaling.hpa import decode_scalar
from adapter.model.autoscaling.shards import WHOLE, Shard
from adapter.model.clock import Clock
from adapter.model.resources import BUILTIN, Catalogue
from adapter.model.timestamps import SECOND, parse_go_duration

_SYNC_PERIOD = "--horizontal-pod-autoscaler-sync-period"
_DEFAULT_PERIOD = 15.0
_UNSEEN = Period(_DEFAULT_PERIOD, "Kubernetes' default; the controller's flags cannot be seen")

_T = TypeVar("_T")


async def fetch(client: KubernetesClient, path: str, form: type[_T]) -> _T:
    """Return what is at a path. KubernetesError."""
    body = await client.get(path)
    try:
        return msgspec.json.decode(body.content, type=form, dec_hook=decode_scalar)
    except (msgspec.MsgspecError, ValueError) as error:
        raise KubernetesError(0, "Decode", f"cannot read what is at {path}: {error}") from error


async def fetch_pods(client: KubernetesClient, namespace: str, selector: str) -> tuple[PodDocument, ...]:
    """Return pods that match, some of them where there are very many. KubernetesError."""
    path = f"/api/v1/namespaces/{namespace}/pods?labelSelector={quote(selector)}&limit=200"
    return (await fetch(client, path, ItemList[PodDocument])).items


def why(error: Exception) -> str:
    """Return an error as the server worded it."""
    return (error.said if isinstance(error, KubernetesError) else "") or str(error)


def age_of(clock: Clock, time: int | None) -> float | None:
    """Return how long ago something was, in seconds."""
    return None if time is None else clock.wall() - time / SECOND


class ClusterContext:
    """What stands around the autoscalers. `service` is Fastpath's."""

    def __init__(
        self, client: KubernetesClient, clock: Clock, service: ServiceReference, lease_name: str
    ) -> None:
        self._client = client
        self._clock = clock
        self._service = service
        self._lease_name = lease_name
        self._tasks: dict[str, asyncio.Task[Any]] = {}

    async def once(self, key: str, read: Callable[[], Coroutine[None, None, _T]]) -> _T:
        """Return what `read` gave to the first call with this key."""
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = asyncio.create_task(read(), name=key)
        found: _T = await task
        return found

    async def serving(self, group: str) -> Serving | Unread:
        """Return the server of an API group."""
        return await self.once(f"serving {group}", lambda: self._read_serving(group))

    async def _read_serving(self, group: str) -> Serving | Unread:
        try:
            for version in reversed(apiservices.VERSIONS[group]):
                name = f"{version}.{group}"
                found = await registrations.fetch_registration(self._client, name)
                if found is not None:
                    judged = apiservices.judge(name, found, self._service)
                    ours = judged.owner is Owner.OURS
                    fault = "" if found.available == "True" or found.service is None else found.reason
                    unsaid = (
                        "no condition Available yet" if found.available != "True" and found.service else ""
                    )
                    return Serving(
                        group, "Fastpath" if ours else judged.state.partition(" (")[0], ours, fault or unsaid
                    )
        except KubernetesError as error:
            return Unread(why(error))
        return Serving(group, "")

    async def period(self) -> Period:
        """Return how often the HPA controller decides, as its Pod says, else Kubernetes' default."""
        return await self.once("period", self._read_period)

    async def _read_period(self) -> Period:
        query = f"labelSelector={quote('component=kube-controller-manager')}"
        try:
            pods = await fetch(
                self._client, f"/api/v1/namespaces/kube-system/pods?{query}", ItemList[PodDocument]
            )
        except KubernetesError:
            return Period(_DEFAULT_PERIOD, "Kubernetes' default; the controller's flags cannot be seen")
        for pod in pods.items:
            for container in pod.spec.containers:
                if text := option_of(container.words, _SYNC_PERIOD):
                    return Period(parse_go_duration(text), f"{_SYNC_PERIOD[2:]} of Pod {pod.metadata.name}")
                return Period(_DEFAULT_PERIOD, f"the default, as Pod {pod.metadata.name} says nothing else")
        return Period(_DEFAULT_PERIOD, "Kubernetes' default; the controller's flags cannot be seen")

    async def leaders(self) -> tuple[Leader, ...] | Unread:
        """Return the Leases of Fastpath's scaler."""
        return await self.once("leaders", self._read_leaders)

    async def _read_leaders(self) -> tuple[Leader, ...] | Unread:
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self._service.namespace}/leases"
        try:
            leases = await fetch(self._client, path, ItemList[LeaseDocument])
        except KubernetesError as error:
            return Unread(why(error))
        return tuple(
            Leader(
                f"{self._service.namespace}/{each.metadata.name}",
                each.spec.holder_identity or "",
                age_of(self._clock, each.spec.renew_time),
                float(each.spec.lease_duration_seconds or 0),
                shard,
            )
            for each in leases.items
            if (shard := _shard_of(each.metadata.name, self._lease_name)) is not None
        )

    async def entry(self, uid: str) -> Floor | Unread | None:
        """Return what Fastpath has published of an autoscaler, None for nothing."""
        entries = await self.once("entries", self._read_entries)
        return entries if isinstance(entries, Unread) else entries.get(uid)

    async def _read_entries(self) -> dict[str, Floor] | Unread:
        selector = quote(f"{floor.LABEL}=true")
        path = f"/api/v1/namespaces/{self._service.namespace}/configmaps?labelSelector={selector}"
        entries: dict[str, Floor] = {}
        try:
            for each in (await fetch(self._client, path, ItemList[ConfigMap])).items:
                entries |= floor.decode_floors(each.data)
        except (KubernetesError, ValueError) as error:
            return Unread(why(error))
        return entries

    async def catalogue(self) -> Catalogue:
        """Return the kinds of the cluster; the built-in ones where they cannot be read."""
        return await self.once("catalogue", self._read_catalogue)

    async def _read_catalogue(self) -> Catalogue:
        try:
            return await fetch_catalogue(self._client)
        except KubernetesError:
            return BUILTIN

    async def rules(self, group: str) -> tuple[tuple[str, str], ...] | Unread:
        """Return name and text of the rules files of the server behind an API."""
        return await self.once(f"rules {group}", lambda: self._read_rules(group))

    async def _read_rules(self, group: str) -> tuple[tuple[str, str], ...] | Unread:
        try:
            found = None
            for version in reversed(apiservices.VERSIONS[group]):
                found = found or await registrations.fetch_registration(self._client, f"{version}.{group}")
            if found is None or found.service is None:
                return Unread(f"no Service stands behind {group}")
            namespace = found.service.namespace
            service = await fetch(
                self._client, f"/api/v1/namespaces/{namespace}/services/{found.service.name}", Service
            )
            if not service.spec.selector:
                return Unread(f"Service {found.service} selects no pods: give its rules with --config")
            pods = await fetch_pods(
                self._client, namespace, ",".join(f"{k}={v}" for k, v in service.spec.selector.items())
            )
            places = {place for pod in pods for place in _rules_of(pod)}
            if not places:
                return Unread(
                    f"the pods of Service {found.service} name no rules in a ConfigMap: give them with "
                    "--config"
                )
            texts = []
            for name, key in sorted(places):
                read = await fetch(
                    self._client, f"/api/v1/namespaces/{namespace}/configmaps/{name}", ConfigMap
                )
                texts += [
                    (f"ConfigMap {namespace}/{name}, {found_key}", text)
                    for found_key, text in sorted((read.data or {}).items())
                    if not key or found_key == key
                ]
        except KubernetesError as error:
            return Unread(f"the rules cannot be read, give them with --config: {why(error)}")
        return tuple(texts)


def _shard_of(lease: str, name: str) -> Shard | None:
    """Return the shard whose Lease this is, None for a Lease of another program."""
    if lease == name:
        return WHOLE
    try:
        shard = shards.parse_shard(lease.removeprefix(f"{name}-").replace("-of-", "/"))
    except ValueError:
        return None
    return shard if shard.lease_name(name) == lease else None


def option_of(words: Sequence[str], name: str) -> str:
    """Return the value of a flag in a command line, "" where it is not there."""
    values = options_of(words, name)
    return values[-1] if values else ""


def options_of(words: Sequence[str], name: str) -> list[str]:
    """Return all values of a flag in a command line."""
    values = [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]
    return values + [after for word, after in itertools.pairwise(words) if word == name]


def _rules_of(pod: PodDocument) -> list[tuple[str, str]]:
    """Return ConfigMap and key ("" for all) of each file or folder that `--config` names in a pod."""
    volumes = {each.name: each.config_map for each in pod.spec.volumes or () if each.config_map is not None}
    found = []
    for container in pod.spec.containers:
        for path in options_of(container.words, "--config"):
            for mount in container.volume_mounts or ():
                volume = volumes.get(mount.name)
                folder = mount.mount_path.rstrip("/")
                if volume is None or not (path.rstrip("/") == folder or path.startswith(f"{folder}/")):
                    continue
                below = mount.sub_path or path[len(folder) :].strip("/")
                keys = {item.path: item.key for item in volume.items or ()}
                found.append((volume.name, keys.get(below, below)))
    return found
