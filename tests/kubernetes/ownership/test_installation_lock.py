"""Two installations in a cluster: one owns slices, and no answer about its Lease stops all scaling.

Keeper, membership, view and lock are the real ones, see `support.slices`. A slice has one number for both
installations, so the world fails where two could write for it. Slices are few: what is decided here is
decided for all of them at once.
"""

import contextlib
import itertools
import random
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.kubernetes.ownership import installation_lock, scaler_leases
from adapter.kubernetes.ownership.installation_lock import HOLD, STANDS_BACK, UNREAD
from adapter.model.autoscaling import slices
from adapter.telemetry.metrics import Monitoring
from tests.support.slices import HANGS, NAME, Process, SliceWorld

OTHER = "other"
LOCK = installation_lock.NAME
MONITORING = Monitoring()

LOOK = HOLD / 12
"""Seconds between two looks at the Lease."""

AT_ONCE = 3.0
"""Seconds in which a scaler that waits for nothing owns its slices."""

HANDED_OVER = LOOK + AT_ONCE
"""Seconds after the last member of an installation has left, in which another one scales."""

TAKEN = HOLD + 2 * LOOK + AT_ONCE
"""Seconds after the last member was killed, in which another one scales: it looks before and after."""

LAST_ATTEMPT = 6.0
"""Seconds that an attempt without an answer takes, and the pause."""

LONG = 3 * HOLD

MOVES = 1.5
"""Seconds for which a slice may have no owner while it moves between members of an installation."""

REFUSED = {"forbidden": 403, "invalid": 422}
UNANSWERED = {"unauthorized": 401, "conflict": 409, "too many": 429, "unavailable": 503, "hang": HANGS}
VERBS: list[set[str]] = [{"get"}, {"write"}, {"get", "write"}]


@contextlib.contextmanager
def world_of(seed: int = 1, count: int = 4) -> Iterator[SliceWorld]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "COUNT", count)
        patch.setattr(scaler_leases, "AT_ONCE", count)
        with contextlib.closing(SliceWorld(seed, MONITORING)) as world:
            yield world


@pytest.fixture
def world() -> Iterator[SliceWorld]:
    with world_of() as world:
        yield world


def owners(world: SliceWorld) -> set[str]:
    """Return the installations that own slices."""
    working = itertools.chain.from_iterable(world.writers.values())
    return {process.installation for process, _ in working if process.is_running}


def owned(world: SliceWorld, installation: str) -> int:
    return sum(len(process.owned) for process in world.processes if process.installation == installation)


def scales(world: SliceWorld, installation: str) -> Callable[[], bool]:
    """Return whether an installation owns all slices."""
    return lambda: owned(world, installation) == slices.COUNT


def install_two(world: SliceWorld, members: int = 1) -> tuple[list[Process], list[Process]]:
    """Let one installation scale, and another stand back."""
    first = [world.join() for _ in range(members)]
    assert world.run_until(scales(world, NAME)) < AT_ONCE
    second = [world.join(installation=OTHER) for _ in range(members)]
    world.run(LOOK)
    assert owners(world) == {NAME}
    return first, second


def active(process: Process) -> set[str]:
    return {fault for fault, _ in process.problems.active()}


def refuse(world: SliceWorld, verbs: set[str], status: int) -> None:
    world.lock_faults = dict.fromkeys(verbs, status)


# --- who scales ---------------------------------------------------------------------------------------------


def test_the_second_installation_stands_back_and_says_so(
    world: SliceWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    (first,), (second,) = install_two(world)
    assert world.holder(LOCK) == f"default/{NAME}"
    assert world.longest_gap(LONG) < MOVES
    assert (owners(world), active(first), active(second)) == ({NAME}, set(), {STANDS_BACK})
    text = second.problems.active()[STANDS_BACK, ""]
    assert text == (
        f"the Lease kube-system/fastpath-scaler is held by default/{NAME}: default/{OTHER} stands back"
    )
    said = [
        record for record in caplog.records if record.msg in {"another installation scales", "fault ended"}
    ]
    assert [record.levelname for record in said] == ["WARNING"]
    first.leave()
    assert world.run_until(scales(world, OTHER)) < HANDED_OVER
    assert (world.holder(LOCK), active(second)) == (f"default/{OTHER}", set())
    assert caplog.messages.count("fault ended") == 1


def test_a_new_pod_of_the_holder_waits_for_nothing_and_renews_at_once() -> None:
    """Seconds before the other installation takes the Lease."""
    with world_of() as world:
        (first,), _ = install_two(world)
        first.kill()
        took = world.run_until(scales(world, OTHER))
    with world_of() as world:
        (first,), _ = install_two(world)
        first.kill()
        world.run(took - 4)
        world.join()
        world.edit(first.lease, holderIdentity="")
        assert world.run_until(scales(world, NAME)) < AT_ONCE
        world.run(LONG)
        assert owners(world) == {NAME}


def test_of_installations_that_begin_together_one_scales() -> None:
    for seed in range(3):
        with world_of(seed) as world:
            for installation in (NAME, OTHER) * 3:
                world.join(installation=installation)
            world.run_until(lambda world=world: scales(world, NAME)() or scales(world, OTHER)())  # type: ignore[misc]
            assert world.now < 1000 + AT_ONCE + LOOK
            assert world.longest_gap(LONG) < MOVES
            assert len(owners(world)) == 1


# --- what the API server answers ----------------------------------------------------------------------------


@pytest.mark.parametrize("verbs", VERBS, ids=["reads", "writes", "all"])
def test_a_fault_at_the_start(verbs: set[str], caplog: pytest.LogCaptureFixture) -> None:
    """One that is refused scales at once, and one without an answer after a minute."""
    for name, status in (REFUSED | UNANSWERED).items():
        with world_of() as world:
            refuse(world, verbs, status)
            process = world.join()
            took = world.run_until(scales(world, NAME), HOLD + 3 * LAST_ATTEMPT)
            if name in REFUSED:
                assert took < AT_ONCE, name
            else:
                assert HOLD < took < HOLD + LAST_ATTEMPT * 2, name
            assert active(process) == {UNREAD}, name
            assert world.longest_gap(LONG) == 0, name
            world.lock_faults = {}
            assert world.longest_gap(2 * LAST_ATTEMPT) == 0, name
            assert (world.holder(LOCK), active(process)) == (f"default/{NAME}", set()), name
    assert "the Lease of the installation that scales could not be read or written" in caplog.text


@pytest.mark.parametrize("verbs", VERBS, ids=["reads", "writes", "all"])
def test_a_fault_costs_the_holder_nothing(verbs: set[str]) -> None:
    """Until its membership ends; then it has to look, as at the start."""
    for name, status in (REFUSED | UNANSWERED | {"not found": 404}).items():
        with world_of() as world:
            first = [world.join(), world.join()]
            world.run_until(world.is_fair)
            refuse(world, verbs, status)
            assert world.longest_gap(LONG) == 0, name
            for process in first:
                process.mode = "cut"
            world.run(20)
            for process in first:
                process.heal()
            took = world.run_until(scales(world, NAME), HOLD + 40)
            is_silent = (
                (name in UNANSWERED or verbs == {"get"}) and name not in REFUSED and verbs != {"write"}
            )
            limit = HOLD + 2 * LAST_ATTEMPT if is_silent else 12
            assert took < limit, name


@pytest.mark.parametrize("verbs", VERBS, ids=["reads", "writes", "all"])
def test_one_that_stands_back_goes_on_with_that_for_a_minute(verbs: set[str]) -> None:
    for name, status in (REFUSED | UNANSWERED).items():
        with world_of() as world:
            install_two(world)
            refuse(world, verbs, status)
            assert world.longest_gap(HOLD - 2 * LOOK) == 0, name
            assert owners(world) == {NAME}, name
            world.check = lambda: None  # type: ignore[method-assign]  # two that write are no outage
            world.run_until(scales(world, OTHER), 3 * HOLD)
            assert owners(world) == {NAME, OTHER}, name
            world.lock_faults = {}
            assert world.run_until(lambda world=world: len(owners(world)) == 1) < HANDED_OVER + 5, name  # type: ignore[misc]
            assert world.longest_gap(LONG) == 0, name


# --- at random ----------------------------------------------------------------------------------------------

MODES = ("cut", "deaf", "late", "error", "slow", "flaky")

RECOVERED = TAKEN + 15.0 + 4 * LAST_ATTEMPT
"""Seconds after the last fault in which one installation owns all slices: 15 are the duration of a Lease."""


@settings(max_examples=6, deadline=None, derandomize=True)
@given(st.integers(0, 1 << 20))
@pytest.mark.timeout(120)
def test_never_two_installations_and_never_none_for_long(seed: int) -> None:
    dice = random.Random(seed)
    with world_of(seed) as world:

        def add(installation: str) -> None:
            process = world.join(installation=installation)
            process.rate = dice.uniform(0.99, 1.01)
            process.shift = dice.uniform(-1e6, 1e6)

        for installation in (NAME, OTHER) * 3:
            add(installation)
            world.run(dice.choice((0.0, 0.1, 5.0)))
        for _ in range(dice.randint(1, 12)):
            happen(world, dice, add)
            world.run(dice.choice((0.1, 1.0, 10.0, 40.0, 80.0)))
        world.run(30)
        for process in world.alive:
            process.heal()
        for installation in {NAME, OTHER} - {process.installation for process in world.alive}:
            add(installation)
        assert world.run_until(lambda: not world.free, 2 * RECOVERED) < RECOVERED
        world.run(20)
        assert world.longest_gap(LONG) < MOVES
        assert len(owners(world)) == 1


def happen(world: SliceWorld, dice: random.Random, add: Callable[[str], None]) -> None:
    """Let something happen to one member, or to all of an installation."""
    fault, installation = dice.choice(("mode", "freeze", "kill", "leave", "add")), dice.choice((NAME, OTHER))
    members = [process for process in world.alive if process.installation == installation]
    if fault == "add" or not members:
        add(installation)
        return
    mode, seconds = dice.choice(MODES), dice.uniform(1, 30 if dice.random() < 0.7 else 90)
    for process in members if dice.random() < 0.5 else members[:1]:
        if fault == "mode":
            process.mode = mode
            world.after(seconds if mode in {"cut", "error"} else min(seconds, 30), process.heal)
        elif fault == "freeze":
            process.freeze(seconds)
        elif fault == "kill":
            process.kill()
        else:
            process.leave()
