"""A naive booster: a second writer that raises a Scale without a word to the HorizontalPodAutoscaler.

It is the control of every test of boosting: a test that shows no reversal beside it shows nothing.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping

from fastpath_sandbox.apiserver.server import Cluster

MANAGER = "naive"

Raise = Callable[[str, int], Awaitable[None]]


class Wanted:
    """What one target needs: `need` gives a count at any time, of which at most `most` are asked for."""

    def __init__(self, need: Callable[[], float], most: int) -> None:
        self._need = need
        self._most = most

    def __call__(self) -> int:
        return min(self._most, math.ceil(self._need()))


class NaiveBooster:
    """Looks at the load itself every `period` and raises at once by `write(name, count)`, as fast as any."""

    def __init__(
        self,
        targets: Mapping[str, Wanted],
        read: Callable[[str], int],
        write: Raise,
        *,
        period: float = 0.2,
        tolerance: float = 0.1,
    ) -> None:
        self._targets = targets
        self._read = read
        self._write = write
        self._period = period
        self._tolerance = tolerance

    async def run(self) -> None:
        """Raise until cancelled."""
        while True:
            for name, wanted in self._targets.items():
                count = wanted()
                if count > self._read(name) * (1 + self._tolerance):
                    await self._write(name, count)
            await asyncio.sleep(self._period)


def on_sandbox(cluster: Cluster, namespace: str, targets: Mapping[str, Wanted]) -> NaiveBooster:
    """Return one for Deployments of a sandbox."""

    def read(name: str) -> int:
        count: int = cluster.get("Deployment", name, namespace)["spec"]["replicas"]
        return count

    async def write(name: str, count: int) -> None:
        cluster.scale("Deployment", name, count, namespace, manager=MANAGER)

    return NaiveBooster(targets, read, write)
