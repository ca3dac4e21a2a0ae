"""What each of several scalers costs that share 100,000 autoscalers and 200,000 pods: `benchmarks.slices`.

An API server sends generated lists and a stream of changes of pods. One scaler after the other has a fair
share of the slices, in a process of its own on one core; the first one has all. Each reads autoscalers, their
targets and pods into its caches, over HTTP, and decides with the values that `benchmarks.tick` uses.

The figures of a share are those of the scaler that has most. `..._share` is the part of what one scaler with
all slices has: of its memory, and of the objects that it decodes. `round_seconds` is one decision of all its
autoscalers, in processor time, and so are `list_cpu_seconds` (all first lists) and
`event_cpu_microseconds` (one change of any pod of the cluster).
"""

import asyncio
import gc
import itertools
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import uvloop
from aiohttp import web

from adapter.autoscaler.controller.autoscaler_sources import AutoscalerSource
from adapter.autoscaler.controller.changes import Changes
from adapter.autoscaler.controller.registry import AutoscalerRegistry, Controller
from adapter.autoscaler.decide.observation import PodsReading, Reading
from adapter.autoscaler.inputs.follower import TargetFollowers
from adapter.autoscaler.inputs.sources import MetricSource, ReadContext, Subscriber
from adapter.compose.clock import SystemClock
from adapter.kubernetes import client as kubernetes
from adapter.kubernetes import credentials
from adapter.kubernetes.cache.autoscalers import ScaleConflicts
from adapter.kubernetes.cache.pods import PodCache
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.cache.scale_targets import ScaleTargets
from adapter.kubernetes.cache.scope import SliceScope
from adapter.kubernetes.client import KubernetesClient
from adapter.model.autoscaling import slices
from adapter.model.autoscaling.hpa import MetricSpec
from adapter.runtime.garbage import ShortCollections
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from benchmarks import bare, common, documents, tick
from benchmarks.common import Goal, Report
from benchmarks.pod_list import pod
from benchmarks.stage import App, Stage, make_apps, memory_of
from tests.support.controller import HandClock, NoForecasts

_PODS = 2
_BATCH = 200
_EVENTS = 20_000
_ROUNDS = 3
_BEGIN = "/begin"
_VERSION = "900"
"""The version of all lists."""

_METRIC = documents.pods_metric("requests_per_second", "20")


# -- the API server ------------------------------------------------------------------------------------------


def _autoscaler(app: App, number: int) -> dict[str, Any]:
    document = tick.autoscaler(number, _PODS, _METRIC)
    document["metadata"] |= {"name": app.name, "namespace": app.namespace}
    document["spec"]["scaleTargetRef"]["name"] = app.name
    # as the API server writes a custom resource
    return dict(json.loads(json.dumps(document, sort_keys=True)))


def _deployment(app: App, number: int) -> dict[str, Any]:
    labels = {"app": app.name}
    uid, version = f"9a3c6f4b-4a55-5f7e-9a3c-{number:012x}", str(1000 + number)
    metadata = {"name": app.name, "namespace": app.namespace, "uid": uid, "resourceVersion": version}
    template = {"metadata": {"labels": labels}, "spec": pod(app, number, "", "")["spec"]}
    return {
        "metadata": metadata | {"generation": 1, "labels": labels},
        "spec": {"replicas": _PODS, "selector": {"matchLabels": labels}, "template": template},
        "status": {"replicas": _PODS, "readyReplicas": _PODS, "observedGeneration": 1},
    }


class Server:
    """Answers lists and watches of `count` autoscalers. All objects are encoded before it listens."""

    def __init__(self, count: int) -> None:
        self._apps = make_apps(count, _PODS)
        self._begun = asyncio.Event()
        self._texts: dict[str, list[list[bytes]]] = {
            "fastpathautoscalers": [[_encode(_autoscaler(app, at))] for at, app in enumerate(self._apps)],
            "deployments": [[_encode(_deployment(app, at))] for at, app in enumerate(self._apps)],
            "pods": [
                [_encode(pod(app, at * _PODS + each, app.pods[each], "ReplicaSet")) for each in range(_PODS)]
                for at, app in enumerate(self._apps)
            ],
        }
        self._namespaces: dict[str, list[int]] = {}
        for number, app in enumerate(self._apps):
            self._namespaces.setdefault(app.namespace, []).append(number)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == _BEGIN:
            self._begun.set()
            return web.Response()
        *_, plural = request.path.split("/")
        _, _, within = request.path.partition("/namespaces/")
        response = await bare.begin(request)
        if "watch" in request.query:
            if plural == "pods" and request.query["resourceVersion"] == _VERSION:
                await self._begun.wait()
                self._begun.clear()
                await self._send_events(response)
            await asyncio.Event().wait()
        numbers = self._namespaces.get(within.partition("/")[0], ()) if within else range(len(self._apps))
        known = self._texts.get(plural)
        texts = itertools.chain.from_iterable(known[number] for number in numbers if known)
        await response.write(
            f'{{"kind":"List","apiVersion":"v1","metadata":{{"resourceVersion":"{_VERSION}"}},"items":['.encode()
        )
        await bare.send(response, bare.separated(texts), _BATCH)
        await response.write(b"]}\n")
        await response.write_eof()
        return response

    async def _send_events(self, response: web.StreamResponse) -> None:
        """Send changes of pods of all namespaces in turn."""
        step = max(1, len(self._apps) * 7919 // _EVENTS) | 1
        numbers = iter(range(0, _EVENTS * step, step))
        while batch := list(itertools.islice(numbers, _BATCH)):
            lines = []
            for number in batch:
                place = number % len(self._apps)
                app = self._apps[place]
                changed = pod(app, place * _PODS, app.pods[0], "ReplicaSet", ready=False)
                changed["metadata"]["resourceVersion"] = str(1000 + number)
                event = {"type": "MODIFIED", "object": {"kind": "Pod", "apiVersion": "v1"} | changed}
                lines.append(_encode(event) + b"\n")
            await response.write(b"".join(lines))


def _encode(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


# -- a scaler ------------------------------------------------------------------------------------------------


class _Source(MetricSource):
    """A value for each pod; each call builds a new reading."""

    def __init__(self, site: Subscriber) -> None:
        super().__init__()
        self._site = site
        self.span = 1_000_000_000

    def read(self, view: ReadContext) -> Reading:
        self.sampled = taken = view.now - 500_000_000
        values = dict.fromkeys(self._site.names(), 20_400)
        return PodsReading(values, dict.fromkeys(values, (taken, 1_000_000_000)))


class _World(tick.World):
    def open(self, metric: MetricSpec, site: Subscriber) -> Any:  # noqa: ARG002 - there is one metric
        return _Source(site)


async def measure(url: str, numbers: Sequence[int]) -> dict[str, float]:
    """Return the figures of a scaler with these slices, in this process."""
    clock, monitoring, scope = SystemClock(), Monitoring(), SliceScope()
    problems = ProblemLog(monitoring, clock)
    ticking = HandClock()
    world: Any = _World(_PODS, 0)
    builtin: Any = SimpleNamespace(known=None)
    client = await kubernetes.connect(credentials.ClientConfiguration(url), random=random.random)
    watching = ReflectorContext(client, clock, monitoring, problems, random.random, scope=scope)
    pods, targets, rivals = PodCache(watching), ScaleTargets(watching, builtin), ScaleConflicts(watching)
    scrapes: Any = SimpleNamespace(put=_ignore, remove=_ignore)
    changes = Changes()
    registry = AutoscalerRegistry(rivals, scrapes, changes)
    source = AutoscalerSource(registry, watching)
    caches = {"followers": TargetFollowers(targets, pods), "rivals": rivals, "changes": changes}
    controller = tick.open_controller(ticking, world, NoForecasts(), monitoring, numbers, **caches)
    registry.controller = controller
    scope.set(numbers)
    async with client, asyncio.TaskGroup() as group:
        used = time.process_time()
        tasks = [group.create_task(each.run()) for each in (pods, targets, rivals.hpas, source)]
        for reflected in (pods, rivals.hpas, source):
            await _first_lists(reflected)
        for number in numbers:
            await scope.wait_for(number)
            await source.put_all(number)
        count = len(tuple(controller.names()))
        while not _is_decided(controller):
            ticking.seconds += 1.0
            await controller.loop.tick()
            await asyncio.sleep(0.1)
        figures = {"list_cpu_seconds": time.process_time() - used, "autoscalers": count, "pods": pods.count()}
        figures["event_cpu_microseconds"] = await _follow_events(client, monitoring)
        gc.collect()
        rounds = []
        for _ in range(_ROUNDS):
            ticking.seconds += 1.0
            rounds.append(await tick.decide_all(controller))
        figures["round_seconds"] = statistics.median(rounds)
        figures |= {"memory_mib": memory_of(os.getpid()), "peak_mib": memory_of(os.getpid(), "VmHWM")}
        for task in tasks:
            task.cancel()
    return figures


async def _follow_events(client: KubernetesClient, monitoring: Monitoring) -> float:
    """Have the server send changes of pods; return the microseconds of processor time for each."""
    used = time.process_time()
    await client.get(_BEGIN)
    count: Any = monitoring.registry.get_sample_value
    while (count("fastpath_informer_events_total", {"resource": "pods"}) or 0) < _EVENTS:  # noqa: ASYNC110 - no event says it
        await asyncio.sleep(0.05)
    return (time.process_time() - used) * 1e6 / _EVENTS


def _ignore(_: object) -> None: ...


def _is_decided(controller: Controller) -> bool:
    """Tell whether each autoscaler has target, pods and values."""
    states = map(controller.find, tuple(controller.names()))
    return all(state and state.last and state.last.decision.wanted is not None for state in states)


async def _first_lists(cache: Any) -> None:
    await cache.attempted.wait()
    assert cache.synced, cache.error


def _run(url: str, numbers: Sequence[int]) -> dict[str, float]:
    return common.run_part("slices", "--measure", url, *numbers)


def main() -> None:
    sizes = common.parse_sizes(__doc__, autoscalers=100_000, scalers=8)
    common.stay_on_load_core()
    count, scalers = int(sizes.autoscalers), int(sizes.scalers)
    each = f"each of {scalers} scalers for {count:,} autoscalers and {count * _PODS:,} pods"
    most = 1.3 / scalers
    goals = {
        "round_seconds": Goal(f"{each}: a decision round, on one core", 1.0, "s"),
        "memory_share": Goal(f"{each}: memory, by that of one scaler for all", most, ""),
        "decoded_share": Goal(f"{each}: objects decoded, by those of one scaler for all", most, ""),
    }
    report = Report("slices", vars(sizes), goals)
    with Stage() as stage:
        url = stage.start_server("slices", count)
        alone = _run(url, range(slices.COUNT))
        shares = [_run(url, range(place, slices.COUNT, scalers)) for place in range(scalers)]
    worst = {name: max(share[name] for share in shares) for name in shares[0]}
    assert sum(share["autoscalers"] for share in shares) == count
    report.add(**{f"alone_{name}": value for name, value in alone.items()}, **worst)
    report.add(
        memory_share=worst["memory_mib"] / alone["memory_mib"], decoded_share=worst["pods"] / alone["pods"]
    )
    report.show()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        with ShortCollections():  # as the scaler runs
            print(json.dumps(uvloop.run(measure(sys.argv[2], [*map(int, sys.argv[3:])]))))
    elif len(sys.argv) == 3 and not sys.argv[1].startswith("-"):
        uvloop.run(bare.listen(Server(int(sys.argv[2])).answer, Path(sys.argv[1])))
    else:
        main()
