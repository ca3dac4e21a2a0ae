"""What is sent for a deletion cost: an apply that is not forced, with a field manager of its own.

tests/e2e/test_idle_scale_down.py shows what a real API server makes of it.
"""

from typing import Any

import pytest

from adapter.kubernetes.write import deletion_costs
from adapter.kubernetes.write.writer import WriteKind
from adapter.model.objects.pods import COST_ANNOTATION
from tests.support.writing import HandWriter


@pytest.mark.parametrize("cost", [-3, None], ids=["set", "taken back"])
async def test_an_apply_names_the_annotation_and_nothing_else(cost: int | None) -> None:
    writer: Any = HandWriter()
    await deletion_costs.apply(writer, "default", "web-1", cost)
    ((kind, method, path, document, options),) = writer.sent
    assert (kind, method, path) == (WriteKind.COST, "PATCH", "/api/v1/namespaces/default/pods/web-1")
    assert options == {"content_type": "application/apply-patch+yaml", "manager": "fastpath-idle-scale-down"}
    metadata: dict[str, Any] = {"name": "web-1", "namespace": "default"}
    if cost is not None:
        metadata["annotations"] = {COST_ANNOTATION: "-3"}
    assert document == {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
