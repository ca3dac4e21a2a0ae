"""Requests for resource metrics over real TLS: forms, failures, what is kept, self-metrics."""

import pytest

from adapter import errors
from adapter.model import field_selectors, label_selectors
from adapter.model.metrics import ContainerUsage, ObjectUsage, ResourceQuestion, Usage
from adapter.server.api.paths import CUSTOM_GROUP, RESOURCE_GROUP
from tests.support.serving import Served, ServerFactory

USAGE = Usage(250, 2_048_000)
POD = ObjectUsage("shop", "web-1", {"app": "web"}, 1_700_000_000.0, USAGE, (ContainerUsage("main", USAGE),))
NODE = ObjectUsage("", "n1", {}, 1_700_000_000.0, USAGE)
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
HPA = {"Accept": "application/vnd.kubernetes.protobuf, */*", "Accept-Encoding": "gzip"}


@pytest.fixture
async def served(serve: ServerFactory) -> Served:
    served = await serve(groups=[RESOURCE_GROUP])
    served.provider.usages = (POD,)
    return served


@pytest.fixture(params=["v1", "v1beta1"])
def version(request: pytest.FixtureRequest) -> str:
    """Both versions are one implementation, and every test is about both."""
    return str(request.param)


@pytest.fixture
def base(version: str) -> str:
    return f"/apis/{RESOURCE_GROUP}/{version}"


@pytest.fixture
def pods(base: str) -> str:
    return f"{base}/namespaces/shop/pods"


async def test_as_an_autoscaler_asks(served: Served, version: str, pods: str) -> None:
    answer = await served.get(f"{pods}?labelSelector=app%3Dweb", headers=HPA)
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert (answer.json["kind"], answer.json["items"][0]["window"]) == ("PodMetricsList", "1m0s")
    assert answer.json["apiVersion"] == f"{RESOURCE_GROUP}/{version}"
    everything = field_selectors.EVERYTHING
    assert served.provider.questions == [
        ResourceQuestion("pods", "shop", None, label_selectors.parse_selector("app=web"), everything)
    ]


async def test_one_object(served: Served, pods: str, base: str) -> None:
    assert (await served.get(f"{pods}/web-1")).json["kind"] == "PodMetrics"
    served.provider.usages = (NODE,)
    node = (await served.get(f"{base}/nodes/n1")).json
    assert (node["kind"], node["usage"]) == ("NodeMetrics", {"cpu": "250m", "memory": "2Ki"})


async def test_a_table_for_those_who_like_it_best(served: Served, pods: str) -> None:
    served.provider.fresh_until = served.clock.monotonic() + 1
    table = (await served.get(pods, headers={"Accept": f"{TABLE},application/json"})).json
    assert table["kind"] == "Table"
    assert (await served.get(pods)).json["kind"] == "PodMetricsList", "each form is kept for itself"
    again = (await served.get(pods, headers={"Accept": f"{TABLE},application/json"})).json
    assert again == table
    assert len(served.provider.questions) == 2
    bare = (await served.get(f"{pods}?includeObject=None", headers={"Accept": TABLE})).json
    assert bare["rows"][0]["object"] is None


@pytest.mark.parametrize(
    "accept", ["application/vnd.kubernetes.protobuf", "application/yaml", f"{TABLE};q=0"]
)
async def test_what_is_not_spoken(served: Served, accept: str, pods: str) -> None:
    answer = await served.get(pods, headers={"Accept": accept})
    assert (answer.status, answer.json["reason"]) == (406, "NotAcceptable")
    assert served.provider.questions == []


async def test_indented(served: Served, pods: str) -> None:
    answer = await served.get(f"{pods}?pretty=1")
    assert answer.text.startswith('{\n  "kind": "PodMetricsList",')


async def test_wrong_requests_do_not_reach_the_provider(served: Served, base: str) -> None:
    queries = ("?labelSelector=a+in+b", "?fieldSelector=a%3Db", "?watch=1")
    targets = (*(f"namespaces/shop/pods{query}" for query in queries), "services")
    assert [(await served.get(f"{base}/{target}")).status for target in targets] == [400, 400, 405, 404]
    assert served.provider.questions == []


async def test_not_found_with_its_details(served: Served, pods: str) -> None:
    details: dict[str, object] = {"name": "shop/a", "group": RESOURCE_GROUP, "kind": "podmetrics"}
    served.provider.error = errors.NotFoundError('podmetrics.metrics.k8s.io "shop/a" not found', details)
    answer = await served.get(f"{pods}/a")
    assert (answer.status, answer.json["reason"], answer.json["details"]) == (404, "NotFound", details)


async def test_a_group_that_is_not_served(serve: ServerFactory, pods: str, base: str) -> None:
    served = await serve(groups=[CUSTOM_GROUP])
    assert (await served.get(pods)).status == 404
    assert (await served.get(base)).status == 404


async def test_self_metrics_name_the_kind_and_the_version(
    served: Served, version: str, pods: str, base: str
) -> None:
    await served.get(pods)
    await served.get(f"{pods}/web-1")
    await served.get(f"{base}/pods")
    value = served.monitoring.registry.get_sample_value
    for verb, scope in (("LIST", "namespace"), ("GET", "resource"), ("LIST", "cluster")):
        labels = {"verb": verb, "group": RESOURCE_GROUP, "version": version, "resource": "pods"}
        labels |= {"scope": scope, "subresource": "", "code": "200"}
        assert value("apiserver_request_total", labels) == 1
    assert value("metrics_apiserver_metric_freshness_seconds_count", {"group": RESOURCE_GROUP}) == 3
