"""What the controller needs of the world, each as small as can be: targets, and somebody who writes.

Protocols and the values that cross them. Law: what is not known yet says so; it is never nothing.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from adapter.autoscaler.decide.decision import Event
from adapter.boost.floor import FloorEntry
from adapter.kubernetes.cache.scale_targets import ScaleTarget as Target
from adapter.kubernetes.cache.scale_targets import Unfound
from adapter.kubernetes.write.scale import Again, Current, ScaleSeen
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND, FastPathAutoscaler, PastChange
from adapter.model.autoscaling.hpa import CrossVersionObjectReference, HorizontalPodAutoscalerStatus

_NATIVE = "hpa/"


class Key(NamedTuple):
    """Which autoscaler."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @classmethod
    def of(cls, autoscaler: FastPathAutoscaler) -> "Key":
        """Return the key of an autoscaler: that of a HorizontalPodAutoscaler is no name of any other."""
        meta = autoscaler.metadata
        return (
            cls.native(meta.namespace, meta.name)
            if autoscaler.kind == HPA_KIND
            else cls(meta.namespace, meta.name)
        )

    @property
    def is_native(self) -> bool:
        """Whether it is that of a HorizontalPodAutoscaler."""
        return self.name.startswith(_NATIVE)

    @property
    def plain(self) -> tuple[str, str]:
        """The namespace and the name of the object itself."""
        return self.namespace, self.name.removeprefix(_NATIVE)

    @classmethod
    def native(cls, namespace: str, name: str) -> "Key":
        """Return the key of a HorizontalPodAutoscaler."""
        return cls(namespace, _NATIVE + name)


class Followed(Protocol):
    """A target that somebody keeps an eye on; met by `kubernetes.cache.scale_targets.Followed`."""

    def find(self) -> Target | Unfound:
        """Return the target as last seen."""
        ...

    def close(self) -> None:
        """Stop."""
        ...


class Targets(Protocol):
    """The scales of targets, from caches; met by `kubernetes.cache.scale_targets.Targets`."""

    def follow(
        self, namespace: str, reference: CrossVersionObjectReference, changed: Callable[[], None]
    ) -> Followed:
        """Keep a target at hand; `changed` is called when its counts or its selector may be others than before."""
        ...


class Outcome(NamedTuple):
    """What became of a write of a count: the version after it, or why it failed; nothing of both where none was left to write."""

    resource_version: str = ""
    error: str = ""
    unknown: bool = False
    """Whether the write may have been made all the same."""


class Hands(Protocol):
    """Writes what was decided. Raises `errors.NotLeadingError` when nothing may be written any more."""

    async def scale(self, key: Key, target: Target, replicas: int, again: Again, current: Current) -> Outcome:
        """Write a count; where somebody has written since, ask `again` what is to be written then.

        `current` is asked whenever the turn of a write has come, for it may have waited: what is to be written by now, None for nothing.
        """
        ...

    def status(
        self,
        autoscaler: FastPathAutoscaler,
        status: HorizontalPodAutoscalerStatus,
        changes: tuple[PastChange, ...],
    ) -> None:
        """Have a status written, with the changes that policies still count. Returns at once."""
        ...

    def event(self, autoscaler: FastPathAutoscaler, event: Event) -> None:
        """Have an event written. Returns at once."""
        ...

    def forget(self, autoscaler: FastPathAutoscaler) -> None:
        """Write nothing more about an autoscaler that is gone."""
        ...


class Floors(Protocol):
    """Publishes floors, for one term; met by `boost.view.FloorWriter`."""

    async def publish(self, entry: FloorEntry) -> None:
        """Return when everybody can read it. KubernetesError where it cannot be published, NotLeadingError."""
        ...

    def want(self, uid: str, entry: FloorEntry | None) -> None:
        """Have an entry, or its end, published. Returns at once."""
        ...


__all__ = [
    "Again",
    "Current",
    "Floors",
    "Followed",
    "Hands",
    "Key",
    "Outcome",
    "ScaleSeen",
    "Target",
    "Targets",
    "Unfound",
]
