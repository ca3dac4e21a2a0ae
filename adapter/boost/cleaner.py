"""Deletes the ConfigMaps with floors that shards of another total have left behind.

After a change of ``--shard`` from x/3 to x/2 the ConfigMaps of the three stay. Their floors are served until
they end, ten minutes at most, because a new deployment of the scaler must not scale workloads down. After
that the leader of the first shard deletes them. This is safe even if shards of another total still run: a
ConfigMap is deleted in the version that held nothing any more, and a leader whose ConfigMap is gone creates
it again for its next floor.
"""

import asyncio

import msgspec

from adapter import errors
from adapter.boost.view import FloorView
from adapter.kubernetes.write.writer import WriteKind, Writer
from adapter.model.autoscaling.shards import Shard
from adapter.model.clock import Clock
from adapter.model.timestamps import SECOND
from adapter.telemetry.problems import ProblemLog

PERIOD = 60.0
"""Seconds between two checks."""

FAULT = "floor-cleanup"
_FORBIDDEN = 403
_SETTLED = frozenset({404, 409})
"""It is gone, or was written since: the next check decides."""


class FloorCleaner:
    """Deletes leftovers in the namespace of `view`, as the leader of one term of the first shard."""

    def __init__(
        self, writer: Writer, view: FloorView, shard: Shard, clock: Clock, faults: ProblemLog
    ) -> None:
        self._writer = writer
        self._view = view
        self._total = shard.total
        self._clock = clock
        self._faults = faults

    async def run(self) -> None:
        try:
            while True:
                await asyncio.sleep(PERIOD)
                await self.clean()
        finally:
            self._faults.resolve(FAULT)

    async def clean(self) -> None:
        fault = ""
        try:
            floors = await self._view.current()
            wall, now = int(self._clock.wall() * SECOND), self._clock.monotonic()
            for name, version in floors.leftovers(self._total, wall, now):
                fault = await self._delete(name, version) or fault
        except (errors.NotSyncedError, errors.NotLeadingError):
            return  # the next check decides, or the term is over
        if fault:
            message = "floors of a former --shard total cannot be deleted; they are not served"
            self._faults.report(FAULT, message, fault)
        else:
            self._faults.resolve(FAULT)

    async def _delete(self, name: str, version: str) -> str:
        """Delete a ConfigMap in this version; return why that failed, "" if there is nothing to do."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"resourceVersion": version}}
        path = f"/api/v1/namespaces/{self._view.namespace}/configmaps/{name}"
        await self._writer.acquire(WriteKind.FLOOR)
        try:
            await self._writer.send(WriteKind.FLOOR, "DELETE", path, msgspec.json.encode(options))
        except errors.KubernetesError as error:
            if error.status in _SETTLED:
                return ""
            if error.status != _FORBIDDEN:
                return str(error)
            remedy = f"kubectl delete configmap {name} -n {self._view.namespace}"
            return f"{error}; grant delete on the ConfigMap, or run: {remedy}"
        return ""
