"""Writing a decision: wait for the slot, observe, decide, PUT; after a conflict read the scale and repeat."""

import asyncio
import itertools
from collections.abc import Callable

import pytest

from adapter.autoscaler.controller.reconcile import ATTEMPTS
from adapter.autoscaler.interfaces import Key
from adapter.errors import KubernetesError, NotLeadingError
from adapter.kubernetes.cache.scale_targets import ScaleTarget
from adapter.kubernetes.transport import RESET
from tests.support.controller import QUEUE, Bench, fpa

KEY = Key("default", "web")
CONFLICT = KubernetesError(409, "Conflict", "the object has been modified")
LATER = KubernetesError(429, "TooManyRequests", "later")
CUT = KubernetesError(0, RESET, "cut")


class Writes:
    """The calls of one write, in order; `fail` and `fail_reads` are what the next ones raise."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.calls: list[str] = []
        self.fail: list[KubernetesError] = []
        self.fail_reads: list[KubernetesError] = []
        self.acquired: Callable[[], None] = lambda: None
        self.read: Callable[[], None] = lambda: None
        server = bench.server
        self._acquire, self._put, self._get = server.acquire, server.put_scale, server.get_scale
        server.acquire = self.acquire  # type: ignore[method-assign]
        server.put_scale = self.put_scale  # type: ignore[method-assign]
        server.get_scale = self.get_scale  # type: ignore[method-assign]

    async def acquire(self, target: ScaleTarget) -> None:
        self.calls.append("slot")
        await self._acquire(target)
        self.acquired()

    async def put_scale(self, target: ScaleTarget, replicas: int) -> str:
        self.calls.append(f"put {replicas}")
        if self.fail:
            raise self.fail.pop(0)
        return await self._put(target, replicas)

    async def get_scale(self, target: ScaleTarget) -> ScaleTarget:
        self.calls.append("get")
        if self.fail_reads:
            raise self.fail_reads.pop(0)
        self.read()
        return await self._get(target)


@pytest.fixture
def writes(bench: Bench) -> Writes:
    bench.want(7)
    return Writes(bench)


async def write(bench: Bench) -> None:
    """Decide a target of 4, and let its write end."""
    bench.put(fpa(QUEUE), replicas=4)
    await bench.step()
    for _ in range(5 * ATTEMPTS):
        await asyncio.sleep(0)


async def test_the_count_decided_at_the_write_slot_is_written(bench: Bench, writes: Writes) -> None:
    def later() -> None:
        bench.clock.seconds += 1
        bench.want(5)

    writes.acquired = later
    await write(bench)
    assert writes.calls == ["slot", "put 5"]


async def test_a_change_that_the_caches_show_by_then_is_decided_from(bench: Bench, writes: Writes) -> None:
    writes.acquired = lambda: bench.server.set("web", 6)
    await write(bench)
    assert writes.calls == ["slot", "put 7"], "onto the newest version, without a conflict"
    assert bench.server.writes == [("web", 7)]
    assert bench.journal.of(KEY)[-1].change is not None


async def test_nothing_is_written_if_nothing_is_wanted_by_then(bench: Bench, writes: Writes) -> None:
    writes.acquired = lambda: bench.server.set("web", 7)
    await write(bench)
    assert writes.calls == ["slot"]
    assert bench.server.given_back == 1, "another write has the slot"
    assert bench.last().error == ""


async def test_nothing_is_written_if_the_target_is_gone_by_then(bench: Bench, writes: Writes) -> None:
    writes.acquired = bench.server.cached.clear
    await write(bench)
    assert writes.calls == ["slot"]


async def test_after_a_conflict_it_is_decided_again_from_what_is_there(bench: Bench, writes: Writes) -> None:
    writes.acquired = lambda: bench.server.set("web", 6, told=False) if len(writes.calls) == 1 else None
    await write(bench)
    assert writes.calls == ["slot", "put 7", "get", "slot", "put 7"]
    assert bench.server.writes == [("web", 7)]


async def test_another_object_of_the_name_is_decided_from_the_beginning(bench: Bench, writes: Writes) -> None:
    writes.acquired = lambda: bench.server.set("web", 4, uid="another", told=False)
    await write(bench)
    assert writes.calls == ["slot", "put 7", "get"]
    assert bench.server.writes == []


@pytest.mark.parametrize(
    ("error", "on_read", "said"),
    [
        *((KubernetesError(code, "", "no"), None, "no") for code in (403, 404, 500, 503)),
        (CONFLICT, KubernetesError(403, "Forbidden", "forbidden to look"), "forbidden to look"),
        (CUT, KubernetesError(0, "Unreachable", "gone"), "cut"),
    ],
)
async def test_what_ends_the_write(
    bench: Bench, writes: Writes, error: KubernetesError, on_read: KubernetesError | None, said: str
) -> None:
    """Any error that is no conflict, and a conflict or a lost response after which the scale is not known."""
    writes.fail = [error]
    writes.fail_reads = [] if on_read is None else [on_read]
    await write(bench)
    assert writes.calls == ["slot", "put 7", *(["get"] if on_read else [])]
    assert bench.last().error.endswith(said)


async def test_it_is_given_up_after_so_many_attempts(bench: Bench, writes: Writes) -> None:
    writes.fail = [CONFLICT] * 100
    await write(bench)
    assert writes.calls.count("put 7") == ATTEMPTS == 6
    assert writes.calls.count("get") == ATTEMPTS - 1
    assert "modified" in bench.last().error


async def test_an_overloaded_server_is_asked_again(bench: Bench, writes: Writes) -> None:
    writes.fail = [LATER, LATER]
    await write(bench)
    assert writes.calls == ["slot", "put 7", "get", "slot", "put 7", "get", "slot", "put 7"]
    assert bench.server.writes == [("web", 7)]


async def test_a_count_that_was_applied_without_a_response_is_ours(bench: Bench, writes: Writes) -> None:
    writes.fail = [CUT]
    writes.read = lambda: bench.server.set("web", 7, told=False)
    await write(bench)
    assert writes.calls == ["slot", "put 7", "get", "slot"]
    (change,) = bench.state.memory.history.ups
    assert change.change == 3
    assert bench.state.memory.conflicts.ours == (4, 7)


async def test_the_same_count_after_a_conflict_is_another_clients(bench: Bench, writes: Writes) -> None:
    writes.fail = [CONFLICT]
    writes.read = lambda: bench.server.set("web", 7, told=False)
    await write(bench)
    assert bench.state.memory.conflicts.ours is None


async def test_without_a_version_the_scale_is_read_first(bench: Bench, writes: Writes) -> None:
    bench.server.set("web", 4)
    bench.server.cached["web"] = bench.server.scales["web"]._replace(resource_version="")
    bench.want(7)
    bench.pods.pods["app=web"] = []
    bench.controller.put(fpa(QUEUE))
    await bench.step()
    assert writes.calls == ["get", "slot", "put 7"]
    assert bench.server.writes == [("web", 7)]


@pytest.mark.parametrize("shut", range(2))
async def test_a_shut_fence_ends_the_write_without_a_trace(bench: Bench, writes: Writes, shut: int) -> None:
    number = itertools.count()

    def fence() -> None:
        if next(number) == shut:
            raise NotLeadingError("shut")

    writes.fail = [CONFLICT] * shut
    writes.acquired = fence
    await write(bench)
    assert writes.calls.count("put 7") == shut
    assert (bench.server.writes, bench.server.events) == ([], [])
    assert (bench.state.turn.failures, bench.state.turn.is_writing) == (0, False)
