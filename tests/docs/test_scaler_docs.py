"""The pages on the fast-scaler have examples that work, and what they say of fields is so."""

import re
from typing import Any

import pytest
import yaml

from adapter.model.autoscaling import documents, fastpath_autoscaler
from scripts.generate import crd
from tests.manifests import structural
from tests.support import rendered
from tests.support.rendered import ROOT

GUIDE = (ROOT / "docs" / "guides" / "fast-scaler.md").read_text()
SCALER = (ROOT / "docs" / "reference" / "scaler.md").read_text()
EXAMPLES = sorted((ROOT / "docs" / "examples" / "autoscalers").glob("*.yaml"))
SCHEMA: dict[str, Any] = crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
BLOCKS: list[dict[str, Any]] = [
    yaml.safe_load(block) for page in (GUIDE, SCALER) for block in rendered.blocks(page, "yaml")
]
(SHOWN,) = (block for block in BLOCKS if block["kind"] == fastpath_autoscaler.KIND)


@pytest.mark.parametrize(
    "document",
    [SHOWN, *(yaml.safe_load(path.read_text()) for path in EXAMPLES)],
    ids=["page", *(path.name for path in EXAMPLES)],
)
def test_examples_are_taken(document: dict[str, Any]) -> None:
    assert structural.verdict(document, SCHEMA) == []
    assert structural.pruned(document, SCHEMA) == document
    assert documents.read_document(document).metadata.namespace == "shop"


def test_a_part_of_a_spec_is_taken() -> None:
    (part,) = rendered.blocks(GUIDE, "yaml spec")
    document = SHOWN | {"spec": SHOWN["spec"] | yaml.safe_load(part)["spec"]}

    assert structural.verdict(document, SCHEMA) == []
    assert documents.read_document(document).spec.pending_capacity


def test_examples_are_listed() -> None:
    for path in EXAMPLES:
        assert f"[{path.name}](../examples/autoscalers/{path.name})" in GUIDE
    shown = {yaml.safe_load(path.read_text())["spec"].get("fallback", {}).get("type") for path in EXAMPLES}
    assert {fastpath_autoscaler.FLOOR, fastpath_autoscaler.LAST_GOOD} <= shown


def test_the_guide_has_each_fallback_and_the_limits() -> None:
    for value in (fastpath_autoscaler.HOLD, fastpath_autoscaler.FLOOR, fastpath_autoscaler.LAST_GOOD):
        assert f"- `{value}` " in GUIDE
    assert f"`metrics` may have {fastpath_autoscaler.MOST_METRICS} entries" in GUIDE
    assert f"{fastpath_autoscaler.MOST_POLICIES} policies" in GUIDE


def test_columns_are_those_of_the_kind() -> None:
    columns = [each["name"].upper() for each in crd.COLUMNS if not each.get("priority")]
    assert re.search(r"\s+".join(["NAME", *columns]), GUIDE)
