"""The fallback never shrinks anything. `scripts/fallback` has when it begins and ends."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from adapter.autoscaler.decide.decision import decide
from adapter.autoscaler.decide.guarded import Constraints
from adapter.autoscaler.decide.guards import fallback
from adapter.autoscaler.decide.guards.fallback import Absence
from adapter.model.autoscaling.fastpath_autoscaler import Fallback
from adapter.model.timestamps import SECOND, Span
from tests.autoscaler.decide.synced import SyncedScaler
from tests.support.controller import QUEUE
from tests.support.scaling import NOW

HOLD = Fallback("Hold", Span(60 * SECOND))
FLOOR = Fallback("Floor", Span(60 * SECOND), replicas=6)
LAST_GOOD = Fallback("LastGood", Span(60 * SECOND), last_good_for=Span(120 * SECOND))


def _scaler(rules: Fallback | None, replicas: int, metrics: int = 1, **spec: Any) -> SyncedScaler:
    return SyncedScaler(replicas, QUEUE * metrics, Constraints(fallback=rules), **spec)


def test_the_last_good_count_ends_at_the_exact_instant() -> None:
    absence = Absence(since=NOW, last_good=9)
    end = NOW + 60 * SECOND + 120 * SECOND
    assert fallback.replicas(LAST_GOOD, absence, end - 1) == 9
    assert fallback.replicas(LAST_GOOD, absence, end) == 0
    assert fallback.replicas(HOLD, absence, end) == 0


_RULES = st.sampled_from([HOLD, FLOOR, LAST_GOOD, msgspec.structs.replace(FLOOR, replicas=50)])
_READINGS = st.just(None) | st.integers(0, 30)


@given(
    _RULES,
    st.integers(1, 20),
    st.lists(st.tuples(st.integers(1, 100), st.lists(_READINGS, min_size=2, max_size=2)), max_size=12),
)
def test_never_shrinks_and_never_leaves_the_limits(
    rules: Fallback, replicas: int, ticks: list[tuple[int, list[int | None]]]
) -> None:
    """At every step what comes out is at least what comes out without, and within maximum and policies."""
    scaler = _scaler(rules, replicas, metrics=2, maxReplicas=20)
    now = 0
    for pause, readings in ticks:
        now += pause
        before, history, seen = scaler.replicas, scaler.memory.history, scaler.observe(*readings)
        made = scaler.at(now, *readings)
        without = decide(scaler.spec, seen, history, NOW + now * SECOND)
        assert made.replicas >= without.replicas
        if None in readings:
            assert made.replicas >= before
        allowed = max(2 * before, before + 4)
        assert made.replicas <= max(before, min(20, allowed))
