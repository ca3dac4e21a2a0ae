"""A clock that stands still until a test moves it."""

WALL = 1_700_000_000.0
"""The time of day at which a `FakeClock` starts unless told: 2023-11-14 22:13:20 UTC."""


class FakeClock:
    """Meets `adapter.model.clock.Clock`; both readings are in seconds and change only through the methods below."""

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
