import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import InputError
from fastpath_sandbox.apiserver import patches
from fastpath_tools import yaml_documents
from fastpath_tools.boost import command as boost
from fastpath_tools.boost.boost_patch import Wish
from fastpath_tools.yaml_documents import YAMLDocument

BOOST, ADVISE, PLAIN = Wish("boost"), Wish("advise"), Wish("")
SHOP = """\
# The shop
%s---

---
# Its autoscaler
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: web   # as the Deployment
  # nothing more
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 10   # the database takes no more
  metrics:
  # per pod
  - type: Pods
    pods:
      metric: {name: requests}
      target: {type: AverageValue, averageValue: "0.5k"}   # measured

  # end of metrics
  behavior: {}
--- # the other one
{"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2", \
"metadata": {"name": "api", "annotations": {"a": "b"}}, \
"spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "api"}, "maxReplicas": 4, \
"metrics": [{"type": "Resource", \
"resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]}}
...
# end
"""
SERVICE = (
    'apiVersion: v1\nkind: Service\nmetadata: {name: web, "annotations": {n: 010, t: 2026-11-20}}   # '
    "of\tit \n"
)
SHOP %= SERVICE

BOOSTED = (
    SHOP.replace(
        "  # nothing more\n",
        "  annotations:\n    fastpath.io/mode: boost\n  # nothing more\n",
    )
    .replace(
        "\n\n  # end of metrics",
        """
  - type: External
    external:
      metric:
        name: fastpath_replicas
        selector:
          matchLabels:
            autoscaler: web
      target:
        type: AverageValue
        averageValue: "1"

  # end of metrics""",
    )
    .replace('"b"}', '"b", "fastpath.io/mode": "boost"}')
    .replace(
        "50}}}]",
        '50}}}, {"type": "External", "external": {"metric": {"name": "fastpath_replicas", "selector": '
        '{"matchLabels":'
        ' {"autoscaler": "api"}}}, "target": {"type": "AverageValue", "averageValue": "1"}}}]',
    )
)


def _values(text: str) -> list[Any]:
    return [each.value for each in yaml_documents.read_documents(text, "") if isinstance(each, YAMLDocument)]


def _changed(text: str, wish: Wish) -> str:
    return boost.change(text, "shop.yaml", wish).text


def test_only_what_is_new_is_new() -> None:
    made = boost.change(SHOP, "shop.yaml", BOOST)
    assert made.text == BOOSTED
    assert made.notes == ()
    assert len(made.patches) == 2


def test_twice_changes_nothing_and_removing_brings_back_what_was() -> None:
    assert _changed(BOOSTED, BOOST) == BOOSTED
    assert _changed(BOOSTED, PLAIN) == SHOP == _changed(SHOP, PLAIN)
    advised = _changed(BOOSTED, ADVISE)
    assert advised == _changed(SHOP, ADVISE) == _changed(advised, ADVISE)
    assert "fastpath_replicas" not in advised
    assert _changed(advised, BOOST) == BOOSTED


def test_directives_stay_as_they_are() -> None:
    text = f"# shop\n%YAML 1.1\n---\n{SHOP.partition('---')[2].lstrip()}"
    made = _changed(text, BOOST)
    assert made == text.replace(SHOP.partition("---")[2].lstrip(), BOOSTED.partition("---")[2].lstrip())
    assert _changed(made, PLAIN) == text


def test_a_list() -> None:
    api = yaml.safe_load(SHOP.partition("the other one\n")[2])
    listed = {"apiVersion": "v1", "kind": "List", "items": [{"kind": "Pod"}, api, 3, api]}
    text = yaml.safe_dump(listed, sort_keys=False).replace("&id001 ", "")
    for form in (text, json.dumps(listed), json.dumps(listed, indent=4)):
        alone = form.replace("*id001", "5")
        made = boost.change(alone, "list", BOOST)
        items = yaml.safe_load(made.text)["items"]
        assert items[1]["metadata"]["annotations"]["fastpath.io/mode"] == "boost"
        assert [each for each in items if not isinstance(each, dict) or each.get("kind") == "Pod"] == [
            {"kind": "Pod"},
            3,
            *([5] if "*" in form else []),
        ]
        assert yaml.safe_load(_changed(made.text, PLAIN)) == yaml.safe_load(alone)


def test_an_alias_is_written_out() -> None:
    text = SHOP.replace("{}\n---", "&e {}\n---").replace(
        "metadata:\n  name: web ", "x: &n {name: web}\nmetadata: *n\ny: "
    )
    with pytest.raises(InputError, match="unknown field"):
        _changed(text, BOOST)
    text = SHOP.replace(
        "metadata:\n  name: web ", "metadata: &n\n  name: web\n  annotations: &a {c: d}\n  labels: *a "
    )
    made = boost.change(text, "shop.yaml", BOOST)
    assert len(made.notes) == 1
    assert made.notes[0].startswith(
        "shop.yaml:9: HorizontalPodAutoscaler web: its document is rewritten as a whole"
    )
    first = list(yaml.safe_load_all(made.text))[2]["metadata"]
    assert (first["annotations"], first["labels"]) == ({"c": "d", "fastpath.io/mode": "boost"}, {"c": "d"})
    assert _changed(made.text, BOOST) == made.text
    assert made.text.startswith(SHOP.partition("apiVersion: autoscaling")[0])
    assert made.text.endswith(BOOSTED.partition("--- # the other")[2])


def test_notes_say_where() -> None:
    one = SHOP.replace("  maxReplicas: 10 ", "  minReplicas: 1\n  maxReplicas: 10 ").partition(
        "--- # the other"
    )[0]
    empty = one.replace("metrics:", "metrics: []\nx:").partition("x:")[0]
    made = boost.change(empty, "shop.yaml", BOOST)
    assert made.notes == (
        (
            "shop.yaml:9: HorizontalPodAutoscaler web: it has no metrics, so the API's default is "
            "written out: cpu at 80 %"
        ),
    )
    assert made.text.count("  metrics:\n  - type: Resource") == 1


PATCHED = {
    "no annotations": ("web", BOOST, ["add", "add"], 1),
    "annotations": ("api", BOOST, ["add", "add"], 0),
    "advise": ("api", ADVISE, ["add"], 0),
    "nothing to do": ("api", PLAIN, [], 0),
}


@pytest.mark.parametrize("case", PATCHED)
def test_a_patch(case: str) -> None:
    name, wish, operations, notes = PATCHED[case]
    web, _, api = SHOP.partition("--- # the other")
    text = web if name == "web" else f"--- # the other{api}"
    made = boost.change(text, "a", wish, patches=True)
    (patch,) = made.patches
    assert [each.op for each in patch] == operations
    assert len(made.notes) == notes
    *_, before = (each for each in yaml.safe_load_all(text) if each)
    *_, after = (each for each in yaml.safe_load_all(made.text) if each)
    assert patches.json_patch(before, [each.plain() for each in patch]) == after


FAULTS = {
    "too many documents": ("---\n" * 10_001, False, ["a: expected at most 10,000 documents"]),
    "two for a patch": (
        SHOP,
        True,
        ["a:27: expected one HorizontalPodAutoscaler: a patch is for one object"],
    ),
    "all that is wrong": (
        SHOP.replace("maxReplicas: 10", "maxReplicas: many").replace(
            "autoscaling/v2", "autoscaling/v2beta1", 2
        )
        + "--- [\n---\n"
        + json.dumps(
            {"kind": "List", "items": [{"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v1"}]}
        ),
        True,
        [
            'a:9: apiVersion: "autoscaling/v2beta1"',
            'a:27: apiVersion: "autoscaling/v2beta1"',
            "a:31: not YAML",
            "a:32: items[0]",
        ],
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_what_is_refused(case: str) -> None:
    text, as_patches, said = FAULTS[case]
    with pytest.raises(InputError) as caught:
        boost.change(text, "a", BOOST, patches=as_patches)
    shown = [str(fault) for fault in caught.value.faults]
    for start in said:
        assert any(each.startswith(start) for each in shown), shown


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


@pytest.mark.timeout(120)
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


@pytest.mark.timeout(120)
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
