from typing import Any

import pytest

from tests.support.answers import answers
from tests.support.scaling import autoscaler


@pytest.mark.parametrize(("document", "source", "aggregate"), answers("decide/prepared_spec", "selectors"))
def test_a_selector_that_is_none(document: dict[str, Any], source: str, aggregate: str) -> None:
    document[source]["metric"]["selector"] = {"matchExpressions": [{"key": "a", "operator": "Like"}]}

    (metric,) = autoscaler([document]).metrics

    assert metric.blank == '"Like" is not a valid label selector operator'
    assert metric.aggregate == aggregate
