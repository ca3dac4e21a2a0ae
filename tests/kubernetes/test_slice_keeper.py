"""Scalers that share slices: never two that write for one, and none without an owner for long.

The keeper, the elector and the view are the real ones, each scaler in a process of its own; `support.slices`
has the API servers, the networks and the time between them.
"""

import contextlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.model.autoscaling import slices
from tests.support.slices import NAME, World

HEALED = 12.0
"""Seconds after the last fault in which a late write may land."""

SETTLED = 32.0
"""Seconds from then on until all slices are owned: a watch is silent for 10 before it is given up, the
reflector pauses for 4, a member that is gone has 15 and another second is for reads and writes.
"""


@contextlib.contextmanager
def world_of(seed: int = 0) -> Iterator[World]:
    world = World(seed)
    try:
        yield world
    finally:
        world.close()


# --- histories ----------------------------------------------------------------------------------------------

_INDEX = st.integers(0, 39)
_SECONDS = st.floats(0, 40)
_FAULTS = st.one_of(
    st.tuples(st.just("join")),
    st.tuples(st.just("leave"), _INDEX),
    st.tuples(st.just("kill"), _INDEX),
    st.tuples(st.just("freeze"), _INDEX, _SECONDS),
    st.tuples(st.just("mode"), _INDEX, _SECONDS, st.sampled_from(["cut", "deaf", "slow", "late", "error"])),
    st.tuples(st.just("stall"), _INDEX, _SECONDS),
    st.tuples(st.just("lag"), _INDEX, _SECONDS, st.floats(0, 5)),
    st.tuples(st.just("end watches"), _INDEX),
    st.tuples(st.just("compact")),
    st.tuples(st.just("jump"), _INDEX, st.floats(-100, 100)),
    st.tuples(st.just("delete slice"), st.integers(0, slices.COUNT - 1)),
    st.tuples(st.just("delete member"), _INDEX),
    st.tuples(st.just("annotate"), st.integers(0, slices.COUNT - 1)),
    st.tuples(st.just("unlabel"), st.integers(0, slices.COUNT - 1)),
)
_HISTORIES = st.lists(st.tuples(st.sampled_from([0.0, 0.01, 0.1, 1.0, 5.0, 16.0]), _FAULTS), max_size=12)


def befall(world: World, fault: str, *details: object) -> None:  # noqa: C901, PLR0912 - a case for each fault
    """Let one thing happen."""
    first = details[0] if details else 0
    assert isinstance(first, int)
    alive = world.alive
    slice_name = slices.name_of(NAME, first % slices.COUNT)
    process = alive[first % len(alive)]
    match fault, details[1:]:
        case "join", _:
            if len(alive) < 8:
                world.join().rate = world.dice.uniform(0.98, 1.02)
        case "leave", _:
            if len(alive) > 1:
                process.leave()
        case "kill", _:
            if len(alive) > 1:
                process.kill()
        case "freeze", (float(seconds),):
            process.freeze(seconds)
        case "mode", (float(seconds), str(mode)):
            process.mode = mode
            world.after(seconds, lambda: setattr(process, "mode", "good"))
        case "stall", (float(seconds),):
            process.stalled = True
            world.after(seconds, lambda: setattr(process, "stalled", False))
        case "lag", (float(seconds), float(lag)):
            usual, process.lag = process.lag, lambda: lag
            world.after(seconds, lambda: setattr(process, "lag", usual))
            process.cut_watches()
        case "end watches", _:
            process.cut_watches()
        case "compact", _:
            world.compact()
        case "jump", (float(seconds),):
            process.shift += seconds
        case "delete slice", _:
            world.delete(slice_name)
        case "delete member", _:
            world.delete(process.lease)
        case "annotate", _:
            world.annotate(slice_name)
        case "unlabel", _:
            world.label(slice_name, {})


def live_through(seed: int, members: int, history: list[tuple[float, tuple[object, ...]]]) -> None:
    with world_of(seed) as world:
        for _ in range(members):
            world.join().rate = world.dice.uniform(0.98, 1.02)
            world.run(world.dice.choice((0.0, 0.1, 1.0)))
        for pause, fault in history:
            befall(world, *fault)  # type: ignore[arg-type]  # the name of a fault is first
            world.run(pause)
        for process in world.alive:
            process.heal()
        world.run(HEALED)
        took = world.run_until(world.is_fair, SETTLED)
        assert took < SETTLED, f"{world.shares()} after {took} s"
        begun = len(world.begun)
        world.run(5)
        assert len(world.begun) == begun, "slices go on moving"
        assert world.is_fair()
    assert [process.error for process in world.processes if process.error is not None] == []


@pytest.mark.timeout(120)
@given(st.integers(0, 1 << 20), st.integers(1, 5), _HISTORIES)
def test_two_never_own_a_slice_and_none_is_free_for_long(
    seed: int, members: int, history: list[tuple[float, tuple[object, ...]]]
) -> None:
    live_through(seed, members, history)
