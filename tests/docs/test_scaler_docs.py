"""The pages on the fast-scaler have every field, its default and bounds, and examples that work."""

import re
from typing import Any

import pytest
import yaml

from adapter.model.autoscaling import documents, fastpath_autoscaler, scale_down
from adapter.model.autoscaling.scale_down import Drain
from adapter.model.timestamps import read_span
from scripts.generate import crd
from tests.manifests import structural
from tests.support import rendered
from tests.support.rendered import ROOT

GUIDE = (ROOT / "docs" / "guides" / "fast-scaler.md").read_text()
API = (ROOT / "docs" / "reference" / "api.md").read_text()
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


ROWS = dict(re.findall(r"^\| `([\w.]+)` \| (.*)$", API.partition("\nConditions ")[0], re.MULTILINE))


def test_every_field_is_on_the_page() -> None:
    spec = SCHEMA["properties"]["spec"]["properties"]
    own = {name for name in spec if name in ROWS}
    own |= {f"fallback.{name}" for name in spec["fallback"]["properties"]}
    own |= {f"pendingCapacity.{name}" for name in spec["pendingCapacity"]["items"]["properties"]}
    own |= {f"forecast.{name}" for name in spec["forecast"]["properties"]}
    own |= {f"scaleDown.{name}" for name in spec["scaleDown"]["properties"]}
    own |= {f"scaleDown.drain.{name}" for name in spec["scaleDown"]["properties"]["drain"]["properties"]}
    assert own == ROWS.keys()
    for name in spec.keys() - own:
        assert f"`{name}`" in API, f"docs/reference/api.md has no row for {name}"


def test_defaults_and_bounds_are_on_the_page() -> None:
    for name, default, (least, greatest) in (
        ("syncPeriod", fastpath_autoscaler.SYNC_PERIOD, fastpath_autoscaler.SYNC_PERIODS),
        ("fallback.after", fastpath_autoscaler.AFTER, fastpath_autoscaler.AFTERS),
        ("fallback.lastGoodFor", None, fastpath_autoscaler.LAST_GOOD_FORS),
        ("scaleDown.drain.timeout", Drain().timeout, scale_down.TIMEOUTS),
    ):
        row = ROWS[name]
        found = re.search(r"from (\w+) to (\w+)\.", row)
        assert found is not None
        assert (read_span(found[1]), read_span(found[2])) == (least, greatest)
        if default is not None:
            assert row.startswith("`")
            assert read_span(row.split("`")[1]) == default
    for name, schema in SCHEMA["properties"]["spec"]["properties"]["forecast"]["properties"].items():
        shown = f"`{schema['default']}`" if "default" in schema else "none"
        assert ROWS[f"forecast.{name}"].startswith(f"{shown} | "), name
    assert f"`{fastpath_autoscaler.AUTO}`" in ROWS["mode"].split("|")[0]
    for value in fastpath_autoscaler.MODES:
        assert f"`{value}`" in ROWS["mode"]
    for value in fastpath_autoscaler.FALLBACKS:
        assert f"`{value}`" in ROWS["fallback.type"]
        assert f"- `{value}` " in GUIDE
    assert f"`metrics` may have {fastpath_autoscaler.MOST_METRICS} entries" in GUIDE
    assert f"{fastpath_autoscaler.MOST_POLICIES} policies" in GUIDE


def test_columns_are_those_of_the_kind() -> None:
    columns = [each["name"].upper() for each in crd.COLUMNS if not each.get("priority")]
    assert re.search(r"\s+".join(["NAME", *columns]), GUIDE)
