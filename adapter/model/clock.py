"""The clock as a protocol: code that needs the time takes one."""

from typing import Protocol


class Clock(Protocol):
    """Time as an argument. Only the composition root reads the system clock."""

    def wall(self) -> float:
        """Return the time of day in seconds since the epoch; may jump."""

    def monotonic(self) -> float:
        """Return the seconds of a clock that never goes back; only differences have a meaning."""
