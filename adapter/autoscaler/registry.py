"""Which autoscalers exist, which of them share a target, and whose pods are scraped.

The registry lives as long as the process; a `Controller` lives for one term of leadership. Autoscalers of
other shards are registered as well, but not decided.

Every replica scrapes, whether it leads or not: each serves the metrics, and a new leader has the rates at
once. A target and its pods are followed only while a metric of the autoscaler is scraped.
"""

import asyncio
from collections.abc import Hashable, Iterable

from adapter.autoscaler.follower import TargetFollower, TargetFollowers
from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.loop import Controller
from adapter.autoscaler.metrics.endpoint_scrapes import EndpointSubscriptions
from adapter.errors import NotSyncedError
from adapter.kubernetes.cache.autoscalers import ScaleConflicts, TargetKey
from adapter.kubernetes.cache.scale_targets import ScaleTarget
from adapter.kubernetes.cache.store import in_steps
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.autoscaling.hpa import CrossVersionObjectReference
from adapter.model.autoscaling.shards import Shard
from adapter.scrape.cache import ScrapedValues
from adapter.telemetry.problems import Defects

_MOST_RIVALS = 20
"""The most autoscalers of a target that are decided at once when another one comes or goes."""


class ScrapeSubscriptions:
    """The autoscalers whose pods or endpoints are scraped. `run` follows changes of the rules."""

    def __init__(
        self,
        scraped: ScrapedValues,
        followers: TargetFollowers,
        defects: Defects,
        endpoints: EndpointSubscriptions | None = None,
    ) -> None:
        """`endpoints` has those of external metrics; None if no rule names any."""
        self._endpoints = endpoints
        self._defects = defects
        self.scraped = scraped
        self.followers = followers
        self._subscriptions: dict[Key, _Subscription] = {}
        self.rules_changed = asyncio.Event()
        """Set when metrics may have started or stopped being scraped."""

    def put(self, autoscaler: FastPathAutoscaler) -> None:
        """Scrape the pods and endpoints of a new or changed autoscaler while its metrics are scraped."""
        if self._endpoints is not None:
            self._endpoints.put(autoscaler)
        key, spec = Key.of(autoscaler), autoscaler.spec
        metrics = frozenset(each.pods.metric.name for each in spec.metrics or () if each.pods is not None)
        known = self._subscriptions.get(key)
        if known is not None and (known.reference, known.metrics) == (spec.scale_target_ref, metrics):
            return
        self._remove(key)
        if metrics:
            subscription = _Subscription(self, key, spec.scale_target_ref, metrics)
            self._subscriptions[key] = subscription
            subscription.settle()

    def remove(self, key: Key) -> None:
        if self._endpoints is not None:
            self._endpoints.remove(key)
        self._remove(key)

    def _remove(self, key: Key) -> None:
        gone = self._subscriptions.pop(key, None)
        if gone is not None:
            gone.close()

    async def run(self) -> None:
        """Follow the rules until cancelled."""
        while True:
            await self.rules_changed.wait()
            self.rules_changed.clear()
            for _ in in_steps(list(self._subscriptions.items()), self._settle, self._defects):
                await asyncio.sleep(0)

    def _settle(self, known: tuple[Key, "_Subscription"]) -> None:
        key, subscription = known
        if self._subscriptions.get(key) is subscription:
            subscription.settle()


class _Subscription:
    """One autoscaler: its target, and with that its pods."""

    def __init__(
        self,
        parent: ScrapeSubscriptions,
        key: Key,
        reference: CrossVersionObjectReference,
        metrics: frozenset[str],
    ) -> None:
        self.reference = reference
        self.metrics = metrics
        self._parent = parent
        self._key = key
        self._follower: TargetFollower | None = None
        self._selector = ""

    def settle(self) -> None:
        """Follow the target if one of the metrics is scraped."""
        if not any(map(self._parent.scraped.entry_of, self.metrics)):
            self.close()
            return
        if self._follower is None:
            self._follower = self._parent.followers.join(self._key, self.reference, self._look)
        self._look()

    def close(self) -> None:
        if self._follower is not None:
            self._follower.leave(self._look)
            self._follower = None
            self._parent.scraped.forget(self._key)

    def _look(self) -> None:
        """Have the pods of the target as it is now scraped; a target that does not exist has none."""
        if self._follower is None:
            return
        found = self._follower.find()
        # A decision may have selected by a newer scale than the cache has: only a change in the cache counts.
        if isinstance(found, ScaleTarget) and (
            found.selector != self._selector or self._follower.pods is None
        ):
            self._selector = found.selector
            self._follower.select(found.selector)
        following = self._follower.pods
        if following is None:
            self._parent.scraped.forget(self._key)
            return
        try:
            pods = following.pods
        except NotSyncedError:
            return
        self._parent.scraped.want(self._key, self._key.namespace, self.metrics, pods)


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
        keys = self._by_target.get(target, ())
        # where there are many, each has others with and without this change, and sees it at its next decision
        if self.controller is not None and len(keys) <= _MOST_RIVALS:
            self.controller.touch_all(tuple(keys))

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
