from typing import Any

import pytest

from adapter.autoscaler.decide.prepared_spec import PreparedMetric
from tests.support.answers import answers
from tests.support.scaling import autoscaler


def _metric(document: dict[str, Any]) -> PreparedMetric:
    return autoscaler([document]).metrics[0]


_LIKE = {"matchExpressions": [{"key": "a", "operator": "Like"}]}


@pytest.mark.parametrize(("document", "source", "aggregate"), answers("decide/prepared_spec", "selectors"))
def test_a_selector_that_is_none(document: dict[str, Any], source: str, aggregate: str) -> None:
    document[source]["metric"]["selector"] = _LIKE

    metric = _metric(document)

    assert metric.blank == '"Like" is not a valid label selector operator'
    assert metric.aggregate == aggregate
