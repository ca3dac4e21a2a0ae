import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.errors import InputError
from fastpath_sandbox.apiserver import patches
from fastpath_tools import yaml_documents
from fastpath_tools.boost import command as boost
from fastpath_tools.boost.boost_patch import PatchOperation, Wish
from fastpath_tools.yaml_documents import YAMLDocument
from tests.support import thorough

EXAMPLES = 1000 if thorough.is_chosen() else 30
BOOST, ADVISE, PLAIN = Wish("boost"), Wish("advise"), Wish("")
CASES = Path(__file__).parents[2] / "golden" / "boost"
GIVEN = sorted(CASES.glob("*/*.*"))
SERVICE = """\
apiVersion: v1
kind: Service
metadata: {name: web, "annotations": {n: 010, t: 2026-11-20}}   # of\tit\x20
"""
SHOP, BOOSTED = ((CASES / "manifest" / name).read_text() for name in ("shop.yaml", "boosted.yaml"))


def _values(text: str) -> list[Any]:
    return [each.value for each in yaml_documents.read_documents(text, "") if isinstance(each, YAMLDocument)]


def _changed(text: str, wish: Wish) -> str:
    return boost.change(text, "shop.yaml", wish).text


def _autoscalers(text: str) -> list[Any]:
    return [value for value in _values(text) if "HorizontalPodAutoscaler" in json.dumps(value)]


def _patched(tree: Any, patch: tuple[PatchOperation, ...]) -> Any:
    """Return what another reader of JSON patches makes; an alias is written out first."""
    return patches.json_patch(json.loads(json.dumps(tree)), [each.plain() for each in patch])


def _without_empty_annotations(tree: Any) -> Any:
    """Return a document as a cluster keeps it: a patch leaves annotations that are empty."""
    meta = {name: value for name, value in tree["metadata"].items() if value != {}}
    return tree | {"metadata": meta}


@pytest.mark.parametrize("path", GIVEN, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_each_wish_makes_is_settled_and_is_what_its_patches_make(path: Path) -> None:
    """What is refused for one wish is refused for all, with the same words."""
    text = path.read_text()
    said = set()
    for wish in (BOOST, ADVISE, PLAIN, Wish("boost", "external"), Wish("boost", "object")):
        try:
            made = boost.change(text, "a", wish)
        except InputError as error:
            said.add(str(error))
            continue
        said.add("")
        if "name: zero" not in text:  # without its metric the API server refuses it, and so does the second
            assert _changed(made.text, wish) == made.text
        given, found = _autoscalers(text), _autoscalers(made.text)
        if path.parent.name != "list":
            pairs = zip(given, made.patches, strict=True)
            patched = [_patched(tree, patch) for tree, patch in pairs]
            assert [*map(_without_empty_annotations, patched)] == [*map(_without_empty_annotations, found)]
    assert len(said) == 1


@pytest.mark.parametrize(
    "name", ["manifest/shop.yaml", "list/list.yaml", "list/line.json", "list/indented.json"]
)
def test_removing_brings_back_what_was(name: str) -> None:
    text = (CASES / name).read_text()
    assert _changed(_changed(text, BOOST), PLAIN) == text
    assert _changed(_changed(text, ADVISE), PLAIN) == text


def test_more_documents_than_a_manifest_has_are_refused() -> None:
    with pytest.raises(InputError, match="a: expected at most 10,000 documents"):
        boost.change("---\n" * 10_001, "a", BOOST)


def _external(name: str, selector: str, value: str) -> dict[str, Any]:
    metric = {"name": name, "selector": {"matchLabels": {"autoscaler": selector}}}
    return {
        "type": "External",
        "external": {"metric": metric, "target": {"type": "AverageValue", "averageValue": value}},
    }


_OWN = st.sampled_from(
    [
        _external("queue", "web", "1"),
        {
            "type": "Pods",
            "pods": {"metric": {"name": "a"}, "target": {"type": "AverageValue", "averageValue": 5}},
        },
        {
            "type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 7}},
        },
    ]
)
_HANDSHAKES = st.builds(
    _external, st.just("fastpath_replicas"), st.sampled_from(["web", "y"]), st.sampled_from("12")
)
_ANNOTATIONS = st.dictionaries(
    st.sampled_from(["a", "y", "fastpath.io/hold", "fastpath.io/forecast", "x.io/y"]),
    st.text("a1:#\n \"'{", max_size=9),
    min_size=1,
)
_FORMS = [
    lambda tree: yaml.safe_dump(tree, sort_keys=False),
    lambda tree: yaml.safe_dump(tree, sort_keys=True, indent=4, explicit_start=True),
    lambda tree: yaml.safe_dump(tree, sort_keys=False, default_flow_style=None, width=200) + "# end\n",
    lambda tree: yaml.safe_dump(tree, sort_keys=False, default_flow_style=True),
    lambda tree: yaml.safe_dump(tree, sort_keys=False).replace("\n", "\r\n"),
    lambda tree: yaml.safe_dump(tree, sort_keys=False).rstrip("\n"),
    json.dumps,
    lambda tree: json.dumps(tree, indent="\t"),
]


@settings(max_examples=EXAMPLES)
@given(
    own=st.lists(_OWN, max_size=3),
    handshakes=st.lists(_HANDSHAKES, max_size=2),
    shuffled=st.randoms(use_true_random=False),
    annotations=st.none() | _ANNOTATIONS,
    mode=st.sampled_from(["", "advise", "boost", "fast"]),
    form=st.sampled_from(_FORMS),
    way=st.sampled_from(["", "external", "object"]),
)
def test_any_autoscaler(
    own: list[Any], handshakes: list[Any], shuffled: Any, annotations: Any, mode: str, form: Any, way: str
) -> None:
    metrics = [*own, *handshakes]
    shuffled.shuffle(metrics)
    own = [each for each in metrics if each not in handshakes]
    marked = (annotations or {}) | ({"fastpath.io/mode": mode} if mode else {})
    meta: dict[str, Any] = {"name": "web"} | ({"annotations": marked} if marked else {})
    tree: dict[str, Any] = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": meta,
    }
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    tree["spec"] = {"scaleTargetRef": target} | ({"metrics": metrics} if metrics else {}) | {"maxReplicas": 3}
    copied = json.loads(json.dumps(tree))  # so that nothing becomes an alias
    text = f"{SERVICE}---\n{form(copied)}"
    made = boost.change(text, "a", Wish("boost", way))
    service, boosted = _values(made.text)
    assert made.text.startswith(f"{SERVICE}---\n")
    assert service["kind"] == "Service"
    assert boosted["metadata"]["annotations"] == (annotations or {}) | {"fastpath.io/mode": "boost"}
    kept = [each for each in boosted["spec"]["metrics"] if "fastpath_replicas" not in json.dumps(each)]
    assert kept == (
        own
        or [
            {
                "type": "Resource",
                "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
            }
        ]
    )
    assert len(boosted["spec"]["metrics"]) == len(kept) + 1
    assert {**boosted, "metadata": 0, "spec": 0} == {**tree, "metadata": 0, "spec": 0}
    assert {**boosted["spec"], "metrics": 0} == {**tree["spec"], "metrics": 0}
    assert _changed(made.text, Wish("boost", way)) == made.text == _changed(made.text, BOOST)
    patch = [each.plain() for each in made.patches[0]]
    assert patches.json_patch(tree, patch) == boosted
    back = boost.change(made.text, "a", PLAIN)
    if own and not handshakes and not mode:
        assert not made.notes or annotations
        assert _values(back.text) == _values(text)
    _, plain = _values(back.text)
    assert plain["metadata"].get("annotations") == (annotations or None)
    assert plain["spec"]["metrics"] == kept


_PIECES = st.sampled_from(
    ["|\n", "\n", "  ", "\t", "\r", "---\n", ": ", "- ", "&a ", "*a", "# ", "null", "<<: *a", *"{}[]\"',"]
)
_WISHES = st.sampled_from([BOOST, ADVISE, PLAIN, Wish("boost", "object")])


@settings(max_examples=EXAMPLES)
@given(
    st.sampled_from([SHOP, BOOSTED]),
    st.integers(0, 1500),
    st.integers(0, 12),
    _PIECES | st.text(max_size=3),
    _WISHES,
)
def test_any_text_is_refused_or_settles(text: str, start: int, cut: int, piece: str, wish: Wish) -> None:
    broken = text[:start] + piece + text[start + cut :]
    try:
        made = _changed(broken, wish)
    except InputError:
        return
    assert _changed(made, wish) == made
