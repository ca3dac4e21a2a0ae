"""Writing the scale of a target: one PUT against the version that the decision was made for.

What lives here: the Scale on the wire, and what follows when somebody else has written meanwhile. Not here: how many replicas
(`autoscaler.decide.decision`). The law: a count is written only onto the state it was decided from; onto any other state somebody decides
again, from what is there by then.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from adapter import errors
from adapter.kubernetes import api_errors, client
from adapter.kubernetes.codec import UNREADABLE
from adapter.kubernetes.write.client import Writer, is_overloaded
from adapter.kubernetes.write.rate_limiter import Kind

AGAIN = 5
"""How often it is decided again before the write is given up."""


class ScaleSeen(NamedTuple):
    """A Scale as it was read or written. `selector` is text; `resource_version` and `uid` are the target's own.

    `unsure` says that a write of ours, sent before this was read, may have been made although nobody said so.
    """

    replicas: int
    status_replicas: int
    selector: str
    resource_version: str
    uid: str = ""
    unsure: bool = False


class ScaleOf(NamedTuple):
    """Whose scale: `path` is that of the scale subresource, from ``/apis/`` on."""

    path: str
    namespace: str
    name: str


Again = Callable[[ScaleSeen], int | None]
"""Decides again from what is there now: the count to write, None when there is nothing left to write."""

Current = Callable[[], int | None]
"""Tells, when a write's turn has come, which count is right by then; None for none."""


class ScaleWriter:
    """Writes scales through a `Writer`."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def fetch(self, target: ScaleOf) -> ScaleSeen:
        """Return the scale as the API server has it."""
        answer = await self._writer.client.get(target.path)
        return _decode(answer, f"get {target.path}")

    async def write(
        self,
        target: ScaleOf,
        replicas: int,
        resource_version: str,
        again: Again,
        current: Current | None = None,
    ) -> ScaleSeen | None:
        """Write a count decided from `resource_version`; return the scale as it is after that, None if nothing was written.

        Where somebody else has written since, or the server put the write off, the scale is read and `again` asked, at most
        `AGAIN` times. `current` is asked whenever the turn of a write has come. `errors.KubernetesError` when it cannot be written (whether a write without an answer was made shows in
        the next reading), `errors.NotLeadingError` when it may not be.
        """
        wanted: int | None = replicas
        left = AGAIN
        unsure = False
        reset: errors.KubernetesError | None = None
        if not resource_version:
            wanted, resource_version = await self._look(target, again, reset, unsure=unsure)
        while wanted is not None:
            await self._writer.turn(Kind.SCALE, target.namespace, target.name)
            if current is not None and (wanted := current()) is None:
                return None
            try:
                return await self._put(target, wanted, resource_version)
            except errors.KubernetesError as error:
                if not left or not (
                    error.status == 409 or is_overloaded(error) or error.reason == api_errors.RESET
                ):
                    raise
                if error.reason == api_errors.RESET:
                    reset = error
                unsure = unsure or error.sent_twice or error.reason == api_errors.RESET
            left -= 1
            wanted, resource_version = await self._look(target, again, reset, unsure=unsure)
        return None

    async def _look(
        self, target: ScaleOf, again: Again, reset: errors.KubernetesError | None, *, unsure: bool
    ) -> tuple[int | None, str]:
        """Read the scale and decide again. Where that fails after a write without an answer, that write is the error to tell of."""
        try:
            seen = await self.fetch(target)
        except errors.KubernetesError as error:
            if reset is not None:
                raise reset from error
            raise
        return again(seen._replace(unsure=unsure)), seen.resource_version

    async def _put(self, target: ScaleOf, replicas: int, resource_version: str) -> ScaleSeen:
        document = {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {
                "name": target.name,
                "namespace": target.namespace,
                "resourceVersion": resource_version,
            },
            "spec": {"replicas": replicas},
        }
        answer = await self._writer.send(Kind.SCALE, "PUT", target.path, msgspec.json.encode(document))
        return _decode(answer, f"update {target.path}")


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    uid: str = ""


class _Spec(msgspec.Struct):
    replicas: int = 0


class _Status(msgspec.Struct):
    replicas: int = 0
    selector: str = ""


class _Scale(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


_SCALE = msgspec.json.Decoder(_Scale)


def _decode(answer: client.ResponseBody, what: str) -> ScaleSeen:
    try:
        scale = _SCALE.decode(answer.content)
    except UNREADABLE as error:
        raise errors.KubernetesError(
            0, "Decode", f"cannot {what}: the answer is no Scale ({error})"
        ) from error
    spec, status, meta = scale.spec, scale.status, scale.metadata
    return ScaleSeen(spec.replicas, status.replicas, status.selector, meta.resource_version, meta.uid)
