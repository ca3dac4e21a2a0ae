"""The values by which the pods of a target are ranked: how busy each is, smoothed over its last samples."""

from collections import deque
from collections.abc import Mapping

from adapter.autoscaler.decide.observation import PodsReading, Reading, Ways

SAMPLES = 3
"""The number of samples that a value is the mean of. One request more or less must not choose a pod."""

Values = Mapping[str, int]

NO_VALUES: Values = {}


class Idleness:
    """Smooths the readings of one metric.

    `values` are those of the last reading, in thousandths by pod, and `sampled` is the time of its oldest
    sample in nanoseconds, None if that is not known.
    """

    __slots__ = ("_samples", "sampled", "values")

    def __init__(self) -> None:
        self.values = NO_VALUES
        self._samples: deque[Values] = deque(maxlen=SAMPLES)
        self.sampled: int | None = None

    def note(self, reading: Reading, sampled: int | None) -> None:
        """Note a reading whose oldest sample is of the time `sampled`, None if that is not known.

        One with the same time and the same values counts once: while one pod has no new sample, others do.
        """
        self.values = NO_VALUES
        ways = reading.ways if isinstance(reading, Ways) else (reading,)
        if not isinstance(ways[0], PodsReading):
            self._samples.clear()
            return
        values = _read_values(*ways)
        if not values:
            return  # out of date; the same samples may count at the next decision
        if sampled is None or sampled != self.sampled or not self._samples or values != self._samples[-1]:
            self.sampled = sampled
            self._samples.append(values)
        self.values = {name: self._smooth(name) for name in self._samples[-1]}

    def _smooth(self, name: str) -> int:
        known = [values[name] for values in self._samples if name in values]
        return sum(known) // len(known)


NO_IDLENESS = Idleness()
"""That of an autoscaler without the option, which notes nothing."""


def _read_values(usual: PodsReading, *later: PodsReading) -> Values:
    """Return the values of all ways, of pods that are Ready only lately too, but for those out of date."""
    values = {**usual.values, **usual.left_out}
    for way in later:
        values |= _read_values(way)
    if usual.overdue:
        late = usual.overdue_pods or tuple(values)
        values = {name: value for name, value in values.items() if name not in late}
    return values
