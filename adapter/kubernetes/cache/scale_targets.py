"""The scale targets of autoscalers: their replicas, from caches.

A target is found in the cache of its kind (`scale_kinds`). If the kind cannot be cached, the scale of each
followed target is read every few seconds. A target that is not yet known is never reported as absent.
"""

import asyncio
import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from adapter import errors
from adapter.kubernetes.cache import scale_codec
from adapter.kubernetes.cache.reflector import ReflectorContext, ReflectorStatus
from adapter.kubernetes.cache.scale_codec import ObservedScale
from adapter.kubernetes.cache.scale_kinds import (
    POLL_SECONDS,
    CachedTarget,
    TargetKind,
    TargetKinds,
    TargetName,
    is_refused,
)
from adapter.kubernetes.client import KubernetesClient, path_of
from adapter.kubernetes.codec import UNREADABLE
from adapter.kubernetes.discovery import CatalogueSource
from adapter.model.autoscaling.hpa import CrossVersionObjectReference
from adapter.model.go_text import quote
from adapter.model.resources import APIResource

_PATH_CHARACTERS = frozenset("/%?#\\")

NOT_YET = "the scale is not yet known"


class ScaleTarget(NamedTuple):
    """A scale from the caches. `path` is that of the scale subresource.

    `resource_version` is the precondition of a write, `selector` is text. `manager` is the field manager that
    wrote the count, and `since` the time of that write as the API server writes times, to the second. `uid`
    tells the object from a later one with the same name. Each of the three is "" if it is unknown.
    """

    replicas: int
    status_replicas: int
    selector: str
    resource_version: str
    manager: str
    path: str
    uid: str = ""
    since: str = ""


class Unfound(NamedTuple):
    """Why there is no scale: an error for the status, or if not `known`, nothing to decide on yet."""

    message: str
    known: bool = True


class TargetSubscription:
    """A subscription to a target; `close` ends it."""

    def __init__(self, targets: "ScaleTargets", entry: CachedTarget, changed: Callable[[], None]) -> None:
        self._targets = targets
        self._entry = entry
        self._changed = changed
        self._closed = False
        entry.followers.append(changed)
        self.find: Callable[[], ScaleTarget | Unfound] = functools.partial(targets.resolve, entry)

    def close(self) -> None:
        """End the subscription; closing twice is harmless."""
        if self._closed:
            return
        self._closed = True
        self._entry.followers.remove(self._changed)
        if not self._entry.followers:
            self._targets.drop(self._entry)


class ScaleTargets:
    """The scales of targets, while `run` runs. Each of `namespaces` ("" for all) is watched by itself."""

    def __init__(
        self,
        client: KubernetesClient,
        context: ReflectorContext,
        kinds: CatalogueSource,
        namespaces: Sequence[str] = ("",),
    ) -> None:
        self._client = client
        self._context = context
        self._kinds = TargetKinds(client, context, kinds, namespaces, self._notify_all, self.resolve)
        self._group: asyncio.TaskGroup | None = None
        self._entries: dict[TargetName, CachedTarget] = {}

    async def run(self) -> None:
        """Watch what is followed until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = self._kinds.group = group
            try:
                for entry in tuple(self._entries.values()):
                    self.resolve(entry)
                await asyncio.Event().wait()
            finally:
                self._group = self._kinds.group = None

    # -- questions -------------------------------------------------------------------------------------------

    def follow(
        self, namespace: str, reference: CrossVersionObjectReference, changed: Callable[[], None]
    ) -> TargetSubscription:
        """Subscribe to a target.

        `changed` is called when its desired or current replicas or its selector may have changed, and when it
        appears or disappears; a new resourceVersion alone is not a change. It must not block.
        """
        key = TargetName(namespace, reference.api_version, reference.kind, reference.name)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = CachedTarget(key)
        subscription = TargetSubscription(self, entry, changed)
        self.resolve(entry)
        return subscription

    def status(self) -> tuple[ReflectorStatus, ...]:
        return self._kinds.status()

    def resolve(self, entry: CachedTarget) -> ScaleTarget | Unfound:
        """Return what is known of a target, and start what it takes to know more."""
        key = entry.key
        if key.api_version.count("/") > 1:
            return Unfound(f"unexpected GroupVersion string: {key.api_version}")
        if key.name in {"", ".", ".."} or not _PATH_CHARACTERS.isdisjoint(key.name):
            return Unfound(f"invalid resource name {quote(key.name)}")  # its path would name another resource
        kind = entry.kind
        resource = self._kinds.find(entry.meant)
        # The catalogue may be empty or old after a failed discovery: a kind that was known stays known, and
        # only another version of it replaces the watch.
        if kind is None or (resource is not None and resource.version != kind.resource.version):
            if resource is None:
                return self._miss(entry)
            kind = entry.kind = self._kinds.join(entry, resource)
            entry.path = f"{path_of(resource, key.namespace)}/{key.name}/scale"
        if not kind.decided:
            self._kinds.decide(kind)
            if not kind.decided:
                return Unfound(NOT_YET, known=False)
        reflector = kind.reflector_of(key.namespace)
        # A target that is polled stays polled until the watch has listed: a gap in between would read as a
        # target that does not exist.
        if reflector is None or (entry.polling is not None and not reflector.synced):
            return self._resolve_polled(entry, kind)
        seen = kind.objects.find(key.namespace, key.name)
        # The codec refused this object alone. Its scale subresource is small and may still be readable.
        if seen is not None and seen.unreadable:
            return self._resolve_polled(entry, kind)
        entry.stop_polling()
        if not reflector.synced:
            return Unfound(f"{NOT_YET}: {reflector.error}" if reflector.error else NOT_YET, known=False)
        return _build_target(entry, kind.resource, seen)

    def _miss(self, entry: CachedTarget) -> Unfound:
        if not self._kinds.miss(entry.meant):
            return Unfound(NOT_YET, known=False)
        group, name = entry.meant
        return Unfound(f"no matches for kind {quote(name)} in group {quote(group)}")

    def _notify_all(self, kind: tuple[str, str]) -> None:
        for entry in tuple(self._entries.values()):
            if entry.meant == kind:
                entry.notify()

    def drop(self, entry: CachedTarget) -> None:
        """Forget a target without followers, and its kind with the last one."""
        del self._entries[entry.key]
        entry.stop_polling()
        if entry.kind is not None:
            self._kinds.leave(entry, entry.kind)

    # -- scales that are read --------------------------------------------------------------------------------

    def _resolve_polled(self, entry: CachedTarget, kind: TargetKind) -> ScaleTarget | Unfound:
        if entry.polling is None and self._group is not None and entry.followers:
            name = f"scale of {entry.key.kind} {entry.key.namespace}/{entry.key.name}"
            entry.polling = self._group.create_task(self._poll(entry), name=name)
        polled = entry.polled
        if polled is None:
            return Unfound(NOT_YET, known=False)
        if isinstance(polled, errors.KubernetesError):
            return Unfound(polled.said or str(polled), known=is_refused(polled))
        return _build_target(entry, kind.resource, polled)

    async def _poll(self, entry: CachedTarget) -> None:
        """Read a scale at intervals. The last one stays while the API server cannot be reached."""
        path = entry.path
        while True:
            before, fresh = entry.polled, await self._fetch(path, entry.key)
            if isinstance(fresh, ObservedScale) or not isinstance(before, ObservedScale) or is_refused(fresh):
                entry.polled = fresh
            if not _is_same(before, entry.polled):
                entry.notify()
            await self._context.sleep(POLL_SECONDS * (0.9 + 0.2 * self._context.random()))

    async def _fetch(self, path: str, key: TargetName) -> ObservedScale | errors.KubernetesError:
        try:
            return scale_codec.read_scale((await self._client.get(path)).content, key.namespace, key.name)
        except errors.KubernetesError as error:
            return error
        except UNREADABLE as error:
            return errors.KubernetesError(
                0, "Decode", f"cannot get {path}: the response is not a Scale object ({error})"
            )


def _is_same(
    one: ObservedScale | errors.KubernetesError | None, other: ObservedScale | errors.KubernetesError | None
) -> bool:
    if isinstance(one, ObservedScale) and isinstance(other, ObservedScale):
        return scale_codec.same_scale(one, other)
    if isinstance(one, errors.KubernetesError) and isinstance(other, errors.KubernetesError):
        return str(one) == str(other)
    return one is other


def _build_target(
    entry: CachedTarget, resource: APIResource, seen: ObservedScale | None
) -> ScaleTarget | Unfound:
    if seen is None:
        return Unfound(f"{resource.group_resource} {quote(entry.key.name)} not found")
    if seen.replicas is None:
        return Unfound("Internal error occurred: the spec replicas field does not exist")
    return ScaleTarget(
        seen.replicas,
        seen.status_replicas,
        seen.selector,
        seen.resource_version,
        seen.manager,
        entry.path,
        seen.uid,
        seen.since,
    )
