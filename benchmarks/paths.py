"""How long the paths through `adapter` are: `python -m benchmarks.paths`.

Three walks, each from the first byte to the last: a warm request and a cold one of a known caller, both over
a connection with the front proxy's certificate, and a scrape of a pod that ends with a PUT of the Scale. The
adapter runs in this process, between the sandbox's cluster, Prometheus and pods, and `sys.setprofile` counts.
Other tasks of the adapter may run meanwhile, so each walk is repeated and the shortest counts.

Counted are the functions of `adapter` that run: private ones, and a coroutine once however often it resumes.
Lambdas, comprehensions and libraries do not count. With `--show` the calls of a walk are listed in order.
"""

import argparse
import asyncio
import contextlib
import itertools
import logging
import sys
import tempfile
import urllib.parse
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import adapter
from adapter.compose import app
from adapter.compose.clock import SystemClock
from adapter.config.options import SCALE
from benchmarks import common, documents, load, stepping
from benchmarks.load import Connection, Reply
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.workloads import Workloads, deployment
from fastpath_sandbox.prometheus.series import Exporter, Series, SeriesSet
from fastpath_sandbox.prometheus.server import Prometheus
from tests.support.adapter import admit, running

CLOCK = SystemClock()
PACKAGE = str(Path(adapter.__file__).parent) + "/"
WALKS = ("warm", "cold", "scrape")

_PODS = 2
_ADDRESS = "127.0.1.{}"
_PATH = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/"
_QUIET = 0.3  # seconds in which what a walk leaves behind ends
_LONGEST = 30.0
_FORWARDED = {name: value for name, value in load.HEADERS.items() if name != "Authorization"}
"""The headers of a request that kube-apiserver forwards."""

_RULE = """\
- seriesQuery: 'load{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
  name: {as: NAME}
  MORE
"""


class Walk(NamedTuple):
    """The functions that a walk called, in order: each with its module."""

    calls: Sequence[tuple[str, str]]

    def counts(self) -> dict[str, int]:
        modules = [module for module, _ in self.calls]
        return {
            "functions": len(set(self.calls)),
            "modules": len(set(modules)),
            "calls": len(self.calls),
            "changes": sum(one != other for one, other in itertools.pairwise(modules)),
        }


class Recorder:
    """Records the calls of functions of `adapter` between `begin` and `end`."""

    def __init__(self) -> None:
        self._frames: dict[FrameType, None] = {}

    def begin(self) -> None:
        self._frames.clear()
        sys.setprofile(self._note)

    def end(self) -> Walk:
        sys.setprofile(None)
        codes = [frame.f_code for frame in self._frames]
        self._frames.clear()
        return Walk([(code.co_filename.removeprefix(PACKAGE), code.co_qualname) for code in codes])

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<"):
            self._frames[frame] = None


def ignore(_: float) -> None:
    """Take no note of a scrape."""


class World:
    """A cluster with a Deployment whose pods show `load`, and a Prometheus that knows the pods."""

    def __init__(self, cluster: Cluster, prometheus: Prometheus) -> None:
        self.cluster = cluster
        self.prometheus = prometheus
        self.port = 0
        """The port at which the pods are scraped."""
        self.load = 10.0
        self.scraped: Callable[[float], None] = ignore

    def read(self, _: float) -> float:
        self.scraped(self.load)
        return self.load


@contextlib.asynccontextmanager
async def world() -> AsyncIterator[World]:
    known = SeriesSet(interval=0.5)
    async with (
        contextlib.AsyncExitStack() as stack,
        Cluster(now=CLOCK.wall) as cluster,
        Prometheus(known, CLOCK.wall) as prometheus,
    ):
        there = World(cluster, prometheus)
        stepping.create_kind(cluster)
        cluster.create(deployment("web", "default", _PODS))
        Workloads(cluster, startup=0.0, address=_ADDRESS.format).step(CLOCK.wall())
        shown = SeriesSet([Series("load", {}, there.read)])
        for pod in cluster.list("Pod", "default"):
            exporter = Exporter(shown, CLOCK.wall, host=pod["status"]["podIP"], port=there.port)
            await stack.enter_async_context(exporter)
            there.port = int(exporter.address.rpartition(":")[2])
            labels = {"namespace": "default", "pod": pod["metadata"]["name"]}
            known.add(Series("load", labels, lambda _: 1.0))
        yield there


class Requests:
    """Warm and cold requests over one connection with the front proxy's certificate."""

    def __init__(self, connection: Connection, recorder: Recorder) -> None:
        self._connection = connection
        self._recorder = recorder
        self._sent = 0

    async def ask(self, *, warm: bool) -> Walk:
        """Walk once: warm the same request as before, cold one with a new selector."""
        self._sent += not warm
        selector = urllib.parse.quote("app=web" if warm else f"app=web,probe!=n{self._sent}", safe="")
        request = load.render(f"{_PATH}{'warm' if warm else 'cold'}?labelSelector={selector}", _FORWARDED)
        self._recorder.begin()
        reply = await self._connection.get(request)
        walk = self._recorder.end()
        check(reply)
        return walk


def check(reply: Reply) -> None:
    if reply.status != 200 or reply.body.count(b'"describedObject"') != _PODS:
        sys.exit(f"HTTP status {reply.status}, not a value for each pod: {reply.body.decode()}")


def _rules(**more: str) -> str:
    """Return a rule for each name, with more of its fields."""
    rules = [_RULE.replace("NAME", name).replace("MORE", fields) for name, fields in more.items()]
    return "rules:\n" + "".join(rules)


async def walk_requests(directory: Path, runs: int) -> dict[str, Walk]:
    (directory / "rules.yaml").write_text(_rules(warm="ttl: 60s", cold=""))
    recorder = Recorder()
    async with (
        world() as there,
        running(
            directory, there.cluster, there.prometheus.url, "--metrics-ttl=0s", aggregated=True
        ) as served,
    ):
        port = int(served.url.rpartition(":")[2])
        connection = await Connection.open(port, served.context)
        requests = Requests(connection, recorder)
        await served.wait_for(_PATH + "cold", lambda answer: answer.status == 200)
        cold = await shortest(lambda: requests.ask(warm=False), runs)
        warm = await shortest(lambda: requests.ask(warm=True), runs)
        connection.close()
    return {"warm": warm, "cold": cold}


async def shortest(walk: Callable[[], Awaitable[Walk]], runs: int) -> Walk:
    """Walk once more than `runs` times, the first time for what is built once; return the shortest walk.

    A function that one walk did not call is left out: another task called it, for which the pauses differ.
    """
    walks = []
    for number in range(runs + 1):
        await asyncio.sleep(_QUIET * (1 + number / 8))
        walks.append(await walk())
    del walks[0]
    common = set.intersection(*(set(each.calls) for each in walks))
    least = min(walks, key=lambda each: len(each.calls))
    return Walk([call for call in least.calls if call in common])


async def walk_scrapes(directory: Path, runs: int) -> Walk:
    recorder = Recorder()
    async with world() as there:
        scrape = f"scrape: {{interval: 500ms, port: {there.port}}}"
        (directory / "rules.yaml").write_text(_rules(load=scrape))
        admit(there.cluster)
        there.cluster.create(_autoscaler())
        kind = there.cluster.kinds.find("deployments").key
        walks: list[Walk] = []
        written = asyncio.Event()

        def scaled(change: Any) -> None:
            counts = {each.document["spec"]["replicas"] for each in (change.old, change.new) if each}
            if len(counts) == 2 and sys.getprofile() is not None:  # else another pod raised it once more
                walks.append(recorder.end())
                written.set()

        there.cluster.store.subscribe(kind, scaled)
        options, _ = SCALE.parse(
            [
                f"--config={directory / 'rules.yaml'}",
                f"--prometheus-url={there.prometheus.url}",
                f"--lister-kubeconfig={there.cluster.kubeconfig(directory / 'kubeconfig')}",
                *("--local-address=", "--scrape-pod-cidrs=127.0.0.0/8"),
            ]
        )
        stop = asyncio.Event()
        running = asyncio.create_task(app.run_scaler(options, "test", stop), name="scaler")

        async def step() -> Walk:
            """Let the load step; the walk begins with the first scrape that shows it."""
            there.load += 10.0
            new = there.load

            def scraped(load: float) -> None:
                if load == new:
                    there.scraped = ignore
                    recorder.begin()

            there.scraped = scraped
            written.clear()
            async with asyncio.timeout(_LONGEST):
                await written.wait()
            await asyncio.sleep(4 * _QUIET)
            return walks[-1]

        try:
            return await shortest(step, runs)
        finally:
            sys.setprofile(None)
            stop.set()
            await running


def _autoscaler() -> dict[str, Any]:
    every_second = [{"type": "Pods", "value": 100, "periodSeconds": 1}]
    metrics = [documents.pods_metric("load", "10")]
    behavior = {"scaleUp": {"policies": every_second}}
    return documents.autoscaler("web", "default", metrics, (_PODS, 1000), behavior=behavior)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=7, help="repetitions of each walk (7)")
    parser.add_argument("--show", choices=WALKS, help="list the calls of this walk")
    options = parser.parse_args()
    logging.disable()
    with tempfile.TemporaryDirectory() as directory:
        walks = asyncio.run(walk_requests(Path(directory), options.runs))
        walks["scrape"] = asyncio.run(walk_scrapes(Path(directory), options.runs))
    if options.show:
        for module, name in walks[options.show].calls:
            print(f"{module}:{name}")
    rows = [(name, *map(str, walks[name].counts().values())) for name in WALKS]
    common.print_table(("walk", "functions", "modules", "calls", "changes of module"), rows)


if __name__ == "__main__":
    main()
