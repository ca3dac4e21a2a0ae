"""The registry of autoscalers: which ones exist, which share a target, and which component follows each.

The registry lives as long as the process; a `Controller` lives for one term of leadership. Autoscalers of
other shards are registered as well, but not decided.
"""

from collections.abc import Hashable, Iterable

from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.loop import Controller
from adapter.autoscaler.scrape_subscriptions import ScrapeSubscriptions
from adapter.kubernetes.cache.autoscalers import ScaleConflicts, TargetKey
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.autoscaling.shards import Shard


class AutoscalerRegistry:
    """All autoscalers. `answers` says that this process serves metrics, of the autoscalers of all shards."""

    def __init__(
        self, rivals: ScaleConflicts, scrapes: ScrapeSubscriptions, shard: Shard, *, answers: bool
    ) -> None:
        self.controller: Controller | None = None
        """The controller of this term; None while this process does not lead."""
        self._rivals = rivals
        self._scrapes = scrapes
        self._shard = shard
        self._answers = answers
        self._by_target: dict[TargetKey, set[Key]] = {}
        self._targets: dict[Key, TargetKey] = {}

    def put(self, autoscaler: FastPathAutoscaler) -> None:
        """Add or update a FastPathAutoscaler."""
        controller = self.note(autoscaler)
        if controller is not None:
            controller.put(autoscaler)

    def note(self, autoscaler: FastPathAutoscaler) -> Controller | None:
        """Register an autoscaler; return the controller that decides it, None if this process does not."""
        key = Key.of(autoscaler)
        target = TargetKey.of(key.namespace, autoscaler.spec.scale_target_ref)
        before = self._targets.get(key)
        if before != target:
            self._unregister(key)
            self._targets[key] = target
            self._by_target.setdefault(target, set()).add(key)
        if not key.is_native:
            self._rivals.put(autoscaler)
        is_owned = self._shard.owns(key.namespace, key.name)
        if is_owned or self._answers:
            # Scrape even without leading: this process serves the values, and may lead later.
            self._scrapes.put(autoscaler)
        return self.controller if is_owned else None

    def remove(self, key: Key) -> None:
        """Remove an autoscaler."""
        self._unregister(key)
        if not key.is_native:
            self._rivals.remove(key.namespace, key.name)
        self._scrapes.remove(key)
        if self.controller is not None:
            self.controller.remove(key)

    def _unregister(self, key: Key) -> None:
        target = self._targets.pop(key, None)
        if target is not None:
            self._by_target[target].discard(key)
            if not self._by_target[target]:
                del self._by_target[target]

    def rivals_changed(self, target: TargetKey) -> None:
        """Note that the autoscalers of a target have changed."""
        if self.controller is not None:
            self.controller.touch_all(tuple(self._by_target.get(target, ())))

    def answered(self, keys: Iterable[Key]) -> None:
        """Note that metrics of these autoscalers were fetched, or could not be."""
        if self.controller is not None:
            self.controller.touch_all(keys)

    def delayed(self, keys: Iterable[Key]) -> None:
        """Note that metrics of these autoscalers wait for the query budget."""
        if self.controller is not None:
            self.controller.report_delays(keys)

    def scraped(self, owner: Hashable) -> None:
        """Note that a pod of an autoscaler was scraped; `owner` is the autoscaler's `Key`."""
        if self.controller is not None and isinstance(owner, Key):
            self.controller.touch(owner)
