"""Caches of FastPathAutoscalers and of HPAs, and which of them have the same target.

An object that cannot be decoded is cached with its faults, so that it is reported and does not keep others
from being read. What an object becomes takes many times its JSON, so specs and statuses have a limit, each
and for all autoscalers of a namespace, and labels and annotations that no decision reads are not kept.
`ScaleConflicts` prevents two autoscalers from scaling one target. It gets the HPAs from their cache, and the
FastPathAutoscalers from the registry.
"""

import bisect
import operator
import sys
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from adapter import errors
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.cache.store import Budget, ObjectCache, in_steps
from adapter.kubernetes.client import ListWatch
from adapter.kubernetes.codec import ObjectCodec, PartialMetadata, Unreadable
from adapter.kubernetes.heads import WithMetadata
from adapter.model.autoscaling import boost, documents, fastpath_autoscaler
from adapter.model.autoscaling.boost import BoostedHPA
from adapter.model.autoscaling.fastpath_autoscaler import (
    API_VERSION,
    HPA_KIND,
    KIND,
    FastPathAutoscaler,
    NativeAutoscaler,
)
from adapter.model.autoscaling.hpa import (
    CrossVersionObjectReference,
    HorizontalPodAutoscalerStatus,
    decode_scalar,
)
from adapter.model.objects.api_objects import Metadata, Struct
from adapter.model.objects.resources import known_kind

FASTPATH = known_kind(API_VERSION, KIND)
_HPA = known_kind("autoscaling/v2", HPA_KIND)


class ReadAutoscaler(msgspec.Struct, frozen=True, gc=False):
    """A FastPathAutoscaler as stored. If it cannot be decoded, `autoscaler` is None and `faults` say why."""

    namespace: str
    name: str
    resource_version: str
    autoscaler: FastPathAutoscaler | None
    faults: tuple[errors.Fault, ...] = ()
    size: int = 0


class BoostRequest(msgspec.Struct, frozen=True):
    """What an HPA that asks to be advised or boosted shows.

    `shown` is the count that its status confirms, `ambiguous` its AmbiguousSelector condition, `owner` the
    object of another autoscaling project that manages it, "" for none.
    """

    boosted: BoostedHPA
    shown: int
    ambiguous: bool
    owner: str

    @property
    def fault(self) -> str:
        """Why the HPA is only advised, "" if it may be boosted."""
        if self.owner:
            return boost.owned_by(self.owner)
        faults = (*self.boosted.annotations.faults, self.boosted.handshake.fault)
        return next((fault for fault in faults if fault), "")


class WatchedHPA(msgspec.Struct, frozen=True):
    """What is cached of an HPA. Without a valid mode annotation `asked` is None, and `faults` say why.

    An `unreadable` one is known by its target; what it asked for before stays in force for that target.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str
    target: CrossVersionObjectReference
    faults: tuple[str, ...] = ()
    asked: BoostRequest | None = None
    unreadable: bool = False
    size: int = 0


class _HPAMetadata(Metadata, frozen=True):
    owner_references: tuple[CrossVersionObjectReference, ...] | None = None


class _HPASpec(Struct, frozen=True):
    scale_target_ref: CrossVersionObjectReference = CrossVersionObjectReference()


class _HPAHead(Struct, frozen=True):
    metadata: _HPAMetadata = _HPAMetadata()
    spec: _HPASpec = _HPASpec()


class _Parts(Struct, frozen=True):
    spec: msgspec.Raw = msgspec.Raw()
    status: msgspec.Raw = msgspec.Raw()


LONGEST_SPEC, LONGEST_STATUS = 64 * 1024, 128 * 1024
"""Bytes of JSON. A longer status does not count."""

NAMESPACE_BYTES = 16 * 1024 * 1024
"""Bytes of JSON, of all autoscalers of a kind in one namespace, up to which a new one is let in."""

STAYING_BYTES = 20 * 1024 * 1024
"""Those up to which one that was let in stays.

The status counts because it takes memory, and it grows while an autoscaler works. With one limit, the last
one would be refused and, with the short status of a refused one, let in again.
"""

_TOO_LONG = f"has more than {LONGEST_SPEC:,} bytes"
_TOO_MANY = f"the autoscalers of the namespace have more than {NAMESPACE_BYTES:,} bytes: delete some"

_SIZE = operator.attrgetter("size")
_PARTS = msgspec.json.Decoder(_Parts)
_HPA_HEAD = msgspec.json.Decoder(_HPAHead)
_WHOLE_HPA = msgspec.json.Decoder(NativeAutoscaler, dec_hook=decode_scalar)


def _keep_autoscaler(raw: msgspec.Raw) -> ReadAutoscaler:
    try:
        autoscaler = documents.decode_object(raw)
    except errors.InputError as error:
        head = msgspec.json.decode(raw, type=WithMetadata[PartialMetadata]).metadata
        return ReadAutoscaler(head.namespace, head.name, head.resource_version, None, error.faults)
    parts, meta, target = _PARTS.decode(raw), autoscaler.metadata, autoscaler.spec.scale_target_ref
    # texts that many have are shared
    meta = replace(meta, namespace=sys.intern(meta.namespace), labels=None, annotations=None)
    target = replace(target, kind=sys.intern(target.kind), api_version=sys.intern(target.api_version))
    size = len(parts.spec) + min(len(parts.status), LONGEST_STATUS)
    status = autoscaler.status if len(parts.status) <= LONGEST_STATUS else None
    spec = replace(autoscaler.spec, scale_target_ref=target)
    kept = FastPathAutoscaler(API_VERSION, KIND, meta, spec, status)
    if len(parts.spec) > LONGEST_SPEC:
        kept, size = fastpath_autoscaler.refused(kept, _TOO_LONG), 0
    return ReadAutoscaler(meta.namespace, meta.name, meta.resource_version, kept, size=size)


def _lose_autoscaler(lost: Unreadable, _: ReadAutoscaler | None) -> ReadAutoscaler:
    faults = (errors.Fault("", "", f"cannot be read: {lost.reason}"),)
    return ReadAutoscaler(lost.namespace, lost.name, lost.resource_version, None, faults)


def _plain(head: _HPAHead) -> WatchedHPA:
    meta = head.metadata
    return WatchedHPA(meta.namespace, meta.name, meta.uid, meta.resource_version, head.spec.scale_target_ref)


def _lose_hpa(lost: Unreadable, last: WatchedHPA | None) -> WatchedHPA | None:
    """Return an HPA with its target and what it last asked for; its last state if it has no target."""
    try:
        plain = _plain(_HPA_HEAD.decode(lost.raw))
    except (msgspec.MsgspecError, RecursionError):
        return last
    is_alike = last is not None and (last.uid, last.target) == (plain.uid, plain.target)
    request = last.asked if last is not None and is_alike else None
    return replace(plain, faults=(f"cannot be read: {lost.reason}",), asked=request, unreadable=True)


def keep_hpa(raw: msgspec.Raw) -> WatchedHPA:
    head = _HPA_HEAD.decode(raw)
    meta, plain = head.metadata, _plain(head)
    if not meta.annotations or meta.annotations.keys().isdisjoint(boost.ANNOTATIONS):
        return plain
    size = len(_PARTS.decode(raw).spec) + sum(len(meta.annotations.get(key, "")) for key in boost.ANNOTATIONS)
    if size > LONGEST_SPEC:
        return replace(plain, faults=(f"spec with the annotations {_TOO_LONG}",))
    try:
        whole = _WHOLE_HPA.decode(raw)
    except msgspec.ValidationError as error:
        return replace(plain, faults=(f"cannot be read: {error}",))
    boosted = boost.read_boosted(whole)
    if boosted is None:
        return replace(plain, faults=boost.read_annotations(meta.annotations).faults)
    if whole.spec.metrics and not boosted.autoscaler.spec.metrics:
        # Nothing but the handshake: the default metric, which an empty list means, was not asked for.
        return replace(plain, faults=(boosted.handshake.fault,))
    status = whole.status or HorizontalPodAutoscalerStatus()
    ambiguous = any(condition.reason == "AmbiguousSelector" for condition in status.conditions or ())
    # After its own scale-down the status still has the old currentReplicas, which confirms nothing.
    shown = min(status.current_replicas, status.desired_replicas)
    owners = ((ref.api_version, ref.kind, ref.name) for ref in meta.owner_references or ())
    owner = boost.find_owner(owners, meta.labels)
    own = boosted.autoscaler
    own = replace(own, metadata=replace(own.metadata, labels=None, annotations=None))
    boosted = boosted._replace(autoscaler=own)
    return replace(plain, asked=BoostRequest(boosted, shown, ambiguous, owner), size=size)


def _same_autoscaler(one: ReadAutoscaler, other: ReadAutoscaler) -> bool:
    return (one.resource_version, one.size) == (other.resource_version, other.size)


def same_hpa(one: WatchedHPA, other: WatchedHPA) -> bool:
    """Tell whether nothing but the resource version differs, which changes with each status."""
    return replace(one, resource_version="", size=other.size) == replace(other, resource_version="")


def _refuse_autoscaler(obj: ReadAutoscaler) -> ReadAutoscaler:
    assert obj.autoscaler is not None, "it has a size"
    return replace(obj, autoscaler=fastpath_autoscaler.refused(obj.autoscaler, _TOO_MANY), size=0)


class AutoscalerCache(ObjectCache[ReadAutoscaler]):
    """All FastPathAutoscalers."""

    def __init__(self, context: ReflectorContext, changed: Callable[[str, str], None]) -> None:
        source = ListWatch(ObjectCodec(msgspec.Raw, _keep_autoscaler), FASTPATH)
        budget = Budget(_SIZE, _refuse_autoscaler, NAMESPACE_BYTES, STAYING_BYTES)
        super().__init__(
            source, context, changed, same=_same_autoscaler, lost=_lose_autoscaler, budget=budget
        )


def _refuse_hpa(obj: WatchedHPA) -> WatchedHPA:
    return replace(obj, faults=(_TOO_MANY,), asked=None, size=0)


class HPACache(ObjectCache[WatchedHPA]):
    """All HPAs; `listed` is called after each list.

    Each of `followers` is called for each change with the HPA (None if it is gone), its namespace and its
    name.
    """

    def __init__(
        self, context: ReflectorContext, listed: Callable[[], Iterator[None]] = lambda: iter(())
    ) -> None:
        self.followers: list[Callable[[WatchedHPA | None, str, str], None]] = []
        source = ListWatch(ObjectCodec(msgspec.Raw, keep_hpa), _HPA)
        budget = Budget(_SIZE, _refuse_hpa, NAMESPACE_BYTES, STAYING_BYTES)
        super().__init__(
            source, context, self._notify, same=same_hpa, lost=_lose_hpa, listed=listed, budget=budget
        )

    def _notify(self, namespace: str, name: str) -> None:
        hpa = self.find(namespace, name)
        for changed in self.followers:
            changed(hpa, namespace, name)


class TargetKey(NamedTuple):
    """The object that an autoscaler scales, in whatever version of its group."""

    namespace: str
    group: str
    kind: str
    name: str

    @classmethod
    def of(cls, namespace: str, reference: CrossVersionObjectReference) -> "TargetKey":
        group = reference.api_version.rpartition("/")[0]
        return cls(namespace, sys.intern(group), sys.intern(reference.kind.lower()), reference.name)


_Owner = tuple[str, str, str]
"""Kind, namespace and name of an autoscaler."""


MOST_NAMED = 10
"""How many other autoscalers of a target are named."""


class ScaleConflicts:
    """The autoscalers of each target, while `hpas` runs.

    `changed` is called with each target whose autoscalers changed, once the first list is in.
    """

    def __init__(self, context: ReflectorContext) -> None:
        self.changed: Callable[[TargetKey], None] = lambda _: None
        self._defects = context.problems.defects
        self.hpas = HPACache(context, self._listed)
        self.hpas.followers.append(self._update_hpa)
        self._targets: dict[_Owner, TargetKey] = {}
        self._owners: dict[TargetKey, list[_Owner]] = {}
        """The autoscalers of each target, sorted."""
        self._announced = False

    def put(self, autoscaler: FastPathAutoscaler) -> None:
        """Add a FastPathAutoscaler, or note its change."""
        meta = autoscaler.metadata
        self._set_target(
            (KIND, meta.namespace, meta.name), TargetKey.of(meta.namespace, autoscaler.spec.scale_target_ref)
        )

    def remove(self, namespace: str, name: str) -> None:
        self._set_target((KIND, namespace, name), None)

    def of(self, autoscaler: FastPathAutoscaler) -> tuple[str, ...] | None:
        """Return the other autoscalers of its target as ``Kind/name``, sorted; None before the first list.

        A target may have thousands, which all ask at each decision: where there are more than MOST_NAMED, the
        last element says how many more.
        """
        if not self.hpas.synced:
            return None
        meta = autoscaler.metadata
        itself = (autoscaler.kind, meta.namespace, meta.name)
        target = TargetKey.of(meta.namespace, autoscaler.spec.scale_target_ref)
        owners = self._owners.get(target, ())
        named = [_label(owner) for owner in owners[: MOST_NAMED + 1] if owner != itself][:MOST_NAMED]
        more = len(owners) - (self._targets.get(itself) == target) - len(named)
        return (*named, f"{more} more") if more else tuple(named)

    def owners(self, target: TargetKey) -> Collection[_Owner]:
        return self._owners.get(target, ())  # each by kind, namespace and name

    def _update_hpa(self, hpa: WatchedHPA | None, namespace: str, name: str) -> None:
        target = None if hpa is None else TargetKey.of(hpa.namespace, hpa.target)
        self._set_target((HPA_KIND, namespace, name), target)

    def _set_target(self, owner: _Owner, target: TargetKey | None) -> None:
        """Set the target of an autoscaler, None if it is gone; report the targets whose owners changed."""
        old = self._targets.get(owner)
        if old == target:
            return
        if old is not None:
            del self._targets[owner]
            owners = self._owners[old]
            del owners[bisect.bisect_left(owners, owner)]
            if not owners:
                del self._owners[old]
        if target is not None:
            self._targets[owner] = target
            bisect.insort(self._owners.setdefault(target, []), owner)
        if self._announced:
            for key in filter(None, (old, target)):
                self.changed(key)

    def _listed(self) -> Iterator[None]:
        targets = () if self._announced else tuple(self._owners)
        self._announced = True
        return in_steps(targets, self.changed, self._defects)


def _label(owner: _Owner) -> str:
    kind, _, name = owner
    return f"{kind}/{name}"
