"""The system clock. Only this module reads it; all other code takes a `Clock`."""

import time


class SystemClock:
    """The system clock."""

    def wall(self) -> float:
        """Return seconds since the epoch."""
        return time.time()  # noqa: TID251 - the only place

    def monotonic(self) -> float:
        """Return seconds of the monotonic clock."""
        return time.monotonic()  # noqa: TID251 - the only place
