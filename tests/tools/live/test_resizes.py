"""Which requests count while a resize is not actuated."""

from typing import Any

import msgspec
import pytest

from adapter.model.autoscaling.hpa import decode_scalar
from fastpath_tools.live import resizes
from fastpath_tools.live.api_objects import PodDocument
from tests.support.answers import answers

PENDING = {
    "type": "PodResizePending",
    "status": "True",
    "reason": "Deferred",
    "message": "Node didn't have enough resource: cpu",
}
CONDITIONS = {
    "waits": PENDING,
    "in progress": {"type": "PodResizeInProgress", "status": "True"},
    "no longer": PENDING | {"status": "False"},
}
SPEC = {"web": {"cpu": "500m", "memory": "1Gi"}, "proxy": {"cpu": "100m"}}


def pod(condition: str, effective: dict[str, dict[str, str] | None]) -> PodDocument:
    """Return a pod with the requests that are in effect by container."""
    statuses: list[dict[str, Any]] = [
        {"name": name} | ({} if requests is None else {"resources": {"requests": requests}})
        for name, requests in effective.items()
    ]
    document = {
        "spec": {"containers": [{"name": name, "resources": {"requests": r}} for name, r in SPEC.items()]},
        "status": {"conditions": [CONDITIONS[condition]], "containerStatuses": statuses},
    }
    return msgspec.convert(document, PodDocument, dec_hook=decode_scalar)


@pytest.mark.parametrize(("pods", "resource", "container", "said"), answers("live/resizes", "pods"))
def test_requests_that_count(pods: list[tuple[str, Any]], resource: str, container: str, said: str) -> None:
    found = resizes.find([pod(*each) for each in pods])
    assert resizes.describe(found, len(pods), resource, container) == said
