"""Which requests count while a resize is not actuated."""

from typing import Any

import msgspec
import pytest

from adapter.model.autoscaling.hpa import decode_scalar
from fastpath_tools.live import resizes
from fastpath_tools.live.api_objects import PodDocument

PENDING = {
    "type": "PodResizePending",
    "status": "True",
    "reason": "Deferred",
    "message": "Node didn't have enough resource: cpu",
}
WHY = "PodResizePending, Deferred: Node didn't have enough resource: cpu"
IN_PROGRESS = {"type": "PodResizeInProgress", "status": "True"}


def pod(
    condition: dict[str, str], spec: dict[str, dict[str, str]], effective: dict[str, dict[str, str] | None]
) -> PodDocument:
    """Return a pod with requests by container, those of the spec and those in effect."""
    statuses: list[dict[str, Any]] = [
        {"name": name} | ({} if requests is None else {"resources": {"requests": requests}})
        for name, requests in effective.items()
    ]
    document = {
        "spec": {"containers": [{"name": name, "resources": {"requests": r}} for name, r in spec.items()]},
        "status": {"conditions": [condition], "containerStatuses": statuses},
    }
    return msgspec.convert(document, PodDocument, dec_hook=decode_scalar)


WEB = {"web": {"cpu": "500m", "memory": "1Gi"}, "proxy": {"cpu": "100m"}}
WAITING = pod(PENDING, WEB, {"web": {"cpu": "250m", "memory": "1Gi"}, "proxy": {"cpu": "100m"}})


@pytest.mark.parametrize(
    ("pods", "resource", "container", "said"),
    [
        pytest.param(
            [WAITING, WAITING, pod(IN_PROGRESS, WEB, {"web": {"cpu": "300m"}})],
            "cpu",
            "",
            "the utilization is of the requests in the spec, cpu 600m; the resize of 2 of 3 pods is not "
            f"actuated, and 350m is in effect there ({WHY})",
            id="of the whole pod",
        ),
        pytest.param(
            [WAITING],
            "cpu",
            "web",
            "the utilization is of the requests in the spec, cpu 500m; the resize of 1 of 1 pods is not "
            f"actuated, and 250m is in effect there ({WHY})",
            id="of one container",
        ),
        pytest.param(
            [pod(IN_PROGRESS, {"web": {"memory": "1Gi"}}, {"web": {"memory": "2Gi"}})],
            "memory",
            "",
            "the utilization is of the requests in the spec, memory 1Gi; the resize of 1 of 1 pods is not "
            "actuated, and 2Gi is in effect there (PodResizeInProgress)",
            id="memory",
        ),
        pytest.param([WAITING], "cpu", "proxy", "", id="of another container"),
        pytest.param([WAITING], "memory", "", "", id="of another resource"),
        pytest.param([pod(IN_PROGRESS, WEB, {"web": {"cpu": "500m"}})], "cpu", "web", "", id="in effect"),
        pytest.param([pod(PENDING, WEB, {"web": None})], "cpu", "", "", id="not reported"),
        pytest.param(
            [pod(PENDING | {"status": "False"}, WEB, {"web": {"cpu": "1"}})], "cpu", "", "", id="no longer"
        ),
        pytest.param([], "cpu", "", "", id="no pod"),
    ],
)
def test_requests_that_count(pods: list[PodDocument], resource: str, container: str, said: str) -> None:
    assert resizes.describe(resizes.find(pods), len(pods), resource, container) == said
