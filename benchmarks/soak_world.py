"""The surroundings of a soak: a cluster, and a real Prometheus whose samples are known beforehand.

The value of a series is a function of its number and the time, so that an answer can be checked at any later
moment: its timestamp gives the sample. No value is ever zero.
"""

import asyncio
import contextlib
import json
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import trustme

from adapter.compose.clock import SystemClock
from benchmarks import load, stepping
from benchmarks.stage import App, make_apps
from fastpath_sandbox.apiserver.reviews import TokenVerdict
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.workloads import Workloads, deployment
from fastpath_sandbox.prometheus.series import Exporter, Series, SeriesSet
from tests.support.prometheus import PrometheusServer
from tests.support.remotewrite import Written

CLOCK = SystemClock()
LEVEL = "soak_level"
QUEUE = "soak_queue"
QUEUES = ("mail", "orders")
SCALED = "scaled"
LEAST, MOST = 2, 8
"""Replicas that the load of the scaled workload needs in turn. A value read as zero would need one."""
PATIENCE_SECONDS = 60.0
"""The longest wait for a recovery before the run is aborted."""

_STEP = 5  # seconds between two samples of a series
_PAST = 60
_AHEAD = 300  # Prometheus refuses what lies ten minutes ahead
_TURN = 997
_EXPORTERS = 12
_GRACE = 3.0  # seconds until Prometheus, back again, has answered everyone
_TARGET = 10
_LOW, _HIGH = 2.0, 25.0


def level(number: int, when: float) -> int:
    """Return the value of a series by its number, at a time in epoch seconds."""
    return 1000 * (number + 1) + int(when // _STEP) % _TURN


async def until(condition: Callable[[], object], what: str) -> None:
    """Wait until `condition` holds; TimeoutError names `what`."""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition():  # noqa: ASYNC110 - another process sets no event of ours
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise TimeoutError(f"waited {PATIENCE_SECONDS:g} s in vain for {what}") from None


class World:
    """The surroundings of a soak; `world` opens them."""

    def __init__(self, directory: Path, apps: int, pods: int) -> None:
        self.directory = directory
        self.story = "the start"
        """The fault that was made last, and the one before."""
        self.apps = make_apps(apps, pods)
        self.apps, self.replaced = self.apps[:-1], self.apps[-1]
        """The last app's pods are replaced now and then, by those of `spare` and back."""
        self.spare = self.replaced._replace(pods=tuple(f"{pod}-b" for pod in self.replaced.pods))
        everyone = (*self.apps, self.replaced, self.spare)
        self.numbers = {pod: number for number, pod in enumerate(pod for app in everyone for pod in app.pods)}
        self.queues = {queue: len(self.numbers) + number for number, queue in enumerate(QUEUES)}
        self.cluster = Cluster(now=CLOCK.wall, log_size=1000)
        self.cluster.reviews.token = lambda spec: TokenVerdict(spec["token"] == load.TOKEN, "soak")
        self.prometheus = PrometheusServer(
            directory / "prometheus", targets={}, scrape_interval="15s", flags=()
        )
        self.tls = ssl.create_default_context()
        self.rules = directory / "rules.yaml"
        self.scaler_rules = directory / "scaler-rules.yaml"
        self._authority = trustme.CA()
        self._authority.configure_trust(self.tls)
        self._writing = asyncio.Lock()
        self._trouble: list[float] = []  # when Prometheus began to be disturbed and when it was over, in turn
        self._written = int(CLOCK.wall() - _PAST) // _STEP
        self._shown = _LOW
        with socket.socket() as probe:
            probe.bind(("127.0.1.1", 0))
            self.exporter_port: int = probe.getsockname()[1]
        self._series = _series(everyone, self.numbers, self.queues)

    # what the programs read

    def issue(self) -> bytes:
        """Replace the serving certificate; return the new one (DER)."""
        pair = self._authority.issue_cert("localhost", "127.0.0.1")
        pem = pair.cert_chain_pems[0].bytes()
        self._replace(self.directory / "tls.crt", pem)
        self._replace(self.directory / "tls.key", pair.private_key_pem.bytes())
        return ssl.PEM_cert_to_DER_cert(pem.decode())

    def write_rules(self, copies: int = 0) -> None:
        """Write the rules, with some more of other names."""
        self._replace(self.rules, json.dumps(_rules(copies)).encode())  # JSON is YAML

    def break_rules(self) -> None:
        """Write an invalid rules file."""
        self._replace(self.rules, b"rules: [")

    def _replace(self, path: Path, content: bytes) -> None:
        new = path.with_suffix(".new")
        new.write_bytes(content)
        os.replace(new, path)  # noqa: PTH105 - whole or not at all

    # pods

    def create_pods(self, app: App) -> None:
        for pod in app.pods:
            labels = {"app": app.name, "pod-template-hash": "7c9f8d6b5"}
            metadata = {"name": pod, "namespace": app.namespace, "labels": labels}
            self.cluster.create({"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {}})

    def replace_pods(self) -> None:
        """Replace the pods of an app, the new ones before the old ones."""
        self.create_pods(self.spare)
        for pod in self.replaced.pods:
            self.cluster.delete("Pod", pod, self.replaced.namespace)
        self.replaced, self.spare = self.spare, self.replaced

    def show_load(self, *, high: bool) -> None:
        """Set the load of each pod of the scaled workload above its target, or below."""
        self._shown = _HIGH if high else _LOW

    def replicas(self) -> int:
        """Return the replicas of the scaled workload."""
        count: int = self.cluster.get("Deployment", "web", SCALED)["spec"]["replicas"]
        return count

    # Prometheus

    async def feed(self) -> None:
        """Write samples some minutes ahead, so that a stop of Prometheus leaves no gap."""
        async with self._writing:
            last = int(CLOCK.wall() + _AHEAD) // _STEP
            steps = range(self._written, last)
            samples = [
                Written(labels, value(step * _STEP), step * _STEP)
                for step in steps
                for labels, value in self._series
            ]
            if samples:
                await asyncio.to_thread(self.prometheus.write, *samples)
            self._written = last

    @contextlib.asynccontextmanager
    async def disturbing(self) -> AsyncIterator[None]:
        """Mark Prometheus as unreachable within the block.

        No write is in flight then: half of one cannot be repeated.
        """
        async with self._writing:
            self._trouble.append(CLOCK.monotonic())
            try:
                yield
            finally:
                self._trouble.append(CLOCK.monotonic() + _GRACE)

    def was_disturbed(self, since: float) -> bool:
        """Return whether Prometheus was unreachable at some time from `since` (monotonic) until now."""
        return len(self._trouble) % 2 == 1 or (bool(self._trouble) and self._trouble[-1] >= since)

    # the ways of a cluster

    async def run(self) -> None:
        """Create and delete pods with the scaled workload, until cancelled."""
        workloads = Workloads(
            self.cluster, startup=0.3, address=lambda number: f"127.0.1.{number % _EXPORTERS + 1}"
        )
        while True:
            workloads.step(CLOCK.wall())
            await asyncio.sleep(0.1)

    async def _stand(self, stack: contextlib.AsyncExitStack) -> None:
        await stack.enter_async_context(self.cluster)
        for app in (*self.apps, self.replaced):
            self.create_pods(app)
        stepping.create_kind(self.cluster)
        self.cluster.create(deployment("web", SCALED, LEAST))
        self.cluster.create(_autoscaler())
        shown = SeriesSet([Series("soak_load", {}, lambda _: self._shown)])
        for number in range(1, _EXPORTERS + 1):
            exporter = Exporter(shown, CLOCK.wall, port=self.exporter_port, host=f"127.0.1.{number}")
            await stack.enter_async_context(exporter)
        self.cluster.kubeconfig(self.directory / "kubeconfig")
        self.issue()
        self.write_rules()
        self._replace(self.scaler_rules, json.dumps(_scaler_rules(self.exporter_port)).encode())
        stack.callback(self.prometheus.kill)
        await asyncio.to_thread(self.prometheus.start)
        await self.feed()


@contextlib.asynccontextmanager
async def world(directory: Path, apps: int, pods: int) -> AsyncIterator[World]:
    """Let everything stand until the block ends."""
    made = World(directory, apps, pods)
    async with contextlib.AsyncExitStack() as stack:
        await made._stand(stack)  # noqa: SLF001 - the same file
        yield made


def _series(
    apps: tuple[App, ...], numbers: dict[str, int], queues: dict[str, int]
) -> list[tuple[dict[str, str], Callable[[float], float]]]:
    """Return labels and curve of all series."""

    def numbered(number: int) -> Callable[[float], float]:
        return lambda when: level(number, when)

    found: list[tuple[dict[str, str], Callable[[float], float]]] = [
        ({"__name__": LEVEL, "namespace": app.namespace, "pod": pod}, numbered(numbers[pod]))
        for app in apps
        for pod in app.pods
    ]
    namespace = apps[0].namespace
    for queue, number in queues.items():
        found.append(({"__name__": QUEUE, "namespace": namespace, "queue": queue}, numbered(number)))
    found.append(({"__name__": "soak_load", "namespace": SCALED, "pod": "some"}, lambda _: 1.0))
    found.append(({"__name__": "soak_floor", "namespace": SCALED}, lambda _: float(LEAST * _TARGET)))
    return found


_RESOURCES = {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}}
_BY_OBJECT = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"


def _rules(copies: int) -> dict[str, object]:
    rule = {
        "seriesQuery": f'{LEVEL}{{namespace!="",pod!=""}}',
        "resources": _RESOURCES,
        "metricsQuery": _BY_OBJECT,
    }
    external = {
        "seriesQuery": f'{QUEUE}{{namespace!=""}}',
        "resources": {"overrides": {"namespace": {"resource": "namespace"}}},
        "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)",
    }
    more = [{**rule, "name": {"as": f"{LEVEL}_{number}"}} for number in range(copies)]
    return {"rules": [rule, *more], "externalRules": [external]}


def _scaler_rules(port: int) -> dict[str, object]:
    rule = {
        "seriesQuery": 'soak_load{namespace!="",pod!=""}',
        "resources": _RESOURCES,
        "metricsQuery": _BY_OBJECT,
        "scrape": {"interval": "1s", "port": port},
    }
    external = {
        "seriesQuery": 'soak_floor{namespace!=""}',
        "resources": {"overrides": {"namespace": {"resource": "namespace"}}},
        "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>})",
    }
    return {"rules": [rule], "externalRules": [external]}


def _autoscaler() -> dict[str, object]:
    target = {"type": "AverageValue", "averageValue": str(_TARGET)}
    fast = {"type": "Percent", "value": 400, "periodSeconds": 1}
    return {
        "apiVersion": "fastpath.io/v1alpha1",
        "kind": "FastPathAutoscaler",
        "metadata": {"name": "web", "namespace": SCALED},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 1,
            "maxReplicas": MOST,
            "metrics": [
                {"type": "Pods", "pods": {"metric": {"name": "soak_load"}, "target": target}},
                {"type": "External", "external": {"metric": {"name": "soak_floor"}, "target": target}},
            ],
            "behavior": {
                "scaleUp": {"policies": [fast]},
                "scaleDown": {"stabilizationWindowSeconds": 0, "policies": [{**fast, "value": 100}]},
            },
        },
    }
