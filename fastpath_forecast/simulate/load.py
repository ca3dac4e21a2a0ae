"""The load of a simulation: the total demand on all pods, second by second.

A load is a step function: the value of a point holds until the next point. Where a recorded load has no
samples it has a *gap*: nothing is invented there, and the simulation sees no metric.

A load comes from a CSV file, or from the history of a metric. The history is a grid of times, one each
`step`. The grid and its chunks begin at multiples of the step and of a chunk, so that the same times are
asked for tomorrow, and what is cached can be used again.
"""

import csv
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from adapter.config.yaml.reader import one_line
from adapter.errors import Fault, InputError

HEADER = ("seconds", "load")

LONGEST = 366 * 24 * 3600
"""The longest load, in seconds."""

GREATEST = 1e15
"""The greatest load: the metrics APIs hold values in thousandths in 64 bits."""

CHUNK_POINTS = 2_000
"""Points of one query: at most 11,000 are allowed, and a query over fewer is easier on Prometheus."""

MOST_POINTS = 3_000_000
"""The longest history, in points of one metric: a year at 15 s."""

SATURATED_FROM = 0.95
"""From which share of its capacity a pod counts as saturated: measured values vary a little around it."""

Values = Mapping[int, float]
"""Values by time in epoch seconds."""


class LoadSpan(NamedTuple):
    """The seconds from `start` to `end`, the end exclusive."""

    start: int
    end: int


class Load(NamedTuple):
    """A load in the unit of its metric.

    `starts` are the seconds at which the value changes, the first is 0; `values` are the values from then on,
    NaN in a gap. `seconds` is its length. In the spans `saturated` all pods were busy when it was recorded,
    so the demand may have been higher.
    """

    starts: Sequence[int]
    values: Sequence[float]
    seconds: int
    saturated: Sequence[LoadSpan] = ()

    def segments(self) -> Iterator[tuple[int, int, float]]:
        """Yield start, end and value of each step."""
        ends = (*self.starts[1:], self.seconds)
        yield from zip(self.starts, ends, self.values, strict=True)

    def part(self, begin: int, end: int) -> "Load":
        """Return the load of the seconds from `begin` to `end`, exclusive, with `begin` as its second 0."""
        if begin == 0 and end == self.seconds:
            return self
        pieces = [
            (max(start, begin) - begin, value)
            for start, stop, value in self.segments()
            if stop > begin and start < end
        ]
        spans = [
            LoadSpan(max(span.start, begin) - begin, min(span.end, end) - begin)
            for span in self.saturated
            if span.end > begin and span.start < end
        ]
        starts, values = zip(*pieces, strict=True)
        return Load(starts, values, min(end, self.seconds) - begin, tuple(spans))

    @property
    def known_seconds(self) -> int:
        """The seconds outside gaps."""
        return sum(end - start for start, end, value in self.segments() if not math.isnan(value))

    @property
    def mean(self) -> float:
        """The mean outside gaps."""
        total = math.fsum(
            (end - start) * value for start, end, value in self.segments() if not math.isnan(value)
        )
        return total / self.known_seconds if self.known_seconds else math.nan

    @property
    def highest(self) -> float:
        return max((value for value in self.values if not math.isnan(value)), default=math.nan)


def of_points(
    points: Iterable[tuple[float, float]], seconds: int, saturated: Sequence[LoadSpan] = ()
) -> Load:
    """Return the load of (second, value) points in the order of time, the first at 0.

    The value of a second is that of the last point at or before it.
    """
    starts: list[int] = []
    values: list[float] = []
    for at, value in points:
        second = math.ceil(at)
        if second >= seconds:
            break
        if starts and starts[-1] == second:
            values[-1] = value
        else:
            starts.append(second)
            values.append(value)
    merged = [
        place
        for place, value in enumerate(values)
        if not place
        or (value != values[place - 1] and not (math.isnan(value) and math.isnan(values[place - 1])))
    ]
    kept = array("q", [starts[place] for place in merged]), array("d", [values[place] for place in merged])
    return Load(*kept, seconds, saturated)


def read_csv(text: str, source: str) -> Load:
    """Return the load of a CSV file with the header `seconds,load`. Raises InputError.

    The last value holds for one second.
    """
    # A byte order mark is what spreadsheets begin a file with.
    rows = csv.reader(text.removeprefix("\ufeff").splitlines(), strict=True)
    points: list[tuple[float, float]] = []
    try:
        header = [cell.strip() for cell in next(rows, [])]
        if header != list(HEADER):
            raise _error(source, 1, "", ",".join(header), "expected the header seconds,load")
        for row in rows:
            if any(cell.strip() for cell in row):
                points.append(_point(row, points, source, rows.line_num))
    except csv.Error as error:
        raise _error(source, rows.line_num, "", "", f"expected seconds,load: {error}") from None
    if not points:
        raise _error(source, 2, "", "", "expected at least one row such as 0,12.5")
    return of_points(points, math.floor(points[-1][0]) + 1)


def _point(
    row: Sequence[str], points: Sequence[tuple[float, float]], source: str, line: int
) -> tuple[float, float]:
    if len(row) != 2:
        raise _error(source, line, "", ",".join(row), "expected two columns: seconds and load")
    at = _number(row[0])
    if at is None or not 0 <= at <= LONGEST:
        raise _error(
            source, line, "seconds", row[0], f"expected seconds since the start, from 0 to {LONGEST}"
        )
    value = _number(row[1])
    if value is None or not 0 <= value <= GREATEST:
        raise _error(source, line, "load", row[1], f"expected a number from 0 to {GREATEST:g}")
    if not points and at != 0:
        raise _error(source, line, "seconds", row[0], "expected 0, the start")
    if points and at <= points[-1][0]:
        raise _error(
            source, line, "seconds", row[0], f"expected more than {points[-1][0]:g}: seconds increase"
        )
    return at, value


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in text else None  # Python's 1_000 is no CSV


def _error(source: str, line: int, place: str, value: str, expected: str) -> InputError:
    return InputError([Fault(place, one_line(value), expected, source, line)])


# -- the history of a metric ---------------------------------------------------------------------------------


class Grid(NamedTuple):
    """The times from `start` to `end`, the end exclusive, in epoch seconds."""

    start: int
    end: int
    step: int

    @property
    def points(self) -> int:
        return (self.end - self.start) // self.step

    def chunks(self) -> Iterator["Grid"]:
        """Yield the parts of the grid that one query asks for, oldest first."""
        length = self.step * CHUNK_POINTS
        at = self.start
        while at < self.end:
            end = min(self.end, at - at % length + length)
            yield Grid(at, end, self.step)
            at = end


def build_grid(until: float, length: float, step: int) -> Grid:
    """Return the grid that ends at a time in epoch seconds; `length` is in seconds."""
    end = math.floor(until / step) * step
    return Grid(end - max(1, math.ceil(length / step)) * step, end, step)


def build_load(total: Values, least: Values, grid: Grid, capacity: float) -> Load:
    """Return the load of a history; `capacity` is what one pod serves, in the unit of the metric.

    `total` is the demand of all pods, `least` the smallest value of a pod, without a value where that is not
    known. A negative total, and one that the metrics APIs cannot hold, is no demand, and a gap. Where every
    pod was within 5 % of its capacity or above, the load is marked as saturated.
    """
    points = []
    spans: list[LoadSpan] = []
    for second in range(0, grid.end - grid.start, grid.step):
        at = grid.start + second
        demand = total.get(at, math.nan)
        if not 0 <= demand <= GREATEST:
            demand = math.nan
        points.append((float(second), demand))
        if not math.isnan(demand) and least.get(at, -math.inf) >= SATURATED_FROM * capacity:
            if spans and spans[-1].end == second:
                spans[-1] = LoadSpan(spans[-1].start, second + grid.step)
            else:
                spans.append(LoadSpan(second, second + grid.step))
    return of_points(points, grid.end - grid.start, tuple(spans))
