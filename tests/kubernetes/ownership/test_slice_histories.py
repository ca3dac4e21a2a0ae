"""Histories of scalers that share slices, with the real keeper: `support.histories` says what may happen.

Most have few slices and scalers, because what goes wrong between many goes wrong between few, and a short
history takes a fiftieth of a second. Of a thousand, twenty have more of both, and one has all slices and up
to forty scalers.

A usual run has the sixth part of a thousand, without that one. `HISTORIES` is how many thousands to live
through, each with a seed of its own, from `SEED` on. A hundred take half an hour of one processor:

    HISTORIES=100 scripts/test tests/kubernetes/ownership/test_slice_histories.py

The other tests break the protocol, one rule at a time, and expect that histories find it.
"""

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from adapter.kubernetes.ownership import scaler_leases
from adapter.kubernetes.ownership.lease_view import LeaseView, WatchedLease
from adapter.kubernetes.ownership.scaler_leases import ScalerLeases
from adapter.kubernetes.ownership.term import LeaseFence, Term
from adapter.model.autoscaling import slices
from tests.support import histories
from tests.support.histories import History

SCALES = {"few": (6, 3, 5), "more": (16, 6, 8), "all": (64, 36, 40)}
"""How many slices there are, how many scalers at first, and how many at once."""

SHARES = {"few": 979, "more": 20, "all": 1}
"""How many histories of a thousand have them."""


HISTORIES = int(os.environ.get("HISTORIES", "0"))
SEED = int(os.environ.get("SEED", "0"))


class HistorySummary:
    """What is known after some histories."""

    def __init__(self) -> None:
        self.count = 0
        self.slack = float("inf")
        """How many seconds before its bound the latest slice had an owner again."""
        self.longest: dict[str, float] = {}
        """For how long slices were free after a fault of each kind."""

    def add(self, history: histories.History) -> None:
        self.slack = min(self.slack, history.slack)
        for cause, seconds in history.longest.items():
            self.longest[cause] = max(self.longest.get(cause, 0.0), seconds)


def live(
    outcome: HistorySummary,
    scale: str,
    count: int,
    first: int,
    phases: Sequence[Phase] = tuple(Phase),
    kind: type[History] = History,
) -> None:
    """Live through so many histories."""
    number, members, most = SCALES[scale]

    @seed(first)
    @settings(
        max_examples=count,
        phases=phases,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, 1 << 20), st.integers(1, members), st.just(most), histories.STEPS)
    def live_through(dice: int, members: int, most: int, steps: Sequence[histories.Step]) -> None:
        outcome.count += 1
        outcome.add(histories.live_through(dice, members, most, steps, kind))

    with of_slices(number):
        live_through()


@contextlib.contextmanager
def of_slices(number: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "COUNT", number)
        patch.setattr(scaler_leases, "AT_ONCE", number // 4)
        yield


def test_a_lease_that_is_made_and_deleted_is_not_taken_at_once_by_one_that_has_missed_it_for_long() -> None:
    steps: Sequence[histories.Step] = [
        (0.0, ("join",)),
        (1.1, ("delete_slice", 0)),
        (1.0, ("join",)),
        (12.0, ("join",)),
        ("slice", ("delete_slice", 0)),
        (0.0, ("leave", 0)),
    ]
    for dice in range(20):
        with of_slices(6):
            histories.live_through(dice, 3, 5, steps)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", range(SEED, SEED + max(1, HISTORIES)))
def test_two_never_own_a_slice_and_none_is_free_for_long(
    number: int, record_property: Callable[[str, object], None]
) -> None:
    outcome = HistorySummary()
    for scale, share in SHARES.items():
        if count := share if HISTORIES else share // 6:
            live(outcome, scale, count, number)
    for name, value in vars(outcome).items():
        record_property(name, value)
    assert outcome.slack >= 0


# --- a protocol that is broken ------------------------------------------------------------------------------


def takes_without_a_look_at_its_owner(patch: pytest.MonkeyPatch) -> None:
    async def is_free(_leases: ScalerLeases, _seen: WatchedLease) -> bool:
        return True

    patch.setattr(ScalerLeases, "is_free", is_free)


def lets_a_term_go_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Term, "end", lambda _term: None)


def has_a_fence_as_long_as_its_lease(patch: pytest.MonkeyPatch) -> None:
    init = LeaseFence.__init__

    def init_long(fence: LeaseFence, clock: Any, sent: Any, *, hold: float, tolerance: float) -> None:
        init(fence, clock, sent, hold=hold + 2 * tolerance, tolerance=tolerance)

    patch.setattr(LeaseFence, "__init__", init_long)


def ignores_that_its_clocks_diverge(patch: pytest.MonkeyPatch) -> None:
    init = LeaseFence.__init__

    def init_tolerant(fence: LeaseFence, clock: Any, sent: Any, *, hold: float, tolerance: float) -> None:
        init(fence, clock, sent, hold=hold, tolerance=tolerance + 1e9)

    patch.setattr(LeaseFence, "__init__", init_tolerant)


def takes_what_is_missing_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ScalerLeases, "_lasts", lambda *_: True)


def takes_what_was_made_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaseView, "find_former", lambda _view, lease: lease.record.holder)


def writes_with_an_old_view(patch: pytest.MonkeyPatch) -> None:
    init = Term.__init__
    patch.setattr(Term, "__init__", lambda term, number, owner, _sight: init(term, number, owner))


def clears_no_member(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ScalerLeases, "clear_late", lambda *_: math.inf)


def releases_nothing_for_others(patch: pytest.MonkeyPatch) -> None:
    plan = slices.plan
    patch.setattr(slices, "plan", lambda *details: plan(*details)._replace(release=[]))


class OwnersAlone(History):
    """Judges no free slices and no shares: members that come and go for no reason spoil these first."""

    def verify(self) -> None:
        pass

    def settle(self) -> None:
        self.world.run(60)


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "breaks",
    [
        takes_without_a_look_at_its_owner,
        lets_a_term_go_on,
        has_a_fence_as_long_as_its_lease,
        ignores_that_its_clocks_diverge,
        takes_what_is_missing_at_once,
        takes_what_was_made_at_once,
        writes_with_an_old_view,
    ],
)
def test_histories_find_two_owners(
    breaks: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(monkeypatch)
    with pytest.raises(AssertionError, match=r"slice \d+ has"):
        live(HistorySummary(), "few", 3000, 7, [Phase.generate], OwnersAlone)


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.parametrize("breaks", [clears_no_member, releases_nothing_for_others])
def test_histories_find_slices_that_stay_free_and_uneven_shares(
    breaks: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(monkeypatch)
    with pytest.raises(AssertionError, match=r"is free since|\[\d, \d|\{\d"):
        live(HistorySummary(), "few", 3000, 7, phases=[Phase.generate])
