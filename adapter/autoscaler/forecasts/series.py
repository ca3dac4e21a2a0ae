"""The metrics of one forecast, which exist while its autoscaler asks for one."""

from prometheus_client import Gauge

from adapter.autoscaler.interfaces import Key
from adapter.bounds.forecast.minimum import Day
from adapter.bounds.forecast.verdict import Verdict
from adapter.telemetry.metrics import Monitoring


class ForecastSeries:
    """The series of one forecast. What is unknown has no series."""

    def __init__(self, monitoring: Monitoring, key: Key) -> None:
        self._monitoring = monitoring
        self._labels = (key.kind, key.namespace, key.name)
        self._shown: dict[Gauge, float] = {}

    def show(self, minimum: int, verdict: Verdict | None, day: Day | None, *, ready: bool) -> None:
        monitoring = self._monitoring
        is_judged = verdict is not None and not verdict.missing
        self._set(monitoring.forecast_minimum, minimum)
        self._set(monitoring.forecast_ready, int(ready))
        self._set(monitoring.forecast_acting, int(bool(verdict and verdict.chosen)))
        self._set(monitoring.forecast_verdict_time, verdict.at if verdict and is_judged else None)
        self._set(monitoring.forecast_coverage, None if day is None else day.coverage)
        self._set(monitoring.forecast_extra, None if day is None else day.share)

    def remove(self) -> None:
        for gauge in list(self._shown):
            self._set(gauge, None)

    def _set(self, gauge: Gauge, value: float | None) -> None:
        if value is None:
            if self._shown.pop(gauge, None) is not None:
                gauge.remove(*self._labels)
        elif self._shown.get(gauge) != value:
            self._shown[gauge] = value
            gauge.labels(*self._labels).set(value)
