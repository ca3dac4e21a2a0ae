"""A small Prometheus over real HTTP, for machines without a real one and to provoke failures.

It serves the query and series endpoints with the response format and the errors of the real server, over
series that are computed from time. It has no scraping, no storage and no rules.
"""

import asyncio
import datetime as dt
import math
import re
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
from aiohttp import web
from multidict import MultiDict, MultiDictProxy

from fastpath_sandbox.listener import Listener
from fastpath_sandbox.prometheus import promql
from fastpath_sandbox.prometheus.promql import QueryFailure
from fastpath_sandbox.prometheus.series import LabelSet, Series, SeriesSet

_STATUS_OF = {"bad_data": 400, "execution": 422}
Parameters = MultiDictProxy[str]


class RecordedRequest(NamedTuple):
    """One request as it arrived; `parameters` joins those of the URL and of a form."""

    method: str
    path: str
    parameters: Parameters
    headers: Mapping[str, str]


class FixedResponse(NamedTuple):
    """The response to every API request while a failure is in force."""

    status: int
    body: str
    content_type: str


class Prometheus(Listener):
    """A server that listens inside the ``async with`` block.

    `now` gives epoch seconds, for queries without a time. `requests` holds the last 100,000 requests.
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
        self.requests: deque[RecordedRequest] = deque(maxlen=100_000)
        self.fault: FixedResponse | None = None
        self.wait = 0.0
        self._now = now
        self._endpoints: dict[str, Callable[[Parameters], Any]] = {
            "/api/v1/query": self._query,
            "/api/v1/series": self._series,
        }

    def fail(self, status: int, body: str = "", content_type: str = "text/plain") -> None:
        """Answer every API request with this until `recover`, as a proxy in front or a broken server does."""
        self.fault = FixedResponse(status, body, content_type)

    def recover(self) -> None:
        """End `fail` and `delay`."""
        self.fault = None
        self.wait = 0.0

    def delay(self, seconds: float) -> None:
        """Delay the answer to every API request."""
        self.wait = seconds

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path.rstrip("/") or "/"
        plain = _PLAIN.get(path)
        if plain is not None:
            return web.Response(text=plain[0], content_type=plain[1])
        parameters = MultiDict(request.query)
        if request.method == "POST":
            for key, value in (await request.post()).items():
                parameters.add(key, str(value))
        recorded = RecordedRequest(request.method, path, MultiDictProxy(parameters), dict(request.headers))
        self.requests.append(recorded)
        await asyncio.sleep(self.wait)
        if self.fault is not None:
            return web.Response(
                text=self.fault.body, status=self.fault.status, content_type=self.fault.content_type
            )
        return self._answer(recorded)

    def _answer(self, request: RecordedRequest) -> web.Response:
        endpoint = self._endpoints.get(request.path)
        if endpoint is None or request.method not in {"GET", "POST"}:
            return web.Response(text="404 page not found\n", status=404)
        try:
            data = endpoint(request.parameters)
        except QueryFailure as failure:
            return _json(
                {"status": "error", "errorType": failure.type, "error": str(failure)},
                _STATUS_OF[failure.type],
            )
        return _json({"status": "success", "data": data})

    def _query(self, parameters: Parameters) -> Any:
        time = _time(parameters, "time", self._now())
        if parameters.get("timeout"):  # Prometheus ignores an empty one
            _check_duration("timeout", parameters["timeout"])
        try:
            value = promql.evaluate(parameters.get("query", ""), self.series, time)
        except QueryFailure as failure:
            if failure.type == "bad_data":
                raise _invalid("query", str(failure)) from None
            raise
        at = int(time) if time == int(time) else round(time, 3)
        if isinstance(value, float):
            return {"resultType": "scalar", "result": [at, format_value(value, exponents=False)]}
        vector = [{"metric": dict(labels), "value": [at, format_value(number)]} for labels, number in value]
        return {"resultType": "vector", "result": vector}

    def _series(self, parameters: Parameters) -> Any:
        """Return the series that match a selector and have a sample in the range, ordered by labels."""
        if "match[]" not in parameters:
            raise QueryFailure("bad_data", "no match[] parameter provided")
        start, end = _time(parameters, "start", -math.inf), _time(parameters, "end", self._now())
        chosen: dict[LabelSet, Series] = {}
        for text in parameters.getall("match[]"):
            try:
                matchers = promql.parse_selector(text)
            except QueryFailure as failure:
                raise _invalid("match[]", str(failure)) from None
            chosen |= {one.labels: one for one in promql.select(self.series, matchers)}
        return [
            dict(labels) for labels, one in sorted(chosen.items()) if self.series.has_samples(one, start, end)
        ]


_PLAIN = {
    "/": ("<!DOCTYPE html><title>Prometheus sandbox</title>", "text/html"),
    "/-/ready": ("Prometheus Server is Ready.\n", "text/plain"),
    "/-/healthy": ("Prometheus Server is Healthy.\n", "text/plain"),
}


def _json(document: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(document), status=status, content_type="application/json")


def _invalid(parameter: str, cause: str) -> QueryFailure:
    return QueryFailure("bad_data", f'invalid parameter "{parameter}": {cause}')


def _time(parameters: Parameters, name: str, absent: float | None = None) -> float:
    text = parameters.get(name, "")
    if not text and absent is not None:
        return absent
    try:
        return round(float(text), 3)
    except ValueError:
        pass
    try:
        return dt.datetime.fromisoformat(text).astimezone(dt.UTC).timestamp()
    except ValueError:
        cause = f"invalid time value for '{name}': cannot parse \"{text}\" to a valid timestamp"
        raise _invalid(name, cause) from None


def _check_duration(name: str, text: str) -> None:
    """Refuse what is neither a number of seconds nor a duration in PromQL's notation."""
    if re.fullmatch(r"(\d+(ms|[smhdwy]))+", text):
        return
    try:
        float(text)
    except ValueError:
        raise _invalid(name, f'cannot parse "{text}" to a valid duration') from None


def format_value(value: float, *, exponents: bool = True) -> str:
    """Return a value as Prometheus writes it, with the shortest digits.

    Samples have exponents below 1e-6 and from 1e21 up; a scalar result never has (`exponents` False).
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    text = repr(float(value))
    if exponents and value and not 1e-6 <= abs(value) < 1e21:
        return text  # repr writes these with an exponent too, in Go's form
    plain = format(Decimal(text), "f")
    return plain.removesuffix(".0")
