"""Half of the pods lose their values: a scaler over HTTP on a sandbox cluster.

Ten pods need ten: five are loaded, five are not. Without the loaded ones Kubernetes' formula asks for eight.
"""

from pathlib import Path

import pytest

from tests.world.workloads import AT_ONCE, OWN, UNIT
from tests.world.world import World, scaling

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]


async def test_the_pods_that_are_left_scale_nothing_down(tmp_path: Path, shop: World) -> None:
    down = AT_ONCE["scaleDown"] | {"policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}
    spec = {"minReplicas": 1, "maxReplicas": 12, "behavior": {"scaleDown": down}}
    web = shop.hpa(OWN, "pods", lambda _: 10 * UNIT, way="", own=True, spec=spec, replicas=10)
    await shop.run(lambda: web.ready == 10)
    loaded = list(web.parts)[:5]
    web.parts.update(dict.fromkeys(loaded, 3.0))
    async with scaling(shop, tmp_path / "scaler", None, "--metrics-ttl=50ms"):
        await shop.run(lambda: shop.is_active(OWN))
        shop.lose(*loaded)
        await shop.run(lambda: "lack a value" in shop.condition(OWN, "ScalingActive").message)
        asked = shop.prometheus.queries()
        await shop.run(lambda: shop.prometheus.queries() >= asked + 10)
        assert shop.audit.writes == []
        status, _, message = shop.condition(OWN, "ScalingActive")
        assert status == "False"
        assert "unable to get metric busy: 5 of 10 Ready pods lack a value that they had until" in message
        assert message.endswith(": it may scale up, not down")

        shop.load(OWN, lambda _: 5 * UNIT)
        shop.regain(*loaded)
        await shop.run(lambda: shop.replicas(OWN) == 5)
