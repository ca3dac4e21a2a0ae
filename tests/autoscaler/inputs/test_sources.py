"""From the metrics of a spec to readings: the source of each, and how scraped pods and Prometheus combine.

`scripts/sources` has stories of the pods a, b and c, which are scraped and which Prometheus knows. After `> `
something happens to them; `read` and `asked` say what a decision reads, `about` what else is known of it.
`scripts/test tests/autoscaler/inputs --update` writes it.
"""

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adapter.autoscaler.decide.observation import ExternalReading, ObjectReading, Unavailable
from adapter.autoscaler.inputs.sources import MetricSource
from adapter.errors import KubernetesError, ScrapeError
from adapter.kubernetes.metrics_api import TimedCustomValue, TimedExternalValue
from adapter.model.autoscaling.hpa import PodMetrics, decode_scalar
from adapter.model.metrics import ContainerUsage, CustomQuestion, ObjectUsage, ResourceAnswer, Usage
from adapter.model.timestamps import SECOND, span_of
from tests.autoscaler.inputs.sources_bench import CONTAINER, RATES, RULES, A, B, C, SourceBench, bench
from tests.support.clock import WALL
from tests.support.scaling import cpu_metric, external_metric, object_metric, pod, pods_metric
from tests.support.scripts import Scripts
from tests.support.world import object_values, scraped_pod, series_values

ADDRESSES = {each.name: each.ip for each in (A, B, C)}
SCRIPTS = Scripts(Path(__file__).parent / "scripts" / "sources")
DOWN = ScrapeError("timeout", "no answer in 1 s")
PODS: dict[str, dict[str, Any]] = {
    "": {},
    "host": {"host_network": True},
    "port": {"ports": {}},
    "port-http": {"ports": {"http": 80}},
    "unready": {"ready": "False"},
}
"""What is special about pods that are scraped."""

KNOWN: dict[str, dict[str, Any]] = {
    "": {},
    "deleting": {"deleting": True},
    "succeeded": {"phase": "Succeeded"},
    "failed": {"phase": "Failed"},
}
"""What is special about pods that an autoscaler knows."""

METRICS: dict[str, dict[str, Any]] = {
    "object": object_metric("Value", value="10"),
    "external": external_metric(value="10"),
    "cpu": cpu_metric(),
    "container": CONTAINER,
}


TIME = "2023-11-14T22:13:20Z"


def used(name: str, time: str) -> dict[str, Any]:
    """Return the usage of a pod as another adapter serves it."""
    containers = [{"name": "app", "usage": {"cpu": "250m"}}]
    taken = None if time == "never" else time
    return {"metadata": {"name": name}, "timestamp": taken, "window": "30s", "containers": containers}


def read_usage(text: str) -> ObjectUsage:
    """Return the usage of a pod by our rules."""
    name, _, parts = text.partition(":")
    listed = [part.partition("=") for part in parts.split(",")]
    containers = tuple(ContainerUsage(each, Usage(int(value), 0)) for each, _, value in listed)
    return ObjectUsage("shop", name, {}, WALL, containers[0].usage, containers)


class SourceScript:
    """What a line of a script does, and what is read then."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()
        self.here: SourceBench
        self.source: MetricSource

    async def begin(self, rules: str = "plain", *more: str) -> None:
        """Have rules: `plain`, of `rates`, or `unscraped`."""
        text = RATES if rules == "rates" else RULES
        self.here = await self._stack.enter_async_context(
            bench(text, " ".join(more), scrapes=rules != "unscraped")
        )

    async def end(self) -> None:
        await self._stack.aclose()

    # -- what happens --------------------------------------------------------------------------------------

    def pods(self, *names: str) -> None:
        """Have these pods to be scraped, some of them not as the others, as `c:host`."""
        found = []
        for text in names:
            name, _, how = text.partition(":")
            found.append(scraped_pod(name, ADDRESSES[name], **PODS[how]))
        self.here.here.scraped.want("shop/web", "shop", ["load"], found)

    def known(self, *names: str) -> None:
        """Have the autoscaler know these pods alone, some of them as `c:deleting`."""
        listed = [text.partition(":") for text in names]
        self.here.pods = [pod(name, **KNOWN[how]) for name, _, how in listed]

    def shows(self, *texts: str) -> None:
        """Have pods show samples as `a=load/1`, or nothing that can be reached."""
        bodies: dict[str, Any] = self.here.here.reader.bodies
        for text in texts:
            name, _, sample = text.partition("=")
            errors = {"down": DOWN, "refused": ScrapeError("unreachable", "Connection refused")}
            bodies[ADDRESSES[name]] = errors.get(sample) or sample.replace("/", " ")

    def nothing(self) -> None:
        self.here.here.reader.bodies = {}

    async def scrape(self, *names: str) -> None:
        if names:
            await self.here.scrape_again(*names)
        else:
            await self.here.here.scrape()

    def wait(self, seconds: str) -> None:
        self.here.clock.advance(float(seconds))

    def clock(self, seconds: str) -> None:
        self.here.clock.set_wall(WALL + float(seconds))

    def became_ready(self, *times: str) -> None:
        """Have pods Ready since so many seconds ago, as `b=10`."""
        now = self.here.clock.monotonic()
        ages = (text.split("=") for text in times)
        self.here.became_ready = {name: now - float(ago) for name, ago in ages}

    def prometheus(self, *values: str) -> None:
        """Have samples as `a=7000@20`, so many seconds old; `?` is an unknown age."""
        known, times = dict[str, int](), dict[str, float]()
        for text in values:
            name, _, rest = text.partition("=")
            value, _, ago = rest.partition("@")
            known[name] = int(value)
            if ago != "?":
                times[name] = WALL - float(ago)
        self.here.provided.objects = object_values(known, times, 0.0, 300.0 if times else None)

    def ours(self, kind: str, *values: str) -> None:
        """Have no rules of ours, or the values of a series, or usages as `a:app=300,side=1`."""
        provided = self.here.provided
        if kind == "nothing":
            provided.objects = provided.series = None
        elif kind == "series":
            provided.series = series_values(tuple(map(int, values)), WALL, 0.0, 300.0)
        else:
            items = tuple(read_usage(text) for text in values)
            more = {"partial": kind == "partial", "stands_in": kind == "former"}
            times = {"unknown-ages": {}, "old": {item.name: WALL - 301 for item in items}}
            times["known-ages"] = {item.name: WALL - 2 for item in items}
            provided.usages = ResourceAnswer(items, 15.0, WALL, 0.0, times=times.get(kind), **more)

    def other(self, kind: str, *values: str) -> None:
        """Have another adapter answer with objects, series or usages, or with a status."""
        other, listed = self.here.other, [text.partition("/") for text in values]
        if kind == "error":
            other.custom = KubernetesError(int(values[0]), "", " ".join(values[1:]))
        elif kind == "series":
            series = [
                {"value": value, "timestamp": TIME, "window": window or None} for value, _, window in listed
            ]
            other.series = msgspec.convert(
                series, tuple[TimedExternalValue, ...], dec_hook=decode_scalar, strict=False
            )
        elif kind == "usage":
            usages = [used(name, time or TIME) for name, _, time in listed]
            other.usages = msgspec.convert(usages, tuple[PodMetrics, ...], dec_hook=decode_scalar)
        else:
            objects = [
                {"describedObject": {"name": "a"}, "value": value, "timestamp": TIME} for value in values
            ]
            other.custom = msgspec.convert(objects, tuple[TimedCustomValue, ...], dec_hook=decode_scalar)

    def see(self, *times: str) -> None:
        """Have samples of these times seen, from which their interval is known."""
        for text in times:
            self.here.feed.interval.see({"a": span_of(WALL + float(text))}, span_of(WALL + float(text) + 2))

    def open(self, metric: str, version: str = "", kind: str = "") -> None:
        found = METRICS.get(metric) or pods_metric(name=metric)
        if kind:
            found = object_metric("Value", value="10")
            described = {"apiVersion": version.strip("-"), "kind": kind, "name": "main"}
            found["object"]["describedObject"] = described
        if metric == "invalid":
            found = external_metric(value="10")
            wrong = {"key": "a", "operator": "Near"}
            found["external"]["metric"]["selector"] = {"matchExpressions": [wrong]}
        self.source = self.here.open(found)

    async def again(self) -> None:
        """Have the question asked again."""
        await self.here.ask_again()

    # -- what is known -------------------------------------------------------------------------------------

    def read(self) -> str:
        return self._text(self.here.read(self.source))

    async def asked(self) -> str:
        """Return what is read once the question was answered."""
        return self._text(await self.here.answered(self.source))

    def about(self) -> str:
        """Return how old the oldest sample is and what it covers, the questions there are, and the fault."""
        sampled, span = self.source.sampled, self.source.span
        now = round(self.here.clock.wall() * SECOND)
        age = "unknown" if sampled is None else f"{(now - sampled) / SECOND:g} s"
        covers = "unknown" if span is None else f"{span / SECOND:g} s"
        return (
            f"age {age}, covers {covers}, {len(self.here.feeds)} questions; {self.source.fault or 'no fault'}"
        )

    def questions(self) -> str:
        """Return what our rules and the other adapter were asked."""
        ours = [
            " ".join(map(str, each[:3])) if isinstance(each, CustomQuestion) else each
            for each in self.here.provided.asked
        ]
        others = [" ".join(each or "-" for each in asked) for asked in self.here.other.asked]
        return f"ours: {', '.join(ours) or 'nothing'}; other: {', '.join(others) or 'nothing'}"

    def feed(self) -> str:
        """Return the queries and the period of the only question, and how far its answer looks back."""
        feed = self.here.feed
        lookback = feed.answer and feed.answer.lookback
        looks = "unknown" if not lookback else f"{lookback / SECOND:g} s"
        return f"{feed.source.queries} queries each {feed.period:g} s, looks back {looks}"

    def close(self) -> None:
        self.source.close()

    @staticmethod
    def _text(reading: Any) -> str:
        if isinstance(reading, Unavailable):
            return f"{reading.reason}: {reading.message}"
        if isinstance(reading, ObjectReading):
            return f"{reading.value}, {reading.ready_then} ready"
        if isinstance(reading, ExternalReading):
            return f"{' '.join(map(str, reading.values))}, {reading.ready_then} ready"
        parts = [" ".join(f"{name}={value}" for name, value in reading.values.items()) or "nothing"]
        if reading.left_out:
            parts.append(
                "left out " + " ".join(f"{name}={value}" for name, value in reading.left_out.items())
            )
        if reading.other_cut:
            parts.append(f"the other cut is without {' '.join(reading.other_cut)}")
        if reading.overdue:
            parts.append(f"overdue {' '.join(reading.overdue_pods) or 'as a whole'}: {reading.overdue}")
        return "; ".join(parts)


@pytest.mark.parametrize("title", SCRIPTS.titles)
async def test_script(title: str, pytestconfig: pytest.Config) -> None:
    script = SourceScript()
    try:
        await SCRIPTS.play(title, script, pytestconfig)
    finally:
        await script.end()
