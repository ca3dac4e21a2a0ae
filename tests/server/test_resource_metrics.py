"""Resource metrics over HTTP: what is kept of each form, and self-metrics."""

import pytest

from adapter.server.api.paths import RESOURCE_GROUP
from tests.support.serving import Served, ServerFactory

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


@pytest.fixture
async def served(serve: ServerFactory) -> Served:
    return await serve(groups=[RESOURCE_GROUP])


async def test_each_form_is_kept_for_itself(served: Served) -> None:
    pods = f"/apis/{RESOURCE_GROUP}/v1/namespaces/shop/pods"
    served.provider.fresh_until = served.clock.monotonic() + 1
    answers = [await served.get(pods, headers=headers) for headers in (TABLE, {}, TABLE, {})]
    assert [answer.json["kind"] for answer in answers] == ["Table", "PodMetricsList"] * 2
    assert len(served.provider.questions) == 2


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_self_metrics_name_the_kind_and_the_version(served: Served, version: str) -> None:
    for path in ("namespaces/shop/pods", "namespaces/shop/pods/web-1", "pods"):
        await served.get(f"/apis/{RESOURCE_GROUP}/{version}/{path}", headers=TABLE)
    value = served.monitoring.registry.get_sample_value
    for verb, scope in (("LIST", "namespace"), ("GET", "resource"), ("LIST", "cluster")):
        labels = {"verb": verb, "group": RESOURCE_GROUP, "version": version, "resource": "pods"}
        labels |= {"scope": scope, "subresource": "", "code": "200"}
        assert value("apiserver_request_total", labels) == 1
