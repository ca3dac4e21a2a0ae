"""The autoscalers of the cluster: FastPathAutoscalers, which are ours, and whoever else scales the same targets.

What lives here: `Autoscalers`, a mirror of the FastPathAutoscalers; `Rivals`, which knows the autoscalers of each target,
HorizontalPodAutoscalers among them. Not here: what stands in an autoscaler (`model.autoscaling.documents`), documents in files
(`autoscalerfiles`). The law: an object that cannot be read is there with its faults; it is never passed over, and keeps no other from
being read.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from adapter import errors
from adapter.boost import model
from adapter.boost.model import Boosted
from adapter.kubernetes.cache.list_watch import ListWatch, ReflectorContext
from adapter.kubernetes.cache.reflector import Reflector, ReflectorStatus
from adapter.kubernetes.cache.store import NamedObject, NamespaceView, TypedStore, in_steps
from adapter.kubernetes.codec import ObjectCodec
from adapter.model.autoscaling import documents, fastpath_autoscaler
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler, Metadata
from adapter.model.autoscaling.hpa import (
    CrossVersionObjectReference,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerSpec,
    HorizontalPodAutoscalerStatus,
    Struct,
    decode_scalar,
)
from adapter.model.resources import BUILTIN, APIResource

T = TypeVar("T", bound=NamedObject)

_VERBS = frozenset({"get", "list", "watch"})
_GROUP, _, _VERSION = fastpath_autoscaler.API_VERSION.partition("/")
_KIND, _PLURAL = fastpath_autoscaler.KIND, fastpath_autoscaler.PLURAL
_FASTPATH = APIResource(_GROUP, _VERSION, _PLURAL, _KIND.lower(), _KIND, True, _VERBS, True)
_found = BUILTIN.lookup("horizontalpodautoscalers")
assert _found is not None
_HPA: APIResource = _found


class ReadAutoscaler(msgspec.Struct, frozen=True, gc=False):
    """A FastPathAutoscaler as the API server has it; `autoscaler` is None for one whose form is wrong, and `faults` say why."""

    namespace: str
    name: str
    resource_version: str
    autoscaler: FastPathAutoscaler | None
    faults: tuple[errors.Fault, ...] = ()


class AskingHPA(msgspec.Struct, frozen=True):
    """What is kept beside of one that is advised or boosted.

    `shown` is the count that its status shows to stand, `ambiguous` says that it finds its own selector ambiguous, `owner` which object of another
    autoscaling project it belongs to, "" for none.
    """

    boosted: Boosted
    shown: int
    ambiguous: bool
    owner: str

    @property
    def fault(self) -> str:
        """Why it is only advised, "" where nothing keeps it from being boosted."""
        if self.owner:
            return model.owned(self.owner)
        faults = (*self.boosted.wishes.faults, self.boosted.handshake.fault)
        return next((fault for fault in faults if fault), "")


class WatchedHPA(msgspec.Struct, frozen=True):
    """What is kept of a HorizontalPodAutoscaler: whose it is, its target, and what its annotations ask of us.

    `asked` is None where they ask for nothing, a mode that is none included; `faults` say what is wrong in them.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    target: CrossVersionObjectReference
    faults: tuple[str, ...] = ()
    asked: AskingHPA | None = None


class _OwnerReference(Struct, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""


class _Metadata(Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: Mapping[str, str] | None = None
    labels: Mapping[str, str] | None = None
    owner_references: tuple[_OwnerReference, ...] | None = None


class _Named(Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class _HPASpec(Struct, frozen=True):
    scale_target_ref: CrossVersionObjectReference = CrossVersionObjectReference()


class _HPADocument(Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _HPASpec = _HPASpec()


class _WholeHPA(Struct, frozen=True):
    metadata: Metadata = Metadata()
    spec: HorizontalPodAutoscalerSpec = HorizontalPodAutoscalerSpec()
    status: HorizontalPodAutoscalerStatus | None = None


_NAMED = msgspec.json.Decoder(_Named)
_HPA_DOCUMENT = msgspec.json.Decoder(_HPADocument)
_WHOLE_HPA = msgspec.json.Decoder(_WholeHPA, dec_hook=decode_scalar)


def _keep_autoscaler(raw: msgspec.Raw) -> ReadAutoscaler:
    meta = _NAMED.decode(raw).metadata
    try:
        autoscaler = documents.decode_object(raw)
    except errors.InputError as error:
        return ReadAutoscaler(meta.namespace, meta.name, meta.resource_version, None, error.faults)
    return ReadAutoscaler(meta.namespace, meta.name, meta.resource_version, autoscaler)


def _keep_hpa(raw: msgspec.Raw) -> WatchedHPA:
    found = _HPA_DOCUMENT.decode(raw)
    meta, target = found.metadata, found.spec.scale_target_ref
    plain = WatchedHPA(meta.namespace, meta.name, meta.uid, meta.resource_version, target)
    if not meta.annotations or not any(key in meta.annotations for key in model.ANNOTATIONS):
        return plain
    try:
        whole = _WHOLE_HPA.decode(raw)
    except msgspec.ValidationError as error:
        return replace(plain, faults=(f"cannot be read: {error}",))
    boosted = model.read_boosted(HorizontalPodAutoscaler(metadata=whole.metadata, spec=whole.spec))
    if boosted is None:
        return replace(plain, faults=model.wishes_of(meta.annotations).faults)
    if whole.spec.metrics and not boosted.autoscaler.spec.metrics:
        return replace(
            plain, faults=(boosted.handshake.fault,)
        )  # its metrics are not the default ones either
    status = whole.status or HorizontalPodAutoscalerStatus()
    ambiguous = any(each.reason == "AmbiguousSelector" for each in status.conditions or ())
    # the count that it last saw was not yet what it wrote itself then: after a shrink it shows the count from before
    shown = min(status.current_replicas, status.desired_replicas)
    asked = AskingHPA(boosted, shown, ambiguous, _owner_of(meta))
    return replace(plain, asked=asked)


def _owner_of(meta: _Metadata) -> str:
    """Return which object of another autoscaling project an autoscaler belongs to, "" for none."""
    owners = ((each.api_version, each.kind, each.name) for each in meta.owner_references or ())
    return model.owner_of(owners, meta.labels)


def _same_autoscaler(one: ReadAutoscaler, other: ReadAutoscaler) -> bool:
    return one.resource_version == other.resource_version


def _same_hpa(one: WatchedHPA, other: WatchedHPA) -> bool:
    """Tell whether nothing is another that matters to anybody: versions change with each status."""
    return replace(one, resource_version="") == replace(other, resource_version="")


class _Cache(Generic[T]):
    """A cache that some reflectors fill."""

    _reflectors: list[Reflector[T]]

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self._reflectors:
                group.create_task(reflector.run(), name=f"reflector of {reflector.name}")

    @property
    def synced(self) -> bool:
        """Whether the first lists are in; one that is refused never is, for then nobody knows what there is."""
        return all(reflector.synced for reflector in self._reflectors)

    def status(self) -> tuple[ReflectorStatus, ...]:
        """Return what the watches say of themselves."""
        return tuple(reflector.status() for reflector in self._reflectors)


class Autoscalers(_Cache[ReadAutoscaler]):
    """All FastPathAutoscalers, or those of `namespaces`, while `run` runs.

    `changed` is called with namespace and name for each that came, went or has a new version, the first list's after that is in. Where
    their CustomResourceDefinition is not installed there are none, and it is looked again.
    """

    def __init__(
        self,
        context: ReflectorContext,
        changed: Callable[[str, str], None],
        namespaces: Sequence[str] = ("",),
    ) -> None:
        codec = ObjectCodec(msgspec.Raw, _keep_autoscaler)
        self._objects: TypedStore[ReadAutoscaler] = TypedStore(self._note, self._listed, _same_autoscaler)
        self._changed = changed
        self._told = False
        self._reflectors = _reflectors(codec, _FASTPATH, context, self._objects, namespaces)

    def __iter__(self) -> Iterator[ReadAutoscaler]:
        """Iterate over all there are, faulty ones included."""
        return iter(self._objects)

    def __len__(self) -> int:
        return len(self._objects)

    def find(self, namespace: str, name: str) -> ReadAutoscaler | None:
        """Return one, None if it is not there."""
        return self._objects.find(namespace, name)

    def _note(self, namespace: str, name: str) -> None:
        if self._told:
            self._changed(namespace, name)

    def _listed(self) -> Iterator[None]:
        if not self._told and self.synced:
            self._told = True
            yield from in_steps(tuple(self._objects), lambda each: self._changed(each.namespace, each.name))


class TargetKey(NamedTuple):
    """What autoscalers may have in common: the object they scale, whatever version of its group they name."""

    namespace: str
    group: str
    kind: str
    name: str

    @classmethod
    def of(cls, namespace: str, reference: CrossVersionObjectReference) -> "TargetKey":
        """Return the key of what an autoscaler of `namespace` refers to."""
        group = reference.api_version.rpartition("/")[0]
        return cls(namespace, group, reference.kind.lower(), reference.name)


class _Owners:
    """Which autoscalers refer to which target."""

    def __init__(self) -> None:
        self._targets: dict[tuple[str, str, str], TargetKey] = {}
        self._owners: dict[TargetKey, set[tuple[str, str, str]]] = {}

    def put(self, kind: str, namespace: str, name: str, target: TargetKey | None) -> list[TargetKey]:
        """Note what an autoscaler refers to (None: it is gone); return the targets whose autoscalers are others now."""
        owner = (kind, namespace, name)
        old = self._targets.get(owner)
        if old == target:
            return []
        if old is not None:
            del self._targets[owner]
            self._owners[old].discard(owner)
            if not self._owners[old]:
                del self._owners[old]
        if target is not None:
            self._targets[owner] = target
            self._owners.setdefault(target, set()).add(owner)
        return [each for each in (old, target) if each is not None]

    def targets(self) -> Iterable[TargetKey]:
        return self._owners

    def of(self, target: TargetKey) -> set[tuple[str, str, str]]:
        return self._owners.get(target, set())


class Rivals(_Cache[WatchedHPA]):
    """The autoscalers of each target: HorizontalPodAutoscalers, watched while `run` runs, and those that are `put` here.

    With `objects` the FastPathAutoscalers of the cluster are watched too, if there is such a kind: those that are put stand in files.
    `changed` is called with a target when it has other autoscalers than before, once the first lists are in.
    """

    def __init__(
        self,
        context: ReflectorContext,
        changed: Callable[[TargetKey], None] = lambda _: None,
        namespaces: Sequence[str] = ("",),
        *,
        objects: bool = False,
    ) -> None:
        self.changed = changed
        self._owners = _Owners()
        self._hpas: TypedStore[WatchedHPA] = TypedStore(self._note_hpa, self._listed, _same_hpa)
        self._objects: TypedStore[WatchedHPA] = TypedStore(self._note_object, self._listed, _same_hpa)
        self._followers: list[Callable[[WatchedHPA | None, str, str], None]] = []
        self._told = False
        codec = ObjectCodec(msgspec.Raw, _keep_hpa)
        self._reflectors = _reflectors(codec, _HPA, context, self._hpas, namespaces)
        if objects:
            # where the FastPathAutoscaler CRD is not installed, there are no such objects
            self._reflectors += _reflectors(
                codec, _FASTPATH, context, self._objects, namespaces, optional=True
            )

    def hpas(self) -> Iterator[WatchedHPA]:
        """Iterate over the HorizontalPodAutoscalers."""
        return iter(self._hpas)

    def find(self, namespace: str, name: str) -> WatchedHPA | None:
        """Return a HorizontalPodAutoscaler, None if it is not there."""
        return self._hpas.find(namespace, name)

    def follow(self, changed: Callable[[WatchedHPA | None, str, str], None]) -> None:
        """Have `changed` called with each HorizontalPodAutoscaler that is another than before (None: it is gone), namespace and name."""
        self._followers.append(changed)

    def put(self, autoscaler: FastPathAutoscaler) -> None:
        """Note an autoscaler of ours, wherever it was read."""
        meta = autoscaler.metadata
        target = TargetKey.of(meta.namespace, autoscaler.spec.scale_target_ref)
        self._tell(self._owners.put(_KIND, meta.namespace, meta.name, target))

    def remove(self, namespace: str, name: str) -> None:
        """Note that an autoscaler of ours is gone."""
        self._tell(self._owners.put(_KIND, namespace, name, None))

    def of(self, autoscaler: FastPathAutoscaler) -> tuple[str, ...] | None:
        """Return the other autoscalers of its target as ``Kind/name``, sorted; None while that is not known."""
        if not self.synced:
            return None
        meta = autoscaler.metadata
        itself = (autoscaler.kind, meta.namespace, meta.name)
        owners = self._owners.of(TargetKey.of(meta.namespace, autoscaler.spec.scale_target_ref))
        return tuple(
            sorted(f"{kind}/{name}" for kind, namespace, name in owners if (kind, namespace, name) != itself)
        )

    def _note_hpa(self, namespace: str, name: str) -> None:
        found = self._hpas.find(namespace, name)
        self._note(_HPA.kind, namespace, name, found)
        for changed in self._followers:
            changed(found, namespace, name)

    def _note_object(self, namespace: str, name: str) -> None:
        # not under the kind alone: one in a file may have the same name
        self._note(f"{_KIND}.{_GROUP}", namespace, name, self._objects.find(namespace, name))

    def _note(self, kind: str, namespace: str, name: str, found: WatchedHPA | None) -> None:
        target = None if found is None else TargetKey.of(namespace, found.target)
        self._tell(self._owners.put(kind, namespace, name, target))

    def _tell(self, targets: list[TargetKey]) -> None:
        if self._told:
            for target in targets:
                self.changed(target)

    def _listed(self) -> Iterator[None]:
        if not self._told and self.synced:
            self._told = True
            yield from in_steps(tuple(self._owners.targets()), self.changed)


def _reflectors(
    codec: ObjectCodec[T],
    resource: APIResource,
    context: ReflectorContext,
    objects: TypedStore[T],
    namespaces: Sequence[str],
    *,
    optional: bool = False,
) -> list[Reflector[T]]:
    return [
        Reflector(
            ListWatch(context.client, codec, resource, namespace, optional=optional),
            NamespaceView(objects, namespace),
            context,
            f"{resource.group_resource} in {namespace} (scaler)"
            if namespace
            else f"{resource.group_resource} (scaler)",
        )
        for namespace in namespaces
    ]
