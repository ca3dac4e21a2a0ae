"""Reads the metrics APIs through the API server, as the HPA controller does: values that no rule of ours has.

Paths and the order of parameters are those of the HPA controller's clients. Of metrics.k8s.io v1 is read
where it is registered, else v1beta1.
"""

import asyncio
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from adapter import errors
from adapter.kubernetes.client import KubernetesClient
from adapter.kubernetes.codec import UNREADABLE
from adapter.model import go_text
from adapter.model.autoscaling.hpa import (
    CustomMetricValue,
    ExternalMetricValue,
    PodMetrics,
    Struct,
    decode_scalar,
)
from adapter.model.clock import Clock
from adapter.model.timestamps import Instant

_CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"
_EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"
_RESOURCE = "/apis/metrics.k8s.io"
_PODS = "pods.metrics.k8s.io"
RESOURCE_VERSIONS = ("v1", "v1beta1")
_OLDEST = "v1beta1"

_REFRESH_EVERY = 60.0
"""Seconds after which discovery is read again: a server may have got a newer version."""


class TimedCustomValue(CustomMetricValue, frozen=True):
    """A custom metric of one object, when it was taken, and over how many seconds."""

    timestamp: Instant | None = None
    window_seconds: int | None = None


class TimedExternalValue(ExternalMetricValue, frozen=True):
    """One series of an external metric, with its timestamp and window."""

    timestamp: Instant | None = None
    window: int | None = None


_T = TypeVar("_T")


class _ItemList(Struct, Generic[_T], frozen=True):
    items: tuple[_T, ...] | None = None


_CUSTOM_LIST = msgspec.json.Decoder(_ItemList[TimedCustomValue], dec_hook=decode_scalar)
_EXTERNAL_LIST = msgspec.json.Decoder(_ItemList[TimedExternalValue], dec_hook=decode_scalar)
_RESOURCE_LIST = msgspec.json.Decoder(_ItemList[PodMetrics], dec_hook=decode_scalar)


class _Version(Struct, frozen=True):
    version: str


class _Group(Struct, frozen=True):
    versions: tuple[_Version, ...]


class ResourceVersion:
    """Which version of metrics.k8s.io to read: the first of `versions` that is registered.

    Discovery lists what is registered. A version that is not available (503) stays the choice, so that its
    failure is seen: another version may be another server's, with other values. A version that is not found
    (404) is not served, and the next one is read until discovery is read again.
    """

    def __init__(self, client: KubernetesClient, clock: Clock, versions: Sequence[str]) -> None:
        self._client = client
        self._clock = clock
        self._versions = versions
        self._chosen = ""
        self._refreshes = 0
        self._next_refresh = float("-inf")
        self._refreshing = asyncio.Lock()

    async def current(self) -> str:
        """Return the version to read, "" if none is registered."""
        is_due = self._clock.monotonic() >= self._next_refresh
        if not self._chosen or (is_due and not self._refreshing.locked()):
            await self._refresh(self._refreshes)
        return self._chosen

    async def after_not_found(self, version: str) -> str:
        """Return the version to read after a 404 of `version`, "" if none is registered."""
        if self._chosen == version:
            await self._refresh(self._refreshes, refused=version)
        return self._chosen

    async def _refresh(self, refreshes: int, refused: str = "") -> None:
        """Read discovery, unless another call has read it since there were `refreshes`."""
        async with self._refreshing:
            if self._refreshes != refreshes:
                return
            registered = await self._discover()
            others = [version for version in registered if version != refused]
            self._chosen = next(iter(others or registered), "")
            self._refreshes += 1
            self._next_refresh = self._clock.monotonic() + _REFRESH_EVERY

    async def _discover(self) -> Sequence[str]:
        """Return those of `versions` that are registered.

        If discovery cannot be read, any may be: first the one that was read so far, else v1beta1, which
        every server has.
        """
        if len(self._versions) == 1:
            return self._versions
        try:
            body = await self._client.get(_RESOURCE)
            listed = {entry.version for entry in msgspec.json.decode(body.content, type=_Group).versions}
        except (errors.KubernetesError, *UNREADABLE) as error:
            if isinstance(error, errors.KubernetesError) and error.status == 404:
                return ()
            return sorted(self._versions, key=lambda version: (version != self._chosen, version != _OLDEST))
        return [version for version in self._versions if version in listed]


class Described(NamedTuple):
    """A described object; `resource` is ``plural.group``."""

    resource: str
    namespace: str
    name: str


class MetricsAPI:
    """The metrics APIs of a cluster.

    `resource_versions` are those of metrics.k8s.io to read, the preferred one first.
    """

    def __init__(
        self, client: KubernetesClient, clock: Clock, resource_versions: Sequence[str] = RESOURCE_VERSIONS
    ) -> None:
        self._client = client
        self._resource_version = ResourceVersion(client, clock, resource_versions)

    async def pods(
        self, namespace: str, metric: str, selector: str, metric_selector: str
    ) -> Sequence[TimedCustomValue]:
        path = f"{_CUSTOM}/namespaces/{_escaped(namespace)}/pods/{_escaped('*')}/{_escaped(metric)}"
        return await self._get(path, selector, metric_selector, _CUSTOM_LIST, "pods.custom.metrics.k8s.io *")

    async def described(
        self, described: Described, metric: str, metric_selector: str
    ) -> Sequence[TimedCustomValue]:
        """Return a custom metric of one object. Namespaces have paths of their own."""
        resource, namespace, name = described
        if name in {"", ".", ".."} or not {"/", "%"}.isdisjoint(name):
            # as client-go: even escaped, these name another path
            raise errors.KubernetesError(0, "Invalid", f"invalid resource name {go_text.quote(name)}")
        within = "metrics" if resource == "namespaces" else f"{_escaped(resource.lower())}/{_escaped(name)}"
        path = f"{_CUSTOM}/namespaces/{_escaped(namespace)}/{within}/{_escaped(metric)}"
        parts = ("metrics", metric) if resource == "namespaces" else (resource, name)
        subject = "{}.custom.metrics.k8s.io {}".format(*parts)
        return await self._get(path, "", metric_selector, _CUSTOM_LIST, subject)

    async def external(
        self, namespace: str, metric: str, metric_selector: str
    ) -> Sequence[TimedExternalValue]:
        """Return the series of an external metric. Its name becomes lower case, as in the HPA controller."""
        path = f"{_EXTERNAL}/namespaces/{_escaped(namespace)}/{_escaped(metric.lower())}"
        subject = f"{metric}.external.metrics.k8s.io"
        return await self._get(path, metric_selector, "", _EXTERNAL_LIST, subject)

    async def resource(self, namespace: str, selector: str) -> Sequence[PodMetrics]:
        version = await self._resource_version.current()
        if not version:
            refusal = errors.KubernetesError(404, "NotFound", "no version is registered")
            raise _in_upstreams_words(refusal, _PODS)
        try:
            return await self._list_pods(version, namespace, selector)
        except errors.KubernetesError as error:
            if error.status != 404:
                raise
            other = await self._resource_version.after_not_found(version)
            if other in {"", version}:
                raise
        return await self._list_pods(other, namespace, selector)

    async def _list_pods(self, version: str, namespace: str, selector: str) -> Sequence[PodMetrics]:
        path = f"{_RESOURCE}/{version}/namespaces/{_escaped(namespace)}/pods"
        return await self._get(path, selector, "", _RESOURCE_LIST, _PODS)

    async def _get(
        self,
        path: str,
        selector: str,
        metric_selector: str,
        decoder: msgspec.json.Decoder[_ItemList[_T]],
        subject: str,
    ) -> Sequence[_T]:
        parameters = {"labelSelector": selector, "metricLabelSelector": metric_selector}
        query = urlencode({name: value for name, value in parameters.items() if value})
        try:
            body = await self._client.get(f"{path}?{query}" if query else path)
        except errors.KubernetesError as error:
            raise _in_upstreams_words(error, subject) from error
        try:
            return decoder.decode(body.content).items or ()
        except (*UNREADABLE, ValueError) as error:
            raise errors.KubernetesError(
                0, "Decode", f"cannot get {path}: the response is not a list of values"
            ) from error


def _escaped(segment: str) -> str:
    """Quote one path segment. Kubernetes allows ``?`` and ``#`` in names of objects."""
    return quote(segment, safe="")


_GENERIC = {
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted,"
    " but may still be processing the request",
}
"""client-go's messages for a response that is not a Status."""


def _in_upstreams_words(error: errors.KubernetesError, subject: str) -> errors.KubernetesError:
    """Return a refusal with client-go's message: the server's, else one by status and `subject`.

    Without a response the message is ours.
    """
    if not error.status:
        return error
    if error.said and not error.plain:
        text = error.said
    else:
        message = error.said or "unknown"
        if error.status in _GENERIC:
            words = _GENERIC[error.status]
        elif error.status == 403:
            words = message
        elif error.status >= 500:
            words = f'an error on the server ("{message}") has prevented the request from succeeding'
        else:
            words = (
                f"the server responded with the status code {error.status}"
                " but did not return more information"
            )
        text = f"{words} (get {subject})"
    return errors.KubernetesError(error.status, error.reason, text, error.retry_after)
