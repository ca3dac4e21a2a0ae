"""HorizontalPodAutoscalers in the loop: publish, then write; reversals; advice writes nothing."""

import asyncio
from typing import Any

import msgspec
import pytest

from adapter.autoscaler.decide.guards.boost import Boost
from adapter.autoscaler.interfaces import Key
from adapter.errors import KubernetesError, NotLeadingError
from adapter.model.autoscaling.fastpath_autoscaler import (
    ADVISE,
    BOOST,
    HPA_API_VERSION,
    HPA_KIND,
    FastPathAutoscaler,
)
from adapter.model.autoscaling.floor import LONGEST, Floor
from adapter.model.timestamps import SECOND
from tests.support.controller import QUEUE, Bench, fpa, shown_document
from tests.support.scaling import NOW, pods

KEY = Key("default", "web", is_native=True)
NATIVE = "kube-controller-manager"
ON = Boost(BOOST, digest="one")


class HandFloors:
    """What is published, in the order in which it was asked for; `fail` is why nothing more is.

    A write that the `gate` holds is superseded by `want`, as with a FloorWriter.
    """

    def __init__(self, log: list[str]) -> None:
        self.entries: dict[str, Floor] = {}
        self.fail: Exception | None = None
        self.gate: asyncio.Event | None = None
        self._log = log
        self._wants = 0

    async def publish(self, entry: Floor) -> None:
        wants = self._wants
        if self.gate is not None:
            await self.gate.wait()
        if self._wants != wants:
            raise KubernetesError(0, "Superseded", "a newer one has replaced it")
        if self.fail is not None:
            raise self.fail
        self._log.append(f"publish {entry.replicas}")
        self.entries[entry.uid] = entry

    def want(self, uid: str, entry: Floor | None) -> None:
        self._wants += 1
        self._log.append(f"want {None if entry is None else entry.replicas}")
        if entry is None:
            self.entries.pop(uid, None)
        else:
            self.entries[uid] = entry

    def replicas(self) -> int:
        """Return the floor of the only autoscaler."""
        return sum(entry.replicas for entry in self.entries.values())


class BoostBench(Bench):
    """A controller that boosts."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.floors: HandFloors = HandFloors(self.log)
        super().__init__()

    def boost(
        self,
        boost: Boost = ON,
        replicas: int | None = None,
        published: Floor | None = None,
        manager: str = "kubectl",
        **spec: Any,
    ) -> None:
        """Put an autoscaler, and its target if `replicas` are given, as `manager` has set them."""
        if replicas is not None:
            self.server.set("web", replicas, manager)
            self.pods.pods["app=web"] = pods(20)
        self.controller.put(hpa(boost.mode, **spec), boost, published)

    async def begin_boosted(
        self, replicas_wanted: int, boost: Boost = ON, *, replicas: int = 4, **spec: Any
    ) -> None:
        """Put a boosted autoscaler whose queue asks for so many replicas, and decide it."""
        self.want(replicas_wanted)
        self.boost(boost, replicas, **spec)
        await self.step()

    def reasons(self) -> list[str]:
        return [event.reason for event in self.server.events]

    def memory(self) -> Any:
        return self.state.memory.boost


def hpa(mode: str, uid: str = "uid-1", **spec: Any) -> FastPathAutoscaler:
    plain = fpa(spec.pop("metrics", QUEUE), uid=uid, mode=mode, **({"behavior": {}} | spec))
    return msgspec.structs.replace(plain, api_version=HPA_API_VERSION, kind=HPA_KIND)


@pytest.fixture
def bench() -> BoostBench:
    return BoostBench()


async def test_a_raise_is_published_before_it_is_written(bench: BoostBench) -> None:
    await bench.begin_boosted(8)

    assert bench.log == ["publish 8", "want 8"]
    assert bench.server.writes == [("web", 8)]
    entry = bench.floors.entries["uid-1"]
    assert (entry.namespace, entry.name, entry.replicas, entry.raised_from) == ("default", "web", 8, 4)
    assert entry.until == NOW + LONGEST
    assert entry.stands
    assert bench.reasons() == ["SuccessfulRescale"]
    assert not [each for each in bench.server.statuses if each[0] != "web"]


async def test_a_raise_that_is_not_published_is_not_written(bench: BoostBench) -> None:
    bench.floors.fail = KubernetesError(403, "Forbidden", "configmaps is forbidden")
    await bench.begin_boosted(8)

    assert bench.server.writes == []
    assert bench.floors.entries == {}
    (event,) = bench.server.events
    assert event.reason == "FailedRescale"
    assert "the floor cannot be published: configmaps is forbidden" in event.message


async def test_a_raise_that_cannot_be_published_leaves_the_former_floor(bench: BoostBench) -> None:
    await bench.begin_boosted(6)
    bench.server.tell("web")
    bench.log.clear()
    bench.floors.fail = KubernetesError(500, "InternalError", "no answer in time")
    bench.want(10)
    await bench.step(1)

    assert bench.log == ["want 6"]
    assert bench.server.writes == [("web", 6)]


async def test_a_former_leader_writes_nothing(bench: BoostBench) -> None:
    bench.floors.fail = NotLeadingError()
    await bench.begin_boosted(8)

    assert (bench.server.writes, bench.server.events) == ([], [])


async def test_a_failed_write_withdraws_the_floor(bench: BoostBench) -> None:
    bench.server.fail = "deployments/scale is forbidden"
    await bench.begin_boosted(8)

    assert bench.log == ["publish 8", "want None"]
    assert (bench.floors.entries, bench.memory().floor) == ({}, None)


async def test_the_floor_ends_after_its_hold(bench: BoostBench) -> None:
    await bench.begin_boosted(8, ON._replace(shown=4))
    bench.server.tell("web")
    await bench.step(20)
    assert bench.floors.replicas() == 8

    bench.boost(ON._replace(shown=8))
    await bench.step(1)
    assert bench.floors.entries["uid-1"].shown == NOW + 21 * SECOND
    assert bench.floors.entries["uid-1"].until == NOW + 51 * SECOND
    await bench.step(29)
    assert bench.floors.replicas() == 8
    await bench.step(1)
    assert bench.floors.entries == {}
    assert bench.server.writes == [("web", 8)], "the autoscaler has it now"


@pytest.mark.parametrize("way", ["advise", "no handshake", "gone", "recreated", "a rival"])
async def test_the_floor_ends_at_once(bench: BoostBench, way: str) -> None:
    await bench.begin_boosted(8)
    bench.server.tell("web")
    if way == "advise":
        bench.boost(ON._replace(mode=ADVISE))
    elif way == "no handshake":
        bench.boost(ON._replace(fault="no handshake"))
    elif way == "gone":
        bench.controller.remove(KEY)
    elif way == "recreated":
        bench.controller.put(hpa(BOOST, uid="uid-2"), ON)
    else:
        bench.rivals.names = ("HorizontalPodAutoscaler/other",)
    await bench.step(1)

    assert bench.floors.entries == {}


async def test_two_reversals_end_in_advice(bench: BoostBench) -> None:
    await bench.begin_boosted(8)
    bench.server.set("web", 4, "argocd-controller")
    await bench.step(20)
    assert bench.server.writes == [("web", 8), ("web", 8)], "answered once"
    bench.server.set("web", 4, "argocd-controller")
    await bench.step(20)

    assert bench.server.writes == [("web", 8), ("web", 8)]
    assert bench.reasons() == ["SuccessfulRescale", "RaiseReverted", "SuccessfulRescale", "BoostDemoted"]
    assert "argocd-controller" in bench.server.events[-1].message
    entry = bench.floors.entries["uid-1"]
    assert entry.replicas == 0
    assert entry.demoted is not None
    shown = shown_document(bench.controller)
    assert (shown["boost"]["demotedBy"], shown["kind"]) == ("argocd-controller", HPA_KIND)
    demoted = (
        'fastpath_autoscaler_boost_demoted{kind="HorizontalPodAutoscaler",name="web",namespace="default"}'
    )
    assert f"{demoted} 1.0" in bench.monitoring.exposition()
    bench.boost(ON._replace(digest="two"))
    await bench.step(15)
    assert f"{demoted} 0.0" in bench.monitoring.exposition(), "the annotations have changed"
    assert bench.server.writes == [("web", 8)] * 3


async def test_advice_writes_nothing(bench: BoostBench) -> None:
    bench.want(8)
    bench.boost(ON._replace(mode=ADVISE), replicas=4)
    await bench.steps(20)

    assert (bench.server.writes, bench.floors.entries, bench.log) == ([], {}, [])
    assert bench.reasons() == ["ScalingAdvice"]
    exposition = bench.monitoring.exposition()
    labels = '{kind="HorizontalPodAutoscaler",name="web",namespace="default"}'
    assert f"fastpath_autoscaler_recommended_replicas{labels} 8.0" in exposition
    assert f"fastpath_autoscaler_recommended_replicas_difference{labels} 4.0" in exposition
    assert f"fastpath_autoscaler_floor_replicas{labels} 0.0" in exposition
    assert "fastpath_autoscaler_desired_replicas{" not in exposition
    bench.controller.remove(KEY)
    assert "fastpath_autoscaler_recommended_replicas{" not in bench.monitoring.exposition()


async def test_the_fault_of_the_boost_is_reported_once(bench: BoostBench) -> None:
    bench.want(8)
    for _ in range(3):
        bench.boost(ON._replace(fault="spec.metrics has no fastpath_replicas"), replicas=4)
        await bench.step(1)
    bench.boost(ON)
    await bench.step(1)
    bench.boost(ON._replace(fault="spec.metrics has no fastpath_replicas"))

    told = [event.message for event in bench.server.events if event.reason == "NotBoosted"]
    assert told == ["spec.metrics has no fastpath_replicas"] * 2
    assert bench.server.writes == [("web", 8)]


async def test_an_autoscaler_of_ours_may_have_the_same_name(bench: BoostBench) -> None:
    bench.want(8)
    bench.boost(replicas=4)
    bench.put(fpa(QUEUE, mode="Paused"))
    await bench.step()

    assert set(bench.controller.names()) == {KEY, Key("default", "web")}
    assert (KEY[:2], str(KEY)) == (("default", "web"), "default/hpa/web")
    assert shown_document(bench.controller)["mode"] == "Paused"
