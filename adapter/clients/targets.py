"""The targets of autoscalers: how many replicas each has and wants, from caches.

What lives here: which kinds are watched and for how long, and what stands in where watching is not possible. Not here: what is kept of an
object (`targetforms`), reflectors (`mirror`). The law: a kind is watched while somebody has a target of it and no longer; what is not
known yet is said to be not known, never to be absent.

Deployments, StatefulSets, ReplicaSets and ReplicationControllers are watched, and so is a custom kind whose CustomResourceDefinition says
where it keeps its replicas; where only the watch is refused, they are listed every few seconds. For all others, and where the list
is refused, the scale itself is read every few seconds.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from adapter import errors
from adapter.clients import scaledocuments, targetforms
from adapter.clients.apifaults import TOO_DEEP
from adapter.clients.kubernetes import Body
from adapter.clients.mirror import Collection, Mirror, Part, WholeClient, in_steps
from adapter.clients.objectlist import UNREADABLE, Form
from adapter.clients.reflector import ReflectorStatus, Surroundings
from adapter.clients.targetforms import Seen
from adapter.model.autoscaling import CrossVersionObjectReference
from adapter.model.metrics import GroupResource
from adapter.model.quoting import quote
from adapter.model.resources import BUILTIN, APIResource, Catalogue

POLL_SECONDS = 5.0
"""How often a scale that is not watched is read, or the kind listed."""

LINGER_SECONDS = 60.0
"""For how long a target that was asked for once, and is not followed, is kept at hand."""

RETRY_SECONDS = 30.0
"""How soon it is looked again for a kind that was not found, or a definition that could not be read."""

DEFINITION_SECONDS = 600.0
"""How soon it is looked again whether a definition has come to be readable, or to say where the replicas are."""

_OTHER_PLACES = frozenset("/%?#\\")

NOT_YET = "the scale is not yet known"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

_BUILT_IN: dict[tuple[str, str], Form[Seen]] = {
    ("apps", "deployments"): targetforms.built_in(),
    ("apps", "replicasets"): targetforms.built_in(),
    ("apps", "statefulsets"): targetforms.built_in(),
    ("", "replicationcontrollers"): targetforms.built_in(plain_selector=True),
}
_SCALED = Catalogue([each for each in BUILTIN if (each.group, each.plural) in _BUILT_IN])
"""Known without asking the cluster."""


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


class Client(WholeClient, Protocol):
    """The API server."""

    def get(self, path: str) -> Awaitable[Body]:
        """Return what is at `path`."""
        ...


class Kinds(Protocol):
    """The kinds of the cluster; `apidiscovery.CatalogueSource`."""

    def current(self) -> Catalogue:
        """Return them; `errors.NotSyncedError` before they were read."""
        ...

    async def refresh(self) -> Catalogue:
        """Read them again."""
        ...


# -- what is known -----------------------------------------------------------------------------------------------------------


class _Key(NamedTuple):
    """A reference from a namespace. Of `api_version` the group counts."""

    namespace: str
    api_version: str
    kind: str
    name: str


class _Kind:
    """One kind that is targeted: its objects where they are watched (`mirrors` by namespace), and who wants which.

    `decided` says whether it is known if it can be watched.
    """

    def __init__(self, resource: APIResource) -> None:
        self.resource = resource
        self.decided = False
        self.mirrors: dict[str, Mirror[Seen]] = {}
        self.objects: Collection[Seen] = Collection(self._changed, self._listed, targetforms.same_scale)
        self.entries: dict[tuple[str, str], list[_Entry]] = {}
        self.tasks: list[asyncio.Task[None]] = []

    def _changed(self, namespace: str, name: str) -> None:
        mirror = self.mirror_of(namespace)
        if mirror is None or mirror.synced:  # else all are told when the first list is in
            for entry in tuple(self.entries.get((namespace, name), ())):
                entry.tell()

    def _listed(self) -> Iterator[None]:
        return in_steps(tuple(itertools.chain.from_iterable(self.entries.values())), _Entry.tell)

    def mirror_of(self, namespace: str) -> Mirror[Seen] | None:
        """Return what watches a namespace, None where nothing does, may or can."""
        mirror = self.mirrors.get(namespace) or self.mirrors.get("")
        return None if mirror is None or _is_in_vain(mirror.error) else mirror


class _Entry:
    """One target.

    `meant` is the group and kind of the reference, `polled` what the reading of its scale came to last, where it is not watched.
    """

    def __init__(self, key: _Key) -> None:
        self.key = key
        self.meant = key.api_version.rpartition("/")[0], key.kind
        self.followers: list[Followed] = []
        self.kind: _Kind | None = None
        self.polled: Seen | errors.KubernetesError | None = None
        self.polling: asyncio.Task[None] | None = None

    def tell(self) -> None:
        for followed in tuple(self.followers):
            followed.changed()


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
        periods = surroundings.periods
        self._listing = replace(surroundings, periods=replace(periods, relist=min(periods.relist, POLL_SECONDS)))
        self._catalogue = kinds
        self._known: tuple[Catalogue | None, dict[tuple[str, str], APIResource]] = None, _index(_SCALED)
        self._namespaces = tuple(namespaces)
        self._group: asyncio.TaskGroup | None = None
        self._entries: dict[_Key, _Entry] = {}
        self._asked: dict[_Key, tuple[Followed, float]] = {}
        self._swept = surroundings.clock.monotonic()
        self._kinds: dict[GroupResource, _Kind] = {}
        self._missed: dict[tuple[str, str], float] = {}
        self._missing: set[tuple[str, str]] = set()

    async def run(self) -> None:
        """Watch what is followed until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for entry in tuple(self._entries.values()):
                    self.look(entry)
                await asyncio.Event().wait()
            finally:
                self._group = None

    # -- questions -----------------------------------------------------------------------------------------------------

    def follow(self, namespace: str, reference: CrossVersionObjectReference, changed: Callable[[], None]) -> Followed:
        """Keep a target at hand.

        `changed` is called when its replicas, wanted or there, or its selector may be others than before, when it comes and when it
        goes; a new version of the object alone is no change. It must not block.
        """
        key = _Key(namespace, reference.api_version, reference.kind, reference.name)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(key)
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
        return tuple(mirror.status() for kind in self._kinds.values() for mirror in kind.mirrors.values())

    def look(self, entry: _Entry) -> Target | Unfound:
        """Return what is known of a target, and see to it that more will be."""
        key = entry.key
        if key.api_version.count("/") > 1:
            return Unfound(f"unexpected GroupVersion string: {key.api_version}")
        if key.name in {"", ".", ".."} or not _OTHER_PLACES.isdisjoint(key.name):
            return Unfound(f"invalid resource name {quote(key.name)}")  # it would lead to somewhere else
        kind = entry.kind
        resource = self._resources().get(entry.meant)
        if kind is None or (resource is not None and resource.version != kind.resource.version):
            if resource is None:
                return self._miss(entry)
            kind = self._join(entry, resource)
        if not kind.decided:
            self._decide(kind)
            if not kind.decided:
                return Unfound(NOT_YET, known=False)
        mirror = kind.mirror_of(key.namespace)
        if mirror is None or (entry.polling is not None and not mirror.synced):
            return self._look_at_polled(entry, kind)
        self._stop_polling(entry)
        if not mirror.synced:
            return Unfound(f"{NOT_YET}: {mirror.error}" if mirror.error else NOT_YET, known=False)
        return _tell(key, kind.resource, kind.objects.find(key.namespace, key.name))

    # -- kinds ---------------------------------------------------------------------------------------------------------

    def _resources(self) -> dict[tuple[str, str], APIResource]:
        """Return the resources that references may mean, by group and kind."""
        with contextlib.suppress(errors.NotSyncedError):
            current = self._catalogue.current()
            if current is not self._known[0]:
                self._known = current, _index(current) | _index(_SCALED)
        return self._known[1]

    def _miss(self, entry: _Entry) -> Unfound:
        """Have the cluster's kinds read again for one that is not among them, now and then."""
        kind = group, name = entry.meant
        now = self._around.clock.monotonic()
        due = kind not in self._missed or now - self._missed[kind] >= RETRY_SECONDS
        if due and kind not in self._missing and self._group is not None:
            self._missing.add(kind)
            self._group.create_task(self._refresh(kind), name=f"look-up of {name}")
        if kind not in self._missed:
            return Unfound(NOT_YET, known=False)
        return Unfound(f"no matches for kind {quote(name)} in group {quote(group)}")

    async def _refresh(self, kind: tuple[str, str]) -> None:
        try:
            await self._catalogue.refresh()
            self._missed[kind] = self._around.clock.monotonic()
        except errors.SourceError:
            await self._around.sleep(RETRY_SECONDS)
        finally:
            self._missing.discard(kind)
        for entry in tuple(self._entries.values()):
            if entry.meant == kind:
                entry.tell()

    def _join(self, entry: _Entry, resource: APIResource) -> _Kind:
        kind = self._kinds.get(resource.group_resource)
        if kind is not None and kind.resource.version != resource.version:  # served in another version by now
            self._end(kind)
            kind = None
        if kind is None:
            kind = self._kinds[resource.group_resource] = _Kind(resource)
        kind.entries.setdefault((entry.key.namespace, entry.key.name), []).append(entry)
        entry.kind = kind
        return kind

    def drop(self, entry: _Entry) -> None:
        """Forget a target that nobody follows any more; its kind with the last one."""
        del self._entries[entry.key]
        self._stop_polling(entry)
        kind, place = entry.kind, (entry.key.namespace, entry.key.name)
        if kind is None:
            return
        kind.entries[place].remove(entry)
        if not kind.entries[place]:
            del kind.entries[place]
        if not kind.entries:
            self._end(kind)

    def _end(self, kind: _Kind) -> None:
        """Watch a kind no more; whoever wants one of it has to look for it anew."""
        del self._kinds[kind.resource.group_resource]
        for task in kind.tasks:
            task.cancel()
        for mirror in kind.mirrors.values():
            mirror.abandon()
        for entry in itertools.chain.from_iterable(kind.entries.values()):
            self._stop_polling(entry)
            entry.kind = None

    def _decide(self, kind: _Kind) -> None:
        """Begin to watch a kind, or to find out whether it can be watched."""
        if self._group is None or kind.tasks:
            return
        key = kind.resource.group_resource
        form = _BUILT_IN.get((key.group, key.resource))
        if form is not None:
            self._watch(kind, form)
        else:
            kind.tasks.append(self._group.create_task(self._define(kind), name=f"definition of {key}"))

    async def _define(self, kind: _Kind) -> None:
        """Read where a custom kind keeps its replicas, until that is said; then watch it."""
        key = kind.resource.group_resource
        while True:
            form, pause = None, DEFINITION_SECONDS
            try:
                body = await self._client.get(f"{_DEFINITIONS}/{key.resource}.{key.group}")
                form = scaledocuments.read_form(body.content, kind.resource.version)
            except errors.KubernetesError as error:
                pause = DEFINITION_SECONDS if _is_refused(error) else RETRY_SECONDS
            except UNREADABLE:
                form = None  # whatever that is, it says nothing
            known, kind.decided = kind.decided, True
            if form is not None:
                self._watch(kind, form)
                return
            if not known:
                for entry in tuple(itertools.chain.from_iterable(kind.entries.values())):
                    self.look(entry)
            await self._around.sleep(pause)

    def _watch(self, kind: _Kind, form: Form[Seen]) -> None:
        assert self._group is not None
        kind.decided = True
        for namespace in self._namespaces:
            what = str(kind.resource.group_resource)
            name = f"{what} in {namespace} (scaler)" if namespace else f"{what} (scaler)"
            part = Part(kind.objects, namespace)
            mirror = Mirror(form, kind.resource, self._client, self._listing, part, name=name, namespace=namespace)
            kind.mirrors[namespace] = mirror
            kind.tasks.append(self._group.create_task(mirror.run(), name=f"reflector of {name}"))

    # -- scales that are read ------------------------------------------------------------------------------------------

    def _look_at_polled(self, entry: _Entry, kind: _Kind) -> Target | Unfound:
        if entry.polling is None and self._group is not None and entry.followers:
            name = f"scale of {entry.key.kind} {entry.key.namespace}/{entry.key.name}"
            entry.polling = self._group.create_task(self._poll(entry, kind.resource), name=name)
        polled = entry.polled
        if polled is None:
            return Unfound(NOT_YET, known=False)
        if isinstance(polled, errors.KubernetesError):
            return Unfound(_words_of(polled), known=_is_refused(polled))
        return _tell(entry.key, kind.resource, polled)

    @staticmethod
    def _stop_polling(entry: _Entry) -> None:
        if entry.polling is not None:
            entry.polling.cancel()
            entry.polling = entry.polled = None

    async def _poll(self, entry: _Entry, resource: APIResource) -> None:
        """Read the scale of a target again and again. What was read stays while the API server cannot be reached."""
        path = _scale_path(resource, entry.key)
        while True:
            before, found = entry.polled, await self._fetch(path, entry.key)
            if isinstance(found, Seen) or not isinstance(before, Seen) or _is_refused(found):
                entry.polled = found
            if not _is_same(before, entry.polled):
                entry.tell()
            await self._around.sleep(POLL_SECONDS * (0.9 + 0.2 * self._around.random()))

    async def _fetch(self, path: str, key: _Key) -> Seen | errors.KubernetesError:
        try:
            return scaledocuments.read_scale((await self._client.get(path)).content, key.namespace, key.name)
        except errors.KubernetesError as error:
            return error
        except UNREADABLE as error:
            return errors.KubernetesError(0, "Decode", f"cannot get {path}: the answer is no Scale ({error})")


def _index(catalogue: Catalogue) -> dict[tuple[str, str], APIResource]:
    """Return namespaced resources by group and kind, in the version that takes precedence. Lower case will do, as upstream."""
    found: dict[tuple[str, str], APIResource] = {}
    for resource in catalogue:
        if resource.namespaced:
            found.setdefault((resource.group, resource.kind), resource)
            found.setdefault((resource.group, resource.kind.lower()), resource)
    return found


def _is_refused(error: errors.KubernetesError | None) -> bool:
    """Tell whether the API server understood and said no: what may not be listed is read one by one."""
    return error is not None and 400 <= error.status < 500 and error.status not in {410, 429}


def _is_in_vain(error: errors.KubernetesError | None) -> bool:
    """Tell whether a kind cannot be listed, be it for one object of it: the scales of the others are to be known all the same."""
    return _is_refused(error) or (error is not None and error.reason == TOO_DEEP)


def _is_same(one: Seen | errors.KubernetesError | None, other: Seen | errors.KubernetesError | None) -> bool:
    if isinstance(one, Seen) and isinstance(other, Seen):
        return targetforms.same_scale(one, other)
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
