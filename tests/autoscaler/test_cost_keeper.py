"""When the deletion costs of pods are written and taken back, and what happens where they cannot be."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from adapter.autoscaler.controller.cost_keeper import CostKeeper
from adapter.autoscaler.decide.guards.boost import Boost
from adapter.autoscaler.decide.observation import PodsReading
from adapter.errors import KubernetesError, NotLeadingError
from adapter.kubernetes.cache.pod_codec import WatchedPod
from adapter.kubernetes.write.writer import WriteKind
from adapter.model.autoscaling import slices, status
from adapter.model.autoscaling.fastpath_autoscaler import BOOST, HPA_API_VERSION, HPA_KIND
from adapter.model.objects.pods import COST_ANNOTATION
from tests.support.controller import QUEUE, Bench, fpa
from tests.support.scaling import NOW
from tests.support.waiting import running

NO_WINDOW = {"scaleDown": {"stabilizationWindowSeconds": 0}}
IDLE = {"prefer": "Idle", "metric": "connections"}


class HandCosts:
    """The costs of pods as the API server has them, which the cache shows at once."""

    def __init__(self, bench: "IdleBench") -> None:
        self.bench = bench
        self.applied: list[tuple[str, int | None]] = []
        self.error: Exception | None = None
        self.gate: asyncio.Event | None = None

    async def send(self, _: WriteKind, _method: str, path: str, content: bytes, **_options: str) -> None:
        annotations = msgspec.json.decode(content)["metadata"].get("annotations", {})
        text = annotations.get(COST_ANNOTATION)
        pod, cost = path.rpartition("/")[2], None if text is None else int(text)
        self.applied.append((pod, cost))
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.bench.change(pod, cost=cost)


class IdleBench(Bench):
    def __init__(self) -> None:
        self.writer = self.costs = HandCosts(self)
        super().__init__()

    def change(self, name: str, **facts: Any) -> None:
        self.pods.pods["app=web"] = [
            msgspec.structs.replace(pod, **facts) if pod.name == name else pod
            for pod in self.pods.pods["app=web"]
        ]

    def set_pods(self, *names: str) -> None:
        self.pods.pods["app=web"] = [WatchedPod(name, ready="True", ready_since=NOW) for name in names]

    async def begin(self, wish: int, **spec: Any) -> None:
        """Put an autoscaler of pods a to e with 1 to 5 connections, and decide it."""
        self.want(wish)
        values = {name: number * 1000 for number, name in enumerate("abcde", 1)}
        self.sources.readings["connections"] = PodsReading(values)
        self.server.set("web", 5)
        self.set_pods(*"edcba")
        changed: dict[str, Any] = {"behavior": NO_WINDOW, "scaleDown": IDLE} | spec
        self.put(fpa(QUEUE, **changed))
        await self.work(2)

    def want(self, replicas: int | None) -> None:
        """Have QUEUE ask for so many replicas; the pods keep their connections."""
        super().want(replicas)
        for source in self.sources.opened[1:]:
            source.reading = self.sources.readings["connections"]

    def move(self, **connections: int) -> None:
        """Have pods another number of connections, in thousandths."""
        known = self.sources.readings["connections"]
        assert isinstance(known, PodsReading)
        self.sources.readings["connections"] = PodsReading({**known.values, **connections})
        for source in self.sources.opened[1:]:
            source.reading = self.sources.readings["connections"]

    def shrink_natively(self) -> None:
        """Have the HPA remove the pods a and b."""
        self.server.set("web", 3, "kube-controller-manager")
        self.set_pods(*"cde")

    async def work(self, times: int = 1, seconds: float = 1) -> None:
        for _ in range(times):
            await self.step(seconds)
            for _ in range(10):
                await asyncio.sleep(0)

    def condition(self) -> tuple[str, str, str] | None:
        found = status.find(self.last().status.conditions, status.IDLE_SCALE_DOWN)
        return None if found is None else (found.status, found.reason, found.message)


@pytest.fixture
async def bench() -> AsyncIterator[IdleBench]:
    idle = IdleBench()
    async with running(idle.outbox.run()):
        yield idle


async def test_the_idlest_pods_are_marked_and_then_the_count_is_lowered(bench: IdleBench) -> None:
    await bench.begin(5)
    assert bench.condition() == ("True", "Ranking", "a scale-down removes the idlest pods first")
    bench.costs.gate = asyncio.Event()
    bench.want(3)
    await bench.work()
    assert bench.costs.applied == [("a", -5), ("b", -4)]
    assert bench.server.writes == []
    bench.costs.gate.set()
    await bench.work()
    assert bench.server.writes == [("web", 3)]
    bench.set_pods(*"cde")
    bench.server.tell("web")
    await bench.work(40)
    assert len(bench.costs.applied) == 2


async def test_a_decision_that_is_lower_after_the_costs_gets_the_missing_ones(bench: IdleBench) -> None:
    await bench.begin(5)
    bench.costs.gate = asyncio.Event()
    bench.want(3)
    await bench.work()
    bench.want(2)
    bench.costs.gate.set()
    await bench.work()
    assert bench.costs.applied == [("a", -5), ("b", -4), ("c", -3)]
    assert bench.server.writes == [("web", 2)]


async def test_pods_of_an_earlier_scale_down_count_while_they_are_there(bench: IdleBench) -> None:
    """Those that go first without a cost of ours too."""
    await bench.begin(5)
    bench.change("e", cost=-9)
    bench.want(2)
    await bench.work(2)
    bench.server.tell("web")
    bench.want(1)
    await bench.work(2)
    assert bench.server.writes == [("web", 2), ("web", 1)]
    assert bench.costs.applied == [("a", -5), ("b", -4), ("c", -3)]


@pytest.mark.looptime
async def test_costs_that_are_late_are_not_waited_for(
    bench: IdleBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CostKeeper, "at_once", 1)
    bench.start()
    async with running(bench.outbox.run()):
        await bench.begin(5)
        bench.costs.gate = asyncio.Event()
        bench.want(3)
        await bench.step(1)
        while not bench.server.writes:
            await bench.step()
            await asyncio.sleep(0.1)
        bench.costs.gate.set()
        await bench.work(3)
        assert bench.costs.applied == [("a", -5)]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (KubernetesError(409, "Conflict", 'conflict with "karpenter"'), None),
        (KubernetesError(403, "Forbidden", "cannot patch resource"), "Forbidden"),
        (KubernetesError(403, "Forbidden", "cannot create resource"), None),
        (KubernetesError(404, "NotFound", "gone"), None),
        (NotLeadingError("no"), None),
        (RuntimeError("defect"), None),
    ],
)
async def test_no_error_stands_in_the_way(bench: IdleBench, error: Exception, reason: str | None) -> None:
    await bench.begin(5)
    bench.costs.error = error
    bench.want(3)
    await bench.work(2)
    assert bench.server.writes == [("web", 3)]
    events = [event.reason for event in bench.server.events if event.reason != "SuccessfulRescale"]
    assert events == ([] if reason is None else [reason])


async def test_no_cost_is_written_for_a_minute_after_one_was_refused(bench: IdleBench) -> None:
    await bench.begin(5)
    bench.costs.error = KubernetesError(403, "Forbidden", "cannot patch resource")
    bench.want(4)
    await bench.work(2)
    bench.server.tell("web")
    text = (
        "pods may not be patched: install the component for idle scale-down; "
        "a cost is tried again at 2026-11-20T12:01:03Z"
    )
    assert bench.condition() == ("False", "Forbidden", text)
    bench.want(3)
    await bench.work(2)
    assert bench.costs.applied == [("a", -5)]
    bench.server.tell("web")
    bench.costs.error = None
    await bench.work(60)
    assert bench.condition() == ("True", "Ranking", "a scale-down removes the idlest pods first")


async def test_costs_of_a_scale_down_that_does_not_come_are_taken_back_and_again_if_that_fails(
    bench: IdleBench,
) -> None:
    await bench.begin(5)
    bench.server.fail = "quota"
    bench.want(3)
    await bench.work()
    bench.want(5)
    await bench.work(30)
    assert bench.costs.applied == [("a", -5), ("b", -4)]
    bench.costs.error = KubernetesError(503, "Down", "down")
    await bench.work(3)
    assert sorted(bench.costs.applied[2:]) == [("a", None), ("b", None)]
    bench.costs.error = None
    await bench.work(33)
    assert sorted(bench.costs.applied[4:]) == [("a", None), ("b", None)]
    await bench.work(60)
    assert len(bench.costs.applied) == 6


@pytest.mark.parametrize("is_new", [True, False], ids=["another process", "the same one again"])
async def test_a_successor_takes_back_what_it_finds(bench: IdleBench, *, is_new: bool) -> None:
    await bench.begin(5)
    bench.change("a", cost=-1)
    bench.change("b", cost=-6)
    if is_new:
        bench.start()
    else:
        number = slices.slice_of("default")
        bench.controller.drop(number)
        bench.controller.begin(number, bench.floors)
    async with running(bench.outbox.run()):
        bench.put(fpa(QUEUE, behavior=NO_WINDOW, scaleDown=IDLE))
        await bench.work(33)
        assert bench.costs.applied == [("a", None)]
        bench.change("b", cost=None)
        await bench.work(2)
        assert bench.condition() == ("True", "Ranking", "a scale-down removes the idlest pods first")


async def test_costs_of_another_writer_are_kept_and_reported_once(bench: IdleBench) -> None:
    await bench.begin(5)
    bench.change("a", cost=-5)
    bench.change("b", cost=100)
    await bench.work(3)
    bench.want(3)
    await bench.work(2)
    assert bench.costs.applied == [("c", -5)]
    text = "Pod b has a controller.kubernetes.io/pod-deletion-cost of another writer, which is kept"
    assert bench.condition() == ("False", "ForeignDeletionCost", text)
    warnings = [event for event in bench.server.events if event.type == "Warning"]
    assert [(event.reason, event.message) for event in warnings] == [("ForeignDeletionCost", text)]


async def test_a_negative_cost_that_stays_when_it_is_taken_back_is_of_another_writer(
    bench: IdleBench,
) -> None:
    await bench.begin(5)
    bench.change("a", cost=-1)

    async def nothing(*_: object, **_options: str) -> None:
        """Take back nothing of another writer."""

    bench.costs.send = nothing  # type: ignore[method-assign,assignment]
    bench.start()
    async with running(bench.outbox.run()):
        bench.put(fpa(QUEUE, behavior=NO_WINDOW, scaleDown=IDLE))
        await bench.work(44)
        found = bench.condition()
        assert found is not None
        assert found[1] == "ForeignDeletionCost"


async def test_a_target_without_a_replica_set_gets_no_costs(bench: IdleBench) -> None:
    target = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"}
    await bench.begin(5, scaleTargetRef=target)
    text = "StatefulSet web has no ReplicaSet, which would heed deletion costs"
    assert bench.condition() == ("False", "NoReplicaSet", text)
    bench.want(3)
    await bench.work(2)
    assert bench.server.writes == [("web", 3)]
    assert bench.costs.applied == []


async def test_pods_are_ranked_by_a_metric_of_the_spec(bench: IdleBench) -> None:
    metric = {
        "type": "Pods",
        "pods": {"metric": {"name": "connections"}, "target": {"type": "AverageValue", "averageValue": "3"}},
    }
    bench.sources.readings["connections"] = PodsReading({"a": 3000, "b": 0, "c": 0})
    bench.server.set("web", 3)
    bench.set_pods(*"abc")
    bench.put(fpa([metric], behavior=NO_WINDOW, scaleDown={"prefer": "Idle"}))
    await bench.work(2)
    assert bench.server.writes == [("web", 1)]
    assert sorted(bench.costs.applied) == [("b", -3), ("c", -2)]
    assert len(bench.sources.opened) == 1


@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "without the option"])
async def test_costs_end_with_the_option(bench: IdleBench, *, is_gone: bool) -> None:
    await bench.begin(5)
    bench.server.fail = "quota"
    bench.want(4)
    await bench.work()
    if is_gone:
        bench.controller.remove(next(iter(bench.controller.names())))
    else:
        bench.put(fpa(QUEUE, behavior=NO_WINDOW))
    await bench.work(2)
    assert bench.costs.applied == [("a", -5), ("a", None)]


async def test_pods_are_marked_before_the_window_of_the_own_scale_down_ends(bench: IdleBench) -> None:
    """So many that shrink at one time do not all write their costs in the same second."""
    await bench.begin(5, behavior={"scaleDown": {"stabilizationWindowSeconds": 60}})
    bench.want(3)
    await bench.work(54)
    assert bench.costs.applied == []
    await bench.work(2)
    assert bench.costs.applied == [("a", -5), ("b", -4)]
    assert bench.server.writes == []
    bench.move(a=9000)
    await bench.work(6)
    assert bench.server.writes == [("web", 3)]
    assert bench.costs.applied[2:] == [("a", None), ("c", -4)]


async def test_an_autoscaler_that_only_advises_marks_no_pods(bench: IdleBench) -> None:
    await bench.begin(5, behavior={"scaleDown": {"stabilizationWindowSeconds": 60}}, mode="Advise")
    bench.want(3)
    await bench.work(70)
    assert bench.costs.applied == []


# -- boosted HorizontalPodAutoscalers ------------------------------------------------------------------------


async def begin_boosted(bench: IdleBench, boost: Boost = Boost(BOOST), *, seconds: int = 50) -> None:  # noqa: B008 - immutable
    """Have an HPA that wants 3 of 5 pods; it scales down after a minute."""
    bench.want(5)
    bench.sources.readings["connections"] = PodsReading({"a": 1000, "b": 2000, "c": 3000})
    bench.server.set("web", 5)
    bench.set_pods(*"edcba")
    own = fpa(QUEUE, behavior={"scaleDown": {"stabilizationWindowSeconds": 60}}, scaleDown=IDLE, mode=BOOST)
    bench.controller.put(msgspec.structs.replace(own, api_version=HPA_API_VERSION, kind=HPA_KIND), boost)
    await bench.work()
    bench.want(3)
    await bench.work(seconds)


async def test_costs_are_written_a_sync_period_before_the_hpa_scales_down(bench: IdleBench) -> None:
    await begin_boosted(bench, seconds=40)
    assert bench.costs.applied == []
    await bench.work(10)
    assert bench.costs.applied == [("a", -5), ("b", -4)]
    bench.shrink_natively()
    await bench.work(60)
    assert len(bench.costs.applied) == 2
    assert bench.server.writes == []


async def test_marks_move_with_the_load_until_the_hpa_scales_down(bench: IdleBench) -> None:
    """The busy pods of now were the idle ones when the scale-down was foreseen."""
    await begin_boosted(bench)
    assert bench.costs.applied == [("a", -5), ("b", -4)]
    bench.move(a=90_000, b=80_000, c=2000, d=1000)
    await bench.work(4)
    assert bench.costs.applied[2:] == [("a", None), ("b", None), ("d", -5), ("c", -4)]
    costs = {pod.name: pod.cost for pod in bench.pods.pods["app=web"]}
    assert costs == {"a": None, "b": None, "c": -4, "d": -5, "e": None}


async def test_a_load_that_swings_moves_marks_every_two_seconds_at_most(bench: IdleBench) -> None:
    await begin_boosted(bench)
    for turn in range(12):
        busy, idle = ("ab", "cd") if turn % 2 else ("cd", "ab")
        # far enough apart that the mean of three samples follows each one
        bench.move(**dict.fromkeys(busy, 10 ** (turn + 5)), **dict.fromkeys(idle, 1))
        await bench.work(2, seconds=0.5)
    assert 4 < len(bench.costs.applied) <= 2 + 6 * 4


@pytest.mark.parametrize("is_old", [False, True])
async def test_what_counts_is_the_age_of_the_metric_that_ranks(bench: IdleBench, *, is_old: bool) -> None:
    """A metric that has no new sample for minutes does not keep pods from being ranked by another one."""
    await begin_boosted(bench)
    bench.shrink_natively()
    queue, connections = bench.sources.opened
    bench.want(1)
    for second in range(50):
        now = bench.clock.wall() - 0.1
        times = (now, now - second - 1) if is_old else (now - second - 1, now)
        queue.sampled, connections.sampled = (int(time * 1e9) for time in times)
        await bench.work()
    assert bench.costs.applied[2:] == ([] if is_old else [("c", -3)])


async def test_samples_count_after_the_clock_was_set_back(bench: IdleBench) -> None:
    await begin_boosted(bench)
    bench.shrink_natively()
    await bench.work(2)
    bench.clock.skew -= 3600
    bench.want(1)
    for _ in range(60):
        for source in bench.sources.opened:
            source.sampled = int(bench.clock.wall() * 1e9)
        await bench.work()
    assert bench.costs.applied[2:] == [("c", -3)]


async def test_costs_that_fail_are_tried_again_after_a_pause(bench: IdleBench) -> None:
    bench.costs.error = KubernetesError(503, "Down", "down")
    await begin_boosted(bench)
    assert len(bench.costs.applied) == 2
    bench.costs.error = None
    await bench.work(15)
    assert bench.costs.applied[2:] == [("a", -5), ("b", -4)]


async def test_an_hpa_that_is_only_advised_gets_no_costs(bench: IdleBench) -> None:
    await begin_boosted(bench, Boost(BOOST, fault="no handshake"), seconds=70)
    assert bench.costs.applied == []
