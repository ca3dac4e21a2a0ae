"""The scaler put together: what the beginning of a term takes from the other work of the process."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from adapter.compose.providers import Runtime
from adapter.compose.scaler import LISTED_SECONDS, Scaler
from adapter.config.options import Options
from adapter.kubernetes.cache.autoscalers import ReadAutoscaler
from adapter.kubernetes.cache.reflector import Reflector, ReflectorContext
from adapter.kubernetes.cache.store import STEP
from adapter.kubernetes.codec import Unreadable
from adapter.kubernetes.discovery import CatalogueSource
from adapter.kubernetes.ownership.lease import LeaseRecord
from adapter.kubernetes.server_clock import ServerClock
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler, FastPathAutoscalerSpec
from adapter.model.autoscaling.hpa import CrossVersionObjectReference
from adapter.model.objects.api_objects import Metadata
from adapter.model.objects.resources import BUILTIN
from adapter.provider.relist import Relister
from adapter.rules.registry import EMPTY
from adapter.scrape.cache import ScrapedValues
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.support.clock import FakeClock
from tests.support.waiting import other_work, running, until

COUNT = 500


def stored(number: int, namespace: str) -> ReadAutoscaler:
    name = f"web-{number}"
    target = CrossVersionObjectReference("Deployment", name, "apps/v1")
    spec = FastPathAutoscalerSpec(scale_target_ref=target, max_replicas=3)
    return ReadAutoscaler(
        namespace, name, "1", FastPathAutoscaler(metadata=Metadata(name, namespace), spec=spec)
    )


def runtime(clock: FakeClock, monitoring: Monitoring) -> Runtime:
    """Return what a scaler takes from its process: caches that never come in, and no connections."""
    nothing: Any = None
    scraped = ScrapedValues(
        nothing, lambda: EMPTY, clock, monitoring, nothing, per_second=1.0, random=lambda: 0.0
    )
    problems = ProblemLog(monitoring, clock)
    return Runtime(
        client=nothing,
        prometheus=nothing,
        watching=ReflectorContext(nothing, clock, monitoring, problems, lambda: 0.0),
        cache=nothing,
        resources=cast("CatalogueSource", SimpleNamespace(current=lambda: BUILTIN, known=BUILTIN)),
        relister=cast("Relister", SimpleNamespace(subscribe=lambda changed: None, attempted=asyncio.Event())),
        source_problems=nothing,
        freshness=nothing,
        scraped=scraped,
        clock=clock,
        server_clock=ServerClock(clock, problems),
        monitoring=monitoring,
        problems=problems,
        namespace="fastpath",
    )


class Forecaster:
    """A worker without a job."""

    is_closed = False

    async def close(self) -> None:
        self.is_closed = True


class UnsyncedScaler:
    """A scaler that has autoscalers, on caches that never come in."""

    def __init__(self, *namespaces: str, elects: bool = False) -> None:
        nothing: Any = None
        self.clock, self.monitoring = FakeClock(), Monitoring()
        options = Options(leader_elect=elects)
        own = runtime(self.clock, self.monitoring)
        self.problems = own.problems
        self.scaler = Scaler(options, own, nothing, lambda _: nothing, random=lambda: 0.5)
        self.autoscalers = self.scaler.caches.autoscalers
        self.autoscalers._announced = True  # as after the first list
        for namespace in namespaces:
            for number in range(COUNT):
                self.autoscalers.put(stored(number, namespace))

    @property
    def reflectors(self) -> list[Reflector[Any]]:
        """Those whose first list a scaler waits for."""
        known = self.scaler.caches
        return [known.pods, known.rivals.hpas, self.autoscalers, known.schedules.cache]

    def at_work(self) -> float:
        return self.monitoring.registry.get_sample_value("fastpath_scaler_autoscalers") or 0.0


@pytest.fixture
def bench() -> UnsyncedScaler:
    return UnsyncedScaler("default")


@contextlib.asynccontextmanager
async def leading(bench: UnsyncedScaler) -> AsyncIterator[None]:
    """Let the scaler lead."""
    caches, lead = bench.scaler.tasks()
    for cache in caches.values():
        cache.close()
    async with running(lead):
        for _ in range(5):  # until the task of the slice has put its first autoscalers
            if not bench.at_work():
                await asyncio.sleep(0)
        yield


async def test_a_term_begins_in_steps_and_ends_with_nothing(bench: UnsyncedScaler) -> None:
    forecaster: Any = Forecaster()
    bench.scaler._forecaster = forecaster
    async with other_work() as turns, leading(bench):
        assert bench.at_work() == STEP
        await until(lambda: bench.at_work() == COUNT)

        assert turns.count >= COUNT // STEP
        assert (await bench.scaler.show(("default", "web-0"), ""))[0] == 200
        assert (await bench.scaler.show((), ""))[0] == 200
        assert not forecaster.is_closed
    assert (bench.at_work(), (await bench.scaler.show(("default", "web-0"), ""))[0]) == (0, 503)
    assert forecaster.is_closed


async def test_what_goes_while_a_term_begins_does_not_come_back(bench: UnsyncedScaler) -> None:
    async with leading(bench):
        bench.autoscalers.remove("default", f"web-{COUNT - 1}")
        for _ in range(COUNT // STEP + 1):
            await asyncio.sleep(0)

        assert bench.at_work() == COUNT - 1


def test_scalers_are_counted_by_their_leases() -> None:
    bench = UnsyncedScaler("default", elects=True)
    assert bench.scaler._keeper is not None
    view = bench.scaler._keeper.view
    for name in ("a", "b"):
        view.learn(name, LeaseRecord(name, 15))
    assert bench.scaler.count_scalers() == 2
    view.learn("a", LeaseRecord("", 1))
    assert bench.scaler.count_scalers() == 1


def test_one_scaler_without_leases_is_alone(bench: UnsyncedScaler) -> None:
    assert bench.scaler.count_scalers() == 1


def test_an_hpa_that_cannot_be_read_is_reported(bench: UnsyncedScaler) -> None:
    metadata = {"name": "web", "namespace": "default", "uid": "uid-web", "resourceVersion": "1"}
    raw = msgspec.json.encode({"metadata": metadata, "spec": {"scaleTargetRef": {"kind": "Deployment"}}})
    bench.scaler.caches.rivals.hpas.lose(Unreadable("default", "web", "1", raw, "ValueError: no"))
    assert bench.problems.active() == {("annotation", "default/web"): "cannot be read: ValueError: no"}


async def test_a_kind_that_was_never_listed_fails_readiness(bench: UnsyncedScaler) -> None:
    kinds = "pods, horizontalpodautoscalers, fastpathautoscalers, fastpathschedules"
    waiting = f"first list of {kinds} is not complete"
    assert bench.scaler.find_unsynced() == waiting
    assert bench.scaler.find_unlisted() is None
    bench.clock.advance(LISTED_SECONDS)
    assert bench.scaler.find_unlisted() == waiting
    for reflector in bench.reflectors:
        reflector.synced = True
    assert bench.scaler.find_unlisted() is None


@pytest.mark.looptime
async def test_a_scaler_is_ready_to_join_once_it_can_decide(bench: UnsyncedScaler) -> None:
    events: list[Callable[[], None]] = [
        bench.scaler._runtime.relister.attempted.set,
        *(functools.partial(setattr, reflector, "synced", True) for reflector in bench.reflectors),
    ]
    waiting = asyncio.create_task(bench.scaler._wait_ready())
    for happen in events:
        await asyncio.sleep(1)
        assert not waiting.done()
        happen()
    await waiting


async def test_an_autoscaler_that_raises_keeps_no_other_from_a_term(bench: UnsyncedScaler) -> None:
    registry = bench.scaler.caches.registry
    put = registry.put

    def failing(autoscaler: Any) -> None:
        if autoscaler.metadata.name == "web-7":
            raise ZeroDivisionError
        put(autoscaler)

    registry.put = failing  # type: ignore[method-assign]
    async with leading(bench):
        await until(lambda: bench.at_work() == COUNT - 1)


def test_a_scaler_that_may_not_list_leases_is_not_ready() -> None:
    """So an update without the new Role stops before the last pod that scales has ended."""
    bench = UnsyncedScaler("default", elects=True)
    for reflector in bench.reflectors:
        reflector.synced = True
    assert bench.scaler.find_unsynced() == "first list of leases is not complete"
    bench.clock.advance(LISTED_SECONDS)
    assert bench.scaler.find_unlisted() is None  # metrics are served all the same
