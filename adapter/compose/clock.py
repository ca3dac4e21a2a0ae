"""The system clock. Only this module reads it; all other code takes a `Clock`."""

import time


class SystemClock:
    wall = staticmethod(time.time)  # noqa: TID251 - the only place
    monotonic = staticmethod(time.monotonic)  # noqa: TID251 - the only place
