"""The figures of a policy over its phases: their means, and the least and the greatest of each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from adapter.simulate.figures import Figures

FIGURES = {
    "shortagePodSeconds": "shortage",
    "excessPodSeconds": "excess",
    "podSeconds": "pod_seconds",
    "needPodSeconds": "need",
    "shortSeconds": "short_seconds",
    "changes": "changes",
    "maxReplicas": "max_replicas",
    "secondsAtMax": "seconds_at_max",
    "backlogMax": "backlog_max",
}
"""The figures of the output in their order, and the fields of `Figures`."""

_COUNTS = frozenset({"shortSeconds", "changes", "maxReplicas", "secondsAtMax"})

_DIGITS = 6  # sums of binary fractions differ from those on paper far behind the point


@dataclass(frozen=True)
class PolicyFigures:
    """What a policy came to: `policy` as it was written, and the figures of each phase."""

    policy: str
    runs: Sequence[Figures]

    def _values(self, name: str) -> list[float]:
        return [getattr(figures, FIGURES[name]) for figures in self.runs]

    def mean(self, name: str) -> float:
        """Return the mean of a figure over the phases; of a count that is whole, an integer."""
        values = self._values(name)
        mean = round(math.fsum(values) / len(values), _DIGITS)
        return int(mean) if name in _COUNTS and mean == int(mean) else float(mean)

    def spread(self, name: str) -> tuple[float, float]:
        values = [value if name in _COUNTS else round(float(value), _DIGITS) for value in self._values(name)]
        return min(values), max(values)

    def document(self) -> dict[str, object]:
        return {
            "policy": self.policy,
            **{name: self.mean(name) for name in FIGURES},
            "spread": {name: self.spread(name) for name in FIGURES},
        }
