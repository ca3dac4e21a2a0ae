"""Stories of a load that moves to new pods between the scrapes of the old ones.

Pods, scrapes and readings are the real ones, and time passes by hand. The pods share one load evenly, from
the moment at which they are ready, and each wants `TARGET` of it. What is asserted is the most replicas that
were ever asked for, over those that the load needs.
"""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from adapter.autoscaler.decide import guarded
from adapter.autoscaler.decide import memory as memories
from adapter.autoscaler.decide.conflicts import ScaleObservation
from adapter.autoscaler.decide.guarded import Constraints
from adapter.autoscaler.decide.memory import Memory
from adapter.autoscaler.decide.observation import PodsReading, Unavailable
from adapter.autoscaler.follower import TargetFollowers
from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.loop import DecisionClock
from adapter.autoscaler.metrics.factory import SourceFactory
from adapter.autoscaler.metrics.polling import Poller
from adapter.autoscaler.snapshot import AutoscalerContext, Snapshot, Subscriptions
from adapter.errors import ScrapeError
from adapter.kubernetes.cache import pod_codec
from adapter.kubernetes.cache.pods import PodCache
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.cache.scale_targets import ScaleTarget
from adapter.model.autoscaling.hpa import CrossVersionObjectReference
from adapter.model.metrics import SeriesInfo
from adapter.model.resources import BUILTIN
from adapter.model.timestamps import write_instant
from adapter.provider.scaler_provider import ObjectSamples
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import Defects, ProblemLog
from tests.support.controller import LIVE, Server
from tests.support.scaling import autoscaler, hpa, pods_metric
from tests.support.world import World, world

RULES = """
rules:
- seriesQuery: all
  resources: {template: <<.Resource>>}
  scrape: {port: metrics}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
LISTS = {"all": (SeriesInfo("load", frozenset({"namespace", "pod"}), 3),)}
TARGET = 10
LOST = ScrapeError("timeout", "no answer in 1 s")
STEPS = 10
"""How many steps a second has; each pod is scraped in one of them."""
BEHAVIOR = {
    "scaleUp": {"policies": [{"type": "Percent", "value": 900, "periodSeconds": 1}]},
    "scaleDown": {"stabilizationWindowSeconds": 0},
}


class NoPrometheus:
    """Rules whose queries find nothing."""

    async def sample_objects(self, *_: object) -> ObjectSamples:
        return ObjectSamples({}, {}, 0.0, None)


class HandFedPods(PodCache):
    """The pods that a test puts there; `why_stale` says why its watch fails."""

    why_stale = ""

    def stale(self) -> str:
        return self.why_stale


class Story:
    """A target of `count` pods that are ready, and its autoscaler.

    `asked` are the counts that it decided, `left_out` how many pods each decision left out. A pod that is
    told to start is ready after `startup` seconds; None: not by itself.
    """

    def __init__(
        self,
        here: World,
        feeds: Poller,
        count: int,
        load: float,
        startup: Callable[[], float | None],
        seed: int,
    ) -> None:
        self.here = here
        self.load = load
        self.replicas = 0
        self.startup = startup
        self.asked: list[int] = []
        self.left_out: list[int] = []
        self.texts: list[str] = []
        self.skew: dict[str, float] = {}
        """By how many seconds the clock of a pod and its node is ahead."""
        self.lost: set[str] = set()
        """The pods that do not answer scrapes."""
        self.made = 0
        self._step = 0
        self._random = random.Random(seed)
        self._phases: dict[str, int] = {}
        self._pods: dict[str, dict[str, Any]] = {}
        self._due: dict[str, float] = {}
        clock = here.clock
        unused: Any = None  # the reflector is never run
        around = ReflectorContext(
            unused, clock, here.monitoring, ProblemLog(here.monitoring, clock), lambda: 0.0
        )
        self._cache = HandFedPods(around)
        self._cache.reflectors[0].synced = True
        nothing: Any = NoPrometheus()
        factory = SourceFactory(nothing, nothing, unused, lambda: BUILTIN, here.scraped, feeds)
        server: Any = Server()
        context = AutoscalerContext(TargetFollowers(server, self._cache), unused, factory, LIVE, unused)
        metrics = [pods_metric(str(TARGET))]
        self._spec = autoscaler(metrics, LIVE, minReplicas=1, maxReplicas=1000, behavior=BEHAVIOR)
        self._subscriptions = Subscriptions(context, Key("shop", "web"), lambda: None, lambda _: None)
        reference = CrossVersionObjectReference("Deployment", "web", "apps/v1")
        self._subscriptions.adopt(reference, hpa(metrics).spec.metrics or (), 1.0)
        self._subscriptions.find_target()
        self._memory = Memory()
        self._time = DecisionClock(clock)
        self.scale(count)
        for name in list(self._due):
            self.become_ready(name)

    @property
    def is_right(self) -> bool:
        """Whether the pods suffice, up to the tolerance, and no more than needed were ever asked for."""
        needed = -int(-self.load // TARGET)
        return max(self.asked) <= needed <= 1.1 * self.replicas

    @property
    def names(self) -> list[str]:
        return list(self._pods)

    def share(self) -> float:
        """Return the load on each ready pod."""
        statuses = [pod["status"]["conditions"][0]["status"] for pod in self._pods.values()]
        return self.load / max(1, statuses.count("True"))

    # -- the pods --------------------------------------------------------------------------------------------

    def scale(self, replicas: int) -> None:
        for _ in range(replicas - self.replicas):
            self.start(f"web-{self.made}")
        for name in self.names[replicas:]:
            self.remove(name)
        self.replicas = replicas

    def start(self, name: str) -> None:
        """Start a pod; its address depends on its name."""
        self.made += 1
        number = int(name.rpartition("-")[2])
        self._pods[name] = {
            "metadata": {"name": name, "namespace": "shop", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "main", "ports": [{"name": "metrics", "containerPort": 8080}]}]},
            "status": {
                "phase": "Pending",
                "podIP": f"10.0.{number >> 8}.{number & 255}",
                "startTime": self._stamp(name),
                "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": self._stamp(name)}],
            },
        }
        seconds = self.startup()
        self._due[name] = float("inf") if seconds is None else self.here.clock.monotonic() + seconds
        self._put(name)

    def become_ready(self, name: str) -> None:
        del self._due[name]
        status = self._pods[name]["status"]
        status["phase"] = "Running"
        status["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": self._stamp(name)}]
        self._put(name)

    def terminate(self, name: str) -> None:
        self._pods[name]["metadata"]["deletionTimestamp"] = self._stamp(name)
        self._pods[name]["status"]["conditions"][0]["status"] = "False"
        self._put(name)

    def remove(self, name: str) -> None:
        del self._pods[name]
        self._due.pop(name, None)
        self._cache.remove("shop", name)

    def _put(self, name: str) -> None:
        self._cache.put(pod_codec.POD_CODEC.decode(msgspec.json.encode(self._pods[name])))

    def _stamp(self, name: str) -> str:
        return write_instant(round(self.here.clock.wall() + self.skew.get(name, 0.0)) * 10**9)

    # -- time ------------------------------------------------------------------------------------------------

    async def run(self, seconds: float) -> None:
        """Let time pass: pods become ready, each is scraped once a second, and every scrape is decided on."""
        for _ in range(round(seconds * STEPS)):
            self.here.clock.advance(1 / STEPS)
            self._step += 1
            for name in [name for name, due in self._due.items() if due <= self.here.clock.monotonic()]:
                self.become_ready(name)
            pods = [pod for name in self._pods if (pod := self._cache.find("shop", name)) is not None]
            self.here.scraped.want("shop/web", "shop", ["load"], pods)
            due = [key for key in self.here.scraped._targets if self._is_due(key[1])]
            for key in due:
                self._show(key[1])
                await self.here.scraped._scrape(key)
            if due:
                self.decide()

    def _is_due(self, name: str) -> bool:
        if name not in self._phases:
            self._phases[name] = self._random.randrange(STEPS)
        return self._phases[name] == self._step % STEPS

    def _show(self, name: str) -> None:
        stamp = f" {(self.here.clock.wall() + self.skew[name]) * 1000:.0f}" if name in self.skew else ""
        address = self._pods[name]["status"]["podIP"]
        self.here.reader.bodies[address] = LOST if name in self.lost else f"load {self.share()}{stamp}"

    def decide(self) -> None:
        self._time.jump()
        now = self._time.now()
        target = ScaleTarget(self.replicas, self.replicas, "app=web", "1", "fastpath", "/scale")
        observation = ScaleObservation(self.replicas, "fastpath")
        self._memory, _ = memories.observe(self._spec, self._memory, observation, now)
        monotonic = self.here.clock.monotonic()
        seen = self._subscriptions.observe(
            self._spec, self._memory.status, target, Constraints(), now, monotonic
        )
        assert isinstance(seen, Snapshot)
        made = guarded.decide(self._spec, seen.observation, self._memory, now, Constraints())
        self._memory, _ = memories.commit(self._memory, made, seen.observation, now)
        (reading,) = seen.observation.readings
        self.reading = reading
        self.left_out.append(len(reading.left_out) if isinstance(reading, PodsReading) else 0)
        assert not isinstance(reading, Unavailable) or not self.asked, reading
        self.texts += [step.text() for step in made.trace]
        self.asked.append(made.replicas)
        if made.replicas != self.replicas:
            self.scale(made.replicas)

    def close(self) -> None:
        self._subscriptions.close()


@asynccontextmanager
async def story(
    count: int, load: float, startup: Callable[[], float | None] = lambda: 1.0, seed: int = 0
) -> AsyncIterator[Story]:
    """Begin a story: every pod was scraped, and has been ready for ten minutes."""
    async with (
        world(RULES, lists=LISTS) as here,
        Poller(
            here.clock, per_second=1000.0, answered=lambda _: None, defects=Defects(Monitoring())
        ) as feeds,
    ):
        made = Story(here, feeds, count, load, startup, seed)
        await made.run(1)
        here.clock.advance(600)
        await made.run(2)
        assert set(made.asked[-10:]) == {count}
        made.asked.clear()
        try:
            yield made
        finally:
            made.close()


def random_startup(seed: int) -> Callable[[], float]:
    generator = random.Random(seed)
    return lambda: generator.uniform(0.5, 3)


SEEDS = range(5)


async def step_up(load: float, seed: int) -> Story:
    """Let a load jump with which one pod is busy, and return what happened."""
    async with story(1, TARGET, random_startup(seed), seed) as told:
        told.load = load
        await told.run(8)
        return told


@pytest.mark.parametrize("seed", SEEDS)
async def test_new_pods_are_not_counted_beside_what_they_took_over(seed: int) -> None:
    told = await step_up(100, seed)

    assert told.is_right
    assert max(told.left_out) > 0


async def test_a_late_pod() -> None:
    """The last of ten comes when the others have shared the load for a while, and the load grows then."""
    async with story(1, TARGET, iter([None, *[1.0] * 8, 5.0, *[2.0] * 9]).__next__) as told:
        told.load = 100
        await told.run(5)
        assert (told.replicas, max(told.asked)) == (10, 10)
        assert told.left_out[-1] == 0
        told.texts.clear()
        await told.run(2)
        assert "1 pod left out: ready after the oldest sample" in told.texts
        assert told.left_out[-1] == 0
        told.load = 130
        await told.run(6)
        assert told.is_right


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("surge", [1, 5, 10])
async def test_pods_replaced_during_a_rollout(surge: int, seed: int) -> None:
    async with story(10, 100, seed=seed) as told:
        old = told.names
        while old:
            new = [f"web-{told.made + number}" for number in range(min(surge, len(old)))]
            for name in new:
                told.start(name)
            await told.run(1.4)
            for _ in new:
                told.terminate(old[0])
                await told.run(0.1)
                told.remove(old.pop(0))
            await told.run(0.3)
        await told.run(3)
        assert len(told.names) == 10
        assert set(told.asked) == {10}


async def test_pods_of_a_stateful_set_are_replaced_under_their_names() -> None:
    """Each has the name and the address of the one before it, which still has a value."""
    async with story(10, 100) as told:
        for name in told.names:
            told.terminate(name)
            await told.run(0.3)
            told.remove(name)
            told.start(name)
            await told.run(1.6)
        assert max(told.left_out) == 1
        assert set(told.asked) == {10}


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_lost_scrape_delays_new_pods_until_its_value_ends(seed: int) -> None:
    async with story(1, TARGET, random_startup(seed), seed) as told:
        told.load = 100
        await told.run(1)
        told.lost.add("web-0")
        await told.run(6)
        assert (told.replicas, max(told.asked)) == (10, 10)
        assert told.left_out[-1] == 0, "the value of web-0 has ended"
        told.load = 150
        await told.run(2)
        told.lost.clear()
        await told.run(6)
        assert told.is_right


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_lost_scrape_of_an_old_pod_does_not_hide_new_pods(seed: int) -> None:
    """The load doubles while one of ten old pods still has a sample from before the new ones were ready."""
    async with story(10, 100, lambda: None, seed) as told:
        told.load = 200
        await told.run(1.2)
        assert told.replicas >= 18
        told.lost.add("web-0")
        for name in list(told._due):
            told.become_ready(name)
        told.load = 400
        await told.run(1.1)
        assert any("not of one cut with the others" in text for text in told.texts)
        assert 38 / 1.1 <= max(told.asked) <= 40


async def test_a_lost_scrape_makes_one_pod_overdue_and_a_silent_watch_makes_all() -> None:
    async with story(2, 20) as told:
        told.lost.add("web-0")
        for silent, pods in (("", ("web-0",)), ("silence", ())):
            told._cache.why_stale = silent
            await told.run(1)
            assert isinstance(told.reading, PodsReading)
            assert told.reading.overdue
            assert told.reading.overdue_pods == pods


@pytest.mark.parametrize("seed", SEEDS)
async def test_pods_and_nodes_whose_clocks_differ(seed: int) -> None:
    """Conditions and samples have the times of their own clocks, and ours is set meanwhile."""
    generator = random.Random(seed)
    async with story(2, 20, random_startup(seed), seed) as told:
        for number in range(40):
            told.skew[f"web-{number}"] = generator.choice([-0.7, -0.2, 0.3, 3600.0])
        told.load = 100
        await told.run(2)
        told.here.clock.set_wall(told.here.clock.wall() + generator.choice([-7200, 7200]))
        await told.run(8)
        assert told.is_right
