"""The second opinion finds a field that Kubernetes does not have, and agrees with what a scaler writes."""

import pytest

from tests.e2e.conftest import WITH_WORKLOADS
from tests.support.answers import answers
from tests.world import oracle
from tests.world.clusters import ClusterUnderTest, Document
from tests.world.workloads import HOME, level
from tests.world.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(300)]

META = {"metadata": {"name": "a", "namespace": "shop", "resourceVersion": "1"}}
SCHEMA: Document = {
    "properties": {
        "spec": {"properties": {"metrics": {"items": {"properties": {"type": {}}}}}},
        "status": {"properties": {"labels": {"additionalProperties": {"type": "string"}}}},
    }
}


@pytest.mark.parametrize("fronted", ["sandbox"], indirect=True)
@pytest.mark.parametrize(("model", "parts", "fault"), answers("e2e/test_oracle", "differences"))
async def test_what_kubernetes_does_not_have_is_found(
    cluster: ClusterUnderTest, model: str, parts: Document, fault: str
) -> None:
    async with oracle.asking(cluster) as asked:
        (found,) = asked.compare(model, META | parts)
    assert found.startswith(fault)


@pytest.mark.parametrize("fronted", ["sandbox"], indirect=True)
async def test_what_a_schema_does_not_have_is_found(cluster: ClusterUnderTest) -> None:
    custom = META | {
        "kind": "FastPathAutoscaler",
        "spec": {"metrics": [{"type": "Pods", "typ": "Pods"}]},
        "status": {"labels": {"any": "a"}, "desired": 1},
    }
    async with oracle.asking(cluster) as asked:
        found = asked.validate(custom, SCHEMA)
    assert found == [
        "FastPathAutoscaler shop/a: spec.metrics[0].typ: the schema has no such field",
        "FastPathAutoscaler shop/a: status.desired: the schema has no such field",
    ]


@pytest.mark.parametrize("fronted", WITH_WORKLOADS, indirect=True)
async def test_a_scaler_writes_what_kubernetes_has(world: World) -> None:
    """Each version of a Lease and of an autoscaler on its way, and all objects in the end."""
    world.fpa("web", load=level(2))
    async with oracle.asking(world.cluster) as asked:
        async with asked.following(HOME) as wrong:
            scaler = await world.scaler()
            await world.run(lambda: world.is_active("web"))
            world.load("web", level(4))
            await world.run(lambda: world.workloads["web"].ready == 4)
            await world.run(lambda: world.told("web", "SuccessfulRescale"))
            await scaler.end()
        for namespace in (world.namespace, HOME):
            wrong += await asked.read(namespace)
            wrong += await asked.read_with_kubectl(namespace)
    assert wrong == []
    assert {"V1Deployment", "CoreV1Event", "V1Lease", "FastPathAutoscaler"} <= asked.seen.keys()
    assert asked.seen["V1Lease"] > 10
