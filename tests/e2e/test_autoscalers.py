"""The kind FastPathAutoscaler in a cluster: installed from the manifest, its examples taken, what is wrong
refused with a reason.
"""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from adapter.model.autoscaling import documents, fastpath_autoscaler
from scripts.generate import crd
from tests.e2e import conftest
from tests.e2e.clusters import ClusterUnderTest
from tests.support.rendered import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(120)]

FOLDER = ROOT / "docs" / "examples"
EXAMPLES = sorted((FOLDER / "autoscalers").glob("*.yaml"))
PACKS = sorted(FOLDER.glob("packs/*/autoscaler.yaml"))
NAME = f"{fastpath_autoscaler.PLURAL}.{fastpath_autoscaler.GROUP}"


async def _install(cluster: ClusterUnderTest) -> None:
    await cluster.kubectl("apply", "--validate=false", "-f", str(crd.PATH))
    await cluster.kubectl("wait", "--for=condition=Established", f"crd/{NAME}", "--timeout=30s")


def _example(path: Path, cluster: ClusterUnderTest, **spec: Any) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text())
    document["metadata"]["namespace"] = cluster.namespace
    document["spec"] |= spec
    return document


async def test_what_is_applied_is_what_is_decided_on(cluster: ClusterUnderTest) -> None:
    await _install(cluster)
    await cluster.create(*(_example(path, cluster) for path in EXAMPLES))
    listed = json.loads(await cluster.kubectl("get", "fpa", "-n", cluster.namespace, "-o", "json"))
    read = [documents.decode_object(msgspec.json.encode(item)) for item in listed["items"]]
    assert len(read) == len(EXAMPLES)
    wanted = {
        each.metadata.name: each
        for each in (documents.read_document(_example(path, cluster)) for path in EXAMPLES)
    }
    for each in read:
        assert fastpath_autoscaler.validate(each) == []
        assert each.metadata.uid
        same = wanted[each.metadata.name]
        assert fastpath_autoscaler.with_defaults(each).spec == fastpath_autoscaler.with_defaults(same).spec
        assert (each.spec.sync_period, each.spec.mode, each.spec.fallback) == (
            same.spec.sync_period,
            same.spec.mode,
            same.spec.fallback,
        )


async def test_autoscalers_of_rule_packs_are_taken(cluster: ClusterUnderTest) -> None:
    await _install(cluster)
    given = [(path.parent.name, each) for path in PACKS for each in yaml.safe_load_all(path.read_text())]
    for pack, document in given:
        document["metadata"] = {
            "name": f"{pack}-{document['metadata']['name']}",
            "namespace": cluster.namespace,
        }
    await cluster.create(*(document for _, document in given))
    listed = json.loads(await cluster.kubectl("get", "fpa", "-n", cluster.namespace, "-o", "json"))
    specs = {item["metadata"]["name"]: item["spec"] for item in listed["items"]}
    for _, document in given:
        assert document["spec"].items() <= specs[document["metadata"]["name"]].items()


async def test_a_status_is_kept_whole(cluster: ClusterUnderTest) -> None:
    await _install(cluster)
    document = _example(EXAMPLES[0], cluster)
    await cluster.create(document)
    status = {
        "currentReplicas": 3,
        "desiredReplicas": 0,
        "lastScaleTime": "2026-01-31T12:00:00Z",
        "currentMetrics": [{"type": ""}],
        "conditions": [
            {
                "type": "AbleToScale",
                "status": "True",
                "reason": "SucceededRescale",
                "message": "said",
                "lastTransitionTime": "2026-01-31T12:00:00Z",
            }
        ],
        "recentChanges": [{"change": -2, "time": "2026-01-31T12:00:00.000000001Z"}],
        "targets": "<unknown>/50",
        "pendingCapacity": [{"metric": "jobs", "credit": "1500m", "time": "2026-01-31T12:00:00.000000001Z"}],
    }
    name = document["metadata"]["name"]
    patch = json.dumps({"status": status, "spec": {"maxReplicas": 1}})
    where = ("-n", cluster.namespace, "fpa", name)
    await cluster.kubectl("patch", *where, "--subresource=status", "--type=merge", "-p", patch)
    after = json.loads(await cluster.kubectl("get", *where, "-o", "json"))
    assert after["status"] == status
    assert after["spec"]["maxReplicas"] == document["spec"]["maxReplicas"]


FLOOR_METRIC = {
    "type": "External",
    "external": {
        "metric": {"name": "fastpath_replicas"},
        "target": {"type": "AverageValue", "averageValue": "1"},
    },
}
JOBS = {
    "type": "External",
    "external": {"metric": {"name": "jobs"}, "target": {"type": "AverageValue", "averageValue": "30"}},
}
PENDING = {"metric": "jobs", "podThroughput": "2"}
REFUSED: Mapping[str, tuple[dict[str, Any], str]] = {
    "limits": ({"minReplicas": 50}, "maxReplicas must be greater than or equal to minReplicas"),
    "zero": ({"minReplicas": 0}, "minReplicas 0 needs an Object or External metric"),
    "period": ({"syncPeriod": "1h"}, "must be from 100ms to 1m"),
    "mode": ({"mode": "auto"}, 'supported values: "Auto", "Advise", "Paused"'),
    "source": ({"metrics": [{"type": "Pods"}]}, "pods is needed for type Pods, and for no other"),
    "fallback": ({"fallback": {"type": "Floor"}}, "replicas is needed for type Floor, and for no other"),
    "floor": ({"fallback": {"type": "Floor", "replicas": 41}}, "must be less than or equal to maxReplicas"),
    "boost": ({"metrics": [FLOOR_METRIC]}, "fastpath_replicas is only for boosted HorizontalPodAutoscalers"),
    "pending capacity of no metric": (
        {"pendingCapacity": [PENDING]},
        "pendingCapacity needs, for each metric, one Object or External metric of that name",
    ),
    "pending capacity twice": ({"metrics": [JOBS], "pendingCapacity": [PENDING, PENDING]}, "Duplicate value"),
    "pending capacity without a throughput": (
        {"metrics": [JOBS], "pendingCapacity": [{"metric": "jobs", "podThroughput": "0"}]},
        "spec.pendingCapacity[0].podThroughput",
    ),
    "a forecast of a short history": ({"forecast": {"history": "6d"}}, "must be from 7d to 35d"),
    "a forecast without a horizon": ({"forecast": {"horizon": "soon"}}, "spec.forecast.horizon"),
    "a forecast with a wrong holiday": (
        {"forecast": {"holidays": ["2026-02-29"]}},
        "must be a date such as 2026-12-25",
    ),
}


@pytest.mark.parametrize("cluster", conftest.REAL_ONLY, indirect=True)
async def test_a_forecast_is_taken_with_its_defaults(cluster: ClusterUnderTest) -> None:
    await _install(cluster)
    (path,) = (path for path in EXAMPLES if path.name == "requests.yaml")
    given: dict[str, Any] = {"mode": "Floor", "horizon": "90s", "holidays": ["2028-02-29"] * 1000}
    document = _example(path, cluster, forecast=given)
    await cluster.create(document)
    where = ("-n", cluster.namespace, "fpa", document["metadata"]["name"])
    stored = json.loads(await cluster.kubectl("get", *where, "-o", "json"))["spec"]["forecast"]
    defaults = {"history": "14d", "maxExtra": "15%", "minGain": "20%", "timeZone": "UTC"}
    assert stored == given | defaults


@pytest.mark.parametrize("cluster", conftest.REAL_ONLY, indirect=True)
async def test_what_is_wrong_is_refused_with_the_reason(cluster: ClusterUnderTest) -> None:
    await _install(cluster)
    await cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", str(crd.PATH))
    (path,) = (path for path in EXAMPLES if path.name == "requests.yaml")
    for spec, said in REFUSED.values():
        text = json.dumps(_example(path, cluster, **copy.deepcopy(spec)))
        done = await cluster.run(cluster.admin_kubeconfig, "create", "-f", "-", stdin=text)
        assert done.status == 1
        assert said in done.stderr


@pytest.mark.parametrize("cluster", conftest.REAL_ONLY, indirect=True)
async def test_columns(cluster: ClusterUnderTest) -> None:
    await _install(cluster)
    await cluster.create(_example(EXAMPLES[0], cluster))
    head, row = (await cluster.kubectl("get", "fpa", "-n", cluster.namespace)).splitlines()
    assert head.split() == [
        "NAME",
        *(each["name"].upper() for each in crd.COLUMNS if not each.get("priority")),
    ]
    assert row.split()[:5] == ["api", "StatefulSet", "api", "3", "30"]
