from typing import Any

import pytest

from adapter.autoscaler.decide.prepared_spec import PreparedMetric
from tests.support.scaling import autoscaler, external_metric, object_metric, pods_metric


def _metric(document: dict[str, Any]) -> PreparedMetric:
    return autoscaler([document]).metrics[0]


_LIKE = {"matchExpressions": [{"key": "a", "operator": "Like"}]}


@pytest.mark.parametrize(
    ("document", "source", "aggregate"),
    [
        (pods_metric(), "pods", "failed to get pods metric value: "),
        (object_metric("Value", value="1"), "object", "failed to get object metric value: "),
        (object_metric("AverageValue", averageValue="1"), "object", "failed to get object metric value: "),
        (object_metric("Value"), "object", "failed to get object metric value: "),
        (
            external_metric(value="1"),
            "external",
            "failed to get queue external metric value: failed to get external metric queue: ",
        ),
    ],
)
def test_a_selector_that_is_none(document: dict[str, Any], source: str, aggregate: str) -> None:
    document[source]["metric"]["selector"] = _LIKE

    metric = _metric(document)

    assert metric.blank == '"Like" is not a valid label selector operator'
    assert metric.aggregate == aggregate
