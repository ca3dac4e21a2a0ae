"""Reads the API server's discovery documents into a catalogue: on a timer, and again after a miss.

Aggregated discovery (``apidiscovery.k8s.io``) is preferred; servers without it answer with the legacy
documents. Groups of aggregated API servers often cannot be read. Such a group loses at most its own
resources, and not even those if they were known before.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from adapter import errors
from adapter.kubernetes.client import ResponseBody
from adapter.kubernetes.codec import UNREADABLE
from adapter.kubernetes.transport import JSON
from adapter.model.clock import Clock
from adapter.model.resources import APIResource, Catalogue
from adapter.telemetry.logs import facts
from adapter.telemetry.problems import ProblemLog

_AGGREGATED = "as=apigroupdiscoverylist"
_ACCEPT = ",".join(
    [
        f"{JSON};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        f"{JSON};g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        JSON,
    ]
)
_PARALLEL = 8
_FIRST_DISTANCE = 1.0  # seconds between two readings before the first success: no request can be answered yet

METRIC_GROUPS = frozenset({"custom.metrics.k8s.io", "external.metrics.k8s.io"})
"""Groups whose resources are metrics, ours among them. They describe no objects, so no label may resolve
to them.
"""

_log = logging.getLogger(__name__)


class CatalogueClient(Protocol):
    """The call of `KubernetesClient` that reads documents."""

    def get(self, path: str, *, accept: str = JSON) -> Awaitable[ResponseBody]: ...


class Discovery(NamedTuple):
    """The resources of a cluster, and the failures by group and version (or group)."""

    catalogue: Catalogue
    failed: Mapping[str, str]


# -- the documents -------------------------------------------------------------------------------------------


class _GroupName(msgspec.Struct, frozen=True):
    name: str = ""


class _ResponseKind(msgspec.Struct, frozen=True):
    kind: str = ""


class _AggregatedResource(msgspec.Struct, frozen=True, rename="camel"):
    resource: str
    response_kind: _ResponseKind | None = None
    scope: str = ""
    singular_resource: str = ""
    verbs: list[str] | None = None

    @property
    def kind(self) -> str:
        """The kind of its objects, "" if the entry only has sub-resources."""
        return self.response_kind.kind if self.response_kind else ""

    def build(self, group: str, version: str, *, preferred: bool) -> APIResource:
        return APIResource(
            group,
            version,
            self.resource,
            self.singular_resource or self.kind.lower(),  # client-go's default
            self.kind,
            self.scope == "Namespaced",
            frozenset(self.verbs or ()),
            preferred,
        )


class _AggregatedVersion(msgspec.Struct, frozen=True):
    version: str
    freshness: str = "Current"
    resources: list[_AggregatedResource] | None = None


class _AggregatedGroup(msgspec.Struct, frozen=True):
    metadata: _GroupName = _GroupName()
    versions: list[_AggregatedVersion] | None = None


class _AggregatedList(msgspec.Struct, frozen=True):
    items: list[_AggregatedGroup] | None = None


class _LegacyVersions(msgspec.Struct, frozen=True):
    versions: list[str] | None = None


class _LegacyVersion(msgspec.Struct, frozen=True):
    version: str = ""


class _LegacyGroup(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    versions: list[_LegacyVersion] | None = None
    preferred_version: _LegacyVersion = _LegacyVersion()


class _LegacyGroups(msgspec.Struct, frozen=True):
    groups: list[_LegacyGroup] | None = None


class _LegacyResource(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    kind: str
    namespaced: bool = False
    singular_name: str = ""
    verbs: list[str] | None = None

    def build(self, group: str, version: str, *, preferred: bool) -> APIResource:
        return APIResource(
            group,
            version,
            self.name,
            self.singular_name or self.kind.lower(),
            self.kind,
            self.namespaced,
            frozenset(self.verbs or ()),
            preferred,
        )


class _LegacyResources(msgspec.Struct, frozen=True):
    resources: list[_LegacyResource] | None = None


_T = TypeVar("_T")


def _decode(path: str, body: ResponseBody, type_: type[_T]) -> _T:
    try:
        return msgspec.json.decode(body.content, type=type_)
    except UNREADABLE as error:
        raise errors.KubernetesError(0, "Decode", f"cannot get {path}: Decode: {error}") from error


# -- reading -------------------------------------------------------------------------------------------------


async def fetch_discovery(client: CatalogueClient, known: Catalogue | None = None) -> Discovery:
    """Read the resources of the cluster. Those of `known` replace group versions that cannot be read.

    Raises `errors.KubernetesError` if ``/api``, ``/apis`` or the core group cannot be read: nothing resolves
    without these.
    """
    reading = _Reading(client, known or Catalogue(()))
    core = await reading.read_core()
    return Discovery(Catalogue([*core, *await reading.read_groups()]), reading.failed)


async def fetch_catalogue(client: CatalogueClient, known: Catalogue | None = None) -> Catalogue:
    return (await fetch_discovery(client, known)).catalogue


class _Reading:
    def __init__(self, client: CatalogueClient, known: Catalogue) -> None:
        self._client = client
        self._known = known
        self.failed: dict[str, str] = {}

    async def read_core(self) -> list[APIResource]:
        body = await self._client.get("/api", accept=_ACCEPT)
        if _AGGREGATED in body.content_type:
            return self._build_resources(_decode("/api", body, _AggregatedList))
        versions = _decode("/api", body, _LegacyVersions).versions or []
        return [
            resource
            for index, version in enumerate(versions)
            for resource in await self._read_version("", version, preferred=index == 0)
        ]

    async def read_groups(self) -> list[APIResource]:
        body = await self._client.get("/apis", accept=_ACCEPT)
        if _AGGREGATED in body.content_type:
            return self._build_resources(_decode("/apis", body, _AggregatedList))
        groups = _decode("/apis", body, _LegacyGroups).groups or []
        slots = asyncio.Semaphore(_PARALLEL)

        async def read(group: str, version: str, preferred: str) -> list[APIResource]:
            async with slots:
                try:
                    return await self._read_version(group, version, preferred=version == preferred)
                except errors.KubernetesError as error:
                    return self._stand_in(group, version, str(error))

        async with asyncio.TaskGroup() as tasks:
            reads = [
                tasks.create_task(
                    read(group.name, version.version, group.preferred_version.version),
                    name=f"discovery of {group.name}/{version.version}",
                )
                for group in groups
                if group.name not in METRIC_GROUPS
                for version in group.versions or ()
            ]
        return [resource for task in reads for resource in task.result()]

    async def _read_version(self, group: str, version: str, *, preferred: bool) -> list[APIResource]:
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        items = _decode(path, await self._client.get(path), _LegacyResources).resources or ()
        return [entry.build(group, version, preferred=preferred) for entry in items if "/" not in entry.name]

    def _build_resources(self, document: _AggregatedList) -> list[APIResource]:
        """Return the resources of an aggregated document, which lists versions in order of preference."""
        resources: list[APIResource] = []
        for group in document.items or ():
            name = group.metadata.name
            if name in METRIC_GROUPS:
                continue
            for index, version in enumerate(group.versions or ()):
                if version.freshness == "Stale" and not version.resources:
                    resources += self._stand_in(name, version.version, "its API server does not answer")
                    continue
                resources += [
                    entry.build(name, version.version, preferred=index == 0)
                    for entry in version.resources or ()
                    if entry.kind
                ]
        return resources

    def _stand_in(self, group: str, version: str, sentence: str) -> list[APIResource]:
        self.failed[f"{group}/{version}"] = sentence
        return [
            resource for resource in self._known if (resource.group, resource.version) == (group, version)
        ]


# -- the catalogue in force ----------------------------------------------------------------------------------


class CatalogueSource:
    """The current catalogue. Concurrent callers share one reading.

    `run` reads every `interval` seconds; after a miss it is read again, but not within `distance` seconds of
    the last attempt.
    """

    def __init__(
        self,
        client: CatalogueClient,
        clock: Clock,
        problems: ProblemLog,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        interval: float = 600.0,
        distance: float = 10.0,
    ) -> None:
        self._client = client
        self._clock = clock
        self._problems = problems
        self._sleep = sleep
        self._interval = interval
        self._distance = distance
        self._current: Catalogue | None = None
        self._lock = asyncio.Lock()
        self._attempted: float | None = None
        self._readings = 0
        self._error: errors.KubernetesError | None = None

    @property
    def synced(self) -> bool:
        """Whether a reading has succeeded."""
        return self._current is not None

    def current(self) -> Catalogue:
        """Return the catalogue; `errors.NotSyncedError` before the first reading."""
        if self._current is None:
            raise errors.NotSyncedError("the API resources of the cluster have not been read yet")
        return self._current

    async def refresh(self, *, force: bool = False) -> Catalogue:
        """Read the resources again unless that was tried within `distance` seconds; return the catalogue.

        `force` reads in any case. A caller that comes during a reading shares its result. Raises
        `errors.KubernetesError` if the reading fails and `errors.NotSyncedError` if it is not due and none
        has succeeded; the old catalogue stays.
        """
        readings = self._readings
        async with self._lock:
            if readings != self._readings:
                if self._error is not None:
                    raise errors.KubernetesError(self._error.status, self._error.reason, str(self._error))
            elif force or self._is_due():
                await self._read()
        return self.current()

    def _is_due(self) -> bool:
        distance = self._distance if self.synced else min(self._distance, _FIRST_DISTANCE)
        return self._attempted is None or self._clock.monotonic() - self._attempted >= distance

    async def _read(self) -> None:
        """Read once. A cancelled reading does not count: a caller that waits for it starts another."""
        try:
            discovery = await fetch_discovery(self._client, self._current)
        except errors.KubernetesError as error:
            self._record_reading(error)
            self._problems.report(
                "api-discovery", "the API resources of the cluster cannot be read", str(error)
            )
            raise
        self._record_reading(None)
        self._problems.resolve("api-discovery")
        self._report_failures(discovery.failed)
        if discovery.catalogue != self._current:
            _log.info("API resources of the cluster read", extra=facts(resources=len(discovery.catalogue)))
        self._current = discovery.catalogue

    def _record_reading(self, error: errors.KubernetesError | None) -> None:
        self._error = error
        self._readings += 1
        self._attempted = self._clock.monotonic()

    def _report_failures(self, failed: Mapping[str, str]) -> None:
        for problem, subject in list(self._problems.active()):
            if problem == "api-group" and subject not in failed:
                self._problems.resolve(problem, subject=subject)
        for group_version, sentence in failed.items():
            self._problems.report("api-group", "an API group cannot be read", sentence, subject=group_version)

    async def run(self) -> None:
        """Read now, then every `interval` seconds, sooner again after a failure; until cancelled."""
        while True:
            pause = self._interval
            try:
                await self.refresh(force=not self.synced)
            except errors.SourceError:
                pause = min(self._interval, self._distance)
            await self._sleep(pause)
