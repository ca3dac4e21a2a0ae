"""Programmable series: labels, and values computed from time.

Nothing is recorded: the samples of a scrape at a fixed interval are computed for each query, so the same
query about the same time always has the same answer.
"""

import itertools
import math
import ssl
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

from aiohttp import web

from fastpath_sandbox.listener import Listener

NAME = "__name__"
LabelSet = tuple[tuple[str, str], ...]


class Point(NamedTuple):
    """One sample: epoch seconds and value."""

    time: float
    value: float


class Series:
    """A series with the value `curve(time)` from `start` until before `end`, in epoch seconds.

    The curve returns None where a scrape finds nothing. `end` can be set later, for a pod that is deleted.
    """

    __slots__ = ("curve", "end", "labels", "name", "start", "type")

    def __init__(
        self,
        name: str,
        labels: Mapping[str, str],
        curve: Callable[[float], float | None],
        *,
        type: Literal["gauge", "counter", "untyped"] = "gauge",  # noqa: A002  # the exposition format's word
        start: float = -math.inf,
        end: float = math.inf,
    ) -> None:
        self.name = name
        self.labels: LabelSet = tuple(
            sorted((key, value) for key, value in ({**labels, NAME: name}).items() if value)
        )
        self.curve = curve
        self.type = type
        self.start = start
        self.end = end

    def at(self, now: float) -> float | None:
        """Return the value of a scrape at `now`, or None."""
        return self.curve(now) if self.start <= now < self.end else None


class SeriesSet:
    """The series of one set of targets, scraped at the multiples of `interval` (seconds)."""

    def __init__(self, series: Iterable[Series] = (), *, interval: float = 15.0) -> None:
        self._names: dict[str, dict[LabelSet, Series]] = {}
        self.interval = interval
        for one in series:
            self.add(one)

    def __iter__(self) -> Iterator[Series]:
        """Iterate by name, and within a name in order of addition."""
        return iter([one for group in self._names.values() for one in group.values()])

    def named(self, name: str) -> list[Series]:
        return list(self._names.get(name, {}).values())

    def add(self, series: Series) -> Series:
        """Add a series, in place of one with the same labels."""
        self._names.setdefault(series.name, {})[series.labels] = series
        return series

    def remove(self, series: Series) -> None:
        """Remove a series and its past. To end it and keep its past, set its `end`."""
        del self._names[series.name][series.labels]

    def samples(self, series: Series, start: float, end: float) -> list[Point]:
        """Return the samples of the scrapes from `start` to `end`, both included."""
        points = []
        for number in range(math.ceil(start / self.interval), math.floor(end / self.interval) + 1):
            time = number * self.interval
            value = series.at(time)
            if value is not None:
                points.append(Point(time, value))
        return points

    def has_samples(self, series: Series, start: float, end: float) -> bool:
        """Return whether a scrape from `start` to `end` finds the series, among the last 10,000."""
        last = math.floor(min(end, max(series.end, start)) / self.interval)
        first = max(start, series.start)
        for number in range(last, last - 10_000, -1):
            if number * self.interval < first:
                return False
            if series.at(number * self.interval) is not None:
                return True
        return False

    def latest(self, series: Series, now: float, lookback: float) -> Point | None:
        """Return the newest sample of the last `lookback` seconds, None if the last scrape missed the series.

        A real Prometheus writes a stale marker then: the series ends at the next scrape, not five minutes
        later.
        """
        time = math.floor(now / self.interval) * self.interval
        if time < now - lookback:
            return None
        value = series.at(time)
        return Point(time, value) if value is not None else None


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(series: SeriesSet, now: float) -> str:
    """Return the exposition of all series at `now` (epoch seconds), grouped by name."""
    lines = []
    for name, grouped in itertools.groupby(series, key=lambda one: one.name):
        rows = [(one, value) for one in grouped if (value := one.at(now)) is not None]
        if not rows:
            continue
        lines.append(f"# TYPE {name} {rows[0][0].type}")
        lines += [f"{name}{_labels(one)} {float(value)!r}" for one, value in rows]
    return "".join(f"{line}\n" for line in lines)


def _labels(series: Series) -> str:
    pairs = []
    for name, value in series.labels:
        if name != NAME:
            escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
            pairs.append(f'{name}="{escaped}"')
    return "{" + ",".join(pairs) + "}" if pairs else ""


class Exporter(Listener):
    """Serves ``/metrics`` inside the ``async with`` block.

    `now` gives epoch seconds; `scrapes` counts requests.
    """

    def __init__(
        self,
        series: SeriesSet,
        now: Callable[[], float],
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(self._handle, host, port, tls)
        self.series = series
        self.scrapes = 0
        self._now = now

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path != "/metrics":
            return web.Response(text="only /metrics is served here\n", status=404)
        self.scrapes += 1
        return web.Response(
            body=render(self.series, self._now()).encode(), headers={"Content-Type": CONTENT_TYPE}
        )
