"""Reads and writes the scale of a target.

A write is one PUT against the resource version that the count was decided from, so that it never overwrites a
change that the decision did not see. After a conflict the caller reads the scale and decides again.
"""

from collections.abc import Callable

import msgspec

from adapter import errors
from adapter.kubernetes import transport
from adapter.kubernetes.cache import scale_codec
from adapter.kubernetes.cache.scale_codec import ObservedScale
from adapter.kubernetes.cache.scale_targets import ScaleTarget
from adapter.kubernetes.client import ResponseBody
from adapter.kubernetes.codec import UNREADABLE
from adapter.kubernetes.write.writer import WriteKind, Writer


class ScaleWriter:
    """Reads and writes scales. All calls raise `errors.KubernetesError`, those that write NotLeadingError.

    `find_writer` returns the writer of a namespace; NotLeadingError if this process may not write there.
    """

    def __init__(self, find_writer: Callable[[str], Writer]) -> None:
        self._find_writer = find_writer

    async def acquire(self, target: ScaleTarget) -> None:
        """Wait for the write slot of one `put_scale`."""
        _, namespace, _, name, _ = target.path.rsplit("/", 4)
        await self._find_writer(namespace).acquire(WriteKind.SCALE, namespace, name)

    def give_back(self, target: ScaleTarget) -> None:
        self._find_writer(target.path.rsplit("/", 4)[1]).give_back()

    async def put_scale(self, target: ScaleTarget, replicas: int) -> str:
        """Write a count against the version of the target; return the new version."""
        _, namespace, _, name, _ = target.path.rsplit("/", 4)
        document = {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {"name": name, "namespace": namespace, "resourceVersion": target.resource_version},
            "spec": {"replicas": replicas},
        }
        content = msgspec.json.encode(document)
        writer = self._find_writer(namespace)
        response = await writer.send(WriteKind.SCALE, "PUT", target.path, content)
        return _decode(response, f"update {target.path}").resource_version

    async def get_scale(self, target: ScaleTarget) -> ScaleTarget:
        """Read the scale of a target, which does not name the writer of the count."""
        client = self._find_writer(target.path.rsplit("/", 4)[1]).client
        seen = _decode(await client.get(target.path), f"get {target.path}")
        return target._replace(
            replicas=seen.replicas or 0,
            status_replicas=seen.status_replicas,
            selector=seen.selector,
            resource_version=seen.resource_version,
            manager="",
            uid=seen.uid or target.uid,
            since="",
        )


def is_superseded(error: errors.KubernetesError) -> bool:
    """Tell whether a failed PUT is to be decided again from the current scale.

    So it is after a conflict, when the server asks to come later (429), and when the connection broke: then
    the scale shows whether the write was applied.
    """
    return error.status in {409, 429} or error.reason == transport.RESET


def may_be_ours(error: errors.KubernetesError) -> bool:
    """Tell whether the scale that is read after a failed PUT may show the count that this PUT wrote.

    A conflict after a repeated request may be a conflict with the first one.
    """
    return error.sent_twice or error.reason == transport.RESET


def _decode(response: ResponseBody, what: str) -> ObservedScale:
    why = "without a resource version"
    try:
        seen = scale_codec.read_scale(response.content, "", "")
    except UNREADABLE as error:
        why = str(error)
    else:
        if seen.resource_version:  # else a PUT could not be bound to what was read
            return seen
    raise errors.KubernetesError(0, "Decode", f"cannot {what}: response is not a Scale object ({why})")
