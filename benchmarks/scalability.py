"""What 1,000 and 5,000 HPAs get from one control plane: `python -m benchmarks.scalability --hpas 1000,5000`.

KUBEBUILDER_ASSETS names the folder with etcd, kube-apiserver and kube-controller-manager. The HPA controller
has the defaults of Kubernetes: it syncs five HPAs at once, each of its clients sends 20 requests a second,
and an HPA is due 15 s after its last sync. The shapes are those in which kube-burner loads a cluster:

- `created`: from the first HPA that is created until the last one has read its metric;
- `raised`: the load of all pods rises at once. The time is from the scrape that shows it to a count that is
  enough, for each workload;
- the steady state, in the two syncs of each HPA after that: `sync` is the time between two requests for its
  metric, `api_...` the requests that the API server answers itself in a second, `..._cores` what each part
  takes.

In the case `alone` the HPAs are as everywhere, and `fastpath serve` has their metric. In `boosted` they have
boost, and `fastpath scale` reads the same Prometheus. `unsynced` and `unraised` are those to which a shape
had not come after `longest` seconds, `lowered` counts writes downwards, and `raised_by_fastpath` is the part
of the workloads that Fastpath raised before the controller did. `others_cores` is what programs beside the
benchmark took. The results of a case are kept when it ends, whatever comes later.
"""

import asyncio
import datetime as dt
import itertools
import json
import math
import os
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks import common, crowd, plane
from benchmarks.common import Goal, Report
from benchmarks.crowd import Crowd
from benchmarks.stage import Stage, memory_of, processor_seconds
from benchmarks.stepping import CLOCK, until
from tests.support.waiting import running
from tests.world import watching
from tests.world.scalewrites import BOOSTER, Audit

_AUTOSCALERS = "/apis/autoscaling/v2/horizontalpodautoscalers"
_TARGETS = "/apis/apps/v1/deployments"
_REQUESTS = re.compile(r'^apiserver_request_total\{.*?verb="(\w+)".*?\} (\S+)$', re.MULTILINE)
_NAMES = {
    "kube-apiserver": "api_server",
    "kube-controller": "controller",
    "adapter": "serve",
    "scaler": "scale",
}


def main() -> None:
    sizes = common.parse_sizes(__doc__, hpas="1000,5000", cases="alone,boosted", longest=900.0)
    assets, goals = plane.find_assets(), dict[str, Goal]()
    report = Report("scalability", vars(sizes), goals)
    for count in map(int, sizes.hpas.split(",")):
        for case in sizes.cases.split(","):
            with Stage() as stage:
                found = asyncio.run(_run(stage, assets, count, sizes.longest, boosted=case == "boosted"))
            report.add(**{f"{case}_{count}_{name}": value for name, value in found.items()})
            what = f"{count:,} HPAs, {case}: not raised, or lowered again"
            goals |= {f"{case}_{count}_{name}": Goal(what, 0, "") for name in ("unraised", "lowered")}
            report.show()


async def _run(stage: Stage, assets: Path, count: int, longest: float, *, boosted: bool) -> dict[str, float]:
    synced: dict[str, float] = {}
    audit = Audit(CLOCK.wall, math.inf)

    def saw(_: str, hpa: dict[str, Any]) -> None:
        conditions = hpa.get("status", {}).get("conditions", ())
        if any(each["type"] == "ScalingActive" and each["status"] == "True" for each in conditions):
            synced.setdefault(hpa["metadata"]["name"], CLOCK.wall())

    async with (
        crowd.opened(stage, assets, count, scales=boosted) as world,
        running(
            watching.follow(world.session, _AUTOSCALERS, saw),
            watching.follow(world.session, _TARGETS, lambda _, found: audit.saw_target(found)),
        ),
    ):
        begun = CLOCK.wall()
        await world.create_autoscalers(boosted=boosted)
        existing = CLOCK.wall()
        await until(lambda: len(synced) == count, longest)
        figures = {"existing_seconds": existing - begun, "unsynced": count - len(synced)}
        figures |= _spread("created", [at - begun for at in synced.values()])
        figures |= await _raise_all(world, audit, longest)
        return figures | await _watch_steady(stage, world, longest)


async def _raise_all(world: Crowd, audit: Audit, longest: float) -> dict[str, float]:
    """Let the load of all pods rise, and wait until each workload has the pods for it."""
    count, higher = len(world.apps), CLOCK.wall()
    world.load = crowd.HIGH
    await until(lambda: world.shown > higher, 2 * crowd.PERIOD)
    begun = world.shown

    def raised() -> dict[Any, float]:
        enough = [write for write in reversed(audit.writes) if write.after >= crowd.NEEDED]
        return {write.target: write.time - begun for write in enough}  # the first of each stays

    await until(lambda: len(audit.writes) >= count and len(raised()) == count, longest)
    first = {write.target: write.by for write in reversed(audit.writes)}
    return {
        **_spread("raised", list(raised().values())),
        "unraised": count - len(raised()),
        "lowered": sum(write.after < write.before for write in audit.writes),
        "raised_by_fastpath": sum(by == BOOSTER for by in first.values()) / count,
    }


async def _watch_steady(stage: Stage, world: Crowd, longest: float) -> dict[str, float]:
    """Measure while nothing changes, until each HPA was read twice."""
    reads = Reads(world.audit_log)
    requests, cores, begun = await _count_requests(world.session), _cores(stage), time.perf_counter()
    await until(lambda: reads.follow() >= 2 and len(reads.times) == len(world.apps), longest)
    elapsed = time.perf_counter() - begun
    cores = {name: value - cores[name] for name, value in _cores(stage).items()}
    cores["others"] = cores.pop("all") - sum(cores.values())
    gaps = [b - a for times in reads.times.values() for a, b in itertools.pairwise(times)]
    requests = await _count_requests(world.session) - requests
    pids = {_NAMES.get(name, name): pid for name, pid in stage.pids.items()}
    return {
        "steady_seconds": elapsed,
        **_spread("sync", gaps),
        **{f"api_{verb.lower()}_per_second": number / elapsed for verb, number in requests.most_common()},
        "api_requests_per_second": requests.total() / elapsed,
        **{f"{name}_cores": value / elapsed for name, value in cores.items()},
        **{f"{name}_memory_mib": memory_of(pid) for name, pid in pids.items()},
    }


class Reads:
    """When the metric of each HPA was requested, as the audit log of the API server tells."""

    def __init__(self, log: Path) -> None:
        self._log, self._offset = log, log.stat().st_size
        self.times: dict[str, list[float]] = {}

    def follow(self) -> int:
        """Read what has been added to the log; return how often the HPA was read that was read least."""
        with self._log.open("rb") as log:
            log.seek(self._offset)
            whole, end, _ = log.read().rpartition(b"\n")
        self._offset += len(whole) + len(end)
        for event in map(json.loads, whole.splitlines()):
            at = dt.datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp()
            self.times.setdefault(event["requestURI"], []).append(at)
        return min(map(len, self.times.values()), default=0)


def _spread(name: str, values: list[float]) -> dict[str, float]:
    """Return p50, p99 and the most of values."""
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {f"{name}_{word}_seconds": common.percentile(values, share) for word, share in shares.items()}


async def _count_requests(session: aiohttp.ClientSession) -> Counter[str]:
    """Return how many requests of each verb the API server has answered."""
    counts: Counter[str] = Counter()
    async with session.get("/metrics") as answer:
        for verb, number in _REQUESTS.findall(await answer.text()):
            counts[verb] += round(float(number))
    return counts


def _cores(stage: Stage) -> dict[str, float]:
    """Return the processor seconds of each part so far, of the benchmark, and of all programs."""
    pids = dict(stage.pids) | {"benchmark": os.getpid()}
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in map(int, children.read_text().split()):
            pids[Path(f"/proc/{pid}/comm").read_text().strip()] = pid
    named = {_NAMES.get(name, name): pid for name, pid in pids.items() if not name.startswith("python")}
    return {name: processor_seconds(pid) for name, pid in named.items()} | {"all": common.busy_seconds()}


if __name__ == "__main__":
    main()
