"""The histories that the process of forecasts has in memory, and how they are kept up to date.

A history is read once as a whole, in chunks, and afterwards only what is new. It is a row of doubles, 8 bytes
a minute: 14 days of one metric are 161 kB. All of them together have at most `MOST_VALUES` values.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from adapter.errors import PrometheusError
from adapter.forecast.grid import Values
from adapter.model.forecasts.job import MOST_VALUES, STEP, HistoryQuery
from adapter.prometheus import range_query
from adapter.simulate.recorded.history import Grid

_UNUSED: Final = 2 * 3600
"""After so many seconds without a job an autoscaler is gone."""

_SMALLEST_CHUNK: Final = 100

Read = Callable[[str, int, int, int], dict[int, float]]
"""Returns the values of a query from a time to another, both included, by step; PrometheusError."""


class NoRoomError(Exception):
    """The histories take too much memory."""


class _Row(NamedTuple):
    """The values of one metric from `start` on."""

    start: int
    values: Values


@dataclass(slots=True)
class _Kept:
    """The histories of one autoscaler by metric, and when they were last asked for."""

    queries: tuple[HistoryQuery, ...]
    used: int
    rows: dict[str, _Row] = field(default_factory=dict)

    @property
    def values(self) -> int:
        return sum(len(each.values) for each in self.rows.values())


class Histories:
    """Histories by the name of the autoscaler, with at most `most` values in all."""

    def __init__(self, most: int = MOST_VALUES) -> None:
        self._most = most
        self._kept: dict[str, _Kept] = {}

    @property
    def values(self) -> int:
        return sum(each.values for each in self._kept.values())

    def update(
        self, name: str, queries: Sequence[HistoryQuery], begin: int, end: int, now: int, read: Read
    ) -> dict[str, Values]:
        """Return the demand of each step from `begin` to `end` by metric, NaN where it is not known.

        Times are multiples of a step in seconds since 1970. Raises PrometheusError, NoRoomError.
        """
        kept = self._kept.get(name)
        if kept is None or kept.queries != tuple(queries):
            self._kept.pop(name, None)
            kept = _Kept(tuple(queries), now)
        self._make_room(name, len(queries) * (end - begin) // STEP, now)
        self._kept[name] = kept
        kept.used = now
        for query in queries:
            start, values = kept.rows.get(query.metric, _Row(begin, np.empty(0)))
            values = values[(begin - start) // STEP :] if start <= begin else np.empty(0)
            known = begin + len(values) * STEP
            if known < end:
                values = np.concatenate((values, _read(query.promql, known, end, read)))
            kept.rows[query.metric] = _Row(begin, values)
        return {metric: row.values[: (end - begin) // STEP] for metric, row in kept.rows.items()}

    def _make_room(self, name: str, values: int, now: int) -> None:
        others = {key: each for key, each in self._kept.items() if key != name}
        taken = sum(each.values for each in others.values())
        if taken + values <= self._most:
            return
        for key, each in others.items():
            if now - each.used > _UNUSED:
                taken -= each.values
                del self._kept[key]
        if taken + values > self._most:
            self._kept.pop(name, None)
            raise NoRoomError(
                f"no room for {values:,} values of its history: {taken:,} of {self._most:,} are taken by "
                f"{len(self._kept)} autoscalers"
            )


def _read(promql: str, begin: int, end: int, read: Read) -> Values:
    """Return the values of the steps from `begin` to `end`, chunk by chunk."""
    found = np.full((end - begin) // STEP, np.nan)
    # What Prometheus has for an instant is the demand of the step that ends then.
    for chunk in Grid(begin + STEP, end + STEP, STEP).chunks():
        for at, value in _ask(promql, chunk, read):
            place = (at - begin) // STEP - 1
            if value >= 0 and 0 <= place < len(found):
                found[place] = value
    return found


def _ask(promql: str, chunk: Grid, read: Read) -> Iterator[tuple[int, float]]:
    """Ask for a chunk, and for its halves if it is too much for Prometheus."""
    start, end, step = chunk
    try:
        yield from read(promql, start, end - step, step).items()
    except PrometheusError as error:
        if not range_query.is_too_much(error) or chunk.points < 2 * _SMALLEST_CHUNK:
            raise
    else:
        return
    middle = start + chunk.points // 2 * step
    yield from _ask(promql, Grid(start, middle, step), read)
    yield from _ask(promql, Grid(middle, end, step), read)
