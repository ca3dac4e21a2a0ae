"""A defect in one autoscaler is counted and logged, stops only its own writes, and nothing else."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from adapter.autoscaler.controller.state import AutoscalerState
from adapter.autoscaler.decide.observation import ExternalReading
from adapter.autoscaler.decide.sync import Event
from adapter.autoscaler.interfaces import Key
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
