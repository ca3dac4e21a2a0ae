"""Our kinds in a cluster: examples are taken, and what is wrong is refused with a reason."""

import copy
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import pytest
import yaml

from adapter.bounds.schedule import documents as schedules
from adapter.model.autoscaling import documents, fastpath_autoscaler
from scripts.generate import crd, crd_schedules
from tests.bounds.schedule.test_schema import MOST
from tests.e2e import conftest
from tests.support.answers import answers
from tests.support.rendered import ROOT
from tests.support.schedules import EXAMPLE, document
from tests.world.clusters import ClusterUnderTest, Document

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(120)]

FOLDER = ROOT / "docs" / "examples"
EXAMPLES = sorted((FOLDER / "autoscalers").glob("*.yaml"))
PACKS = sorted(FOLDER.glob("packs/*/autoscaler.yaml"))
DAILY = {"from": "08:00", "to": "18:00"}
REQUESTS: Document = yaml.safe_load((FOLDER / "autoscalers" / "requests.yaml").read_text())
REAL = pytest.mark.parametrize("fronted", conftest.REAL_ONLY, indirect=True)


@pytest.fixture(autouse=True)
async def _kinds(cluster: ClusterUnderTest) -> None:
    files = [f"--filename={module.PATH}" for module in (crd, crd_schedules)]
    await cluster.kubectl("apply", "--validate=false", *files)
    await cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")


def named(tree: Document, name: str, cluster: ClusterUnderTest, **spec: Any) -> Document:
    made = copy.deepcopy(tree) | {"metadata": {"name": name, "namespace": cluster.namespace}}
    return made | {"spec": made["spec"] | spec}


async def listed(cluster: ClusterUnderTest, kind: str) -> dict[str, Document]:
    found = json.loads(await cluster.kubectl("get", kind, "-n", cluster.namespace, "-o", "json"))
    return {each["metadata"]["name"]: each for each in found["items"]}


async def test_examples_are_read_as_they_were_written(cluster: ClusterUnderTest) -> None:
    """Times and dates without quotes stay text, in kubectl as in `fastpath`."""
    text = EXAMPLE.replace("namespace: shop", f"namespace: {cluster.namespace}")
    await cluster.kubectl("create", "--validate=false", "-f", "-", stdin=text)
    for plain in ("08:00", "2026-11-27T00:00", "2026-11-30T24:00", "2026-12-25", "2026-12-26"):
        text = text.replace(plain, f'"{plain}"')  # for a reader that takes them for something else
    stored = schedules.read_document((await listed(cluster, "fps"))["office"])
    assert stored.schedule == (written := schedules.read_document(yaml.safe_load(text))).schedule
    assert (stored.targets, stored.ready) == (written.targets, written.ready)

    trees = [yaml.safe_load(path.read_text()) for path in EXAMPLES]
    given = {each["metadata"]["name"]: named(each, each["metadata"]["name"], cluster) for each in trees}
    await cluster.create(*given.values())
    for name, item in (await listed(cluster, "fpa")).items():
        read = documents.decode_object(msgspec.json.encode(item))
        assert fastpath_autoscaler.validate(read) == []
        same = fastpath_autoscaler.with_defaults(documents.read_document(given[name]))
        assert fastpath_autoscaler.with_defaults(read).spec == same.spec


async def test_autoscalers_of_rule_packs_are_taken(cluster: ClusterUnderTest) -> None:
    trees = [(path.parent.name, each) for path in PACKS for each in yaml.safe_load_all(path.read_text())]
    given = [named(each, f"{pack}-{each['metadata']['name']}", cluster) for pack, each in trees]
    await cluster.create(*given)
    stored = await listed(cluster, "fpa")
    for each in given:
        assert each["spec"].items() <= stored[each["metadata"]["name"]]["spec"].items()


TIME = "2026-01-31T12:00:00Z"


def condition(kind: str, reason: str, **more: Any) -> Document:
    said = {"status": "False", "reason": reason, "message": "said", "lastTransitionTime": TIME}
    return {"type": kind} | said | more


class KindCase(NamedTuple):
    """An object, its status, and what kubectl shows of that."""

    tree: Document
    short: str
    status: Document
    module: Any
    columns: list[str]


CASES = {
    "autoscaler": KindCase(
        REQUESTS,
        "fpa",
        {
            "currentReplicas": 3,
            "desiredReplicas": 0,
            "lastScaleTime": TIME,
            "currentMetrics": [{"type": ""}],
            "conditions": [condition("AbleToScale", "SucceededRescale")],
            "recentChanges": [{"change": -2, "time": "2026-01-31T12:00:00.000000001Z"}],
            "targets": "<unknown>/50",
            "pendingCapacity": [
                {"metric": "jobs", "credit": "1500m", "time": "2026-01-31T12:00:00.000000001Z"}
            ],
        },
        crd,
        ["Deployment"],
    ),
    "schedule": KindCase(
        document(DAILY),
        "fps",
        {
            "observedGeneration": 1,
            "active": "business",
            "windows": ["business", "sale"],
            "minReplicas": 60,
            "maxReplicas": 80,
            "nextBoundary": {"time": "2026-11-27T17:30:00Z", "window": "business", "edge": "end"},
            "conflicts": ["sale has a floor above the ceiling of business"],
            "targets": [
                {"kind": "FastPathAutoscaler", "name": "api", "applied": True, "reason": "Applied"},
                {"kind": "FastPathAutoscaler", "name": "b", "applied": False, "reason": "a", "message": "b"},
            ],
            "conditions": [condition("Applied", "NotBoosted", observedGeneration=1)],
        },
        crd_schedules,
        ["business", "60", "80", "2026-11-27T17:30:00Z", "False"],
    ),
}


@pytest.mark.parametrize("kind", CASES)
async def test_a_status_is_kept_whole_and_shown(cluster: ClusterUnderTest, kind: str) -> None:
    case = CASES[kind]
    await cluster.create(named(case.tree, "web", cluster))
    before = (await listed(cluster, case.short))["web"]["spec"]
    patch = json.dumps({"status": case.status, "spec": {"maxReplicas": 1, "timeZone": "UTC"}})
    where = ("-n", cluster.namespace, case.short, "web")
    await cluster.kubectl("patch", *where, "--subresource=status", "--type=merge", "-p", patch)
    after = (await listed(cluster, case.short))["web"]
    assert after["status"] == case.status
    assert after["spec"] == before
    head, row = (await cluster.kubectl("get", *where)).splitlines()
    if cluster.backend.sandbox is None or kind == "schedule":
        shown = [each["name"].upper() for each in case.module.COLUMNS if not each.get("priority")]
        assert head.split() == ["NAME", *shown]
        assert row.split()[1 : len(case.columns) + 1] == case.columns


@REAL
async def test_what_is_valid_is_accepted(cluster: ClusterUnderTest) -> None:
    rows = [
        row.values
        for table in ("accepted", "refused by the program alone")
        for row in answers("bounds/schedule_schema", table)
    ]
    most = (MOST["windows"], {name: MOST[name] for name in ("targets", "except")})
    trees = [document(*windows, **spec) for windows, spec in (*rows, most)]
    given = {f"schedule-{number}": tree for number, tree in enumerate(trees)}
    await cluster.create(*(named(tree, name, cluster) for name, tree in given.items()))
    stored = await listed(cluster, "fps")
    for name, tree in given.items():
        assert stored[name]["spec"] == {"ready": schedules.AT_START} | tree["spec"]

    forecast: Document = {"mode": "Floor", "horizon": "90s", "holidays": ["2028-02-29"] * 1000}
    await cluster.create(named(REQUESTS, "foreseen", cluster, forecast=forecast))
    defaults = {"history": "14d", "maxExtra": "15%", "minGain": "20%", "timeZone": "UTC"}
    assert (await listed(cluster, "fpa"))["foreseen"]["spec"]["forecast"] == forecast | defaults


def external(name: str, value: str) -> Document:
    target = {"type": "AverageValue", "averageValue": value}
    return {"type": "External", "external": {"metric": {"name": name}, "target": target}}


PENDING = {"metric": "jobs", "podThroughput": "2"}
TWICE = {"kind": "FastPathAutoscaler", "name": "web"}
AUTOSCALERS: Mapping[str, Document] = {
    "maxReplicas must be greater than or equal to minReplicas": {"minReplicas": 50},
    "minReplicas 0 needs an Object or External metric": {"minReplicas": 0},
    "must be from 100ms to 1m": {"syncPeriod": "1h"},
    'supported values: "Auto", "Advise", "Paused"': {"mode": "auto"},
    "pods is needed for type Pods, and for no other": {"metrics": [{"type": "Pods"}]},
    "replicas is needed for type Floor, and for no other": {"fallback": {"type": "Floor"}},
    "must be less than or equal to maxReplicas": {"fallback": {"type": "Floor", "replicas": 41}},
    "fastpath_replicas is only for boosted HorizontalPodAutoscalers": {
        "metrics": [external("fastpath_replicas", "1")]
    },
    "pendingCapacity needs, for each metric, one Object or External metric of that name": {
        "pendingCapacity": [PENDING]
    },
    "Duplicate value": {"metrics": [external("jobs", "30")], "pendingCapacity": [PENDING, PENDING]},
    "spec.pendingCapacity[0].podThroughput": {
        "metrics": [external("jobs", "30")],
        "pendingCapacity": [PENDING | {"podThroughput": "0"}],
    },
    "must be from 7d to 35d": {"forecast": {"history": "6d"}},
    "must be a date such as 2026-12-25": {"forecast": {"holidays": ["2026-02-29"]}},
}
SCHEDULES: Mapping[str, Document] = {
    "must be a time zone such as Europe/Berlin": document(DAILY, zone="Europe / Berlin"),
    'supported values: "AtStart", "ByStart"': document(DAILY, ready="Soon"),
    "minReplicas must be at most maxReplicas": document(DAILY | {"minReplicas": 9, "maxReplicas": 8}),
    "must be a cron expression of five fields": document({"cron": "0 25 * * *", "for": "6h"}),
    "must be from 1s to 744h": document({"cron": "0 22 * * *", "for": "745h"}),
    "Duplicate value": document(DAILY, targets=[TWICE, TWICE]),
    "must have no control characters": document(DAILY | {"name": "a\u202eb"}),
    "must have at most 100 items": document(*[DAILY] * 101),
    'unknown field "spec.windows[0].minReplica"': document(DAILY | {"minReplica": 1}),
}


@REAL
async def test_what_is_wrong_is_refused_with_the_reason(cluster: ClusterUnderTest) -> None:
    for module in (crd, crd_schedules):
        await cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", str(module.PATH))
    cases = [(said, named(REQUESTS, "refused", cluster, **spec)) for said, spec in AUTOSCALERS.items()]
    cases += [(said, named(tree, "refused", cluster)) for said, tree in SCHEDULES.items()]
    for said, tree in cases:
        done = await cluster.run(cluster.admin_kubeconfig, "create", "-f", "-", stdin=json.dumps(tree))
        assert (done.status, said in done.stderr) == (1, True), (said, done.stderr)
