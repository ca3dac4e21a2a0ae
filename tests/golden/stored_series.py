"""A Prometheus of one moment, for transcripts: `--prometheus-url=http://FILE` has the series of a file.

A line of the file is a series and its value, `load{pod="web-0"} 2`. With ` until 400s` behind it the series
ended so long ago. Queries are evaluated by the sandbox.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import promql_parser
import pytest

from adapter.config.options import PrometheusOptions, RulesOptions
from adapter.errors import PrometheusError
from adapter.model.metrics import QueryResult, Sample, SeriesInfo
from fastpath_sandbox.prometheus import promql
from fastpath_sandbox.prometheus.promql import QueryFailure
from fastpath_sandbox.prometheus.series import Series, SeriesSet
from fastpath_tools.live import servers
from fastpath_tools.live.servers import PrometheusReader
from tests.support import world

NOW = 1_800_000_000.0
"""When transcripts ask, in epoch seconds; no output shows it."""


def _read_series(line: str) -> Series:
    written, _, end = line.partition(" until ")
    selector, _, value = written.rpartition(" ")
    parsed = promql_parser.parse(selector)
    assert isinstance(parsed, promql_parser.VectorSelector), line
    labels = {one.name: one.value for one in parsed.matchers.matchers}
    name = parsed.name or labels["__name__"]
    ended = NOW - float(end.removesuffix("s")) if end else math.inf
    return Series(name, labels, lambda _: float(value), end=ended)


class StoredSeries:
    """Answers both endpoints, as PrometheusClient and SeriesLister do."""

    def __init__(self, text: str) -> None:
        self._series = SeriesSet(_read_series(line) for line in text.splitlines())

    async def query(self, text: str, time: float, *, most: int | None = None) -> QueryResult:
        assert most is None
        try:
            value = promql.evaluate(text, self._series, time)
        except QueryFailure as failure:
            raise PrometheusError("query", f"{failure.type}: {failure}") from failure
        if isinstance(value, float):
            return world.scalar(value, time)
        return QueryResult("vector", [Sample(dict(labels), number, time) for labels, number in value])

    async def series(
        self, selectors: Sequence[str], start: float
    ) -> Mapping[str, tuple[SeriesInfo, ...] | PrometheusError]:
        return {selector: self._list(selector, start) for selector in selectors}

    def _list(self, selector: str, start: float) -> tuple[SeriesInfo, ...] | PrometheusError:
        try:
            chosen = promql.select(self._series, promql.parse_selector(selector))
        except QueryFailure as failure:
            return PrometheusError("query", f"{failure.type}: {failure}")
        return world.series(
            *(dict(one.labels) for one in chosen if self._series.has_samples(one, start, NOW))
        )


def _of_url(url: str) -> StoredSeries | None:
    file = Path(url.removeprefix("http://"))
    return StoredSeries(file.read_text()) if file.is_file() else None


def serve_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the files of the working folder answer for the URLs that name them."""
    real = servers.open_prometheus

    async def open_prometheus(
        connection: PrometheusOptions, discovery: RulesOptions, *others: Any
    ) -> PrometheusReader:
        stored: Any = _of_url(connection.prometheus_url)  # the seam is two methods of two classes
        if stored is None:
            return await real(connection, discovery, *others)
        return PrometheusReader(stored, stored, NOW, discovery.look_back)

    monkeypatch.setattr(servers, "open_prometheus", open_prometheus)
