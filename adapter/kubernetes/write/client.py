"""Sends every write of the scaler: checks the lease fence, waits for the rate limiter, counts outcomes.

All kinds of writes (floors, Scales, statuses, events) go through one `Writer`. It checks the fence three
times: when a write slot is asked for, when the write is sent, and by `fenced_request` right before the first
byte leaves.
"""

import asyncio
from typing import Literal

from adapter import errors
from adapter.kubernetes import client as kubernetes
from adapter.kubernetes.client import KubernetesClient, ResponseBody
from adapter.kubernetes.leader.fence import Fence
from adapter.kubernetes.transport import Parameters
from adapter.kubernetes.write.rate_limiter import WriteKind, WriteRateLimiter
from adapter.model.clock import Clock
from adapter.telemetry.metrics import Monitoring

FIELD_MANAGER = "fastpath"
"""Our name in ``metadata.managedFields``."""

WRITE_SECONDS = 5.0
"""The time limit of a write; the fence may allow less."""

PAUSE_LIMIT = 10.0
"""Cap on the Retry-After of the API server."""

_REFUSED = frozenset({400, 401, 403, 404, 405, 410, 413, 415, 422})
_OVERLOADED = 429
_NEVER_SENT = frozenset({"Closed", "Unreachable"})


class Writer:
    """Writes as the leader of one term.

    Calls raise `errors.NotLeadingError` if the lease may have been lost before the request was sent.
    """

    def __init__(
        self,
        client: KubernetesClient,
        fence: Fence,
        limiter: WriteRateLimiter,
        clock: Clock,
        monitoring: Monitoring,
    ) -> None:
        self.client = client
        self.fence = fence
        self._limiter = limiter
        self._clock = clock
        self._monitoring = monitoring

    async def acquire(self, kind: WriteKind, namespace: str = "", name: str = "") -> None:
        """Wait for the slot of one write, to be followed by `send` at once.

        Decide what to send only after this: the wait may be long. Slots are shared fairly between namespaces,
        and between the objects of one.
        """
        try:
            self.fence.check()
            await self._limiter.acquire(kind, namespace, name)
        except errors.NotLeadingError:
            self._count(kind, "fenced")
            raise

    async def send(
        self,
        kind: WriteKind,
        method: Literal["POST", "PUT", "PATCH", "DELETE"],
        path: str,
        content: bytes,
        *,
        content_type: str = "application/json",
        parameters: Parameters = kubernetes.NOTHING,
    ) -> ResponseBody:
        """Write as `KubernetesClient.write` does; `errors.KubernetesError` as there.

        A Retry-After of the server delays all writes of this kind and of the kinds with a lower priority.
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
                self._limiter.pause(min(error.retry_after, PAUSE_LIMIT), kind)
            self._count(kind, _outcome(error))
            raise
        except asyncio.CancelledError:
            self._count(kind, "failed")
            raise
        self._count(kind, "success")
        self._monitoring.write_duration.labels(kind.label).observe(self._clock.monotonic() - start)
        return answer

    def _count(self, kind: WriteKind, outcome: str) -> None:
        self._monitoring.writes.labels(kind.label, outcome).inc()


def is_overloaded(error: errors.KubernetesError) -> bool:
    """Tell whether the API server rejected a request with 429, so that it may be repeated."""
    return error.status == _OVERLOADED


def may_have_been_applied(error: errors.KubernetesError) -> bool:
    """Tell whether a failed write may have been applied: it was sent, and no response denies it."""
    return error.status >= 500 or (error.status == 0 and error.reason not in _NEVER_SENT)


def _outcome(error: errors.KubernetesError) -> str:
    if error.status == 409:
        return "conflict"
    return "refused" if error.status in _REFUSED else "failed"
