"""How far the clock of this process is from that of the API server.

Metrics are read at a time, windows of schedules begin at one, and a floor carries its end. By a wrong clock
the load of an hour ago counts as that of now. So while the clock is in doubt no decision lowers a count.

Each response carries the time of the API server in whole seconds, and was made after its request was sent.
Those of servers behind it, such as of the metrics APIs, carry the time of these, and are not compared.
That bounds the server's time less the monotonic clock. The time of day is compared with these bounds when a
decision asks, so a clock that was set is in doubt at once, and not from the next response on.
"""

from email.utils import parsedate_to_datetime

from adapter.model.clock import Clock
from adapter.telemetry.problems import ProblemLog

CLOCK = "clock"

_MOST = 5.0
"""How far the clock may be off, in seconds."""

_SLOW = 1.0
"""A response that took more seconds tells less than an earlier one."""

UNCOMPARED = "the scaler's clock is not compared with that of the API server yet"
DIFFERS = f"the scaler's clock is more than {_MOST:g} s from that of the API server (set its node's clock)"


class ServerClock:
    """Compares the clock with the Date of each response that it is given."""

    def __init__(self, clock: Clock, problems: ProblemLog) -> None:
        self._clock = clock
        self._problems = problems
        self._bounds: tuple[float, float] | None = None
        """The time of the API server less the monotonic clock; None before the first comparison."""

    def monotonic(self) -> float:
        """Return the time at which a request is sent, for `note`."""
        return self._clock.monotonic()

    def note(self, sent: float, date: str) -> None:
        """Compare with the header Date of a response, and report a clock that differs."""
        try:
            answered = parsedate_to_datetime(date).timestamp()
        except (ValueError, OverflowError):
            return
        now = self._clock.monotonic()
        if self._bounds is not None and now - sent > _SLOW:
            return
        self._bounds = answered - now, answered + 1.0 - sent
        behind, ahead = self._distances(self._bounds)
        if max(behind, ahead) <= _MOST:
            self._problems.resolve(CLOCK)
            return
        where = "ahead" if ahead > behind else "behind"
        text = (
            f"it is more than {_MOST:g} s {where}: values are those of that time, windows of schedules begin "
            "then, and a scaler lowers no count: set the clock of the node"
        )
        message = "the clock differs from that of the API server"
        self._problems.report(CLOCK, message, text, seconds=round(max(behind, ahead)))

    def doubt(self) -> str:
        """Return why a decision must not lower a count, "" if the clock is right."""
        if self._bounds is None:
            return UNCOMPARED
        return DIFFERS if max(self._distances(self._bounds)) > _MOST else ""

    def _distances(self, bounds: tuple[float, float]) -> tuple[float, float]:
        """Return by how much the clock is behind and ahead now."""
        offset = self._clock.wall() - self._clock.monotonic()
        return bounds[0] - offset, offset - bounds[1]
