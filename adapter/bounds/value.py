"""The bounds of one autoscaler at an instant, from all that gives it bounds by time."""

import msgspec

_NO_END = 1 << 40
"""In seconds since 1970, after all windows."""


class Bounds(msgspec.Struct, frozen=True, rename={"min": "floor", "max": "ceiling"}):
    """The least and the most replicas that windows give, None for no bound, and what else counts.

    A window is written as ``namespace/schedule window``. Those of `early` have not begun yet: their minimum
    is here for the time that pods take to be Ready. `until` is when the window of the minimum ends, in
    seconds since 1970. `forecast` is the minimum of a forecast, 0 for none; it is never above `max`. `excess`
    says which schedules do not count because they are too many, "" if all do.
    """

    min: int | None = None
    max: int | None = None
    windows: tuple[str, ...] = ()
    early: tuple[str, ...] = ()
    until: int | None = None
    forecast: int = 0
    excess: str = ""

    @property
    def lowest(self) -> int:
        """The minimum of windows and forecast, 0 for none."""
        forecast = self.forecast if self.max is None else min(self.forecast, self.max)
        return max(self.min or 0, forecast)

    def limits(self, lowest: int, highest: int) -> tuple[int, int]:
        """Return minReplicas and maxReplicas within bounds; a minimum wins, but never above maxReplicas."""
        least = min(max(lowest, self.lowest), highest)
        most = highest if self.max is None else min(highest, self.max)
        return least, max(least, most)

    def with_forecast(self, replicas: int) -> "Bounds":
        """Return the bounds with the minimum of a forecast, 0 for none."""
        return self if replicas == self.forecast else msgspec.structs.replace(self, forecast=replicas)

    def without_max(self) -> "Bounds":
        """Return the bounds of a HorizontalPodAutoscaler, to which only minimums apply."""
        if self.min is None and not self.excess:
            return NO_BOUNDS
        return self if self.max is None else msgspec.structs.replace(self, max=None)

    def holding(self, replicas: int) -> "Bounds":
        """Return the bounds with a minimum of at least so many replicas, for as long as these bounds hold."""
        if replicas <= (self.min or 0):
            return self
        return msgspec.structs.replace(self, min=replicas, until=_NO_END)


NO_BOUNDS = Bounds()
