"""What scrapes show of a load: its mean over a window, as a rate has it, for each ready pod or in all."""

import math
from collections import deque


class Signal:
    """One metric of one chain of scrapes.

    It is scraped at the seconds `phase`, `phase + interval` and so on. `window` is over how many seconds a
    value is the mean: 0 for a gauge, whose value is that of the last second. The increases of the counters of
    all pods add up to the load, and a rate divides them by the window, so the rates of the pods add up to the
    mean of the load. NaN is no value. Before second 0 the load was always `first`.
    """

    def __init__(
        self, interval: int, phase: int, window: int, first: float, ready: int, *, is_total: bool
    ) -> None:
        """`is_total` says that the metric shows the whole load, and not that of each of the `ready` pods."""
        self.interval = interval
        self.window = max(1, window)
        self.due = phase
        self.taken = phase - interval
        """The second of the last scrape."""
        self._is_total = is_total
        self._ready = ready
        self._steps: deque[tuple[int, float]] = deque([(-self.window - interval, first)])
        self.value = self._value(first)
        """What the last scrape showed."""

    def is_settled(self, ready: int) -> bool:
        """Whether further scrapes show the same value until the load or the ready pods change."""
        covered = self.taken - self._steps[-1][0] >= self.window - 1
        return covered and (self._is_total or self._ready == ready)

    def record(self, second: int, load: float) -> None:
        """Record the load from this second on."""
        steps = self._steps
        last = steps[-1][1]
        if load == last or (math.isnan(load) and math.isnan(last)):
            return
        steps.append((second, load))
        oldest = second - self.window - self.interval
        while len(steps) > 1 and steps[1][0] <= oldest:
            steps.popleft()

    def scrape(self, second: int, ready: int) -> None:
        """Scrape at this second, whose load is noted."""
        self.taken = second
        self.due = second + self.interval
        self._ready = ready
        self.value = self._value(self._mean(second))

    def skip(self, second: int) -> None:
        """Do the scrapes before this second at once; the signal is settled."""
        if second > self.due:
            self.taken = self.due + (second - 1 - self.due) // self.interval * self.interval
            self.due = self.taken + self.interval

    def _value(self, load: float) -> float:
        if self._is_total:
            return load
        return load / self._ready if self._ready else math.nan

    def _mean(self, second: int) -> float:
        """Return the mean of the load over the window that ends with a second; NaN if all of it is a gap."""
        begin, end = second - self.window + 1, second + 1
        start, load = self._steps[-1]
        if start <= begin:
            return load
        total, known = 0.0, 0
        for start, load in reversed(self._steps):
            since = max(start, begin)
            if not math.isnan(load):
                total += (end - since) * load
                known += end - since
            end = since
            if since == begin:
                break
        return total / known if known else math.nan
