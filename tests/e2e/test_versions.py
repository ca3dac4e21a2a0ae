"""What HPAs may have and how they count, by the feature gates that the API server announces.

A FastPathAutoscaler is the same on each version.
"""

import json
import re
from collections.abc import Mapping

import pytest

from tests.e2e.conftest import REAL_ONLY, WITH_CONTROLLERS
from tests.e2e.test_aggregation import until
from tests.support.objects import definition, plain
from tests.world.clusters import ClusterUnderTest
from tests.world.workloads import UNIT, Workload, level
from tests.world.world import QUEUE, World

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(180)]
REAL = pytest.mark.parametrize("fronted", REAL_ONLY, indirect=True)
EACH = pytest.mark.parametrize("own", [False, True], ids=["HPA", "FastPathAutoscaler"])
Gates = Mapping[str, bool]
INTEGER = {"type": "integer"}
TOLERANCE, ZERO = "HPAConfigurableTolerance", "HPAScaleToZero"


@pytest.fixture
async def gates(cluster: ClusterUnderTest) -> Gates:
    """Return whether each feature gate is on that the API server knows."""
    shown = await cluster.kubectl("get", "--raw", "/metrics")
    states = re.findall(r'^kubernetes_feature_enabled{name="(\w+)",.*} ([01])$', shown, re.MULTILINE)
    return {name: state == "1" for name, state in states}


@REAL
@EACH
async def test_fields(world: World, gates: Gates, own: bool) -> None:  # noqa: FBT001
    """An API server drops a tolerance without its gate, and refuses a minimum of zero."""
    shown = []
    for name, spec in ("a", {"behavior": {"scaleUp": {"tolerance": "50m"}}}), ("b", {"minReplicas": 0}):
        document = Workload(name, QUEUE, level(1), "", spec, own=own).autoscaler()
        where = (world.cluster.admin_kubeconfig, "create", "-n", world.namespace, "--validate=false")
        created = await world.cluster.run(
            *where, "-f", "-", "-o", "jsonpath={.spec}", stdin=json.dumps(document)
        )
        shown.append(created.stdout + created.stderr)
    assert ('"tolerance":"50m"' in shown[0]) == (own or gates.get(TOLERANCE, False))
    assert ('"minReplicas":0' in shown[1]) == (own or gates[ZERO])
    refused = "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1"
    assert (refused in shown[1]) != ('"minReplicas":0' in shown[1])


@pytest.mark.parametrize("fronted", WITH_CONTROLLERS, indirect=True)
async def test_a_ratio_at_the_bound(world: World, gates: Gates) -> None:
    """1.1 is 1 + 0.1, but |1 - 1.1| is more than 0.1 in doubles: that was compared before the gate."""
    for own in (False, True):
        world.hpa("own" if own else "web", QUEUE, lambda _: 11 * UNIT, way="", own=own, replicas=10, spec={})
    await world.serve()

    def is_at(name: str, count: int) -> bool:
        return world.is_active(name) and world.autoscaler(name)["status"]["desiredReplicas"] == count

    await world.run(lambda: is_at("own", 10) and is_at("web", 10 if TOLERANCE in gates else 11))


@REAL
async def test_an_object_from_before_a_rule(cluster: ClusterUnderTest, gates: Gates) -> None:
    """Without ratcheting even its status is refused."""
    kind, admin = "things.versions.fastpath.io", cluster.admin_kubeconfig
    thing = plain("Thing", "a", cluster.namespace, spec=5) | {"apiVersion": "versions.fastpath.io/v1"}
    fields = [{"spec": number, "status": number} for number in (INTEGER, INTEGER | {"maximum": 3})]
    schemas = [{"openAPIV3Schema": {"type": "object", "properties": each}} for each in fields]
    before, after = (definition(kind, "Thing", schema=each, subresources={"status": {}}) for each in schemas)
    await cluster.create(before)
    await cluster.kubectl("wait", "--for=condition=Established", f"crd/{kind}", "--timeout=30s")
    await cluster.create(thing)
    await cluster.kubectl("replace", "-f", "-", stdin=json.dumps(after))
    other = json.dumps(thing | {"metadata": {"name": "b", "namespace": cluster.namespace}})
    new = (admin, "create", "--dry-run=server", "-f", "-")
    await until(
        lambda found: "less than or equal to 3" in found.stderr, lambda: cluster.run(*new, stdin=other)
    )
    status = ("--subresource=status", "--type=merge", "-p", '{"status":1}')
    patched = await cluster.run(admin, "patch", kind, "a", "-n", cluster.namespace, *status)
    assert (patched.status == 0) == gates.get("CRDValidationRatcheting", False), patched
    await cluster.kubectl("delete", "crd", kind)
