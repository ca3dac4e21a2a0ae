"""Following the endpoints of external rules in a cluster: what is watched, found, refused and given up."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from adapter.autoscaler.inputs.scrape_subscriptions import EndpointSubscriptions, ScrapeSubscriptions
from adapter.autoscaler.interfaces import Key
from adapter.kubernetes.cache.pods import PodCache
from adapter.kubernetes.cache.scope import SliceScope
from adapter.model.autoscaling import slices
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.objects import pod_networks
from adapter.provider.relist import Relister
from adapter.scrape.cache import ScrapedValues
from adapter.scrape.http import Scraper
from adapter.scrape.readings import EndpointReading
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog, SourceProblems
from fastpath_sandbox.apiserver.server import Cluster
from tests.kubernetes.apiclient import reflecting
from tests.kubernetes.cache.test_endpoint_slices import endpoint_slice
from tests.support.answering import AnsweringServer
from tests.support.controller import fpa
from tests.support.scaling import external_metric
from tests.support.waiting import until
from tests.support.world import FakeLister, compile_text

SHOWN = b"depth 3\nwaiting 5\n"
RULES = """
externalRules:
- seriesQuery: depth
  resources: {namespaced: false}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>})
  scrape: {service: {namespace: inference, name: gateway}, port: metrics, interval: 100ms, timeout: 100ms}
- seriesQuery: waiting
  resources: {namespaced: false}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>})
  scrape: {pods: {namespace: inference, selector: app=epp}, port: metrics, interval: 100ms}
"""


class Here(NamedTuple):
    """The endpoints of a cluster, as a scaler reads them."""

    cluster: Cluster
    scraped: ScrapedValues
    subscriptions: EndpointSubscriptions
    wants: ScrapeSubscriptions
    monitoring: Monitoring
    problems: ProblemLog

    def read(self, metric: str = "depth") -> EndpointReading:
        entry = self.scraped.external_entry(metric)
        assert entry is not None
        found = self.scraped.read_endpoints(entry, ())
        assert found is not None
        return found

    def value(self, metric: str = "depth") -> float | None:
        found = self.read(metric)
        return found.elements[0].value if found.elements else None

    def counted(self, name: str, **labels: str) -> float:
        return self.monitoring.registry.get_sample_value(name, labels) or 0.0

    def watched(self) -> set[str]:
        """Return the kinds and selectors of the requests for endpoints and pods."""
        return {
            f"{request.verb} {request.path}"
            for request in self.cluster.requests
            if "endpointslices" in request.path or "/namespaces/inference/pods" in request.path
        }


def pod(name: str, address: str, port: int, **labels: str) -> Any:
    container = {"name": "main", "ports": [{"name": "metrics", "containerPort": port}]}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "inference", "labels": labels},
        "spec": {"containers": [container]},
        "status": {"phase": "Running", "podIP": address, "conditions": [ready]},
    }


def autoscaler(*metrics: str) -> FastPathAutoscaler:
    return fpa([external_metric(name, averageValue="1") for name in metrics])


@contextlib.asynccontextmanager
async def following(cluster: Cluster, scope: SliceScope | None = None) -> AsyncIterator[Here]:
    async with reflecting(cluster.url) as reflected:
        clock, monitoring, problems = reflected.clock, reflected.monitoring, reflected.problems
        context, met = replace(reflected, scope=scope), SourceProblems(clock, problems)
        lister: Any = FakeLister({})
        relister = Relister(lister, clock, monitoring, problems, interval=600, max_age=600)
        await relister.adopt(compile_text(RULES))
        registry = lambda: relister.registry  # noqa: E731 - shared by both
        networks = pod_networks.parse_networks(["127.0.0.0/8"])
        async with Scraper(clock, monitoring, met, files=64, networks=networks) as scraper:
            scraped = ScrapedValues(
                scraper.fetch, registry, clock, monitoring, met, per_second=2000, random=lambda: 0.0
            )
            pods = PodCache(context)
            subscriptions = EndpointSubscriptions(scraped, context, pods)
            followers: Any = None  # of pods, which no autoscaler here reads
            wants = ScrapeSubscriptions(scraped, followers, problems.defects, subscriptions)
            tasks = [asyncio.create_task(each.run()) for each in (pods, scraped, subscriptions)]
            try:
                yield Here(cluster, scraped, subscriptions, wants, monitoring, problems)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


def slice_of(*exporters: tuple[str, AnsweringServer], name: str = "s", ready: bool = True) -> Any:
    """Return a slice whose endpoints are pods; its port is that of the first exporter."""
    endpoints = [
        {
            "addresses": [exporter.host],
            "conditions": {"ready": ready},
            "targetRef": {"kind": "Pod", "name": pod_name},
        }
        for pod_name, exporter in exporters
    ]
    document = endpoint_slice(name, "gateway", *endpoints)
    document["ports"][0]["port"] = exporters[0][1].port
    return document


async def test_a_service_and_pods_are_followed_while_they_are_read() -> None:
    async with Cluster() as cluster, AnsweringServer(SHOWN) as exporter, following(cluster) as here:
        cluster.create(pod("a", exporter.host, exporter.port, app="epp"))
        cluster.create(slice_of(("a", exporter)))
        here.wants.put(autoscaler("depth", "waiting"))
        await until(lambda: here.value() == 3)
        await until(lambda: here.value("waiting") == 5)
        exporter.body = b"depth 4\n"
        await until(lambda: here.value() == 4)
        assert {each.split("?")[0].rpartition("/")[2] for each in here.watched()} == {"endpointslices"}
        here.wants.remove(Key("default", "web"))
        await until(lambda: not here.subscriptions._services)
        assert here.scraped.sources == ()
        here.wants.put(autoscaler("depth"))
        await until(lambda: here.value() == 4)


async def test_endpoints_that_come_and_go() -> None:
    async with Cluster() as cluster, AnsweringServer(SHOWN) as exporter, following(cluster) as here:
        here.wants.put(autoscaler("depth", "waiting"))
        await until(lambda: "no EndpointSlice" in here.read().reason)
        assert here.read("waiting").reason == "there are no pods of namespace inference with app=epp"
        cluster.create(pod("a", exporter.host, exporter.port))
        cluster.create(slice_of(("a", exporter)))
        await until(lambda: here.value() == 3)
        cluster.delete("EndpointSlice", "s", "inference")
        cluster.create(slice_of(("a", exporter), ready=False))
        await until(lambda: here.read().reason.endswith("pod a is not ready"))


async def test_what_is_in_the_namespace_of_another_scaler_has_a_watch_of_its_own() -> None:
    """A rule may name any namespace, and the caches of a scaler keep the objects of its own slices only."""
    scope = SliceScope()
    scope.set({slices.slice_of("default")})
    async with Cluster() as cluster, AnsweringServer(SHOWN) as exporter, following(cluster, scope) as here:
        cluster.create(pod("a", exporter.host, exporter.port, app="epp"))
        cluster.create(pod("other", "127.0.0.9", exporter.port, app="other"))
        here.wants.put(autoscaler("waiting"))
        await until(lambda: here.value("waiting") == 5)
        ((_, selector), cache) = next(iter(here.subscriptions._own_pods.items()))
        assert (str(selector), cache.count()) == ("app=epp", 1)
        cluster.create(slice_of(("a", exporter)))
        here.wants.put(autoscaler("depth"))
        await until(lambda: here.value() == 3)
        assert [str(selector) for _, selector in here.subscriptions._own_pods] == [""]
        scope.set({slices.slice_of("default"), slices.slice_of("inference")})
        await until(lambda: not here.subscriptions._own_pods)
        exporter.body = b"depth 4\n"
        await until(lambda: here.value() == 4)


async def test_a_watch_of_its_own_that_ends_leaves_no_fault() -> None:
    scope = SliceScope()
    scope.set({slices.slice_of("default")})
    async with Cluster() as cluster, following(cluster, scope) as here:
        await until(lambda: here.subscriptions._pods.synced)
        cluster.forbid("list", "pods")
        here.wants.put(autoscaler("waiting"))
        await until(lambda: any(fault == "informer" for fault, _ in here.problems.active()))
        here.wants.remove(Key("default", "web"))
        await until(lambda: not here.subscriptions._own_pods)
        assert all(fault != "informer" for fault, _ in here.problems.active())


async def test_missing_rights_are_the_reason() -> None:
    async with Cluster() as cluster, following(cluster) as here:
        cluster.forbid("list", "endpointslices")
        here.wants.put(autoscaler("depth"))
        await until(lambda: "forbidden" in here.read().reason)
        assert here.read().reason.startswith("the endpoints of Service inference/gateway are unknown: ")


async def test_a_slice_written_by_hand_leads_nowhere_else() -> None:
    """To no other namespace, and to no address that the API server does not have for the pod."""
    async with (
        Cluster() as cluster,
        AnsweringServer(SHOWN) as exporter,
        AnsweringServer(b"depth 100\n", host="127.0.0.2") as foreign,
        following(cluster) as here,
    ):
        cluster.create(pod("a", exporter.host, exporter.port))
        cluster.create(slice_of(("a", exporter)))
        victim = {"kind": "Pod", "namespace": "bank", "name": "victim"}
        references: list[dict[str, Any]] = [{}, {"targetRef": victim}]
        references.append({"targetRef": {"kind": "Pod", "name": "a"}})
        endpoints = [{"addresses": [foreign.host], **reference} for reference in references]
        endpoints.append({"addresses": ["169.254.169.254"]})
        written = endpoint_slice("by-hand", "gateway", *endpoints)
        written["ports"][0]["port"] = foreign.port
        cluster.create(written)
        here.wants.put(autoscaler("depth"))
        await until(lambda: here.value() == 3)

        assert here.read().overdue == "127.0.0.2 is not the address of a pod of namespace inference"
        refused = "fastpath_scrape_endpoints_refused_total"
        assert here.counted(refused, reason="foreign") == 3
        assert here.counted(refused, reason="address") == 1
        assert foreign.requests == []
        assert ("scrape-endpoints", "externalRules[0]") in here.problems.active()


async def test_a_defect_in_one_source_keeps_no_other_from_being_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    find = EndpointSubscriptions._find

    def breaks(subscriptions: EndpointSubscriptions, source: Any, access: Any) -> Any:
        return 1 // 0 if source.service else find(subscriptions, source, access)

    monkeypatch.setattr(EndpointSubscriptions, "_find", breaks)
    async with Cluster() as cluster, AnsweringServer(SHOWN) as exporter, following(cluster) as here:
        cluster.create(pod("a", exporter.host, exporter.port, app="epp"))
        here.wants.put(autoscaler("depth", "waiting"))
        await until(lambda: here.value("waiting") == 5)
        assert here.counted("fastpath_scaler_unexpected_errors_total") >= 1
