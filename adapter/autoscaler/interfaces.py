"""The `Key` of an autoscaler, and the protocols that the tests of the autoscaler replace."""

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from adapter.autoscaler.decide.decision import Event
from adapter.bounds.forecast.verdict import UNJUDGED, Readiness
from adapter.kubernetes.cache.scale_targets import ScaleTarget
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND, KIND, FastPathAutoscaler, PastChange
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerStatus
from adapter.model.autoscaling.pending_capacity import BacklogCredit


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


class ScheduleListener(Protocol):
    def note_namespace(self, namespace: str) -> None:
        """Note a namespace with autoscalers or schedules."""

    def answered(self, keys: Iterable[Key]) -> None:
        """Note that inputs of these autoscalers have changed."""


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


class Actuator(Protocol):
    """Applies decisions. Calls raise `errors.NotLeadingError` when the lease may have been lost."""

    async def acquire(self, target: ScaleTarget) -> None:
        """Wait until a Scale may be written, to be followed by `put_scale` at once, or by `give_back`."""

    def give_back(self, target: ScaleTarget) -> None:
        """Let another write have the turn, in which nothing is written."""

    async def put_scale(self, target: ScaleTarget, replicas: int) -> str:
        """Write a count against the target's version, and return the new version; KubernetesError."""

    async def get_scale(self, target: ScaleTarget) -> ScaleTarget:
        """Return a target as the API server has it, without the writer of its count; KubernetesError."""

    def status(
        self,
        autoscaler: FastPathAutoscaler,
        status: HorizontalPodAutoscalerStatus,
        changes: tuple[PastChange, ...],
        credited: tuple[BacklogCredit, ...],
        limited_by: str,
        /,
    ) -> None:
        """Queue a status with what the next owner needs, and what keeps the count where it is.

        That are the changes that policies count, and credits.
        """

    def event(self, autoscaler: FastPathAutoscaler, event: Event) -> None: ...

    def forget(self, autoscaler: FastPathAutoscaler) -> None:
        """Drop what is queued about an autoscaler that is gone."""
