"""The audit of scale writes, tested with hand-made objects."""

from typing import Any

import pytest

from adapter.model.autoscaling import floor as floors
from adapter.model.autoscaling.floor import Floor
from adapter.model.timestamps import FineInstant, span_of
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.workloads import deployment
from tests.support.answers import answers
from tests.support.clock import FakeClock
from tests.world.scalewrites import NATIVE, Audit, Place, follow

HOLD = 10.0
WEB = Place("shop", "web")


class AuditedTarget:
    """An audit with one target of 4 replicas and its autoscaler; time stands still but for `at`."""

    def __init__(self) -> None:
        self.clock = FakeClock(1000.0)
        self.audit = Audit(self.clock.wall, HOLD)
        self.version = 0
        self.status(4)
        self.write(4, "someone")

    def at(self, seconds: float) -> None:
        self.clock.advance(1000.0 + seconds - self.clock.wall())

    def next_version(self) -> str:
        self.version += 1
        return str(self.version)

    def write(self, count: int, by: str, version: str = "") -> None:
        entry = {"manager": by, "fieldsV1": {"f:spec": {"f:replicas": {}}}}
        other = {"manager": "kubectl", "fieldsV1": {"f:spec": {"f:template": {}}}}
        metadata: dict[str, Any] = {"namespace": "shop", "name": "web", "managedFields": [other, entry]}
        metadata["resourceVersion"] = version or self.next_version()
        self.audit.saw_target({"metadata": metadata, "spec": {"replicas": count}})

    def status(self, current: int) -> None:
        metadata = {"namespace": "shop", "name": "web-hpa", "uid": "u"}
        status = {"currentReplicas": current, "lastScaleTime": str(self.clock.wall())}
        spec = {"scaleTargetRef": {"name": "web"}}
        self.audit.saw_autoscaler({"metadata": metadata, "spec": spec, "status": status})

    def publish(self, count: int, seconds: float, version: str = "") -> None:
        """Publish a floor of `count` replicas for so many seconds, or no floor if that is 0."""
        entry = Floor("shop", "web-hpa", "u", count, FineInstant(span_of(self.clock.wall() + seconds)))
        metadata = {"namespace": "fastpath", "name": "fastpath-floors"}
        metadata["resourceVersion"] = version or self.next_version()
        data = {"u": floors.encode_floor(entry)} if count else {}
        self.audit.saw_floors({"metadata": metadata, "data": data})


def test_each_write_has_its_author() -> None:
    case = AuditedTarget()
    case.at(1)
    case.write(6, NATIVE)
    case.write(6, "someone")  # changes nothing
    case.at(2)
    case.write(3, "kubectl")
    assert [write[2:5] for write in case.audit.writes] == [(4, 6, NATIVE), (6, 3, "kubectl")]
    assert [write.time for write in case.audit.of("web", since=1001.5)] == [1002.0]
    assert case.audit.of("other") == []
    assert case.audit.reversals == []


@pytest.mark.parametrize(
    ("after", "later", "counted"), answers("project/scalewrites", "reversals_are_counted")
)
def test_reversals_are_counted(after: int, later: float, counted: list[int]) -> None:
    case = AuditedTarget()
    case.write(10, "fastpath")
    case.at(later)
    case.write(after, "kubectl")
    assert [each.write.after for each in case.audit.counted] == counted


def test_a_published_floor_holds_longer_than_the_shortest_hold() -> None:
    case = AuditedTarget()
    case.publish(10, 60)
    case.write(10, "fastpath")
    case.at(30)
    case.write(8, "kubectl")
    assert [each.floor for each in case.audit.counted] == [10]
    assert case.audit.unpublished == []
    case.publish(0, 0)
    case.write(4, "kubectl")
    assert len(case.audit.counted) == 1


def test_a_raise_without_a_floor_is_reported() -> None:
    case = AuditedTarget()
    case.publish(8, 60)
    case.write(10, "fastpath")
    case.publish(10, 60)
    assert [write.after for write in case.audit.unpublished] == [10]


def test_a_floor_of_a_late_watch_was_published_before_the_raise() -> None:
    case = AuditedTarget()
    floor, ended = case.next_version(), case.next_version()
    case.write(10, "fastpath")
    assert [write.after for write in case.audit.unpublished] == [10], "no watch has shown one"
    case.publish(10, 60, floor)
    assert case.audit.unpublished == []
    case.publish(0, 0, ended)
    assert [write.after for write in case.audit.unpublished] == [10], "it had ended before the raise"


@pytest.mark.parametrize(
    ("writes", "known", "counted"),
    [
        pytest.param([(4, NATIVE)], 4, 0, id="an old decision of the native controller"),
        pytest.param([(4, NATIVE)], None, 1, id="before it says of which count it knew"),
        pytest.param([(4, NATIVE)], 10, 1, id="it knew of the raise"),
        pytest.param([(12, NATIVE), (4, NATIVE)], 4, 1, id="its second write"),
        pytest.param([(4, "kubectl")], 4, 1, id="another writer"),
    ],
)
def test_the_native_controllers_old_decision_is_excused(
    writes: list[tuple[int, str]], known: int | None, counted: int
) -> None:
    case = AuditedTarget()
    case.write(10, "fastpath")
    for seconds, write in enumerate(writes, start=1):
        case.at(seconds)
        case.write(*write)
    if known is not None:
        case.status(known)
    assert len(case.audit.counted) == counted
    assert [each.excuse for each in case.audit.reversals if each.excuse] == (
        [] if counted else ["decided on 4 replicas"]
    )


async def test_follows_a_sandbox() -> None:
    async with Cluster() as cluster:
        cluster.create(deployment("web", "shop", 2))
        audit = Audit(FakeClock().wall, HOLD)
        spec = {"scaleTargetRef": {"kind": "Deployment", "name": "web"}}
        hpa: dict[str, Any] = {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "spec": spec,
        }
        made = cluster.create(hpa | {"metadata": {"name": "web-hpa", "namespace": "shop"}})
        follow(cluster, audit)
        entry = Floor(
            "shop", "web-hpa", made["metadata"]["uid"], 7, FineInstant(span_of(FakeClock().wall() + 60))
        )
        named = {"name": "fastpath-floors", "namespace": "fastpath"}
        floor = {"apiVersion": "v1", "kind": "ConfigMap", "data": {entry.uid: floors.encode_floor(entry)}}
        cluster.create(floor | {"metadata": named})
        assert audit.published(WEB, FakeClock().wall()) == 0, "without the label it is not one of ours"
        cluster.patch(
            "ConfigMap", named["name"], {"metadata": {"labels": {floors.LABEL: "true"}}}, "fastpath"
        )
        assert audit.published(WEB, FakeClock().wall()) == 7
        cluster.scale("Deployment", "web", 7, "shop", manager="fastpath")
        cluster.scale("Deployment", "web", 3, "shop", manager="argocd-controller")
        cluster.delete("Deployment", "web", "shop")
        assert [each.write.by for each in audit.counted] == ["argocd-controller"]
        assert audit.targets() == [WEB]
        assert audit.unpublished == []
