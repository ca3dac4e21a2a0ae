"""The page of all autoscalers on a real control plane without a scaler, from the kubeconfig of a person."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from aiohttp import ClientSession

from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND
from fastpath_tools.doctor.command import Doctor
from fastpath_tools.ui.fleet_page import FleetPage
from fastpath_tools.ui.fleet_reading import FleetReader
from fastpath_tools.ui.options import COMMAND
from fastpath_tools.ui.pages import Templates
from fastpath_tools.ui.server import PageServer
from tests.e2e.clusters import ClusterUnderTest
from tests.e2e.conftest import WITH_CONTROLLERS
from tests.support.page_stream import PageStream
from tests.support.waiting import running

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.integration,
    pytest.mark.timeout(120),
    pytest.mark.parametrize("cluster", WITH_CONTROLLERS, indirect=True),
]

TOKEN = "the-token"


def hpa(namespace: str, name: str, target: str) -> dict[str, Any]:
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": HPA_KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": target},
            "minReplicas": 2,
            "maxReplicas": 9,
            "metrics": [{"type": "Resource", "resource": cpu}],
        },
    }


def deployment(namespace: str, name: str) -> dict[str, Any]:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": "registry.example/none"}]},
            },
        },
    }


@pytest.fixture
async def address(cluster: ClusterUnderTest) -> AsyncIterator[str]:
    """Serve the page of the test's namespace; gives its address."""
    options, _ = COMMAND.parse([cluster.namespace, f"--kubeconfig={cluster.admin_kubeconfig}"])
    async with AsyncExitStack() as stack:
        doctor = await Doctor.open(options, stack)
        templates = Templates(f"/{TOKEN}/")
        reader = FleetReader(doctor, cluster.namespace)
        page = FleetPage(reader, templates, doctor.clock)
        server = PageServer(TOKEN, templates, lambda path: None if path else page)
        port = await stack.enter_async_context(server.listening(0))
        await stack.enter_async_context(running(reader.examine()))
        yield f"http://127.0.0.1:{port}/{TOKEN}/"


async def text_until(stream: PageStream, *texts: str) -> str:
    """Return the HTML of the first change that has all these texts."""
    while True:
        kind, content = await stream.next()
        change = "\n".join(stream.rebuild(content).values()) if kind == "sections" else ""
        if all(text in change for text in texts):
            return change


async def test_what_controllers_and_people_do_is_seen(cluster: ClusterUnderTest, address: str) -> None:
    namespaced = f"--namespace={cluster.namespace}"
    async with ClientSession(read_bufsize=2**20) as http, http.get(f"{address}events?page=") as response:
        stream = PageStream(response)
        await text_until(stream, "There are no autoscalers here.")
        place = cluster.namespace
        await cluster.create(deployment(place, "web"), hpa(place, "web", "web"), hpa(place, "orphan", "no"))
        change = await text_until(stream, "Deployment no does not exist", "has no request for cpu")
        assert "2 of 2, the worst first" in change
        assert "<td>0 / 3<td>2\u20139<td>" in change
        patch = '{"spec": {"maxReplicas": 12}}'
        await cluster.kubectl("patch", "hpa", "web", namespaced, "--type=merge", f"--patch={patch}")
        await text_until(stream, "<td>2\u201312<td>")
        await cluster.kubectl("delete", "hpa", "web", namespaced)
        change = await text_until(stream, "1 of 1")
        assert "web" not in change


async def test_many_autoscalers(cluster: ClusterUnderTest, address: str) -> None:
    await cluster.create(*(hpa(cluster.namespace, f"web-{number}", "no") for number in range(100)))
    async with ClientSession() as http:
        page = ""
        while page.count("Deployment no does not exist") < 100:
            async with http.get(address) as response:
                page = await response.text()
    assert [f">web-{number}</a>" for number in range(100) if f">web-{number}</a>" not in page] == []
