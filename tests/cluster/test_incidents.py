"""Rollouts that a real kubelet and scheduler hold up: `fastpath doctor` names the cause, not maxReplicas."""

import asyncio
import json
import re

import pytest
import yaml

from tests.cluster.site import HERE, QUEUE, Site
from tests.support.rendered import JSON

pytestmark = [pytest.mark.cluster, pytest.mark.integration, pytest.mark.timeout(300)]


async def change(site: Site, name: str, incident: JSON, part: str = "container") -> None:
    container = {"name": name, **incident.get(part, {})}
    spec = {"template": {"spec": {"containers": [container], **incident.get("pod", {})}}}
    patch = json.dumps(
        {"spec": spec | ({"strategy": incident["strategy"]} if "strategy" in incident else {})}
    )
    await site.kubectl("patch", "deployment", name, "-n", "shop", "-p", patch)


async def test_a_rollout_that_stands_still(site: Site) -> None:
    incidents: dict[str, JSON] = yaml.safe_load((HERE / "incidents.yaml").read_text())
    await site.workload("load", 1)
    await site.ask("load", "/queue?depth=60")
    await asyncio.gather(*(site.workload(name) for name in incidents))
    for name, incident in incidents.items():
        await change(site, name, incident)
        if "again" in incident:
            await site.kubectl("rollout", "status", "-n", "shop", f"deployment/{name}", "--timeout=60s")
            await change(site, name, incident, "again")
    for by in ("cat", "fastpath convert"):
        for name in incidents:
            await site.autoscale(name, QUEUE, by, maximum=4)
        for name, incident in incidents.items():
            diagnosis = rf"\ndiagnosis: .*{incident['cause']}"

            async def is_named(name: str = name, diagnosis: str = diagnosis) -> bool:
                doctor = (await site.shell.run(f"fastpath doctor shop/{name}")).stdout
                assert re.search(diagnosis, doctor), doctor
                return True

            await site.until(is_named, 100)
        await site.kubectl("delete", "hpa,fpa", "--all", "-n", "shop")
    await site.kubectl("delete", "deployment", *incidents, "-n", "shop")
    await site.kubectl("delete", "pods", "-l", "app=ending", "-n", "shop", "--force", "--grace-period=0")
