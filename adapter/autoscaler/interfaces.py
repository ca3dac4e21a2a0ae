"""The `Key` of an autoscaler, and the protocols that the tests of the autoscaler replace."""

from typing import Any, NamedTuple, Protocol

from adapter.bounds.forecast.verdict import UNJUDGED, Readiness
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND, KIND, FastPathAutoscaler


class Key(NamedTuple):
    """Identifies an autoscaler: a FastPathAutoscaler, or a HorizontalPodAutoscaler (`is_native`)."""

    namespace: str
    name: str
    is_native: bool = False

    def __str__(self) -> str:
        return f"{self.namespace}/hpa/{self.name}" if self.is_native else f"{self.namespace}/{self.name}"

    @property
    def kind(self) -> str:
        return HPA_KIND if self.is_native else KIND

    @property
    def labels(self) -> tuple[str, str, str]:
        """Those of its metrics."""
        return self.kind, self.namespace, self.name

    @classmethod
    def of(cls, autoscaler: FastPathAutoscaler) -> "Key":
        meta = autoscaler.metadata
        return cls(meta.namespace, meta.name, autoscaler.kind == HPA_KIND)


class ForecastBound(NamedTuple):
    """The minimum that a forecast gives an autoscaler until an instant (ns), and the forecast's condition.

    The minimum is 0 without a verdict, in mode Advise, and while it is withheld.
    """

    min: int = 0
    until: int = 0
    readiness: Readiness = UNJUDGED


UNKNOWN_FORECAST = ForecastBound()
"""What is known before the first verdict of a term."""


class Forecasts(Protocol):
    def changed(self, key: Key) -> None:
        """Follow an autoscaler that is new, has another spec, or is gone."""

    def clock_set(self) -> None:
        """Follow the time of day: the clock was set."""

    def bound_of(self, key: Key) -> ForecastBound: ...

    def document_of(self, key: Key) -> dict[str, Any] | None:
        """Return what `debug` shows of a forecast, None without one."""
