"""The kinds of targets: which of the cluster's a reference means, and the objects of those that are watched.

What lives here: which kinds are watched and for how long, and what says where a custom kind keeps its replicas. Not here: what is known of
one target, and what stands in where its kind is not watched (`targets`); what is kept of an object (`targetforms`), reflectors (`mirror`).
The law: a kind is watched while somebody has a target of it and no longer.

Deployments, StatefulSets, ReplicaSets and ReplicationControllers are watched, and so is a custom kind whose CustomResourceDefinition says
where it keeps its replicas; where only the watch is refused, they are listed every few seconds. All others, and those of which the list
is refused, are not watched.
"""

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from adapter import errors
from adapter.kubernetes.api_errors import TOO_DEEP
from adapter.kubernetes.cache import scale_codec, scale_documents
from adapter.kubernetes.cache.mirror import Collection, Mirror, Part, WholeClient, in_steps
from adapter.kubernetes.cache.reflector import ReflectorStatus, Surroundings
from adapter.kubernetes.cache.scale_codec import Seen
from adapter.kubernetes.client import Body
from adapter.kubernetes.codec import UNREADABLE, Form
from adapter.model.metrics import GroupResource
from adapter.model.resources import BUILTIN, APIResource, Catalogue

POLL_SECONDS = 5.0
"""How often a scale that is not watched is read, or the kind listed."""

RETRY_SECONDS = 30.0
"""How soon it is looked again for a kind that was not found, or a definition that could not be read."""

DEFINITION_SECONDS = 600.0
"""How soon it is looked again whether a definition has come to be readable, or to say where the replicas are."""

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

_BUILT_IN: dict[tuple[str, str], Form[Seen]] = {
    ("apps", "deployments"): scale_codec.built_in(),
    ("apps", "replicasets"): scale_codec.built_in(),
    ("apps", "statefulsets"): scale_codec.built_in(),
    ("", "replicationcontrollers"): scale_codec.built_in(plain_selector=True),
}
_SCALED = Catalogue([each for each in BUILTIN if (each.group, each.plural) in _BUILT_IN])
"""Known without asking the cluster."""


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


class Member(Protocol):
    """A target, as its kind sees it. `place` is its namespace and name."""

    place: tuple[str, str]

    def tell(self) -> None:
        """Say that it may be another than before."""
        ...

    def look(self) -> object:
        """Begin to read it, since its kind is not watched."""
        ...

    def detach(self) -> None:
        """Belong to no kind any more; who wants it has to look for its kind anew."""
        ...


class Kind:
    """One kind that is targeted: its objects where they are watched (`mirrors` by namespace), and who wants which.

    `decided` says whether it is known if it can be watched.
    """

    def __init__(self, resource: APIResource) -> None:
        self.resource = resource
        self.decided = False
        self.mirrors: dict[str, Mirror[Seen]] = {}
        self.objects: Collection[Seen] = Collection(self._changed, self._listed, scale_codec.same_scale)
        self.entries: dict[tuple[str, str], list[Member]] = {}
        self.tasks: list[asyncio.Task[None]] = []

    def _changed(self, namespace: str, name: str) -> None:
        mirror = self.mirror_of(namespace)
        if mirror is None or mirror.synced:  # else all are told when the first list is in
            for entry in tuple(self.entries.get((namespace, name), ())):
                entry.tell()

    def _listed(self) -> Iterator[None]:
        return in_steps(
            tuple(itertools.chain.from_iterable(self.entries.values())), lambda entry: entry.tell()
        )

    def mirror_of(self, namespace: str) -> Mirror[Seen] | None:
        """Return what watches a namespace, None where nothing does, may or can."""
        mirror = self.mirrors.get(namespace) or self.mirrors.get("")
        return None if mirror is None or _is_in_vain(mirror.error) else mirror


class TargetKinds:
    """The kinds that are targeted. `group` is where their tasks run, None while they cannot.

    `refreshed` is called with a group and kind when the cluster's kinds may have been read again for it.
    """

    def __init__(
        self,
        client: Client,
        surroundings: Surroundings,
        kinds: Kinds,
        namespaces: Sequence[str],
        refreshed: Callable[[tuple[str, str]], None],
    ) -> None:
        self._client = client
        self._around = surroundings
        periods = surroundings.periods
        self._listing = replace(
            surroundings, periods=replace(periods, relist=min(periods.relist, POLL_SECONDS))
        )
        self._catalogue = kinds
        self._known: tuple[Catalogue | None, dict[tuple[str, str], APIResource]] = None, _index(_SCALED)
        self._namespaces = tuple(namespaces)
        self._refreshed = refreshed
        self.group: asyncio.TaskGroup | None = None
        self._targeted: dict[GroupResource, Kind] = {}
        self._missed: dict[tuple[str, str], float] = {}
        self._missing: set[tuple[str, str]] = set()

    def status(self) -> tuple[ReflectorStatus, ...]:
        """Return what the watches say of themselves."""
        return tuple(mirror.status() for kind in self._targeted.values() for mirror in kind.mirrors.values())

    # -- kinds of the cluster ------------------------------------------------------------------------------------------

    def find(self, kind: tuple[str, str]) -> APIResource | None:
        """Return the resource that references to a group and kind mean, None if it is not known."""
        with contextlib.suppress(errors.NotSyncedError):
            current = self._catalogue.current()
            if current is not self._known[0]:
                self._known = current, _index(current) | _index(_SCALED)
        return self._known[1].get(kind)

    def miss(self, kind: tuple[str, str]) -> bool:
        """Have the cluster's kinds read again for one that is not among them, now and then; tell whether they were before."""
        now = self._around.clock.monotonic()
        due = kind not in self._missed or now - self._missed[kind] >= RETRY_SECONDS
        if due and kind not in self._missing and self.group is not None:
            self._missing.add(kind)
            self.group.create_task(self._refresh(kind), name=f"look-up of {kind[1]}")
        return kind in self._missed

    async def _refresh(self, kind: tuple[str, str]) -> None:
        try:
            await self._catalogue.refresh()
            self._missed[kind] = self._around.clock.monotonic()
        except errors.SourceError:
            await self._around.sleep(RETRY_SECONDS)
        finally:
            self._missing.discard(kind)
        self._refreshed(kind)

    # -- kinds that are targeted ---------------------------------------------------------------------------------------

    def join(self, entry: Member, resource: APIResource) -> Kind:
        """Return the kind of a target, which is one of it from now on."""
        kind = self._targeted.get(resource.group_resource)
        if kind is not None and kind.resource.version != resource.version:  # served in another version by now
            self._end(kind)
            kind = None
        if kind is None:
            kind = self._targeted[resource.group_resource] = Kind(resource)
        kind.entries.setdefault(entry.place, []).append(entry)
        return kind

    def leave(self, entry: Member, kind: Kind) -> None:
        """Forget a target; its kind with the last one."""
        kind.entries[entry.place].remove(entry)
        if not kind.entries[entry.place]:
            del kind.entries[entry.place]
        if not kind.entries:
            self._end(kind)

    def _end(self, kind: Kind) -> None:
        """Watch a kind no more; whoever wants one of it has to look for it anew."""
        del self._targeted[kind.resource.group_resource]
        for task in kind.tasks:
            task.cancel()
        for mirror in kind.mirrors.values():
            mirror.abandon()
        for entry in itertools.chain.from_iterable(kind.entries.values()):
            entry.detach()

    def decide(self, kind: Kind) -> None:
        """Begin to watch a kind, or to find out whether it can be watched."""
        if self.group is None or kind.tasks:
            return
        key = kind.resource.group_resource
        form = _BUILT_IN.get((key.group, key.resource))
        if form is not None:
            self._watch(kind, form)
        else:
            kind.tasks.append(self.group.create_task(self._define(kind), name=f"definition of {key}"))

    async def _define(self, kind: Kind) -> None:
        """Read where a custom kind keeps its replicas, until that is said; then watch it."""
        key = kind.resource.group_resource
        while True:
            form, pause = None, DEFINITION_SECONDS
            try:
                body = await self._client.get(f"{_DEFINITIONS}/{key.resource}.{key.group}")
                form = scale_documents.read_form(body.content, kind.resource.version)
            except errors.KubernetesError as error:
                pause = DEFINITION_SECONDS if is_refused(error) else RETRY_SECONDS
            except UNREADABLE:
                form = None  # whatever that is, it says nothing
            known, kind.decided = kind.decided, True
            if form is not None:
                self._watch(kind, form)
                return
            if not known:
                for entry in tuple(itertools.chain.from_iterable(kind.entries.values())):
                    entry.look()
            await self._around.sleep(pause)

    def _watch(self, kind: Kind, form: Form[Seen]) -> None:
        assert self.group is not None
        kind.decided = True
        for namespace in self._namespaces:
            what = str(kind.resource.group_resource)
            name = f"{what} in {namespace} (scaler)" if namespace else f"{what} (scaler)"
            part = Part(kind.objects, namespace)
            mirror = Mirror(
                form, kind.resource, self._client, self._listing, part, name=name, namespace=namespace
            )
            kind.mirrors[namespace] = mirror
            kind.tasks.append(self.group.create_task(mirror.run(), name=f"reflector of {name}"))


def _index(catalogue: Catalogue) -> dict[tuple[str, str], APIResource]:
    """Return namespaced resources by group and kind, in the version that takes precedence. Lower case will do, as upstream."""
    found: dict[tuple[str, str], APIResource] = {}
    for resource in catalogue:
        if resource.namespaced:
            found.setdefault((resource.group, resource.kind), resource)
            found.setdefault((resource.group, resource.kind.lower()), resource)
    return found


def is_refused(error: errors.KubernetesError | None) -> bool:
    """Tell whether the API server understood and said no: what may not be listed is read one by one."""
    return error is not None and 400 <= error.status < 500 and error.status not in {410, 429}


def _is_in_vain(error: errors.KubernetesError | None) -> bool:
    """Tell whether a kind cannot be listed, be it for one object of it: the scales of the others are to be known all the same."""
    return is_refused(error) or (error is not None and error.reason == TOO_DEEP)
