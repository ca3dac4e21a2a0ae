"""Discovery documents to catalogue, and the catalogue in force."""

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec import structs

from adapter import errors
from adapter.kubernetes.client import KubernetesClient, ResponseBody
from adapter.kubernetes.discovery import CatalogueSource, fetch_discovery
from adapter.model.metrics import GroupResource
from adapter.model.objects.resources import APIResource, Catalogue
from adapter.telemetry.problems import ProblemLog
from fastpath_sandbox.apiserver.kinds import Kind
from fastpath_sandbox.apiserver.server import Cluster
from tests.kubernetes.apiclient import connected, error_of
from tests.support.clock import FakeClock

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=apigroupdiscoverylist"
V2BETA1 = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=apigroupdiscoverylist"
WIDGETS = Kind("example.com", "v1", "widgets", "Widget", True)


class Documents(KubernetesClient):
    """A server of documents by path; what is an error is raised. Counts what is asked."""

    def __init__(self, documents: dict[str, Any], content_type: str = "application/json") -> None:
        self.documents = documents
        self.content_type = content_type
        self.asked: list[str] = []

    async def get(self, path: str, *, accept: str = "") -> ResponseBody:
        self.asked.append(path)
        await asyncio.sleep(0)
        found = self.documents.get(path, errors.KubernetesError(404, "NotFound", f"cannot get {path}: 404"))
        if isinstance(found, errors.KubernetesError):
            raise found
        return ResponseBody(
            self.content_type, found if isinstance(found, bytes) else msgspec.json.encode(found)
        )


def entry(resource: str, kind: str, **other: Any) -> dict[str, Any]:
    return {
        "resource": resource,
        "responseKind": {"group": "", "version": "", "kind": kind},
        "scope": "Namespaced",
        "singularResource": kind.lower(),
        "verbs": ["list"],
        **other,
    }


def group(name: str, **versions: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "versions": [
            {
                "version": version,
                "freshness": "Stale" if resources is None else "Current",
                "resources": resources,
            }
            for version, resources in versions.items()
        ],
    }


CORE = {"items": [group("", v1=[entry("pods", "Pod"), entry("nodes", "Node", scope="Cluster")])]}


def named(catalogue: Catalogue) -> list[str]:
    return [f"{resource.api_version} {resource.plural}" for resource in catalogue]


# -- against the cluster -------------------------------------------------------------------------------------


@pytest.mark.parametrize("aggregated", [True, False], ids=["aggregated", "legacy"])
async def test_catalogue_of_a_cluster(*, aggregated: bool) -> None:
    async with Cluster(aggregated_discovery=aggregated) as cluster, connected(cluster.url) as client:
        cluster.add_kind(WIDGETS)
        catalogue = (await fetch_discovery(client)).catalogue
        requests = [request.path for request in cluster.requests]
    pods = catalogue.lookup("pod")
    assert pods is not None
    assert structs.replace(pods, verbs=frozenset()) == APIResource(
        "", "v1", "pods", "pod", "Pod", True, frozenset(), preferred=True
    )
    assert {"list", "watch"} <= pods.verbs
    nodes = catalogue.lookup("nodes")
    assert nodes is not None
    assert not nodes.namespaced
    scalers = catalogue.lookup("horizontalpodautoscaler")
    assert scalers is not None
    assert (scalers.version, scalers.preferred) == ("v2", True)
    assert catalogue.lookup("widget") is not None
    assert not [resource for resource in catalogue if "/" in resource.plural]
    assert (requests == ["/api", "/apis"]) is aggregated


@pytest.mark.parametrize("aggregated", [True, False], ids=["aggregated", "legacy"])
async def test_a_group_that_does_not_answer_costs_only_itself(*, aggregated: bool) -> None:
    async with Cluster(aggregated_discovery=aggregated) as cluster, connected(cluster.url) as client:
        cluster.add_kind(WIDGETS)
        whole = (await fetch_discovery(client)).catalogue
        cluster.faults.stale.add(("example.com", "v1"))
        part = await fetch_discovery(client)
        assert set(part.failed) == {"example.com/v1"}
        assert part.catalogue.lookup("widget") is None
        assert len(part.catalogue) == len(whole) - 1
        assert (await fetch_discovery(client, whole)).catalogue == whole


# -- documents -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content_type", [AGGREGATED, V2BETA1])
async def test_aggregated_documents(content_type: str) -> None:
    groups = [
        group("apps", v1=[entry("deployments", "Deployment", subresources=[{"subresource": "scale"}])]),
        group("custom.metrics.k8s.io", v1beta1=[entry("pods", "Pod")]),
        group("external.metrics.k8s.io", v1beta1=[entry("queue", "ExternalMetricValueList")]),
        group(
            "a.io",
            v2=[entry("jobs", "Job")],
            v1=[entry("jobs", "Job"), entry("old", "Old", singularResource="")],
        ),
        group("b.io", v1=[entry("places", ""), {"resource": "bare", "responseKind": None}]),
        {"metadata": {"name": "empty.io"}, "versions": None},
    ]
    server = Documents({"/api": CORE, "/apis": {"items": groups}}, content_type)
    discovery = await fetch_discovery(server)
    assert named(discovery.catalogue) == [
        "v1 pods", "v1 nodes", "apps/v1 deployments", "a.io/v2 jobs", "a.io/v1 jobs", "a.io/v1 old"
    ]  # fmt: skip
    assert discovery.failed == {}
    old = discovery.catalogue.find(GroupResource("a.io", "old"))
    assert old is not None
    assert (old.singular, old.preferred) == ("old", False)


async def test_a_stale_group_with_resources_is_taken_as_it_is() -> None:
    stale = {"version": "v1", "freshness": "Stale", "resources": [entry("jobs", "Job")]}
    groups = [{"metadata": {"name": "a.io"}, "versions": [stale]}]
    discovery = await fetch_discovery(Documents({"/api": CORE, "/apis": {"items": groups}}, AGGREGATED))
    assert discovery.failed == {}
    assert discovery.catalogue.lookup("job", "a.io") is not None


LEGACY = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/api/v1": {
        "resources": [
            {"name": "pods", "singularName": "pod", "kind": "Pod", "namespaced": True, "verbs": ["list"]},
            {"name": "pods/status", "singularName": "", "kind": "Pod", "namespaced": True, "verbs": ["get"]},
            {"name": "nodes", "singularName": "", "kind": "Node", "namespaced": False},
        ]
    },
    "/apis": {
        "groups": [
            {
                "name": "a.io",
                "versions": [{"version": "v2"}, {"version": "v1"}],
                "preferredVersion": {"version": "v1"},
            },
            {"name": "custom.metrics.k8s.io", "versions": [{"version": "v1beta1"}]},
            {"name": "b.io", "versions": [{"version": "v1"}], "preferredVersion": {"version": "v1"}},
        ]
    },
    "/apis/a.io/v1": {"resources": [{"name": "jobs", "kind": "Job", "namespaced": True}]},
    "/apis/a.io/v2": {"resources": [{"name": "jobs", "kind": "Job", "namespaced": True}]},
    "/apis/b.io/v1": {"resources": None},
}


async def test_legacy_documents() -> None:
    server = Documents(LEGACY)
    discovery = await fetch_discovery(server)
    assert named(discovery.catalogue) == ["v1 pods", "v1 nodes", "a.io/v1 jobs", "a.io/v2 jobs"]
    nodes = discovery.catalogue.lookup("node")
    assert nodes is not None, "the singular name is the kind in lower case where the server gives none"
    assert "/apis/custom.metrics.k8s.io/v1beta1" not in server.asked


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("/api", errors.KubernetesError(403, "Forbidden", "no")),
        ("/apis", errors.KubernetesError(503, "ServiceUnavailable", "no")),
        ("/api", b"<html>"),
        ("/apis", {"items": 5}),
        ("/api/v1", errors.KubernetesError(503, "ServiceUnavailable", "no")),
    ],
)
async def test_without_these_nothing_resolves(path: str, document: Any) -> None:
    server = Documents(LEGACY) if path == "/api/v1" else aggregated()
    server.documents = server.documents | {path: document}
    await error_of(fetch_discovery(server))


async def test_a_legacy_group_that_is_no_document_costs_only_itself() -> None:
    discovery = await fetch_discovery(Documents(LEGACY | {"/apis/a.io/v2": b"<html>"}))
    assert named(discovery.catalogue) == ["v1 pods", "v1 nodes", "a.io/v1 jobs"]
    assert list(discovery.failed) == ["a.io/v2"]


# -- the catalogue in force ----------------------------------------------------------------------------------


def aggregated(*groups: dict[str, Any]) -> Documents:
    return Documents({"/api": CORE, "/apis": {"items": list(groups)}}, AGGREGATED)


async def test_the_catalogue_is_unknown_before_the_first_reading(
    clock: FakeClock, faults: ProblemLog
) -> None:
    source = CatalogueSource(aggregated(), clock, faults)
    with pytest.raises(errors.NotSyncedError):
        source.current()
    assert not source.synced


async def test_a_miss_reads_again_but_not_too_often(clock: FakeClock, faults: ProblemLog) -> None:
    server = aggregated()
    source = CatalogueSource(server, clock, faults)
    assert (await source.refresh()).lookup("widget") is None
    server.documents["/apis"] = {"items": [group("example.com", v1=[entry("widgets", "Widget")])]}
    clock.advance(9.9)
    assert (await source.refresh()).lookup("widget") is None
    clock.advance(0.1)
    assert (await source.refresh()).lookup("widget") is not None
    assert server.asked == ["/api", "/apis"] * 2
    await source.refresh(force=True)
    assert server.asked == ["/api", "/apis"] * 3


async def test_before_the_first_success_it_is_read_again_soon(clock: FakeClock, faults: ProblemLog) -> None:
    server = aggregated()
    server.documents["/api"] = errors.KubernetesError(0, "Unreachable", "away")
    source = CatalogueSource(server, clock, faults)
    await error_of(source.refresh())
    server.documents["/api"] = CORE
    clock.advance(0.9)
    with pytest.raises(errors.NotSyncedError):
        await source.refresh()
    clock.advance(0.1)
    assert (await source.refresh()).lookup("pods") is not None


async def test_callers_of_one_moment_share_a_reading_and_a_failure(
    clock: FakeClock, faults: ProblemLog
) -> None:
    server = aggregated()
    source = CatalogueSource(server, clock, faults)
    whole = await asyncio.gather(*(source.refresh(force=force) for force in (False, True, False, True)))
    assert len(set(map(id, whole))) == 1
    assert server.asked == ["/api", "/apis"]
    server.asked.clear()
    server.documents["/api"] = errors.KubernetesError(503, "ServiceUnavailable", "away")
    source = CatalogueSource(server, clock, faults)
    found = await asyncio.gather(*(source.refresh() for _ in range(3)), return_exceptions=True)
    assert [str(error) for error in found] == ["away"] * 3
    assert all(isinstance(error, errors.KubernetesError) and error.status == 503 for error in found)
    assert server.asked == ["/api"]


async def test_a_cancelled_caller_leaves_the_reading_to_the_next(
    clock: FakeClock, faults: ProblemLog
) -> None:
    source = CatalogueSource(aggregated(), clock, faults)
    first = asyncio.create_task(source.refresh(), name="first")
    second = asyncio.create_task(source.refresh(), name="second")
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).lookup("pods") is not None
    assert source.synced
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_failed_reading_keeps_the_catalogue(clock: FakeClock, faults: ProblemLog) -> None:
    server = aggregated()
    source = CatalogueSource(server, clock, faults)
    before = await source.refresh()
    clock.advance(60)
    server.documents["/apis"] = errors.KubernetesError(0, "Unreachable", "away")
    with pytest.raises(errors.KubernetesError, match="away"):
        await source.refresh()
    assert source.current() is before
    assert list(faults.active()) == [("api-discovery", "")]
    assert await source.refresh() is before, "not due yet"
    server.documents["/apis"] = {"items": []}
    clock.advance(60)
    assert named(await source.refresh()) == ["v1 pods", "v1 nodes"]
    assert source.synced
    assert not faults.active()


async def test_groups_that_fail_keep_their_resources_and_are_said(
    clock: FakeClock, faults: ProblemLog
) -> None:
    server = aggregated(group("example.com", v1=[entry("widgets", "Widget")]))
    source = CatalogueSource(server, clock, faults)
    await source.refresh()
    server.documents["/apis"] = {"items": [group("example.com", v1=None)]}
    assert (await source.refresh(force=True)).lookup("widget") is not None
    assert list(faults.active()) == [("api-group", "example.com/v1")]
    server.documents["/apis"] = {"items": []}
    assert (await source.refresh(force=True)).lookup("widget") is None
    assert not faults.active()


async def test_a_metrics_api_that_fails_is_no_problem_of_discovery(
    clock: FakeClock, faults: ProblemLog
) -> None:
    """It may be that of this process, which does not listen yet; it has no targets."""
    server = aggregated(group("metrics.k8s.io", v1=None), group("example.com", v1=None))
    await CatalogueSource(server, clock, faults).refresh()
    assert list(faults.active()) == [("api-group", "example.com/v1")]


async def test_the_timer(clock: FakeClock, faults: ProblemLog) -> None:
    server = aggregated()
    server.documents["/apis"] = errors.KubernetesError(0, "Unreachable", "away")
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock.advance(seconds)
        server.documents["/apis"] = {"items": []}
        if len(pauses) == 3:
            raise asyncio.CancelledError

    source = CatalogueSource(server, clock, faults, sleep=sleep)
    with pytest.raises(asyncio.CancelledError):
        await source.run()
    assert pauses == [10.0, 600.0, 600.0]
    assert server.asked == ["/api", "/apis"] * 3
    assert source.synced
