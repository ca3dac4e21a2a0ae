"""Deletes the ConfigMaps with floors that shards of another total have left behind.

After a change of ``--shard`` from x/3 to x/2 the ConfigMaps of the three stay. Their floors are served
until they end, ten minutes at most, because a workload must not shrink when the scaler is deployed again.
After that the leader of the first shard of the present total deletes them.

That is safe while shards of another total still run, which they should not: a ConfigMap is deleted in the
version in which nothing in it counted any more, and a leader whose ConfigMap is gone creates it again when
it has something to publish.
"""

import asyncio

import msgspec

from adapter import errors
from adapter.boost.view import FloorView
from adapter.kubernetes.write.client import Writer
from adapter.kubernetes.write.rate_limiter import WriteKind
from adapter.model.shards import Shard
from adapter.telemetry.problems import ProblemLog

PERIOD = 60.0
"""Seconds between two looks."""

FAULT = "floor-cleanup"
_FORBIDDEN = 403
_NO_MATTER = frozenset({404, 409})
"""It is gone, or was written since: the next look tells."""


class FloorCleaner:
    """Deletes what is left over where `view` reads, as the leader of one term of the first shard."""

    def __init__(self, writer: Writer, view: FloorView, shard: Shard, faults: ProblemLog) -> None:
        self._writer = writer
        self._view = view
        self._total = shard.total
        self._faults = faults

    async def run(self) -> None:
        """Delete what is left over, until cancelled."""
        try:
            while True:
                await asyncio.sleep(PERIOD)
                await self.clean()
        finally:
            self._faults.resolve(FAULT)

    async def clean(self) -> None:
        """Delete what is left over now. What cannot be deleted is said once."""
        fault = ""
        try:
            for name, version in self._view.leftovers(self._total):
                fault = await self._delete(name, version) or fault
        except (errors.NotSyncedError, errors.NotLeadingError):
            return  # the next look tells, or the term is over
        if fault:
            self._faults.report(
                FAULT, "floors of a former --shard total cannot be deleted; they are not served", fault
            )
        else:
            self._faults.resolve(FAULT)

    async def _delete(self, name: str, version: str) -> str:
        """Delete a ConfigMap in that version; return why that failed, "" where it did not, or does not matter."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"resourceVersion": version}}
        path = f"/api/v1/namespaces/{self._view.namespace}/configmaps/{name}"
        await self._writer.acquire(WriteKind.FLOOR)
        try:
            await self._writer.send(WriteKind.FLOOR, "DELETE", path, msgspec.json.encode(options))
        except errors.KubernetesError as error:
            if error.status in _NO_MATTER:
                return ""
            if error.status != _FORBIDDEN:
                return str(error)
            remedy = f"kubectl delete configmap {name} -n {self._view.namespace}"
            return f"{error}; grant delete on the ConfigMap, or run: {remedy}"
        return ""
