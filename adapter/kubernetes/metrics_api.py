"""Reads the metrics APIs through the API server, as the HPA controller does: values that no rule of ours has.

Paths and the order of parameters are those of the HPA controller's clients. Of custom.metrics.k8s.io they
read the version that discovery prefers: prometheus-adapter serves v1beta1 alone. Of external.metrics.k8s.io
there is only v1beta1. Of metrics.k8s.io v1 is read where it is registered, else v1beta1.
"""

import asyncio
from collections.abc import Sequence
from typing import Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from adapter import errors
from adapter.kubernetes.client import KubernetesClient
from adapter.kubernetes.codec import UNREADABLE
from adapter.model import go_text
from adapter.model.autoscaling import hpa
from adapter.model.clock import Clock
from adapter.model.objects import apiservices
from adapter.model.objects.api_objects import Struct
from adapter.model.timestamps import Instant

_CUSTOM = "custom.metrics.k8s.io"
_EXTERNAL = "external.metrics.k8s.io"
_RESOURCE = "metrics.k8s.io"
RESOURCE_VERSIONS = ("v1", "v1beta1")
_OLDEST = "v1beta1"

_REFRESH_EVERY = 60.0
"""Seconds after which discovery is read again: a server may have got a newer version."""


class TimedCustomValue(hpa.CustomMetricValue, frozen=True):
    """A custom metric of one object, and when it was taken."""

    timestamp: Instant | None = None
    window: int | None = None
    window_seconds: int | None = None

    @property
    def span(self) -> int | None:
        """Over how many seconds it was taken: v1beta1 has them in `window`."""
        return self.window if self.window_seconds is None else self.window_seconds


class TimedExternalValue(hpa.ExternalMetricValue, frozen=True):
    """One series of an external metric, with its timestamp and window."""

    timestamp: Instant | None = None
    window: int | None = None


_T = TypeVar("_T")


class _ItemList(Struct, Generic[_T], frozen=True):
    items: tuple[_T, ...] | None = None


_CUSTOM_LIST = msgspec.json.Decoder(_ItemList[TimedCustomValue], dec_hook=hpa.decode_scalar)
_EXTERNAL_LIST = msgspec.json.Decoder(_ItemList[TimedExternalValue], dec_hook=hpa.decode_scalar)
_RESOURCE_LIST = msgspec.json.Decoder(_ItemList[hpa.PodMetrics], dec_hook=hpa.decode_scalar)


class _Version(Struct, frozen=True):
    version: str = ""


class _Group(Struct, frozen=True):
    versions: tuple[_Version, ...]
    preferred_version: _Version = _Version()


class ServedVersion:
    """Which of the known `versions` of a `group` to read: the first one that is registered.

    `follows_discovery` has them in the order of discovery, which lists what is registered. A version that is
    not available (503) stays the choice, so that its failure is seen: another version may be another
    server's, with other values. A version that is not found (404) is not served, and the next one is read
    until discovery is read again.
    """

    def __init__(
        self,
        client: KubernetesClient,
        clock: Clock,
        group: str,
        versions: Sequence[str],
        *,
        follows_discovery: bool = False,
    ) -> None:
        self.group = group
        self._client = client
        self._clock = clock
        self._versions = versions
        self._follows_discovery = follows_discovery
        self._chosen = ""
        self._refreshes = 0
        self._next_refresh = float("-inf")
        self._refreshing = asyncio.Lock()

    async def current(self) -> str:
        """Return the version to read. KubernetesError if none is registered."""
        is_due = self._clock.monotonic() >= self._next_refresh
        if not self._chosen or (is_due and not self._refreshing.locked()):
            await self._refresh(self._refreshes)
        if not self._chosen:
            raise errors.KubernetesError(404, "NotFound", "no version is registered")
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
            body = await self._client.get(f"/apis/{self.group}")
            group = msgspec.json.decode(body.content, type=_Group)
        except (errors.KubernetesError, *UNREADABLE) as error:
            if isinstance(error, errors.KubernetesError) and error.status == 404:
                return ()
            return sorted(self._versions, key=lambda version: (version != self._chosen, version != _OLDEST))
        listed = [entry.version for entry in (group.preferred_version, *group.versions)]
        registered = [version for version in self._versions if version in listed]
        return sorted(registered, key=listed.index) if self._follows_discovery else registered


class MetricsAPI:
    """The metrics APIs of a cluster.

    `resource_versions` are those of metrics.k8s.io to read, the preferred one first.
    """

    def __init__(
        self, client: KubernetesClient, clock: Clock, resource_versions: Sequence[str] = RESOURCE_VERSIONS
    ) -> None:
        self._client = client
        self._custom = ServedVersion(
            client, clock, _CUSTOM, apiservices.HPA_READS[_CUSTOM], follows_discovery=True
        )
        self._external = ServedVersion(client, clock, _EXTERNAL, apiservices.HPA_READS[_EXTERNAL])
        self._resource = ServedVersion(client, clock, _RESOURCE, resource_versions)

    async def pods(
        self, namespace: str, metric: str, selector: str, metric_selector: str
    ) -> Sequence[TimedCustomValue]:
        path = f"namespaces/{_escaped(namespace)}/pods/{_escaped('*')}/{_escaped(metric)}"
        parameters = selector, metric_selector
        return await self._read(self._custom, path, parameters, _CUSTOM_LIST, f"pods.{_CUSTOM} *")

    async def described(
        self, resource: str, namespace: str, name: str, metric: str, metric_selector: str
    ) -> Sequence[TimedCustomValue]:
        """Return a custom metric of an object of a ``plural.group``. Namespaces have paths of their own."""
        if name in {"", ".", ".."} or not {"/", "%"}.isdisjoint(name):
            # as client-go: even escaped, these name another path
            raise errors.KubernetesError(0, "Invalid", f"invalid resource name {go_text.quote(name)}")
        within = "metrics" if resource == "namespaces" else f"{_escaped(resource.lower())}/{_escaped(name)}"
        path = f"namespaces/{_escaped(namespace)}/{within}/{_escaped(metric)}"
        parts = ("metrics", metric) if resource == "namespaces" else (resource, name)
        subject = "{}.custom.metrics.k8s.io {}".format(*parts)
        return await self._read(self._custom, path, ("", metric_selector), _CUSTOM_LIST, subject)

    async def external(
        self, namespace: str, metric: str, metric_selector: str
    ) -> Sequence[TimedExternalValue]:
        """Return the series of an external metric. Its name becomes lower case, as in the HPA controller."""
        path = f"namespaces/{_escaped(namespace)}/{_escaped(metric.lower())}"
        subject = f"{metric}.{_EXTERNAL}"
        return await self._read(self._external, path, (metric_selector, ""), _EXTERNAL_LIST, subject)

    async def resource(self, namespace: str, selector: str) -> Sequence[hpa.PodMetrics]:
        path = f"namespaces/{_escaped(namespace)}/pods"
        return await self._read(self._resource, path, (selector, ""), _RESOURCE_LIST, f"pods.{_RESOURCE}")

    async def _read(
        self,
        served: ServedVersion,
        path: str,
        selectors: tuple[str, str],
        decoder: msgspec.json.Decoder[_ItemList[_T]],
        subject: str,
    ) -> Sequence[_T]:
        """Return the values at a path of a group, of the next version if the first is not served."""
        try:
            version = await served.current()
            try:
                return await self._get(f"/apis/{served.group}/{version}/{path}", selectors, decoder)
            except errors.KubernetesError as error:
                other = await served.after_not_found(version) if _is_unserved(error) else ""
                if other in {"", version}:
                    raise
            return await self._get(f"/apis/{served.group}/{other}/{path}", selectors, decoder)
        except errors.KubernetesError as error:
            raise _in_upstreams_words(error, subject) from error

    async def _get(
        self, path: str, selectors: tuple[str, str], decoder: msgspec.json.Decoder[_ItemList[_T]]
    ) -> Sequence[_T]:
        parameters = zip(("labelSelector", "metricLabelSelector"), selectors, strict=True)
        query = urlencode([(name, value) for name, value in parameters if value])
        body = await self._client.get(f"{path}?{query}" if query else path)
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


def _is_unserved(error: errors.KubernetesError) -> bool:
    """Tell whether a version is not served. That a metric does not exist is a Status with other words."""
    return error.status == 404 and (error.plain or error.said == _GENERIC[404])


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
