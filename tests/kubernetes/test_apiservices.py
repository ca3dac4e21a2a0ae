"""What an APIService is decoded to, and whether the APIServices lead here."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from adapter.errors import KubernetesError
from adapter.kubernetes import apiservices
from adapter.kubernetes.apiservices import RegistrationWatch
from adapter.kubernetes.client import KubernetesClient
from adapter.model.objects.apiservices import Registration, ServiceReference, Trust
from adapter.telemetry.metrics import Monitoring
from fastpath_sandbox.apiserver.server import Cluster
from tests.kubernetes.apiclient import error_of

NAME = "v1beta1.custom.metrics.k8s.io"
SERVICE = {"service": {"namespace": "a", "name": "b"}}


def create(cluster: Cluster, **more: object) -> None:
    document = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": NAME}}
    cluster.create({**document, **more})


async def test_absent_is_none(client: KubernetesClient) -> None:
    assert await apiservices.fetch_registration(client, NAME) is None


@pytest.mark.parametrize(
    ("spec", "service"),
    [
        pytest.param({"group": "a.io", "version": "v1"}, None, id="the API server's own"),
        pytest.param({**SERVICE, "caBundle": None}, ServiceReference("a", "b", 443), id="default port"),
    ],
)
async def test_absent_fields_have_defaults(
    cluster: Cluster, client: KubernetesClient, spec: dict[str, Any], service: ServiceReference | None
) -> None:
    create(cluster, spec=spec)
    assert await apiservices.fetch_registration(client, NAME) == Registration(service, Trust.SYSTEM)


async def test_other_conditions_say_nothing(cluster: Cluster, client: KubernetesClient) -> None:
    conditions = [{"type": "Other", "status": "False", "reason": "No"}]
    create(cluster, spec=SERVICE, status={"conditions": conditions})
    found = await apiservices.fetch_registration(client, NAME)
    assert found is not None
    assert (found.available, found.reason) == ("", "")


async def test_an_invalid_apiservice_raises(cluster: Cluster, client: KubernetesClient) -> None:
    create(cluster, spec="none")
    with pytest.raises(KubernetesError, match="Decode"):
        await apiservices.fetch_registration(client, NAME)


async def test_a_server_that_fails_raises(cluster: Cluster, client: KubernetesClient) -> None:
    await cluster.down(refuse=False)
    raised = await error_of(apiservices.fetch_registration(client, NAME))
    assert raised.status == 503


# -- whether they lead here ---------------------------------------------------------------------------------

CUSTOM = "custom.metrics.k8s.io"
V1, V2 = f"v1beta1.{CUSTOM}", f"v1beta2.{CUSTOM}"
NAMES = ("fastpath", "fastpath.fastpath.svc")


def register(cluster: Cluster, name: str, service: str = "fastpath", namespace: str = "fastpath") -> None:
    create(cluster, metadata={"name": name}, spec={"service": {"namespace": namespace, "name": service}})


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
    cluster: Cluster, client: KubernetesClient, caplog: pytest.LogCaptureFixture
) -> None:
    register(cluster, V1)
    watch, monitoring = watch_of(client)
    await watch.update()
    cluster.forbid("*", "apiservices")
    with caplog.at_level(logging.INFO, "adapter.kubernetes.apiservices"):
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
