"""Writes the statuses of autoscalers: important changes at once, the rest at most every 15 s.

Of each object only the latest status is written. It is urgent if a replica count, or the status or reason of
a condition, differs from what is written. A status that could not be written is retried. Urgent statuses go
first, but for a tenth of the turns.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from adapter import errors
from adapter.kubernetes.heads import WithMetadata
from adapter.kubernetes.write.outbox import IDLE, Outbox, OutboxKey, Outlet, SendTime
from adapter.kubernetes.write.writer import WriteKind, Writer
from adapter.model.autoscaling import status as conditions
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerStatus
from adapter.telemetry.problems import ProblemLog

PERIOD = 15.0
"""Seconds between two writes of statuses that differ only in metric values and messages."""

AT_ONCE = 8
"""Number of concurrent writes of a process."""

AGAIN = 5
RETRY, RETRY_LIMIT = 1.0, 15.0
FAULT = "status-write"
_PATCH = "application/json-patch+json"
_OTHER_OBJECT = "OtherObject"
_DOUBLINGS = 10  # cap on the backoff exponent: 2**n stays small after hours of failures
_NO_STATUS = HorizontalPodAutoscalerStatus()


class StatusUpdate(NamedTuple):
    """A status to write.

    `path` is that of the status subresource, `resource_version` the version of the object that the decision
    read. `status` determines the urgency; `document` builds the JSON, which may contain more, when it is
    written.
    """

    namespace: str
    name: str
    uid: str
    path: str
    resource_version: str
    status: HorizontalPodAutoscalerStatus
    document: Callable[[], Mapping[str, object]]


def is_urgent(written: HorizontalPodAutoscalerStatus, wanted: HorizontalPodAutoscalerStatus) -> bool:
    """Whether replicas, or the status or reason of a condition, differ from what is written.

    lastScaleTime counts too: the status carries the scale events that policies count.
    """
    return _matters(written) != _matters(wanted)


def _matters(status: HorizontalPodAutoscalerStatus) -> tuple[object, ...]:
    states = [(condition.type, condition.status, condition.reason) for condition in status.conditions or ()]
    return status.current_replicas, status.desired_replicas, status.last_scale_time, states


@dataclass(slots=True, eq=False)
class ObjectStatus:
    """The status of one object: what it is to be, and what it was when it was last read or written."""

    uid: str
    subject: str
    written: HorizontalPodAutoscalerStatus
    written_at: float
    wanted: StatusUpdate | None
    sending: StatusUpdate | None = None
    """What was sent last, until that has succeeded."""

    @property
    def is_urgent(self) -> bool:
        return self.wanted is not None and is_urgent(self.written, self.wanted.status)


class StatusOutlet(Outlet[ObjectStatus]):
    """Sends statuses of autoscalers.

    `failed` is called for each status that the API server refuses.
    """

    kind = WriteKind.STATUS
    unexpected = "unexpected error while writing the status of an autoscaler"
    at_once = AT_ONCE
    ranks = 2  # the urgent ones come first

    def __init__(
        self,
        outbox: Outbox,
        problems: ProblemLog,
        refused: Callable[[StatusUpdate, errors.KubernetesError], None] = lambda _update, _error: None,
    ) -> None:
        super().__init__(outbox)
        self._problems = problems
        self._refused = refused

    def put(self, update: StatusUpdate, seen: HorizontalPodAutoscalerStatus | None) -> None:
        """Queue a status; `seen` is the status that the object was read with. Never waits."""
        subject, now = f"{update.namespace}/{update.name}", self.outbox.clock.monotonic()
        status = ObjectStatus(update.uid, subject, seen or _NO_STATUS, now, update)
        self.submit(OutboxKey(update.namespace, update.name), status)

    def forget(self, namespace: str, name: str) -> None:
        self.withdraw(OutboxKey(namespace, name))
        self._problems.resolve(FAULT, subject=f"{namespace}/{name}")

    def merge(self, before: ObjectStatus, new: ObjectStatus) -> ObjectStatus:
        """Want the new status.

        For one period after a write our own status is more recent than the cache. After that the one that was
        read counts, because another client may have written.
        """
        if before.uid != new.uid:
            return new
        if new.written_at - before.written_at > PERIOD:
            before.written = new.written
        before.wanted = new.wanted
        return before

    def due(self, value: ObjectStatus, now: float) -> SendTime:
        if value.wanted is None or conditions.same_status(value.written, value.wanted.status):
            value.wanted = None
            return IDLE
        return SendTime(now, 0) if value.is_urgent else SendTime(value.written_at + PERIOD, 1)

    def ends(self, value: ObjectStatus) -> bool:
        return value.is_urgent

    def subject(self, value: ObjectStatus) -> str:
        return value.subject

    async def send(self, value: ObjectStatus, writer: Writer) -> None:
        assert value.wanted is not None, "else it is not due"
        value.sending = value.wanted
        await self._patch(value.sending, writer)
        value.written, value.written_at = value.sending.status, self.outbox.clock.monotonic()
        value.sending = None
        self._problems.resolve(FAULT, subject=value.subject)

    def failed(self, value: ObjectStatus, error: Exception, tries: int) -> float | None:
        """Note a failure; the status of an object that is gone is not written again."""
        sent = value.sending
        if isinstance(error, errors.KubernetesError) and sent is not None:
            if error.status == 404 or error.reason == _OTHER_OBJECT:
                self._problems.resolve(FAULT, subject=value.subject)
                value.wanted = None if value.wanted is sent else value.wanted
                return None
            message = "a status could not be written"
            self._problems.report(FAULT, message, str(error), subject=value.subject)
            with self._problems.defects.contain(self.unexpected, value.subject):
                self._refused(sent, error)
        return min(RETRY_LIMIT, RETRY * 2.0 ** min(tries - 1, _DOUBLINGS))

    def dropped(self, value: ObjectStatus) -> None:
        self._problems.resolve(FAULT, subject=value.subject)

    async def _patch(self, update: StatusUpdate, writer: Writer) -> None:
        """Replace the status, after a conflict also on a newer version: no other client owns it."""
        version = update.resource_version
        for left in reversed(range(AGAIN + 1)):
            try:
                content = msgspec.json.encode(_operations(update, version))
                await writer.send(WriteKind.STATUS, "PATCH", update.path, content, content_type=_PATCH)
            except errors.KubernetesError as error:
                if error.status != 409 or not left:
                    raise
            else:
                return
            path = update.path
            body = await writer.client.get(path)
            metadata = body.decode(WithMetadata[_ObjectIdentity], f"get {path}").metadata
            if metadata.uid != update.uid:
                message = f"cannot get {path}: another object has this name now"
                raise errors.KubernetesError(0, _OTHER_OBJECT, message)
            version = metadata.resource_version
            await writer.acquire(WriteKind.STATUS)


class _ObjectIdentity(msgspec.Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""


def _operations(update: StatusUpdate, version: str) -> list[dict[str, object]]:
    """Build the JSON patch. Version and uid are preconditions: the API server responds 409 if they differ."""
    bound = {"/metadata/uid": update.uid, "/metadata/resourceVersion": version}
    operations: list[dict[str, object]] = [
        {"op": "replace", "path": path, "value": value} for path, value in bound.items() if value
    ]
    operations.append({"op": "add", "path": "/status", "value": update.document()})
    return operations
