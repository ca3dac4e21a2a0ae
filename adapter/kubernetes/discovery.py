"""Reads the API server's discovery documents into a catalogue: on a timer, and again after a miss.

Aggregated discovery (``apidiscovery.k8s.io``) has all resources in two documents. An API server without it,
or a proxy that drops the parameters of Accept, answers with a document for each group and version.
Groups of aggregated API servers often cannot be read. Such a group loses at most its own resources, and not
even those if they were known before.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

import msgspec

from adapter import errors
from adapter.kubernetes.client import KubernetesClient
from adapter.kubernetes.codec import PartialMetadata
from adapter.kubernetes.transport import JSON
from adapter.model.clock import Clock
from adapter.model.objects import apiservices
from adapter.model.objects.resources import APIResource, Catalogue
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
"""Documents of groups that are read at a time."""

_INTERVAL = 600.0
"""Seconds between two readings."""
_DISTANCE = 10.0
"""Least seconds between two attempts: after a miss, the resources are read again."""
_FIRST_DISTANCE = 1.0
"""The same before the first success: no request can be answered yet."""

METRIC_GROUPS = frozenset({"custom.metrics.k8s.io", "external.metrics.k8s.io"})
"""Groups whose resources are metrics, ours among them. They describe no objects, so no label may resolve
to them.
"""

_log = logging.getLogger(__name__)


class Discovery(NamedTuple):
    """The resources of a cluster, and the failures by group and version."""

    catalogue: Catalogue
    failed: Mapping[str, str]


# -- the documents -------------------------------------------------------------------------------------------


class _ResponseKind(msgspec.Struct, frozen=True):
    kind: str = ""


class _AggregatedResource(msgspec.Struct, frozen=True, rename="camel"):
    """A resource. Its kind is "" if the entry only has sub-resources."""

    resource: str
    response_kind: _ResponseKind | None = None
    scope: str = ""
    singular_resource: str = ""
    verbs: list[str] | None = None


class _AggregatedVersion(msgspec.Struct, frozen=True):
    version: str
    freshness: str = "Current"
    resources: list[_AggregatedResource] | None = None


class _AggregatedGroup(msgspec.Struct, frozen=True):
    metadata: PartialMetadata = PartialMetadata()
    versions: list[_AggregatedVersion] | None = None


class _AggregatedList(msgspec.Struct, frozen=True):
    items: list[_AggregatedGroup] | None = None


class _LegacyVersion(msgspec.Struct, frozen=True):
    version: str = ""


class _LegacyGroup(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    versions: list[_LegacyVersion] | None = None
    preferred_version: _LegacyVersion = _LegacyVersion()


class _LegacyGroups(msgspec.Struct, frozen=True):
    """Without aggregated discovery: ``/api`` has versions, ``/apis`` has groups."""

    versions: list[str] | None = None
    groups: list[_LegacyGroup] | None = None


class _LegacyResource(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    kind: str
    namespaced: bool = False
    singular_name: str = ""
    verbs: list[str] | None = None


class _LegacyResources(msgspec.Struct, frozen=True):
    resources: list[_LegacyResource] | None = None


# -- reading -------------------------------------------------------------------------------------------------


async def fetch_discovery(client: KubernetesClient, known: Catalogue | None = None) -> Discovery:
    """Read the resources of the cluster. Those of `known` replace group versions that cannot be read.

    Raises `errors.KubernetesError` if ``/api``, ``/apis`` or the core group cannot be read: nothing resolves
    without these.
    """
    resources: list[APIResource] = []
    failed: dict[str, str] = {}
    for group in [*await _fetch_groups(client, "/api"), *await _fetch_groups(client, "/apis")]:
        name = group.metadata.name
        if name in METRIC_GROUPS:
            continue
        for index, version in enumerate(group.versions or ()):  # in order of preference
            if version.freshness == "Stale" and not version.resources:
                failed[f"{name}/{version.version}"] = "its API server does not answer with resources"
                resources += [
                    old for old in known or () if (old.group, old.version) == (name, version.version)
                ]
                continue
            resources += _list_resources(name, version, preferred=index == 0)
    return Discovery(Catalogue(resources), failed)


def _list_resources(group: str, version: _AggregatedVersion, *, preferred: bool) -> list[APIResource]:
    return [
        APIResource(
            group,
            version.version,
            entry.resource,
            entry.singular_resource or entry.response_kind.kind.lower(),  # client-go's default
            entry.response_kind.kind,
            entry.scope == "Namespaced",
            frozenset(entry.verbs or ()),
            preferred=preferred,
        )
        for entry in version.resources or ()
        if entry.response_kind is not None and entry.response_kind.kind
    ]


async def _fetch_groups(client: KubernetesClient, path: str) -> list[_AggregatedGroup]:
    body = await client.get(path, accept=_ACCEPT)
    if _AGGREGATED in body.content_type:
        return body.decode(_AggregatedList, f"get {path}").items or []
    document = body.decode(_LegacyGroups, f"get {path}")
    if document.versions:
        versions = [await _fetch_version(client, f"/api/{version}") for version in document.versions]
        return [_AggregatedGroup(versions=versions)]
    slots = asyncio.Semaphore(_PARALLEL)

    async def fetch(group: str, version: str) -> _AggregatedVersion:
        async with slots:
            try:
                return await _fetch_version(client, f"/apis/{group}/{version}")
            except errors.KubernetesError:
                return _AggregatedVersion(version, "Stale")

    groups: dict[str, list[asyncio.Task[_AggregatedVersion]]] = {}
    async with asyncio.TaskGroup() as tasks:
        for group in document.groups or ():
            if group.name not in METRIC_GROUPS:
                # the preferred version first, as in the aggregated document
                ordered = sorted(group.versions or (), key=lambda known: known != group.preferred_version)
                groups[group.name] = [
                    tasks.create_task(fetch(group.name, known.version), name=f"discovery of {group.name}")
                    for known in ordered
                ]
    return [
        _AggregatedGroup(PartialMetadata(name), [read.result() for read in reads])
        for name, reads in groups.items()
    ]


async def _fetch_version(client: KubernetesClient, path: str) -> _AggregatedVersion:
    resources = (await client.get(path)).decode(_LegacyResources, f"get {path}").resources or ()
    return _AggregatedVersion(
        path.rpartition("/")[2],
        resources=[
            _AggregatedResource(
                entry.name,
                _ResponseKind(entry.kind),
                "Namespaced" if entry.namespaced else "Cluster",
                entry.singular_name,
                entry.verbs,
            )
            for entry in resources
            if "/" not in entry.name
        ],
    )


# -- the catalogue in force ----------------------------------------------------------------------------------


class CatalogueSource:
    """The current catalogue. Concurrent callers share one reading.

    `run` reads every 10 minutes; after a miss it is read again, but not within 10 s of the last attempt.
    """

    def __init__(
        self,
        client: KubernetesClient,
        clock: Clock,
        problems: ProblemLog,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._clock = clock
        self._problems = problems
        self._sleep = sleep
        self.known: Catalogue | None = None
        """The catalogue in force; None before the first reading."""
        self._lock = asyncio.Lock()
        self._attempted: float | None = None
        self._readings = 0
        self._error: errors.KubernetesError | None = None

    @property
    def synced(self) -> bool:
        """Whether a reading has succeeded."""
        return self.known is not None

    def current(self) -> Catalogue:
        """Return the catalogue; `errors.NotSyncedError` before the first reading."""
        if self.known is None:
            raise errors.NotSyncedError("the API resources of the cluster have not been read yet")
        return self.known

    async def refresh(self, *, force: bool = False) -> Catalogue:
        """Read the resources again unless that was just tried; return the catalogue.

        `force` reads in any case. A caller that comes during a reading shares its result. Raises
        `errors.KubernetesError` if the reading fails and `errors.NotSyncedError` if it is not due and none
        has succeeded; the old catalogue stays.
        """
        readings = self._readings
        distance = _DISTANCE if self.synced else _FIRST_DISTANCE
        async with self._lock:
            if readings != self._readings:
                if self._error is not None:
                    raise errors.KubernetesError(self._error.status, self._error.reason, str(self._error))
            elif force or self._attempted is None or self._clock.monotonic() - self._attempted >= distance:
                await self._read()
        return self.current()

    async def _read(self) -> None:
        """Read once. A cancelled reading does not count: a caller that waits for it starts another."""
        try:
            discovery = await fetch_discovery(self._client, self.known)
        except errors.KubernetesError as error:
            self._record_reading(error)
            self._problems.report(
                "api-discovery", "the API resources of the cluster cannot be read", str(error)
            )
            raise
        self._record_reading(None)
        self._problems.resolve("api-discovery")
        for problem, subject in list(self._problems.active()):
            if problem == "api-group" and subject not in discovery.failed:
                self._problems.resolve(problem, subject=subject)
        for group_version, sentence in discovery.failed.items():
            if group_version.partition("/")[0] in apiservices.VERSIONS:
                continue  # a metrics API has no targets, and may be the one that this process is to serve
            self._problems.report("api-group", "an API group cannot be read", sentence, subject=group_version)
        if discovery.catalogue != self.known:
            _log.info("API resources of the cluster read", extra=facts(resources=len(discovery.catalogue)))
        self.known = discovery.catalogue

    def _record_reading(self, error: errors.KubernetesError | None) -> None:
        self._error = error
        self._readings += 1
        self._attempted = self._clock.monotonic()

    async def run(self) -> None:
        """Read now and at intervals, sooner again after a failure; until cancelled."""
        while True:
            pause = _INTERVAL
            try:
                await self.refresh(force=not self.synced)
            except errors.SourceError:
                pause = _DISTANCE
            await self._sleep(pause)
