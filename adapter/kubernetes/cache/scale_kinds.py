"""The kinds of scale targets: which kind a reference means, and a cache of each kind that is a target.

Deployments, StatefulSets, ReplicaSets and ReplicationControllers are watched, and so is a custom kind whose
CustomResourceDefinition names plain field paths for its replicas. If only the watch is refused, the kind is
listed every few seconds. Any other kind, and any kind whose list is refused, is not cached: `scale_targets`
then reads the scales one by one. A kind is cached only while it is a target.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from adapter import errors
from adapter.kubernetes.cache import scale_codec
from adapter.kubernetes.cache.reflector import Reflector, ReflectorContext, ReflectorStatus, build_reflectors
from adapter.kubernetes.cache.scale_codec import ObservedScale
from adapter.kubernetes.cache.store import TypedStore, in_steps
from adapter.kubernetes.client import KubernetesClient
from adapter.kubernetes.codec import UNREADABLE, ObjectCodec
from adapter.kubernetes.discovery import CatalogueSource
from adapter.model.metrics import GroupResource
from adapter.model.resources import BUILTIN, APIResource, Catalogue
from adapter.telemetry.defects import Defects

POLL_SECONDS = 5.0
"""Interval at which a scale that is not watched is read, or its kind is listed."""

RETRY_SECONDS = 30.0
"""Interval after which an unknown kind is looked up again, or a definition that could not be read."""

DEFINITION_SECONDS = 600.0
"""Interval after which a definition that is forbidden, or names no plain paths, is read again."""

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

_BUILT_IN: dict[tuple[str, str], ObjectCodec[ObservedScale]] = {
    ("apps", "deployments"): scale_codec.built_in(),
    ("apps", "replicasets"): scale_codec.built_in(),
    ("apps", "statefulsets"): scale_codec.built_in(),
    ("", "replicationcontrollers"): scale_codec.built_in(plain_selector=True),
}
_SCALED = Catalogue([resource for resource in BUILTIN if (resource.group, resource.plural) in _BUILT_IN])
"""Kinds that are known without discovery."""


class TargetName(NamedTuple):
    """A reference from a namespace. Of `api_version` the group counts."""

    namespace: str
    api_version: str
    kind: str
    name: str


class CachedTarget:
    """One target, with the `changed` of each follower.

    `meant` is the group and kind of its reference, `place` its namespace and name. `polled` is the last
    result of reading its scale, if its kind cannot be cached.
    """

    def __init__(self, key: TargetName) -> None:
        self.key = key
        self.place = key.namespace, key.name
        self.meant = key.api_version.rpartition("/")[0], key.kind
        self.followers: list[Callable[[], None]] = []
        self.kind: TargetKind | None = None
        self.path = ""
        """That of the scale, while the kind is known."""
        self.polled: ObservedScale | errors.KubernetesError | None = None
        self.polling: asyncio.Task[None] | None = None

    def notify(self) -> None:
        for changed in tuple(self.followers):
            changed()

    def detach(self) -> None:
        """Leave the kind, which is no longer cached; the next question looks it up again."""
        self.stop_polling()
        self.kind = None

    def stop_polling(self) -> None:
        if self.polling is not None:
            self.polling.cancel()
            self.polling = self.polled = None


class TargetKind:
    """One kind of targets: its cached objects, its reflectors by namespace, and its targets by place.

    `decided` says whether it is known if the kind can be cached.
    """

    def __init__(self, resource: APIResource, defects: Defects) -> None:
        self.resource = resource
        self._defects = defects
        self.decided = False
        self.reflectors: dict[str, Reflector[ObservedScale]] = {}
        self.objects = TypedStore(self._changed, self._listed, scale_codec.same_scale, scale_codec.lose)
        self.entries: dict[tuple[str, str], list[CachedTarget]] = {}
        self.tasks: list[asyncio.Task[None]] = []

    def _changed(self, namespace: str, name: str) -> None:
        reflector = self.reflector_of(namespace)
        if reflector is None or reflector.synced:  # else all are told when the first list is in
            for entry in tuple(self.entries.get((namespace, name), ())):
                entry.notify()

    def _listed(self) -> Iterator[None]:
        return in_steps(self.all_entries(), CachedTarget.notify, self._defects)

    def all_entries(self) -> tuple[CachedTarget, ...]:
        return tuple(itertools.chain.from_iterable(self.entries.values()))

    def reflector_of(self, namespace: str) -> Reflector[ObservedScale] | None:
        """Return the reflector of a namespace, None without one or if it cannot succeed."""
        reflector = self.reflectors.get(namespace) or self.reflectors.get("")
        refused = reflector is not None and reflector.error is not None and is_refused(reflector.error)
        return None if refused else reflector


class TargetKinds:
    """The kinds of all targets. `group` runs their tasks; it is None while nothing runs.

    `refreshed` is called with a group and kind when the cluster's kinds were read again for it, or could not
    be; `resolve` with each target whose scale must be read, because its kind is not cached.
    """

    def __init__(
        self,
        client: KubernetesClient,
        context: ReflectorContext,
        kinds: CatalogueSource,
        namespaces: Sequence[str],
        refreshed: Callable[[tuple[str, str]], None],
        resolve: Callable[[CachedTarget], object],
    ) -> None:
        self._client = client
        self._context = context
        relist = min(context.periods.relist, POLL_SECONDS)
        self._polling = replace(context, periods=replace(context.periods, relist=relist))
        self._catalogue = kinds
        self._known: tuple[Catalogue | None, dict[tuple[str, str], APIResource]] = None, _index(_SCALED)
        self._namespaces = tuple(namespaces)
        self._refreshed = refreshed
        self._resolve = resolve
        self.group: asyncio.TaskGroup | None = None
        self._targeted: dict[GroupResource, TargetKind] = {}
        self._missed: dict[tuple[str, str], float] = {}
        self._missing: set[tuple[str, str]] = set()

    def status(self) -> tuple[ReflectorStatus, ...]:
        return tuple(
            reflector.status() for kind in self._targeted.values() for reflector in kind.reflectors.values()
        )

    # -- kinds of the cluster --------------------------------------------------------------------------------

    def find(self, kind: tuple[str, str]) -> APIResource | None:
        """Return the resource of a group and kind, None if it is unknown."""
        with contextlib.suppress(errors.NotSyncedError):
            current = self._catalogue.current()
            if current is not self._known[0]:
                self._known = current, _index(current) | _index(_SCALED)
        return self._known[1].get(kind)

    def miss(self, kind: tuple[str, str]) -> bool:
        """Have the kinds read again, at intervals, for an unknown one; return whether they were before."""
        now = self._context.clock.monotonic()
        due = kind not in self._missed or now - self._missed[kind] >= RETRY_SECONDS
        if due and kind not in self._missing and self.group is not None:
            self._missing.add(kind)
            self.group.create_task(self._refresh(kind), name=f"look-up of {kind[1]}")
        return kind in self._missed

    async def _refresh(self, kind: tuple[str, str]) -> None:
        try:
            await self._catalogue.refresh()
            self._missed[kind] = self._context.clock.monotonic()
        except errors.SourceError:
            await self._context.sleep(RETRY_SECONDS)
        finally:
            self._missing.discard(kind)
        self._refreshed(kind)

    # -- kinds that are targeted -----------------------------------------------------------------------------

    def join(self, entry: CachedTarget, resource: APIResource) -> TargetKind:
        """Add a target to its kind, and return the kind."""
        kind = self._targeted.get(resource.group_resource)
        if kind is not None and kind.resource.version != resource.version:  # served in another version by now
            self._end(kind)
            kind = None
        if kind is None:
            kind = self._targeted[resource.group_resource] = TargetKind(
                resource, self._context.problems.defects
            )
        kind.entries.setdefault(entry.place, []).append(entry)
        return kind

    def leave(self, entry: CachedTarget, kind: TargetKind) -> None:
        """Remove a target from its kind, and the kind with its last target."""
        kind.entries[entry.place].remove(entry)
        if not kind.entries[entry.place]:
            del kind.entries[entry.place]
        if not kind.entries:
            self._end(kind)

    def _end(self, kind: TargetKind) -> None:
        del self._targeted[kind.resource.group_resource]
        for task in kind.tasks:
            task.cancel()
        for reflector in kind.reflectors.values():
            reflector.abandon()
        for entry in kind.all_entries():
            entry.detach()

    def decide(self, kind: TargetKind) -> None:
        """Start caching a kind, or finding out whether it can be cached."""
        if self.group is None or kind.tasks:
            return
        key = kind.resource.group_resource
        codec = _BUILT_IN.get((key.group, key.resource))
        if codec is not None:
            self._watch(kind, codec)
        else:
            kind.tasks.append(self.group.create_task(self._define(kind), name=f"definition of {key}"))

    async def _define(self, kind: TargetKind) -> None:
        """Read the definition of a custom kind until it says where the replicas are; then cache the kind."""
        key = kind.resource.group_resource
        while True:
            codec, pause = None, DEFINITION_SECONDS
            try:
                body = await self._client.get(f"{_DEFINITIONS}/{key.resource}.{key.group}")
                codec = scale_codec.read_codec(body.content, kind.resource.version)
            except errors.KubernetesError as error:
                pause = DEFINITION_SECONDS if is_refused(error) else RETRY_SECONDS
            except UNREADABLE:
                codec = None  # not a definition: as one without paths
            known, kind.decided = kind.decided, True
            if codec is not None:
                self._watch(kind, codec)
                return
            if not known:
                for entry in kind.all_entries():
                    self._resolve(entry)
            await self._context.sleep(pause)

    def _watch(self, kind: TargetKind, codec: ObjectCodec[ObservedScale]) -> None:
        assert self.group is not None
        kind.decided = True
        reflectors = build_reflectors(codec, kind.resource, self._polling, kind.objects, self._namespaces)
        kind.reflectors = dict(zip(self._namespaces, reflectors, strict=True))
        for reflector in reflectors:
            kind.tasks.append(self.group.create_task(reflector.run(), name=f"reflector of {reflector.name}"))


def _index(catalogue: Catalogue) -> dict[tuple[str, str], APIResource]:
    """Index namespaced resources by group and kind, in both cases as upstream; the preferred version wins."""
    kinds: dict[tuple[str, str], APIResource] = {}
    for resource in catalogue:
        if resource.namespaced:
            kinds.setdefault((resource.group, resource.kind), resource)
            kinds.setdefault((resource.group, resource.kind.lower()), resource)
    return kinds


def is_refused(error: errors.KubernetesError) -> bool:
    """Whether the API server refused a request. A kind whose list is refused is read one by one."""
    return 400 <= error.status < 500 and error.status not in {410, 429}
