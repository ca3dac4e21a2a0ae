"""The kind FastPathSchedule in a cluster: installed from the manifest, what is valid taken, what is wrong
refused with a reason.
"""

import copy
import json
from typing import Any

import pytest
import yaml

from adapter.bounds.schedule import documents
from scripts.generate import crd_schedules
from tests.bounds.schedule.test_schema import ACCEPTED, ONLY_BY_THE_PROGRAM
from tests.e2e import conftest
from tests.e2e.clusters import ClusterUnderTest
from tests.support.schedules import EXAMPLE, document, excepting

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(120)]

NAME = f"{documents.PLURAL}.fastpath.io"


async def _install(cluster: ClusterUnderTest) -> None:
    await cluster.kubectl("apply", "--validate=false", "-f", str(crd_schedules.PATH))
    await cluster.kubectl("wait", "--for=condition=Established", f"crd/{NAME}", "--timeout=30s")


def _named(tree: dict[str, Any], name: str, cluster: ClusterUnderTest) -> dict[str, Any]:
    return copy.deepcopy(tree) | {"metadata": {"name": name, "namespace": cluster.namespace}}


async def test_the_example_is_stored_as_it_is_read(cluster: ClusterUnderTest) -> None:
    """Times and dates without quotes stay text, in kubectl as in `fastpath`."""
    await _install(cluster)
    text = EXAMPLE.replace("namespace: shop", f"namespace: {cluster.namespace}")
    await cluster.kubectl("create", "--validate=false", "-f", "-", stdin=text)
    stored = json.loads(await cluster.kubectl("get", "fps", "office", "-n", cluster.namespace, "-o", "json"))
    read, written = documents.read_document(stored), documents.read_document(yaml.safe_load(_quoted(text)))
    assert (read.targets, read.ready, read.schedule) == (written.targets, written.ready, written.schedule)


def _quoted(text: str) -> str:
    """Return the example for a reader that takes unquoted dates and times for something else."""
    for plain in ("08:00", "2026-11-27T00:00", "2026-11-30T24:00", "2026-12-25", "2026-12-26"):
        text = text.replace(plain, f'"{plain}"')
    return text


@pytest.mark.parametrize("cluster", conftest.REAL_ONLY, indirect=True)
async def test_what_is_valid_is_accepted(cluster: ClusterUnderTest) -> None:
    await _install(cluster)
    given = [*ACCEPTED.values(), *ONLY_BY_THE_PROGRAM.values()]
    await cluster.create(*(_named(tree, f"schedule-{number}", cluster) for number, tree in enumerate(given)))
    listed = json.loads(await cluster.kubectl("get", "fps", "-n", cluster.namespace, "-o", "json"))
    specs = {item["metadata"]["name"]: item["spec"] for item in listed["items"]}
    for number, tree in enumerate(given):
        assert specs[f"schedule-{number}"] == {"ready": documents.AT_START} | tree["spec"]


DAILY = {"from": "08:00", "to": "18:00"}
CRON = {"cron": "0 22 * * *", "for": "6h"}
SINGLE = {"start": "2026-11-27T00:00", "end": "2026-11-30T24:00"}
TWICE = {"kind": "FastPathAutoscaler", "name": "web"}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "zone": (document(DAILY, zone="Europe / Berlin"), "must be a time zone such as Europe/Berlin"),
    "no zone": (document(DAILY, zone=""), "spec.timeZone: Invalid value"),
    "ready": (document(DAILY, ready="Soon"), 'supported values: "AtStart", "ByStart"'),
    "day": (document(DAILY | {"days": ["Friday"]}), 'supported values: "Mon", "Tue", "Wed"'),
    "floor above ceiling": (
        document(DAILY | {"minReplicas": 9, "maxReplicas": 8}),
        "minReplicas must be at most maxReplicas",
    ),
    "no bound": (document(DAILY | {"minReplicas": None}), "needs minReplicas, maxReplicas, or both"),
    "negative": (document(DAILY | {"minReplicas": -1}), "should be greater than or equal to 0"),
    "start without end": (document({"start": "2026-11-27T00:00"}), "start and end need each other"),
    "end before start": (document(SINGLE | {"end": "2026-11-26T24:00"}), "end must be after start"),
    "no such day": (document(SINGLE | {"start": "2026-02-30T00:00"}), "must be a local time without offset"),
    "to is from": (document(DAILY | {"to": "08:00:00"}), "to must be another time than from"),
    "clock": (document(DAILY | {"from": "24:00"}), "must be HH:MM or HH:MM:SS, from 00:00 to 23:59:59"),
    "two forms": (document(DAILY | CRON), "needs one of: from and to, cron and for, start and end"),
    "days beside cron": (document(CRON | {"days": ["Mon"]}), "days belong to a window with from and to"),
    "four fields": (document(CRON | {"cron": "0 22 * *"}), "must be a cron expression of five fields"),
    "six fields": (document(CRON | {"cron": "0 0 22 * * *"}), "must be a cron expression of five fields"),
    "hour of cron": (document(CRON | {"cron": "0 25 * * *"}), "must be a cron expression of five fields"),
    "length": (document(CRON | {"for": "745h"}), "must be from 1s to 744h"),
    "part of a second": (document(CRON | {"for": "1500ms"}), "must be whole seconds"),
    "exception": (excepting("2026-02-29"), "must be a date such as 2026-12-25"),
    "target twice": (document(DAILY, targets=[TWICE, TWICE]), "Duplicate value"),
    "target": (document(DAILY, targets=[{"kind": "Deployment", "name": "web"}]), "Unsupported value"),
    "escape in a name": (document(DAILY | {"name": "\x1b[2J"}), "must have no control characters"),
    "direction in a name": (document(DAILY | {"name": "a\u202eb"}), "must have no control characters"),
    "window twice": (document(DAILY | {"name": "a"}, DAILY | {"name": "a"}), "Duplicate value"),
    "101 windows": (document(*[DAILY] * 101), "must have at most 100 items"),
    "unknown field": (document(DAILY | {"minReplica": 1}), 'unknown field "spec.windows[0].minReplica"'),
}


@pytest.mark.parametrize("cluster", conftest.REAL_ONLY, indirect=True)
async def test_what_is_wrong_is_refused_with_the_reason(cluster: ClusterUnderTest) -> None:
    await _install(cluster)
    await cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", str(crd_schedules.PATH))
    for name, (tree, said) in REFUSED.items():
        text = json.dumps(_named(tree, "refused", cluster))
        done = await cluster.run(cluster.admin_kubeconfig, "create", "-f", "-", stdin=text)
        assert done.status == 1, name
        assert said in done.stderr, name


STATUS = {
    "observedGeneration": 1,
    "active": "business, sale",
    "windows": ["business", "sale"],
    "minReplicas": 60,
    "maxReplicas": 80,
    "nextBoundary": {"time": "2026-11-27T17:30:00Z", "window": "business", "edge": "end"},
    "conflicts": ["sale has a floor above the ceiling of business"],
    "targets": [
        {
            "kind": "FastPathAutoscaler",
            "name": "api",
            "applied": True,
            "reason": "Applied",
            "leadSeconds": 40,
        },
        {
            "kind": "HorizontalPodAutoscaler",
            "name": "web",
            "applied": False,
            "reason": "NotBoosted",
            "message": "said",
        },
    ],
    "conditions": [
        {
            "type": "Applied",
            "status": "False",
            "reason": "NotBoosted",
            "message": "said",
            "lastTransitionTime": "2026-11-27T12:00:00Z",
            "observedGeneration": 1,
        }
    ],
}


async def test_a_status_is_kept_whole(cluster: ClusterUnderTest) -> None:
    await _install(cluster)
    await cluster.create(_named(document(DAILY), "office", cluster))
    patch = json.dumps({"status": STATUS, "spec": {"timeZone": "UTC"}})
    where = ("-n", cluster.namespace, "fps", "office")
    await cluster.kubectl("patch", *where, "--subresource=status", "--type=merge", "-p", patch)
    after = json.loads(await cluster.kubectl("get", *where, "-o", "json"))
    assert after["status"] == STATUS
    assert after["spec"]["timeZone"] == "Europe/Berlin"


async def test_columns(cluster: ClusterUnderTest) -> None:
    await _install(cluster)
    await cluster.create(_named(document(DAILY), "office", cluster))
    where = ("-n", cluster.namespace, "fps", "office")
    patch = json.dumps({"status": STATUS | {"active": "business"}})
    await cluster.kubectl("patch", *where, "--subresource=status", "--type=merge", "-p", patch)
    head, row = (await cluster.kubectl("get", *where)).splitlines()
    shown = [each["name"].upper() for each in crd_schedules.COLUMNS if not each.get("priority")]
    assert head.split() == ["NAME", *shown]
    assert row.split()[:-1] == ["office", "business", "60", "80", "2026-11-27T17:30:00Z", "False"]
    await cluster.create(_named(document(DAILY), "new", cluster))
    assert len((await cluster.kubectl("get", *where[:-1], "new")).splitlines()[1].split()) == 2
