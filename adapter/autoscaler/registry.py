"""The roster: which autoscalers there are, by the targets they have in common, and who is told of each.

Here: what becomes of an autoscaler, wherever it was read, and which of them something else concerns that changed. Not here: where they
stand (`origins`, `natives`), when they are decided (`loop`). Law: the roster lives as long as the process, a controller for one term;
autoscalers of other shards are known here, and not decided.
"""

from collections.abc import Hashable, Iterable

from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.loop import Controller
from adapter.autoscaler.scrape_subscriptions import ScrapeWants
from adapter.kubernetes.cache.hpas import Rivals, TargetKey
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.shards import Shard


class Roster:
    """All autoscalers that were read. `answers` says that this process answers for metrics, whosever shard it is."""

    def __init__(self, rivals: Rivals, wants: ScrapeWants, shard: Shard, *, answers: bool) -> None:
        self.controller: Controller | None = None
        """Who decides here; None while this process does not lead."""
        self._rivals = rivals
        self._wants = wants
        self._shard = shard
        self._answers = answers
        self._by_target: dict[TargetKey, set[Key]] = {}
        self._targets_of: dict[Key, TargetKey] = {}

    def put(self, autoscaler: FastPathAutoscaler) -> None:
        """Take an autoscaler of ours, or what has become of it."""
        controller = self.note(autoscaler)
        if controller is not None:
            controller.put(autoscaler)

    def note(self, autoscaler: FastPathAutoscaler) -> Controller | None:
        """Have an autoscaler known to all but who decides it, which is returned; None where nobody does here now."""
        key = Key.of(autoscaler)
        target = TargetKey.of(key.namespace, autoscaler.spec.scale_target_ref)
        before = self._targets_of.get(key)
        if before != target:
            self._unplace(key)
            self._targets_of[key] = target
            self._by_target.setdefault(target, set()).add(key)
        if not key.is_native:
            self._rivals.put(autoscaler)
        owned = self._shard.owns(*key.plain)
        if owned or self._answers:
            # whoever leads, and whosever shard it is: this process answers for these pods, or will lead with what they have shown
            self._wants.put(autoscaler, key.name)
        return self.controller if owned else None

    def remove(self, key: Key) -> None:
        """Let an autoscaler go."""
        self._unplace(key)
        if not key.is_native:
            self._rivals.remove(*key)
        self._wants.remove(*key)
        if self.controller is not None:
            self.controller.remove(key)

    def _unplace(self, key: Key) -> None:
        target = self._targets_of.pop(key, None)
        if target is not None:
            self._by_target[target].discard(key)
            if not self._by_target[target]:
                del self._by_target[target]

    def rivals_changed(self, target: TargetKey) -> None:
        """Note that a target has other autoscalers than before."""
        if self.controller is not None:
            self.controller.touch_all(tuple(self._by_target.get(target, ())))

    def answered(self, owners: Iterable[Hashable]) -> None:
        """Note that questions of autoscalers, each as ``namespace/name``, were answered."""
        if self.controller is not None:
            self.controller.touch_all(Key(*str(owner).split("/", 1)) for owner in owners)

    def delayed(self, owners: Iterable[Hashable]) -> None:
        """Note that questions of autoscalers, each as ``namespace/name``, wait for the query budget."""
        if self.controller is not None:
            self.controller.report_delays(Key(*str(owner).split("/", 1)) for owner in owners)

    def scraped(self, owner: str) -> None:
        """Note that a pod of an autoscaler, as ``namespace/name``, was scraped."""
        if self.controller is not None:
            self.controller.touch(Key(*owner.split("/", 1)))
