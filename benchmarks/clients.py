"""What clients see while a workload is scaled, on a cluster with kubelets: `python -m benchmarks.clients`.

KUBECONFIG names the cluster and FASTPATH_CLUSTER_IMAGE the image of Fastpath that its nodes run, as for
tests/cluster, whose Prometheus and workload are used. Run it where ClusterIPs are reachable: on a node, or in
a pod. It makes the namespaces shop, monitoring and fastpath, and deletes them at its end.

Three workloads are the same but for what scales them: an HPA, the same HPA with boost, and a
FastPathAutoscaler, with one metric, target and `behavior`. The HPAs read what Prometheus scrapes every 15 s.
For the other two the scaler scrapes the pods each second. A pod works on five requests at once and others
wait in it, so the metric, requests in flight, counts those that wait as well.

Each trial sends the same requests to the three at the same moments, whether or not earlier ones are
answered: 8 a second, and from the step on what the case says. A request has a connection of its own. Its
time counts from the moment at which it was due. It fails without a 200 within 30 s, and is slow after 1.25 s.
Between trials the autoscalers are deleted, the workloads are set to two pods, and new autoscalers are made:
no history of a trial counts in the next. The step comes at a random phase of the sync of the HPAs. The order
of the cases is random, too, but those whose pods start slowly come last.

For each case and twin the table has figures with their ranges (`benchmarks.clients_figures`). `busy_share` is
what was used of the processors that run all of it, and `late_p99_seconds` how late requests were sent.
`repeated` counts trials that were made again, because a twin had more than the least pods at the step.
"""

import asyncio
import contextlib
import functools
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import clients_figures, common, documents, reaction
from benchmarks.clients_figures import CASES, LEAST, MOST, TWINS, Answer, Case, Outcome, Pod, Trial
from benchmarks.common import Goal, Report
from tests.cluster.site import SCALER, Site

SEED = 20_261_201
NAMESPACE = "shop"
SYNC_SECONDS = 15
LOW_SECONDS = 3
"""The least time from the first request to the step."""

_PATH = f"/wait?ms={1000 * clients_figures.WORK_SECONDS:g}"
_REQUEST = f"GET {_PATH} HTTP/1.1\r\nHost: shop\r\nConnection: close\r\n\r\n".encode()
_AUTOSCALERS = ("hpa,fpa", "--all", "-n", NAMESPACE)
_METRIC = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{NAMESPACE}/pods/*/inflight"
_EVENTS = {
    "deployments": "{.object.spec.replicas}",
    "pods": '{.object.metadata.labels.app} {.object.status.conditions[?(@.type=="Ready")].status}'
    " {.object.metadata.deletionTimestamp}",
}


class _Reply(asyncio.Protocol):
    """One request on a connection of its own; `right` tells whether its answer is a 200."""

    def __init__(self) -> None:
        self.right: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(_REQUEST)

    def data_received(self, data: bytes) -> None:
        if not self.right.done():
            self.right.set_result(data[9:12] == b"200")

    def connection_lost(self, _: Exception | None) -> None:
        self.data_received(b"")


@dataclass(slots=True)
class Watched:
    """What the cluster has shown of the twins, in seconds of the loop."""

    counts: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: {twin: [] for twin in TWINS})
    pods: dict[str, dict[str, Pod]] = field(default_factory=lambda: {twin: {} for twin in TWINS})

    def see(self, kind: str, now: float, event: str, name: str, *facts: str) -> None:
        if kind == "deployments":
            counts, count = self.counts.get(name, []), int(facts[0])
            if not counts or counts[-1][1] != count:
                counts.append((now, count))
            return
        pods = self.pods.get(facts[0], {})
        pod = pods.setdefault(name, Pod(now))
        if facts[1] == "True":
            pod.ready = min(pod.ready, now)
        if event == "DELETED" or facts[2]:
            pod.ended = min(pod.ended, now)

    def outcome(self, twin: str, seconds: int, answers: list[Answer], step: float) -> Outcome:
        pods = [
            Pod(pod.created - step, pod.ready - step, pod.ended - step) for pod in self.pods[twin].values()
        ]
        counts = [(at - step, count) for at, count in self.counts[twin]]
        return Outcome(seconds, answers, counts, pods)


class Clients:
    """Sends the load of a case to hosts and ports; `step` is infinitely far until it is planned."""

    def __init__(self, addresses: Mapping[str, tuple[str, int]], case: Case) -> None:
        self.step = math.inf
        self.answers: dict[str, list[Answer]] = {twin: [] for twin in TWINS}
        self.late: list[float] = []
        self._addresses, self._case = addresses, case

    async def send(self) -> None:
        """Send requests until those of the case are answered, or have failed."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        async with asyncio.TaskGroup() as requests:
            while due < self.step + self._case.seconds:
                await asyncio.sleep(due - loop.time())
                self.late.append(loop.time() - due)
                for twin in self._addresses:
                    requests.create_task(self._ask(twin, due))
                due += 1 / self._case.rate(due - self.step)

    async def _ask(self, twin: str, due: float) -> None:
        loop = asyncio.get_running_loop()
        right = False
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout_at(due + clients_figures.TIMEOUT_SECONDS):
                transport, reply = await loop.create_connection(_Reply, *self._addresses[twin])
                try:
                    right = await reply.right
                finally:
                    transport.abort()
        if due >= self.step:
            seconds = loop.time() - due if right else math.inf
            self.answers[twin].append(Answer(due - self.step, seconds))


class World:
    """The cluster with the twins. Each trial begins with new autoscalers."""

    def __init__(self, site: Site, seed: int) -> None:
        self._site = site
        self._draws = random.Random(seed)
        self._start = 0
        self._addresses: dict[str, tuple[str, int]] = {}
        self.late: list[float] = []
        self.busy: list[float] = []
        self.repeated = 0

    async def prepare(self) -> None:
        await self._site.prepare(SYNC_SECONDS)
        self._site.write_overlay(SCALER)
        await self._site.make_certificates()
        await self._site.apply_overlay()
        self._site.installed = "clients"
        await self._set_start(CASES["step"].start)
        for twin in TWINS:
            service = await self._site.get("service", twin)
            self._addresses[twin] = service["spec"]["clusterIP"], 8080

    async def run(self, case: Case) -> Trial:
        """Return a trial in which all twins had the least pods when the load stepped."""
        while True:
            trial = await self._try(case)
            if all(each.before() == LEAST for each in trial.values()):
                return trial
            self.repeated += 1

    async def _try(self, case: Case) -> Trial:
        await self._reset(case)
        clients = Clients(self._addresses, case)
        loop = asyncio.get_running_loop()
        async with self._watching() as watched, asyncio.TaskGroup() as tasks:
            await self._site.kubectl("wait", *_AUTOSCALERS, "--for=condition=ScalingActive", "--timeout=120s")
            sent = tasks.create_task(clients.send())
            clients.step = loop.time() + LOW_SECONDS + self._draws.uniform(0, SYNC_SECONDS)
            await asyncio.sleep(clients.step - loop.time())
            busy, begun = common.busy_seconds(), loop.time()
            await sent
            elapsed = (loop.time() - begun) * (os.cpu_count() or 1)
        self.late += clients.late
        self.busy.append((common.busy_seconds() - busy) / elapsed)
        return {
            twin: watched.outcome(twin, case.seconds, answers, clients.step)
            for twin, answers in clients.answers.items()
        }

    async def close(self) -> None:
        await self._site.close()

    async def _set_start(self, seconds: int) -> None:
        """Let pods listen so many seconds after their creation, of which one is that of the program."""
        if seconds != self._start:
            for twin in TWINS:
                await self._site.workload(twin, LEAST, seconds - 1)
            self._start = seconds

    async def _reset(self, case: Case) -> None:
        await self._site.kubectl("delete", *_AUTOSCALERS)
        twins = [f"deployment/{twin}" for twin in TWINS]
        await self._site.kubectl("scale", *twins, "-n", NAMESPACE, f"--replicas={LEAST}")
        await self._set_start(case.start)
        for twin in TWINS:
            await self._site.until(functools.partial(self._is_idle, twin), 120)
        await self._site.apply(*(_autoscaler(twin, case) for twin in TWINS))

    async def _is_idle(self, twin: str) -> bool:
        """Return whether the HPAs would read no load of the trial before."""
        read = await self._site.raw(f"{_METRIC}?labelSelector=app%3D{twin}")
        return [item["value"] for item in read["items"]] == ["0"] * LEAST

    @contextlib.asynccontextmanager
    async def _watching(self) -> AsyncIterator[Watched]:
        watched = Watched()
        async with asyncio.TaskGroup() as tasks:
            watches = [tasks.create_task(self._watch(kind, watched)) for kind in _EVENTS]
            yield watched
            for watch in watches:
                watch.cancel()

    async def _watch(self, kind: str, watched: Watched) -> None:
        shown = f'jsonpath={{.type}} {{.object.metadata.name}} {_EVENTS[kind]}{{"\\n"}}'
        flags = ("-n", NAMESPACE, "--watch", "--output-watch-events", "-o", shown)
        command = ("kubectl", f"--kubeconfig={self._site.kubeconfig}", "get", kind, *flags)
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        try:
            async for line in process.stdout:
                watched.see(kind, asyncio.get_running_loop().time(), *line.decode().rstrip("\n").split(" "))
        finally:
            process.kill()
            await process.wait()
        raise RuntimeError(f"the watch of {kind} ended by itself")


def _autoscaler(twin: str, case: Case) -> dict[str, Any]:
    metric = documents.pods_metric("inflight", str(clients_figures.TARGET))
    native, boosted, behavior = twin != "fast", twin == "boosted", dict(case.behavior)
    return documents.autoscaler(
        twin, NAMESPACE, [metric], (LEAST, MOST), native=native, boosted=boosted, behavior=behavior
    )


def main() -> None:
    sizes = common.parse_sizes(__doc__, repeat=10, only=",".join(CASES), seed=SEED)
    kubeconfig, image = os.environ.get("KUBECONFIG", ""), os.environ.get("FASTPATH_CLUSTER_IMAGE", "")
    if not (kubeconfig and image):
        sys.exit(
            "KUBECONFIG and FASTPATH_CLUSTER_IMAGE have to name a cluster and an image that its nodes run"
        )
    names = [name for name in sizes.only.split(",") for _ in range(sizes.repeat)]
    random.Random(sizes.seed).shuffle(names)
    with tempfile.TemporaryDirectory() as folder:
        world = World(Site(kubeconfig, image, Path(folder)), sizes.seed)
        trials = asyncio.run(_run(world, sorted(names, key=lambda name: CASES[name].start)))
    words = {"fast": "fast-scaler", "boosted": "HPA with boost"}
    goals = {
        f"{name}_{twin}_failed_share": Goal(f"requests that fail, {CASES[name].about}, {who}", 0, "")
        for name in trials
        for twin, who in words.items()
    }
    report = Report("clients", vars(sizes) | clients_figures.SETTINGS, goals)
    for name, found in trials.items():
        for figure, value, edges in clients_figures.measure(name, found, sizes.seed):
            report.add(**{figure: value})
            report.notes[figure] = edges
        starts = [start for trial in found for each in trial.values() for start in each.starts()]
        report.add(**{f"{name}_start_p50_seconds": statistics.median(starts)})
        for twin in TWINS:
            report.notes[f"slow_{name}_{twin}"] = clients_figures.slow_curve([each[twin] for each in found])
            counts = [[(round(at, 1), count) for at, count in each[twin].counts if at > 0] for each in found]
            report.notes[f"counts_{name}_{twin}"] = reaction.write_curves(counts)
            curves = [each[twin].ready_counts() for each in found]
            report.notes[f"ready_{name}_{twin}"] = reaction.write_curves(curves)
    report.add(
        busy_share=statistics.fmean(world.busy),
        late_p99_seconds=common.percentile(world.late, 0.99),
        repeated=world.repeated,
    )
    print(clients_figures.table(report.figures, report.notes))
    report.show()


async def _run(world: World, names: Sequence[str]) -> dict[str, list[Trial]]:
    trials: dict[str, list[Trial]] = {name: [] for name in CASES if name in names}
    try:
        await world.prepare()
        for number, name in enumerate(names, 1):
            trial = await world.run(CASES[name])
            trials[name].append(trial)
            shares = ", ".join(f"{twin} {found.slow_share():.1%}" for twin, found in trial.items())
            print(f"{number} of {len(names)}, {name}: slow or failed: {shares}", flush=True)
    finally:
        await world.close()
    return trials


if __name__ == "__main__":
    main()
