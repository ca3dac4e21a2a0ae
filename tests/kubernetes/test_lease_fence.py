"""The fence: open while the lease is surely held, shut before anybody else could hold it."""

import math

import pytest

from adapter.errors import NotLeadingError
from adapter.kubernetes.lease import LeaseFence, Unfenced, read_clocks
from tests.support.clock import FakeClock


def build(clock: FakeClock) -> LeaseFence:
    return LeaseFence(clock, read_clocks(clock), hold=10.0, tolerance=2.5)


def refusal(fence: LeaseFence) -> str:
    with pytest.raises(NotLeadingError) as caught:
        fence.check()
    return str(caught.value)


def test_a_write_may_take_what_is_left_of_the_renew_deadline() -> None:
    clock = FakeClock()
    fence = build(clock)
    assert fence.check() == 10.0
    clock.advance(9.5)
    assert fence.check() == 0.5
    clock.advance(0.5)
    assert refusal(fence) == "the lease was not renewed in time"
    assert fence.left() == 0


def test_a_renewal_counts_from_when_it_was_sent() -> None:
    clock = FakeClock()
    fence = build(clock)
    clock.advance(4)
    sent = read_clocks(clock)
    clock.advance(3)
    fence.renewed(sent)
    assert fence.check() == 7.0


def test_a_renewal_that_is_confirmed_late_takes_nothing_back() -> None:
    clock = FakeClock()
    fence = build(clock)
    early = read_clocks(clock)
    clock.advance(4)
    fence.renewed(read_clocks(clock))
    fence.renewed(early)
    assert fence.check() == 10.0


def test_an_expired_fence_opens_when_a_renewal_was_sent_in_time() -> None:
    clock = FakeClock()
    fence = build(clock)
    clock.advance(9)
    sent = read_clocks(clock)
    clock.advance(4)
    assert fence.left() == 0
    fence.renewed(sent)
    assert fence.check() == 6.0


@pytest.mark.parametrize("jump", [2.6, -2.6, 86_400.0, -86_400.0])
def test_a_jump_of_the_clock_shuts_until_the_next_renewal(jump: float) -> None:
    clock = FakeClock()
    fence = build(clock)
    clock.advance(1)
    clock.set_wall(clock.wall() + jump)
    assert refusal(fence) == "the clock has jumped since the lease was last renewed"
    assert fence.due == 9.0
    fence.renewed(read_clocks(clock))
    assert fence.check() == 10.0


def test_a_slewed_clock_is_no_jump() -> None:
    clock = FakeClock()
    fence = build(clock)
    clock.set_wall(clock.wall() + 2.4)
    assert fence.check() == 10.0


def test_a_machine_that_slept_has_not_kept_its_lease() -> None:
    """Its monotonic clock stood still, the time of day did not."""
    clock = FakeClock()
    fence = build(clock)
    clock.set_wall(clock.wall() + 3600)
    assert fence.left() == 0


def test_a_closed_fence_never_opens_again() -> None:
    clock = FakeClock()
    fence = build(clock)
    fence.close()
    clock.advance(1)
    fence.renewed(read_clocks(clock))
    assert fence.closed
    assert refusal(fence) == "the lease is no longer held"


def test_without_an_election_nothing_is_fenced() -> None:
    assert Unfenced().check() == math.inf
