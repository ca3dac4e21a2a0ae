"""A defect in one autoscaler is counted and logged, stops only its own writes, and nothing else."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from adapter.autoscaler.controller.state import AutoscalerState
from adapter.autoscaler.decide.observation import ExternalReading
from adapter.autoscaler.decide.sync import Event
from adapter.autoscaler.interfaces import Key
from adapter.errors import NotLeadingError
from adapter.model.autoscaling import fastpath_autoscaler
from tests.support.controller import QUEUE, Bench, fpa
from tests.support.waiting import until

KEY, OTHER = Key("default", "web"), Key("default", "api")


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    made.sources.readings["queue"] = ExternalReading([7000])
    yield made
    made.close()


def defects(bench: Bench) -> float:
    return bench.monitoring.registry.get_sample_value("fastpath_scaler_unexpected_errors_total") or 0.0


class Broken:
    """A function that raises the first `times` times, and after that does what it did before."""

    def __init__(self, owner: object, name: str, error: BaseException, times: int = 1) -> None:
        self.works = getattr(owner, name)
        self.error = error
        self.left = times
        setattr(owner, name, self)

    def __call__(self, *given: Any, **named: Any) -> Any:
        if self.left:
            self.left -= 1
            raise self.error
        return self.works(*given, **named)


async def test_a_decision_that_ends_in_a_defect_affects_no_other(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.put(fpa(QUEUE), replicas=4)
    await bench.step()
    bench.server.tell("web")
    source = bench.sources.opened[0]
    broken = Broken(bench.rivals, "of", TypeError("'dict' object is not callable"), times=2)
    bench.put(fpa(QUEUE, name="api", uid="uid-2"), replicas=4)
    await bench.step(1)

    assert (defects(bench), broken.left) == (2, 0)
    assert bench.server.writes == [("web", 7)]
    assert [record.message for record in caplog.records] == [
        "unexpected error while deciding an autoscaler"
    ] * 2
    assert all(record.exc_info is not None for record in caplog.records)

    before = source.reads
    await bench.step(1)
    assert bench.server.writes == [("web", 7), ("api", 7)], "both go on by themselves"
    assert source.reads == before + 1
    assert defects(bench) == 2


async def test_the_loop_outlives_defects(bench: Bench) -> None:
    Broken(bench.rivals, "of", ZeroDivisionError())
    task = asyncio.create_task(bench.controller.loop.run())
    bench.put(fpa(QUEUE), replicas=4)
    await until(lambda: defects(bench))
    bench.clock.seconds += 2
    bench.controller.loop.touch(KEY)
    await until(lambda: bench.server.writes)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("broken", "error", "counted"),
    [
        ("put_scale", TypeError("'dict' object is not callable"), 1),
        ("acquire", NotLeadingError("the clock has jumped since the lease was last renewed"), 0),
    ],
    ids=["a defect", "a fence that opens again in the same term"],
)
async def test_a_write_that_ends_in_an_error_is_made_again(
    bench: Bench, broken: str, error: Exception, counted: int
) -> None:
    Broken(bench.server, broken, error)
    bench.put(fpa(QUEUE), replicas=4)
    await bench.step()
    assert (defects(bench), bench.server.writes, bench.server.events) == (counted, [], [])

    await bench.steps(4 if counted else 1)
    assert (defects(bench), bench.server.writes) == (counted, [("web", 7)])


async def test_a_defect_on_deciding_again_writes_nothing(bench: Bench) -> None:
    bench.put(fpa(QUEUE), replicas=4)
    bench.server.set("web", 5, told=False)
    broken = Broken(bench.rivals, "of", ZeroDivisionError(), times=0)
    bench.server.gate = gate = asyncio.Event()
    await bench.step()
    broken.left = 1
    gate.set()
    await bench.step()

    assert (defects(bench), broken.left, bench.server.writes) == (1, 0, [])
    bench.server.tell("web")
    await bench.steps(4)
    assert bench.server.writes == [("web", 7)]


@pytest.mark.parametrize("follows", ["status", "event"])
async def test_a_defect_in_what_follows_a_write_does_not_end_its_autoscaler(
    bench: Bench, follows: str
) -> None:
    Broken(bench.server, follows, TypeError("'dict' object is not callable"))
    bench.put(fpa(QUEUE), replicas=4)
    await bench.step()
    assert (defects(bench), bench.server.writes) == (1, [("web", 7)])

    bench.server.tell("web")
    reads = bench.sources.opened[0].reads
    await bench.steps(3)
    assert bench.sources.opened[0].reads > reads
    assert bench.server.writes == [("web", 7)], "what was written counts"
    assert defects(bench) == 1


async def test_a_defect_in_what_is_done_to_all_is_that_of_one(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.put(fpa(QUEUE, name="api", uid="uid-2"), replicas=4)
    bench.put(fpa(QUEUE), replicas=4)
    await bench.step()
    works, done = AutoscalerState.close, []

    def breaks(state: AutoscalerState, *given: Any) -> Any:
        if state.key == OTHER:
            raise ZeroDivisionError
        done.append(state.key)
        return works(state, *given)

    with monkeypatch.context() as patch:
        patch.setattr(AutoscalerState, "close", breaks)
        bench.close()
    assert done == [KEY]
    assert defects(bench) == 1


async def test_a_defect_in_a_new_spec_leaves_the_old_target_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bench.begin_with(4)
    moved = fpa(QUEUE, scaleTargetRef={"apiVersion": "apps/v1", "kind": "Deployment", "name": "api"})
    with monkeypatch.context() as patch:
        patch.setattr(fastpath_autoscaler, "validate", None)
        with pytest.raises(TypeError):
            bench.put(moved)
    bench.want(9)
    await bench.steps(3)
    assert bench.server.writes == []


async def test_a_defect_in_the_event_of_a_delay_is_that_of_one(bench: Bench) -> None:
    for number, name in enumerate(("api", "web")):
        bench.put(fpa(QUEUE, name=name, uid=f"uid-{number}"), replicas=4)
    Broken(bench.server, "event", ZeroDivisionError())
    for key in (OTHER, KEY, Key("default", "gone")):
        bench.changes.note_event(key, Event("Warning", "MetricsDelayed", ""))
    await bench.step()
    delays = [event for event in bench.server.events if event.reason == "MetricsDelayed"]
    assert len(delays) == 1
    assert defects(bench) == 1
