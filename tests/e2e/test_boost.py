"""`fastpath serve --scaler` beside the HPA controller: boosted HPAs react at once, without a reversal.

The controller looks once a second, and sees totals three askings late, so that each raise comes long before
it knows why. The naive booster, a writer without a handshake, loses beside the same controller. An audit of
the stored objects judges every write (`tests.world.scalewrites`).
"""

import asyncio
import json
import random
import signal
import sys

import pytest
import yaml

from adapter.autoscaler.decide.guards import boost
from adapter.autoscaler.decide.memory import FOREIGN_AUTOSCALER
from adapter.model.autoscaling.floor import Demotion
from adapter.model.timestamps import span_of
from tests.e2e.conftest import WITH_WORKLOADS
from tests.support.processor import limited
from tests.support.waiting import running
from tests.world import naive, workloads
from tests.world.clusters import Document
from tests.world.owners import are_shared, owner_of
from tests.world.processes import ROOT
from tests.world.scalewrites import BOOSTER, NATIVE
from tests.world.workloads import BEHAVIOR, CLOCK, HASTY, LIMITS, LOW, METRICS, UNIT, Workload, spike, step
from tests.world.world import QUEUE, World, until_none

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(300)]
BOTH = pytest.mark.parametrize("fronted", WITH_WORKLOADS, indirect=True)
SANDBOX = pytest.mark.parametrize("fronted", ["sandbox"], indirect=True)
LAG = 3


@BOTH
async def test_boosted_autoscalers_and_the_naive_booster(world: World) -> None:
    """Of all kinds of metrics, under loads that step, spike and saw; five of the same kinds are left
    to the controller alone, and two to the naive booster.
    """
    fleet = workloads.fleet(10)
    alone = workloads.fleet(5, boosted=False, prefix="alone")
    kinds = ("object-average", QUEUE)
    control = {f"{kind}-step": Workload(f"{kind}-step", kind, step(), way="") for kind in kinds}
    if world.is_real:
        for each in fleet + alone:  # without one its controller waits five minutes before it lowers
            each.spec = {"behavior": BEHAVIOR}
    judged = [each.name for each in fleet + alone]
    world.declare([*fleet, *alone, *control.values()])
    await world.serve(lag=LAG)
    await world.settled()
    # while pods start some may seem to carry the load of others, and what was raised for that comes down
    # again
    await world.run(lambda: {world.replicas(name) for name in world.workloads} == {LIMITS[0]})
    await until_none(world.floors)

    boosted = naive.boost(control, world.need, LIMITS[1], world.replicas, world.scale)
    start = world.begin()
    async with running(boosted):
        # sawtooth's second tooth falls after 8 s; then what was raised is held, and lowered by the controller
        await asyncio.sleep(10)
        await world.run(lambda: {each.write.target.name for each in world.naive.counted} == control.keys())
    assert {each.write.by for each in world.naive.counted} == {NATIVE}
    assert world.naive.unpublished, "it publishes nothing"
    await until_none(lambda: [world.audit.of(name) for name in judged if not world.is_right(name)])
    await until_none(world.floors)
    world.check()

    jumping = workloads.jumping(fleet)
    raised, first = world.audit.raised_first(jumping, start)
    assert first == raised, "what is raised here is raised before the controller has written anything"
    assert len(raised) > len(jumping) / 2
    for other, twin in zip(alone, fleet, strict=False):
        assert world.audit.raises(other.name) == []
        assert abs(world.replicas(twin.name) / world.replicas(other.name) - 1) <= 0.1, (twin, other)

    # the controller alone, from where both have come to, changes nothing
    await world.run(lambda: world.is_caught_up() and all(world.is_right(name) for name in judged))
    for each in fleet:
        await world.annotate(each.name, mode=None, hold=None)
        await world.remove_handshake(each.name)
    left = CLOCK.wall()
    await asyncio.sleep(LAG + 3)
    assert [write for each in fleet for write in world.audit.of(each.name, since=left)] == []


@SANDBOX
async def test_at_rest_and_where_little_may_be_done(world: World) -> None:
    """At rest nothing is other than without: metrics that say 18 bring 20 to 18, and a rollout that doubles
    the pods leaves 20 at 20.

    Both controllers together reach at most twice a policy. The native one alone scales objects that are
    advised or have a wrong handshake. The sandbox alone doubles pods, and records all requests.
    """
    limits = {"maxReplicas": 40, "behavior": BEHAVIOR}
    resting = [
        world.hpa(f"{kind}{suffix}", kind, step(20 * UNIT, 17.9 * UNIT), way=way, spec=limits, replicas=20)
        for kind in ("pods", QUEUE)
        for suffix, way in (("", "external"), ("-alone", ""))
    ]
    policy = {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 10}]}
    world.hpa("limited", load=step(high=12 * UNIT), spec={"behavior": {"scaleUp": policy}})
    world.hpa("advised", way="")
    world.hpa("wrong")
    await world.create()
    await world.annotate("advised", mode="advise")
    metrics = [*METRICS[QUEUE]("wrong"), workloads.handshake("other", "external")]
    await world.patch_hpa("wrong", {"spec": {"metrics": metrics}})
    world.startup = 3.0
    await world.serve(lag=LAG)
    floors = world.front.floors
    await world.settled([*(each.name for each in resting), "limited", "advised"])
    await world.run(
        lambda: any("autoscaler: wrong" in text for text in world.told("wrong", boost.NOT_BOOSTED))
    )
    await world.run(lambda: floors["other"])
    for each in resting:
        change = {"spec": {"template": {"metadata": {"labels": {"app": each.name, "version": "2"}}}}}
        world.sandbox.patch("Deployment", each.name, change, world.namespace)
    await asyncio.sleep(LAG + 1)
    assert world.audit.writes == []

    start = world.begin()
    await world.run(lambda: world.audit.raises("limited"))
    await world.run(lambda: world.replicas("advised") == world.replicas("wrong") == 6)
    await world.run(lambda: world.told("advised", boost.ADVICE))
    await asyncio.sleep(max(0.0, start + 9 - CLOCK.wall()))
    within = [write for write in world.audit.of("limited") if write.time < start + 9]
    assert sum(write.after - write.before for write in within if write.by == BOOSTER) <= 2
    assert max(write.after for write in within) <= LIMITS[0] + 2 * 2

    await world.run(lambda: all(world.replicas(each.name) == 18 for each in resting))
    alone = [*(each.name for each in resting), "advised", "wrong"]
    assert {write.by for name in alone for write in world.audit.of(name)} == {NATIVE}
    assert {said for name in ("pods", QUEUE) for _, status, said in floors[name] if status == 200} == {"0"}
    assert {status for _, status, _ in floors["other"]} == {404}, "there is no such autoscaler"
    sent = [each for each in world.sandbox.requests if each.user_agent == "fastpath-adapter"]
    ours = [each for each in sent if each.method != "GET" and each.query.get("fieldManager") != NATIVE]
    assert {each.resource for each in ours if each.name == "advised"} <= {"events"}
    (advice,) = [each for each in world.events("advised") if each["reason"] == boost.ADVICE]
    assert advice["message"].startswith("recommends 6 replicas")
    assert advice["type"] == "Normal"
    world.check()


@BOTH
async def test_an_hpa_that_leaves_at_any_moment_is_plain(world: World) -> None:
    """Before the load jumps, before the raise, while its floor is held: the floor stays 0 at once, and there
    never is another.
    """
    dice = random.Random(20)
    ways = [(way, second) for way in ("annotation", "metric") for second in range(3)]
    leaving = {f"{way}-{second}": second + dice.uniform(-0.5, 0.5) for way, second in ways}
    for name in leaving:
        world.hpa(name, load=spike(width=6.0), hold="60s")
    await world.serve(lag=LAG)
    await world.settled()
    first = CLOCK.wall() + 0.6
    for name, moment in sorted(leaving.items(), key=lambda each: each[1]):
        if moment > 0 and world.began is None:
            await asyncio.sleep(first - CLOCK.wall())
            world.begin()
        await asyncio.sleep(max(0.0, first + moment - CLOCK.wall()))
        if name.startswith("metric"):
            await world.remove_handshake(name)
        else:
            await world.annotate(name, mode=None)
    await until_none(world.floors, 30.0)
    assert any(world.audit.raises(name) for name in leaving), "some have left a floor"
    await world.run(lambda: all(world.replicas(name) == LIMITS[0] for name in leaving))

    for name in leaving:
        world.load(name, step())
    again, floors = world.begin(), world.front.floors
    asked = {name: len(floors[name]) for name in leaving}
    await world.run(lambda: all(world.replicas(name) == 6 for name in leaving))
    assert {write.by for name in leaving for write in world.audit.of(name, since=again)} == {NATIVE}
    later = {name: floors[name][asked[name] :] for name in leaving}
    assert {each[1:] for name in leaving for each in later[name]} == {(200, "0")}
    assert all(name.startswith("annotation") for name in leaving if later[name]), "no query reads the others"
    assert [
        write for write in world.audit.writes if write.by == BOOSTER and write.after <= write.before
    ] == []


@BOTH
async def test_while_fastpath_is_stopped(world: World) -> None:
    """Autoscalers grow by their own metrics and cannot shrink, until Fastpath is back or its metric is taken
    out.
    """
    names = ["stays", "leaves"]
    for name in names:
        world.hpa(name)
    await world.serve(lag=LAG, elsewhere=True)
    await world.settled()
    (fastpath,) = world.processes
    await fastpath.end()
    world.begin()
    await world.run(lambda: all(world.replicas(name) == 6 for name in names))
    assert {write.by for write in world.audit.writes} == {NATIVE}
    for name in names:
        world.load(name, step(LOW, LOW))
    await world.run(lambda: not any(world.is_active(name) for name in names))
    shown = world.autoscaler("leaves")
    manifest, _ = await asyncio.gather(unboosted(shown), asyncio.sleep(workloads.STABILIZATION + 2))
    for name in names:
        conditions = {each["type"]: each for each in world.autoscaler(name)["status"]["conditions"]}
        assert conditions["ScalingActive"]["reason"] == "FailedGetExternalMetric"
        assert world.replicas(name) == 6

    await world.cluster.kubectl("replace", "--validate=false", "-f", "-", stdin=json.dumps(manifest))
    await world.run(lambda: world.replicas("leaves") == LIMITS[0])
    assert world.replicas("stays") == 6
    await fastpath.start()
    await world.run(lambda: world.replicas("stays") == LIMITS[0])
    world.check()


async def unboosted(hpa: Document) -> Document:
    """Return an autoscaler as `fastpath boost --remove` leaves it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "adapter", "boost", "-", "--remove"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    manifest = {key: value for key, value in hpa.items() if key != "status"}
    manifest["metadata"] = {key: value for key, value in hpa["metadata"].items() if key != "resourceVersion"}
    text, _ = await process.communicate(json.dumps(manifest).encode())
    assert process.returncode == 0
    found: Document = yaml.safe_load(text)
    assert "fastpath_replicas" not in json.dumps(found)
    assert "fastpath.io/mode" not in found["metadata"]["annotations"], "the hold is the user's own"
    return found


@BOTH
async def test_conflicts_are_named_and_left_alone(world: World) -> None:
    """Four kinds at once: loops that reset replicas, kubectl, a second autoscaler, and KEDA's own HPA."""
    loops = {"argocd-controller": 1.0, "kustomize-controller": 0.2}
    for name in (*loops, "shared"):
        world.hpa(name)
    world.hpa("insists", hold="30s")
    world.declare([owned := Workload("owned", QUEUE, step())], autoscaled=False)
    await world.create(of_keda(owned, world.namespace))
    second = Workload("second", QUEUE, step(), way="").objects(world.namespace)[-1]
    second["spec"]["scaleTargetRef"]["name"] = "shared"
    second["spec"]["metrics"] = METRICS[QUEUE]("shared")
    await world.serve(lag=LAG)
    await world.settled()
    await world.create(second)
    reasons = (boost.NOT_BOOSTED, boost.REVERSED, boost.DEMOTED, FOREIGN_AUTOSCALER)
    await world.run(lambda: any("second" in text for text in world.told("shared", *reasons)))
    await world.run(lambda: not world.is_active("shared"))
    await world.run(lambda: any("scaledobject" in text.lower() for text in world.told("owned", *reasons)))
    world.begin()
    async with asyncio.TaskGroup() as group:
        for manager, every in loops.items():
            group.create_task(loop_is_left_alone(world, manager, every))
        group.create_task(human_is_left_alone(world, "insists"))
        await world.run(lambda: world.replicas("owned") == 6)
    assert {write.by for write in world.audit.of("owned")} == {NATIVE}
    assert {said for _, status, said in world.front.floors["owned"] if status == 200} == {"0"}
    assert world.audit.raises("shared") == []
    assert world.front.stale == []

    await world.annotate("insists", hold="20s")  # a change of the object lifts the demotion
    await world.run(lambda: not demotions(world, "insists"), 5.0)
    assert all(demotions(world, name) for name in loops)


async def loop_is_left_alone(world: World, manager: str, every: float) -> None:
    """A loop on the target of its own name."""

    async def reset() -> None:
        while True:
            if world.replicas(manager) != LIMITS[0]:
                await world.scale(manager, LIMITS[0], manager)
            await asyncio.sleep(every)

    async with running(reset()):
        await world.run(lambda: world.told(manager, boost.DEMOTED))
        (text,) = world.told(manager, boost.DEMOTED)
        assert manager in text
        await world.run(lambda: demotions(world, manager) and not world.floor(manager))
        (demotion,) = demotions(world, manager)
        assert demotion.by == manager
        assert demotion.until > span_of(CLOCK.wall() + 3000)
        await is_raised_no_more(world, manager)
    assert sum(each.write.target.name == each.write.by == manager for each in world.audit.counted) >= 2


async def human_is_left_alone(world: World, name: str) -> None:
    """Once may be a mistake; a second time is meant.

    (The native controller, which has the metrics, disagrees with both.)
    """
    for reason in (boost.REVERSED, boost.DEMOTED):
        async with limited(60.0):
            # the native controller, which reads the floor, may put it right before anybody has seen it
            while not world.told(name, reason):
                if world.replicas(name) >= 6:
                    where = ("deployment", name, "--replicas=3", "-n", world.namespace)
                    await world.cluster.kubectl("scale", *where)
                await asyncio.sleep(0.2)
        assert all(text.startswith("kubectl scaled the target") for text in world.told(name, reason))
    await world.run(lambda: demotions(world, name) and not world.floor(name))
    await is_raised_no_more(world, name)
    await world.run(lambda: world.replicas(name) >= 6)
    assert world.audit.of(name)[-1].by == NATIVE


async def is_raised_no_more(world: World, name: str) -> None:
    """Check that a target was raised again after the first reversal at most, and not after the second."""
    raised = len(world.audit.raises(name))
    assert raised <= 2
    await asyncio.sleep(4)
    assert len(world.audit.raises(name)) == raised


def demotions(world: World, name: str) -> list[Demotion]:
    uid = world.autoscaler(name)["metadata"]["uid"]
    entry = world.audit.entries.get(uid)
    return [entry.demoted] if entry is not None and entry.demoted is not None else []


def of_keda(workload: Workload, namespace: str) -> Document:
    """Return the autoscaler of a workload as KEDA makes it."""
    hpa = workload.objects(namespace)[-1]
    owner = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "name": workload.name,
        "uid": "of-keda",
    }
    labels = {"app.kubernetes.io/managed-by": "keda-operator", "scaledobject.keda.sh/name": workload.name}
    hpa["metadata"] |= {"labels": labels, "ownerReferences": [owner | {"controller": True}]}
    return hpa


@BOTH
async def test_owners_come_and_go_while_floors_are_held(world: World) -> None:
    """Two processes; with each spike the one that decides is killed or ended. The sandbox alone can cut every
    watch too.

    No floor is denied meanwhile.
    """
    for number in range(4):
        world.hpa(f"web-{number}", load=spike(width=3.0), hold="5s")
    names = list(world.workloads)
    await world.serve(*HASTY, lag=LAG, pods=2)
    await world.settled()
    leases = world.seen["leases"]
    await world.run(lambda: are_shared(leases.values(), 2))
    for by in (signal.SIGKILL, signal.SIGTERM):
        start = world.begin()
        # mypy sees no defaults
        await world.run(lambda start=start: all(world.audit.raises(name, start) for name in names))  # type: ignore[misc]
        owner = owner_of(leases.values(), world.namespace)
        leader = next(each for each in world.processes if each.pod == owner)
        if not world.is_real:
            world.sandbox.cut_watches()
        await leader.end(by)
        # mypy sees no defaults
        await world.run(lambda owner=owner: owner_of(leases.values(), world.namespace) not in {owner, ""})  # type: ignore[misc]
        async with asyncio.TaskGroup() as group:
            group.create_task(leader.start())
            await world.run(lambda: not world.floors())
            await world.run(lambda: all(world.replicas(name) == LIMITS[0] for name in names))
    world.check()
    answers = [each for said in world.front.floors.values() for each in said]
    assert any(said not in {"0", ""} for _, status, said in answers if status == 200)
