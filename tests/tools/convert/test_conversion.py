"""Conversion between the two kinds of autoscalers. What is kept, and left out: tests/golden/convert."""

import copy
import re
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from adapter.model.autoscaling import documents
from fastpath_tools.boost import boost_patch
from fastpath_tools.boost import boost_patch as patch
from fastpath_tools.boost.boost_patch import Wish
from fastpath_tools.convert import conversion
from scripts.generate import crd, crd_schedules
from tests.manifests import structural

ROOT = Path(__file__).parents[3]

TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
PODS: dict[str, Any] = {
    "type": "Pods",
    "pods": {"metric": {"name": "requests"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}
QUEUE: dict[str, Any] = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "5"}},
}


def hpa(*metrics: dict[str, Any], **spec: Any) -> dict[str, Any]:
    own = {
        "scaleTargetRef": TARGET,
        "maxReplicas": 5,
        **({"metrics": list(metrics)} if metrics else {}),
        **spec,
    }
    head = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"}}
    return head | {"spec": own}


def test_what_the_transcripts_print_is_taken_by_the_cluster() -> None:
    given = [crd.definition(), crd_schedules.definition()]
    schemas = {
        each["spec"]["names"]["kind"]: each["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for each in given
    }
    text = "\n".join(path.read_text() for path in ROOT.glob("tests/golden/convert/*/transcript"))
    printed = re.sub(
        r"^[!?] .*$", "", re.sub(r"^\$ .*$", "---", text, flags=re.MULTILINE), flags=re.MULTILINE
    )
    found = [each for each in yaml.safe_load_all(printed) if each and each["kind"] in schemas]
    assert {each["kind"] for each in found} == set(schemas)
    assert [each for each in found if structural.verdict(each, schemas[each["kind"]])] == []


@given(
    metrics=st.lists(st.sampled_from([PODS, QUEUE]), min_size=1, max_size=3),
    mode=st.sampled_from(["boost", "advise"]),
    way=st.sampled_from(["external", "object"]),
    behavior=st.booleans(),
)
def test_what_boost_adds_makes_no_difference(
    metrics: list[Any], mode: str, way: str, *, behavior: bool
) -> None:
    """Converting a boosted autoscaler gives what converting it before gave."""
    spec: dict[str, Any] = {"behavior": {"scaleDown": {"selectPolicy": "Disabled"}}} if behavior else {}
    plain = hpa(*metrics, **spec)
    planned = patch.plan(plain, Wish(mode, way if mode == "boost" else ""))
    boosted = boost_patch.apply(copy.deepcopy(plain), planned.operations)
    assert boosted != plain
    assert conversion.to_fastpath(boosted).document == conversion.to_fastpath(plain).document


def _reads_as(document: Any) -> Any:
    return documents.read_document(_listed(document), "shop").spec


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _listed(below) for name, below in value.items()}
    return [_listed(below) for below in value] if isinstance(value, tuple | list) else value


@given(
    st.lists(st.sampled_from([PODS, QUEUE]), max_size=3),
    st.dictionaries(st.sampled_from(["minReplicas", "maxReplicas"]), st.integers(1, 9)),
)
def test_there_and_back_is_where_it_began(metrics: list[Any], spec: dict[str, Any]) -> None:
    before = hpa(*metrics, **{"maxReplicas": 9, **spec, "minReplicas": 1})
    there = conversion.to_fastpath(before)
    back = conversion.to_native(_listed(there.document))
    assert (there.notes, back.notes) == ((), ())
    assert back.document["kind"] == "HorizontalPodAutoscaler"
    assert _reads_as(back.document) == _reads_as(before)


def test_the_guide_names_each_field_that_goes_back_to_no_field() -> None:
    text = (ROOT / "docs" / "guides" / "fast-scaler.md").read_text()
    listed = text.partition("It leaves out ")[2].partition("and Fastpath's annotations")[0]
    assert re.findall("`([a-zA-Z]+)`", listed) == list(conversion.OWN_FIELDS)
