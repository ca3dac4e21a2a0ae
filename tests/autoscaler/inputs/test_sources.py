"""From the metrics of a spec to readings: the source of each, and how scraped pods and Prometheus combine."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from adapter.autoscaler.decide.observation import ExternalReading, ObjectReading, PodsReading, Unavailable
from adapter.autoscaler.inputs.factory import SourceFactory
from adapter.autoscaler.inputs.feed import UNKNOWN_AGE, UNKNOWN_INTERVAL, Feed
from adapter.autoscaler.inputs.polling import Poller
from adapter.autoscaler.inputs.sources import MetricSource, ReadContext, Subscriber
from adapter.autoscaler.interfaces import Key
from adapter.errors import KubernetesError, ScrapeError
from adapter.kubernetes.cache.pod_codec import WatchedPod
from adapter.kubernetes.metrics_api import TimedCustomValue, TimedExternalValue
from adapter.model.autoscaling.hpa import MetricSpec, PodMetrics, decode_scalar
from adapter.model.learned_usage import LearnedUsage
from adapter.model.metrics import (
    ContainerUsage,
    CustomQuestion,
    ExternalQuestion,
    ExternalValue,
    ObjectUsage,
    ResourceAnswer,
    ResourceQuestion,
    SeriesInfo,
    Usage,
)
from adapter.model.objects.label_selectors import parse_selector
from adapter.model.objects.resources import BUILTIN
from adapter.model.timestamps import SECOND, span_of
from adapter.provider import reader
from adapter.provider.reader import Values
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import Defects, ProblemLog, SourceProblems
from tests.support.clock import WALL, FakeClock
from tests.support.scaling import cpu_metric, external_metric, object_metric, pod, pods_metric
from tests.support.waiting import until
from tests.support.world import FRESHNESS, RulesWorld, object_values, scraped_pod, series_values, world

RULES = """
rules:
- seriesQuery: all
  resources: {{template: <<.Resource>>}}
  scrape: {{port: metrics}}
  {more}
  metricsQuery: sum(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)
"""
RATES = RULES.replace(
    "sum(<<.Series>>{{<<.LabelMatchers>>}})", "sum(rate(<<.Series>>{{<<.LabelMatchers>>}}[1m]))"
)
LISTS = {"all": (SeriesInfo("load", frozenset({"namespace", "pod"}), 3),)}
A, B, C = (scraped_pod(name, f"10.0.0.{number}") for number, name in enumerate("abc", 1))
DOWN = ScrapeError("timeout", "no answer in 1 s")
CONTAINER = {
    "type": "ContainerResource",
    "containerResource": {
        "name": "cpu",
        "container": "app",
        "target": {"type": "Utilization", "averageUtilization": 50},
    },
}


class Provided:
    """The answers of our rules: a provider, cpu and memory, as a test sets them; None: no such rule."""

    freshness = FRESHNESS

    def __init__(self) -> None:
        clock = FakeClock()
        self.problems = SourceProblems(clock, ProblemLog(Monitoring(), clock))
        self.objects: Values[tuple[str, int]] | Exception | None = object_values({}, {}, 0.0, None)
        self.series: Values[ExternalValue] | None = series_values((), None, 0.0, None)
        self.usages: ResourceAnswer | None = None
        self.asked: list[Any] = []

    async def sample_objects(
        self, question: CustomQuestion, names: tuple[str, ...], ttl: float
    ) -> Values[tuple[str, int]] | None:
        self.asked.append(question)
        if isinstance(self.objects, Exception):
            raise self.objects
        return self.objects

    async def sample_series(self, question: ExternalQuestion, ttl: float) -> Values[ExternalValue] | None:
        self.asked.append(question.metric)
        return self.series

    @property
    def answers(self) -> bool:
        return self.usages is not None

    async def resource(self, question: ResourceQuestion, ttl: float | None = None) -> ResourceAnswer:
        assert self.usages is not None
        return self.usages


class Other:
    """Another adapter behind the API server."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.custom: Sequence[TimedCustomValue] | Exception = ()
        self.series: Sequence[TimedExternalValue] = ()
        self.usages: Sequence[PodMetrics] = ()

    async def pods(self, *asked: str) -> Sequence[TimedCustomValue]:
        self.asked.append(asked)
        return self._custom()

    async def described(self, *asked: str) -> Sequence[TimedCustomValue]:
        self.asked.append(asked)
        return self._custom()

    async def external(self, *asked: str) -> Sequence[TimedExternalValue]:
        self.asked.append(asked)
        return self.series

    async def resource(self, *asked: str) -> Sequence[PodMetrics]:
        self.asked.append(asked)
        return self.usages

    def _custom(self) -> Sequence[TimedCustomValue]:
        if isinstance(self.custom, Exception):
            raise self.custom
        return self.custom


class SourceBench:
    """Sources of one autoscaler of the pods a, b and c, and all they read from."""

    def __init__(self, here: RulesWorld, feeds: Poller, *, scrapes: bool) -> None:
        self.here = here
        self.feeds = feeds
        self.provided = Provided()
        self.other = Other()
        provided: Any = self.provided
        other: Any = self.other
        self.pods = [pod(name) for name in "abc"]
        self.became_ready: dict[str, float] = {}
        self.learned: dict[str, LearnedUsage] = {}
        self.sources = SourceFactory(
            provided, provided, other, lambda: BUILTIN, here.scraped if scrapes else None, feeds
        )

    @property
    def clock(self) -> FakeClock:
        return self.here.clock

    def open(self, metric: Mapping[str, Any]) -> MetricSource:
        names = tuple(each.name for each in self.pods)
        site = Subscriber(Key("shop", "web"), 1.0, parse_selector("app=web"), lambda: names)
        return self.sources.open(msgspec.convert(metric, MetricSpec, dec_hook=decode_scalar), site)

    def view(self) -> ReadContext:
        now, monotonic = round(self.clock.wall() * SECOND), self.clock.monotonic()
        return ReadContext(self.pods, lambda _: 3, now, monotonic, self.became_ready, self.learned)

    def read(self, source: MetricSource) -> Any:
        return source.read(self.view())

    async def scrape(self, bodies: Mapping[str, str], pods: Sequence[WatchedPod]) -> None:
        """Scrape pods, which show what `bodies` has by address."""
        self.here.reader.bodies = dict(bodies)
        self.here.scraped.want("shop/web", "shop", ["load"], pods)
        await self.here.scrape()

    async def scrape_again(self, *names: str) -> None:
        """Scrape some of the pods that are scraped."""
        for target in self.here.targets(*names):
            await self.here.scraped.work.scrape(target)

    @property
    def feed(self) -> Feed:
        """The only question to Prometheus or another adapter."""
        (feed,) = self.feeds.feeds()
        return feed

    async def answered(self, source: MetricSource) -> Any:
        """Return what a source says once it was asked."""
        self.read(source)
        await until(lambda: not len(self.feeds) or self.feed.polled is not None)
        return self.read(source)

    async def ask_again(self) -> None:
        self.feed.answer, self.feed.due = None, 0.0
        self.feeds._plan(self.feed)
        await until(lambda: self.feed.answer is not None)


@asynccontextmanager
async def bench(rules: str = RULES, more: str = "", *, scrapes: bool = True) -> AsyncIterator[SourceBench]:
    async with (
        world(rules.format(more=more), lists=LISTS) as here,
        Poller(
            here.clock, per_second=1000.0, answered=lambda _: None, defects=Defects(Monitoring())
        ) as feeds,
    ):
        yield SourceBench(here, feeds, scrapes=scrapes)


def samples(ago: float = 0.0, **values: int) -> Values[tuple[str, int]]:
    return object_values(values, dict.fromkeys(values, WALL - ago), 0.0, 300.0)


# --- scraped pods ------------------------------------------------------------------------------------------


async def test_pods_that_are_all_scraped_need_no_prometheus() -> None:
    async with bench() as here:
        await here.scrape({each.ip: f"load {number}" for number, each in enumerate((A, B, C), 1)}, [A, B, C])
        source = here.open(pods_metric(name="load"))

        assert here.read(source) == PodsReading({"a": 1000, "b": 2000, "c": 3000})
        assert (source.sampled, source.span) == (round(WALL * SECOND), SECOND)
        assert len(here.feeds) == 0


@pytest.mark.parametrize(
    "never",
    [
        pytest.param(scraped_pod(C.name, C.ip, host_network=True), id="in its node's network"),
        pytest.param(scraped_pod(C.name, C.ip, ports={}), id="without the rule's port"),
    ],
)
async def test_pods_that_are_no_targets_have_prometheus_values_that_may_shrink(never: WatchedPod) -> None:
    async with bench() as here:
        await here.scrape({A.ip: "load 1", B.ip: "load 2"}, [A, B, never])
        here.provided.objects = samples(20, c=7000)
        source = here.open(pods_metric(name="load"))

        assert await here.answered(source) == PodsReading({"a": 1000, "b": 2000, "c": 7000})


async def test_a_port_that_no_pod_has_is_named_where_prometheus_does_not_count_yet() -> None:
    async with bench() as here:
        await here.scrape({A.ip: "load 1"}, [A, scraped_pod(B.name, B.ip, ports={"http": 80})])
        here.provided.objects = object_values({"b": 7000}, {}, 0.0, None)
        source = here.open(pods_metric(name="load"))

        fault = "b: no port is named metrics, only http"
        assert (await here.answered(source)).overdue == (
            f"the age of its samples is not known; not scraped: {fault}"
        )
        assert source.fault == fault


async def test_why_no_pod_has_a_value() -> None:
    async with bench() as here:
        await here.scrape({each.ip: "other 1" for each in (A, B, C)}, [A, B, C])
        source = here.open(pods_metric(name="load"))
        text = "no metrics returned from custom metrics API"
        assert (
            await here.answered(source)
        ).message == f"{text}: the scraped pods expose no such series of load"

        here.here.reader.bodies[B.ip] = ScrapeError("unreachable", "Connection refused")
        await here.here.scrape()
        assert here.read(source).message == f"{text}; not scraped: b: 10.0.0.2:8080: Connection refused"

        starting = [scraped_pod(pod.name, pod.ip, ready="False") for pod in (A, B, C)]
        await here.scrape({}, starting)
        assert here.read(source).message == f"{text}; a is not scraped now: 10.0.0.1:8080: cannot connect"
        assert source.fault == ""


@pytest.mark.parametrize("late", [False, True], ids=["failed", "late"])
async def test_pods_whose_scrape_failed_or_is_late_may_raise_and_not_shrink(*, late: bool) -> None:
    async with bench() as here:
        await here.scrape({A.ip: "load 1", B.ip: "load 2", C.ip: "load 3"}, [A, B, C])
        source = here.open(pods_metric(name="load"))

        for seconds in (1.2, 2.4, 3.6):  # two intervals and a timeout, and nothing from b
            here.clock.advance(1.2)
            here.here.reader.bodies[B.ip] = DOWN
            await here.scrape_again(*("ac" if late else "abc"))
            reading = here.read(source)
            if "b" in reading.values:
                overdue = "the scrape of b is overdue" + ("" if late else ": 10.0.0.2:8080: no answer in 1 s")
                assert reading.overdue == ("" if late and seconds < 2 else overdue)
                assert reading.overdue_pods == (("b",) if reading.overdue else ())
        assert reading.values == {"a": 1000, "c": 3000}
        assert reading.overdue == "", "a pod without any value is upstream's to repair"

        here.provided.objects = samples(-2, b=9000)
        await here.ask_again()
        reading = here.read(source)
        assert reading.values == {"a": 1000, "b": 9000, "c": 3000}
        why = "" if late else ": 10.0.0.2:8080: no answer in 1 s"
        assert reading.overdue == f"b is not scraped now, using Prometheus{why}"
        assert reading.overdue_pods == ("b",)


async def test_a_pod_that_was_scraped_and_shows_nothing_leaves_it_to_newer_samples() -> None:
    async with bench() as here:
        await here.scrape({A.ip: "load 1", B.ip: "load 2", C.ip: "other 3"}, [A, B, C])
        here.provided.objects = samples(1, c=9000)
        source = here.open(pods_metric(name="load"))
        assert await here.answered(source) == PodsReading({"a": 1000, "b": 2000})

        here.clock.advance(0.5)
        here.provided.objects = samples(-0.2, c=9000)
        await here.ask_again()
        assert here.read(source) == PodsReading({"a": 1000, "b": 2000, "c": 9000})


async def test_a_pod_that_was_not_scraped_yet_is_overdue_and_one_that_has_no_rate_yet_is_not() -> None:
    async with bench(RATES) as here:
        here.here.reader.bodies = {A.ip: "load 1"}
        here.pods = [pod("a")]
        here.here.scraped.want("shop/web", "shop", ["load"], [A])
        here.provided.objects = samples(10, a=5000)
        source = here.open(pods_metric(name="load"))
        assert (await here.answered(source)).overdue == "a is not scraped now, using Prometheus"
        assert source.span == 6 * SECOND

        await here.here.scrape()
        assert here.read(source) == PodsReading({"a": 5000})
        for number in range(2, 6):
            here.clock.advance(1)
            here.here.reader.bodies = {A.ip: f"load {number}"}
            await here.here.scrape()
        assert here.read(source) == PodsReading({"a": 1000})
        assert len(here.feeds) == 0, "Prometheus is asked no more"


@pytest.mark.parametrize(
    ("more", "values"), [("", {"b": 2000, "c": 0}), ("onNaN: zero", {"a": 0, "b": 2000, "c": 0})]
)
async def test_no_number_is_no_value_unless_the_rule_says_zero(more: str, values: dict[str, int]) -> None:
    async with bench(more=more) as here:
        await here.scrape({A.ip: "load NaN", B.ip: "load 2", C.ip: "load 0"}, [A, B, C])
        source = here.open(pods_metric(name="load"))

        assert here.read(source) == PodsReading(values)


@pytest.mark.parametrize("shown", ["9.3e15", "-1e16", "1e300"])
async def test_a_value_beyond_64_bits_makes_the_metric_unavailable_as_through_prometheus(shown: str) -> None:
    """The API answers 500 then: neither this autoscaler nor a native one scales by the other pods."""
    async with bench() as here:
        await here.scrape({A.ip: "load 1", B.ip: f"load {shown}", C.ip: "load 3"}, [A, B, C])
        reading = here.read(here.open(pods_metric(name="load")))

        which = "the value of rules[0] for b is beyond 9.2e15, the limit of a quantity"
        assert reading == Unavailable(
            "InvalidValue", f"unable to fetch metrics from custom metrics API: {which}"
        )


async def test_what_is_not_scraped_is_prometheus_alone() -> None:
    async with bench() as here:
        here.provided.objects = samples(1, a=1000)
        source = here.open(pods_metric(name="other"))

        assert await here.answered(source) == PodsReading({"a": 1000})
        assert source.span is None
        source.close()
        assert len(here.feeds) == 0


# --- values of one cut -------------------------------------------------------------------------------------


async def test_a_pod_that_became_ready_after_the_oldest_scrape_is_left_out() -> None:
    async with bench() as here:
        here.here.reader.bodies = {A.ip: "load 1", B.ip: "load 2", C.ip: "load 3"}
        here.here.scraped.want("shop/web", "shop", ["load"], [A, B, C])
        source = here.open(pods_metric(name="load"))
        await here.scrape_again("a", "b")
        here.clock.advance(0.4)
        here.became_ready = {"c": here.clock.monotonic(), "other": here.clock.monotonic()}
        here.clock.advance(0.2)
        await here.scrape_again("b", "c")
        cut = PodsReading({"a": 1000, "b": 2000}, left_out={"c": 3000}, other_cut=("a",))
        assert here.read(source) == cut

        here.clock.set_wall(WALL + 3600)
        assert here.read(source) == cut
        await here.scrape_again("a")
        assert here.read(source) == PodsReading({"a": 1000, "b": 2000, "c": 3000})


@pytest.mark.parametrize("gone", [{"deleting": True}, {"phase": "Succeeded"}, {"phase": "Failed"}])
async def test_a_pod_that_ends_delays_no_other(gone: dict[str, Any]) -> None:
    async with bench() as here:
        here.here.reader.bodies = {A.ip: "load 1", B.ip: "load 2", C.ip: "load 3"}
        here.here.scraped.want("shop/web", "shop", ["load"], [A, B, C])
        source = here.open(pods_metric(name="load"))
        await here.scrape_again("a")
        here.clock.advance(0.5)
        here.became_ready = {"c": here.clock.monotonic()}
        await here.scrape_again("b", "c")
        here.pods[0] = pod("a", **gone)
        assert here.read(source).left_out == {}


async def test_scrapes_and_samples_of_prometheus_are_of_one_cut() -> None:
    """A pod without a scrape has a sample from before another became ready."""
    async with bench() as here:
        await here.scrape({A.ip: "load 1", B.ip: "load 2"}, [A, B])
        here.provided.objects = samples(20, c=7000)
        source = here.open(pods_metric(name="load"))
        here.became_ready = {"b": here.clock.monotonic() - 10}
        assert await here.answered(source) == PodsReading({"a": 1000, "c": 7000}, left_out={"b": 2000})

        here.became_ready = {"b": here.clock.monotonic() - 30}
        assert here.read(source) == PodsReading({"a": 1000, "b": 2000, "c": 7000})


async def test_values_of_prometheus_are_of_one_cut_if_their_times_are_known() -> None:
    async with bench(scrapes=False) as here:
        times = {"a": WALL - 20, "b": WALL - 12}
        here.provided.objects = object_values({"a": 1000, "b": 2000, "c": 3000}, times, 0.0, 300.0)
        source = here.open(pods_metric(name="load"))
        for ago, left_out in ((25, {}), (15, {"b": 2000}), (5, {"b": 2000})):
            here.became_ready = {"b": here.clock.monotonic() - ago}
            reading = await here.answered(source)
            assert reading.left_out == left_out
            assert reading.values.keys() | left_out.keys() == times.keys()
        here.became_ready = {"c": here.clock.monotonic()}
        here.pods = [pod("c")]
        assert here.read(source).left_out == {}, "a sample of no known time"


# --- rules of ours and other adapters ----------------------------------------------------------------------


def decoded(form: type[Any], *given: Mapping[str, Any]) -> Sequence[Any]:
    # a type at run time
    found: Sequence[Any] = msgspec.convert(given, tuple[form, ...], dec_hook=decode_scalar)  # type: ignore[valid-type]
    return found


TIME = "2023-11-14T22:13:20Z"
STAMPED = round(WALL) * SECOND


def custom(value: str = "2", name: str = "a", **more: Any) -> Mapping[str, Any]:
    return {"describedObject": {"name": name}, "value": value, "timestamp": TIME, **more}


async def test_pods_of_another_adapter() -> None:
    async with bench(scrapes=False) as here:
        here.provided.objects = None
        here.other.custom = decoded(TimedCustomValue, custom("1", windowSeconds=60))
        source = here.open(pods_metric(name="load"))

        assert here.read(source) == Unavailable(
            "NotYet", "unable to fetch metrics from custom metrics API: no answer yet"
        )
        before = source.sampled
        assert before is None
        assert await here.answered(source) == PodsReading({"a": 1000})
        assert here.other.asked == [("shop", "load", "app=web", "")]
        assert source.sampled == STAMPED
        assert source.span is None
        assert here.feed.period == 15.0


async def test_an_object_of_ours() -> None:
    async with bench() as here:
        here.provided.objects = samples(1, main=5000)
        source = here.open(object_metric("Value", value="10"))

        assert here.read(source).message == "unable to fetch metrics from custom metrics API: no answer yet"
        reading = await here.answered(source)
        assert (reading.value, reading.ready_then) == (5000, 3)
        assert here.provided.asked[0].resource == "ingresses.networking.k8s.io"
        assert source.sampled == STAMPED - SECOND
        here.feed.interval.see({"main": 0}, 0)
        here.feed.interval.see({"main": 10**30}, 10**30)
        here.read(source)
        assert source.span is not None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([custom()], ""),
        (
            [custom(), custom()],
            "the custom metrics API server returned 2 results when we asked for exactly one",
        ),
        ([], "the custom metrics API server returned 0 results when we asked for exactly one"),
    ],
)
async def test_an_object_of_another_adapter(given: Sequence[Mapping[str, Any]], said: str) -> None:
    async with bench() as here:
        here.provided.objects = None
        here.other.custom = decoded(TimedCustomValue, *given)
        reading = await here.answered(here.open(object_metric("Value", value="10")))

        assert here.other.asked == [("ingresses.networking.k8s.io", "shop", "main", "hits", "")]
        if said:
            assert reading.message == f"unable to fetch metrics from custom metrics API: {said}"
        else:
            assert isinstance(reading, ObjectReading)


@pytest.mark.parametrize(
    ("version", "kind", "asked"),
    [
        ("v1", "Service", ("services", "shop", "main")),
        ("v1", "Namespace", ("namespaces", None, "shop")),
        ("a/b/c", "Service", ("services", "shop", "main")),
        ("example.com/v1", "Gauge", "unable to map kind Gauge.example.com to resource"),
        ("", "Gauge", "unable to map kind Gauge to resource"),
    ],
)
async def test_kinds(version: str, kind: str, asked: tuple[str | None, ...] | str) -> None:
    """A namespace is its own; what cannot be mapped has no value."""
    async with bench() as here:
        here.provided.objects = None
        here.other.custom = decoded(TimedCustomValue, custom())
        metric = object_metric("Value", value="10")
        metric["object"]["describedObject"] = {"apiVersion": version, "kind": kind, "name": "main"}
        reading = await here.answered(here.open(metric))

        if isinstance(asked, str):
            assert f'{asked}: no matches for kind "Gauge"' in reading.message
        else:
            resource, namespace, name = asked
            assert here.other.asked[0][:3] == (resource, "shop", name)
            assert here.provided.asked[0][1:3] == (namespace, name)


async def test_an_external_metric_of_ours() -> None:
    async with bench() as here:
        here.provided.series = series_values((1000, 2000), WALL, 0.0, 300.0)
        source = here.open(external_metric(value="10"))

        assert here.read(source).message == "unable to fetch metrics from external metrics API: no answer yet"
        assert await here.answered(source) == ExternalReading((1000, 2000), 3)
        assert source.sampled == STAMPED


@pytest.mark.parametrize(
    ("windows", "lookback"), [((30, 60), 60 * SECOND), ((30, None), None), ((), None)], ids=str
)
async def test_an_external_metric_of_another_adapter(
    windows: Sequence[int | None], lookback: int | None
) -> None:
    async with bench() as here:
        here.provided.series = None
        given = [{"value": "1500m", "timestamp": TIME, "window": window} for window in windows]
        here.other.series = decoded(TimedExternalValue, *given)
        source = here.open(external_metric(value="10"))
        reading = await here.answered(source)

        assert here.other.asked == [("shop", "queue", "")]
        assert here.feed.answer is not None
        assert here.feed.answer.lookback == lookback
        if windows:
            assert tuple(reading.values) == (1500, 1500)
        else:
            assert reading == Unavailable("NoMetrics", "no metrics returned from external metrics API")


USED = {
    "metadata": {"name": "a"},
    "timestamp": TIME,
    "window": "30s",
    "containers": [{"name": "app", "usage": {"cpu": "250m"}}],
}


async def test_cpu_of_another_adapter() -> None:
    async with bench() as here:
        here.other.usages = decoded(
            PodMetrics,
            USED,
            USED | {"metadata": {"name": "gone"}},
            USED | {"metadata": {"name": "b"}, "timestamp": "2023-11-14T22:08:19Z"},
            USED | {"metadata": {"name": "c"}, "timestamp": None},
        )
        source = here.open(cpu_metric())

        assert here.read(source).message == "unable to fetch metrics from resource metrics API: no answer yet"
        reading = await here.answered(source)
        assert reading.values == {"a": 250, "c": 250}, "what is no pod of ours, or too old, does not count"
        assert reading.overdue == ""
        assert here.other.asked == [("shop", "app=web")]
        assert here.feed.source.queries == 2


async def test_cpu_by_rules_of_ours() -> None:
    async with bench() as here:
        usage = Usage(300, 0)
        item = ObjectUsage(
            "shop", "a", {}, WALL, usage, (ContainerUsage("app", usage), ContainerUsage("side", Usage(1, 0)))
        )
        here.provided.usages = ResourceAnswer((item,), 15.0, WALL, 0.0)
        whole, part = here.open(cpu_metric()), here.open(CONTAINER)

        assert (await here.answered(whole)).values == {"a": 301}
        assert here.read(part).values == {"a": 300}
        assert len(here.feeds) == 1, "one question for both"
        assert here.feed.source.queries == 4, "cpu and memory, and the age of the samples of each"
        assert here.feed.period == 15.0 / 8, "they bring no sample times: as if four samples made a window"
        here.clock.advance(5.8)
        assert here.read(whole) == PodsReading({"a": 301}, here.read(whole).samples, "its answer is late")


def used(*names: str, times: Mapping[str, float] | None, partial: bool = False) -> ResourceAnswer:
    """Return usages of 300m by pod; `times` says how many seconds ago their samples were taken."""
    usage = Usage(300, 0)
    items = tuple(
        ObjectUsage("shop", name, {}, WALL, usage, (ContainerUsage("app", usage),)) for name in names
    )
    taken = None if times is None else {name: WALL - ago for name, ago in times.items()}
    return ResourceAnswer(items, 15.0, WALL, 0.0, partial=partial, times=taken)


@pytest.mark.parametrize(
    ("answer", "read"),
    [
        (used("a", times=None, partial=True), ({"a": 300}, reader.PARTIAL)),
        (used("a", times={}), ({"a": 300}, UNKNOWN_AGE)),
        (used("a", "b", times={"a": 301.0, "b": 400.0}), "Stale"),
        (ResourceAnswer((), 60.0, WALL, 0.0, stands_in=True), "NotAnswered: unable to fetch metrics"),
    ],
    ids=["with a warning", "of unknown age", "all too old", "from before a failure"],
)
async def test_cpu_by_rules_of_ours_that_may_not_shrink(
    answer: ResourceAnswer, read: tuple[Mapping[str, int], str] | str
) -> None:
    async with bench() as here:
        here.provided.usages = answer
        reading = await here.answered(here.open(cpu_metric()))
        if isinstance(read, str):
            reason, _, message = read.partition(": ")
            assert (reading.reason, reading.message.endswith(message)) == (reason, True)
        else:
            assert (reading.values, reading.overdue) == read


async def test_cpu_by_rules_of_ours_is_as_old_as_its_samples() -> None:
    """As any other rule: no shrinking before its interval is known, and an old sample is no value."""
    async with bench() as here:
        here.provided.usages = used("a", "b", "c", times={"a": 2.0, "b": 301.0})
        source = here.open(cpu_metric())
        reading = await here.answered(source)
        assert (reading.values, reading.overdue) == ({"a": 300}, UNKNOWN_INTERVAL)
        assert source.sampled == span_of(WALL - 301.0)

        here.feed.interval.see({"a": span_of(WALL + 8.0)}, span_of(WALL + 10.0))
        here.provided.usages = used("a", times={"a": 2.0})
        reading = here.read(source)
        assert (reading.values, reading.overdue) == ({"a": 300}, "")


@pytest.mark.parametrize(
    "error",
    [
        KubernetesError(503, "ServiceUnavailable", "the server is currently unable to handle the request"),
        KubernetesError(404, "NotFound", "the server could not find the metric load for pods"),
    ],
)
async def test_a_metric_that_nothing_serves_yet(error: KubernetesError) -> None:
    async with bench(scrapes=False) as here:
        here.provided.objects = None
        here.other.custom = error
        reading = await here.answered(here.open(pods_metric(name="load")))
        assert reading.message == (
            f"unable to fetch metrics from custom metrics API: {error}; no rule has series for load yet; "
            "rules without series are listed every 30 s"
        )


async def test_an_invalid_selector_has_no_value() -> None:
    async with bench() as here:
        metric = external_metric(value="10")
        metric["external"]["metric"]["selector"] = {"matchExpressions": [{"key": "a", "operator": "Near"}]}
        source = here.open(metric)

        reading = here.read(source)
        assert isinstance(reading, Unavailable)
        assert reading.reason == "InvalidSelector"
        source.close()
        assert (source.sampled, source.span, len(here.feeds)) == (None, None, 0)


async def test_what_is_neither_scraped_nor_answered_yet_is_no_failure() -> None:
    async with bench() as here:
        source = here.open(pods_metric(name="load"))
        assert here.read(source).reason == "NotYet"

        assert (await here.answered(source)).reason == "NoMetrics"
