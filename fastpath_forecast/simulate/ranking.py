"""Which pods of a simulated target are the idlest, by the samples that the scaler has of them."""

import math
from collections.abc import Callable, Iterable

from adapter.autoscaler.decide.guards import removal
from adapter.autoscaler.decide.observation import PodsReading, Reading, Unavailable
from adapter.autoscaler.inputs.idleness import Idleness, Values
from adapter.model import quantity
from adapter.model.timestamps import SECOND
from fastpath_forecast.simulate.workload import Workload


class Ranking:
    """Ranks pods as the scaler does, by the mean of the last samples of one metric."""

    def __init__(
        self,
        samples: Callable[[], Iterable[tuple[int, float]]],
        idle: int | None = None,
        *,
        heeds_costs: bool = True,
    ) -> None:
        """Rank by `samples`, the seconds of scrapes with the total then.

        A pod with `idle` thousandths or less may go at once; None if a scale-down does not wait for that.
        Without `heeds_costs` the target removes pods in an order of its own.
        """
        self._samples = samples
        self._idle = idle
        self._heeds_costs = heeds_costs
        self.costs: dict[str, int] = {}
        self._kept_until = 0

    def count_idle(self, workload: Workload) -> int | None:
        """Return how many pods may go at once, None if a scale-down does not wait for that."""
        if self._idle is None:
            return None
        return removal.count_idle(workload.pods, self._smooth(workload), self._idle)

    def choose(self, workload: Workload, count: int, now: int) -> list[str]:
        """Return the pods with a deletion cost when it is foreseen that `count` go, the lowest first."""
        if not self._heeds_costs:
            return []
        marked = self.costs if now <= self._kept_until else {}
        kept = {pod.name: marked[pod.name] for pod in workload.pods if pod.name in marked}
        choice = removal.choose(workload.pods, self._smooth(workload), count, kept)
        self.costs = {pod: cost for pod, cost in kept.items() if pod not in choice.exchanged} | dict(
            choice.costs
        )
        self._kept_until = now + removal.KEEP_SECONDS * SECOND
        return sorted(self.costs, key=self.costs.__getitem__)

    def _smooth(self, workload: Workload) -> Values:
        idleness = Idleness()
        for second, total in self._samples():
            reading: Reading = Unavailable("NoMetrics", "a gap of the load")
            if not math.isnan(total):
                taken = workload.split(total, second).items()
                reading = PodsReading({pod: quantity.milli_from_float(value) for pod, value in taken})
            idleness.note(reading, second)
        return idleness.values
