"""The floors of boosted autoscalers over HTTP: paths, refusals, and no cached bodies."""

import pytest

from adapter.boost.provider import FloorProvider, ObservedHPA
from adapter.errors import NotSyncedError
from adapter.server.api.paths import CUSTOM_GROUP, EXTERNAL_GROUP
from tests.boost.floors import FakeAutoscalers, FakeFloors, entry
from tests.support.clock import FakeClock
from tests.support.serving import Served, ServerFactory

EXTERNAL = f"/apis/{EXTERNAL_GROUP}/v1beta1/namespaces/shop/fastpath_replicas"
WEB = f"{EXTERNAL}?labelSelector=autoscaler%3Dweb"
CUSTOM = f"/apis/{CUSTOM_GROUP}/v1beta2/namespaces/shop/horizontalpodautoscalers.autoscaling"
OF_WEB = f"{CUSTOM}/web/fastpath_replicas"
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
    assert item["describedObject"] == {
        "kind": "HorizontalPodAutoscaler",
        "namespace": "shop",
        "name": "web",
        "apiVersion": "autoscaling/v2",
    }
    name = item["metricName"] if version == "v1beta1" else item["metric"]["name"]
    assert (name, item["timestamp"], item["value"]) == ("fastpath_replicas", STAMP, "7")


@pytest.mark.parametrize("target", [WEB, OF_WEB], ids=["external", "custom"])
async def test_no_body_is_kept(boosting: Served, floors: FakeFloors, target: str) -> None:
    values = []
    for replicas in (0, 7, 9, 0):
        floors.publish(entry(replicas))
        floors.arrive()
        values.append((await boosting.get(target)).json["items"][0]["value"])
    assert values == ["0", "7", "9", "0"]


async def test_refusals(boosting: Served) -> None:
    targets = {EXTERNAL: 400, f"{CUSTOM}/%2A/fastpath_replicas": 400, WEB.replace("web", "api"): 404}
    assert {target: (await boosting.get(target)).status for target in targets} == targets
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
