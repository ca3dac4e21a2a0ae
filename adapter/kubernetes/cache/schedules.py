"""The cache of FastPathSchedules. One that cannot be used is cached with its faults, to be reported."""

from collections.abc import Callable

import msgspec

from adapter import errors
from adapter.bounds.schedule import documents, windows
from adapter.bounds.schedule.documents import KIND, FastPathSchedule
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.cache.store import ObjectCache
from adapter.kubernetes.client import ListWatch
from adapter.kubernetes.codec import ObjectCodec, Unreadable
from adapter.model.autoscaling.fastpath_autoscaler import API_VERSION
from adapter.model.objects.api_objects import Metadata
from adapter.model.objects.resources import known_kind

SCHEDULES = known_kind(API_VERSION, KIND)


class WatchedSchedule(msgspec.Struct, frozen=True):
    """A FastPathSchedule as stored. If it cannot be used, `schedule` is None and `faults` say why.

    `status` is that of the object as JSON, empty without one.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    schedule: FastPathSchedule | None
    faults: tuple[errors.Fault, ...] = ()
    status: bytes = b""


class _Head(msgspec.Struct, frozen=True):
    metadata: Metadata = Metadata()
    status: msgspec.Raw = msgspec.Raw(b"")


MOST_BEGINS = 2000
"""The most begins of the windows of one schedule on a day: the loop that decides evaluates them. Each begin
counts, also of windows that touch or overlap.
"""

_TOO_OFTEN = f"expected windows that begin at most {MOST_BEGINS} times a day together; each begin counts"

_HEAD = msgspec.json.Decoder(_Head)


def keep_schedule(raw: msgspec.Raw) -> WatchedSchedule:
    head = _HEAD.decode(raw)
    meta = head.metadata
    read: FastPathSchedule | None = None
    faults: tuple[errors.Fault, ...] = ()
    try:
        read = documents.read_document(msgspec.json.decode(raw))
    except errors.InputError as error:
        faults = error.faults
    if read is not None and (often := windows.begins_a_day(read.schedule)) > MOST_BEGINS:
        read, faults = None, (errors.Fault("spec.windows", str(often), _TOO_OFTEN),)
    return WatchedSchedule(
        meta.namespace, meta.name, meta.uid, meta.generation, read, faults, bytes(head.status)
    )


CODEC: ObjectCodec[WatchedSchedule] = ObjectCodec(msgspec.Raw, keep_schedule, step_bytes=16 * 1024)
"""A document is read as it is decoded, which takes a millisecond for 100 windows."""


def _lose(lost: Unreadable, last: WatchedSchedule | None) -> WatchedSchedule:
    uid, generation = ("", 0) if last is None else (last.uid, last.generation)
    faults = (errors.Fault("", "", f"cannot be read: {lost.reason}"),)
    return WatchedSchedule(lost.namespace, lost.name, uid, generation, None, faults)


def _same(one: WatchedSchedule, other: WatchedSchedule) -> bool:
    return (one.uid, one.schedule, one.faults) == (other.uid, other.schedule, other.faults)


class ScheduleCache(ObjectCache[WatchedSchedule]):
    """All FastPathSchedules; none if there is no such kind."""

    def __init__(self, context: ReflectorContext, changed: Callable[[str, str], None]) -> None:
        source = ListWatch(CODEC, SCHEDULES, optional=True)
        super().__init__(source, context, changed, same=_same, lost=_lose, step=5)
