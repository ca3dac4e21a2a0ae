"""What the autoscaler needs from the rest of the program: protocols that tests replace, and values."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from adapter.autoscaler.decide.decision import Event
from adapter.kubernetes.cache.scale_targets import ScaleTarget, Unfound
from adapter.kubernetes.write.scale import ScaleState
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND, FastPathAutoscaler, PastChange
from adapter.model.autoscaling.floor import Floor
from adapter.model.autoscaling.hpa import CrossVersionObjectReference, HorizontalPodAutoscalerStatus
from adapter.model.label_selectors import LabelSelector
from adapter.model.pods import PodFacts


class Key(NamedTuple):
    """Identifies an autoscaler: a FastPathAutoscaler, or a HorizontalPodAutoscaler (`is_native`)."""

    namespace: str
    name: str
    is_native: bool = False

    def __str__(self) -> str:
        return f"{self.namespace}/hpa/{self.name}" if self.is_native else f"{self.namespace}/{self.name}"

    @classmethod
    def of(cls, autoscaler: FastPathAutoscaler) -> "Key":
        """Return the key of an autoscaler."""
        meta = autoscaler.metadata
        return cls(meta.namespace, meta.name, autoscaler.kind == HPA_KIND)

    @classmethod
    def native(cls, namespace: str, name: str) -> "Key":
        """Return the key of a HorizontalPodAutoscaler."""
        return cls(namespace, name, is_native=True)


class FollowedTarget(Protocol):
    """A scale target that is kept in a cache; met by `kubernetes.cache.scale_targets.TargetSubscription`."""

    def find(self) -> ScaleTarget | Unfound:
        """Return the target as last seen."""
        ...

    def close(self) -> None:
        """Stop following."""
        ...


class TargetCache(Protocol):
    """The scale targets; met by `kubernetes.cache.scale_targets.ScaleTargets`."""

    def follow(
        self, namespace: str, reference: CrossVersionObjectReference, changed: Callable[[], None]
    ) -> FollowedTarget:
        """Keep a target in the cache; call `changed` when its counts or its selector may have changed."""
        ...


class FollowedPods(Protocol):
    """The pods that an autoscaler selects; met by `kubernetes.cache.pods.PodSubscription`."""

    @property
    def pods(self) -> Sequence[PodFacts]:
        """Return the pods, the same sequence object while nothing has changed; NotSyncedError."""
        ...

    @property
    def selected_by(self) -> Sequence[str]:
        """Return the autoscalers that follow any of these pods."""
        ...

    def min_ready(self, age: int) -> int | None:
        """Return the smallest number of ready pods in the last `age` nanoseconds; None if unknown."""
        ...

    def max_ready(self, age: int) -> int:
        """Return the largest known number of ready pods in the last `age` nanoseconds."""
        ...

    def close(self) -> None:
        """Stop following."""
        ...


class SelectedPodCache(Protocol):
    """The pods of the cluster."""

    def follow(
        self, namespace: str, selector: LabelSelector, autoscaler: str, changed: Callable[[], None]
    ) -> FollowedPods:
        """Keep the pods that match in the cache; call `changed` when they have changed."""
        ...

    def stale(self) -> str:
        """Return why the cache may be out of date, "" if it is not."""
        ...


class RivalIndex(Protocol):
    """The autoscalers by target; met by `kubernetes.cache.autoscalers.ScaleConflicts`."""

    def of(self, autoscaler: FastPathAutoscaler) -> tuple[str, ...] | None:
        """Return the other autoscalers of its target by kind and name; None while that is unknown."""
        ...


class Outcome(NamedTuple):
    """The outcome of a write: the new resource version or an error; neither if nothing was left to write."""

    resource_version: str = ""
    error: str = ""
    unknown: bool = False
    """Whether the write may have been applied in spite of the error."""


class Actuator(Protocol):
    """Applies decisions. Calls raise `errors.NotLeadingError` when the lease may have been lost."""

    async def acquire(self, key: Key, target: ScaleTarget) -> None:
        """Wait until a Scale may be written, to be followed by `put_scale` at once."""
        ...

    async def put_scale(self, key: Key, target: ScaleTarget, replicas: int) -> str:
        """Write a count against the target's version, and return the new version; KubernetesError."""
        ...

    async def get_scale(self, target: ScaleTarget) -> ScaleState:
        """Return the scale as the API server has it; KubernetesError."""
        ...

    def status(
        self,
        autoscaler: FastPathAutoscaler,
        status: HorizontalPodAutoscalerStatus,
        changes: tuple[PastChange, ...],
    ) -> None:
        """Queue a status with the changes that policies still count."""
        ...

    def event(self, autoscaler: FastPathAutoscaler, event: Event) -> None:
        """Queue an event."""
        ...

    def forget(self, autoscaler: FastPathAutoscaler) -> None:
        """Drop what is queued about an autoscaler that is gone."""
        ...


class FloorPublisher(Protocol):
    """Publishes floors, for one term; met by `boost.publisher.FloorWriter`."""

    async def publish(self, entry: Floor) -> None:
        """Return when every replica can read the floor; KubernetesError, NotLeadingError."""
        ...

    def want(self, uid: str, entry: Floor | None) -> None:
        """Queue a floor, or the end of one."""
        ...


__all__ = [
    "Actuator",
    "FloorPublisher",
    "FollowedPods",
    "FollowedTarget",
    "Key",
    "Outcome",
    "RivalIndex",
    "ScaleState",
    "ScaleTarget",
    "SelectedPodCache",
    "TargetCache",
    "Unfound",
]
