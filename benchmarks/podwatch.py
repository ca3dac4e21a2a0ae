"""The cost of watching all pods of a large cluster: memory, time to the first list, event loop.

Each run is a process of its own that has imported all of Fastpath, lists whole pods over HTTP, follows the
pods of every app, and then takes a burst of events in which pods become unready. The longest hold is
processor time between two turns of a timer.
"""

import asyncio
import gc
import json
import os
import random
import sys
import time

import uvloop

from adapter.compose.clock import SystemClock
from adapter.kubernetes import client as kubernetes
from adapter.kubernetes import credentials
from adapter.kubernetes.cache.pods import PodCache
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.model.objects.label_selectors import parse_selector
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from benchmarks import common
from benchmarks.common import Goal, Report
from benchmarks.stage import App, Stage, make_apps, memory_of

_TIMER_SECONDS = 0.001
_PODS_PER_APP = 10


class Holds:
    """The longest time that the event loop was held, in milliseconds of processor time."""

    def __init__(self) -> None:
        self.longest = 0.0

    async def watch(self) -> None:
        """Read the processor clock on every turn of a short timer."""
        before = time.thread_time()
        while True:
            await asyncio.sleep(_TIMER_SECONDS)
            now = time.thread_time()
            self.longest = max(self.longest, (now - before) * 1000)
            before = now

    def take(self) -> float:
        """Return the longest hold and reset it."""
        longest, self.longest = self.longest, 0.0
        return longest


class _Follower:
    def __init__(self, app: App) -> None:
        self.namespace, self.autoscaler = app.namespace, f"{app.namespace}/{app.name}"
        self.selector = parse_selector(f"app={app.name}")
        self.changes = 0

    def changed(self) -> None:
        self.changes += 1

    def started(self, _: object) -> None: ...


async def measure(url: str, pods: int, events: int) -> dict[str, float]:
    """Return the figures of one run in this process."""
    clock, monitoring = SystemClock(), Monitoring()
    client = await kubernetes.connect(credentials.ClientConfiguration(url), random=random.random)
    around = ReflectorContext(client, clock, monitoring, ProblemLog(monitoring, clock), random.random)
    watch = PodCache(around)
    followers = [_Follower(app) for app in make_apps(-(-pods // _PODS_PER_APP), _PODS_PER_APP)]
    followed = [watch.follow(one.namespace, one.selector, one) for one in followers]
    gc.collect()
    gc.freeze()
    holds = Holds()
    before = memory_of(os.getpid())
    figures = {"before_mib": before}
    async with client, asyncio.TaskGroup() as group:
        tasks = [group.create_task(holds.watch()), group.create_task(watch.run())]
        begun, used = time.perf_counter(), time.thread_time()
        while not all(one.changes for one in followers):  # noqa: ASYNC110 - the same turns that look for holds
            await asyncio.sleep(_TIMER_SECONDS)
        figures |= {
            "list_seconds": time.perf_counter() - begun,
            "list_cpu_microseconds_per_pod": (time.thread_time() - used) * 1e6 / pods,
            "list_hold_ms": holds.take(),
        }
        begun, used = time.perf_counter(), time.thread_time()
        last = followed[(events - 1) // _PODS_PER_APP]
        left = _PODS_PER_APP - 1 - (events - 1) % _PODS_PER_APP
        while sum(pod.running_and_ready for pod in last.pods) > left:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        figures |= {
            "event_cpu_microseconds": (time.thread_time() - used) * 1e6 / events,
            "event_hold_ms": holds.take(),
        }
        gc.collect()
        for task in tasks:
            task.cancel()
    return figures | {
        "rss_mib": memory_of(os.getpid()),
        "peak_mib": memory_of(os.getpid(), "VmHWM"),
        "changes": sum(one.changes for one in followers),
    }


def run_case(pods: int, owner: str, events: int) -> dict[str, float]:
    """Return the figures of one run in a process of its own."""
    with Stage() as stage:
        url = stage.start_server("pod_list", pods, _PODS_PER_APP, owner, events)
        return common.run_part("podwatch", "--measure", url, pods, events)


def main() -> None:
    sizes = common.parse_sizes(__doc__, pods=100_000, events=20_000, runs=3)
    common.stay_on_load_core()
    longest = "longest block of the event loop during"
    goals = {
        f"{case}_{figure}": Goal(f"the scaler watches {sizes.pods:,} pods of {owners}: {what}", limit, unit)
        for case, owners in (("deployment", "Deployments"), ("stateful", "StatefulSets"))
        for figure, what, limit, unit in (
            ("peak_mib", "peak memory", 400, "MiB"),
            ("list_hold_ms", f"{longest} the list", 10, "ms"),
            ("event_hold_ms", f"{longest} {sizes.events:,} events", 10, "ms"),
        )
    }
    report = Report("podwatch", vars(sizes), goals)
    for case, owner in (("deployment", "ReplicaSet"), ("stateful", "StatefulSet")):
        found = common.median_of([run_case(sizes.pods, owner, sizes.events) for _ in range(sizes.runs)])
        report.add(**{f"{case}_{name}": value for name, value in found.items()})
    report.show()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(uvloop.run(measure(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))))
    else:
        main()
