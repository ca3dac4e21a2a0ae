"""The pods of a simulated target: asked for, starting, ready, and gone."""

import bisect
import heapq
import itertools
import math
import operator
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec

from adapter.errors import Fault, InputError
from adapter.model.objects.pods import Container, PodFacts, Requests, ResourceRequirements
from adapter.model.timestamps import SECOND

LABELS = {"app": "simulated"}
SELECTOR = "app=simulated"

MOST_REPLICAS = 100_000
"""The most pods of one workload, which bounds the memory of a simulation."""


class Workload:
    """The pods at one second.

    Pods that are no longer wanted go at once: starting ones first, then those with a deletion cost, then the
    newest. `start_up` draws the seconds from a written count to a Ready pod. `epoch` is second 0 in
    nanoseconds. `share` gives what a pod takes of the load compared to the others, by its name; without it
    all take the same. More than MOST_REPLICAS pods are an InputError.
    """

    def __init__(
        self,
        replicas: int,
        start_up: Callable[[], int],
        epoch: int,
        requests: Requests | None = None,
        share: Callable[[str], float] = lambda _: 1.0,
    ) -> None:
        _check(replicas)
        self.replicas = replicas
        self.version = 0
        """Changes with every change of the pods."""
        self._start_up = start_up
        self._epoch = epoch
        container = Container("main", None if requests is None else ResourceRequirements(requests))
        self._containers = (container,)
        self._serial = 0
        self._starting: list[tuple[int, int, PodFacts]] = []  # a heap by the second of readiness
        self._ready: list[tuple[int, PodFacts]] = []  # in the order in which they became ready
        self._share = share
        self._shares: dict[str, float] = {}  # of the ready pods
        self._sums: deque[tuple[float, float]] = deque()  # of their shares, from each second on
        self._pods: tuple[PodFacts, ...] | None = None
        for _ in range(replicas):
            # They have been ready for longer than any rule looks back.
            self._add_ready(self._new(-math.inf), -24 * 3600)
        self._changed(-math.inf)

    @property
    def ready(self) -> int:
        return len(self._ready)

    @property
    def next_ready(self) -> float:
        """The second at which the next pod becomes ready, infinity if none is starting."""
        return self._starting[0][0] if self._starting else math.inf

    @property
    def pods(self) -> Sequence[PodFacts]:
        """All pods, the ready ones first."""
        if self._pods is None:
            self._pods = (*(pod for _, pod in self._ready), *(pod for *_, pod in sorted(self._starting)))
        return self._pods

    def sampled(self, at: int) -> list[PodFacts]:
        """Return the pods that exist and were ready at a second."""
        return [pod for _, pod in self._ready[: self.count_ready_since(at)]]

    def count_ready_since(self, at: int) -> int:
        """Return the number of pods that were ready at a second and exist."""
        return bisect.bisect_right(self._ready, at, key=operator.itemgetter(0))

    def split(self, load: float, at: int) -> Mapping[str, float]:
        """Return what the pods that exist and were ready took of a load at a second of the last hours."""
        total = next(total for since, total in reversed(self._sums) if since <= at)
        return {pod.name: load * self._shares[pod.name] / total for pod in self.sampled(at)}

    def advance(self, second: int) -> None:
        """Make the pods ready whose start-up ends at this second."""
        while self._starting and self._starting[0][0] <= second:
            at, _, pod = heapq.heappop(self._starting)
            self._add_ready(pod, at)
        self._changed(second)

    def scale(self, replicas: int, second: int, costs: Sequence[str] = ()) -> float:
        """Ask for pods, or let some go; return the share of the load of this second that ends with them.

        `costs` are ready pods with a deletion cost, the lowest first.
        """
        _check(replicas)
        ended = 0.0
        for _ in range(replicas - self.replicas):
            pod = self._new(second)
            heapq.heappush(self._starting, (second + max(1, self._start_up()), self._serial, pod))
        if self.replicas > replicas:
            staying = max(0, len(self._starting) - (self.replicas - replicas))
            self._starting = heapq.nsmallest(staying, self._starting, key=operator.itemgetter(1))  # by serial
            heapq.heapify(self._starting)
            going = len(self._ready) - replicas + staying
            newest = (pod.name for _, pod in reversed(self._ready))
            gone = frozenset(itertools.islice(dict.fromkeys((*costs, *newest)), going))
            self._ready = [entry for entry in self._ready if entry[1].name not in gone]
            ended = math.fsum(map(self._shares.pop, gone)) / self._sums[-1][1] if gone else 0.0
        self.replicas = replicas
        self._changed(second + 1)
        return ended

    def _new(self, second: float) -> PodFacts:
        self._serial += 1
        started = None if math.isinf(second) else self._epoch + round(second) * SECOND
        return PodFacts(
            f"pod-{self._serial}",
            "Pending",
            LABELS,
            started=started,
            ready="False",
            containers=self._containers,
            created=started,
        )

    def _add_ready(self, pod: PodFacts, at: int) -> None:
        since = self._epoch + at * SECOND
        started = since if pod.started is None else pod.started
        ready = msgspec.structs.replace(
            pod, phase="Running", started=started, ready="True", ready_since=since, created=None
        )
        self._ready.append((at, ready))
        self._shares[pod.name] = self._share(pod.name)

    def _changed(self, second: float) -> None:
        """Note that the pods have changed, and serve so from a second on."""
        self._sums.append((second, math.fsum(self._shares.values())))
        while len(self._sums) > 1 and self._sums[1][0] <= second - 4 * 3600:  # no pace has older samples
            self._sums.popleft()
        self.version += 1
        self._pods = None


def _check(replicas: int) -> None:
    if replicas > MOST_REPLICAS:
        expected = f"expected at most {MOST_REPLICAS}, the most pods that a simulation holds"
        raise InputError([Fault("replicas", str(replicas), expected)])
