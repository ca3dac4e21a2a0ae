"""A small Prometheus over real HTTP, for machines without a real one and for faults that a real one does not have.

What lives here: the query, series, label and metadata endpoints with the envelope and the errors of the real server, over series
computed from time. What does not: scraping, storage, rules. Its law: the answers are those of a real Prometheus that has scraped the
same series, or an error that says what is not supported.
"""

import asyncio
import datetime as dt
import math
import re
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec
from aiohttp import web
from multidict import MultiDict, MultiDictProxy

from adapter.sandbox.listener import Listener
from adapter.sandbox.prometheus import promql
from adapter.sandbox.prometheus.series import LabelSet, Series, SeriesSet
from adapter.sandbox.prometheus.vectors import QueryFailure

VERSION = "2.42.0+sandbox"
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_STATUS_OF = {"bad_data": 400, "execution": 422}
_LONGEST_RANGE = 11_000
Parameters = MultiDictProxy[str]


class Asked(NamedTuple):
    """One request as it came in; `parameters` are those of the URL and of a form together."""

    method: str
    path: str
    parameters: Parameters
    headers: Mapping[str, str]


class Fault(NamedTuple):
    """What every API request is answered with while it is in force."""

    status: int
    body: str
    content_type: str


class Prometheus:
    """A server that listens while the ``async with`` block is open.

    `now` gives epoch seconds, for queries that name no time. `requests` holds the last 100,000 requests.
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
        self.series = series
        self.requests: deque[Asked] = deque(maxlen=100_000)
        self.fault: Fault | None = None
        self.wait = 0.0
        self._now = now
        self._listener = Listener(self._handle, host, port, tls)
        self._endpoints: dict[str, Callable[[Parameters], Any]] = {
            "/api/v1/query": self._query,
            "/api/v1/query_range": self._query_range,
            "/api/v1/series": self._series,
            "/api/v1/labels": self._labels,
            "/api/v1/metadata": self._metadata,
            "/api/v1/status/buildinfo": self._build,
        }

    async def __aenter__(self) -> Self:
        await self._listener.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._listener.stop()

    @property
    def url(self) -> str:
        """Return the base URL, without a slash at its end."""
        return self._listener.url

    async def down(self) -> None:
        """Refuse connections and cut open ones."""
        await self._listener.down()

    async def up(self) -> None:
        """Come back at the same address."""
        await self._listener.up()

    def fail(self, status: int, body: str = "", content_type: str = "text/plain") -> None:
        """Answer every API request with this, as a proxy in front or a broken server does, until `recover`."""
        self.fault = Fault(status, body, content_type)

    def recover(self) -> None:
        """Answer as usual again, without delay."""
        self.fault = None
        self.wait = 0.0

    def delay(self, seconds: float) -> None:
        """Let every API request wait before it is answered."""
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
        asked = Asked(request.method, path, MultiDictProxy(parameters), dict(request.headers))
        self.requests.append(asked)
        await asyncio.sleep(self.wait)
        if self.fault is not None:
            return web.Response(
                text=self.fault.body, status=self.fault.status, content_type=self.fault.content_type
            )
        return self._answer(asked)

    def _answer(self, asked: Asked) -> web.Response:
        values = re.fullmatch(r"/api/v1/label/([^/]+)/values", asked.path)
        answer = self._endpoints.get(asked.path)
        if (answer is None and values is None) or asked.method not in {"GET", "POST"}:
            return web.Response(text="404 page not found\n", status=404)
        try:
            if values is not None:
                data: Any = self._label_values(values[1], asked.parameters)
            else:
                assert answer is not None
                data = answer(asked.parameters)
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

    def _evaluate(self, query: str, time: float) -> promql.Answer:
        try:
            return promql.evaluate(query, self.series, time)
        except QueryFailure as failure:
            if failure.type == "bad_data":
                raise _invalid("query", str(failure)) from None
            raise

    def _query_range(self, parameters: Parameters) -> Any:
        start, end = _time(parameters, "start"), _time(parameters, "end")
        step = _duration("step", parameters.get("step", ""))
        if end < start:
            raise _invalid("end", "end timestamp must not be before start time")
        if step <= 0:
            raise _invalid(
                "step",
                "zero or negative query resolution step widths are not accepted. Try a positive integer",
            )
        if (end - start) / step > _LONGEST_RANGE:
            message = "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)"
            raise QueryFailure("bad_data", message)
        found: dict[LabelSet, list[list[Any]]] = {}
        for number in range(math.floor((end - start) / step) + 1):
            time = start + number * step
            answer = self._evaluate(parameters.get("query", ""), time)
            if isinstance(answer.value, float | int):
                found.setdefault((), []).append(_sample(time, answer.value))
            elif isinstance(answer.value, list):
                for labels, value in answer.value:
                    found.setdefault(labels, []).append(_sample(time, value))
            else:
                kind = "range vector" if answer.type == "matrix" else answer.type
                message = (
                    f'invalid expression type "{kind}" for range query, must be Scalar or instant Vector'
                )
                raise QueryFailure("bad_data", message)
        rows = [{"metric": dict(labels), "values": values} for labels, values in sorted(found.items())]
        return {"resultType": "matrix", "result": rows}

    def _chosen(self, parameters: Parameters) -> Iterable[Series]:
        """Return the series with a sample in the asked time that match any selector, in the order of their labels."""
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

    def _labels(self, parameters: Parameters) -> Any:
        return sorted({name for one in self._chosen(parameters) for name, _ in one.labels})

    def _label_values(self, name: str, parameters: Parameters) -> Any:
        if _LABEL_NAME.fullmatch(name) is None:
            raise QueryFailure("bad_data", f'invalid label name: "{name}"')
        return sorted(
            {value for one in self._chosen(parameters) for label, value in one.labels if label == name}
        )

    def _metadata(self, parameters: Parameters) -> Any:
        wanted = parameters.get("metric")
        chosen = {one.name: one for one in self.series if wanted in {None, one.name}}
        return {
            name: [{"type": one.type, "help": one.help, "unit": ""}] for name, one in sorted(chosen.items())
        }

    def _build(self, _parameters: Parameters) -> Any:
        return {
            "version": VERSION,
            "revision": "",
            "branch": "",
            "buildUser": "",
            "buildDate": "",
            "goVersion": "",
        }


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
    """Read a duration: seconds as a number, or as PromQL writes it."""
    try:
        return float(text)
    except ValueError:
        pass
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0, "y": 31536000.0}
    if not re.fullmatch(r"(\d+(ms|[smhdwy]))+", text):
        raise _invalid(name, f'cannot parse "{text}" to a valid duration')
    return sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)(ms|[smhdwy])", text))


def _result(answer: promql.Answer, time: float) -> Any:
    value = answer.value
    if isinstance(value, list):
        return [{"metric": dict(labels), "value": _sample(time, number)} for labels, number in value]
    if isinstance(value, promql.Matrix):
        return [
            {"metric": dict(labels), "values": [_sample(*point) for point in points]}
            for labels, points in value.series
        ]
    return [_timestamp(time), value if isinstance(value, str) else format_value(value, exponents=False)]


def _sample(time: float, value: float) -> list[Any]:
    return [_timestamp(time), format_value(value)]


def _timestamp(time: float) -> float | int:
    return int(time) if time == int(time) else round(time, 3)


def format_value(value: float, *, exponents: bool = True) -> str:
    """Return a value as Prometheus writes it: the shortest digits.

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
