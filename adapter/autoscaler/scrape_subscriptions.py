"""Which pods are scraped: those behind the targets of autoscalers that use a metric whose rule has pods scraped.

Every replica of us scrapes for itself, whoever leads: each answers for the metrics, and who takes over has its rates at once. Not here: which
of the pods can be scraped at all, and how (`scraped`). The law: a target or its pods are followed only while a metric of the autoscaler is
scraped, and what is not known changes nothing.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from adapter.autoscaler.decide import decision
from adapter.errors import NotSyncedError
from adapter.kubernetes.cache.scale_targets import Target, Unfound
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.autoscaling.hpa import CrossVersionObjectReference
from adapter.model.selectors.label_selectors import LabelSelector
from adapter.scrape.cache import ScrapedPod, ScrapedValues

# How often it is looked whether the rules are others, in seconds.
_PERIOD = 1.0


class FollowedTarget(Protocol):
    """A target at hand."""

    def find(self) -> Target | Unfound:
        """Return it as last seen."""
        ...

    def close(self) -> None:
        """Follow it no more."""
        ...


class FollowedPods(Protocol):
    """The pods of a selector at hand."""

    @property
    def pods(self) -> Iterable[ScrapedPod]:
        """Return them; NotSyncedError before the first list."""
        ...

    def close(self) -> None:
        """Follow them no more."""
        ...


class Targets(Protocol):
    """What autoscalers scale; met by `kubernetes.cache.scale_targets`."""

    def follow(
        self, namespace: str, reference: CrossVersionObjectReference, changed: Callable[[], None]
    ) -> FollowedTarget:
        """Keep a target at hand; `changed` is called when it may be another."""
        ...


class Pods(Protocol):
    """The pods of the cluster; met by `kubernetes.cache.pods`."""

    def follow(
        self, namespace: str, selector: LabelSelector, autoscaler: str, changed: Callable[[], None]
    ) -> FollowedPods:
        """Keep the pods that match at hand; `changed` is called when they are others."""
        ...


class ScrapeWants:
    """The autoscalers of which pods are scraped. `run` follows changes of the rules."""

    def __init__(self, scraped: ScrapedValues, targets: Targets, pods: Pods) -> None:
        self.scraped = scraped
        self.targets = targets
        self.pods = pods
        self._watched: dict[tuple[str, str], _Watched] = {}

    def put(self, autoscaler: FastPathAutoscaler, name: str = "") -> None:
        """Scrape the pods of a new or changed autoscaler, for as long as a metric of its pods is scraped.

        `name` is by which it is known where that is not its own.
        """
        meta, spec = autoscaler.metadata, autoscaler.spec
        key = meta.namespace, name or meta.name
        metrics = frozenset(each.pods.metric.name for each in spec.metrics or () if each.pods is not None)
        known = self._watched.get(key)
        if known is not None and (known.reference, known.metrics) == (spec.scale_target_ref, metrics):
            return
        self.remove(*key)
        if metrics:
            watched = self._watched[key] = _Watched(self, *key, spec.scale_target_ref, metrics)
            watched.settle()

    def remove(self, namespace: str, name: str) -> None:
        """Scrape nothing for an autoscaler any more."""
        gone = self._watched.pop((namespace, name), None)
        if gone is not None:
            gone.close()

    async def run(self) -> None:
        """Follow the rules for ever: metrics come to be scraped, or cease to be."""
        generation = self.scraped.generation
        while True:
            await asyncio.sleep(_PERIOD)
            if self.scraped.generation != generation:
                generation = self.scraped.generation
                for watched in list(self._watched.values()):
                    watched.settle()


class _Watched:
    """One autoscaler: its target, and with that its pods."""

    def __init__(
        self,
        around: ScrapeWants,
        namespace: str,
        name: str,
        reference: CrossVersionObjectReference,
        metrics: frozenset[str],
    ) -> None:
        self.reference = reference
        self.metrics = metrics
        self._around = around
        self._namespace = namespace
        self._owner = f"{namespace}/{name}"
        self._target: FollowedTarget | None = None
        self._selector = ""
        self._pods: FollowedPods | None = None

    def settle(self) -> None:
        """Follow the target if a metric is scraped, else nothing."""
        if not any(map(self._around.scraped.is_scraped, self.metrics)):
            self.close()
            return
        if self._target is None:
            self._target = self._around.targets.follow(self._namespace, self.reference, self._look)
        self._look()

    def close(self) -> None:
        """Follow and want nothing."""
        if self._target is not None:
            self._target.close()
            self._target = None
        self._close_pods()

    def _look(self) -> None:
        """Follow the pods of the target as it is now; a target that is not there has none."""
        if self._target is None:
            return
        found = self._target.find()
        if isinstance(found, Unfound):
            if found.known:
                self._close_pods()
            return
        if self._pods is None or found.selector != self._selector:
            self._close_pods()
            self._selector = found.selector
            selector = decision.selector_of(found.selector)
            if selector is not None:
                self._pods = self._around.pods.follow(self._namespace, selector, self._owner, self._want)
        self._want()

    def _close_pods(self) -> None:
        if self._pods is not None:
            self._pods.close()
            self._pods = None
            self._around.scraped.forget(self._owner)

    def _want(self) -> None:
        if self._pods is None:
            return
        try:
            pods = self._pods.pods
        except NotSyncedError:
            return
        self._around.scraped.want(self._owner, self._namespace, self.metrics, pods)
