"""What a cluster does by itself: kubelets, and stand-ins for the controllers that the sandbox lacks.

On the sandbox the native controller syncs once a second instead of every fifteen.
"""

import asyncio
import contextlib
import math
import random
from collections.abc import AsyncIterator

from fastpath_sandbox.apiserver.objects import timestamp
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.workloads import Workloads
from fastpath_sandbox.demo import native_hpa
from fastpath_sandbox.demo.native_hpa import Adapter
from tests.support.waiting import running
from tests.world.clusters import ClusterUnderTest, Document
from tests.world.workloads import CLOCK, PERIOD, SETTINGS

_LONG_AGO = "2020-01-01T00:00:00Z"
_STEP_SECONDS = 0.1


def well(since: str = _LONG_AGO) -> Document:
    """Return what a kubelet reports of a pod that is well, by default for long.

    An autoscaler of a real control plane leaves others out of account.
    """
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": since} for kind in ("Ready", "ContainersReady")
    ]
    return {"phase": "Running", "startTime": since, "conditions": conditions}


def started(pod: Document, address: str, *, is_real: bool) -> Document:
    """Return the status of a pod whose containers run from now on.

    The sandbox's stand-in has no period in which it leaves new pods out.
    """
    status = well() if is_real else well(timestamp(CLOCK.wall()))
    kinds = {each["type"] for each in status["conditions"]}
    before = [each for each in pod["status"].get("conditions") or () if each["type"] not in kinds]
    status["conditions"] = before + status["conditions"]
    return status | {"podIP": address, "podIPs": [{"ip": address}]}


@contextlib.asynccontextmanager
async def workloads(sandbox: Cluster, startup: float = math.inf) -> AsyncIterator[None]:
    """Give Deployments their pods until the block ends, which start by themselves after so many seconds."""
    workloads = Workloads(sandbox, startup=startup)

    async def step() -> None:
        while True:
            workloads.step(CLOCK.wall())
            await asyncio.sleep(_STEP_SECONDS)

    async with running(step()):
        yield


def autoscaling(cluster: ClusterUnderTest, adapter: Adapter) -> contextlib.AbstractAsyncContextManager[None]:
    """Run the stand-in of the native controller."""
    kubeconfig, directory, dice = cluster.admin_kubeconfig, cluster.directory, random.Random(3)
    return native_hpa.running(
        kubeconfig, adapter, directory, CLOCK, period=PERIOD, settings=SETTINGS, random=dice.random
    )
