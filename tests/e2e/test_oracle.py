"""The second opinion finds a field that Kubernetes does not have, and agrees with what a scaler writes."""

import pytest

from tests.e2e.conftest import WITH_WORKLOADS
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
WRONG: dict[str, tuple[str, Document, str]] = {
    "a misspelt field": (
        "V2HorizontalPodAutoscaler",
        {"spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "a"}, "minReplica": 1}},
        "V2HorizontalPodAutoscaler shop/a: spec.minReplica: stored is 1, and the model has None",
    ),
    "a field of an item": (
        "V2HorizontalPodAutoscaler",
        {
            "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "a"}},
            "status": {
                "desiredReplicas": 1,
                "conditions": [{"type": "A", "status": "True", "lastTransitionAt": "2026-01-31T12:00:00Z"}],
            },
        },
        (
            "V2HorizontalPodAutoscaler shop/a: status.conditions[0].lastTransitionAt: stored is "
            "'2026-01-31T12:00:00Z', and the model has None"
        ),
    ),
    "a field that is needed": (
        "V2HorizontalPodAutoscaler",
        {"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "a"}}},
        "V2HorizontalPodAutoscaler shop/a: Invalid value for `max_replicas`, must not be `None`",
    ),
    "no time": (
        "V1Lease",
        {"spec": {"renewTime": "2026-01-31 noon"}},
        "V1Lease shop/a: (0)\nReason: Failed to parse `2026-01-31 noon` as datetime object",
    ),
}


@pytest.mark.parametrize("fronted", ["sandbox"], indirect=True)
@pytest.mark.parametrize("case", WRONG)
async def test_what_kubernetes_does_not_have_is_found(cluster: ClusterUnderTest, case: str) -> None:
    model, parts, fault = WRONG[case]
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
