"""Pending capacity in the loop: start-up times from the ledger, the record in the status, boosted HPAs."""

import msgspec
import pytest

from adapter.autoscaler.decide.observation import ExternalReading
from adapter.autoscaler.interfaces import Key
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler, full_status
from adapter.model.objects.pods import PodFacts
from adapter.model.ready_times import PodStart
from adapter.model.timestamps import SECOND
from tests.support.controller import Bench, fpa
from tests.support.scaling import NOW, external_metric, pods

KEY = Key("default", "web")
JOBS = [external_metric("jobs", averageValue="10")]
PENDING = [{"metric": "jobs", "podThroughput": "1"}]
FAST = {"scaleUp": {"policies": [{"type": "Pods", "value": 1000, "periodSeconds": 1}]}}
MINUTE = PodStart(1_000, 2_000, 30_000, 60_000)


def autoscaler(*, option: bool = True) -> FastPathAutoscaler:
    listed = PENDING if option else []
    return fpa(JOBS, maxReplicas=1000, behavior=FAST, pendingCapacity=listed)


def jobs(bench: Bench, count: float) -> None:
    bench.sources.readings["jobs"] = ExternalReading([round(count * 1000)])
    for source in bench.sources.opened:
        source.reading = bench.sources.readings["jobs"]


def make_pods(bench: Bench, at: float) -> None:
    """Let the pods that were asked for exist, and be told by the caches; they are not Ready."""
    bench.server.tell("web")
    listed = list(bench.pods.pods["app=web"])
    made = NOW + round(at * SECOND)
    more = range(len(listed), bench.server.scales["web"].replicas)
    listed += [PodFacts(f"web-{number}", "Pending", created=made) for number in more]
    bench.pods.pods["app=web"] = listed


async def begin(bench: Bench, *, learned: bool, option: bool = True) -> None:
    """Scale from 10 to 20 pods for 200 jobs."""
    jobs(bench, 100)
    bench.put(autoscaler(option=option), replicas=10)
    await bench.step()
    if learned:
        (following,) = bench.pods.followings
        following.started(MINUTE)
    await bench.step(1)
    jobs(bench, 200)
    await bench.step(1)
    make_pods(bench, 2)


async def test_the_ledger_tells_for_how_long_pods_are_pending(bench: Bench) -> None:
    await begin(bench, learned=True)

    for second in range(1, 31):
        jobs(bench, 200 + 10 * second)
        await bench.step(1)

    assert bench.server.writes == [("web", 20)]
    step = next(each for each in bench.last().trace if each.name == "pending")
    assert (step.facts["pods"], step.facts["exact"]) == (10, 50)
    assert step.facts["credit"] == pytest.approx(300_000, rel=0.05)


async def test_the_next_leader_has_the_credit(bench: Bench) -> None:
    """The pods of the first raise are Ready, and their backlog is still there."""
    await begin(bench, learned=True)
    for second in range(1, 61):
        jobs(bench, 200 + 10 * second)
        await bench.step(1)
        make_pods(bench, 2 + second)
    bench.pods.pods["app=web"] = pods(bench.server.scales["web"].replicas)
    await bench.step(1)
    _, status, changes = bench.server.statuses[-1]
    credited = bench.server.credited
    writes = len(bench.server.writes)
    (credit,) = credited
    assert credit.credit.milli > 500_000
    former = bench.controller.find(KEY)
    assert former is not None
    bench.close()

    bench.start()
    bench.owned.inherit({"uid-1": former.target.ledger})
    found = msgspec.structs.replace(autoscaler(), status=full_status(status, changes, credited=credited))
    bench.put(found)
    await bench.step(1)
    await bench.step(1)

    assert len(bench.server.writes) == writes, "800 jobs would ask for 80 pods"
    assert bench.server.scales["web"].replicas < 30


async def test_a_raise_that_is_withheld_is_in_the_journal_once(bench: Bench) -> None:
    await begin(bench, learned=True)
    entries = len(bench.journal.of(KEY))
    assert _covered(bench) == 0

    for second in range(1, 11):
        jobs(bench, 200 + 10 * second)
        await bench.step(1)

    (entry,) = bench.journal.of(KEY)[entries:]
    assert (entry.outcome, entry.current, entry.replicas) == ("none", 20, 20)
    assert any(step.name == "pending" for step in entry.steps)
    assert _covered(bench) == 10
    jobs(bench, 200)
    await bench.step(1)
    assert _covered(bench) == 0


def _covered(bench: Bench) -> float | None:
    labels = {"kind": "FastPathAutoscaler", "namespace": "default", "name": "web"}
    name = "fastpath_autoscaler_pending_capacity_replicas"
    return bench.monitoring.registry.get_sample_value(name, labels)
