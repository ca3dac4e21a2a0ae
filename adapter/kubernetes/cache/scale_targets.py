"""The targets of autoscalers: how many replicas each has and wants, from caches.

What lives here: who follows which target, what is known of it, and what stands in where its kind is not watched: then the scale itself is
read every few seconds. Not here: which kinds are watched (`targetkinds`), what is kept of an object (`targetforms`). The law: what is not
known yet is said to be not known, never to be absent.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple

from adapter import errors
from adapter.kubernetes.cache import scale_codec, scale_documents
from adapter.kubernetes.cache.reflector import ReflectorStatus, Surroundings
from adapter.kubernetes.cache.scale_codec import Seen
from adapter.kubernetes.cache.scale_kinds import POLL_SECONDS, Client, Kind, Kinds, TargetKinds, is_refused
from adapter.kubernetes.codec import UNREADABLE
from adapter.model.autoscaling.hpa import CrossVersionObjectReference
from adapter.model.go_text import quote
from adapter.model.resources import APIResource

LINGER_SECONDS = 60.0
"""For how long a target that was asked for once, and is not followed, is kept at hand."""

_OTHER_PLACES = frozenset("/%?#\\")

NOT_YET = "the scale is not yet known"


class Target(NamedTuple):
    """A scale as the caches have it. `manager` is the field manager that wrote the count, "" where that is not known.

    `selector` is text. `path` is that of the scale subresource; `resource_version` the version that a write is made against. `uid` tells
    an object from another that later has its name, "" where it is not known. `since` is when the count was written, as the API server
    writes times, to the second; "" where that is not known.
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
    """Why there is no target: not yet known (then nothing is decided), or an error as an autoscaler's status tells it."""

    message: str
    known: bool = True


# -- what is known -----------------------------------------------------------------------------------------------------------


class _Key(NamedTuple):
    """A reference from a namespace. Of `api_version` the group counts."""

    namespace: str
    api_version: str
    kind: str
    name: str


class _Entry:
    """One target, a `targetkinds.Member`.

    `meant` is the group and kind of the reference, `polled` what the reading of its scale came to last, where it is not watched.
    """

    def __init__(self, targets: "Targets", key: _Key) -> None:
        self._targets = targets
        self.key = key
        self.place = key.namespace, key.name
        self.meant = key.api_version.rpartition("/")[0], key.kind
        self.followers: list[Followed] = []
        self.kind: Kind | None = None
        self.polled: Seen | errors.KubernetesError | None = None
        self.polling: asyncio.Task[None] | None = None

    def tell(self) -> None:
        for followed in tuple(self.followers):
            followed.changed()

    def look(self) -> Target | Unfound:
        return self._targets.look(self)

    def detach(self) -> None:
        self.stop_polling()
        self.kind = None

    def stop_polling(self) -> None:
        if self.polling is not None:
            self.polling.cancel()
            self.polling = self.polled = None


class Followed:
    """A target that somebody keeps an eye on; `close` ends it."""

    def __init__(self, targets: "Targets", entry: _Entry, changed: Callable[[], None]) -> None:
        self._targets = targets
        self._entry = entry
        self.changed = changed

    def find(self) -> Target | Unfound:
        """Return the target as last seen."""
        return self._targets.look(self._entry)

    def close(self) -> None:
        """Stop; nothing happens if it was closed before."""
        if self in self._entry.followers:
            self._entry.followers.remove(self)
            if not self._entry.followers:
                self._targets.drop(self._entry)


class Targets:
    """The scales of targets, while `run` runs. `namespaces` are watched one by one, all together with ``("",)``."""

    def __init__(
        self, client: Client, surroundings: Surroundings, kinds: Kinds, namespaces: Sequence[str] = ("",)
    ) -> None:
        self._client = client
        self._around = surroundings
        self._kinds = TargetKinds(client, surroundings, kinds, namespaces, self._tell_all)
        self._group: asyncio.TaskGroup | None = None
        self._entries: dict[_Key, _Entry] = {}
        self._asked: dict[_Key, tuple[Followed, float]] = {}
        self._swept = surroundings.clock.monotonic()

    async def run(self) -> None:
        """Watch what is followed until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = self._kinds.group = group
            try:
                for entry in tuple(self._entries.values()):
                    self.look(entry)
                await asyncio.Event().wait()
            finally:
                self._group = self._kinds.group = None

    # -- questions -----------------------------------------------------------------------------------------------------

    def follow(
        self, namespace: str, reference: CrossVersionObjectReference, changed: Callable[[], None]
    ) -> Followed:
        """Keep a target at hand.

        `changed` is called when its replicas, wanted or there, or its selector may be others than before, when it comes and when it
        goes; a new version of the object alone is no change. It must not block.
        """
        key = _Key(namespace, reference.api_version, reference.kind, reference.name)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(self, key)
        followed = Followed(self, entry, changed)
        entry.followers.append(followed)
        self.look(entry)
        return followed

    def find(self, namespace: str, reference: CrossVersionObjectReference) -> Target | Unfound:
        """Return a target as last seen. One that nobody follows is kept at hand for a minute."""
        key = _Key(namespace, reference.api_version, reference.kind, reference.name)
        entry = self._entries.get(key)
        if entry is None or key in self._asked:
            now = self._around.clock.monotonic()
            asked = self._asked.get(key)
            followed = asked[0] if asked else self.follow(namespace, reference, lambda: None)
            self._asked[key] = followed, now
            entry = self._entries[key]
            if now - self._swept > LINGER_SECONDS:
                self._forget_unasked(now)
        return self.look(entry)

    def _forget_unasked(self, now: float) -> None:
        self._swept = now
        for key, (followed, since) in tuple(self._asked.items()):
            if now - since > LINGER_SECONDS:
                del self._asked[key]
                followed.close()

    def status(self) -> tuple[ReflectorStatus, ...]:
        """Return what the watches say of themselves."""
        return self._kinds.status()

    def look(self, entry: _Entry) -> Target | Unfound:
        """Return what is known of a target, and see to it that more will be."""
        key = entry.key
        if key.api_version.count("/") > 1:
            return Unfound(f"unexpected GroupVersion string: {key.api_version}")
        if key.name in {"", ".", ".."} or not _OTHER_PLACES.isdisjoint(key.name):
            return Unfound(f"invalid resource name {quote(key.name)}")  # it would lead to somewhere else
        kind = entry.kind
        resource = self._kinds.find(entry.meant)
        if kind is None or (resource is not None and resource.version != kind.resource.version):
            if resource is None:
                return self._miss(entry)
            kind = entry.kind = self._kinds.join(entry, resource)
        if not kind.decided:
            self._kinds.decide(kind)
            if not kind.decided:
                return Unfound(NOT_YET, known=False)
        mirror = kind.mirror_of(key.namespace)
        if mirror is None or (entry.polling is not None and not mirror.synced):
            return self._look_at_polled(entry, kind)
        entry.stop_polling()
        if not mirror.synced:
            return Unfound(f"{NOT_YET}: {mirror.error}" if mirror.error else NOT_YET, known=False)
        return _tell(key, kind.resource, kind.objects.find(key.namespace, key.name))

    def _miss(self, entry: _Entry) -> Unfound:
        if not self._kinds.miss(entry.meant):
            return Unfound(NOT_YET, known=False)
        group, name = entry.meant
        return Unfound(f"no matches for kind {quote(name)} in group {quote(group)}")

    def _tell_all(self, kind: tuple[str, str]) -> None:
        for entry in tuple(self._entries.values()):
            if entry.meant == kind:
                entry.tell()

    def drop(self, entry: _Entry) -> None:
        """Forget a target that nobody follows any more; its kind with the last one."""
        del self._entries[entry.key]
        entry.stop_polling()
        if entry.kind is not None:
            self._kinds.leave(entry, entry.kind)

    # -- scales that are read ------------------------------------------------------------------------------------------

    def _look_at_polled(self, entry: _Entry, kind: Kind) -> Target | Unfound:
        if entry.polling is None and self._group is not None and entry.followers:
            name = f"scale of {entry.key.kind} {entry.key.namespace}/{entry.key.name}"
            entry.polling = self._group.create_task(self._poll(entry, kind.resource), name=name)
        polled = entry.polled
        if polled is None:
            return Unfound(NOT_YET, known=False)
        if isinstance(polled, errors.KubernetesError):
            return Unfound(_words_of(polled), known=is_refused(polled))
        return _tell(entry.key, kind.resource, polled)

    async def _poll(self, entry: _Entry, resource: APIResource) -> None:
        """Read the scale of a target again and again. What was read stays while the API server cannot be reached."""
        path = _scale_path(resource, entry.key)
        while True:
            before, found = entry.polled, await self._fetch(path, entry.key)
            if isinstance(found, Seen) or not isinstance(before, Seen) or is_refused(found):
                entry.polled = found
            if not _is_same(before, entry.polled):
                entry.tell()
            await self._around.sleep(POLL_SECONDS * (0.9 + 0.2 * self._around.random()))

    async def _fetch(self, path: str, key: _Key) -> Seen | errors.KubernetesError:
        try:
            return scale_documents.read_scale((await self._client.get(path)).content, key.namespace, key.name)
        except errors.KubernetesError as error:
            return error
        except UNREADABLE as error:
            return errors.KubernetesError(0, "Decode", f"cannot get {path}: the answer is no Scale ({error})")


def _is_same(one: Seen | errors.KubernetesError | None, other: Seen | errors.KubernetesError | None) -> bool:
    if isinstance(one, Seen) and isinstance(other, Seen):
        return scale_codec.same_scale(one, other)
    if isinstance(one, errors.KubernetesError) and isinstance(other, errors.KubernetesError):
        return str(one) == str(other)
    return one is other


def _tell(key: _Key, resource: APIResource, seen: Seen | None) -> Target | Unfound:
    if seen is None:
        qualified = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
        return Unfound(f"{qualified} {quote(key.name)} not found")
    if seen.replicas is None:
        return Unfound("Internal error occurred: the spec replicas field does not exist")
    path = _scale_path(resource, key)
    return Target(
        seen.replicas,
        seen.status_replicas,
        seen.selector,
        seen.resource_version,
        seen.manager,
        path,
        seen.uid,
        seen.since,
    )


def _scale_path(resource: APIResource, key: _Key) -> str:
    root = f"/apis/{resource.group}" if resource.group else "/api"
    return f"{root}/{resource.version}/namespaces/{key.namespace}/{resource.plural}/{key.name}/scale"


def _words_of(error: errors.KubernetesError) -> str:
    """Return what the API server said, without what we asked."""
    said = str(error).partition(f": {error.status} {error.reason}: ")[2]
    return said or str(error)
