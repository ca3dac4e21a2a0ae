"""The pods of a simulated target: asked for, starting, ready, and gone."""

import heapq
import math
import operator
from collections.abc import Callable, Sequence

import msgspec

from adapter.errors import Fault, InputError
from adapter.model.pods import Container, PodFacts, Requests, ResourceRequirements
from adapter.model.timestamps import SECOND

LABELS = {"app": "simulated"}
SELECTOR = "app=simulated"

MOST_REPLICAS = 100_000
"""The most pods of one workload, which bounds the memory of a simulation."""


class Workload:
    """The pods at one second.

    Pods that are no longer wanted go at once: starting ones first, then the newest.
    `start_up` draws the seconds from a written count to a Ready pod. `epoch` is second 0 in nanoseconds.
    More than MOST_REPLICAS pods are an InputError.
    """

    def __init__(
        self, replicas: int, start_up: Callable[[], int], epoch: int, requests: Requests | None = None
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
        self._pods: tuple[PodFacts, ...] | None = None
        for _ in range(replicas):
            # They have been ready for longer than any rule looks back.
            self._add_ready(self._new(-math.inf), -24 * 3600)

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
        return [pod for since, pod in self._ready if since <= at]

    def count_ready_since(self, at: int) -> int:
        """Return the number of pods that were ready at a second and exist."""
        ready = self._ready
        count = len(ready)
        while count and ready[count - 1][0] > at:
            count -= 1
        return count

    def advance(self, second: int) -> None:
        """Make the pods ready whose start-up ends at this second."""
        while self._starting and self._starting[0][0] <= second:
            at, _, pod = heapq.heappop(self._starting)
            self._add_ready(pod, at)
            self._changed()

    def scale(self, replicas: int, second: int) -> None:
        """Ask for pods, or let some go."""
        _check(replicas)
        for _ in range(replicas - self.replicas):
            pod = self._new(second)
            heapq.heappush(self._starting, (second + max(1, self._start_up()), self._serial, pod))
        if self.replicas > replicas:
            staying = max(0, len(self._starting) - (self.replicas - replicas))
            self._starting = heapq.nsmallest(staying, self._starting, key=operator.itemgetter(1))  # by serial
            heapq.heapify(self._starting)
            del self._ready[replicas - staying :]
        self.replicas = replicas
        self._changed()

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

    def _changed(self) -> None:
        self.version += 1
        self._pods = None


def _check(replicas: int) -> None:
    if replicas > MOST_REPLICAS:
        expected = f"expected at most {MOST_REPLICAS}, the most pods that a simulation holds"
        raise InputError([Fault("replicas", str(replicas), expected)])
