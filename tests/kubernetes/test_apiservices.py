"""What an APIService and a review are decoded to, over HTTP."""

from typing import Any

import pytest

from adapter.errors import KubernetesError
from adapter.kubernetes import apiservices
from adapter.kubernetes.apiservices import ResourceAttributes
from adapter.kubernetes.client import KubernetesClient
from adapter.model.apiservices import Registration, ServiceReference, Trust
from fastpath_sandbox.apiserver.server import Cluster

NAME = "v1beta1.custom.metrics.k8s.io"
SERVICE = {"service": {"namespace": "a", "name": "b"}}


def _create(cluster: Cluster, **more: object) -> None:
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
    _create(cluster, spec=spec)
    assert await apiservices.fetch_registration(client, NAME) == Registration(service, Trust.SYSTEM)


async def test_other_conditions_say_nothing(cluster: Cluster, client: KubernetesClient) -> None:
    conditions = [{"type": "Other", "status": "False", "reason": "No"}]
    _create(cluster, spec=SERVICE, status={"conditions": conditions})
    found = await apiservices.fetch_registration(client, NAME)
    assert found is not None
    assert (found.available, found.reason) == ("", "")


async def test_its_own_labels_win_over_its_services(cluster: Cluster, client: KubernetesClient) -> None:
    labels = {"app": "service", "k8s-app": "service"}
    cluster.create(
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "b", "namespace": "a", "labels": labels}}
    )
    document = {"name": NAME, "labels": {"app": "own"}}
    _create(cluster, metadata=document, spec=SERVICE)
    found = await apiservices.fetch_registration(client, NAME)
    assert found is not None
    assert found.labels == {"app": "own", "k8s-app": "service"}


async def test_an_invalid_apiservice_raises(cluster: Cluster, client: KubernetesClient) -> None:
    _create(cluster, spec="none")
    with pytest.raises(KubernetesError, match="cannot be decoded"):
        await apiservices.fetch_registration(client, NAME)


async def test_a_server_that_fails_raises_and_is_no_verdict(
    cluster: Cluster, client: KubernetesClient
) -> None:
    await cluster.down(refuse=False)
    with pytest.raises(KubernetesError) as raised:
        await apiservices.fetch_registration(client, NAME)
    assert raised.value.status == 503
    with pytest.raises(KubernetesError):
        await apiservices.is_allowed(client, ResourceAttributes("get", "", "pods"))
