"""The one door through which the scaler writes: the fence, the budget, the wire, and the count of what came of it.

What lives here: what every write has in common. Not here: floors (`floorwriter`), Scales (`scalewriter`), statuses (`statuswriter`), events (`events`). The
law: a write that does not come through here does not exist; the fence is asked three times, when the write is asked for, when its
turn has come, and when its first byte is about to leave.
"""

import asyncio
from typing import Literal

from adapter import errors
from adapter.kubernetes import client as kubernetes
from adapter.kubernetes.client import KubernetesClient, ResponseBody
from adapter.kubernetes.leader.fence import Fence
from adapter.kubernetes.transport import Parameters
from adapter.kubernetes.write.rate_limiter import Kind, WriteBudget
from adapter.model.clock import Clock
from adapter.telemetry.metrics import Monitoring

FIELD_MANAGER = "fastpath"
"""Under which name our writes stand in ``metadata.managedFields``."""

WRITE_SECONDS = 5.0
"""How long a write may take, if the fence leaves that much."""

PAUSE_LIMIT = 10.0
"""The longest pause that is made because the API server asks for one."""

_REFUSED = frozenset({400, 401, 403, 404, 405, 410, 413, 415, 422})
_OVERLOADED = 429
_NEVER_SENT = frozenset({"Closed", "Unreachable"})


class Writer:
    """Writes as the leader of one term. Its calls raise `errors.NotLeadingError` when nothing was, or may have been, sent by right."""

    def __init__(
        self,
        client: KubernetesClient,
        fence: Fence,
        budget: WriteBudget,
        clock: Clock,
        monitoring: Monitoring,
    ) -> None:
        self.client = client
        self.fence = fence
        self._budget = budget
        self._clock = clock
        self._monitoring = monitoring

    async def turn(self, kind: Kind, namespace: str = "", name: str = "") -> None:
        """Return when a write of that kind may be made, to be followed by `send` at once.

        What is sent has to be right by then. Turns are divided fairly between namespaces, and between the objects of one.
        """
        try:
            self.fence.check()
            await self._budget.turn(kind, namespace, name)
        except errors.NotLeadingError:
            self._count(kind, "fenced")
            raise

    async def send(
        self,
        kind: Kind,
        method: Literal["POST", "PUT", "PATCH", "DELETE"],
        path: str,
        content: bytes,
        *,
        content_type: str = "application/json",
        parameters: Parameters = kubernetes.NOTHING,
    ) -> ResponseBody:
        """Write, as `KubernetesClient.write`; `errors.KubernetesError` as that.

        A pause that the server asks for is made by all writes of that kind, and by those behind it.
        """
        start = self._clock.monotonic()
        try:
            seconds = min(self.fence.check(), WRITE_SECONDS)
            answer = await self.client.write(
                method,
                path,
                content,
                content_type=content_type,
                parameters={**parameters, "fieldManager": FIELD_MANAGER},
                seconds=seconds,
                check=self.fence.check,
            )
        except errors.NotLeadingError:
            self._count(kind, "fenced")
            raise
        except errors.KubernetesError as error:
            if error.retry_after is not None:
                self._budget.pause(min(error.retry_after, PAUSE_LIMIT), kind)
            self._count(kind, _outcome(error))
            raise
        except asyncio.CancelledError:
            self._count(kind, "failed")
            raise
        self._count(kind, "success")
        self._monitoring.write_duration.labels(kind.label).observe(self._clock.monotonic() - start)
        return answer

    def _count(self, kind: Kind, outcome: str) -> None:
        self._monitoring.writes.labels(kind.label, outcome).inc()


def is_overloaded(error: errors.KubernetesError) -> bool:
    """Tell whether the API server has put a request off: it did nothing, and may be asked again later."""
    return error.status == _OVERLOADED


def may_have_been_made(error: errors.KubernetesError) -> bool:
    """Tell whether a write may have been made although it failed: it was sent, and nobody said that it was not."""
    return error.status >= 500 or (error.status == 0 and error.reason not in _NEVER_SENT)


def _outcome(error: errors.KubernetesError) -> str:
    if error.status == 409:
        return "conflict"
    return "refused" if error.status in _REFUSED else "failed"
