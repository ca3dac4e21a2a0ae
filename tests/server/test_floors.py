"""The floors of boosted autoscalers over HTTP: paths, refusals, discovery, and no cached bodies."""

import pytest

from adapter.boost.provider import FloorProvider, ObservedHPA
from adapter.errors import NotSyncedError
from adapter.model import label_selectors
from adapter.model.metrics import CustomQuestion, ExternalQuestion
from adapter.server.api.paths import CUSTOM_GROUP, EXTERNAL_GROUP
from tests.support.clock import FakeClock
from tests.support.floors import FakeAutoscalers, FakeFloors, entry
from tests.support.serving import Served, ServerFactory

EXTERNAL = f"/apis/{EXTERNAL_GROUP}/v1beta1/namespaces/shop/fastpath_replicas"
WEB = f"{EXTERNAL}?labelSelector=autoscaler%3Dweb"
CUSTOM = f"/apis/{CUSTOM_GROUP}/v1beta2/namespaces/shop/horizontalpodautoscalers.autoscaling"
OF_WEB = f"{CUSTOM}/web/fastpath_replicas"
V2 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
STAMP = "2023-11-14T22:13:20Z"


@pytest.fixture
def floors() -> FakeFloors:
    return FakeFloors()


@pytest.fixture
async def boosting(serve: ServerFactory, floors: FakeFloors) -> Served:
    """Return a server of the floors, where ``shop/web`` is boosted."""
    clock = FakeClock()
    autoscalers = FakeAutoscalers({("shop", "web"): ObservedHPA("1", "100", 50, boosts=True)})
    return await serve(clock=clock, floors=FloorProvider(autoscalers, floors, clock))  # type: ignore[arg-type]  # all it calls


async def test_the_external_metric(boosting: Served, floors: FakeFloors) -> None:
    floors.publish(entry(7))
    answer = await boosting.get(WEB)
    assert answer.status == 200
    assert answer.json == {
        "kind": "ExternalMetricValueList",
        "apiVersion": "external.metrics.k8s.io/v1beta1",
        "metadata": {},
        "items": [
            {
                "metricName": "fastpath_replicas",
                "metricLabels": {"autoscaler": "web"},
                "timestamp": STAMP,
                "value": "7",
            }
        ],
    }


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
@pytest.mark.parametrize("resource", ["horizontalpodautoscalers.autoscaling", "horizontalpodautoscalers"])
async def test_the_custom_metric(boosting: Served, floors: FakeFloors, version: str, resource: str) -> None:
    floors.publish(entry(7))
    path = OF_WEB.replace("v1beta2", version).replace("horizontalpodautoscalers.autoscaling", resource)
    answer = await boosting.get(path)
    assert answer.status == 200
    (item,) = answer.json["items"]
    name = (
        {"metricName": "fastpath_replicas"}
        if version == "v1beta1"
        else {"metric": {"name": "fastpath_replicas"}}
    )
    (field,) = name
    assert item["describedObject"] == {
        "kind": "HorizontalPodAutoscaler",
        "namespace": "shop",
        "name": "web",
        "apiVersion": "autoscaling/v2",
    }
    shown = item[field] if version == "v1beta1" else {"name": item[field]["name"]}
    assert (shown, item["timestamp"], item["value"]) == (name[field], STAMP, "7")


@pytest.mark.parametrize("target", [WEB, OF_WEB], ids=["external", "custom"])
async def test_no_body_is_kept(boosting: Served, floors: FakeFloors, target: str) -> None:
    values = []
    for replicas in (0, 7, 9, 0):
        floors.publish(entry(replicas))
        floors.arrive()
        values.append((await boosting.get(target)).json["items"][0]["value"])
    assert values == ["0", "7", "9", "0"]


@pytest.mark.parametrize(
    ("target", "status", "message"),
    [
        pytest.param(
            EXTERNAL,
            400,
            "the metric fastpath_replicas takes labelSelector=autoscaler=NAME and no other selector",
            id="no selector",
        ),
        pytest.param(
            f"{WEB}%2Capp%3Dweb",
            400,
            "the metric fastpath_replicas takes labelSelector=autoscaler=NAME and no other selector",
            id="more than one",
        ),
        pytest.param(
            f"{CUSTOM}/%2A/fastpath_replicas",
            400,
            "the metric fastpath_replicas is read for one HPA by its name, without a selector",
            id="all of them",
        ),
        pytest.param(
            f"{OF_WEB}?metricLabelSelector=a%3Db",
            400,
            "the metric fastpath_replicas is read for one HPA by its name, without a selector",
            id="a selector",
        ),
        pytest.param(
            WEB.replace("web", "api"),
            404,
            'horizontalpodautoscalers.autoscaling "api" not found in the namespace "shop"',
            id="unknown",
        ),
        pytest.param(
            OF_WEB.replace("horizontalpodautoscalers.autoscaling", "pods"),
            404,
            "the server could not find the metric fastpath_replicas for pods",
            id="another kind",
        ),
    ],
)
async def test_refusals(boosting: Served, target: str, status: int, message: str) -> None:
    answer = await boosting.get(target)
    assert (answer.status, answer.json["message"]) == (status, message)
    assert boosting.provider.questions == []


@pytest.mark.parametrize("target", [WEB, OF_WEB], ids=["external", "custom"])
async def test_an_unconfirmed_0_is_an_error_without_addresses(
    boosting: Served, floors: FakeFloors, target: str
) -> None:
    floors.unread = NotSyncedError("10.0.0.1:443 refuses")
    answer = await boosting.get(target)
    assert (answer.status, answer.json["reason"]) == (500, "InternalError")
    assert answer.json["message"] == "Internal error occurred: the published floors cannot be read now"


async def test_the_right_to_ask_is_that_of_any_metric(boosting: Served) -> None:
    await boosting.get(WEB)
    (spec,) = boosting.reviews.specs
    assert {key: spec["resourceAttributes"][key] for key in ("verb", "resource", "namespace")} == {
        "verb": "list",
        "resource": "fastpath_replicas",
        "namespace": "shop",
    }
    boosting.reviews.specs.clear()
    await boosting.get(OF_WEB)
    (spec,) = boosting.reviews.specs
    attributes = spec["resourceAttributes"]
    assert (attributes["resource"], attributes["subresource"], attributes["name"]) == (
        "horizontalpodautoscalers.autoscaling",
        "fastpath_replicas",
        "web",
    )


async def test_discovery_lists_the_floors(boosting: Served) -> None:
    custom = (await boosting.get(f"/apis/{CUSTOM_GROUP}/v1beta2")).json["resources"]
    assert [(each["name"], each["namespaced"], each["kind"], each["verbs"]) for each in custom] == [
        ("horizontalpodautoscalers.autoscaling/fastpath_replicas", True, "MetricValueList", ["get"])
    ]
    external = (await boosting.get(f"/apis/{EXTERNAL_GROUP}/v1beta1")).json["resources"]
    assert [(each["name"], each["namespaced"]) for each in external] == [("fastpath_replicas", True)]
    aggregated = (await boosting.get("/apis", headers={"Accept": V2})).json["items"]
    found = {
        (group["metadata"]["name"], version["version"]): [
            (
                each["resource"],
                each["scope"],
                [below["subresource"] for below in each.get("subresources", ())],
            )
            for each in version["resources"]
        ]
        for group in aggregated
        for version in group["versions"]
    }
    of_each = [("horizontalpodautoscalers.autoscaling", "Namespaced", ["fastpath_replicas"])]
    assert found == {
        (CUSTOM_GROUP, "v1beta2"): of_each,
        (CUSTOM_GROUP, "v1beta1"): of_each,
        (EXTERNAL_GROUP, "v1beta1"): [("fastpath_replicas", "Namespaced", [])],
    }


async def test_where_floors_are_not_served_the_name_is_one_as_any(served: Served) -> None:
    await served.get(WEB)
    await served.get(OF_WEB)
    web = label_selectors.parse_selector("autoscaler=web")
    assert served.provider.questions == [
        ExternalQuestion("shop", "fastpath_replicas", web),
        CustomQuestion(
            "horizontalpodautoscalers.autoscaling",
            "shop",
            "web",
            "fastpath_replicas",
            label_selectors.EVERYTHING,
            label_selectors.EVERYTHING,
        ),
    ]
    external = (await served.get(f"/apis/{EXTERNAL_GROUP}/v1beta1")).json["resources"]
    assert "fastpath_replicas" not in [each["name"] for each in external]
