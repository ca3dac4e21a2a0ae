"""The series of one scraped pod: the last value of each, and the samples of counters within a window.

A series of a pod belongs to that pod, whatever its labels say; one of an endpoint has attached labels
besides. A series that the last scrape lacks has no last value; nothing is interpolated between scrapes. Times
are seconds of a monotonic clock.

The pod chooses how many series it exposes and how long their labels are. Therefore a scrape is recorded in
small steps, labels and series have limits, and `size` estimates the bytes that are kept. A scrape that
exceeds a limit is refused as a whole, because a sum without one of its series would be too small.
"""

import math
import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from adapter.errors import ExposureLimitError
from adapter.rules import matchers
from adapter.rules.matchers import Matcher
from adapter.rules.scrape import exposition
from adapter.rules.scrape.exposition import Exposed

_LATE = 1.05
"""Factor of a window, so that a slightly late scrape at its beginning still counts."""

MAX_LABELS = 64
MAX_LABEL_BYTES = 8 * 1024
"""Bounds on the labels of one series, and on their bytes between the braces."""

KEPT_SERIES = 2
"""A pod may have this many times the series of one scrape within a window: all can be replaced once."""

_STEP_WORK = 300
"""Units of work in a step: one for a series, and for a new one another for each 64 bytes of labels."""
_TRACK_BYTES = 640
SAMPLE_BYTES = 18
TEXT_BYTES = 136
"""Estimated bytes of a series without its labels, of a sample, and of a spelling without its text."""

_FORGET_STEP = 2000
_SAMPLED = 500
"""How many entries a step of `_forget` looks at, and how many series an error message is based on."""

Labels = tuple[str, ...]
"""Names and values in turn, sorted by name, without empty values."""

Selections = Mapping[str, frozenset[tuple[Matcher, ...]]]
"""The wanted series by name: all that match every matcher of one of the groups."""

Relabel = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Makes the labels of a series; those that are empty are left out."""


def attach(exposed: Mapping[str, str], attached: Mapping[str, str], *, honor: bool) -> dict[str, str]:
    """Return the labels of a series of an endpoint, as Prometheus makes them for a ServiceMonitor.

    An empty value stands for no label.

    Where both have a label, the exposed one is renamed to ``exported_NAME``. With `honor` it wins instead,
    even if it is empty.
    """
    if honor:
        return {**attached, **exposed}
    labels = {**exposed, **attached}
    renamed = [name for name, value in exposed.items() if value and name in attached]
    for name in sorted(renamed, key=len):  # in Prometheus' order
        free = "exported_" + name
        while labels.get(free):
            free = "exported_" + free
        labels[free] = exposed[name]
    return labels


class Track(msgspec.Struct, gc=False, eq=False):
    """One series: its labels, and its samples, oldest first.

    `scrape` is the number of the last scrape that had it, -1 without one; `stamp` is the own time of its last
    sample. There may be 100,000 series, so the garbage collector does not track them.
    """

    flat: Labels = ()
    times: "array[float]" = msgspec.field(default_factory=lambda: array("d"))
    values: "array[float]" = msgspec.field(default_factory=lambda: array("d"))
    scrape: int = -1
    stamp: float | None = None

    def get(self, label: str, default: str = "") -> str:
        flat = self.flat
        for at in range(0, len(flat), 2):
            if flat[at] == label:
                return flat[at + 1]
        return default

    def add(self, time: float, value: float, stamp: float | None = None, before: float = -math.inf) -> None:
        """Add a sample, unless it is the last one again: not newer, or with the same time of its own.

        Samples from before the time `before` are dropped, but never the last one.
        """
        times = self.times
        if not times or (time > times[-1] and (stamp is None or stamp != self.stamp)):
            self.stamp = stamp
            times.append(time)
            self.values.append(value)
        kept, last = 0, len(times) - 1
        while kept < last and times[kept] < before:
            kept += 1
        if kept:
            del times[:kept], self.values[:kept]

    def rate(self, now: float, window: float) -> float | None:
        """Return the increase per second within `window` seconds before `now`, None if too little is known.

        A smaller value than the one before means that the counter was reset to zero. There must be at least
        half the window between the first and the last sample; the increase is divided by the time between
        them.
        """
        times, values = self.times, self.values
        first = self._first_since(now - window * _LATE)
        last = len(times) - 1
        span = times[last] - times[first] if first < last else 0.0
        if span <= 0 or span < window / 2:
            return None
        increase = values[last] - values[first]
        for at in range(first + 1, last + 1):
            if values[at] < values[at - 1]:
                increase += values[at - 1]
        return increase / span

    def last_rate(self, now: float, window: float) -> float | None:
        """Return the increase per second between the last two samples, both within the window, else None."""
        last = len(self.times) - 1
        if self._first_since(now - window * _LATE) >= last:
            return None
        span = self.times[last] - self.times[last - 1]
        before, value = self.values[last - 1], self.values[last]
        return (value if value < before else value - before) / span

    def _first_since(self, time: float) -> int:
        """Return the index of the first sample at `time` or later; the length if there is no such sample."""
        return bisect_left(self.times, time)


_UNKNOWN = Track()
_K = TypeVar("_K")


@dataclass(slots=True, eq=False)
class PodSeries:
    """The wanted series of one pod, recorded scrape by scrape.

    `relabel` makes the labels of a series from the exposed ones; None for these as they are.
    """

    relabel: Relabel | None = None
    scrapes: int = 0
    """Number of recorded scrapes; results are valid until it changes."""
    time: float = 0.0
    """Time of the last one."""
    stretch: float = 1.0
    """Factor of the windows of rates, because the pod is scraped less often."""
    size: int = 0
    """Estimated bytes, those of a scrape that is being recorded included."""
    count: int = 0
    """Number of series."""
    selections: Selections | None = None
    """The series to keep, None for all."""
    _by_name: dict[str, dict[Labels, Track]] = field(default_factory=dict)
    _written: dict[str, dict[bytes, Track | None]] = field(default_factory=dict)
    """The spellings of labels; None for a series that no query selects."""

    def record(
        self,
        samples: Sequence[Exposed],
        time: float,
        wall: float,
        keep: float,
        *,
        most: int = KEPT_SERIES * exposition.MAX_SAMPLES,
        selections: Selections | None = None,
    ) -> Generator[None, None, None]:
        """Record a scrape in steps; `time` is its monotonic time, `wall` its epoch time.

        Raises ExpositionError before anything of the scrape counts; ExposureLimitError if more than `most`
        series would be kept. Samples are kept for `keep` seconds, 0 for the last alone. A sample's own time
        counts, but none later than the scrape; of a series that occurs twice the first sample counts. Only
        the series in `selections` are kept, None for all. Between the steps only `size` may be read.
        """
        if selections != self.selections:
            self.selections = selections
            self._written = {
                name: {text: track for text, track in written.items() if track is not None}
                for name, written in self._written.items()
            }
        new = _New(self, most, keep)
        read: list[tuple[Track, Exposed]] = []
        nothing: dict[bytes, Track | None] = {}
        work = 0
        try:
            for sample in samples:
                track = self._written.get(sample.name, nothing).get(sample.labels, _UNKNOWN)
                work += 1
                if track is _UNKNOWN:
                    track = new.track(sample)
                    work += len(sample.labels) // 64
                if track is not None:
                    read.append((track, sample))
                if work >= _STEP_WORK:
                    work = 0
                    yield
        except BaseException:
            self.size -= new.size
            raise
        yield from self._commit(read, new, samples, time, wall, time - keep * _LATE)

    def tracks(self, name: str) -> Collection[Track]:
        """Return the series of one name from the last scrape, and from those within the kept time."""
        return self._by_name.get(name, {}).values()

    def shows(self, names: Iterable[str]) -> bool:
        """Whether the last scrape had a series of one of these names."""
        return any(track.scrape == self.scrapes for name in names for track in self.tracks(name))

    def known(self, name: str, flat: Labels) -> Track | None:
        return self._by_name.get(name, {}).get(flat)

    def _commit(
        self,
        read: Sequence[tuple[Track, Exposed]],
        new: "_New",
        samples: Sequence[Exposed],
        time: float,
        wall: float,
        before: float,
    ) -> Generator[None, None, None]:
        for name, tracks in new.tracks.items():
            self._by_name.setdefault(name, {}).update(tracks)
        self.count += new.count
        for name, written in new.written.items():
            self._written.setdefault(name, {}).update(written)
        yield
        self.scrapes += 1
        self.time = time
        for number, (track, sample) in enumerate(read, 1):
            if track.scrape != self.scrapes:
                track.scrape = self.scrapes
                given = time if sample.time is None else min(time, time + sample.time - wall)
                held = len(track.times)
                track.add(given, sample.value, sample.time, before)
                self.size += (len(track.times) - held) * SAMPLE_BYTES
            if number % _STEP_WORK == 0:
                yield
        if len(samples) < sum(map(len, self._written.values())):
            yield from self._forget(before, samples)

    def _forget(self, before: float, samples: Sequence[Exposed]) -> Generator[None, None, None]:
        """Drop series that are neither in the last scrape nor in the kept time, and unused spellings."""
        shown: dict[str, set[bytes]] = {}
        for sample in samples:
            shown.setdefault(sample.name, set()).add(sample.labels)
        yield

        def gone(track: Track) -> bool:
            return track.scrape != self.scrapes and (not track.times or track.times[-1] < before)

        for name, written in self._written.items():
            kept = shown.get(name, set())
            unused = (
                (text, text not in kept and (track is None or track.scrape == self.scrapes or gone(track)))
                for text, track in written.items()
            )
            for text in (yield from _select(unused)):
                del written[text]
                self.size -= TEXT_BYTES + len(text)
        for group in self._by_name.values():
            for flat in (yield from _select((flat, gone(track)) for flat, track in group.items())):
                track = group.pop(flat)
                self.count -= 1
                self.size -= _weigh(flat) + len(track.times) * SAMPLE_BYTES


def _select(entries: Iterable[tuple[_K, bool]]) -> Generator[None, None, list[_K]]:
    """Return the chosen keys, in steps."""
    chosen = []
    for number, (key, is_chosen) in enumerate(entries, 1):
        if is_chosen:
            chosen.append(key)
        if number % _FORGET_STEP == 0:
            yield
    yield
    return chosen


@dataclass(slots=True, eq=False)
class _New:
    """New series and spellings of a scrape. `size` is in estimated bytes."""

    _pod: PodSeries
    _most: int
    _keep: float
    tracks: dict[str, dict[Labels, Track]] = field(default_factory=dict)
    written: dict[str, dict[bytes, Track | None]] = field(default_factory=dict)
    size: int = 0
    count: int = 0

    def track(self, sample: Exposed) -> Track | None:
        """Return the series of a sample with a new spelling, None for a series that is not wanted."""
        written = self.written.setdefault(sample.name, {})
        if sample.labels in written:
            return written[sample.labels]
        flat = _read_labels(sample, self._pod.relabel)
        track = self._find(sample.name, flat)
        written[sample.labels] = track
        self._grow(TEXT_BYTES + len(sample.labels))
        return track

    def _find(self, name: str, flat: Labels) -> Track | None:
        tracks = self.tracks.setdefault(name, {})
        track = self._pod.known(name, flat) or tracks.get(flat)
        if track is None and self._wants(name, flat):
            self.count += 1
            if self._pod.count + self.count > self._most:
                raise ExposureLimitError(self._sentence(name))
            track = tracks[flat] = Track(flat)
            self._grow(_weigh(flat))
        return track

    def _wants(self, name: str, flat: Labels) -> bool:
        selections = self._pod.selections
        if selections is None:
            return True
        track = Track(flat)
        return any(
            all(matchers.build_test(matcher)(track) for matcher in group)
            for group in selections.get(name, ())
        )

    def _grow(self, size: int) -> None:
        self.size += size
        self._pod.size += size

    def _sentence(self, name: str) -> str:
        """Return the error message, with the label that has the most values among the newest series."""
        newest = [*self._pod.tracks(name), *self.tracks[name].values()][-_SAMPLED:]
        values: dict[str, set[str]] = {}
        for track in newest:
            for label, value in zip(track.flat[::2], track.flat[1::2], strict=True):
                values.setdefault(label, set()).add(value)
        label = max(values, key=lambda label: len(values[label]), default="")
        return (
            f"more than {self._most} series of {matchers.shorten(name)} within {self._keep:g} s: of the "
            f"newest {len(newest)} the label {matchers.shorten(ascii(label)[1:-1])} has "
            f"{len(values.get(label, ()))} values; "
            "drop that label in the program, or select fewer series in metricsQuery"
        )


def _read_labels(sample: Exposed, relabel: Relabel | None) -> Labels:
    if len(sample.labels) > MAX_LABEL_BYTES:
        raise ExposureLimitError(
            f"a series of {matchers.shorten(sample.name)} has more than {MAX_LABEL_BYTES} bytes of labels"
        )
    labels: Mapping[str, str] = exposition.parse_labels(sample.labels)
    if len(labels) > MAX_LABELS:
        raise ExposureLimitError(
            f"a series of {matchers.shorten(sample.name)} has more than {MAX_LABELS} labels"
        )
    if relabel is not None:
        labels = relabel(labels)
    return tuple(part for name in sorted(labels) if labels[name] for part in (sys.intern(name), labels[name]))


def _weigh(flat: Labels) -> int:
    """Return the estimated bytes of a series with these labels."""
    return _TRACK_BYTES + 8 * len(flat) + sum(map(sys.getsizeof, flat[1::2]))
