import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.autoscaler.decide.history import Recommendations, ScaleEvent
from adapter.autoscaler.decide.observation import Settings
from adapter.errors import InputError
from adapter.model.timestamps import SECOND
from fastpath_tools import evaluate, evaluate_document
from fastpath_tools.evaluate_document import EvaluateDocument
from tests.support.answers import answers
from tests.support.scaling import NOW

_TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
_LEAST: dict[str, Any] = {
    "now": "2026-11-20T12:00:00Z",
    "hpa": {"metadata": {"name": "web"}, "spec": {"scaleTargetRef": _TARGET, "maxReplicas": 5}},
    "scale": {"spec": {"replicas": 3}, "status": {"replicas": 3, "selector": "app=web"}},
}
_CASE: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "hpa-evaluate" / "hpa-evaluate-hard.jsonl")
    .read_text("utf-8")
    .splitlines()[0]
)["case"]


def _read(value: Any) -> EvaluateDocument:
    return evaluate_document.read_json(json.dumps(value).encode())


def _changed(path: str, value: Any, base: dict[str, Any] = _CASE) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(base))
    *way, last = (int(step) if step.isdigit() else step for step in path.split("/"))
    below: Any = copy
    for step in way:
        below = below.setdefault(step, {}) if isinstance(below, dict) else below[step]
    below[last] = value
    return copy


def test_the_least_document() -> None:
    found = _read(_LEAST)

    assert found.name is None
    assert found.now == NOW
    assert found.hpa.metadata.namespace == "default"
    assert found.hpa.spec.min_replicas == 1
    assert found.hpa.spec.metrics is not None
    assert found.remembered().recommendations == Recommendations()
    assert (found.pods, found.metrics, found.options) == (None, None, None)


def test_a_scale_of_fewer_than_no_replicas() -> None:
    with pytest.raises(InputError, match=r"scale\.spec\.replicas: Invalid value: -1: must be greater"):
        _read({**_LEAST, "scale": {"spec": {"replicas": -1}}})


def test_the_namespace_is_that_of_the_scale_where_the_autoscaler_names_none() -> None:
    scale = {**_LEAST["scale"], "metadata": {"namespace": "shop"}}

    assert _read({**_LEAST, "scale": scale}).hpa.metadata.namespace == "shop"


def test_null_is_absence() -> None:
    nothing = dict.fromkeys(("name", "pods", "metrics", "history", "options"))

    found = _read({**_LEAST, **nothing, "news": {"a": [1]}})

    assert found.pods is None
    assert found.remembered().ups == ()


def test_ages_become_instants() -> None:
    past = {
        "recommendations": [{"replicas": 3, "ageSeconds": 300}, {"replicas": 4, "ageSeconds": 0.37}],
        "scaleUpEvents": [{"change": 2, "ageSeconds": 15}],
        "scaleDownEvents": [{"change": 1, "ageSeconds": 0}],
    }

    history = _read({**_LEAST, "history": past}).remembered()

    assert history.recommendations.low == ((3, NOW - 300 * SECOND), (4, NOW - 370_000_000))
    assert history.ups == (ScaleEvent(2, NOW - 15 * SECOND),)
    assert history.downs == (ScaleEvent(1, NOW),)


def test_options_are_settings() -> None:
    options = {
        "tolerance": 0,
        "cpuInitializationPeriodSeconds": 1,
        "initialReadinessDelaySeconds": 2.5,
        "downscaleStabilizationSeconds": 3,
        "scaleToZero": True,
    }

    given = _read({**_LEAST, "options": options}).options
    default = _read({**_LEAST, "options": {}}).options

    assert given is not None
    assert default is not None
    assert given.settings() == Settings(0.0, SECOND, 2_500_000_000, 3 * SECOND, scale_to_zero=True)
    assert default.settings() == Settings()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "not JSON: "),
        (b"{", "not JSON: "),
        (b"{}x", "not JSON: "),
        (b"\xff", "not JSON: "),
        (b'{"name": "\xff"}', "not JSON: "),
        (b'{"name": "\\ud800"}', "not JSON: "),
        (b"[" * 1_000_000, "not JSON: nested too deeply"),
        (b'{"news": ' + b"[" * 1_000_000, "not JSON: nested too deeply"),
    ],
    ids=[
        "nothing",
        "cut",
        "more",
        "no text",
        "not UTF-8",
        "half a character",
        "deep",
        "deep inside an unused field",
    ],
)
def test_what_is_not_json(text: bytes, said: str) -> None:
    with pytest.raises(InputError) as raised:
        evaluate_document.read_json(text)

    assert str(raised.value).startswith(said)
    assert evaluate_document.read_name(text) is None


@pytest.mark.parametrize(("text", "name"), answers("tools/evaluate_document", "names"))
def test_names_of_what_is_not_valid(text: str, name: str | None) -> None:
    assert evaluate_document.read_name(text.encode()) == name


@pytest.mark.parametrize("text", answers("tools/evaluate_document", "twice"))
def test_keys_given_twice_end_in_a_sentence(text: str) -> None:
    with pytest.raises(InputError) as raised:
        evaluate_document.read_json(text.encode())

    assert "expected" in str(raised.value)


_ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6)
    | st.sampled_from(["1", "500m", "1Ki", "x"]),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "spec", "value", "cpu", "type"]), below, max_size=3)
    ),
    max_leaves=6,
)


def _places(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    below: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        below = list(value.items())
    elif isinstance(value, list):
        below = list(enumerate(value))
    return [way, *(place for key, each in below for place in _places(each, (*way, key)))]


_PLACES = _places({**_CASE, "pods": _CASE["pods"][:2]})[1:]


@given(st.lists(st.tuples(st.sampled_from(_PLACES), _ANY), min_size=1, max_size=3))
def test_anything_anywhere_is_evaluated_or_refused_with_a_place(
    changes: list[tuple[tuple[Any, ...], Any]],
) -> None:
    value: Any = json.loads(json.dumps({**_CASE, "pods": _CASE["pods"][:2]}))
    for place, new in changes:
        below = value
        try:
            for step in place[:-1]:
                below = below[step]
            below[place[-1]] = new
        except (KeyError, IndexError, TypeError):
            continue
    text = json.dumps(value).encode()
    found = [
        _outcome(partial(evaluate_document.read_json, text)),
        _outcome(partial(evaluate_document.read_plain, value)),
    ]
    said = [list(map(str, read.faults)) for read in found if isinstance(read, InputError)]
    assert said == said[:1] * 2 or not said
    for read in found:
        if isinstance(read, InputError):
            assert all(fault.value or fault.expected for fault in read.faults)
            assert all(fault.path or "not JSON" in fault.expected for fault in read.faults)
            continue
        decision = evaluate.evaluate(read)
        assert evaluate.to_json(evaluate.show(read, decision))
        assert evaluate.explain(read, decision)


def _outcome(read: Callable[[], EvaluateDocument]) -> EvaluateDocument | InputError:
    try:
        return read()
    except InputError as error:
        return error


@given(st.binary(max_size=60))
def test_any_bytes_are_refused_with_a_sentence(text: bytes) -> None:
    with pytest.raises(InputError):
        evaluate_document.read_json(text)


def _resource(name: str, container: str = "") -> dict[str, Any]:
    source = {"name": name, "target": {"type": "AverageValue", "averageValue": "1"}}
    if container:
        return {"type": "ContainerResource", "containerResource": source | {"container": container}}
    return {"type": "Resource", "resource": source}


PODS: list[dict[str, Any]] = [
    {"metadata": {"name": "web-0"}, "spec": {"containers": [{"name": "proxy"}, {"name": "app"}]}}
]


@pytest.mark.parametrize(
    ("metrics", "pods", "said"),
    [
        ([_resource("cpu"), _resource("memory", "app")], PODS, []),
        (
            [_resource("cpu", "application")],
            PODS,
            ["no pod has a container application: they have app, proxy"],
        ),
        ([_resource("cpu", "application")], [], []),
        ([_resource("cpu", "log")], [{"spec": PODS[0]["spec"] | {"initContainers": [{"name": "log"}]}}], []),
        (
            [_resource("nvidia.com/gpu"), _resource("nvidia.com/gpu", "app")],
            PODS,
            2 * ["nvidia.com/gpu has no value: the resource metrics are cpu and memory only"],
        ),
    ],
    ids=["right", "a typing mistake", "no pods", "a sidecar", "another resource"],
)
def test_why_a_resource_metric_can_have_no_value(
    metrics: list[dict[str, Any]], pods: list[dict[str, Any]], said: list[str]
) -> None:
    tree = _changed("hpa/spec/metrics", metrics, _LEAST) | {"pods": pods}
    assert list(evaluate_document.remarks(_read(tree))) == said


@pytest.mark.parametrize("direction", ["scaleUp", "scaleDown"])
def test_a_field_that_older_versions_drop(direction: str) -> None:
    tree = _changed("hpa/spec/behavior", {direction: {"tolerance": "50m"}}, _LEAST)
    (remark,) = evaluate_document.remarks(_read(tree))
    assert remark.startswith("spec.behavior: a tolerance needs Kubernetes 1.35, or the feature gate")


def test_other_metrics_have_no_remark() -> None:
    assert list(evaluate_document.remarks(_read(_CASE))) == []
