"""One process of a scaler that follows a load without rest for the one slice that has an autoscaler.

As a program it is a real process with a clock of its own:
``python -m tests.scenarios.slice_owner URL NAMESPACE IDENTITY UID``.
"""

import asyncio
import contextlib
import random
import signal
import sys
import time
from collections.abc import Callable

from adapter.compose.clock import SystemClock
from adapter.errors import KubernetesError, NotLeadingError
from adapter.kubernetes import client as kubernetes
from adapter.kubernetes import credentials
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.cache.scale_targets import ScaleTarget
from adapter.kubernetes.ownership.membership import MemberSettings
from adapter.kubernetes.ownership.slice_keeper import SliceKeeper
from adapter.kubernetes.ownership.term import Term
from adapter.kubernetes.write.events import EventOutlet, Regarding
from adapter.kubernetes.write.outbox import Outbox
from adapter.kubernetes.write.scale import ScaleWriter
from adapter.kubernetes.write.status import StatusOutlet, StatusUpdate
from adapter.kubernetes.write.writer import Writer, WriteRateLimiter
from adapter.model.autoscaling import slices
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerStatus
from adapter.model.clock import Clock
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog, SourceProblems

NAME = "fastpath"
DURATION, DEADLINE, RETRY = 2.0, 1.2, 0.4
HPA = "/apis/autoscaling/v2/namespaces/{0}/horizontalpodautoscalers/web/status"


class SliceScaler:
    """What one process has of its own.

    `load` says how many replicas are wanted, `uid` is that of the autoscaler ``web``.
    """

    def __init__(
        self, url: str, namespace: str, identity: str, uid: str, clock: Clock, load: Callable[[], int]
    ) -> None:
        self.identity = identity
        self.namespace = namespace
        self._url = url
        self._uid = uid
        self._load = load
        self._clock = clock
        self._monitoring = Monitoring()
        self._problems = ProblemLog(self._monitoring, self._clock)
        self._client: kubernetes.KubernetesClient

    async def run(self) -> None:
        async def header() -> str:
            return f"Bearer {self.identity}"

        configuration = credentials.ClientConfiguration(self._url, authorization=header)
        async with await kubernetes.connect(configuration, random=random.random) as client:
            self._client = client
            context = ReflectorContext(client, self._clock, self._monitoring, self._problems, random.random)
            settings = MemberSettings(self.identity, NAME, DURATION, DEADLINE, RETRY)
            keeper = SliceKeeper(context, self.namespace, settings)
            self._budget = WriteRateLimiter(100.0, self._clock, self._monitoring)
            self._outbox = Outbox(self._budget, self._clock, self._monitoring, self._problems.defects)
            self._statuses = StatusOutlet(self._outbox, self._problems)
            self._events = EventOutlet(self._outbox, random.random, self._monitoring, self._problems)
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(keeper.view.cache.run()), group.create_task(self._outbox.run())]
                try:
                    await keeper.run(self._work)
                finally:
                    for task in tasks:
                        task.cancel()

    async def _work(self, term: Term) -> None:
        if term.number != slices.slice_of(self.namespace):
            await asyncio.Event().wait()
        refusals = SourceProblems(self._clock, self._problems)
        writer = Writer(self._client, term, self._budget, self._clock, self._monitoring, refusals)
        self._outbox.begin(term.number, writer)
        try:
            await self._scale(ScaleWriter(self._outbox.find_writer))
        finally:
            await self._outbox.drain(term.number, 0.2)

    async def _scale(self, scales: ScaleWriter) -> None:
        """Follow the load as a scaler does: at once, without end, from the state that was last seen."""
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments/web/scale"
        target = ScaleTarget(0, 0, "", "", "", path)
        about = Regarding("autoscaling/v2", "HorizontalPodAutoscaler", self.namespace, "web", self._uid)
        current = -1
        while True:
            wanted = self._load()
            if wanted != current:
                with contextlib.suppress(KubernetesError, NotLeadingError):
                    await scales.acquire(target)
                    if not target.resource_version:
                        target = target._replace(
                            resource_version=(await scales.get_scale(target)).resource_version
                        )
                    wanted = self._load()
                    try:
                        version = await scales.put_scale(target, wanted)
                    except KubernetesError:
                        target = target._replace(resource_version="")
                        raise
                    target, current = target._replace(resource_version=version), wanted
                    status = HorizontalPodAutoscalerStatus(desired_replicas=current)
                    document = dict[str, object](currentReplicas=current, desiredReplicas=current).copy
                    hpa = HPA.format(self.namespace)
                    self._statuses.put(
                        StatusUpdate(self.namespace, "web", self._uid, hpa, "", status, document), None
                    )
                    self._events.record(
                        about, "Normal", "SuccessfulRescale", f"New size: {current}; reason: load"
                    )
            await asyncio.sleep(0.05)


def wall_load() -> int:
    """Return a count that changes five times a second, the same in every process."""
    return 1 + int(time.time() * 5) * 7 % 90  # noqa: TID251 - the load is the world's, not the scaler's


async def main(url: str, namespace: str, identity: str, uid: str) -> None:
    """Run until SIGTERM."""
    scaler = SliceScaler(url, namespace, identity, uid, SystemClock(), wall_load)
    task = asyncio.create_task(scaler.run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5]))
