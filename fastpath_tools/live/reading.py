"""How verbs read from the API server: once in a while, and with the server's words for a refusal.

What several objects tell together is put together here: the Leases of the scaler, which may run in another
namespace than the server, and the endpoints that an external rule is scraped from.
"""

import asyncio
import functools
import math
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import quote

import msgspec
from cachetools import TLRUCache

from adapter.config.rules_config import ScrapeConfig
from adapter.errors import KubernetesError
from adapter.kubernetes import credentials
from adapter.kubernetes.cache import endpoint_slices, pod_codec
from adapter.kubernetes.cache.endpoint_slices import WatchedSlice
from adapter.kubernetes.cache.pod_codec import WatchedPod, WirePod
from adapter.kubernetes.cache.pods import PODS
from adapter.kubernetes.client import KubernetesClient, ListWatch
from adapter.kubernetes.ownership import installation_lock
from adapter.kubernetes.ownership.lease_view import LABEL
from adapter.model.autoscaling import slices
from adapter.model.autoscaling.hpa import decode_scalar
from adapter.model.clock import Clock
from adapter.model.objects.label_selectors import EVERYTHING, LabelSelector, Operator, Requirement
from adapter.model.timestamps import SECOND
from adapter.scrape import endpoints
from adapter.scrape.endpoints import FoundEndpoints
from fastpath_tools.live import api_objects, targets, unready
from fastpath_tools.live.facts import Leader, Leaders, TargetFacts, Unread

_T = TypeVar("_T")
_Self = TypeVar("_Self")
_P = ParamSpec("_P")
_Method = Callable[Concatenate[_Self, _P], Coroutine[Any, Any, _T]]


def kept(seconds: float) -> Callable[[_Method[_Self, _P, _T]], _Method[_Self, _P, _T]]:
    """Make a method read once in some seconds for each set of arguments: calls share the result or error.

    A caller that is cancelled does not cancel the read, which others may await.
    """

    def decorate(read: _Method[_Self, _P, _T]) -> _Method[_Self, _P, _T]:
        @functools.wraps(read)
        async def method(self: _Self, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
            reads: TLRUCache[Any, asyncio.Task[_T]] = vars(self).setdefault("_reads", _make_cache())
            key = read.__name__, seconds, repr(args)  # the selector of a metric has no hash
            task = reads.get(key)
            if task is None:
                task = reads[key] = asyncio.create_task(read(self, *args, **kwargs))
            return await asyncio.shield(task)

        return method

    return decorate


def _make_cache() -> TLRUCache[Any, Any]:
    return TLRUCache(4096, lambda key, _, now: now + key[1], lambda: asyncio.get_running_loop().time())


once = kept(math.inf)
shared = kept(60.0)
"""Keeps what several autoscalers share, such as rules, leaders and kinds, for a minute."""


async def fetch(client: KubernetesClient, path: str, form: type[_T]) -> _T:
    """Return what is at a path. KubernetesError."""
    body = await client.get(path)
    try:
        return msgspec.json.decode(body.content, type=form, dec_hook=decode_scalar)
    except (msgspec.MsgspecError, ValueError) as error:
        raise KubernetesError(0, "Decode", f"cannot read what is at {path}: {error}") from error


async def fetch_items(client: KubernetesClient, path: str, form: type[_T]) -> tuple[_T, ...]:
    """Return the objects of the list at a path. KubernetesError."""
    return (await fetch(client, path, api_objects.ItemList[form])).items  # type: ignore[valid-type]


def why(error: Exception) -> str:
    """Return an error as the server worded it."""
    return (error.said if isinstance(error, KubernetesError) else "") or str(error)


_APART = 60.0
"""By how many seconds another clock may differ from ours."""

_NAMESPACES = 100
"""In how many namespaces Leases are looked for if they may not be listed in all at once."""


@dataclass(eq=False)  # its answers are kept in it
class LeaseReader:
    """Finds Leases by name; `namespace` is that of Fastpath's Service."""

    client: KubernetesClient
    namespace: str
    name: str
    age: Callable[[int | None], float | None]

    async def find(self, namespace: str) -> Leaders | Unread:
        """Return the Leases of Fastpath's scaler in all namespaces.

        If these may not be listed: in each of those that may be, `namespace` among them.
        """
        whole = await self._list("")
        if not isinstance(whole, Unread):
            return whole
        places = dict.fromkeys((self.namespace, namespace, *await self._names()))
        names = [*filter(None, places)]
        read = await asyncio.gather(*map(self._list, names))
        listed = {
            name: leaders
            for name, leaders in zip(names, read, strict=True)
            if not isinstance(leaders, Unread)
        }
        if not listed:
            return whole
        owners = tuple(leader for leaders in listed.values() for leader in leaders.found)
        scalers = tuple(scaler for leaders in listed.values() for scaler in leaders.scalers)
        working = frozenset[str]().union(*(leaders.working for leaders in listed.values()))
        holder = "".join(leaders.holder for leaders in listed.values())
        return Leaders(owners, tuple(listed), whole.why, scalers, working, holder)

    @shared
    async def _names(self) -> tuple[str, ...]:
        """Return the names of the first namespaces, none if they may not be listed."""
        try:
            path = f"/api/v1/namespaces?limit={_NAMESPACES}"
            namespaces = await fetch_items(self.client, path, api_objects.NamedDocument)
        except KubernetesError:
            return ()
        return tuple(namespace.metadata.name for namespace in namespaces)

    @shared
    async def _list(self, namespace: str) -> Leaders | Unread:
        """Return the Leases of Fastpath's scaler in a namespace, in all with "". Those of nodes are many."""
        within = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
        selector = quote("metadata.namespace!=kube-node-lease")
        path = f"/apis/coordination.k8s.io/v1{within}/leases?fieldSelector={selector}"
        try:
            leases = await fetch_items(self.client, path, api_objects.LeaseDocument)
        except KubernetesError as error:
            return Unread(why(error))
        members = {
            (lease.metadata.namespace, lease.spec.holder_identity or ""): lease
            for lease in leases
            if lease.metadata.name.startswith(f"{self.name}-member-")
        }
        owners = tuple(
            self._leader(
                lease, number, members.get((lease.metadata.namespace, lease.spec.holder_identity or ""))
            )
            for lease in leases
            if (number := slices.parse_name(self.name, lease.metadata.name)) is not None
        )
        scalers = {scaler for lease in leases if (scaler := self._live_scaler(lease)) is not None}
        ordered = sorted(scalers, key=lambda one: (one[0] != self.namespace, one))
        working = {scaler[0] for lease in leases if (scaler := self._slice_owner(lease)) in scalers}
        holder = "".join(self._place(*held) for lease in leases if (held := _installation(lease)))
        return Leaders(owners, (), "", tuple(ordered), frozenset(working), holder)

    def _place(self, namespace: str, name: str) -> str:
        """Return where scalers share slices: the namespace, and the name of their Leases if it is another."""
        return namespace if name == self.name else f"{namespace} as {name}"

    def _slice_owner(self, lease: api_objects.LeaseDocument) -> tuple[str, str] | None:
        """Return the place and the Pod of the owner by the Lease of a slice, None for another Lease."""
        name = (lease.metadata.labels or {}).get(LABEL, "")
        if slices.parse_name(name, lease.metadata.name) is None:
            return None
        return self._place(lease.metadata.namespace, name), _pod(lease)

    def _live_scaler(self, lease: api_objects.LeaseDocument) -> tuple[str, str] | None:
        """Return where a scaler shares slices, and its Pod, if the Lease is its own and it renews it."""
        name, spec = (lease.metadata.labels or {}).get(LABEL, ""), lease.spec
        age, duration = self.age(spec.renew_time), spec.lease_duration_seconds or 0
        is_live = age is not None and -_APART <= age <= duration + _APART
        if not (is_live and spec.holder_identity and lease.metadata.name.startswith(f"{name}-member-")):
            return None
        return self._place(lease.metadata.namespace, name), _pod(lease)

    def _leader(
        self, lease: api_objects.LeaseDocument, number: int, held: api_objects.LeaseDocument | None
    ) -> Leader:
        """Return the owner by a Lease; `held` is the one that it renews, None if it holds none."""
        namespace = lease.metadata.namespace
        spec = api_objects.LeaseDocumentSpec() if held is None else held.spec
        duration, age = float(spec.lease_duration_seconds or 0), self.age(spec.renew_time)
        # no scaler writes that, unless our clock is behind
        if age is not None and age < -_APART and namespace != self.namespace:
            spec = api_objects.LeaseDocumentSpec()
        name, holder = f"{namespace}/{lease.metadata.name}", spec.holder_identity or ""
        return Leader(name, holder, age, duration, number, namespace == self.namespace)


def _pod(lease: api_objects.LeaseDocument) -> str:
    return credentials.pod_of(lease.spec.holder_identity or "")[:253]  # the longest name of a Pod


def _installation(lease: api_objects.LeaseDocument) -> tuple[str, str] | None:
    """Return namespace and name of the installation that scales, None for another Lease or no holder."""
    namespace, _, name = (lease.spec.holder_identity or "").partition("/")
    is_lock = (lease.metadata.namespace, lease.metadata.name) == (
        installation_lock.NAMESPACE,
        installation_lock.NAME,
    )
    return (namespace, name) if is_lock and name else None


async def find_endpoints(client: KubernetesClient, config: ScrapeConfig) -> FoundEndpoints | Unread:
    """Return the endpoints of a rule with `source`, found as the scaler finds them."""
    source, access = config.source, config.access
    assert source is not None, "a rule about pods has no endpoints"
    try:
        if not source.service:
            pods = await _list_pods(client, source.namespace, source.selector)
            return endpoints.resolve_pods(source, access, pods)
        slices: list[WatchedSlice] = []
        named = Requirement(endpoint_slices.SERVICE_NAME, Operator.EQUALS, (source.service,))
        kind = endpoint_slices.CODEC, endpoint_slices.ENDPOINT_SLICES
        selector = LabelSelector((named,))
        await client.list_objects(ListWatch(*kind, source.namespace, selector), slices.extend)
        pods = await _list_pods(client, source.namespace, EVERYTHING)
    except KubernetesError as error:
        return Unread(str(error))
    by_name, by_address = {pod.name: pod for pod in pods}, {pod.ip: pod for pod in pods}
    return endpoints.resolve_service(source, access, slices, by_name.get, by_address.get)


async def _list_pods(client: KubernetesClient, namespace: str, selector: LabelSelector) -> list[WatchedPod]:
    pods: list[WirePod] = []
    await client.list_objects(ListWatch(pod_codec.POD_CODEC, PODS, namespace, selector), pods.extend)
    return [
        pod_codec.build(pod, namespace, pod.metadata.labels or {}, pod_codec.share(pod.spec, b""))
        for pod in pods
    ]


# -- pods that do not get Ready ------------------------------------------------------------------------------

_LISTED = 200
"""How many events of an object, and how many ReplicaSets of a target, are looked at."""

_OBJECTS = 4
"""Of how many objects events are looked at: a pod, the newest ReplicaSets, and the target."""


class UnreadyReader:
    """Finds what keeps the pods of a target from getting Ready. What may not be read becomes a note."""

    def __init__(self, client: KubernetesClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def read(
        self,
        namespace: str,
        name: str,
        target: TargetFacts,
        itself: api_objects.WorkloadDocument,
        pods: Sequence[api_objects.PodDocument],
    ) -> TargetFacts:
        """Return the target with cause and notes; `name` is ``Kind name``, `pods` are those it selects."""
        now, notes = round(self._clock.wall() * SECOND), []
        usual = unready.USUAL if target.starts is None else target.starts.times.total.p95
        looked = unready.PodTarget(name, target.replicas, (itself,), max(usual, unready.USUAL))
        if len(target.ready) == len(pods) == target.replicas and unready.find(looked, pods, (), now) is None:
            return target
        place = f"/apis/apps/v1/namespaces/{namespace}/replicasets"
        try:
            path = f"{place}?labelSelector={quote(target.selector)}&limit={_LISTED}"
            sets = await fetch_items(self._client, path, api_objects.WorkloadDocument)
            own = [one for one in sets if name in targets.find_owners(one.metadata)]
            looked = looked._replace(sets=(*sorted(own, key=unready.revision, reverse=True), itself))
        except KubernetesError as error:
            notes.append(f"ReplicaSets cannot be listed, so those of {name} are not known: {why(error)}")
        cause = unready.find(looked, pods, (), now)
        names = [cause.pod] if cause is not None and cause.pod else []
        if len(target.ready) < target.replicas:
            names += [one.metadata.name for one in looked.sets]
        events: list[api_objects.ObjectEvent] = []
        try:
            for one in list(filter(None, names))[:_OBJECTS]:
                fields = quote(f"involvedObject.name={one}")
                path = f"/api/v1/namespaces/{namespace}/events?fieldSelector={fields}&limit={_LISTED}"
                events += await fetch_items(self._client, path, api_objects.ObjectEvent)
        except KubernetesError as error:
            notes.append(f"events cannot be listed, which may say more of the pods of {name}: {why(error)}")
        return target._replace(unready=unready.find(looked, pods, events, now), notes=tuple(notes))
