"""Whose pods are scraped, as autoscalers, targets, pods and rules change.

`scripts/subscriptions` has stories of the autoscaler web, whose target has the selector app=web and the pod
a. After `> ` something happens:

- `put METRIC ...` puts the autoscaler, `remove` removes it. `pods NAME ...` are those of the target from now
  on, or `unlisted`, and `target` is its selector, `unknown` or `missing`.
- `join` and `leave` are decisions that follow the target too, `select SELECTOR` one that has read a newer
  scale.
- `rules` are with a scrape, without, or none.

Below it is what is scraped then, and what is followed, with a number for each time that this begins.
`scripts/test tests/autoscaler/test_scrape_subscriptions.py --update` writes it.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
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
from adapter.model.autoscaling.hpa import CrossVersionObjectReference
from adapter.model.metrics import SeriesInfo
from adapter.model.objects.label_selectors import LabelSelector
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import Defects
from tests.support.controller import fpa
from tests.support.scaling import cpu_metric, pods_metric
from tests.support.scripts import Scripts
from tests.support.waiting import running
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
ADDRESSES = {"a": "10.0.0.1", "b": "10.0.0.2"}
SCRIPTS = Scripts(Path(__file__).parent / "scripts" / "subscriptions")


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


def at(selector: str) -> ScaleTarget:
    return ScaleTarget(1, 1, selector, "1", "", "/scale")


class Around:
    def __init__(self) -> None:
        self.target: ScaleTarget | Unfound = at("app=web")
        self.pods: tuple[WatchedPod, ...] | Exception = (scraped_pod("a", ADDRESSES["a"]),)
        self.targets_made = 0
        self.targets_open: list[Kept] = []
        self.pods_open: list[Kept] = []
        self.selectors: list[str] = []

    def follow_target(
        self, namespace: str, reference: CrossVersionObjectReference, changed: Callable[[], None]
    ) -> Kept:
        assert (namespace, reference) == ("default", WEB)
        self.targets_made += 1
        return Kept(self.targets_open, changed, lambda: self.target)

    def follow_pods(self, namespace: str, selector: LabelSelector, follower: Follower) -> Kept:
        self.selectors.append(f"{follower.autoscaler} {namespace} {selector}")
        return Kept(self.pods_open, follower.changed, lambda: self.pods)


class SubscriptionScript:
    """What a line of a story does."""

    def __init__(self, here: RulesWorld) -> None:
        self._here = here
        self._around = Around()
        targets: Any = SimpleNamespace(follow=self._around.follow_target)
        pods: Any = SimpleNamespace(follow=self._around.follow_pods)
        self._followers = TargetFollowers(targets, pods)
        endpoints: Any = SimpleNamespace(wake=asyncio.Event())
        self._told = 0
        self.wants = ScrapeSubscriptions(here.scraped, self._followers, Defects(Monitoring()), endpoints)
        here.relister.subscribe(self.wants.rules_changed.set)

    def put(self, *metrics: str) -> str:
        self.wants.put(fpa([*(pods_metric(name=name) for name in metrics), cpu_metric()]))
        return self._state()

    def remove(self) -> str:
        self.wants.remove(KEY)
        return self._state()

    def pods(self, *names: str) -> str:
        found = tuple(scraped_pod(name, ADDRESSES[name]) for name in names if name in ADDRESSES)
        self._around.pods = found or NotSyncedError("first list of pods is not in")
        return self._tell(self._around.pods_open)

    def target(self, *words: str) -> str:
        state = " ".join(words)
        unfound = {"unknown": Unfound("the cache is not in", known=False), "missing": Unfound("not found")}
        self._around.target = unfound.get(state) or at(state)
        return self._tell(self._around.targets_open)

    def join(self) -> str:
        self._follower = self._followers.join(KEY, WEB, self._note)
        return self._state()

    def select(self, selector: str) -> str:
        self._follower.select(selector)
        return self._state()

    def leave(self) -> str:
        self._follower.leave(self._note)
        assert not self._followers.open
        return self._state()

    async def rules(self, kind: str) -> str:
        texts = {
            "scrape": RULES,
            "plain": RULES.replace("  scrape: {port: metrics}\n", ""),
            "none": "rules: []",
        }
        await self._here.relister.adopt(compile_text(texts[kind]))
        await asyncio.sleep(0.1)
        return self._state()

    def _note(self) -> None:
        self._told += 1

    def _tell(self, kept: list[Kept]) -> str:
        for each in kept[:1]:
            each.changed()
        return self._state()

    def _state(self) -> str:
        around, told = self._around, ["decisions are told"] * self._told
        self._told = 0
        scraped = " ".join(sorted(target.pod for target in self._here.targets())) or "nothing"
        targets = f"target {around.targets_made}" if around.targets_open else "no target"
        pods = [f"pods {len(around.selectors)} of {around.selectors[-1]}" for _ in around.pods_open]
        return ", ".join([f"scrapes {scraped}", targets, *pods, *told])


@pytest.mark.looptime
@pytest.mark.parametrize("title", SCRIPTS.titles)
async def test_script(title: str, pytestconfig: pytest.Config) -> None:
    async with world(RULES, lists=LISTS) as here:
        script = SubscriptionScript(here)
        async with running(script.wants.run()):
            await SCRIPTS.play(title, script, pytestconfig)
