"""How long the pods of a scale target take to be Ready: one start measured, and the ledger of the last ones.

A start has three parts, and they add up to the time from the pod's creation to its first Ready:

- ``scheduled``: from creation until the pod is bound to a node (condition PodScheduled). A wait for a node is
  in this part.
- ``started``: from there until all containers run. Volumes, image pulls and init containers are in this part;
  ``initialized`` is what ends with the condition Initialized: the init containers and their images.
- ``ready``: from there until the condition Ready, which is the program's own start and the readiness probe.

The API writes whole seconds, cut off, so a part is exact to less than a second in either direction. Creation
and PodScheduled are times of the API server's clock, the others of the node's clock. A difference of the two
is in ``started`` and in the total. A start with a negative part is not used.

**Weights.** The newest ten pods weigh 16 each, the ten before them 8, then 4, 2 and 1. A new image or another
kind of node changes start-up times for good: after ten pods the new times have more than half of the weight
(160 of 310), and one slow pod among the newest ten is enough to be the 95th percentile (16 of 310 are more
than 5 %), but not among the older ones.

**Percentiles.** The p-th percentile is the smallest measured value for which the pods with this or a smaller
value have at least p percent of the weight. So it is always a value that was measured.
"""

import enum
import itertools
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import msgspec

from adapter.model.learned_usage import MOST_LEARNED, LearnedUsage
from adapter.model.objects.api_objects import Struct
from adapter.model.start_ups import StartUps
from adapter.model.timestamps import SECOND

MOST_PODS = 50
"""How many pods a ledger keeps, the newest."""

HALVING = 10
"""The weight halves with each so many pods."""

LONGEST = 86_400
"""The longest start that is used, in seconds: a longer one is a mishap, which predicts nothing."""

LEDGER_BYTES = 4_352
"""Estimated memory of a full ledger with its times and its stored form."""

MOST_TEXT = 12_288
"""Limit on the characters of a stored ledger; a full one has about 1,000."""

PARTS = ("scheduled", "initialized", "started", "ready")
"""The fields of `ReadyTimes` that are parts of a start; `initialized` is itself a part of `started`."""

TOTAL = "total"

UNKNOWN = -1
"""Stands for a time that is not known."""

_TOP_WEIGHT = 2 ** (MOST_PODS // HALVING - 1)
_MILLI = 1_000  # milliseconds in a second
_MILLISECOND = SECOND // _MILLI
_UNSCHEDULABLE, _PULL_FAILED = 1, 2
_START = struct.Struct("5i")
"""Scheduled, initialized, started, ready (milliseconds since creation), and the flags."""


class Outcome(enum.IntEnum):
    """Why the start of a pod is only counted. The order is part of the stored form."""

    RESTARTED = 0
    """A container ended and was started again before the pod was Ready, as in a crash loop."""
    ENDED = 1
    """The pod ended or was deleted before it was Ready."""
    INCOHERENT = 2
    """Its times contradict each other, or are more than a day apart."""


class PodTimes(NamedTuple):
    """What a pod tells at its first Ready, in nanoseconds; None for what is not known."""

    created: int | None
    scheduled: int | None
    initialized: int | None
    started: int | None
    """When the last of its containers was started."""
    ready: int | None
    restarts: int = 0
    """Of its containers; those of init containers are not counted."""
    unschedulable: bool = False
    """Whether the scheduler has reported that no node fits."""
    pull_failed: bool = False
    """Whether an image could not be pulled at first."""


class PodStart(NamedTuple):
    """A measured start: milliseconds since the creation of the pod, `UNKNOWN` for what is not known."""

    scheduled: int
    initialized: int
    started: int
    ready: int
    unschedulable: bool = False
    pull_failed: bool = False


class Percentiles(NamedTuple):
    """The median and the 95th percentile, in seconds."""

    p50: float
    p95: float


@dataclass(frozen=True, slots=True)
class ReadyTimes:
    """How long the last `count` pods took; a part that no pod has shown is None. See the module."""

    total: Percentiles
    scheduled: Percentiles | None
    started: Percentiles | None
    ready: Percentiles | None
    initialized: Percentiles | None
    """What of `started` ended with the condition Initialized."""
    count: int
    unschedulable: int
    """For how many of the pods no node fitted at first."""
    pull_failed: int
    """For how many of the pods an image could not be pulled at first."""
    start_ups: StartUps | None = field(default=None, compare=False)
    """The times of `total`, None where only their percentiles are known."""


_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class LeftOut(NamedTuple):
    """The pods that are only counted, since the ledger began; see `Outcome`."""

    restarted: _Count
    ended: _Count
    incoherent: _Count


NONE_LEFT_OUT = LeftOut(0, 0, 0)


def measure(times: PodTimes) -> PodStart | Outcome:
    """Return the start of a pod that is Ready for the first time, or why it is only counted."""
    if times.restarts:
        return Outcome.RESTARTED
    if times.created is None or times.ready is None:
        return Outcome.INCOHERENT
    created = times.created
    instants = [created, times.scheduled, times.started, times.ready]
    known = [instant for instant in instants if instant is not None]
    if sorted(known) != known or times.ready - created > LONGEST * SECOND:
        return Outcome.INCOHERENT
    initialized = None
    if times.initialized is not None and times.scheduled is not None and times.started is not None:
        # The kubelet may report the end of the init containers after it has started the containers.
        initialized = min(max(times.initialized, times.scheduled), times.started)
    return PodStart(
        _offset(created, times.scheduled),
        _offset(created, initialized),
        _offset(created, times.started),
        _offset(created, times.ready),
        times.unschedulable,
        times.pull_failed,
    )


def _offset(created: int, at: int | None) -> int:
    return UNKNOWN if at is None else (at - created) // _MILLISECOND


class ReadyLedger:
    """The last starts of the pods of one scale target, in the order in which they were seen Ready.

    A start is five numbers of four bytes. `target` is the uid of the scale target. `usages` is what was
    learned of the usage that its pods expose, by resource and container.
    """

    __slots__ = ("_left_out", "_starts", "_times", "changes", "target", "usages")

    def __init__(
        self, target: str = "", starts: Iterable[PodStart] = (), left_out: LeftOut = NONE_LEFT_OUT
    ) -> None:
        self.target = target
        self.usages: dict[str, LearnedUsage] = {}
        self._starts = b""
        self._left_out = left_out
        self._times: ReadyTimes | None = None
        for start in starts:
            self._add(start)
        self.changes = 0
        """Grows with each pod that is noted."""

    def note(self, start: PodStart | Outcome) -> None:
        """Add a pod; the oldest start makes room for a new one."""
        if isinstance(start, Outcome):
            counts = (count + (place == start) for place, count in enumerate(self._left_out))
            self._left_out = LeftOut(*counts)
        else:
            self._add(start)
        self.changes += 1

    def _add(self, start: PodStart) -> None:
        packed = _START.pack(*start[:4], _flags_of(start))
        self._starts = (self._starts + packed)[-MOST_PODS * _START.size :]
        self._times = None

    def starts(self) -> tuple[PodStart, ...]:
        """Return the starts, the newest last."""
        return tuple(itertools.starmap(_start_of, _START.iter_unpack(self._starts)))

    def times(self) -> ReadyTimes | None:
        """Return how long the pods took; None before the first start."""
        if self._times is None and self._starts:
            self._times = summarize(self.starts())
        return self._times

    def left_out(self) -> LeftOut:
        return self._left_out

    @property
    def is_empty(self) -> bool:
        return not self._starts and not any(self._left_out) and not self.usages

    def inherit(self, older: "ReadyLedger") -> None:
        """Put the pods of an older ledger of the same target before these, and take what it has learned."""
        usages = older.usages | self.usages
        self.usages = {key: usages[key] for key in [*usages][-MOST_LEARNED:]}
        own = self.starts()
        for start in (*older.starts(), *own):
            self._add(start)
        self._left_out = LeftOut(*map(sum, zip(self._left_out, older.left_out(), strict=True)))


def _flags_of(start: PodStart) -> int:
    return start.unschedulable * _UNSCHEDULABLE + start.pull_failed * _PULL_FAILED


def _start_of(scheduled: int, initialized: int, started: int, ready: int, flags: int) -> PodStart:
    unschedulable, pull_failed = bool(flags & _UNSCHEDULABLE), bool(flags & _PULL_FAILED)
    return PodStart(scheduled, initialized, started, ready, unschedulable, pull_failed)


def summarize(starts: Sequence[PodStart]) -> ReadyTimes:
    """Return the percentiles of starts, of which there is at least one, the newest last."""
    weights = [_TOP_WEIGHT >> rank // HALVING for rank in reversed(range(len(starts)))]

    def start_ups(part: Callable[[PodStart], int]) -> StartUps | None:
        values = zip(map(part, starts), weights, strict=True)
        known = [(value / _MILLI, weight) for value, weight in values if value != UNKNOWN]
        return StartUps(known) if known else None

    def percentiles(part: Callable[[PodStart], int]) -> Percentiles | None:
        times = start_ups(part)
        return None if times is None else Percentiles(times.p50, times.p95)

    total = start_ups(lambda start: start.ready)
    assert total is not None
    return ReadyTimes(
        Percentiles(total.p50, total.p95),
        percentiles(lambda start: start.scheduled),
        percentiles(lambda start: _between(start.scheduled, start.started)),
        percentiles(lambda start: _between(start.started, start.ready)),
        percentiles(lambda start: _between(start.scheduled, start.initialized)),
        len(starts),
        sum(start.unschedulable for start in starts),
        sum(start.pull_failed for start in starts),
        total,
    )


def _between(start: int, end: int) -> int:
    return UNKNOWN if UNKNOWN in (start, end) else end - start


# -- the stored form -----------------------------------------------------------------------------------------


_StoredStart = tuple[float, float, float, float, int]


class _StoredLedger(Struct, frozen=True):
    """The format for the next owner.

    A pod is ``[scheduled, initialized, started, ready, flags]``: seconds since its creation, -1 for what is
    not known, and a sum of flags (1: no node fitted at first, 2: an image could not be pulled at first).
    """

    target: str = ""
    pods: tuple[_StoredStart, ...] = ()
    left_out: LeftOut = NONE_LEFT_OUT
    usages: Annotated[Mapping[str, LearnedUsage], msgspec.Meta(max_length=MOST_LEARNED)] = {}


def encode_ledger(ledger: ReadyLedger, most: int = MOST_PODS) -> str:
    """Return a ledger as JSON, with its newest `most` pods."""
    pods = tuple(map(_stored, ledger.starts()[-most:]))
    stored = _StoredLedger(ledger.target, pods, ledger.left_out(), ledger.usages)
    return msgspec.json.encode(stored).decode()


def _stored(start: PodStart) -> _StoredStart:
    scheduled, initialized, started, ready = map(_seconds, start[:4])
    return scheduled, initialized, started, ready, _flags_of(start)


def _seconds(milliseconds: int) -> float:
    """Return seconds, as an integer where they are whole, as nearly all are: the text is shorter."""
    if milliseconds == UNKNOWN:
        return UNKNOWN
    whole, rest = divmod(milliseconds, _MILLI)
    return milliseconds / _MILLI if rest else whole


def decode_ledger(text: str) -> ReadyLedger:
    """Return the ledger of a JSON text; ValueError with a sentence for any other text."""
    if len(text) > MOST_TEXT:
        raise ValueError(f"not a ledger: {len(text):,} characters, expected at most {MOST_TEXT:,}")
    try:
        stored = msgspec.json.decode(text, type=_StoredLedger)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a ledger: {error}") from error
    ledger = ReadyLedger(stored.target, map(_start, stored.pods), stored.left_out)
    ledger.usages.update(stored.usages)
    return ledger


def _start(stored: _StoredStart) -> PodStart:
    scheduled, initialized, started, ready = map(_milliseconds, stored[:4])
    known = [time for time in (0, scheduled, initialized, started) if time != UNKNOWN] + [ready]
    if sorted(known) != known:
        raise ValueError(f"not a ledger: the times of {list(stored)} are not in order")
    return _start_of(scheduled, initialized, started, ready, stored[4])


def _milliseconds(seconds: float) -> int:
    if seconds == UNKNOWN:
        return UNKNOWN
    if not 0 <= seconds <= LONGEST:
        raise ValueError(f"not a ledger: {seconds:g} is not a number of seconds from 0 to {LONGEST}")
    return round(seconds * _MILLI)
