"""Stories of Deployments stepped by hand, and the record of their Scale writes."""

import re

from fastpath_sandbox.apiserver.server import EPOCH, Cluster
from fastpath_sandbox.apiserver.workloads import ScaleWatch, Workloads, deployment
from tests.support.clock import FakeClock


def phases(cluster: Cluster) -> list[str]:
    return sorted(pod["status"]["phase"] for pod in cluster.list("pods"))


async def test_pods_follow_replicas() -> None:
    cluster = Cluster()
    workloads = Workloads(cluster, startup=3)
    cluster.create(deployment("web", "shop", 2, {"tier": "front"}))
    workloads.step(EPOCH)
    assert phases(cluster) == ["Pending", "Pending"]
    state = cluster.get("deployments", "web", "shop")["status"]
    assert (state["replicas"], state["readyReplicas"]) == (2, 0)
    workloads.step(EPOCH + 2.9)
    assert phases(cluster) == ["Pending", "Pending"]
    workloads.step(EPOCH + 3)
    assert phases(cluster) == ["Running", "Running"]
    state = cluster.get("deployments", "web", "shop")["status"]
    assert (state["replicas"], state["readyReplicas"], state["updatedReplicas"]) == (2, 2, 2)
    cluster.patch("deployments", "web", {"spec": {"replicas": 3}}, "shop")
    before = {pod["metadata"]["name"] for pod in cluster.list("pods")}
    workloads.step(EPOCH + 4)
    assert phases(cluster) == ["Pending", "Running", "Running"]
    cluster.patch("deployments", "web", {"spec": {"replicas": 2}}, "shop")
    workloads.step(EPOCH + 5)
    assert {pod["metadata"]["name"] for pod in cluster.list("pods")} == before  # the youngest went
    cluster.patch("deployments", "web", {"spec": {"replicas": 0}}, "shop")
    workloads.step(EPOCH + 6)
    assert cluster.list("pods") == []
    assert cluster.get("deployments", "web", "shop")["status"]["replicas"] == 0


async def test_what_a_pod_looks_like() -> None:
    cluster = Cluster()
    for name in ("node-1", "node-2"):
        cluster.create({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}})
    cluster.create(deployment("web", replicas=2))
    workloads = Workloads(cluster, startup=0)
    workloads.step(EPOCH)
    first, second = cluster.list("pods")
    assert re.fullmatch(r"web-[a-z0-9]{5}-[a-z0-9]{5}", first["metadata"]["name"])
    assert first["metadata"]["labels"]["app"] == "web"
    assert {first["spec"]["nodeName"], second["spec"]["nodeName"]} == {"node-1", "node-2"}
    assert first["status"]["conditions"][0]["status"] == "True"
    assert first["status"]["podIP"] != second["status"]["podIP"]
    assert first["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet"
    replica_set = cluster.list("replicasets")[0]
    assert replica_set["metadata"]["ownerReferences"][0]["name"] == "web"
    assert replica_set["status"]["readyReplicas"] == 2


async def test_a_deleted_pod_is_replaced_and_a_quiet_step_writes_nothing() -> None:
    cluster = Cluster()
    workloads = Workloads(cluster, startup=1)
    cluster.create(deployment("web", replicas=2))
    workloads.step(EPOCH)
    workloads.step(EPOCH + 1)
    version = cluster.store.version
    workloads.step(EPOCH + 2)
    assert cluster.store.version == version
    cluster.delete("pods", cluster.list("pods")[0]["metadata"]["name"])
    workloads.step(EPOCH + 3)
    assert phases(cluster) == ["Pending", "Running"]


async def test_a_rollout_brings_up_new_pods_before_the_old_go() -> None:
    cluster = Cluster()
    workloads = Workloads(cluster, startup=2)
    cluster.create(deployment("web", replicas=2))
    workloads.step(EPOCH)
    workloads.step(EPOCH + 2)
    old = {pod["metadata"]["name"] for pod in cluster.list("pods")}
    cluster.patch("deployments", "web", {"spec": {"template": {"spec": {"priorityClassName": "high"}}}})
    workloads.step(EPOCH + 3)
    state = cluster.get("deployments", "web")["status"]
    assert (state["replicas"], state["readyReplicas"], state["updatedReplicas"]) == (4, 2, 2)
    workloads.step(EPOCH + 5)
    new = {pod["metadata"]["name"] for pod in cluster.list("pods")}
    assert len(new) == 2
    assert not new & old
    assert len(cluster.list("replicasets")) == 1


async def test_a_deleted_deployment_takes_all_along() -> None:
    cluster = Cluster()
    workloads = Workloads(cluster)
    cluster.create(deployment("web", replicas=2))
    workloads.step(EPOCH)
    cluster.delete("deployments", "web")
    workloads.step(EPOCH + 1)
    assert (cluster.list("pods"), cluster.list("replicasets")) == ([], [])


def test_a_raise_has_the_time_at_which_it_is_stored() -> None:
    cluster, clock = Cluster(), FakeClock(100.0)
    cluster.create(deployment("web", "shop", 2))
    watch = ScaleWatch(cluster, clock.wall)

    for time, replicas in ((101.0, 3), (102.0, 1), (103.0, 1), (104.0, 4), (105.0, 6)):
        clock.advance(time - clock.wall())
        cluster.scale("Deployment", "web", replicas, "shop", manager="other")

    assert watch.raised("shop", "web", 100.0) == 101.0
    assert watch.raised("shop", "web", 101.5) == 104.0
    assert watch.raised("shop", "web", 100.0, least=5) == 105.0
    assert watch.raised("shop", "web", 105.5) is None
    assert watch.raised("shop", "other", 100.0) is None
    assert (watch.highest("shop", "web", 100.0), watch.highest("shop", "web", 106.0)) == (6, 0)


def test_creation_and_deletion_are_no_writes() -> None:
    cluster, clock = Cluster(), FakeClock(100.0)
    watch = ScaleWatch(cluster, clock.wall)
    cluster.create(deployment("web", "shop", 2))
    cluster.patch("Deployment", "web", {"metadata": {"labels": {"a": "b"}}}, "shop")
    cluster.delete("Deployment", "web", "shop")
    assert watch.highest("shop", "web", 0.0) == 0
