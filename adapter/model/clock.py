"""The one seam through which time reaches the code that needs it."""

from typing import Protocol


class Clock(Protocol):
    """Time as an argument. Only the composition root reads the system's clock."""

    def wall(self) -> float:
        """Return the time of day in seconds since the epoch; may jump."""
        ...

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes back; only differences mean anything."""
        ...
