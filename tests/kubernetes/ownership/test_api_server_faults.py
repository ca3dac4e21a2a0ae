"""What an API server answers while it starts, is overloaded or is away: slices keep owners, or get them back.

Each status is tried for the watch of Leases alone, for all reads, and for all requests; at the start of the
scalers, in the middle, and after a restart of the API server.
"""

import contextlib
import itertools
from collections.abc import Iterator

import pytest

from adapter.telemetry.metrics import Monitoring
from tests.support.slices import HANGS, SliceWorld

STATUSES = {
    "unauthorized": 401,
    "not found": 404,
    "expired": 410,
    "too many": 429,
    "unavailable": 503,
    "too large version": 504,
    "hang": HANGS,
}
WATCHES, READS, ALL = {"watch"}, {"watch", "list"}, {"watch", "list", "get", "write"}

AWAY, AFTER = 3.0, 2.0
"""Seconds for which an API server that restarts answers nothing, and for which it refuses requests then: less
than the renew deadline, without the time between two renewals.
"""

LONG = 14.0
"""Seconds of a fault in which a member that sees no Leases leaves."""

RECOVERED = 4.0
"""Seconds after the last fault within which each slice has an owner, as docs/reference/limits.md says."""

HAND_OVER = 0.5
"""Seconds in which a slice lacks an owner while one that has taken too many hands it over."""

NEW = 40.0
"""Seconds in which a new installation begins that can list Leases, but not watch them."""

MONITORING = Monitoring()


@pytest.fixture
def world() -> Iterator[SliceWorld]:
    world = SliceWorld(5, MONITORING)
    yield world
    world.close()


def refuse(world: SliceWorld, verbs: set[str], status: int) -> None:
    world.faults = dict.fromkeys(verbs, status)
    world.end_watches()


def settle(world: SliceWorld) -> None:
    for _ in range(2):
        world.join()
    world.run_until(world.is_fair)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("verbs", [WATCHES, READS, ALL], ids=["watches", "reads", "all"])
def test_a_fault_at_the_start(verbs: set[str], caplog: pytest.LogCaptureFixture) -> None:
    """The scalers begin when they see. From lists alone they cannot tell that they are the first."""
    for name, status in STATUSES.items():
        with contextlib.closing(SliceWorld(5, MONITORING)) as world:
            refuse(world, verbs, status)
            world.join()
            if verbs != WATCHES:
                world.run(LONG)
                assert world.shares() == [0], name
                world.faults = {}
            assert world.run_until(world.is_fair) < (NEW if verbs == WATCHES else RECOVERED), name
    assert "not by its owner" not in caplog.text, "each Lease was written by its owner"


@pytest.mark.timeout(60)
def test_watches_that_do_not_begin_cost_no_owner(world: SliceWorld, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the reason: the Leases are listed meanwhile. So it is after a restart of the API server."""
    settle(world)
    for (name, status), restarts in itertools.product(STATUSES.items(), (False, True)):
        if restarts:
            refuse(world, ALL, 503)
            assert world.longest_gap(AWAY) == 0, name
        refuse(world, WATCHES, status)
        assert world.longest_gap(LONG) == 0, name
        world.faults = {}
        assert world.longest_gap(RECOVERED) == 0, name
    assert "not by its owner" not in caplog.text


@pytest.mark.timeout(60)
@pytest.mark.parametrize("verbs", [READS, ALL], ids=["reads", "all"])
def test_a_restart_that_is_short_costs_no_owner(verbs: set[str], world: SliceWorld) -> None:
    settle(world)
    for name, status in STATUSES.items():
        refuse(world, ALL, 503)
        assert world.longest_gap(AWAY) == 0, name
        refuse(world, verbs, status)
        assert world.longest_gap(AFTER) == 0, name
        world.faults = {}
        assert world.longest_gap(RECOVERED) == 0, name


@pytest.mark.timeout(60)
@pytest.mark.parametrize("verbs", [READS, ALL], ids=["reads", "all"])
def test_after_a_long_fault_slices_have_owners_in_seconds(verbs: set[str], world: SliceWorld) -> None:
    settle(world)
    for name, status in STATUSES.items():
        refuse(world, verbs, status)
        assert world.longest_gap(LONG) > 0, name
        world.faults = {}
        assert world.run_until(lambda: not world.free) < RECOVERED, name
        assert world.longest_gap(RECOVERED) < HAND_OVER, name
