"""The demo's world, stepped by hand."""

import errno

import aiohttp
import pytest

from adapter.errors import RunError
from fastpath_sandbox.apiserver import kinds
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.store import JSON
from fastpath_sandbox.demo.world import FAST, LIMITS, NAMESPACE, NATIVE, World
from fastpath_sandbox.prometheus.series import Exporter
from scripts.generate import crd, crd_schedules
from tests.support.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1000.0)


def activate(cluster: Cluster) -> None:
    condition = {"type": "ScalingActive", "status": "True"}
    cluster.patch("FastPathAutoscaler", FAST, {"status": {"conditions": [condition]}}, NAMESPACE)


async def go(world: World, clock: FakeClock, seconds: float) -> None:
    for _ in range(round(seconds * 2)):
        clock.advance(0.5)
        world.step(clock.wall())


async def test_the_load_steps_once_the_scaler_is_there(clock: FakeClock) -> None:
    cluster = Cluster(now=clock.wall)
    world = World(cluster, clock.wall, lambda: 0.5)
    await go(world, clock, 30)
    assert world.steps == []
    activate(cluster)

    await go(world, clock, 3)

    (step,) = world.steps
    assert step.after > 2 * step.before
    assert world.needed(clock.wall()) > LIMITS[0]
    assert world.reaction(FAST, step) is None
    clock.advance(0.5)
    cluster.scale("Deployment", FAST, 6, NAMESPACE, manager="fastpath")
    assert world.reaction(FAST, step) == pytest.approx(clock.wall() - step.time)
    assert world.reaction(NATIVE, step) is None

    await go(world, clock, 50)
    assert world.needed(clock.wall()) == LIMITS[0]
    assert len(world.steps) == 1, "only steps upwards are told"
    await go(world, clock, 60)
    assert len(world.steps) == 2


async def test_pods_share_the_load_and_show_it_at_their_addresses(clock: FakeClock) -> None:
    async with Cluster(now=clock.wall) as cluster:
        world = World(cluster, clock.wall, lambda: 0.5)
        async with world.listening(clock.wall), aiohttp.ClientSession() as session:
            await go(world, clock, 4)
            port = world.rules.partition("port: ")[2].partition("}")[0]

            async def shown() -> dict[str, float]:
                found = {}
                for pod in cluster.list("Pod", NAMESPACE):
                    if pod["metadata"]["labels"]["app"] == FAST:
                        async with session.get(f"http://{pod['status']['podIP']}:{port}/metrics") as response:
                            found[pod["metadata"]["name"]] = float((await response.text()).rpartition(" ")[2])
                return found

            two = await shown()
            assert len(two) == 2
            assert sum(two.values()) == pytest.approx(world.load(clock.wall()))
            slow = world.slow.named("requests_in_flight")
            assert len(slow) == 4, "Prometheus scrapes the pods of both"

            for _ in range(30):  # pods come and go more often than there are addresses
                for count in (6, 2):
                    cluster.scale("Deployment", FAST, count, NAMESPACE, manager="fastpath")
                    await go(world, clock, 2.5)
            assert world.replicas(FAST) == (2, 2)
            assert sum((await shown()).values()) == pytest.approx(world.load(clock.wall()))
            assert len(world.slow.named("requests_in_flight")) == 4


@pytest.mark.parametrize(
    ("sandbox", "manifest"),
    [(kinds.FASTPATH_AUTOSCALERS, crd.definition()), (kinds.FASTPATH_SCHEDULES, crd_schedules.definition())],
    ids=["autoscalers", "schedules"],
)
def test_the_kinds_are_those_that_are_shipped(sandbox: JSON, manifest: JSON) -> None:
    (shipped,) = kinds.kinds_of_definition(manifest)
    (shown,) = kinds.kinds_of_definition(sandbox)
    for field in (
        "group",
        "version",
        "plural",
        "kind",
        "namespaced",
        "short_names",
        "subresources",
        "generation",
    ):
        assert getattr(shown, field) == getattr(shipped, field), field


async def test_no_address_to_be_had(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(Cluster(now=clock.wall), clock.wall, lambda: 0.5)

    async def refuse(_: Exporter) -> Exporter:
        raise OSError(errno.EADDRNOTAVAIL, "cannot assign requested address")

    monkeypatch.setattr(Exporter, "__aenter__", refuse)
    with pytest.raises(
        RunError, match=r"need loopback addresses, and 127\.83\.0\.1 is not available \(Linux has all"
    ):
        async with world.listening(clock.wall):
            pass
