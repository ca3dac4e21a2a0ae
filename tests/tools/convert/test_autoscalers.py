import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from adapter.cli import main
from adapter.model.autoscaling import documents
from tests.support import crd, structural

HPA = """\
apiVersion: v1
kind: Service
metadata: {name: web}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: web
  labels: {app: web}
  annotations: {kubectl.kubernetes.io/last-applied-configuration: '{}'}
  resourceVersion: "7"
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 2
  maxReplicas: 20
  metrics:
  - type: Pods
    pods:
      metric: {name: requests, selector: {matchLabels: {code: ok}}}
      target: {type: AverageValue, averageValue: "0.5k"}
  behavior:
    scaleDown: {policies: [{type: Percent, value: 10, periodSeconds: 60}]}
status:
  currentReplicas: 3
"""
NOTHING = (
    "expected a HorizontalPodAutoscaler, a ScaledObject that has a cron trigger and is not paused, or a "
    "ScalingSchedule; the files have no such object"
)
FPA = """\
apiVersion: fastpath.io/v1alpha1
kind: FastPathAutoscaler
metadata:
  name: web
  labels:
    app: web
spec:
  scaleTargetRef:
    kind: Deployment
    name: web
    apiVersion: apps/v1
  minReplicas: 2
  maxReplicas: 20
  metrics:
  - type: Pods
    pods:
      metric:
        name: requests
        selector:
          matchLabels:
            code: ok
      target:
        type: AverageValue
        averageValue: '500'
  behavior:
    scaleDown:
      policies:
      - type: Percent
        value: 10
        periodSeconds: 60
"""


def _given(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(text)))


def test_a_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "web.yaml"
    path.write_text(HPA)
    assert main.main(["convert", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out == FPA
    assert err == f"fastpath convert: {path}:1: Service web: left out\n"


def test_what_is_printed_is_taken_by_the_cluster_and_wants_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _given(monkeypatch, HPA.encode())
    assert main.main(["convert"]) == 0
    printed = yaml.safe_load(capsys.readouterr().out)
    schema = crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert structural.verdict(printed, schema) == []
    given = list(yaml.safe_load_all(HPA))[1]
    assert documents.read_document(printed, "x").spec == documents.read_document(given, "x").spec


def test_lists_and_several_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hpa = list(yaml.safe_load_all(HPA))[1]
    listed = {"apiVersion": "v1", "kind": "List", "items": [hpa, {"kind": "Pod"}, 3]}
    path = tmp_path / "list.json"
    path.write_text(json.dumps(listed))
    hpa["metadata"]["namespace"] = "shop"
    _given(monkeypatch, json.dumps(hpa).encode())
    assert main.main(["convert", str(path), "-"]) == 0
    out, err = capsys.readouterr()
    first, second = yaml.safe_load_all(out)
    assert ("namespace" in first["metadata"], second["metadata"]["namespace"]) == (False, "shop")
    assert err.splitlines() == [
        f"fastpath convert: {path}:1: Pod: left out",
        f"fastpath convert: {path}:1: not an object: left out",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", NOTHING),
        (b"kind: Pod\n", NOTHING),
        (b"{}\n", NOTHING),
        (b"a: [", "standard input:1: not YAML"),
        (b"\xff", "standard input: not UTF-8: invalid start byte at byte 0"),
        (
            HPA.replace("20", "1").encode(),
            "standard input:15: spec.maxReplicas: Invalid value: 1: must be greater than",
        ),
        (
            HPA.replace("autoscaling/v2", "autoscaling/v1").encode(),
            'standard input:5: apiVersion: "autoscaling/v1"',
        ),
        (
            HPA.replace("minReplicas", "minreplicas").encode(),
            "standard input:14: spec.minreplicas: 2: unknown field, did",
        ),
    ],
)
def test_what_is_wrong(
    text: bytes, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _given(monkeypatch, text)
    assert main.main(["convert"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"fastpath convert: {said}" in err


def test_one_wrong_among_several_prints_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = HPA, HPA.replace("maxReplicas: 20", "maxReplicas: many")
    _given(monkeypatch, f"{good}---\n{bad}".encode())
    assert main.main(["convert"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert 'spec.maxReplicas: "many": expected an integer, got text' in err


BOOSTED = HPA.replace(
    "  behavior:\n",
    """\
  - type: External
    external:
      metric: {name: fastpath_replicas, selector: {matchLabels: {autoscaler: web}}}
      target: {type: AverageValue, averageValue: "1"}
  behavior:
""",
).replace("annotations: {", "annotations: {fastpath.io/mode: boost, ")


def test_what_boost_added_is_left_out_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "web.yaml"
    path.write_text(BOOSTED)
    assert main.main(["convert", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out == FPA
    assert err.splitlines()[1:] == [
        (
            f"fastpath convert: {path}:5: HorizontalPodAutoscaler web: "
            "left out, only a boosted HorizontalPodAutoscaler has it: metric fastpath_replicas"
        ),
        f"fastpath convert: {path}:5: HorizontalPodAutoscaler web: left out: annotation fastpath.io/mode",
    ]


def test_there_and_back(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = FPA.replace("spec:\n", "spec:\n  syncPeriod: 500ms\n  mode: Paused\n")
    _given(monkeypatch, f"{text}---\n{HPA}".encode())
    assert main.main(["convert", "--back"]) == 0
    out, err = capsys.readouterr()
    hpa = yaml.safe_load(out)
    assert (hpa["apiVersion"], hpa["kind"]) == ("autoscaling/v2", "HorizontalPodAutoscaler")
    assert hpa["spec"] == yaml.safe_load(FPA)["spec"]
    assert hpa["metadata"] == yaml.safe_load(FPA)["metadata"]
    before = "fastpath convert: standard input"
    assert err.splitlines() == [
        (
            f"{before}:1: FastPathAutoscaler web: left out, a HorizontalPodAutoscaler does not have it: "
            'spec.syncPeriod: "500ms", spec.mode: "Paused"'
        ),
        (
            f"{before}:1: FastPathAutoscaler web: the FastPathAutoscaler did nothing, "
            "and the HorizontalPodAutoscaler scales as soon as it is applied"
        ),
        f"{before}:34: Service web: left out",
        f"{before}:38: HorizontalPodAutoscaler web: left out",
    ]


def test_back_needs_an_autoscaler_of_ours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _given(monkeypatch, HPA.encode())
    assert main.main(["convert", "--back"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.endswith("fastpath convert: expected a FastPathAutoscaler; the files have no such object\n")


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main.main(["convert", str(tmp_path / "x.yaml")]) == 2
    said = f"fastpath convert: {tmp_path}/x.yaml: expected a readable file: No such file or directory\n"
    assert capsys.readouterr().err == said
