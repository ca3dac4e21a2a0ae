"""The histories that the process of forecasts has in memory, and how they are kept up to date.

A history is read once as a whole, in chunks, and afterwards only what is new. It is a row of doubles, 8 bytes
a minute: 14 days of one metric are 161 kB. All of them together have at most `MOST_VALUES` values, those of
one namespace at most half as many. When the room is full, a namespace that would have less than another one
gets room: the namespace that has most loses the history that was used longest ago. So no namespace keeps the
others out, and two namespaces do not take the same room from each other in turns.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from adapter.bounds.forecast.job import MOST_VALUES, STEP, HistoryQuery
from fastpath_forecast.grid import Values
from fastpath_forecast.simulate.load import Grid

_UNUSED: Final = 2 * 3600
"""After so many seconds without a job an autoscaler is gone."""


Read = Callable[[str, int, int, int], dict[int, float]]
"""Returns the values of a query from a time to another, both included, by step; PrometheusError."""


class NoRoomError(Exception):
    """The histories take too much memory, or those of one namespace do."""


class _HistoryRow(NamedTuple):
    """The values of one metric from `start` on."""

    start: int
    values: Values


@dataclass(slots=True)
class _KeptHistory:
    """The histories of one autoscaler by metric, and when they were last asked for.

    `values` is the room that is reserved for them. A history that cannot be read has its room too: else each
    new try would take it from other namespaces.
    """

    queries: tuple[HistoryQuery, ...]
    used: int = 0
    values: int = 0
    rows: dict[str, _HistoryRow] = field(default_factory=dict)


class Histories:
    """Histories by the name of the autoscaler, with at most `most` values in all."""

    def __init__(self, most: int = MOST_VALUES) -> None:
        self._most = most
        self._kept: dict[str, _KeptHistory] = {}
        """The one that was used last comes last."""

    @property
    def values(self) -> int:
        return sum(history.values for history in self._kept.values())

    def update(
        self, name: str, queries: Sequence[HistoryQuery], begin: int, end: int, now: int, read: Read
    ) -> dict[str, Values]:
        """Return the demand of each step from `begin` to `end` by metric, NaN where it is not known.

        `name` begins with the namespace and a slash. Times are multiples of a step in seconds since 1970.
        Raises PrometheusError, NoRoomError.
        """
        values = len(queries) * (end - begin) // STEP
        kept = self._kept.pop(name, None)
        if kept is None or kept.queries != tuple(queries):
            kept = _KeptHistory(tuple(queries))
        self._make_room(_namespace(name), values, now)
        kept.used, kept.values = now, values
        self._kept[name] = kept
        for query in queries:
            start, known = kept.rows.get(query.metric, _HistoryRow(begin, np.empty(0)))
            known = known[(begin - start) // STEP :] if start <= begin else np.empty(0)
            last = begin + len(known) * STEP
            if last < end:
                known = np.concatenate((known, _read(query.promql, last, end, read)))
            kept.rows[query.metric] = _HistoryRow(begin, known)
        return {metric: row.values[: (end - begin) // STEP] for metric, row in kept.rows.items()}

    def _make_room(self, namespace: str, values: int, now: int) -> None:
        """Drop histories of other autoscalers until there is room for new values of a namespace."""
        sums = self._sums()
        room = self._most // 2
        if sums.total() + values > self._most or sums[namespace] + values > room:
            for key in [key for key, history in self._kept.items() if now - history.used > _UNUSED]:
                del self._kept[key]
            sums = self._sums()
        own, total = sums[namespace], sums.total()
        if own + values > room:
            raise NoRoomError(
                f"no room for {values:,} values of its history: namespace {namespace} has {own:,}, and one "
                f"namespace may have {room:,} of {self._most:,}"
            )
        left = dict(self._kept)
        while sums.total() + values > self._most:
            ((most, taken),) = sums.most_common(1)
            if taken <= own + values:
                raise NoRoomError(
                    f"no room for {values:,} values of its history: {total:,} of {self._most:,} are taken, "
                    f"{own:,} by namespace {namespace}, and no other one would have more than it"
                )
            oldest = next(key for key in left if _namespace(key) == most)
            sums[most] -= left.pop(oldest).values
        self._kept = left

    def _sums(self) -> Counter[str]:
        """Return the values of each namespace."""
        sums: Counter[str] = Counter()
        for name, kept in self._kept.items():
            sums[_namespace(name)] += kept.values
        return sums


def _namespace(name: str) -> str:
    return name.partition("/")[0]


def _read(promql: str, begin: int, end: int, read: Read) -> Values:
    """Return the values of the steps from `begin` to `end`, chunk by chunk."""
    values = np.full((end - begin) // STEP, np.nan)
    # What Prometheus has for an instant is the demand of the step that ends then.
    for chunk in Grid(begin + STEP, end + STEP, STEP).chunks():
        for at, value in read(promql, chunk.start, chunk.end - STEP, STEP).items():
            place = (at - begin) // STEP - 1
            if value >= 0 and 0 <= place < len(values):
                values[place] = value
    return values
