"""Whether the APIServices lead here, as the metric says."""

import logging
from collections.abc import Mapping, Sequence

import pytest

from adapter.errors import KubernetesError
from adapter.kubernetes.client import KubernetesClient, ResponseBody
from adapter.kubernetes.registration_watch import RegistrationWatch
from adapter.telemetry.metrics import Monitoring
from fastpath_sandbox.apiserver.server import Cluster

CUSTOM = "custom.metrics.k8s.io"
V1, V2 = f"v1beta1.{CUSTOM}", f"v1beta2.{CUSTOM}"
NAMES = ("fastpath", "fastpath.fastpath.svc")


def register(cluster: Cluster, name: str, service: str = "fastpath", namespace: str = "fastpath") -> None:
    document = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": name}}
    cluster.create(document | {"spec": {"service": {"namespace": namespace, "name": service}}})


def watch_of(
    client: KubernetesClient, groups: Sequence[str] = (CUSTOM,), names: Sequence[str] = NAMES
) -> tuple[RegistrationWatch, Monitoring]:
    monitoring = Monitoring()
    return RegistrationWatch(client, groups, "fastpath", lambda: names, monitoring), monitoring


def shown(monitoring: Monitoring) -> dict[str, float]:
    lines = [
        line for line in monitoring.exposition().splitlines() if line.startswith("fastpath_apiservice_owned{")
    ]
    return {line.split('"')[1]: float(line.rpartition(" ")[2]) for line in lines}


@pytest.mark.parametrize(
    ("services", "expected"),
    [
        pytest.param(
            {V1: ("fastpath", "fastpath"), V2: ("prometheus-adapter", "monitoring")}, {V1: 1, V2: 0},
            id="ours and another's",
        ),
        pytest.param({V1: ("fastpath", "fastpath")}, {V1: 1}, id="one version of two"),
        pytest.param({V1: ("other", "fastpath")}, {V1: 0}, id="another service of our namespace"),
    ],
)  # fmt: skip
async def test_the_metric_says_which_versions_are_ours(
    cluster: Cluster,
    client: KubernetesClient,
    services: Mapping[str, tuple[str, str]],
    expected: Mapping[str, float],
) -> None:
    for name, (service, namespace) in services.items():
        register(cluster, name, service, namespace)
    watch, monitoring = watch_of(client)
    await watch.update()
    assert shown(monitoring) == expected


async def test_a_group_without_any_leads_nowhere(cluster: Cluster, client: KubernetesClient) -> None:
    watch, monitoring = watch_of(client)
    await watch.update()
    assert shown(monitoring) == {V1: 0}
    register(cluster, V2)
    await watch.update()
    assert shown(monitoring) == {V2: 1}


async def test_without_a_right_there_is_no_metric(
    cluster: Cluster,
    client: KubernetesClient,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    register(cluster, V1)
    watch, monitoring = watch_of(client)
    await watch.update()

    async def refuse(path: str) -> ResponseBody:
        raise KubernetesError(403, "Forbidden", "may not get apiservices")

    monkeypatch.setattr(client, "get", refuse)
    with caplog.at_level(logging.INFO, "adapter.kubernetes.registration_watch"):
        await watch.update()
        await watch.update()
    assert shown(monitoring) == {}
    assert len(caplog.records) == 1


async def test_a_server_that_does_not_answer_is_no_verdict(
    cluster: Cluster, client: KubernetesClient
) -> None:
    register(cluster, V1)
    watch, monitoring = watch_of(client)
    await watch.update()
    await cluster.down(refuse=False)
    await watch.update()
    assert shown(monitoring) == {V1: 1}
