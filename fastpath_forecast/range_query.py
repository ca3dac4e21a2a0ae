"""Range queries to Prometheus, one chunk at a time, through prometheus-api-client (`custom_query_range`).

For forecasts and tools, which read history: a query runs in a thread, and its whole answer is decoded at
once. An answer is one series at most, so that its size is bounded by its points.
"""

import asyncio
import math
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import msgspec

from adapter.errors import PrometheusError
from adapter.model import go_text
from adapter.prometheus import endpoint, http_session, response
from adapter.prometheus.connection import PrometheusConnection
from adapter.prometheus.endpoint import PrometheusServer
from adapter.prometheus.http_session import EndpointSession

ENDPOINT = "/api/v1/query_range"

MOST_BYTES = 1024 * 1024
"""The largest answer: Prometheus answers with 11,000 points of a series at most, of some 45 bytes each."""

SMALLEST_RANGE = 100
"""The fewest points of a range that is read in place of a larger one."""

_TOO_MUCH = ("too many samples", "exceeded maximum resolution")


class _Series(msgspec.Struct):
    values: list[tuple[float, str]]


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: list[_Series]


class _RangeAnswer(msgspec.Struct, rename="camel"):
    status: str = ""
    data: _Data | None = None


_ANSWER = msgspec.json.Decoder(_RangeAnswer)


class RangeReader:
    """Asks one Prometheus for ranges. `timeout` bounds a query, in seconds."""

    def __init__(self, origin: PrometheusConnection, timeout: float) -> None:
        self._origin = origin
        self._timeout = timeout

    async def read(self, promql: str, start: int, end: int, step: int) -> dict[int, float]:
        """Return the values of a query for one series by time, `end` included; times are epoch seconds.

        A time without a sample has no value, and neither has one with NaN or an infinity. Raises
        PrometheusError.
        """
        server = await self._origin.server(self._timeout)
        try:
            return await asyncio.to_thread(read_range, server, promql, start, end, step)
        except PrometheusError as error:
            if is_unauthorized(error):
                self._origin.authorization.refuse()
            raise


def read_range(server: PrometheusServer, promql: str, start: int, end: int, step: int) -> dict[int, float]:
    """Return the values of a query as `RangeReader.read` does. Blocks.

    A range that is too much for the server is read in halves.
    """
    points = (end - start) // step + 1
    try:
        return _read(server, promql, start, end, step)
    except PrometheusError as error:
        is_too_much = error.kind in {"timeout", "size"} or any(text in error.message for text in _TOO_MUCH)
        if not is_too_much or points < 2 * SMALLEST_RANGE:
            error.url = server.endpoint.shown(ENDPOINT)
            raise
    middle = start + points // 2 * step
    first = read_range(server, promql, start, middle - step, step)
    return first | read_range(server, promql, middle, end, step)


def is_unauthorized(error: PrometheusError) -> bool:
    """Tell whether the server refused the credentials."""
    return error.message.startswith("HTTP status 401")


def _read(server: PrometheusServer, promql: str, start: int, end: int, step: int) -> dict[int, float]:
    most = min(server.max_bytes, MOST_BYTES)

    def check(parts: Iterable[bytes]) -> Iterator[bytes]:
        body = bytearray()
        for part in parts:
            body += part
            if len(body) > most:
                raise response.too_large(most)
        _check_answer(bytes(body))
        yield bytes(body)

    first, last = (datetime.fromtimestamp(at, UTC) for at in (start, end))
    more = {"timeout": endpoint.format_time(server.timeout)}
    with http_session.mapped_errors(), EndpointSession(server, check) as session:
        series = session.client().custom_query_range(promql, first, last, str(step), more)
    if len(series) > 1:
        raise PrometheusError("type", f"the query has {len(series)} series, and one was expected")
    values: dict[int, float] = {}
    for at, text in series[0]["values"] if series else ():
        try:
            value = go_text.parse_float(text)
        except ValueError as error:
            shown = response.shorten(repr(text))
            raise PrometheusError("decode", f"a sample's value is {error}: {shown}") from error
        if math.isfinite(value):
            values[round(at)] = value
    return values


def _check_answer(body: bytes) -> None:
    """Raise PrometheusError for a body that is not the answer to a range query."""
    try:
        answer = _ANSWER.decode(body)
    except (ValueError, RecursionError) as error:
        raise PrometheusError("decode", endpoint.explain_body(str(error), body[:1024])) from error
    if answer.status == "error":
        raise response.explain_refusal(200, body)
    if answer.data is None or answer.data.result_type != "matrix":
        raise PrometheusError("decode", "the answer to a range query is no matrix")
