"""`fastpath serve --scaler` beside the native controller: boosted HPAs react at once, without a reversal.

The native controller is the stand-in, once a second instead of every fifteen; it sees metrics three of its
periods late, so that each raise comes long before it knows why. That beside the same controller a booster
without a handshake loses shows `test_boost_harness`. An audit of the stored objects judges every write
(`tests.support.scalewrites`).
"""

import asyncio
import contextlib
import json
import random
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from adapter.autoscaler.decide import boost
from adapter.autoscaler.decide.memory import FOREIGN_AUTOSCALER
from adapter.model.autoscaling.floor import Demotion
from adapter.model.timestamps import span_of
from tests.support import boosting
from tests.support.boosting import (
    CLOCK,
    LIMITS,
    METRICS,
    NAMESPACE,
    UNIT,
    Document,
    Workload,
    World,
    until_none,
)
from tests.support.nativechain import ROOT, Fastpath, Front, controlling, serving
from tests.support.owners import are_shared, owner_of
from tests.support.processor import limited
from tests.support.scalewrites import BOOSTER, NATIVE
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

WAIT = 40.0
DETECTED = 60.0
LAG = 3
QUEUE = "external-average"
"""The kind of metric by which the native controller reverses the most: a total, independent of the pods."""


class Scene(NamedTuple):
    """A world with Fastpath and the native controller at work."""

    world: World
    fastpath: Fastpath
    front: Front


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with boosting.running() as made:
        yield made


@contextlib.asynccontextmanager
async def boosted(directory: Path, world: World, *, elsewhere: bool = False) -> AsyncIterator[Scene]:
    """Run both until the block ends.

    With `elsewhere` the metrics but floors come from a server that stays when Fastpath goes.
    """
    async with contextlib.AsyncExitStack() as stack:
        fastpath = await stack.enter_async_context(serving(world, directory, "--scaler", "--local-address="))
        others = []
        if elsewhere:
            (directory / "other").mkdir()
            others = [await stack.enter_async_context(serving(world, directory / "other", pod="other"))]
        front = await stack.enter_async_context(Front(world, [fastpath], others=others, lag=LAG))
        await stack.enter_async_context(controlling(world, front, directory))
        yield Scene(world, fastpath, front)


async def settled(scene: Scene, names: Iterable[str] = ()) -> None:
    """Return once autoscalers are active, floors are answered, and answers have their full delay."""
    wanted = list(names) or list(scene.world.workloads)
    await happens(lambda: all(scene.world.is_active(name) for name in wanted))
    asked = [name for name in wanted if scene.world.workloads[name].way]
    await happens(
        lambda: all(scene.front.floors[name] and scene.front.floors[name][-1][1] == 200 for name in asked)
    )
    await happens(lambda: scene.front.is_late)


def is_caught_up(world: World) -> bool:
    """Tell whether the late values that the controller reads were all taken after the last write."""
    return CLOCK.wall() - max(write.time for write in world.audit.writes) > 2 * LAG


async def happens(condition: Callable[[], object], seconds: float = WAIT) -> None:
    await until(condition, seconds)


def told(world: World, name: str, reason: str) -> list[str]:
    return [each["message"] for each in world.events(name) if each["reason"] == reason]


def check(scene: Scene) -> None:
    """Check the invariants: no reversal, no raise before its floor, no denied floor, no lowered count."""
    audit = scene.world.audit
    assert audit.counted == []
    assert audit.unpublished == []
    assert scene.front.stale == []
    assert [write for write in audit.writes if write.by == BOOSTER and write.after <= write.before] == []


# --- the boost ---------------------------------------------------------------------------------------------


async def test_twenty_boosted_autoscalers(tmp_path: Path, world: World) -> None:
    """Of all kinds of metrics, under loads that step, spike and saw; ten of the same kinds and loads are left
    to the controller alone.
    """
    fleet = boosting.fleet(20)
    alone = {each.name.replace("web", "alone"): each.name for each in fleet[:10]}
    world.add(fleet)
    world.add(boosting.fleet(10, boosted=False, prefix="alone"))
    async with boosted(tmp_path, world) as scene:
        await settled(scene)
        assert {world.replicas(name) for name in world.workloads} == {LIMITS[0]}

        start = world.begin()
        # sawtooth's second tooth falls after 8 s; then what was raised is held, and lowered by the controller
        await asyncio.sleep(10)
        await until_none(
            lambda: [world.audit.of(name) for name in world.workloads if not world.is_right(name)], WAIT
        )
        await until_none(lambda: [each.name for each in fleet if world.floor(each.name)], WAIT)
        check(scene)

        jumping = boosting.jumping(fleet)
        raised, first = world.audit.raised_first(jumping, start)
        assert first == raised, "what is raised here is raised before the controller has written anything"
        assert len(raised) > len(jumping) / 2
        assert not any(world.audit.raises(name) for name in alone)
        for name, twin in alone.items():
            assert abs(world.replicas(twin) / world.replicas(name) - 1) <= 0.1, (twin, name)

        # the controller alone, from where both have come to, changes nothing
        await happens(lambda: is_caught_up(world) and all(world.is_right(name) for name in world.workloads))
        for each in fleet:
            world.annotate(each.name, mode=None, hold=None)
            world.remove_handshake(each.name)
        left = CLOCK.wall()
        await asyncio.sleep(LAG + 1)
        assert [write for each in fleet for write in world.audit.of(each.name, since=left)] == []


async def test_at_rest_and_where_little_may_be_done(tmp_path: Path) -> None:
    """At rest nothing is other than without: metrics that say 18 bring 20 to 18, and a rollout that doubles
    the pods leaves 20 at 20.

    Both controllers together reach at most twice a policy. The native one alone scales objects that are
    advised or have a wrong handshake.
    """
    limits = {"maxReplicas": 40, "behavior": boosting.BEHAVIOR}
    resting = [
        Workload(f"{kind}{suffix}", kind, boosting.step(20 * UNIT, 17.9 * UNIT), way, limits, replicas=20)
        for kind in ("pods", QUEUE)
        for suffix, way in (("", "external"), ("-alone", ""))
    ]
    policy = {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 10}]}
    limited = Workload(
        "limited", QUEUE, boosting.step(high=12 * UNIT), spec={"behavior": {"scaleUp": policy}}
    )
    others = [Workload("advised", QUEUE, boosting.step(), way=""), Workload("wrong", QUEUE, boosting.step())]
    metrics = [*METRICS[QUEUE]("wrong"), boosting.handshake("other", "external")]
    async with boosting.running(startup=3.0) as world:
        world.add([*resting, limited, *others])
        world.annotate("advised", mode="advise")
        world.cluster.patch("HorizontalPodAutoscaler", "wrong", {"spec": {"metrics": metrics}}, NAMESPACE)
        async with boosted(tmp_path, world) as scene:
            await settled(scene, [each.name for each in (*resting, limited, others[0])])
            await happens(
                lambda: any("autoscaler: wrong" in text for text in told(world, "wrong", boost.NOT_BOOSTED))
            )
            await happens(lambda: scene.front.floors["other"])
            for each in resting:
                change = {"spec": {"template": {"metadata": {"labels": {"app": each.name, "version": "2"}}}}}
                world.cluster.patch("Deployment", each.name, change, NAMESPACE)
            await asyncio.sleep(LAG + 1)
            assert world.audit.writes == []

            start = world.begin()
            await happens(lambda: world.audit.raises("limited"))
            await happens(lambda: world.replicas("advised") == world.replicas("wrong") == 6)
            await happens(lambda: told(world, "advised", boost.ADVICE))
            await asyncio.sleep(max(0.0, start + 9 - CLOCK.wall()))
            assert sum(write.after - write.before for write in world.audit.raises("limited")) <= 2
            assert world.replicas("limited") <= LIMITS[0] + 2 * 2

            await happens(lambda: all(world.replicas(each.name) == 18 for each in resting))
            alone = [each.name for each in (*resting, *others)]
            assert {write.by for name in alone for write in world.audit.of(name)} == {NATIVE}
            answers = {
                said
                for name in ("pods", QUEUE)
                for _, status, said in scene.front.floors[name]
                if status == 200
            }
            assert answers == {"0"}
            assert {status for _, status, _ in scene.front.floors["other"]} == {404}, (
                "there is no such autoscaler"
            )
            sent = [each for each in world.cluster.requests if each.query.get("fieldManager") != NATIVE]
            wrote = [each for each in sent if each.method != "GET" and each.name == "advised"]
            assert [each for each in wrote if not each.resource.startswith("events")] == []
            (advice,) = told(world, "advised", boost.ADVICE)
            assert advice.startswith("recommends 6 replicas")
            (kind,) = {each["type"] for each in world.events("advised") if each["reason"] == boost.ADVICE}
            assert kind == "Normal"
            check(scene)


# --- leaving it --------------------------------------------------------------------------------------------


async def test_an_hpa_that_leaves_at_any_moment_is_plain(tmp_path: Path, world: World) -> None:
    """Before the load jumps, before the raise, while its floor is held: the floor stays 0 at once."""
    dice = random.Random(20)
    ways = [(way, second) for way in ("annotation", "metric") for second in range(4)]
    leaving = {f"{way}-{second}": second + dice.uniform(-0.5, 0.5) for way, second in ways}
    world.add(Workload(name, QUEUE, boosting.spike(width=4.5)) for name in leaving)
    for name in leaving:
        world.annotate(name, hold="60s")
    async with boosted(tmp_path, world) as scene:
        await settled(scene)
        first = CLOCK.wall() + 0.6
        for name, moment in sorted(leaving.items(), key=lambda each: each[1]):
            if moment > 0 and world.began is None:
                await asyncio.sleep(first - CLOCK.wall())
                world.begin()
            await asyncio.sleep(max(0.0, first + moment - CLOCK.wall()))
            if name.startswith("metric"):
                world.remove_handshake(name)
            else:
                world.annotate(name, mode=None)
        await until_none(lambda: [name for name in leaving if world.floor(name)], 20.0)
        assert any(world.audit.raises(name) for name in leaving), "some have left a floor"
        await happens(lambda: all(world.replicas(name) == LIMITS[0] for name in leaving))

        again = world.begin()
        asked = {name: len(scene.front.floors[name]) for name in leaving}
        await happens(lambda: all(world.replicas(name) == 6 for name in leaving))
        assert {write.by for name in leaving for write in world.audit.of(name, since=again)} == {NATIVE}
        later = {name: scene.front.floors[name][asked[name] :] for name in leaving}
        assert {each[1:] for name in leaving for each in later[name]} == {(200, "0")}
        assert all(name.startswith("annotation") for name in leaving if later[name]), (
            "no query reads the others"
        )
        assert [
            write for write in world.audit.writes if write.by == BOOSTER and write.after <= write.before
        ] == []


async def test_while_fastpath_is_stopped(tmp_path: Path, world: World) -> None:
    """Autoscalers grow by their own metrics and cannot shrink, until Fastpath is back or its metric is taken
    out.
    """
    names = ["stays", "leaves"]
    world.add(Workload(name, QUEUE, boosting.step()) for name in names)
    async with boosted(tmp_path, world, elsewhere=True) as scene:
        await settled(scene)
        await scene.fastpath.end()
        world.begin()
        await happens(lambda: all(world.replicas(name) == 6 for name in names))
        assert {write.by for write in world.audit.writes} == {NATIVE}
        for name in names:
            world.workloads[name].load = lambda _: boosting.LOW
        await happens(lambda: not any(world.is_active(name) for name in names))
        shown = world.hpa("leaves")
        manifest, _ = await asyncio.gather(unboosted(shown), asyncio.sleep(boosting.STABILIZATION + 2))
        for name in names:
            conditions = {each["type"]: each for each in world.hpa(name)["status"]["conditions"]}
            assert conditions["ScalingActive"]["reason"] == "FailedGetExternalMetric"
            assert world.replicas(name) == 6

        world.cluster.update(manifest)
        await happens(lambda: world.replicas("leaves") == LIMITS[0])
        assert world.replicas("stays") == 6
        await scene.fastpath.start()
        await happens(lambda: world.replicas("stays") == LIMITS[0])
        check(scene)


async def unboosted(hpa: Document) -> Document:
    """Return an autoscaler as `fastpath boost --remove` leaves it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "adapter", "boost", "-", "--remove"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    manifest = {key: value for key, value in hpa.items() if key != "status"}
    del manifest["metadata"]["resourceVersion"]
    text, _ = await process.communicate(json.dumps(manifest).encode())
    assert process.returncode == 0
    found: Document = yaml.safe_load(text)
    assert "fastpath_replicas" not in json.dumps(found)
    assert "fastpath.io/mode" not in found["metadata"]["annotations"], "the hold is the user's own"
    return found


# --- conflicts ---------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def resetting(world: World, name: str, count: int, every: float, manager: str) -> AsyncIterator[None]:
    """Set the replicas of a Deployment again and again until the block ends."""

    async def reset() -> None:
        while True:
            if world.replicas(name) != count:
                world.cluster.patch(
                    "Deployment", name, {"spec": {"replicas": count}}, NAMESPACE, manager=manager
                )
            await asyncio.sleep(every)

    task = asyncio.create_task(reset(), name=manager)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_conflicts_are_named_and_left_alone(tmp_path: Path, world: World) -> None:
    """Four kinds at once: loops that reset replicas, kubectl, a second autoscaler, and KEDA's own HPA."""
    loops = {"argocd-controller": 1.0, "kustomize-controller": 0.2}
    world.add(Workload(name, QUEUE, boosting.step()) for name in (*loops, "insists", "shared"))
    world.annotate("insists", hold="30s")
    world.add([owned := Workload("owned", QUEUE, boosting.step())], autoscaled=False)
    world.cluster.create(of_keda(owned))
    second = Workload("second", QUEUE, boosting.step(), way="").autoscaler()
    second["spec"]["scaleTargetRef"]["name"] = "shared"
    second["spec"]["metrics"] = METRICS[QUEUE]("shared")
    async with boosted(tmp_path, world) as scene:
        await settled(scene)
        world.cluster.create(second)
        await happens(lambda: any("second" in text for text in texts(world, "shared")), DETECTED)
        await happens(lambda: not world.is_active("shared"))
        await happens(lambda: any("scaledobject" in text.lower() for text in texts(world, "owned")), DETECTED)
        world.begin()
        async with asyncio.TaskGroup() as group:
            for manager, every in loops.items():
                group.create_task(loop_is_left_alone(world, manager, every))
            group.create_task(human_is_left_alone(world, "insists"))
            await happens(lambda: world.replicas("owned") == 6)
        assert {write.by for write in world.audit.of("owned")} == {NATIVE}
        assert {said for _, status, said in scene.front.floors["owned"] if status == 200} == {"0"}
        assert world.audit.raises("shared") == []
        assert scene.front.stale == []

        world.annotate("insists", hold="20s")  # a change of the object lifts the demotion
        await happens(lambda: not demotions(world, "insists"), 5.0)
        assert all(demotions(world, name) for name in loops)


async def loop_is_left_alone(world: World, manager: str, every: float) -> None:
    """A loop on the target of its own name."""
    async with resetting(world, manager, LIMITS[0], every, manager):
        await happens(lambda: told(world, manager, boost.DEMOTED), DETECTED)
        (text,) = told(world, manager, boost.DEMOTED)
        assert manager in text
        await happens(lambda: demotions(world, manager) and not world.floor(manager))
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
        async with limited(DETECTED):
            # the native controller, which reads the floor, may put it right before anybody has seen it
            while not told(world, name, reason):
                if world.replicas(name) >= 6:
                    world.cluster.scale("Deployment", name, 3, NAMESPACE, manager="kubectl")
                await asyncio.sleep(0.2)
        assert all("kubectl" in text for text in told(world, name, reason))
    await happens(lambda: demotions(world, name) and not world.floor(name))
    await is_raised_no_more(world, name)


async def is_raised_no_more(world: World, name: str) -> None:
    """Check that a target was raised again after the first reversal at most, and not after the second."""
    raised = len(world.audit.raises(name))
    assert raised <= 2
    await asyncio.sleep(4)
    assert len(world.audit.raises(name)) == raised


def demotions(world: World, name: str) -> list[Demotion]:
    return [
        each.demoted
        for each in world.audit.entries.values()
        if each.name == name and each.demoted is not None
    ]


def of_keda(workload: Workload) -> Document:
    """Return the autoscaler of a workload as KEDA makes it."""
    hpa = workload.autoscaler()
    owner = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "name": workload.name,
        "uid": "of-keda",
    }
    labels = {"app.kubernetes.io/managed-by": "keda-operator", "scaledobject.keda.sh/name": workload.name}
    hpa["metadata"] |= {"labels": labels, "ownerReferences": [owner | {"controller": True}]}
    return hpa


def texts(world: World, name: str) -> list[str]:
    return [
        each["message"]
        for each in world.events(name)
        if each["reason"] in {boost.NOT_BOOSTED, boost.REVERSED, boost.DEMOTED, FOREIGN_AUTOSCALER}
    ]


# --- failovers ---------------------------------------------------------------------------------------------

_ELECTION = (
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=500ms",
)
_ROUNDS = 2


async def test_leaders_come_and_go_while_floors_are_held(tmp_path: Path, world: World) -> None:
    """Two processes; with each spike the one that decides is killed or ended, and every watch is cut.

    No floor is denied meanwhile.
    """
    fleet = [Workload(f"web-{number}", QUEUE, boosting.spike(width=3.0)) for number in range(4)]
    world.add(fleet)
    for each in fleet:
        world.annotate(each.name, hold="5s")
    async with contextlib.AsyncExitStack() as stack:
        pods = []
        for number in range(2):
            (tmp_path / str(number)).mkdir()
            arguments = ("--scaler", "--local-address=", *_ELECTION)
            running = serving(world, tmp_path / str(number), *arguments, pod=f"fastpath-{number}")
            pods.append(await stack.enter_async_context(running))
        front = await stack.enter_async_context(Front(world, pods, lag=LAG))
        await stack.enter_async_context(controlling(world, front, tmp_path))
        scene = Scene(world, pods[0], front)
        await settled(scene)
        await happens(lambda: are_shared(world.cluster, 2))
        for number in range(_ROUNDS):
            start = world.begin()
            # mypy sees no defaults
            await happens(lambda start=start: all(world.audit.raises(each.name, start) for each in fleet))  # type: ignore[misc]
            leader = next(each for each in pods if each.pod == owner_of(world.cluster, NAMESPACE))
            world.cluster.cut_watches()
            await leader.end(signal.SIGTERM if number % 2 else signal.SIGKILL)
            # mypy sees no defaults
            await happens(lambda leader=leader: owner_of(world.cluster, NAMESPACE) not in {leader.pod, ""})  # type: ignore[misc]
            async with asyncio.TaskGroup() as group:
                group.create_task(leader.start())
                await happens(lambda: not any(world.floor(each.name) for each in fleet))
                await happens(lambda: all(world.replicas(each.name) == LIMITS[0] for each in fleet))
        check(scene)
        assert any(
            said not in {"0", ""}
            for name in front.floors
            for _, status, said in front.floors[name]
            if status == 200
        )
