"""The ledger of start-up times: one start, weighted percentiles, bounds, the stored form."""

import contextlib
import sys
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.model.learned_usage import LearnedUsage
from adapter.model.ready_times import (
    HALVING,
    LEDGER_BYTES,
    LONGEST,
    MOST_PODS,
    MOST_TEXT,
    UNKNOWN,
    LeftOut,
    Outcome,
    Percentiles,
    PodStart,
    PodTimes,
    ReadyLedger,
    decode_ledger,
    encode_ledger,
    measure,
)
from adapter.model.timestamps import SECOND
from tests.support.answers import answers

_SECONDS = st.integers(0, 2 * LONGEST)
_STARTS = st.lists(
    st.tuples(*[st.integers(0, 20_000)] * 4, st.booleans(), st.booleans()).map(
        lambda drawn: PodStart(
            drawn[0], drawn[0] + drawn[1], drawn[0] + drawn[1] + drawn[2], sum(drawn[:4]), drawn[4], drawn[5]
        )
    )
    | st.integers(0, 20_000).map(lambda ready: PodStart(UNKNOWN, UNKNOWN, UNKNOWN, ready)),
    max_size=MOST_PODS + 20,
)


def _times(*seconds: float | None, restarts: int = 0) -> PodTimes:
    created, scheduled, initialized, started, ready = (
        None if each is None else int(each * SECOND) for each in seconds
    )
    return PodTimes(created, scheduled, initialized, started, ready, restarts)


def _ready(seconds: float) -> PodStart:
    return PodStart(UNKNOWN, UNKNOWN, UNKNOWN, int(seconds * 1_000))


def _ledger(*totals: float) -> ReadyLedger:
    ledger = ReadyLedger()
    for each in totals:
        ledger.note(_ready(each))
    return ledger


def _total(*totals: float) -> Percentiles:
    times = _ledger(*totals).times()
    assert times is not None
    return times.total


@pytest.mark.parametrize(("times", "start"), answers("model/ready_times", "starts"))
def test_measures_a_start(times: list[float | None], start: list[Any]) -> None:
    assert measure(_times(*times)) == PodStart(*start)


@pytest.mark.parametrize("times", answers("model/ready_times", "contradictions"))
def test_counts_a_start_whose_times_contradict_each_other(times: list[float | None]) -> None:
    assert measure(_times(*times)) is Outcome.INCOHERENT


def test_counts_a_pod_whose_containers_were_restarted() -> None:
    assert measure(_times(100, 102, 105, 110, 123, restarts=1)) is Outcome.RESTARTED


def test_what_was_seen_on_the_way_is_part_of_the_start() -> None:
    seen = measure(_times(100, 102, 105, 110, 123)._replace(unschedulable=True, pull_failed=True))

    assert seen == PodStart(2_000, 5_000, 10_000, 23_000, unschedulable=True, pull_failed=True)


@given(st.lists(st.none() | _SECONDS, min_size=5, max_size=5))
def test_a_start_is_coherent_whatever_a_pod_says(seconds: list[int | None]) -> None:
    start = measure(_times(*seconds))

    if isinstance(start, PodStart):
        known = [each for each in start[:4] if each != UNKNOWN]
        assert known == sorted(known)
        assert 0 <= known[0] <= known[-1] <= LONGEST * 1_000


# -- percentiles ---------------------------------------------------------------------------------------------


def test_without_a_start_there_are_no_times() -> None:
    assert ReadyLedger().times() is None


@pytest.mark.parametrize(("runs", "p50", "p95"), answers("model/ready_times", "percentiles"))
def test_percentiles_by_hand(runs: list[tuple[int, int]], p50: int, p95: int) -> None:
    """A run is a total and how many pods have it, the oldest first."""
    assert _total(*(total for total, count in runs for _ in range(count))) == Percentiles(p50, p95)


def test_the_parts_of_a_start() -> None:
    ledger = ReadyLedger()
    ledger.note(PodStart(1_000, 3_000, 9_000, 23_000))

    times = ledger.times()

    assert times is not None
    assert times.count == 1
    assert times.scheduled == Percentiles(1, 1)
    assert times.initialized == Percentiles(2, 2)
    assert times.started == Percentiles(8, 8)
    assert times.ready == Percentiles(14, 14)
    assert times.total == Percentiles(23, 23)


def test_a_part_that_is_not_known_does_not_count() -> None:
    ledger = _ledger(50, 60)
    ledger.note(PodStart(1_000, UNKNOWN, 9_000, 23_000, unschedulable=True))
    ledger.note(PodStart(2_000, UNKNOWN, UNKNOWN, 23_000, pull_failed=True))

    times = ledger.times()

    assert times is not None
    assert (times.count, times.unschedulable, times.pull_failed) == (4, 1, 1)
    assert times.scheduled == Percentiles(1, 2)
    assert times.started == Percentiles(8, 8)
    assert times.initialized is None
    assert times.total == Percentiles(23, 60)


def test_parts_of_all_pods_may_be_unknown() -> None:
    times = _ledger(50).times()

    assert times is not None
    assert (times.scheduled, times.started, times.ready, times.initialized) == (None,) * 4


def _naive(values: list[int], percent: int) -> float:
    """Return the percentile by repeating each value as often as it weighs."""
    repeated: list[int] = []
    for rank, value in enumerate(reversed(values[-MOST_PODS:])):
        repeated += [value] * 2 ** (MOST_PODS // HALVING - 1 - rank // HALVING)
    repeated.sort()
    return repeated[-(-len(repeated) * percent // 100) - 1]


@given(st.lists(st.integers(0, 1_000), min_size=1, max_size=MOST_PODS + 30))
def test_weights_are_as_if_a_pod_had_been_seen_that_often(totals: list[int]) -> None:
    assert _total(*totals) == (_naive(totals, 50), _naive(totals, 95))


@given(_STARTS.filter(bool))
def test_percentiles_are_measured_values_in_order(starts: list[PodStart]) -> None:
    ledger = ReadyLedger()
    for each in starts:
        ledger.note(each)

    times = ledger.times()

    assert times is not None
    totals = {each.ready / 1_000 for each in starts[-MOST_PODS:]}
    assert set(times.total) <= totals
    assert times.total.p50 <= times.total.p95
    assert times.count == min(len(starts), MOST_PODS)


# -- the ledger ----------------------------------------------------------------------------------------------


def test_only_the_newest_pods_are_kept() -> None:
    ledger = _ledger(*range(10_000))

    assert [each.ready for each in ledger.starts()] == [each * 1_000 for each in range(9_950, 10_000)]
    assert sys.getsizeof(ledger._starts) < 2_000


def test_the_memory_of_a_full_ledger() -> None:
    def full() -> tuple[ReadyLedger, str]:
        ledger = ReadyLedger("5f1c0000-0000-0000-0000-000000000000")
        for number in range(10 * MOST_PODS):
            ledger.note(PodStart(1_111 + number, 22_222 + number, 33_333 + number, 444_444 + number))
        assert ledger.times() is not None
        return ledger, encode_ledger(ledger)

    full()
    tracemalloc.start()
    try:
        kept = [full() for _ in range(20)]
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert used / len(kept) < LEDGER_BYTES


def test_pods_that_are_only_counted() -> None:
    ledger = _ledger(5)

    for outcome in (Outcome.RESTARTED, Outcome.ENDED, Outcome.ENDED, Outcome.INCOHERENT):
        ledger.note(outcome)

    assert ledger.left_out() == LeftOut(restarted=1, ended=2, incoherent=1)
    times = ledger.times()
    assert times is not None
    assert times.count == 1


def test_a_ledger_is_empty_before_the_first_pod() -> None:
    counted = ReadyLedger()
    counted.note(Outcome.ENDED)

    assert ReadyLedger().is_empty
    assert not counted.is_empty
    assert not _ledger(1).is_empty


def test_a_new_start_changes_the_times() -> None:
    ledger = _ledger(5)
    before = ledger.times()

    ledger.note(_ready(6))

    assert ledger.times() != before
    assert ledger.changes == 2


def test_an_older_ledger_comes_first() -> None:
    older, newer = _ledger(*range(45)), _ledger(*range(100, 110))
    older.note(Outcome.ENDED)
    newer.note(Outcome.ENDED)
    assert newer.times() is not None

    newer.inherit(older)

    assert [each.ready // 1_000 for each in newer.starts()] == [*range(5, 45), *range(100, 110)]
    assert newer.left_out() == LeftOut(0, 2, 0)
    times = newer.times()
    assert times is not None
    assert times.count == MOST_PODS


# -- the stored form -----------------------------------------------------------------------------------------


@given(_STARTS, st.tuples(*[st.integers(0, 2**53)] * 3), st.text(max_size=40))
def test_a_stored_ledger_is_read_again(
    starts: list[PodStart], counts: tuple[int, int, int], target: str
) -> None:
    ledger = ReadyLedger(target)
    for each in starts:
        ledger.note(each)
    ledger.inherit(decode_ledger(f'{{"leftOut":{list(counts)}}}'))

    text = encode_ledger(ledger)
    read = decode_ledger(text)

    assert len(text) <= MOST_TEXT
    assert (read.target, read.starts(), read.left_out()) == (target, ledger.starts(), LeftOut(*counts))
    assert read.times() == ledger.times()
    assert read.changes == 0


def test_the_stored_form() -> None:
    ledger = ReadyLedger("5f1c")
    ledger.note(PodStart(1_000, 1_500, 9_000, 23_000, unschedulable=True, pull_failed=True))
    ledger.note(_ready(7))
    ledger.note(Outcome.ENDED)

    assert msgspec.json.decode(encode_ledger(ledger)) == {
        "target": "5f1c",
        "pods": [[1, 1.5, 9, 23, 3], [-1, -1, -1, 7, 0]],
        "leftOut": [0, 1, 0],
    }


def test_what_was_learned_is_no_part_of_what_an_earlier_version_reads() -> None:
    """It ignores the field and stores a ledger without one; the next reader begins to learn again."""
    ledger = _ledger(1, 2)
    earlier = encode_ledger(ledger)
    ledger.usages["cpu"] = LearnedUsage("rule", 1.0, (1.0,))
    later = encode_ledger(ledger)
    assert "usages" not in earlier
    assert decode_ledger(later.replace("usages", "unknown")).starts() == ledger.starts()
    assert decode_ledger(earlier).usages == {}


def test_a_short_form_has_the_newest_pods() -> None:
    text = encode_ledger(_ledger(1, 2, 3), most=2)

    assert [each.ready for each in decode_ledger(text).starts()] == [2_000, 3_000]


TOO_LONG = ("{}" + " " * MOST_TEXT, "not a ledger: 12,290 characters, expected at most 12,288")


@pytest.mark.parametrize(("text", "why"), [*answers("model/ready_times", "refused"), TOO_LONG])
def test_an_invalid_ledger_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        decode_ledger(text)


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda raw: raw.decode("latin-1")))
def test_any_text_is_a_ledger_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):  # any other error fails the test
        assert decode_ledger(text).changes == 0
