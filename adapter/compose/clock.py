"""The system clock. Only this module reads it; all other code takes a `Clock`."""

import time


class SystemClock:
    def wall(self) -> float:
        return time.time()  # noqa: TID251 - the only place

    def monotonic(self) -> float:
        return time.monotonic()  # noqa: TID251 - the only place
