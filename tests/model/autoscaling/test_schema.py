"""The schema in manifests/crd and the program agree on what a FastPathAutoscaler is."""

import copy
import functools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from adapter.autoscaler.decide.observation import Settings
from adapter.autoscaler.decide.prepared_spec import prepare
from adapter.errors import InputError
from adapter.model.autoscaling import documents, fastpath_autoscaler, hpa
from adapter.model.autoscaling.fastpath_autoscaler import (
    API_VERSION,
    KIND,
    FastPathAutoscalerStatus,
    PastChange,
)
from adapter.model.autoscaling.pending_capacity import BacklogCredit
from adapter.model.quantity import from_milli
from adapter.model.timestamps import FineInstant, Instant
from scripts.generate import crd
from tests.manifests import structural
from tests.support.answers import answers
from tests.support.scaling import document

JSON = dict[str, Any]

SCHEMA: JSON = crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


# --- the same verdicts


def _refused_by_schema(tree: JSON) -> list[str]:
    return structural.verdict(tree, SCHEMA)


def _refused_by_program(tree: JSON) -> list[str]:
    try:
        documents.read_document(tree)
    except InputError as error:
        return [str(fault) for fault in error.faults]
    return []


METRICS: dict[str, JSON] = yaml.safe_load("""
resource: {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}
containerResource:
  type: ContainerResource
  containerResource: {name: memory, container: app, target: {type: AverageValue, averageValue: 100Mi}}
pods:
  type: Pods
  pods:
    metric: {name: requests, selector: {matchLabels: {a: b}}}
    target: {type: AverageValue, averageValue: "50"}
object:
  type: Object
  object:
    describedObject: {apiVersion: networking.k8s.io/v1, kind: Ingress, name: web}
    metric: {name: requests}
    target: {type: Value, value: 10}
external:
  type: External
  external:
    metric: {name: queue, selector: {matchExpressions: [{key: q, operator: In, values: [a]}]}}
    target: {type: Value, value: 2k}
jobs:
  type: External
  external: {metric: {name: jobs}, target: {type: AverageValue, averageValue: "30"}}
mails:
  type: Object
  object:
    describedObject: {apiVersion: v1, kind: Service, name: mail}
    metric: {name: mails}
    target: {type: AverageValue, averageValue: "30"}
""")
PENDING: list[JSON] = [{"metric": "jobs", "podThroughput": "500m"}, {"metric": "mails", "podThroughput": 2}]
BEHAVIOR: dict[str, JSON] = yaml.safe_load("""
scaleUp:
  stabilizationWindowSeconds: 0
  selectPolicy: Max
  policies: [{type: Pods, value: 4, periodSeconds: 15}]
  tolerance: 50m
scaleDown: {selectPolicy: Disabled}
""")
MODES = ["Auto", "Advise", "Paused"]
FALLBACKS: list[JSON] = [
    {"type": "Hold"},
    {"type": "Floor", "replicas": 3, "after": "2m"},
    {"type": "LastGood", "lastGoodFor": "10m"},
]
FORECASTS: list[JSON] = yaml.safe_load("""
- {mode: Advise, history: 336h, horizon: Auto}
- {mode: Floor, history: 28d, horizon: 90s, maxExtra: 10%, minGain: 100%, timeZone: Europe/Berlin,
   holidays: ["2026-12-25", "2028-02-29"]}
- {}
""")
SCALE_DOWNS: list[JSON] = yaml.safe_load("""
- {prefer: Idle}
- {prefer: Idle, metric: connections, drain: {value: 500m, timeout: 90s}}
- {prefer: Idle, drain: {}}
""")
FULL = [
    document(
        metrics=list(METRICS.values()),
        behavior=BEHAVIOR,
        minReplicas=0,
        syncPeriod="500ms",
        mode=mode,
        fallback=each,
        pendingCapacity=PENDING,
        forecast=forecast,
        scaleDown=scale_down,
    )
    for mode, each, forecast, scale_down in zip(MODES, FALLBACKS, FORECASTS, SCALE_DOWNS, strict=True)
]


@pytest.mark.parametrize("tree", [document(), *FULL], ids=["least", "Hold", "Floor", "LastGood"])
def test_both_accept(tree: JSON) -> None:
    assert _refused_by_schema(tree) == []
    assert _refused_by_program(tree) == []


def test_the_defaults_are_the_same() -> None:
    written = document(fallback={"type": "Hold"}, forecast={})
    stored = structural.defaulted(written, SCHEMA)
    assert stored["spec"].keys() - written["spec"].keys() == {"minReplicas", "metrics", "syncPeriod", "mode"}
    here, there = (documents.read_document(each) for each in (written, stored))
    assert fastpath_autoscaler.with_defaults(here) == fastpath_autoscaler.with_defaults(there)
    fields = SCHEMA["properties"]["spec"]["properties"]["forecast"]["properties"]
    assert stored["spec"]["forecast"].keys() == fields.keys() - {"holidays"}


def _changed(tree: JSON, way: Sequence[str | int], value: Any) -> JSON:
    """Return the document with another value at a place; None takes away what is there."""
    tree = copy.deepcopy(tree)
    below: Any = tree["spec"]
    for step in way[:-1]:
        below = below[step]
    if value is None:
        del below[way[-1]]
    else:
        below[way[-1]] = copy.deepcopy(value)
    return tree


def _way(place: str) -> list[str | int]:
    return [int(step) if step.isdigit() else step for step in place.split(".")]


SELECTOR, FOUND = "metrics.4.external.metric.selector", "spec.metrics[4].external.metric.selector"
CONDITION = {"key": "a", "operator": "Exists"}
TOO_MANY = [
    ("metrics", [METRICS["pods"]] * 51, "is too long", ""),
    ("behavior.scaleUp.policies", BEHAVIOR["scaleUp"]["policies"] * 21, "is too long", ""),
    ("forecast.holidays", ["2026-12-25"] * 1001, "is too long", ""),
    ("pendingCapacity", PENDING * 26, "is too long", ""),
    (f"{SELECTOR}.matchLabels", dict.fromkeys(map(str, range(257)), "a"), "too many properties", FOUND),
    (f"{SELECTOR}.matchExpressions", [CONDITION] * 257, "is too long", FOUND),
    (f"{SELECTOR}.matchExpressions", [{**CONDITION, "values": ["a"] * 257}], "is too long", FOUND),
]


@pytest.mark.parametrize(
    ("place", "value", "said", "path"),
    [*answers("autoscaling/schema", "refused"), *TOO_MANY],
    ids=lambda each: str(each)[:40],
)
def test_both_refuse(place: str, value: Any, said: str, path: str) -> None:
    tree = _changed(FULL[1], _way(place), value)
    path = path or "spec." + re.sub(r"\.(\d+)", r"[\1]", place)
    assert re.search(said, "\n".join(_refused_by_schema(tree)))
    assert any(path in fault.partition(": ")[0] for fault in _refused_by_program(tree))


_TEXTS = """
. .. a a/b v1 apps/v1 a/b/c a%b ReplicationController Deployment cpu requests.a/b example.com/gpu
hugepages-2Mi fastpath_replicas Pods Percent Max Resource External Object Value AverageValue Auto Paused
Hold Floor LastGood In
100ms 99ms 1s .5s 1m0.5s 60s 1m1s 1h 25h 9999999999999h -1s 5 soon
0 1 -1 +1 1.5 .5 5. 1e3 1E 1Ki 1m 1n 00.00 1e-99 1Gb 0.0k
"""
_STRINGS = ["", "x" * 64, *_TEXTS.split()]
_VALUES: list[Any] = [
    *(None, {}, [], [None], True, {"a": "b"}, {"a": 1}),
    *(0, 1, 3, -1, 10, 11, 1800, 3601, 2**31 - 1, 2**31),
    *(*_STRINGS, *METRICS.values(), *FALLBACKS, BEHAVIOR, BEHAVIOR["scaleDown"]),
]


def _places(value: Any, way: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, each in below:
        yield (*way, step)
        yield from _places(each, (*way, step))


_QUANTITIES = ["1", 7, "500m", ".5", "1e3", "2Ki", "00.10", "+3", "0", "-1", "1n"]
_DURATIONS = ["100ms", "1s", ".5s", "1m0.5s", "60s", "90s", "1h", "1.5h", "24h"]
_COUNTS = [0, 1, 2, 10, 60]
_NAMES = ["a", "cpu", "web-1", "ReplicationController", "example.com/gpu"]
_SHARES = ["1%", "100%", "99%", "0%", "101%", "15", "1.5%", "015%", "%"]
_LIKELY: dict[str | int, list[Any]] = {
    "value": _QUANTITIES,
    "averageValue": _QUANTITIES,
    "tolerance": _QUANTITIES,
    "syncPeriod": _DURATIONS,
    "after": _DURATIONS,
    "lastGoodFor": _DURATIONS,
    "minReplicas": _COUNTS,
    "maxReplicas": _COUNTS,
    "replicas": _COUNTS,
    "averageUtilization": _COUNTS,
    "periodSeconds": _COUNTS,
    "kind": _NAMES,
    "name": _NAMES,
    "container": _NAMES,
    "stabilizationWindowSeconds": [0, 300, 3600],
    "type": ["Hold", "Floor", "LastGood", "Pods", "Percent", "Value", "AverageValue", "Utilization"],
    "selectPolicy": ["Max", "Min", "Disabled"],
    "mode": MODES,
    "fallback": FALLBACKS,
    "metric": ["jobs", "mails", "queue"],
    "podThroughput": _QUANTITIES,
    "pendingCapacity": [PENDING, PENDING[:1], []],
    "metrics": [[], [METRICS["pods"]], [METRICS["external"], METRICS["pods"]]],
    "behavior": [{}, BEHAVIOR, {"scaleDown": {}}],
    "apiVersion": ["apps/v1", "v1", "apps/", ""],
    "forecast": FORECASTS,
    "scaleDown": SCALE_DOWNS,
    "prefer": ["Idle", "idle", ""],
    "drain": [{}, {"value": "0"}, {"timeout": "1s"}],
    "timeout": ["1s", "999ms", "1h", "1h1s"],
    "history": ["7d", "6d", "35d", "36d", "168h", "167h", "840h", "841h", "014d", "14", "14d ", "100d"],
    "horizon": ["Auto", "auto", "1s", ".5s", "1h", "1h1s", "1m30s", "1.5s", "60", "Auto1s", "+90s"],
    "maxExtra": _SHARES,
    "minGain": _SHARES,
    "timeZone": ["UTC", "Europe/Berlin", "", "a b", "Etc/GMT+3"],
    "holidays": [[], ["2026-12-25"], ["2026-02-29"], ["2026-2-1"], ["0000-01-01"], ["2026-12-25 "]],
}
"""What may stand in a field: without it hardly any document would be accepted."""

_ADDED = sorted(
    {
        path.rpartition(".")[2].rstrip("[]{}")
        for path, _ in structural.nodes(SCHEMA["properties"]["spec"])
        if path
    }
    - {"key", "operator", "matchExpressions"}
)


@st.composite
def _documents(draw: st.DrawFn) -> JSON:
    """Return a document with up to three things changed in it: replaced, taken away, put in.

    Expressions of selectors are left alone, for there the two are known to differ.
    """
    tree: JSON = copy.deepcopy(draw(st.sampled_from(FULL)))
    for _ in range(draw(st.integers(0, 3))):
        if draw(st.integers(0, 3)):
            ways = [way for way in _places(tree["spec"]) if "matchExpressions" not in way]
            way = draw(st.sampled_from(ways))
            tree = _changed(tree, way, draw(_values(way[-1])))
        else:
            way, below = draw(st.sampled_from(list(_objects(tree["spec"]))))
            name = draw(st.sampled_from(_ADDED))
            if _has(way, name):
                below[name] = copy.deepcopy(draw(_values(name)))
    return tree


@functools.cache
def _values(name: str | int) -> st.SearchStrategy[Any]:
    if name == "timeZone":
        return st.sampled_from(_LIKELY[name])  # a schema does not know which zones there are
    odd = st.sampled_from(_VALUES)
    return (
        st.one_of(st.sampled_from(_LIKELY[name]), st.sampled_from(_LIKELY[name]), odd)
        if name in _LIKELY
        else odd
    )


def _objects(value: Any, way: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], JSON]]:
    if isinstance(value, dict):
        yield way, value
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, each in below:
        yield from _objects(each, (*way, step))


def _has(way: tuple[str | int, ...], name: str) -> bool:
    """Return whether the schema has a field of an object; only our reader refuses unknown ones."""
    schema = SCHEMA["properties"]["spec"]
    for step in way:
        schema = (
            schema.get("items", {}) if isinstance(step, int) else schema.get("properties", {}).get(step, {})
        )
    return name in schema.get("properties", {})


@pytest.mark.timeout(180)
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(_documents())
def test_verdicts_agree(tree: JSON) -> None:
    by_schema, by_program = (_refused_by_schema(tree), _refused_by_program(structural.pruned(tree, SCHEMA)))
    assert bool(by_schema) is bool(by_program), (by_schema, by_program)


@pytest.mark.timeout(180)
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(_documents())
def test_a_stored_document_can_be_read_and_decided_on(tree: JSON) -> None:
    stored = structural.defaulted(structural.pruned(tree, SCHEMA), SCHEMA)
    if not list(structural.problems(stored, SCHEMA)):
        read = documents.decode_object(json.dumps(stored).encode())
        assert fastpath_autoscaler.validate(read) == []
        prepare(fastpath_autoscaler.with_defaults(read), Settings())


KNOWN_DIFFERENCES = {
    "a quantity that is a fraction without quotes": ("metrics.2.pods.target.averageValue", 0.5),
    "blanks around a quantity": ("metrics.2.pods.target.averageValue", " 5 "),
    "an expression of a selector without operator": (
        "metrics.4.external.metric.selector.matchExpressions",
        [{"key": "q"}],
    ),
    "a name longer than any there can be": ("scaleTargetRef.name", "x" * 254),
}
"""What the schema refuses and a file may have, for a HorizontalPodAutoscaler may. Never the other way round.
"""


@pytest.mark.parametrize(("place", "value"), KNOWN_DIFFERENCES.values(), ids=list(KNOWN_DIFFERENCES))
def test_known_differences(place: str, value: Any) -> None:
    tree = _changed(FULL[0], _way(place), value)
    assert _refused_by_schema(tree) != []
    assert _refused_by_program(tree) == []


# --- status


def test_a_status_is_taken_as_it_is_written() -> None:
    current = hpa.MetricValueStatus(average_value=from_milli(-(2**63)), average_utilization=70)
    status = FastPathAutoscalerStatus(
        last_scale_time=Instant(1_700_000_000_500_000_000),
        current_replicas=3,
        desired_replicas=0,
        current_metrics=(
            hpa.MetricStatus(""),
            hpa.MetricStatus("Resource", resource=hpa.ResourceMetricStatus("cpu", current)),
        ),
        conditions=(hpa.Condition("AbleToScale", "True", "SucceededRescale", "said", Instant(0)),),
        recent_changes=(PastChange(-3, FineInstant(1_700_000_000_500_000_007)),),
        pending_capacity=(BacklogCredit("jobs", from_milli(1500), FineInstant(1_700_000_000_000_000_000)),),
    )
    autoscaler = replace(documents.read_document(document()), status=status)
    written = json.loads(json.dumps({"apiVersion": API_VERSION, "kind": KIND} | hpa.to_plain(autoscaler)))
    assert structural.verdict(written, SCHEMA) == []
    assert structural.pruned(written, SCHEMA)["status"] == written["status"]
    assert written["status"]["recentChanges"] == [{"change": -3, "time": "2023-11-14T22:13:20.500000007Z"}]
    assert written["status"]["pendingCapacity"] == [
        {"metric": "jobs", "credit": "1500m", "time": "2023-11-14T22:13:20.000000000Z"}
    ]
    assert written["status"]["lastScaleTime"] == "2023-11-14T22:13:20Z"
    read = documents.decode_object(json.dumps(written).encode())
    assert read.status == replace(status, last_scale_time=Instant(1_700_000_000_000_000_000))
