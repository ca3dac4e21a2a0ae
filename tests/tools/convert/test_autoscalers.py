import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from adapter.model.autoscaling import documents
from scripts.generate import crd
from tests.support import structural
from tests.support.simulation import Printed

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
    "expected a HorizontalPodAutoscaler, or a ScaledObject that has a cron trigger and is not paused; the "
    "files have no such object"
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


Run = Callable[..., Printed]


def test_what_is_printed_is_taken_by_the_cluster_and_wants_the_same(cli: Run) -> None:
    assert cli("convert", stdin=HPA) == (
        0,
        FPA,
        "fastpath convert: standard input:1: Service web: left out\n",
    )
    printed = yaml.safe_load(FPA)
    schema = crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert structural.verdict(printed, schema) == []
    given = list(yaml.safe_load_all(HPA))[1]
    assert documents.read_document(printed, "x").spec == documents.read_document(given, "x").spec


def test_lists_and_several_files(tmp_path: Path, cli: Run) -> None:
    hpa = list(yaml.safe_load_all(HPA))[1]
    listed = {"apiVersion": "v1", "kind": "List", "items": [hpa, {"kind": "Pod"}, 3]}
    path = tmp_path / "list.json"
    path.write_text(json.dumps(listed))
    hpa["metadata"]["namespace"] = "shop"
    status, out, err = cli("convert", str(path), "-", stdin=json.dumps(hpa))
    first, second = yaml.safe_load_all(out)
    assert ("namespace" in first["metadata"], second["metadata"]["namespace"]) == (False, "shop")
    assert (status, err.splitlines()) == (
        0,
        [
            f"fastpath convert: {path}:1: Pod: left out",
            f"fastpath convert: {path}:1: not an object: left out",
        ],
    )


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
        (
            f"{HPA}---\n{HPA.replace('maxReplicas: 20', 'maxReplicas: many')}".encode(),
            'standard input:40: spec.maxReplicas: "many": expected an integer, got text',
        ),
    ],
)
def test_what_is_wrong(text: bytes, said: str, cli: Run) -> None:
    printed = cli("convert", stdin=text)
    assert (printed.status, printed.out) == (2, "")
    assert f"fastpath convert: {said}" in printed.err


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


def test_what_boost_added_is_left_out_and_named(cli: Run) -> None:
    status, out, err = cli("convert", stdin=BOOSTED)
    assert (status, out) == (0, FPA)
    place = "fastpath convert: standard input:5: HorizontalPodAutoscaler web: left out"
    assert err.splitlines()[1:] == [
        f"{place}, only a boosted HorizontalPodAutoscaler has it: metric fastpath_replicas",
        f"{place}: annotation fastpath.io/mode",
    ]


def test_there_and_back(cli: Run) -> None:
    text = FPA.replace("spec:\n", "spec:\n  syncPeriod: 500ms\n  mode: Paused\n")
    status, out, err = cli("convert", "--back", stdin=f"{text}---\n{HPA}")
    hpa = yaml.safe_load(out)
    assert (status, hpa["apiVersion"], hpa["kind"]) == (0, "autoscaling/v2", "HorizontalPodAutoscaler")
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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--back"], "expected a FastPathAutoscaler; the files have no such object"),
        (["/x.yaml"], "/x.yaml: expected a readable file: No such file or directory"),
    ],
)
def test_a_command_line_that_finds_nothing(arguments: list[str], said: str, cli: Run) -> None:
    printed = cli("convert", *arguments, stdin=HPA)
    assert (printed.status, printed.out) == (2, "")
    assert printed.err.endswith(f"fastpath convert: {said}\n")


def _named(name: str, target: str = "web", kind: str = "HorizontalPodAutoscaler", space: str = "shop") -> str:
    version = "autoscaling/v2" if kind == "HorizontalPodAutoscaler" else "fastpath.io/v1alpha1"
    reference = f"{{apiVersion: apps/v1, kind: Deployment, name: {target}}}"
    spec = f"{{scaleTargetRef: {reference}, maxReplicas: 9}}"
    meta = f"{{name: {name}, namespace: {space}}}"
    return f"{{apiVersion: {version}, kind: {kind}, metadata: {meta}, spec: {spec}}}\n"


@pytest.mark.parametrize(
    ("documents", "arguments", "named"),
    [
        ([_named("up"), _named("down")], [], ["HorizontalPodAutoscaler down", "HorizontalPodAutoscaler up"]),
        ([_named("up"), _named("down", space="other")], [], []),
        ([_named("up"), _named("down", target="api")], [], []),
        (
            [_named("up"), _named("up", kind="FastPathAutoscaler")],
            [],
            ["FastPathAutoscaler up", "HorizontalPodAutoscaler up"],
        ),
        ([_named("up"), _named("up", kind="FastPathAutoscaler")], ["--back"], []),
        (
            [_named("up", kind="FastPathAutoscaler"), _named("down", kind="FastPathAutoscaler")],
            ["--back"],
            ["FastPathAutoscaler down", "FastPathAutoscaler up"],
        ),
    ],
    ids=["two", "namespaces", "targets", "both kinds", "both kinds back", "two back"],
)
def test_two_autoscalers_of_one_target(
    documents: list[str], arguments: list[str], named: list[str], cli: Run
) -> None:
    printed = cli("convert", *arguments, stdin="---\n".join(documents))
    assert printed.status == 0
    said = [line.split(": ", 3)[-1] for line in printed.err.splitlines() if "keep only one" in line]
    wanted = "scales Deployment web too: keep only one autoscaler for it"
    assert said == [f"{name} {wanted}" for name in named]
