"""What the scrapes of one pod have shown so far: the last value of every wanted series, and of counters those within a window.

The law: a series counts for the scraped pod, whatever its labels say; one that the last scrape did not show has no last value; nothing is
made up between scrapes. Times are seconds of a monotonic clock.
"""

from collections.abc import Collection, Iterable, Mapping

from adapter.rules import exposition
from adapter.rules.exposition import Exposed

_LATE = 1.05
"""By how much a window is exceeded: scrapes are never quite on time, and one at its very beginning counts."""


class Track:
    """One series: its labels without empty values, and its samples, oldest first."""

    __slots__ = ("labels", "scrape", "stamp", "times", "values")

    def __init__(self, labels: Mapping[str, str]) -> None:
        self.labels = labels
        self.times: list[float] = []
        self.values: list[float] = []
        self.scrape = -1
        """Number of the last scrape that showed it, -1 for none."""
        self.stamp: float | None = None
        """The time that its last sample gave itself."""

    def add(self, time: float, value: float, stamp: float | None = None) -> None:
        """Take a sample in; one that is not newer than the last, or bears the same time of its own, is the last one again."""
        if self.times and (time <= self.times[-1] or (stamp is not None and stamp == self.stamp)):
            return
        self.stamp = stamp
        self.times.append(time)
        self.values.append(value)

    def forget(self, before: float) -> None:
        """Drop samples from before a time, but never the last one."""
        kept = 0
        last = len(self.times) - 1
        while kept < last and self.times[kept] < before:
            kept += 1
        if kept:
            del self.times[:kept], self.values[:kept]

    def rate(self, now: float, window: float) -> float | None:
        """Return the increase for each second within `window` seconds before `now`, None where too little is known.

        A smaller value than the one before is a counter that began again at zero. It takes two samples with at least half the window
        between first and last; the increase is divided by the time between these two.
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
        """Return the increase for each second between the last two samples, both within the window; None without two."""
        last = len(self.times) - 1
        if self._first_since(now - window * _LATE) >= last:
            return None
        span = self.times[last] - self.times[last - 1]
        before, value = self.values[last - 1], self.values[last]
        return (value if value < before else value - before) / span

    def _first_since(self, time: float) -> int:
        """Return the place of the first sample at `time` or later, which may be one behind the end."""
        first, end = 0, len(self.times)
        while first < end and self.times[first] < time:
            first += 1
        return first


class PodSeries:
    """The wanted series of one pod."""

    def __init__(self) -> None:
        self.scrapes = 0
        """Number of scrapes taken in: what is made from them is good until it changes."""
        self.time = 0.0
        """When the last of them was made."""
        self._by_name: dict[str, dict[frozenset[tuple[str, str]], Track]] = {}
        self._as_written: dict[tuple[str, bytes], Track] = {}

    def record(self, samples: Iterable[Exposed], time: float, wall: float, keep: float) -> None:
        """Take in a scrape made at `time`, which the time of day calls `wall`. Raises ExpositionError; then nothing of it counts.

        Samples are kept for `keep` seconds, 0 for the last alone. A sample with a time of its own has that time, but none later than the scrape; of a series shown twice the first counts.
        """
        read = [(self._track(sample), sample) for sample in samples]
        self.scrapes += 1
        self.time = time
        before = time - keep * _LATE
        for track, sample in read:
            if track.scrape == self.scrapes:
                continue
            track.scrape = self.scrapes
            given = time if sample.time is None else min(time, time + sample.time - wall)
            track.add(given, sample.value, sample.time)
            track.forget(before)
        if len(read) < len(self._as_written):
            self._forget(before, {(sample.name, sample.labels) for _, sample in read})

    def tracks(self, name: str) -> Iterable[Track]:
        """Return the series of one name that the last scrape showed, or one within the time that is kept."""
        return self._by_name.get(name, {}).values()

    def shows(self, names: Iterable[str]) -> bool:
        """Whether the last scrape showed a series of one of these names."""
        return any(track.scrape == self.scrapes for name in names for track in self.tracks(name))

    def _track(self, sample: Exposed) -> Track:
        """Return the series of a sample. Labels are read when a spelling of them is met for the first time."""
        spelling = (sample.name, sample.labels)
        track = self._as_written.get(spelling)
        if track is None:
            labels = {label: value for label, value in exposition.parse_labels(sample.labels).items() if value}
            group = self._by_name.setdefault(sample.name, {})
            track = group.setdefault(frozenset(labels.items()), Track(labels))
            self._as_written[spelling] = track
        return track

    def _forget(self, before: float, written: Collection[tuple[str, bytes]]) -> None:
        """Drop series that neither the last scrape nor the time that is kept has, and spellings that the last scrape had not."""

        def gone(track: Track) -> bool:
            return track.scrape != self.scrapes and (not track.times or track.times[-1] < before)

        self._as_written = {
            spelling: track
            for spelling, track in self._as_written.items()
            if spelling in written or (track.scrape != self.scrapes and not gone(track))
        }
        for group in self._by_name.values():
            for key in [key for key, track in group.items() if gone(track)]:
                del group[key]
