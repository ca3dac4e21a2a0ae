"""The usage that pods expose beside that of their containers: compared, and then read with every scrape."""

import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
import pytest

from adapter.autoscaler.decide.guards import boost as boosting
from adapter.autoscaler.decide.observation import OptionState, Ways, sum_usage
from adapter.autoscaler.usage.source import OwnUsageSource
from adapter.config import rules_file
from adapter.model.autoscaling.hpa import ContainerMetrics, PodMetrics
from adapter.model.objects.api_objects import ObjectMeta
from adapter.model.objects.pods import Container, ResourceRequirements
from adapter.model.objects.resources import BUILTIN
from adapter.model.quantity import from_milli, read
from adapter.model.timestamps import SECOND, Instant, Span, span_of, write_instant
from adapter.rules.compile import compile_rules
from adapter.scrape.readings import OwnUsage
from tests.autoscaler.inputs.sources_bench import CONTAINER, SourceBench, bench
from tests.support.scaling import cpu_metric, pod
from tests.support.world import scraped_pod

RULES = """
resourceRules:
  cpu:
    containerQuery: sum(rate(container_cpu{{<<.LabelMatchers>>}}[1m])) by (<<.GroupBy>>)
    nodeQuery: sum(rate(node_cpu{{<<.LabelMatchers>>}}[1m])) by (<<.GroupBy>>)
    resources: {{template: <<.Resource>>}}
    containerLabel: container
    scrape: {{port: metrics{more}}}
  memory:
    containerQuery: sum(container_memory{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)
    nodeQuery: sum(node_memory{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)
    resources: {{template: <<.Resource>>}}
    containerLabel: container
  window: 1m
"""
PODS = tuple(scraped_pod(name, f"10.0.0.{number}") for number, name in enumerate("abc", 1))
CALM, STEEP = 0.2, 0.8
PERIOD = 15
"""Seconds between two samples of the containers' usage, each of which covers twice that time."""


class Servers:
    """Pods that use processors, expose a counter, and whose containers are measured elsewhere, later."""

    def __init__(self, here: SourceBench, source: OwnUsageSource) -> None:
        self.here = here
        self.source = source
        self.usage: dict[str, float] = dict.fromkeys("abc", CALM)
        """Cores of each pod's container."""
        self.shown: Callable[[str, float], float] = lambda _, cores: cores
        """What the counter of a pod shows of its cores."""
        self.hidden: set[str] = set()
        """The pods whose scrape fails."""
        self.unmeasured: set[str] = set()
        """The pods whose container's usage is not known."""
        self.side: float = 0.0
        """Cores of the other container, if there is one."""
        self.counters: dict[str, float] = dict.fromkeys("abc", 100.0)
        self.used: dict[str, list[float]] = {name: [] for name in "abc"}
        self.seconds = 0
        self.measured = True
        self.covered = 2 * PERIOD
        """Seconds that the usage of a container is a mean over."""
        self.reading: Any = None

    async def run(self, seconds: int) -> Any:
        """Let seconds pass; return the last reading."""
        for _ in range(seconds):
            self.seconds += 1
            self.here.clock.advance(1.0)
            for name, cores in self.usage.items():
                self.counters[name] += self.shown(name, cores)
                self.used[name].append(cores)
            bodies = {
                each.ip: f"process_cpu_seconds_total {self.counters[each.name]!r}"
                for each in PODS
                if each.name not in self.hidden
            }
            self.here.here.reader.bodies = dict(bodies)
            await self.here.here.scrape()
            if self.measured and self.seconds % PERIOD == 0:
                await self.measure()
            self.reading = self.here.read(self.source)
        return self.reading

    def change(self, facts: Mapping[str, Any]) -> None:
        """Set attributes of this object, and `pods`: what each pod is like."""
        for name, value in facts.items():
            if name == "pods":
                self.here.pods = [pod(each, **value) for each in "abc"]
            else:
                setattr(self, name, value)

    def condition(self) -> tuple[bool, str] | None:
        """Return whether the pods' own usage counts, and the reason; None without a condition."""
        condition = self.source.condition
        return None if condition is None else condition[:2]

    async def step(self, names: str = "abc", seconds: int = 6) -> Any:
        """Let the usage rise before the metrics API shows it; return the last reading."""
        self.usage |= dict.fromkeys(names, STEEP)
        self.measured = False
        return await self.run(seconds)

    async def measure(self) -> None:
        """Have the metrics API serve the mean over the last seconds."""
        used: dict[str, dict[str, float | None]] = {}
        for name, cores in self.used.items():
            known = cores[-self.covered :]
            used[name] = {"app": None if name in self.unmeasured else sum(known) / len(known)}
            if self.side:
                used[name]["side"] = self.side
        await serve(self.here, self.source, used, self.covered, PERIOD)


async def serve(
    here: SourceBench,
    source: OwnUsageSource,
    used: Mapping[str, Mapping[str, float | None]],
    covered: int,
    period: int,
) -> None:
    """Have the metrics API serve means of cores over `covered` seconds by pod and container."""
    wall, window = Instant(round(here.clock.wall() * SECOND)), Span(covered * SECOND)

    def shown(cores: float | None) -> dict[str, Any]:
        return {} if cores is None else {"cpu": from_milli(round(cores * 1000))}

    here.other.usages = tuple(
        PodMetrics(
            ObjectMeta(name, "shop"),
            wall,
            window,
            tuple(ContainerMetrics(each, shown(cores)) for each, cores in containers.items()),
        )
        for name, containers in used.items()
    )
    feed, now = source.slow.feed, here.clock.monotonic()
    await here.feeds._fetch(feed, 0.0)
    feed.polled, feed.due = now, now + period


@asynccontextmanager
async def servers(metric: Mapping[str, Any] | None = None, more: str = "") -> AsyncIterator[Servers]:
    async with bench(RULES, more) as here:
        source: Any = here.open(metric or cpu_metric())
        here.here.scraped.want("shop/web", "shop", [OwnUsage.CPU], PODS)
        yield Servers(here, source)


async def test_a_step_is_in_the_faster_reading_within_seconds() -> None:
    async with servers() as all_of_them:
        calm = await all_of_them.run(180)
        why = all_of_them.source.why
        steep = await all_of_them.step()

    assert not isinstance(calm, Ways)
    assert why == ("the own usage of pods exceeds that of their containers by no more than chance explains")
    assert steep.ways[0].values == dict.fromkeys("abc", 200), "the containers' usage has not come yet"
    assert steep.ways[1].values == pytest.approx(dict.fromkeys("abc", 800), rel=0.02)
    assert all_of_them.condition() == (True, "Agrees")


async def test_own_usage_waits_until_its_noise_is_known() -> None:
    async with servers(more=", window: 30s") as all_of_them:
        reading = await all_of_them.run(240)
        why = all_of_them.source.why

    assert all_of_them.source.verdict.ratio is not None
    assert not isinstance(reading, Ways)
    assert why == "how much the own usage of pods varies by chance is not known yet"


async def test_before_the_comparison_the_containers_usage_counts_alone() -> None:
    async with servers() as all_of_them:
        reading = await all_of_them.run(20)
        begun = all_of_them.here.clock.wall() - 17  # the first rate needs three scrapes
        due = begun + 30 + 2 * 7.5

        assert not isinstance(reading, Ways)
        assert all_of_them.source.condition == OptionState(
            holds=False,
            reason="NotCompared",
            message=(
                "resourceRules.cpu.scrape has been compared with the container's usage 0 times: "
                "3 are needed; "
                f"the first comparison is due at {write_instant(span_of(due))}"
            ),
        )


async def test_usage_that_varies_by_chance_is_no_step() -> None:
    async with servers() as all_of_them:
        draw = random.Random(3)
        faster = 0
        for second in range(900):
            if second % 5 == 0:
                all_of_them.usage = {name: draw.gauss(0.2, 0.03) for name in "abc"}
            reading = await all_of_them.run(1)
            faster += second > 60 and isinstance(reading, Ways)
        steep = await all_of_them.step()

    assert not faster
    assert isinstance(steep, Ways)


def lying(liar: str) -> Callable[[str, float], float]:
    """Return what counters show where that of one pod shows a hundred cores."""
    return lambda name, cores: 100.0 if name == liar else cores


def growing() -> Callable[[str, float], float]:
    """Return what counters show where that of `a` grows by a hundredth each second."""
    shown = [CALM]

    def show(name: str, cores: float) -> float:
        if name != "a":
            return cores
        shown[0] *= 1.01
        return shown[0]

    return show


def limited(**limits: str) -> dict[str, Any]:
    whole = {name: read(text) for name, text in (limits | {"memory": "1Gi"}).items()}
    return {"containers": (Container("app", ResourceRequirements(None, whole)),)}


class Case(NamedTuple):
    """A step of pods: what was so from the beginning, what from 180 s on, for how long, and what is read."""

    read: Mapping[str, float]
    first: Mapping[str, Any] = {}
    then: Mapping[str, Any] = {}
    wait: int = 0
    names: str = "abc"
    seconds: int = 6
    more: str = ""
    metric: Mapping[str, Any] | None = None


ALL, BESIDE, WITHOUT_A = dict.fromkeys("abc", 800), dict.fromkeys("abc", 850), {"a": 200, "b": 800, "c": 800}
TWO = {"pods": {"containers": (Container("app"), Container("side"))}, "side": 0.05}
SIDECAR = {
    "containers": (Container("app"),),
    "init_containers": (Container("side", restart_policy="Always"),),
}
OF_APP = ", container: app"
CASES: dict[str, Case] = {
    "a ratio corrects": Case(ALL, {"shown": lambda _, cores: cores / 1.06}),
    "a pod that lies has its container's": Case(WITHOUT_A, then={"shown": lying("a")}, wait=90),
    "one that was not compared has the highest of others at most": Case(
        ALL, {"hidden": {"c"}}, {"hidden": set(), "shown": lying("c")}
    ),
    "at most the limit": Case(dict.fromkeys("abc", 500), {"pods": limited(cpu="500m")}),
    "no limit of cpu": Case(ALL, {"pods": limited()}),
    "a scrape fails": Case(WITHOUT_A, then={"hidden": {"a"}}, names="bc", seconds=12),
    "other containers have their last usage": Case(BESIDE, TWO, more=OF_APP),
    "and so has a sidecar": Case(BESIDE, {"pods": SIDECAR, "side": 0.05}, more=OF_APP),
    "one whose container's is not known is as not compared": Case(
        BESIDE, {**TWO, "unmeasured": {"a"}}, {"shown": lying("a")}, more=OF_APP
    ),
    "a metric of the container leaves the others out": Case(ALL, TWO, more=OF_APP, metric=CONTAINER),
    "a lie that grows": Case(WITHOUT_A, then={"shown": growing()}, wait=300, names="bc"),
    "a lie while its container idles": Case(
        {**WITHOUT_A, "a": 1},
        then={"shown": lying("a"), "usage": {"a": 0.001, "b": CALM, "c": CALM}},
        wait=300,
        names="bc",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_what_is_read_of_a_step(case: Case) -> None:
    async with servers(case.metric, case.more) as all_of_them:
        all_of_them.change(case.first)
        await all_of_them.run(180)
        all_of_them.change(case.then)
        await all_of_them.run(case.wait)
        reading = await all_of_them.step(case.names, case.seconds)

    assert reading.ways[1].values == pytest.approx(case.read, rel=0.02)


OF_SERIES = "resourceRules.cpu.scrape"
REFUSED: dict[str, tuple[Case, str, str]] = {
    "one process of three": (
        Case({}, {"shown": lambda _, cores: cores / 3}, wait=180),
        *("TooLittle", f"2 of 3 processes are not in {OF_SERIES}"),
    ),
    "no pod exposes it": (
        Case({}, {"hidden": set("abc")}, wait=20),
        *("NotExposed", f"no pod exposes the series of {OF_SERIES}"),
    ),
    "whose the port is is not known": (
        Case({}, TWO, wait=60, metric=CONTAINER),
        *("OtherContainer", f"{OF_SERIES} is of a container that is not known"),
    ),
    "another container's": (
        Case({}, {**TWO, "side": 0.2}, wait=180, more=", container: side", metric=CONTAINER),
        *("OtherContainer", f"{OF_SERIES} is of container side"),
    ),
    "usages over hours": (
        Case({}, {"covered": 86_400}, wait=60),
        "WindowTooLong",
        f"the usage of containers is a mean over 86400 s: {OF_SERIES} is compared up to 600 s",
    ),
}


@pytest.mark.parametrize(("case", "reason", "why"), REFUSED.values(), ids=REFUSED)
async def test_own_usage_that_does_not_count(case: Case, reason: str, why: str) -> None:
    async with servers(case.metric, case.more) as all_of_them:
        all_of_them.change(case.first)
        await all_of_them.run(case.wait)
        reading = await all_of_them.step()

        assert not isinstance(reading, Ways)
        assert all_of_them.condition() == (False, reason)
        assert all_of_them.source.why.startswith(why)


@pytest.mark.parametrize("seconds", [60, 180, 600])
async def test_usages_over_longer_windows_are_compared(seconds: int) -> None:
    async with servers() as all_of_them:
        all_of_them.covered = seconds
        await all_of_them.run(seconds + 120)

    assert all_of_them.condition() == (True, "Agrees")


async def test_without_a_rule_there_is_no_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    async with servers() as all_of_them:
        await all_of_them.run(180)
        condition = all_of_them.condition()
        monkeypatch.setattr(all_of_them.source.scraped, "find_usage", lambda: None)
        reading = await all_of_them.step()

    assert condition == (True, "Agrees")
    assert not isinstance(reading, Ways)
    assert all_of_them.condition() is None
    assert all_of_them.source.why == ""


async def test_no_pod_counts_before_one_that_runs_now_was_compared() -> None:
    async with servers() as all_of_them:
        await all_of_them.run(180)
        later = 1 + max(each.started or 0 for each in all_of_them.here.pods)
        all_of_them.here.pods = [
            msgspec.structs.replace(each, started=later) for each in all_of_them.here.pods
        ]
        reading = await all_of_them.step()

    assert not isinstance(reading, Ways)
    assert all_of_them.source.why == (
        "resourceRules.cpu.scrape of no pod that runs now has been compared with its container's usage lately"
    )


async def test_without_the_containers_usage_the_pods_own_may_raise_and_not_lower() -> None:
    async with servers() as all_of_them:
        await all_of_them.run(180)
        all_of_them.source.slow.feed.error = "the server is gone"
        all_of_them.source.slow.feed.answer = None
        reading = await all_of_them.step()

    assert isinstance(reading, Ways)
    assert not reading.ways[0].values
    assert reading.overdue == "unable to fetch metrics from resource metrics API: the server is gone"
    assert reading.ways[1].values == pytest.approx(dict.fromkeys("abc", 800), rel=0.02)


def test_the_usage_of_a_pod_is_not_that_of_some_of_its_containers() -> None:
    parts = ContainerMetrics("app", {"cpu": from_milli(500)}), ContainerMetrics("side", {})
    item = PodMetrics(ObjectMeta("a", "default"), None, None, parts)
    assert [sum_usage(item, "cpu", container) for container in ("app", "side", "")] == [500, None, None]


async def test_a_pod_without_any_usage_counts_as_missing_and_is_forgotten_when_it_is_gone() -> None:
    async with servers() as all_of_them:
        await all_of_them.run(180)
        all_of_them.hidden = {"a"}
        del all_of_them.used["a"], all_of_them.usage["a"]
        await all_of_them.run(30)
        without = await all_of_them.step("bc")
        all_of_them.here.pods = [each for each in all_of_them.here.pods if each.name != "a"]
        reading = await all_of_them.run(1)

    assert without.ways[1].values == pytest.approx(dict.fromkeys("bc", 800), rel=0.02)
    assert set(reading.ways[1].values) == set("bc")
    assert set(all_of_them.source.pods._pods) == set("bc")


async def test_a_comparison_counts_for_some_time() -> None:
    """Scrapes with gaps show no mean that could be compared."""
    async with servers() as all_of_them:
        await all_of_them.run(180)
        all_of_them.shown = lying("a")
        for _ in range(20):
            all_of_them.hidden = {"a"}
            await all_of_them.run(11)
            all_of_them.hidden = set()
            await all_of_them.run(4)
        reading = await all_of_them.step("bc", 4)

    assert reading.ways[1].values["a"] <= 800 * 1.02


async def test_after_a_change_of_the_rule_the_comparison_begins_again() -> None:
    threefold = (
        ", query: '3 * sum(rate(process_cpu_seconds_total{<<.LabelMatchers>>}[1m])) by (<<.GroupBy>>)'"
    )
    async with servers() as all_of_them:
        await all_of_them.run(180)
        ruleset, faults = compile_rules(
            rules_file.parse_rules(RULES.format(more=threefold), "rules.yaml").config, BUILTIN
        )
        assert not faults
        await all_of_them.here.here.relister.adopt(ruleset)
        await all_of_them.step()

    assert all_of_them.condition() == (False, "NotCompared")


async def test_an_old_usage_of_a_container_does_not_raise_a_boosted_hpa() -> None:
    async with servers() as all_of_them:
        await all_of_them.run(180)
        all_of_them.hidden = {"a"}
        await all_of_them.step("bc", 5)
        feed: Any = all_of_them.source.slow.feed
        feed.answer = feed.answer._replace(overdue="the answer of Prometheus may be incomplete")
        reading = all_of_them.here.read(all_of_them.source)
        (fresh,) = boosting.fresh([reading])

    assert reading.ways[0].values["a"] == 200
    assert isinstance(fresh, Ways)
    assert fresh.ways[0].values == pytest.approx(dict.fromkeys("bc", 800), rel=0.02)


async def test_samples_cover_the_window_of_scrapes_that_are_stretched() -> None:
    async with servers() as all_of_them:
        await all_of_them.run(180)
        await all_of_them.step()
        all_of_them.here.here.scraped.work.schedule.stretch = 4.0
        reading = all_of_them.here.read(all_of_them.source)

    assert {window for _, window in reading.ways[1].samples.values()} == {16 * SECOND}


async def test_a_pod_that_is_scraped_less_often_counts_with_its_containers_usage() -> None:
    async with servers() as all_of_them:
        await all_of_them.run(180)
        (target,) = all_of_them.here.here.targets("a")
        target.slowed = 2.0
        reading = await all_of_them.step()

    assert reading.ways[1].values == pytest.approx({"a": 200, "b": 800, "c": 800}, rel=0.02)
