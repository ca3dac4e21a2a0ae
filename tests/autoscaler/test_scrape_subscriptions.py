"""Whose pods are scraped, as autoscalers, targets, pods and rules change."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from adapter.autoscaler.inputs.follower import TargetFollowers
from adapter.autoscaler.inputs.scrape_subscriptions import ScrapeSubscriptions
from adapter.autoscaler.interfaces import Key
from adapter.errors import NotSyncedError
from adapter.kubernetes.cache.pod_codec import WatchedPod
from adapter.kubernetes.cache.pod_selections import Follower
from adapter.kubernetes.cache.scale_targets import ScaleTarget, Unfound
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.autoscaling.hpa import CrossVersionObjectReference
from adapter.model.metrics import SeriesInfo
from adapter.model.objects.label_selectors import LabelSelector
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import Defects
from tests.support.controller import fpa
from tests.support.scaling import cpu_metric, pods_metric
from tests.support.world import RulesWorld, compile_text, scraped_pod, world

RULES = """
rules:
- seriesQuery: all
  resources: {template: <<.Resource>>}
  scrape: {port: metrics}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
LISTS = {"all": (SeriesInfo("depth", frozenset({"namespace", "pod"}), 3),)}
KEY = Key("default", "web")
WEB = CrossVersionObjectReference("Deployment", "web", "apps/v1")
A, B = scraped_pod("a", "10.0.0.1"), scraped_pod("b", "10.0.0.2")


class Kept:
    """A target or the pods of a selector, as a test says; `changed` notifies the followers."""

    def __init__(self, open_ones: list["Kept"], changed: Callable[[], None], find: Callable[[], Any]) -> None:
        self.changed = changed
        self._open, self._find = open_ones, find
        open_ones.append(self)

    def find(self) -> Any:
        return self._find()

    @property
    def pods(self) -> Any:
        found = self._find()
        if isinstance(found, Exception):
            raise found
        return found

    def close(self, _: Follower | None = None) -> None:
        self._open.remove(self)

    leave = close


class Around:
    def __init__(self) -> None:
        self.target: ScaleTarget | Unfound = at("app=web")
        self.pods: tuple[WatchedPod, ...] | Exception = (A,)
        self.targets_open: list[Kept] = []
        self.pods_open: list[Kept] = []
        self.selectors: list[str] = []

    def follow_target(
        self, namespace: str, reference: CrossVersionObjectReference, changed: Callable[[], None]
    ) -> Kept:
        assert (namespace, reference) == ("default", WEB)
        return Kept(self.targets_open, changed, lambda: self.target)

    def follow_pods(self, namespace: str, selector: LabelSelector, follower: Follower) -> Kept:
        self.selectors.append(f"{follower.autoscaler} {namespace} {selector}")
        return Kept(self.pods_open, follower.changed, lambda: self.pods)


def at(selector: str) -> ScaleTarget:
    return ScaleTarget(1, 1, selector, "1", "", "/scale")


def autoscaler(*metrics: str) -> FastPathAutoscaler:
    return fpa([*(pods_metric(name=name) for name in metrics), cpu_metric()])


@asynccontextmanager
async def wanting(rules: str = RULES) -> AsyncIterator[tuple[RulesWorld, Around, ScrapeSubscriptions]]:
    async with world(rules, lists=LISTS) as here:
        around = Around()
        targets: Any = SimpleNamespace(follow=around.follow_target)
        pods: Any = SimpleNamespace(follow=around.follow_pods)
        followers = TargetFollowers(targets, pods)
        endpoints: Any = SimpleNamespace(wake=asyncio.Event())
        yield here, around, ScrapeSubscriptions(here.scraped, followers, Defects(Monitoring()), endpoints)


def scraped(here: RulesWorld) -> list[str]:
    return sorted(target.pod for target in here.targets())


async def test_the_pods_of_the_target_as_they_come_and_go() -> None:
    async with wanting() as (here, around, wants):
        wants.put(autoscaler("depth", "other"))
        assert scraped(here) == ["a"]
        assert around.selectors == ["default/web default app=web"]

        around.pods = (A, B)
        around.pods_open[0].changed()
        assert scraped(here) == ["a", "b"]
        around.pods = (B,)
        around.pods_open[0].changed()
        assert scraped(here) == ["b"]

        wants.remove(KEY)
        wants.remove(KEY)
        assert scraped(here) == []
        assert around.targets_open == around.pods_open == []


async def test_another_selector_and_a_target_that_goes() -> None:
    async with wanting() as (here, around, wants):
        wants.put(autoscaler("depth"))
        around.target = at("app=new")
        around.pods = (B,)
        around.targets_open[0].changed()
        assert scraped(here) == ["b"]
        assert (around.selectors[-1], len(around.pods_open)) == ("default/web default app=new", 1)

        around.target = Unfound("the cache is not in", known=False)
        around.targets_open[0].changed()
        assert scraped(here) == ["b"], "what is not known changes nothing"
        around.target = Unfound("not found")
        around.targets_open[0].changed()
        assert (scraped(here), around.pods_open) == ([], [])
        around.target = at("app=new")
        around.targets_open[0].changed()
        assert scraped(here) == ["b"]


async def test_decisions_and_scrapes_follow_a_target_together() -> None:
    async with wanting() as (here, around, wants):
        wants.put(autoscaler("depth"))
        told: list[str] = []

        def changed() -> None:
            told.append("changed")

        follower = wants.followers.join(KEY, WEB, changed)
        assert (len(around.targets_open), len(around.pods_open)) == (1, 1)
        # A decision has read a newer scale than the cache of targets has.
        around.pods = (B,)
        follower.select("app=new")
        around.pods_open[0].changed()
        assert (scraped(here), around.selectors[-1]) == (["b"], "default/web default app=new")
        assert told == ["changed"]
        around.target = at("app=new")
        around.targets_open[0].changed()
        assert (scraped(here), len(around.selectors), len(around.pods_open)) == (["b"], 2, 1)

        wants.remove(KEY)
        assert scraped(here) == []
        assert (len(around.targets_open), len(around.pods_open)) == (1, 1), "decisions go on"
        follower.leave(changed)
        assert around.targets_open == around.pods_open == []
        assert not wants.followers.open


@pytest.mark.parametrize("selector", ["", "a b"])
async def test_a_target_with_an_invalid_selector_has_no_pods(selector: str) -> None:
    async with wanting() as (here, around, wants):
        around.target = at(selector)
        wants.put(autoscaler("depth"))

        assert (scraped(here), around.pods_open) == ([], [])


async def test_pods_that_are_not_listed_yet_are_waited_for() -> None:
    async with wanting() as (here, around, wants):
        around.pods = NotSyncedError("first list of pods is not in")
        wants.put(autoscaler("depth"))
        assert scraped(here) == []
        around.pods = (A,)
        around.pods_open[0].changed()
        assert scraped(here) == ["a"]


async def test_a_changed_autoscaler() -> None:
    async with wanting() as (here, around, wants):
        wants.put(autoscaler("depth"))
        first = around.targets_open[0]
        wants.put(autoscaler("depth"))
        assert around.targets_open == [first], "nothing that matters has changed"
        wants.put(autoscaler("depth", "other"))
        assert around.targets_open != [first]
        assert scraped(here) == ["a"]
        wants.put(autoscaler())
        assert (scraped(here), around.targets_open) == ([], [])


@pytest.mark.looptime
async def test_other_rules() -> None:
    async with wanting("rules: []") as (here, around, wants):
        here.relister.subscribe(wants.rules_changed.set)
        task = asyncio.create_task(wants.run())
        wants.put(autoscaler("depth"))
        assert around.targets_open == []

        await here.relister.adopt(compile_text(RULES))
        await asyncio.sleep(0.1)
        assert scraped(here) == ["a"]

        await here.relister.adopt(compile_text(RULES.replace("  scrape: {port: metrics}\n", "")))
        await asyncio.sleep(0.1)
        assert (scraped(here), around.targets_open) == ([], [])
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
