"""The scale targets of autoscalers: their replicas, from a cache of each kind that is a target.

Deployments, StatefulSets, ReplicaSets and ReplicationControllers are watched, and so is a custom kind whose
CustomResourceDefinition names plain field paths for its replicas. If only the watch is refused, the kind is
listed every few seconds. Any other kind, and any kind whose list is refused, is not cached: the scale of each
followed target is then read every few seconds, in turns of namespaces and with a rate for all of them, and
less and less often while the API server refuses that. A kind is cached only while it is a target. A target
that is not yet known is never reported as absent.
"""

import asyncio
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
from adapter.model.objects.resources import BUILTIN, APIResource, Catalogue

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
        if self._targets.catalogue.known is not self._targets.indexed:
            self._targets.follow_catalogue()
        kind = self.kind or self._targets.join(self)
        seen = kind if isinstance(kind, Unfound) else kind.find(self)
        if isinstance(seen, Unfound):
            return seen
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


_Polled = ObservedScale | errors.KubernetesError


class TargetKind:
    """One kind of targets, while `run` runs: its objects, and its targets by namespace and name."""

    def __init__(self, resource: APIResource, context: ReflectorContext, turns: PollTurns) -> None:
        self.resource = resource
        self.targets: dict[tuple[str, str], list[TargetSubscription]] = {}
        self._context = context
        self._turns = turns
        self._group: asyncio.TaskGroup | None = None
        self._is_decided = False
        """Whether it is known if the kind can be cached."""
        self._objects: ObjectCache[ObservedScale] | None = None
        self._polling: dict[tuple[str, str], asyncio.Task[None]] = {}
        """What reads the scales that are not cached, one task for all subscriptions to a target."""
        self._polled: dict[tuple[str, str], _Polled] = {}

    async def run(self) -> None:
        key = self.resource.group_resource
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                codec = BUILT_IN.get((key.group, key.resource)) or await self._define()
                source, same, lost = ListWatch(codec, self.resource), scale_codec.same_scale, scale_codec.lose
                self._objects = ObjectCache(
                    source, self._context, self._changed, same=same, lost=lost, listed=self._listed
                )
                self._is_decided = True
                await self._objects.run()
            finally:
                self._group = None  # before it waits for the reads: it takes no more of them

    def find(self, target: TargetSubscription) -> ObservedScale | Unfound:
        place, objects = target.place, self._objects
        is_polled = place in self._polling
        if objects is not None and objects.error is not None and objects.error.is_refusal:
            objects = None  # it is of no use, however old: each scale is read by itself
        # A target that is polled stays polled until the watch has listed: a gap in between would read as a
        # target that does not exist.
        if objects is not None and (objects.synced or not is_polled):
            seen = objects.find(*place)
            # The codec refused this object alone. Its scale subresource is small and may still be readable.
            if seen is None or not seen.unreadable:
                if is_polled:
                    self._stop_polling(place)
                if objects.synced:
                    return seen or Unfound(f"{self.resource.group_resource} {quote(place[1])} not found")
                return Unfound(f"{_NOT_YET}: {objects.error}" if objects.error else _NOT_YET, known=False)
        if self._is_decided and not is_polled:
            self._start_polling(target)
        polled = self._polled.get(place)
        if isinstance(polled, errors.KubernetesError):
            return Unfound(polled.said or str(polled), known=polled.is_refusal)
        return polled or Unfound(_NOT_YET, known=False)

    def remove(self, target: TargetSubscription) -> None:
        followers = self.targets[target.place]
        followers.remove(target)
        if not followers:
            del self.targets[target.place]
            self._stop_polling(target.place)

    def end(self) -> None:
        """Forget the targets: the next question about one of them looks its kind up again."""
        if self._objects is not None:
            self._objects.stop()
        for target in self._all_targets():
            target.kind = None

    def _all_targets(self) -> tuple[TargetSubscription, ...]:
        return tuple(itertools.chain.from_iterable(self.targets.values()))

    def _notify(self, place: tuple[str, str]) -> None:
        for target in tuple(self.targets.get(place, ())):
            target.changed()

    def _changed(self, namespace: str, name: str) -> None:
        assert self._objects is not None, "it has changed"
        if self._objects.synced or self._objects.refused:  # else all are notified when the first list is in
            self._notify((namespace, name))

    def _listed(self) -> Iterator[None]:
        defects = self._context.problems.defects
        return in_steps(self._all_targets(), lambda target: target.changed(), defects)

    async def _define(self) -> ObjectCodec[ObservedScale]:
        """Read the definition of a custom kind until it says where the replicas are."""
        key = self.resource.group_resource
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{key.resource}.{key.group}"
        while True:
            codec, pause = None, DEFINITION_SECONDS
            try:
                body = await self._context.client.get(path)
                codec = scale_codec.read_codec(body.content, self.resource.version)
            except errors.KubernetesError as error:
                pause = DEFINITION_SECONDS if error.is_refusal else RETRY_SECONDS
            except UNREADABLE:
                codec = None  # not a definition: as one without paths
            if codec is not None:
                return codec
            if not self._is_decided:
                self._is_decided = True
                for target in self._all_targets():
                    target.find()
            await self._context.sleep(pause)

    # -- scales that are read --------------------------------------------------------------------------------

    def _start_polling(self, target: TargetSubscription) -> None:
        """Start reading the scale of a target that is followed, for all its subscriptions."""
        place = target.place
        if self._group is not None and target in self.targets.get(place, ()):
            name = f"scale of {target.reference.kind} {'/'.join(place)}"
            self._polling[place] = self._group.create_task(self._poll(place, target.path), name=name)

    def _stop_polling(self, place: tuple[str, str]) -> None:
        if (task := self._polling.pop(place, None)) is not None:
            task.cancel()
            self._polled.pop(place, None)

    async def _poll(self, place: tuple[str, str], path: str) -> None:
        """Read a scale at intervals. The last one stays while the API server cannot be reached."""
        pause = POLL_SECONDS / 2
        while True:
            await self._turns.wait(place)
            before, fresh = self._polled.get(place), await self._fetch(path, place)
            is_refused = not isinstance(fresh, ObservedScale) and fresh.is_refusal
            if isinstance(fresh, ObservedScale) or not isinstance(before, ObservedScale) or is_refused:
                self._polled[place] = fresh
                if not _is_same(before, fresh):
                    self._notify(place)
            longest = RETRY_SECONDS if _is_absent(fresh) else REFUSED_SECONDS
            pause = min(2 * pause, longest) if is_refused else POLL_SECONDS
            await self._context.sleep(pause * (0.9 + 0.2 * self._context.random()))

    async def _fetch(self, path: str, place: tuple[str, str]) -> _Polled:
        try:
            return scale_codec.read_scale((await self._context.client.get(path)).content, *place)
        except errors.KubernetesError as error:
            return error
        except UNREADABLE as error:
            return errors.KubernetesError(
                0, "Decode", f"cannot get {path}: the response is not a Scale object ({error})"
            )


def _is_same(one: _Polled | None, other: _Polled) -> bool:
    if isinstance(one, ObservedScale) and isinstance(other, ObservedScale):
        return scale_codec.same_scale(one, other)
    return str(one) == str(other)


def _is_absent(polled: _Polled) -> bool:
    """Whether there is no such target, which may be made at any time, and not no such path."""
    return isinstance(polled, errors.KubernetesError) and polled.status == 404 and not polled.plain


class ScaleTargets:
    """The scales of targets, while `run` runs.

    `indexed` is the catalogue whose kinds are known.
    """

    def __init__(self, context: ReflectorContext, catalogue: CatalogueSource) -> None:
        relist = min(context.periods.relist, POLL_SECONDS)
        self._context = replace(context, periods=replace(context.periods, relist=relist))
        self.catalogue = catalogue
        self.indexed: Catalogue | None = None
        self._resources = _SCALED
        self._group: asyncio.TaskGroup | None = None
        self._turns = PollTurns(self._context)
        self._targets: dict[TargetSubscription, None] = {}
        self._kinds: dict[GroupResource, tuple[TargetKind, asyncio.Task[None]]] = {}
        """The kinds that are targeted, and what runs each."""
        self._missed: dict[tuple[str, str], float] = {}
        """When groups and kinds were looked up that are unknown."""
        self._missing: set[tuple[str, str]] = set()
        """Those that are being looked up."""

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
            kind.remove(target)
            if not kind.targets:
                self._end(kind)

    def join(self, target: TargetSubscription) -> TargetKind | Unfound:
        """Add a target to its kind, and return the kind, or why it is not known."""
        resource = self._resources.get(target.meant)
        if resource is None and self._miss(target.meant):
            group, name = map(quote, target.meant)
            return Unfound(f"no matches for kind {name} in group {group}")
        if resource is None or self._group is None:
            return Unfound(_NOT_YET, known=False)
        key = resource.group_resource
        if key not in self._kinds:
            kind = TargetKind(resource, self._context, self._turns)
            self._kinds[key] = kind, self._group.create_task(kind.run(), name=f"targets of {key}")
        kind = target.kind = self._kinds[key][0]
        kind.targets.setdefault(target.place, []).append(target)
        target.path = f"{path_of(resource, target.namespace)}/{target.reference.name}/scale"
        return kind

    def follow_catalogue(self) -> None:
        """Know the kinds of a new catalogue.

        It may be empty or old after a failed discovery: a kind that was known stays known, and only another
        version of it replaces the watch.
        """
        self.indexed = self.catalogue.known
        self._resources = _index(self.indexed or Catalogue(())) | _SCALED
        for kind, _ in tuple(self._kinds.values()):
            now = self._resources.get((kind.resource.group, kind.resource.kind))
            if now is not None and now.version != kind.resource.version:
                self._end(kind)

    def _end(self, kind: TargetKind) -> None:
        _, task = self._kinds.pop(kind.resource.group_resource)
        task.cancel()
        kind.end()

    def _miss(self, meant: tuple[str, str]) -> bool:
        """Have the kinds read again, at intervals, for an unknown one; return whether they were before."""
        now = self._context.clock.monotonic()
        due = meant not in self._missed or now - self._missed[meant] >= RETRY_SECONDS
        if due and meant not in self._missing and self._group is not None:
            self._missing.add(meant)
            self._group.create_task(self._look_up(meant), name=f"look-up of {meant[1]}")
        return meant in self._missed

    async def _look_up(self, meant: tuple[str, str]) -> None:
        try:
            await self.catalogue.refresh()
            self._missed[meant] = self._context.clock.monotonic()
        except errors.SourceError:
            await self._context.sleep(RETRY_SECONDS)
        finally:
            self._missing.discard(meant)
        for target in tuple(self._targets):
            if target.meant == meant:
                target.changed()
