"""`fastpath check` reads how an HPA is boosted, and which objects its metrics are of."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.cli import main
from adapter.model.autoscaling import boost, documents
from fastpath_tools.boost import boost_patch
from fastpath_tools.boost.boost_patch import Wish
from fastpath_tools.check import autoscalers
from fastpath_tools.check.autoscalers import Autoscalers

RULES = """\
rules:
- seriesQuery: 'rps{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)
"""
PODS = {
    "type": "Pods",
    "pods": {"metric": {"name": "rps"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}
HANDSHAKE = {
    "type": "External",
    "external": {
        "metric": {"name": "fastpath_replicas", "selector": {"matchLabels": {"autoscaler": "web"}}},
        "target": {"type": "AverageValue", "averageValue": "1"},
    },
}
Check = Callable[..., tuple[int, list[str], list[str]]]


def _hpa(*metrics: dict[str, Any], kind: str = "HorizontalPodAutoscaler", **meta: Any) -> dict[str, Any]:
    version = "autoscaling/v2" if kind == "HorizontalPodAutoscaler" else "fastpath.io/v1alpha1"
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "web", "namespace": "shop"} | meta,
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 9,
            "metrics": list(metrics),
        },
    }


def _object(kind: str, version: str, name: str = "rps") -> dict[str, Any]:
    described = {"apiVersion": version, "kind": kind, "name": "web"}
    target = {"type": "Value", "value": "10"}
    return {
        "type": "Object",
        "object": {"describedObject": described, "metric": {"name": name}, "target": target},
    }


@pytest.fixture
def check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Check:
    """Check autoscalers with rules; return status, warnings with their places, and standard error."""

    def run(*trees: dict[str, Any], rules: str = RULES) -> tuple[int, list[str], list[str]]:
        (tmp_path / "rules.yaml").write_text(rules)
        (tmp_path / "a.yaml").write_text("---\n".join(json.dumps(tree, indent=1) + "\n" for tree in trees))
        status = main.main(["check", str(tmp_path / "rules.yaml"), str(tmp_path / "a.yaml"), "-o", "json"])
        shown = capsys.readouterr()
        warned = [f"{each['path']}: {each['sentence']}" for each in json.loads(shown.out)["warnings"]]
        return status, warned, [line.split(": ", 2)[2] for line in shown.err.splitlines()]

    return run


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("mode", "bosst", '"bosst": expected advise or boost'),
        ("hold", "1h", '"1h": expected a duration from 1s to 10m0s, such as 45s'),
        (
            "forecast",
            "mode=Floor,timeZone=Mars/X",
            'timeZone "Mars/X": must be a time zone of the tz database',
        ),
        ("forecast", "often", '"often": expected'),
        ("pending-capacity", "jobs=2", '"jobs": spec.metrics has no metric of this name'),
    ],
)
def test_a_faulty_annotation_is_a_fault(check: Check, name: str, value: str, said: str) -> None:
    status, _, err = check(_hpa(PODS, annotations={f"fastpath.io/{name}": value}))
    assert status == 2
    assert len(err) == 1
    assert err[0].startswith(f'metadata.annotations["fastpath.io/{name}"]: shop/web: {said}')


def test_boost_needs_the_handshake(check: Check) -> None:
    mode = {"fastpath.io/mode": "boost"}
    status, _, err = check(_hpa(PODS, annotations=mode))
    lacks = "spec.metrics has no fastpath_replicas, so the HPA would undo every raise"
    assert (status, err) == (2, [f"spec.metrics: shop/web: {lacks}; `fastpath boost` writes it"])
    assert check(_hpa(PODS, HANDSHAKE, annotations=mode)) == (0, [], [])
    assert check(_hpa(PODS, annotations={"fastpath.io/mode": "advise"})) == (0, [], [])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fastpath.io/hodl", "did you mean fastpath.io/hold?"),
        (
            "fastpath.io/x",
            "expected one of fastpath.io/mode, fastpath.io/hold, fastpath.io/pending-capacity, ",
        ),
    ],
)
def test_an_unknown_annotation_has_a_suggestion(check: Check, name: str, said: str) -> None:
    given_annotations = {name: "3s", "fastpath.io.example.com/hold": "3s", "hold": "3s"}
    status, warned, _ = check(_hpa(PODS, annotations=given_annotations))
    assert (status, len(warned)) == (0, 1)
    assert warned[0].startswith(f'metadata.annotations["{name}"]: shop/web: unknown annotation, {said}')


def test_annotations_of_boost_have_no_effect_on_a_fast_path_autoscaler(check: Check) -> None:
    tree = _hpa(PODS, kind="FastPathAutoscaler", annotations={"fastpath.io/mode": "bosst"})
    only = "only a HorizontalPodAutoscaler has it: a FastPathAutoscaler has fields"
    assert check(tree) == (0, [f'metadata.annotations["fastpath.io/mode"]: shop/web: {only}'], [])


def test_an_owner_is_named(check: Check) -> None:
    owner = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "web", "uid": "7"}
    tree = _hpa(PODS, HANDSHAKE, annotations={"fastpath.io/mode": "boost"}, ownerReferences=[owner])
    said = "it is only advised: it belongs to the ScaledObject web, which writes its spec"
    assert check(tree) == (0, [f"metadata: shop/web: {said}"], [])


def test_an_autoscaler_needs_no_namespace(check: Check) -> None:
    """`kubectl --namespace` gives it one."""
    tree = _hpa(PODS, annotations={"fastpath.io/hodl": "3s"})
    del tree["metadata"]["namespace"]
    status, warned, err = check(tree)
    assert (status, err) == (0, [])
    assert warned[0].startswith('metadata.annotations["fastpath.io/hodl"]: web: unknown')


@given(
    annotations=st.dictionaries(
        st.sampled_from(boost.ANNOTATIONS),
        st.text(max_size=8) | st.sampled_from(("boost", "advise", "45s", "rps=2", "Floor")),
    ),
    shaken=st.booleans(),
)
def test_a_file_without_a_fault_is_what_the_scaler_boosts(
    *, annotations: dict[str, str], shaken: bool
) -> None:
    tree = _hpa(PODS, *([HANDSHAKE] if shaken else []), annotations=annotations)
    read = documents.read_document(tree, floor_metric=True)
    metrics = boost.without_handshake(read.spec.metrics) or ()
    scaler = boost.read_annotations(annotations, metrics)
    manifests = Autoscalers()
    assert autoscalers.read(json.dumps(tree), "web.json", manifests)
    faults = list(autoscalers.faults_of(manifests.given[0], ()))
    is_refused = bool(scaler.faults) or (scaler.mode == "Boost" and not shaken)
    assert bool(faults) is is_refused
    planned = boost_patch.plan(tree, Wish("boost")).notes
    assert [note for note in planned if "annotation" in note] == [
        fault for fault in scaler.faults if "fastpath.io/mode" not in fault
    ]


# -- the kind of the described object


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        (_object("Ingress", "networking.k8s.io/v1"), "spec.metrics[0].object.describedObject: shop/web: "),
        (_object("Pod", "metrics.k8s.io/v1"), "spec.metrics[0].object.describedObject: shop/web: "),
    ],
)
def test_a_metric_of_another_kind_of_object_is_named(
    check: Check, metric: dict[str, Any], value: str
) -> None:
    status, warned, err = check(_hpa(metric))
    assert (status, err) == (0, [])
    assert warned == [f"{value}no rule of these files has rps of this kind: it is of Namespace, Pod"]


@pytest.mark.parametrize("metric", [PODS, _object("Pod", "v1"), _object("Namespace", "v1")])
def test_a_metric_of_its_kind_of_object_is_served(check: Check, metric: dict[str, Any]) -> None:
    assert check(_hpa(metric)) == (0, [], [])


def test_a_pods_metric_needs_a_rule_with_pods(check: Check) -> None:
    rules = RULES.replace("pod: {resource: pod}", "service: {resource: service}")
    status, warned, _ = check(_hpa(PODS), rules=rules)
    assert status == 0
    said = "no rule of these files has rps of this kind: it is of Namespace, Service"
    assert warned == [f"spec.metrics[0].pods.metric.name: shop/web: {said}"]


def test_a_template_may_name_any_resource(check: Check) -> None:
    rules = RULES.replace(
        "{overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}",
        '{template: "kube_<<.Group>>_<<.Resource>>"}',
    )
    assert check(_hpa(_object("Ingress", "networking.k8s.io/v1")), rules=rules)[1] == []


def test_an_unknown_kind_counts_by_its_group(check: Check) -> None:
    rules = RULES.replace("pod: {resource: pod}", "q: {group: example.com, resource: queues}")
    found = check(_hpa(_object("Queue", "example.com/v1")), rules=rules)[1]
    assert not any("no rule of these files" in each for each in found)


def test_a_rule_of_other_objects_does_not_bound_a_target(check: Check) -> None:
    """The last rule with the metric serves it, but only for its own kind of object."""
    gauge = (
        '- seriesQuery: \'nv_gpu_utilization{namespace!="",service!=""}\'\n'
        "  resources: {overrides: {namespace: {resource: namespace}, service: {resource: service}}}\n"
        "  name: {as: rps}\n"
        "  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)\n"
    )
    assert check(_hpa(PODS), rules=RULES + gauge)[0] == 0
    assert check(_hpa(_object("Service", "v1")), rules=RULES + gauge)[0] == 2


# -- objects beside one another ------------------------------------------------------------------------------


def _resource(name: str, container: str = "") -> dict[str, Any]:
    source: dict[str, Any] = {"name": name, "target": {"type": "AverageValue", "averageValue": "1"}}
    if container:
        return {"type": "ContainerResource", "containerResource": source | {"container": container}}
    return {"type": "Resource", "resource": source}


@pytest.mark.parametrize("container", ["", "app"])
@pytest.mark.parametrize(("name", "is_named"), [("cpu", False), ("memory", False), ("nvidia.com/gpu", True)])
def test_resource_metrics_are_cpu_and_memory(
    name: str, *, is_named: bool, container: str, check: Check
) -> None:
    _, warned, _ = check(_hpa(_resource(name, container)))
    key = "containerResource" if container else "resource"
    sentence = "the resource metrics are cpu and memory only: read others by type Pods or External"
    assert warned == ([f"spec.metrics[0].{key}.name: shop/web: {sentence}"] if is_named else [])


EXTERNAL_RULES = """\
externalRules:
- seriesQuery: 'queue'
  resources: {namespaced: false}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>})
"""


def _external(name: str) -> dict[str, Any]:
    target = {"type": "AverageValue", "averageValue": "10"}
    return {"type": "External", "external": {"metric": {"name": name}, "target": target}}


@pytest.mark.parametrize(
    ("metric", "rules", "said"),
    [
        (_external("rps"), RULES, "rules[0] makes it, in another API: use a metric of type Pods or Object"),
        (
            _external("rps"),
            RULES + EXTERNAL_RULES,
            "rules[0] makes it, in another API: use a metric of type Pods",
        ),
        (
            _object("Pod", "v1", "queue"),
            EXTERNAL_RULES,
            "externalRules[0] makes it, in another API: use a metric of",
        ),
        (_external("queue"), RULES + EXTERNAL_RULES, ""),
        (_external("other"), RULES, ""),
    ],
    ids=["custom as external", "with external rules", "external as object", "right", "unknown"],
)
def test_a_metric_of_the_other_api(metric: dict[str, Any], rules: str, said: str, check: Check) -> None:
    _, warned, _ = check(_hpa(metric), rules=rules)
    assert len(warned) == bool(said)
    assert all(said in sentence for sentence in warned)


def test_two_autoscalers_of_one_target(check: Check) -> None:
    up, down = _hpa(PODS, name="up"), _hpa(PODS, name="down")
    fast, other = _hpa(PODS, kind="FastPathAutoscaler", name="fast"), _hpa(PODS, namespace="other")
    said = "HorizontalPodAutoscaler up scales Deployment web too: keep only one autoscaler for it"
    assert check(up, other)[1] == []
    assert check(up, down, fast, other)[1] == [
        f"spec.scaleTargetRef: shop/{name}: {said}" for name in ("down", "fast")
    ]
