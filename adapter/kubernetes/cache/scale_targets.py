"""The scale targets of autoscalers: their replicas, from a cache of each kind that is a target.

Deployments, StatefulSets, ReplicaSets and ReplicationControllers are watched, and so is a custom kind whose
CustomResourceDefinition names plain field paths for its replicas. If only the watch is refused, the kind is
listed every few seconds. Any other kind, and any kind whose list is refused, is not cached: the scale of each
followed target is then read every few seconds, in turns of namespaces and with a rate for all of them, and
less and less often while the API server refuses that. A kind is cached only while it is a target. A target
that is not yet known is never reported as absent.
"""

import asyncio
import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from adapter import errors
from adapter.kubernetes.cache import scale_codec
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.cache.scale_codec import ObservedScale
from adapter.kubernetes.cache.store import ObjectCache, in_steps
from adapter.kubernetes.client import ListWatch, path_of
from adapter.kubernetes.codec import UNREADABLE, ObjectCodec
from adapter.kubernetes.discovery import CatalogueSource
from adapter.model.autoscaling.hpa import CrossVersionObjectReference
from adapter.model.fairness import Turns
from adapter.model.go_text import quote
from adapter.model.metrics import GroupResource
from adapter.model.resources import BUILTIN, APIResource, Catalogue

POLL_SECONDS = 5.0
"""Interval at which a scale that is not watched is read, or its kind is listed."""

REFUSED_SECONDS = 300.0
"""The longest interval at which a scale is read while the API server refuses that; it doubles up to this."""

POLLS_PER_SECOND = 10.0
"""How many scales are read in a second, of all targets whose kind is not cached."""

RETRY_SECONDS = 30.0
"""Interval after which an unknown kind is looked up again, or a definition that could not be read, and the
longest one at which the scale of a target is read that does not exist.
"""

DEFINITION_SECONDS = 600.0
"""Interval after which a definition that is forbidden, or names no plain paths, is read again."""

_PATH_CHARACTERS = frozenset("/%?#\\")

BUILT_IN: dict[tuple[str, str], ObjectCodec[ObservedScale]] = {
    ("apps", "deployments"): scale_codec.built_in(),
    ("apps", "replicasets"): scale_codec.built_in(),
    ("apps", "statefulsets"): scale_codec.built_in(),
    ("", "replicationcontrollers"): scale_codec.built_in(plain_selector=True),
}


def _index(catalogue: Catalogue) -> dict[tuple[str, str], APIResource]:
    """Index namespaced resources by group and kind, in both cases as upstream; the preferred version wins."""
    kinds: dict[tuple[str, str], APIResource] = {}
    for resource in catalogue:
        if resource.namespaced:
            kinds.setdefault((resource.group, resource.kind), resource)
            kinds.setdefault((resource.group, resource.kind.lower()), resource)
    return kinds


_SCALED = _index(Catalogue([kind for kind in BUILTIN if (kind.group, kind.plural) in BUILT_IN]))
"""Kinds that are known without discovery."""


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


_NOT_YET = "the scale is not yet known"


@dataclass(slots=True, eq=False)
class TargetSubscription:
    """The target of one autoscaler; `changed` is called as `ScaleTargets.follow` says, `close` ends it.

    `place` is namespace and name, `meant` the group and kind of the reference. `path` is that of the scale,
    while the kind is known.
    """

    _targets: "ScaleTargets"
    namespace: str
    reference: CrossVersionObjectReference
    changed: Callable[[], None]
    place: tuple[str, str] = field(init=False)
    meant: tuple[str, str] = field(init=False)
    kind: "TargetKind | None" = field(default=None, init=False)
    path: str = field(default="", init=False)
    _invalid: Unfound | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        reference = self.reference
        self.place = self.namespace, reference.name
        self.meant = sys.intern(reference.api_version.rpartition("/")[0]), reference.kind
        if reference.api_version.count("/") > 1:
            self._invalid = Unfound(f"unexpected GroupVersion string: {reference.api_version}")
        elif reference.name in {"", ".", ".."} or not _PATH_CHARACTERS.isdisjoint(reference.name):
            # its path would name another resource
            self._invalid = Unfound(f"invalid resource name {quote(reference.name)}")

    def find(self) -> ScaleTarget | Unfound:
        """Return what is known of the target, and start what it takes to know more."""
        if self._invalid is not None:
            return self._invalid
        name, targets = self.reference.name, self._targets
        kind = self.kind
        resource = targets.find_kind(self.meant)
        # The catalogue may be empty or old after a failed discovery: a kind that was known stays known, and
        # only another version of it replaces the watch.
        if kind is None or (resource is not None and resource.version != kind.resource.version):
            if resource is None:
                if not targets.miss_kind(self.meant):
                    return Unfound(_NOT_YET, known=False)
                return Unfound(f"no matches for kind {quote(self.meant[1])} in group {quote(self.meant[0])}")
            kind = self.kind = targets.join(self, resource)
            self.path = f"{path_of(resource, self.namespace)}/{name}/scale"
        if not kind.decided:
            targets.decide(kind)
            if not kind.decided:
                return Unfound(_NOT_YET, known=False)
        objects = kind.objects
        # A target that is polled stays polled until the watch has listed: a gap in between would read as a
        # target that does not exist.
        if objects is None or objects.refused or (self.place in kind.polling and not objects.synced):
            return self._find_polled(kind)
        seen = objects.find(self.namespace, name)
        # The codec refused this object alone. Its scale subresource is small and may still be readable.
        if seen is not None and seen.unreadable:
            return self._find_polled(kind)
        kind.stop_polling(self.place)
        if not objects.synced:
            return Unfound(f"{_NOT_YET}: {objects.error}" if objects.error else _NOT_YET, known=False)
        return self._build(kind, seen)

    def _find_polled(self, kind: "TargetKind") -> ScaleTarget | Unfound:
        if self.place not in kind.polling:
            self._targets.poll(self, kind)
        polled = kind.polled.get(self.place)
        if polled is None:
            return Unfound(_NOT_YET, known=False)
        if isinstance(polled, errors.KubernetesError):
            return Unfound(polled.said or str(polled), known=polled.is_refusal)
        return self._build(kind, polled)

    def _build(self, kind: "TargetKind", seen: ObservedScale | None) -> ScaleTarget | Unfound:
        if seen is None:
            return Unfound(f"{kind.resource.group_resource} {quote(self.reference.name)} not found")
        if seen.replicas is None:
            return Unfound("Internal error occurred: the spec replicas field does not exist")
        return ScaleTarget(
            seen.replicas,
            seen.status_replicas,
            seen.selector,
            seen.resource_version,
            seen.manager,
            self.path,
            seen.uid,
            seen.since,
        )

    def close(self) -> None:
        """End the subscription; closing twice is harmless."""
        self._targets.drop(self)


class PollTurns:
    """Lets reads of scales pass at `POLLS_PER_SECOND`, namespaces in turn."""

    def __init__(self, context: ReflectorContext) -> None:
        self._context = context
        self._waiting: Turns[asyncio.Event] = Turns()
        self._wake = asyncio.Event()

    async def wait(self, place: tuple[str, str]) -> None:
        """Wait for the turn of a read of the scale at a namespace and name."""
        turn = asyncio.Event()
        self._waiting.add(*place, turn)
        self._wake.set()
        try:
            await turn.wait()
        finally:
            self._waiting.discard(*place, turn)

    async def run(self) -> None:
        while True:
            while not self._waiting:
                self._wake.clear()
                await self._wake.wait()
            self._waiting.take().set()
            await self._context.sleep(1 / POLLS_PER_SECOND)


class TargetKind:
    """One kind of targets: its cached objects, and its targets by namespace and name.

    `decided` says whether it is known if the kind can be cached; `objects` is None until then, and if it
    cannot. `polling` has the tasks that read scales which are not, one for all subscriptions to a target, and
    `polled` their last results.
    """

    def __init__(self, resource: APIResource, context: ReflectorContext) -> None:
        self.resource = resource
        self._context = context
        self.decided = False
        self.objects: ObjectCache[ObservedScale] | None = None
        self.targets: dict[tuple[str, str], list[TargetSubscription]] = {}
        self.polling: dict[tuple[str, str], asyncio.Task[None]] = {}
        self.polled: dict[tuple[str, str], ObservedScale | errors.KubernetesError] = {}
        self.tasks: list[asyncio.Task[None]] = []

    def cache(self, codec: ObjectCodec[ObservedScale]) -> ObjectCache[ObservedScale]:
        """Have the objects of the kind cached, and return them."""
        source, same, lost = ListWatch(codec, self.resource), scale_codec.same_scale, scale_codec.lose
        self.decided = True
        self.objects = ObjectCache(
            source, self._context, self._changed, same=same, lost=lost, listed=self._listed
        )
        return self.objects

    def all_targets(self) -> tuple[TargetSubscription, ...]:
        return tuple(itertools.chain.from_iterable(self.targets.values()))

    def stop_polling(self, place: tuple[str, str]) -> None:
        if (task := self.polling.pop(place, None)) is not None:
            task.cancel()
            self.polled.pop(place, None)

    def notify(self, place: tuple[str, str]) -> None:
        for target in tuple(self.targets.get(place, ())):
            target.changed()

    def _changed(self, namespace: str, name: str) -> None:
        assert self.objects is not None
        if self.objects.refused or self.objects.synced:  # else all are notified when the first list is in
            self.notify((namespace, name))

    def _listed(self) -> Iterator[None]:
        defects = self._context.problems.defects
        return in_steps(self.all_targets(), lambda target: target.changed(), defects)


class ScaleTargets:
    """The scales of targets, while `run` runs."""

    def __init__(self, context: ReflectorContext, catalogue: CatalogueSource) -> None:
        relist = min(context.periods.relist, POLL_SECONDS)
        self._context = replace(context, periods=replace(context.periods, relist=relist))
        self._catalogue = catalogue
        self._group: asyncio.TaskGroup | None = None
        self._turns = PollTurns(self._context)
        self._targets: dict[TargetSubscription, None] = {}
        self._kinds: dict[GroupResource, TargetKind] = {}
        self._known: tuple[Catalogue | None, dict[tuple[str, str], APIResource]] = None, _SCALED
        self._missed: dict[tuple[str, str], float] = {}
        self._missing: set[tuple[str, str]] = set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._group = group
            group.create_task(self._turns.run(), name="turns of scales that are read")
            try:
                for target in tuple(self._targets):
                    target.find()
                await asyncio.Event().wait()
            finally:
                self._group = None

    def follow(
        self, namespace: str, reference: CrossVersionObjectReference, changed: Callable[[], None]
    ) -> TargetSubscription:
        """Subscribe to a target.

        `changed` is called when its desired or current replicas or its selector may have changed, and when it
        appears or disappears; a new resourceVersion alone is not a change. It must not block.
        """
        target = TargetSubscription(self, namespace, reference, changed)
        self._targets[target] = None
        target.find()
        return target

    def drop(self, target: TargetSubscription) -> None:
        """End a subscription, as its `close` does, and forget a kind with its last target."""
        if target not in self._targets:
            return
        del self._targets[target]
        if target.meant in self._missed and not any(other.meant == target.meant for other in self._targets):
            del self._missed[target.meant]
        if (kind := target.kind) is not None:
            followers = kind.targets[target.place]
            followers.remove(target)
            if not followers:
                del kind.targets[target.place]
                kind.stop_polling(target.place)
            if not kind.targets:
                self._end(kind)

    # -- kinds of the cluster --------------------------------------------------------------------------------

    def find_kind(self, meant: tuple[str, str]) -> APIResource | None:
        """Return the resource of a group and kind, None if it is unknown."""
        with contextlib.suppress(errors.NotSyncedError):
            current = self._catalogue.current()
            if current is not self._known[0]:
                self._known = current, _index(current) | _SCALED
        return self._known[1].get(meant)

    def miss_kind(self, meant: tuple[str, str]) -> bool:
        """Have the kinds read again, at intervals, for an unknown one; return whether they were before."""
        now = self._context.clock.monotonic()
        due = meant not in self._missed or now - self._missed[meant] >= RETRY_SECONDS
        if due and meant not in self._missing and self._group is not None:
            self._missing.add(meant)
            self._group.create_task(self._refresh(meant), name=f"look-up of {meant[1]}")
        return meant in self._missed

    async def _refresh(self, meant: tuple[str, str]) -> None:
        try:
            await self._catalogue.refresh()
            self._missed[meant] = self._context.clock.monotonic()
        except errors.SourceError:
            await self._context.sleep(RETRY_SECONDS)
        finally:
            self._missing.discard(meant)
        for target in tuple(self._targets):
            if target.meant == meant:
                target.changed()

    # -- kinds that are targeted -----------------------------------------------------------------------------

    def join(self, target: TargetSubscription, resource: APIResource) -> TargetKind:
        """Add a target to its kind, and return the kind."""
        kind = self._kinds.get(resource.group_resource)
        if kind is not None and kind.resource.version != resource.version:  # served in another version by now
            self._end(kind)
            kind = None
        if kind is None:
            kind = self._kinds[resource.group_resource] = TargetKind(resource, self._context)
        kind.targets.setdefault(target.place, []).append(target)
        return kind

    def _end(self, kind: TargetKind) -> None:
        """Stop caching a kind; the next question about one of its targets looks it up again."""
        del self._kinds[kind.resource.group_resource]
        for task in kind.tasks:
            task.cancel()
        if kind.objects is not None:
            kind.objects.abandon()
        for place in tuple(kind.polling):
            kind.stop_polling(place)
        for target in kind.all_targets():
            target.kind = None

    def decide(self, kind: TargetKind) -> None:
        """Start caching a kind, or finding out whether it can be cached."""
        if self._group is None or kind.tasks:
            return
        key = kind.resource.group_resource
        codec = BUILT_IN.get((key.group, key.resource))
        if codec is not None:
            self._watch(kind, codec)
        else:
            kind.tasks.append(self._group.create_task(self._define(kind), name=f"definition of {key}"))

    async def _define(self, kind: TargetKind) -> None:
        """Read the definition of a custom kind until it says where the replicas are; then cache the kind."""
        key = kind.resource.group_resource
        while True:
            codec, pause = None, DEFINITION_SECONDS
            try:
                path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
                body = await self._context.client.get(f"{path}/{key.resource}.{key.group}")
                codec = scale_codec.read_codec(body.content, kind.resource.version)
            except errors.KubernetesError as error:
                pause = DEFINITION_SECONDS if error.is_refusal else RETRY_SECONDS
            except UNREADABLE:
                codec = None  # not a definition: as one without paths
            known, kind.decided = kind.decided, True
            if codec is not None:
                self._watch(kind, codec)
                return
            if not known:
                for target in kind.all_targets():
                    target.find()
            await self._context.sleep(pause)

    def _watch(self, kind: TargetKind, codec: ObjectCodec[ObservedScale]) -> None:
        assert self._group is not None
        objects = kind.cache(codec)
        kind.tasks.append(self._group.create_task(objects.run(), name=f"reflector of {objects.name}"))

    # -- scales that are read --------------------------------------------------------------------------------

    def poll(self, target: TargetSubscription, kind: TargetKind) -> None:
        """Start reading the scale of a target that is followed, for all its subscriptions."""
        if self._group is not None and target in self._targets:
            task = self._poll(kind, target.place, target.path)
            name = f"scale of {target.reference.kind} {target.namespace}/{target.reference.name}"
            kind.polling[target.place] = self._group.create_task(task, name=name)

    async def _poll(self, kind: TargetKind, place: tuple[str, str], path: str) -> None:
        """Read a scale at intervals. The last one stays while the API server cannot be reached."""
        pause = POLL_SECONDS / 2
        while True:
            await self._turns.wait(place)
            before, fresh = kind.polled.get(place), await self._fetch(path, place)
            is_refused = not isinstance(fresh, ObservedScale) and fresh.is_refusal
            if isinstance(fresh, ObservedScale) or not isinstance(before, ObservedScale) or is_refused:
                kind.polled[place] = fresh
                if not _is_same(before, fresh):
                    kind.notify(place)
            longest = RETRY_SECONDS if _is_absent(fresh) else REFUSED_SECONDS
            pause = min(2 * pause, longest) if is_refused else POLL_SECONDS
            await self._context.sleep(pause * (0.9 + 0.2 * self._context.random()))

    async def _fetch(self, path: str, place: tuple[str, str]) -> ObservedScale | errors.KubernetesError:
        try:
            return scale_codec.read_scale((await self._context.client.get(path)).content, *place)
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
    return str(one) == str(other)


def _is_absent(polled: ObservedScale | errors.KubernetesError) -> bool:
    """Whether there is no such target, which may be made at any time, and not no such path."""
    return isinstance(polled, errors.KubernetesError) and polled.status == 404 and not polled.plain
