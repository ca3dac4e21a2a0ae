"""Clocks of tests: one that a test moves, one that follows the loop, and the machine's own with a shift."""

import asyncio
import time

WALL = 1_700_000_000.0
"""The time of day at which a `FakeClock` starts unless told: 2023-11-14 22:13:20 UTC."""


class FakeClock:
    """Meets `adapter.model.clock.Clock`; both readings, in seconds, change only by the methods below."""

    def __init__(self, wall: float = WALL, monotonic: float = 1000.0) -> None:
        self._wall = wall
        self._monotonic = monotonic

    def wall(self) -> float:
        return self._wall

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let time pass: both readings move."""
        assert seconds >= 0, "time does not go back; a jump of the time of day is set_wall"
        self._wall += seconds
        self._monotonic += seconds

    def set_wall(self, wall: float) -> None:
        """Jump: the time of day is set, as by NTP or a person, and the monotonic reading stays."""
        self._wall = wall


class TickingClock(FakeClock):
    """Passes some time each time that it is read."""

    def __init__(self, tick: float = 0.0) -> None:
        super().__init__()
        self.tick = tick

    def monotonic(self) -> float:
        self.advance(self.tick)
        return super().monotonic()


class LoopClock:
    """Both readings follow the event loop's time. `shift` is how far the time of day was set."""

    def __init__(self, wall: float = WALL) -> None:
        self._wall = wall
        self.shift = 0.0

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return self._wall + self.monotonic() + self.shift


class ShiftedClock:
    """The machine's clock with movable readings, for a process that must go on running."""

    def __init__(self) -> None:
        self.wall_shift = 0.0
        self.monotonic_shift = 0.0

    def wall(self) -> float:
        return time.time() + self.wall_shift  # noqa: TID251 - stands in for app.py's own clock

    def monotonic(self) -> float:
        return time.monotonic() + self.monotonic_shift  # noqa: TID251 - see above

    def advance(self, seconds: float) -> None:
        """Let time pass at once."""
        self.wall_shift += seconds
        self.monotonic_shift += seconds
