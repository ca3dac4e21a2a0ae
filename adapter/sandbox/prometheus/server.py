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
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
from aiohttp import web
from multidict import MultiDict, MultiDictProxy

from adapter.sandbox.listener import Listener
from adapter.sandbox.prometheus import promql
from adapter.sandbox.prometheus.promql import QueryFailure
from adapter.sandbox.prometheus.series import Series, SeriesSet

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
        asked = RecordedRequest(request.method, path, MultiDictProxy(parameters), dict(request.headers))
        self.requests.append(asked)
        await asyncio.sleep(self.wait)
        if self.fault is not None:
            return web.Response(
                text=self.fault.body, status=self.fault.status, content_type=self.fault.content_type
            )
        return self._answer(asked)

    def _answer(self, asked: RecordedRequest) -> web.Response:
        endpoint = self._endpoints.get(asked.path)
        if endpoint is None or asked.method not in {"GET", "POST"}:
            return web.Response(text="404 page not found\n", status=404)
        try:
            data = endpoint(asked.parameters)
        except QueryFailure as failure:
            return _json(
                {"status": "error", "errorType": failure.type, "error": str(failure)},
                _STATUS_OF[failure.type],
            )
        return _json({"status": "success", "data": data})

    def _query(self, parameters: Parameters) -> Any:
        time = _time(parameters, "time", self._now())
        if "timeout" in parameters:
            _duration("timeout", parameters["timeout"])
        answer = self._evaluate(parameters.get("query", ""), time)
        return {"resultType": answer.type, "result": _result(answer, time)}

    def _evaluate(self, query: str, time: float) -> promql.QueryAnswer:
        try:
            return promql.evaluate(query, self.series, time)
        except QueryFailure as failure:
            if failure.type == "bad_data":
                raise _invalid("query", str(failure)) from None
            raise

    def _chosen(self, parameters: Parameters) -> Iterable[Series]:
        """Return the series that match a selector and have a sample in the range, ordered by labels."""
        start, end = _time(parameters, "start", -math.inf), _time(parameters, "end", self._now())
        selectors = []
        for text in parameters.getall("match[]", []):
            try:
                selectors.append(promql.parse_selector(text))
            except QueryFailure as failure:
                raise _invalid("match[]", str(failure)) from None
        found = {one.labels: one for matchers in selectors for one in promql.select(self.series, matchers)}
        if not selectors:
            found = {one.labels: one for one in self.series}
        return [one for _, one in sorted(found.items()) if self.series.has_samples(one, start, end)]

    def _series(self, parameters: Parameters) -> Any:
        if "match[]" not in parameters:
            raise QueryFailure("bad_data", "no match[] parameter provided")
        return [dict(one.labels) for one in self._chosen(parameters)]


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
        cause = f"Invalid time value for '{name}': cannot parse \"{text}\" to a valid timestamp"
        raise _invalid(name, cause) from None


def _duration(name: str, text: str) -> float:
    """Parse a duration: a number of seconds, or PromQL's notation."""
    try:
        return float(text)
    except ValueError:
        pass
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "y": 31536000.0}
    if not re.fullmatch(r"(\d+(ms|[smhdwy]))+", text):
        raise _invalid(name, f'cannot parse "{text}" to a valid duration')
    return sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)(ms|[smhdwy])", text))


def _result(answer: promql.QueryAnswer, time: float) -> Any:
    if isinstance(answer.value, list):
        return [{"metric": dict(labels), "value": _sample(time, number)} for labels, number in answer.value]
    return [_timestamp(time), format_value(answer.value, exponents=False)]


def _sample(time: float, value: float) -> list[Any]:
    return [_timestamp(time), format_value(value)]


def _timestamp(time: float) -> float | int:
    return int(time) if time == int(time) else round(time, 3)


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
