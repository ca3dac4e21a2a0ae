from adapter.sandbox.apiserver.cluster import Cluster
from adapter.sandbox.apiserver.workloads import deployment
from adapter.sandbox.demo.scale_watch import ScaleWatch
from tests.support.clock import FakeClock


def test_writes_upwards_count_from_when_they_are_stored() -> None:
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


def test_what_is_made_and_goes_is_no_write() -> None:
    cluster, clock = Cluster(), FakeClock(100.0)
    watch = ScaleWatch(cluster, clock.wall)
    cluster.create(deployment("web", "shop", 2))
    cluster.patch("Deployment", "web", {"metadata": {"labels": {"a": "b"}}}, "shop")
    cluster.delete("Deployment", "web", "shop")
    assert watch.highest("shop", "web", 0.0) == 0
