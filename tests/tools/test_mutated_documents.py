"""Documents with a changed value: each verb that reads them answers or refuses, and never fails itself."""

import contextlib
import copy
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adapter.cli import main

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"

HPA = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: web
  namespace: shop
  labels: {scaledobject.keda.sh/name: web}
  ownerReferences: [{apiVersion: keda.sh/v1alpha1, kind: ScaledObject, name: web, uid: "7", controller: true}]
  annotations:
    fastpath.io/mode: boost
    fastpath.io/hold: 45s
    fastpath.io/pending-capacity: jobs=2
    fastpath.io/forecast: mode=Floor,timeZone=Europe/Berlin
    metric-config.pods.rps.json-path/path: /metrics
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 1
  maxReplicas: 10
  metrics:
  - type: Pods
    pods:
      metric: {name: rps, selector: {matchLabels: {code: ok}}}
      target: {type: AverageValue, averageValue: "10"}
  - type: External
    external:
      metric: {name: jobs, selector: {matchExpressions: [{key: queue, operator: In, values: [a]}]}}
      target: {type: AverageValue, averageValue: "30"}
  - type: Object
    object:
      describedObject: {apiVersion: zalando.org/v1, kind: ScalingSchedule, name: peak}
      metric: {name: peak}
      target: {type: AverageValue, averageValue: "5"}
  - type: Resource
    resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}
  behavior:
    scaleUp: {stabilizationWindowSeconds: 0, policies: [{type: Pods, value: 4, periodSeconds: 15}]}
    scaleDown: {selectPolicy: Max, tolerance: 50m}
"""
FAST = """\
apiVersion: fastpath.io/v1alpha1
kind: FastPathAutoscaler
metadata: {name: web, namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 1
  maxReplicas: 10
  syncPeriod: 1s
  mode: Auto
  fallback: {type: Floor, after: 60s, replicas: 3}
  pendingCapacity: [{metric: jobs, podThroughput: "2"}]
  forecast: {mode: Floor, timeZone: Europe/Berlin}
  metrics:
  - type: External
    external: {metric: {name: jobs}, target: {type: AverageValue, averageValue: "30"}}
"""
SCHEDULE = """\
apiVersion: fastpath.io/v1alpha1
kind: FastPathSchedule
metadata: {name: office, namespace: shop}
spec:
  targets: [{kind: FastPathAutoscaler, name: web}, {kind: HorizontalPodAutoscaler, name: api}]
  timeZone: Europe/Berlin
  ready: ByStart
  windows:
  - {name: day, days: [Mon, Tue], from: "08:00", to: "18:00", minReplicas: 3, maxReplicas: 8}
  - {name: night, cron: 0 22 * * *, for: 6h, minReplicas: 2}
  - {name: sale, start: 2026-11-27T00:00, end: 2026-11-30T24:00, minReplicas: 5}
  except: [2026-12-25]
"""
SCALED_OBJECT = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: web, namespace: shop, annotations: {autoscaling.keda.sh/paused-replicas: "3"}}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicaCount: 2
  maxReplicaCount: 10
  cooldownPeriod: 60
  fallback: {failureThreshold: 3, replicas: 6}
  advanced:
    horizontalPodAutoscalerConfig:
      behavior: {scaleDown: {policies: [{type: Percent, value: 10, periodSeconds: 60}]}}
  triggers:
  - type: cron
    metadata: {timezone: Europe/Berlin, start: 0 6 * * 1-5, end: 0 20 * * *, desiredReplicas: "88"}
  - type: prometheus
    metadata: {serverAddress: http://prometheus, query: up, threshold: "3"}
"""
RULES = """\
rules:
- seriesQuery: rps{namespace!="",pod!=""}
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  name: {matches: ^(.*)$, as: $1}
  metricsQuery: sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)
"""
MANIFEST = f"{HPA}---\n{SCALED_OBJECT}"

VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    60,
    2**31,
    2**63,
    2**64,
    1e308,
    float("nan"),
    "",
    "x",
    "0",
    "1n",
    "1e-400",
    "1e400",
    "8Ei",
    "9223372036854775",
    "9223372036854776",
    "18446744073709551616",
    "24:00",
    "0 0 31 2 *",
    "Mars/X",
    "9999-12-31T23:59:59Z",
    "\0",
    "\ud800",
    "ä" * 300,
    [],
    [None],
    {},
    {"x": None},
)


def _places(tree: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if path:
        yield path
    if isinstance(tree, dict | list):
        listed = tree.items() if isinstance(tree, dict) else enumerate(tree)
        for name, below in listed:
            yield from _places(below, (*path, name))


def _parent(tree: Any, path: tuple[str | int, ...]) -> Any:
    for step in path[:-1]:
        tree = tree[step]
    return tree


@st.composite
def mutated(draw: st.DrawFn, text: str) -> str:
    """Draw the documents of a text with one to three changes, as JSON, which is YAML."""
    trees = copy.deepcopy(list(yaml.load_all(text, yaml.BaseLoader)))
    trees = [_typed(tree) for tree in trees]
    for _ in range(draw(st.integers(1, 3))):
        tree = draw(st.sampled_from(trees))
        if not (places := list(_places(tree))):
            continue
        path = draw(st.sampled_from(places))
        parent, name = _parent(tree, path), path[-1]
        way = draw(st.sampled_from(("value", "value", "value", "away", "twice")))
        if way == "value":
            parent[name] = copy.deepcopy(draw(st.sampled_from(VALUES)))
        elif way == "away":
            del parent[name]
        elif isinstance(parent, list):
            parent.append(copy.deepcopy(parent[int(name)]))
        else:
            parent[f"{name}x"] = copy.deepcopy(parent[name])
    return "\n---\n".join(json.dumps(tree) for tree in trees)


def _typed(tree: Any) -> Any:
    """Return a tree of texts with the numbers of fields that are numbers."""
    if isinstance(tree, dict):
        return {name: _typed(below) for name, below in tree.items()}
    if isinstance(tree, list):
        return [_typed(below) for below in tree]
    return int(tree) if tree.isdecimal() and len(tree) < 3 else tree


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mutated")
    (path / "load.csv").write_text("seconds,load\n0,5\n60,50\n90,5\n")
    (path / "web.yaml").write_text(FAST)
    (path / "rules.yaml").write_text(RULES)
    return path


def _answers(folder: Path, text: str, *arguments: str) -> None:
    """Run a verb with a file; with status 2 it names what is wrong, on lines of its own."""
    (folder / "given").write_text(text)
    verb, *rest = (str(folder / each[1:]) if each.startswith("@") else each for each in arguments)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main.main([verb, *rest])
    assert status in {0, 1, 2, 3}
    if status == 2:
        lines = err.getvalue().splitlines()
        assert lines
        assert all(line.startswith(f"fastpath {verb}: ") for line in lines), lines


RUNS = {
    "convert": (MANIFEST, "convert", "@given"),
    "convert-back": (FAST, "convert", "--back", "@given"),
    "boost": (HPA, "boost", "@given"),
    "boost-object": (HPA, "boost", "--handshake", "object", "-o", "patch", "@given"),
    "boost-remove": (HPA, "boost", "--remove", "@given"),
    "check": (f"{HPA}---\n{FAST}---\n{SCHEDULE}", "check", "@rules.yaml", "@given"),
    "check-rules": (RULES, "check", "@given", "@web.yaml"),
    "schedule": (SCHEDULE, "schedule", "@given", "--from", "2026-11-20T00:00:00Z"),
    "schedule-json": (SCHEDULE, "schedule", "@given", "-o", "json", "--from", "2026-11-20T00:00:00Z"),
    "evaluate": ((EXAMPLES / "evaluate" / "friday.yaml").read_text(), "evaluate", "@given"),
    "explained": ((EXAMPLES / "evaluate" / "friday.yaml").read_text(), "evaluate", "--explain", "@given"),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_verb_answers_or_refuses(folder: Path, name: str) -> None:
    text, *arguments = RUNS[name]

    @settings(max_examples=60)
    @given(mutated(text))
    def run(given_text: str) -> None:
        _answers(folder, given_text, *arguments)

    run()


@pytest.mark.parametrize("name", RUNS)
def test_each_word_of_the_api_may_be_unknown(folder: Path, name: str) -> None:
    text, *arguments = RUNS[name]
    trees = [_typed(tree) for tree in yaml.load_all(text, yaml.BaseLoader)]
    for path in _places(trees):
        if path[-1] in {"type", "selectPolicy", "status", "mode", "operator", "kind"}:
            changed = copy.deepcopy(trees)
            _parent(changed, path)[path[-1]] = "Mars"
            _answers(folder, "\n---\n".join(json.dumps(tree) for tree in changed), *arguments)


FEW_METRICS = FAST.replace("External", "Pods").replace("external:", "pods:").replace("pendingCapacity", "x")
PODS = "\n".join(line for line in FEW_METRICS.splitlines() if "  x:" not in line)
HUGE = ("18446744073709551616", "9223372036854776", "9223372036854775", "100E", "8Ei", "1e-9")


@settings(max_examples=60)
@given(mutated(PODS))
@example(PODS.replace('"30"', HUGE[0]))
@example(PODS.replace('"30"', HUGE[1]))
@example(PODS.replace('"30"', HUGE[2]))
def test_a_simulation_answers_or_refuses(folder: Path, text: str) -> None:
    policies = ("--policy", "native", "--policy", "fast", "--policy", "boost")
    load = ("--load", str(folder / "load.csv"))
    _answers(folder, text, "simulate", "--autoscaler", "@given", *load, "--pod-start", "5s", *policies)


@pytest.mark.parametrize("target", HUGE[:-1])
@pytest.mark.parametrize("verb", ["simulate", "forecast"])
def test_a_target_that_is_too_large_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str], verb: str, target: str
) -> None:
    (folder / "huge").write_text(PODS.replace('"30"', f'"{target}"'))
    load = ("--load", str(folder / "load.csv"), "--pod-start", "5s")
    assert main.main([verb, "--autoscaler", str(folder / "huge"), *load]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
    assert "spec.metrics[0]" in printed.err
    assert "expected" in printed.err or "must be at most" in printed.err
