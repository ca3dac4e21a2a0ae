"""The controller's own settings: what kube-controller-manager's flags and feature gates say, with its defaults."""

from typing import NamedTuple

import msgspec

from adapter.model.timestamps import SECOND


class Settings(msgspec.Struct, frozen=True):
    """Lengths are nanoseconds. `scale_to_zero` is the feature gate HPAScaleToZero.

    `strict` is our own: values below zero, and sums and products that 64 or 32 bits do not hold, are no values. Upstream computes with
    what amd64 makes of them, which may be any count.
    """

    tolerance: float = 0.1
    cpu_initialization_period: int = 300 * SECOND
    initial_readiness_delay: int = 30 * SECOND
    downscale_stabilization: int = 300 * SECOND
    scale_to_zero: bool = False
    strict: bool = False


class Band(NamedTuple):
    """The ratios at which nothing is changed, both ends included."""

    low: float
    high: float

    def holds(self, ratio: float) -> bool:
        """Tell whether a ratio is within; NaN never is."""
        return self.low <= ratio <= self.high


def band(down: float, up: float) -> Band:
    """Return the band of two tolerances, each bound computed once in doubles, as upstream does."""
    return Band(1.0 - down, 1.0 + up)
