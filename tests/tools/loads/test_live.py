"""`fastpath simulate --name`: autoscaler and rules of the sandbox cluster, load of a real Prometheus."""

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.workloads import deployment
from tests.scenarios.test_doctor import QUEUE, RULES, install
from tests.support import schedules
from tests.support.answers import answers
from tests.support.doctor import REQUESTS, hpa
from tests.support.prometheus import PrometheusFactory, PrometheusServer
from tests.support.remotewrite import Written
from tests.support.verbs import Printed, printed

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

PODS = ("web-6d4b75cb6d-hgx2w", "web-6d4b75cb6d-kpl7b")


@pytest.fixture(scope="module")
def prometheus(module_prometheus: PrometheusFactory) -> PrometheusServer:
    server = module_prometheus()
    now = time.time()  # noqa: TID251  # a real Prometheus looks at real time
    for pod in PODS:
        labels = {"__name__": "http_requests_total", "namespace": "shop", "pod": pod}
        server.write(*(Written(labels, 10 * (900 - age), now - age) for age in range(900, -1, -15)))
    server.write(*(Written({"__name__": "queue_depth"}, 5, now - age) for age in range(900, -1, -15)))
    return server


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster() as cluster:
        cluster.create(deployment("web", "shop", 2))
        cluster.create(hpa("web", REQUESTS, QUEUE))
        yield cluster


Run = Callable[..., Awaitable[Printed]]


@pytest.fixture
def run(
    cluster: Cluster, prometheus: PrometheusServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Run:
    kubeconfig = cluster.kubeconfig(tmp_path / "kubeconfig")

    async def simulate(*arguments: str, name: str = "web", namespace: str = "shop") -> Printed:
        given = [
            f"--kubeconfig={kubeconfig}",
            f"--namespace={namespace}",
            f"--name={name}",
            f"--prometheus-url={prometheus.url}",
            "--last=10m",
            "--pod-start=20s",
        ]
        return await printed(capsys, "simulate", *given, *arguments)

    return simulate


async def test_rules_from_the_config_map_of_the_server(cluster: Cluster, run: Run) -> None:
    install(cluster, 1)
    before = cluster.get("HorizontalPodAutoscaler", "web", "shop")

    status, out, err = await run("--policy=native", "--output=json")

    assert (status, err) == (0, "")
    document = json.loads(out)
    assert document["load"]["seconds"] == 600
    assert document["policies"][0]["needPodSeconds"] == pytest.approx(2 * 600, rel=0.02), (
        "20 requests a second, 10 for a pod"
    )
    assert cluster.get("HorizontalPodAutoscaler", "web", "shop") == before


async def test_rules_of_a_file_need_nothing_in_the_cluster(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    status, out, err = await run(f"--config={tmp_path / 'rules.yaml'}", "--policy=native", "-o", "json")
    assert (status, err) == (0, "")
    assert json.loads(out)["policies"][0]["policy"] == "native"


async def test_a_schedule_of_the_autoscaler_in_the_cluster(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    always = {"start": "2020-01-01T00:00", "end": "2199-01-01T00:00", "minReplicas": 6}
    (tmp_path / "always.yaml").write_text(json.dumps(schedules.document(always)))
    files = f"--config={tmp_path / 'rules.yaml'}", f"--schedule={tmp_path / 'always.yaml'}"
    status, out, err = await run(*files, "--policy=fast", "-o", "json")
    assert (status, err) == (0, "")
    assert json.loads(out)["policies"][0]["podSeconds"] == 600 * 6


@pytest.mark.parametrize(("name", "namespace", "expected"), answers("loads/live", "missing"))
async def test_what_is_not_there_is_one_sentence(run: Run, name: str, namespace: str, expected: str) -> None:
    status, out, err = await run(name=name, namespace=namespace)
    assert (status, out) == (1, "")
    assert expected in err
    assert err.count("\n") == 1
