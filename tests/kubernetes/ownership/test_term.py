"""How long an owner may write: the fence of its membership, and its term of a slice."""

import math

import pytest

from adapter.errors import NotLeadingError
from adapter.kubernetes.ownership.term import LeaseFence, Term, Unchanged, read_clocks
from tests.support.clock import FakeClock


@pytest.fixture
def fence(clock: FakeClock) -> LeaseFence:
    return LeaseFence(clock, read_clocks(clock), hold=10.0, tolerance=2.5)


def refusal(fence: LeaseFence | Term) -> str:
    with pytest.raises(NotLeadingError) as caught:
        fence.check()
    return str(caught.value)


def test_a_write_may_take_the_rest_of_the_renew_deadline(clock: FakeClock, fence: LeaseFence) -> None:
    assert fence.check() == 10.0
    clock.advance(9.5)
    assert fence.check() == 0.5
    clock.advance(0.5)
    assert refusal(fence) == "the lease was not renewed in time"
    assert fence.left() == 0


def test_a_renewal_that_is_confirmed_late_takes_nothing_back(clock: FakeClock, fence: LeaseFence) -> None:
    early = read_clocks(clock)
    clock.advance(4)
    fence.renewed(read_clocks(clock))
    fence.renewed(early)
    assert fence.check() == 10.0


def test_an_expired_fence_opens_when_a_renewal_was_sent_in_time(clock: FakeClock, fence: LeaseFence) -> None:
    clock.advance(9)
    sent = read_clocks(clock)
    clock.advance(4)
    assert fence.left() == 0
    fence.renewed(sent)
    assert fence.check() == 6.0


@pytest.mark.parametrize("jump", [2.6, -2.6, 86_400.0, -86_400.0])
def test_a_jump_of_the_clock_shuts_until_the_next_renewal(
    clock: FakeClock, fence: LeaseFence, jump: float
) -> None:
    clock.advance(1)
    clock.set_wall(clock.wall() + jump)
    assert refusal(fence) == "the clock has jumped since the lease was last renewed"
    assert fence.due == 9.0
    fence.renewed(read_clocks(clock))
    assert fence.check() == 10.0


def test_a_slewed_clock_is_no_jump(clock: FakeClock, fence: LeaseFence) -> None:
    clock.set_wall(clock.wall() + 2.4)
    assert fence.check() == 10.0


def test_a_closed_fence_never_opens_again(clock: FakeClock, fence: LeaseFence) -> None:
    fence.close()
    clock.advance(1)
    fence.renewed(read_clocks(clock))
    assert fence.closed
    assert refusal(fence) == "the lease is no longer held"


def test_a_term_lasts_as_long_as_the_shorter_of_its_fences(clock: FakeClock, fence: LeaseFence) -> None:
    clock.advance(2)
    sight = LeaseFence(clock, read_clocks(clock), hold=5.0, tolerance=2.5)
    term = Term(7, fence, sight)
    assert (term.number, term.check()) == (7, 5.0)
    sight.renewed(read_clocks(clock))
    clock.advance(4)
    assert term.check() == 1.0
    clock.advance(1)
    assert refusal(term) == "the lease was not renewed in time"


def test_a_term_that_has_ended_never_begins_again(clock: FakeClock, fence: LeaseFence) -> None:
    term = Term(0, fence)
    term.end()
    fence.renewed(read_clocks(clock))
    assert refusal(term) == "the slice belongs to another scaler"


def test_a_term_without_leases_is_open_until_it_ends() -> None:
    term = Term(0)
    assert term.check() == math.inf
    term.end()
    assert refusal(term) == "the slice belongs to another scaler"


def test_what_others_see_lasts_since_it_has_changed(clock: FakeClock) -> None:
    unchanged = Unchanged(clock)
    assert unchanged.see("1") == 0
    clock.advance(4)
    assert unchanged.see("1") == 4
    clock.advance(1)
    assert unchanged.see("2") == 0
    clock.advance(2)
    assert unchanged.see("2") == 2


def test_after_a_time_without_a_look_it_begins_again(clock: FakeClock) -> None:
    unchanged = Unchanged(clock)
    for seen in (0, 5, 10, 0, 5):
        assert unchanged.see("1", gap=5) == seen
        clock.advance(6 if seen == 10 else 5)
