"""The clock of decisions: the time of day that never jumps, in whole nanoseconds.

Ages of recommendations and scale events must not change because somebody set the machine's clock. So the time of day is read once and
carried on by the monotonic clock; when the two have parted, `jump` says by how much, and all that is remembered moves along.
"""

from adapter.model.clock import Clock
from adapter.model.timestamps import SECOND

_PARTED = SECOND
"""What the clock of the machine may be slewed by without anybody taking notice."""


class Timeline:
    """Nanoseconds of the day."""

    __slots__ = ("_clock", "_offset")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = self._wall() - self._monotonic()

    def now(self) -> int:
        """Return the time; it goes back only where `jump` has said so."""
        return self._monotonic() + self._offset

    def jump(self) -> int:
        """Return by how much the clock of the machine was set since last asked, 0 for not at all; `now` follows it from here on."""
        parted = self._wall() - self.now()
        if abs(parted) <= _PARTED:
            return 0
        self._offset += parted
        return parted

    def _wall(self) -> int:
        return round(self._clock.wall() * SECOND)

    def _monotonic(self) -> int:
        return round(self._clock.monotonic() * SECOND)
