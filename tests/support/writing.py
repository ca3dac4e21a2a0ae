"""For tests of the scaler's writes: a `Writer` on the sandbox cluster, one by hand, and a fence to shut."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import msgspec

from adapter.compose.clock import SystemClock
from adapter.errors import NotLeadingError
from adapter.kubernetes import client as kubernetes
from adapter.kubernetes import credentials
from adapter.kubernetes.ownership.term import Term
from adapter.kubernetes.write.outbox import Outbox
from adapter.kubernetes.write.writer import WriteKind, Writer, WriteRateLimiter
from adapter.model.autoscaling import slices
from adapter.model.clock import Clock
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog, SourceProblems
from fastpath_sandbox.apiserver.server import Cluster


class Sent(NamedTuple):
    """A write that was sent."""

    kind: WriteKind
    method: str
    path: str
    document: dict[str, Any]
    options: dict[str, Any]


class HandFence(Term):
    """A term that is open until a test shuts it; `passes` is how many more checks it lets through, None for
    all, `left` the seconds it gives.
    """

    def __init__(self) -> None:
        super().__init__(0)
        self.passes: int | None = None
        self.left = 10.0

    def check(self) -> float:
        if self.passes is not None:
            if not self.passes:
                raise NotLeadingError("shut by the test")
            self.passes -= 1
        return self.left


class HandWriter:
    """Keeps what is sent. Writes fail with `failure`."""

    def __init__(self) -> None:
        self.sent: list[Sent] = []
        self.failure: Exception | None = None

    async def send(self, kind: WriteKind, method: str, path: str, content: bytes, **options: Any) -> None:
        if self.failure is not None:
            raise self.failure
        self.sent.append(Sent(kind, method, path, msgspec.json.decode(content), options))


def open_outbox(
    writer: Any,
    problems: ProblemLog,
    clock: Clock,
    monitoring: Monitoring | None = None,
    limiter: WriteRateLimiter | None = None,
) -> Outbox:
    """Return an outbox that has begun a term of each slice, in which everything is sent by one writer."""
    monitoring = monitoring or Monitoring()
    limiter = limiter or WriteRateLimiter(1_000_000.0, clock, monitoring)
    outbox = Outbox(limiter, clock, monitoring, problems.defects)
    for number in range(slices.COUNT):
        outbox.begin(number, writer)
    return outbox


class Desk:
    """A writer and all that it was made of."""

    def __init__(self, cluster: Cluster, client: kubernetes.KubernetesClient, rate: float) -> None:
        self.cluster = cluster
        self.gate = HandFence()
        self.clock = SystemClock()
        self.monitoring = Monitoring()
        self.faults = ProblemLog(self.monitoring, self.clock)
        self.budget = WriteRateLimiter(rate, self.clock, self.monitoring)
        self.refusals = SourceProblems(self.clock, self.faults)
        self.writer = Writer(client, self.gate, self.budget, self.clock, self.monitoring, self.refusals)
        self.outbox = open_outbox(self.writer, self.faults, self.clock, self.monitoring, self.budget)

    def writes(self, kind: str, outcome: str) -> float:
        labels = {"type": kind, "outcome": outcome}
        return self.monitoring.registry.get_sample_value("fastpath_writes_total", labels) or 0.0

    def sample(self, metric: str, **labels: str) -> float:
        return self.monitoring.registry.get_sample_value(metric, labels) or 0.0

    def asked(self, verb: str, resource: str) -> int:
        """Return how many requests of that kind the cluster has had."""
        return sum((each.verb, each.resource) == (verb, resource) for each in self.cluster.requests)


@contextlib.asynccontextmanager
async def desk_on(cluster: Cluster, rate: float = 1000.0) -> AsyncIterator[Desk]:
    """Give a writer for a cluster that listens."""
    configuration = credentials.ClientConfiguration(cluster.url)
    async with await kubernetes.connect(configuration, random=lambda: 0.0) as client:
        yield Desk(cluster, client, rate)
