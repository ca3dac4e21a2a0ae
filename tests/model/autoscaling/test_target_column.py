"""The TARGETS column, in the words of the API server (`TestPrintHorizontalPodAutoscaler` of its printers)."""

from typing import Any

import msgspec
import pytest

from adapter.model.autoscaling.hpa import MetricSpec, MetricStatus, decode_scalar
from adapter.model.autoscaling.target_column import describe_targets


def spec(kind: str, source: dict[str, Any], **target: Any) -> dict[str, Any]:
    field = kind[0].lower() + kind[1:]
    return {"type": kind, field: source | {"target": target}}


def status(kind: str, **current: Any) -> dict[str, Any]:
    return {"type": kind, kind[0].lower() + kind[1:]: {"current": current}}


NOTHING: dict[str, Any] = {"type": ""}
METRIC = {"metric": {"name": "some-metric"}}
CPU = {"name": "cpu"}
DESCRIBED = {**METRIC, "describedObject": {"kind": "Service", "name": "s"}}


@pytest.mark.parametrize(
    ("metrics", "statuses", "text"),
    [
        ([], [], "<none>"),
        ([spec("External", METRIC, averageValue="100")], [], "<unknown>/100 (avg)"),
        (
            [spec("External", METRIC, averageValue="100")],
            [status("External", averageValue="50")],
            "50/100 (avg)",
        ),
        ([spec("External", METRIC, value="100")], [NOTHING], "<unknown>/100"),
        ([spec("External", METRIC, value="100")], [status("External", value="50")], "50/100"),
        ([spec("Pods", METRIC, averageValue="100")], [], "<unknown>/100"),
        ([spec("Pods", METRIC, averageValue="100")], [status("Pods", averageValue="37999m")], "37999m/100"),
        ([spec("Object", DESCRIBED, value="100")], [], "<unknown>/100"),
        ([spec("Object", DESCRIBED, value="100")], [status("Object", value="50")], "50/100"),
        (
            [spec("Object", DESCRIBED, averageValue="100")],
            [status("Object", averageValue="50")],
            "50/100 (avg)",
        ),
        (
            [spec("Resource", CPU, averageValue="100m")],
            [status("Resource", averageValue="50m")],
            "cpu: 50m/100m",
        ),
        ([spec("Resource", CPU, averageUtilization=80)], [NOTHING], "cpu: <unknown>/80%"),
        (
            [spec("Resource", CPU, averageUtilization=80)],
            [status("Resource", averageUtilization=50)],
            "cpu: 50%/80%",
        ),
        ([spec("Resource", CPU)], [], "cpu: <unknown>/<auto>"),
        (
            [spec("ContainerResource", CPU | {"container": "app"}, averageUtilization=80)],
            [status("ContainerResource", averageUtilization=50)],
            "cpu: 50%/80%",
        ),
        ([spec("Pods", METRIC, value="1")], [], "<unknown>/<unknown>"),
        ([{"type": "Strange"}], [], "<unknown type>"),
        (
            [spec("Pods", METRIC, averageValue="10"), spec("Resource", CPU, averageUtilization=80)],
            [status("Pods", averageValue="20"), status("Resource", averageUtilization=50)],
            "20/10, cpu: 50%/80%",
        ),
        (
            [spec("Pods", METRIC, averageValue="10")] * 4,
            [status("Pods", averageValue="20")] * 4,
            "20/10, 20/10 + 2 more...",
        ),
        ([spec("Pods", METRIC, averageValue="10")], [status("External", averageValue="20")], "<unknown>/10"),
    ],
)
def test_the_text(metrics: list[Any], statuses: list[Any], text: str) -> None:
    specs = msgspec.convert(metrics, list[MetricSpec], dec_hook=decode_scalar)
    found = msgspec.convert(statuses, list[MetricStatus], dec_hook=decode_scalar)
    assert describe_targets(specs, found) == text
