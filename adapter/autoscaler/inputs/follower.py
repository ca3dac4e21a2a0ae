"""The target of each autoscaler and the pods that it selects, followed once for decisions and for scrapes.

Both begin and end at other times: scrapes last as long as the process, decisions for one term of ownership.
So a `TargetFollower` has users, and ends with the last of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from adapter.autoscaler.decide import decision
from adapter.autoscaler.interfaces import Key
from adapter.kubernetes.cache.pod_selections import Selection
from adapter.kubernetes.cache.pods import PodCache
from adapter.kubernetes.cache.scale_targets import ScaleTargets, TargetSubscription, Unfound
from adapter.model.autoscaling.hpa import CrossVersionObjectReference
from adapter.model.objects.label_selectors import LabelSelector
from adapter.model.ready_times import Outcome, PodStart

Started = Callable[[PodStart | Outcome], None]


class TargetFollowers:
    """The targets that are followed. `pods` is the cache that their pods come from."""

    def __init__(self, targets: ScaleTargets, pods: PodCache) -> None:
        self.targets = targets
        self.pods = pods
        self.open: dict[tuple[Key, CrossVersionObjectReference], TargetFollower] = {}

    def join(
        self,
        key: Key,
        reference: CrossVersionObjectReference,
        changed: Callable[[], None],
        started: Started | None = None,
    ) -> "TargetFollower":
        """Follow the target of an autoscaler until `TargetFollower.leave`.

        `changed` is called when the target or its pods may have changed, `started` with the start of each of
        the pods.
        """
        follower = self.open.get((key, reference))
        if follower is None:
            follower = self.open[key, reference] = TargetFollower(self, key, reference)
        follower.join(changed, started)
        return follower


@dataclass(slots=True, eq=False)
class TargetFollower:
    """A target and its pods. `target` finds it in its cache."""

    _parent: TargetFollowers
    _key: Key
    _reference: CrossVersionObjectReference
    _users: tuple[tuple[Callable[[], None], Started | None], ...] = ()
    _text: str = ""
    selector: LabelSelector | None = None
    """The selector of `pods`."""
    pods: Selection | None = None
    """The pods that were selected last; None before, and if the selector is invalid."""
    target: TargetSubscription = field(init=False)

    @property
    def autoscaler(self) -> str:
        return str(self._key)

    def __post_init__(self) -> None:
        follow = self._parent.targets.follow
        self.target = follow(self._key.namespace, self._reference, self._target_changed)

    def join(self, changed: Callable[[], None], started: Started | None) -> None:
        self._users = (*self._users, (changed, started))

    def leave(self, changed: Callable[[], None]) -> None:
        """End what `join` began with `changed`."""
        self._users = tuple(user for user in self._users if user[0] != changed)
        if not self._users:
            del self._parent.open[self._key, self._reference]
            self.target.close()
            self._close_pods()

    def select(self, text: str) -> Selection | None:
        """Follow the pods of a selector, and return them.

        The text comes from the caller: a decision may have read a newer scale than the cache of targets has.
        """
        if text != self._text:
            self._close_pods()
            self._text, self.selector = text, decision.read_selector(text)
            if self.selector is not None:
                self.pods = self._parent.pods.follow(self._key.namespace, self.selector, self)
        return self.pods

    def _close_pods(self) -> None:
        if self.pods is not None:
            self.pods.leave(self)
        self._text, self.selector, self.pods = "", None, None

    def _target_changed(self) -> None:
        target = self.target.find()
        if isinstance(target, Unfound) and target.known:
            self._close_pods()  # a target that does not exist has no pods, and shares none with another
        self.changed()

    def changed(self) -> None:
        for changed, _ in self._users:
            changed()

    def started(self, start: PodStart | Outcome) -> None:
        for _, started in self._users:
            if started is not None:
                started(start)
