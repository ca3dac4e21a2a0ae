"""A Prometheus with faults on the wire: the sandbox's small one, with other answers for chosen paths.

The bodies and breaks here are those that proxies and overloaded servers make, which a healthy server never
sends.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from fastpath_sandbox.prometheus.series import SeriesSet
from fastpath_sandbox.prometheus.server import Prometheus

QUERY = "/api/v1/query"
SERIES = "/api/v1/series"

Behaviour = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class FaultyPrometheus(Prometheus):
    """Answers as the sandbox's, except on the paths in `behaviours`."""

    def __init__(self, series: SeriesSet, now: Callable[[], float]) -> None:
        super().__init__(series, now)
        self.behaviours: dict[str, Behaviour] = {}

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        return await self.behaviours.get(request.path, super()._handle)(request)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer as usual; for behaviours that do so in the end."""
        return await super()._handle(request)

    def queries(self) -> int:
        """Return how many queries were answered as usual."""
        return sum(asked.path == QUERY for asked in self.requests)


def reply(status: int, body: str | bytes, content_type: str = "application/json") -> Behaviour:
    """Answer with this status and body."""

    async def behave(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(
            status=status, body=body.encode() if isinstance(body, str) else body, content_type=content_type
        )

    return behave


def refuse(status: int, kind: str, text: str) -> Behaviour:
    """Refuse the query in Prometheus' own envelope."""
    return reply(status, msgspec.json.encode({"status": "error", "errorType": kind, "error": text}))


def result(kind: str, value: object) -> Behaviour:
    """Answer with a result of this type."""
    return reply(
        200, msgspec.json.encode({"status": "success", "data": {"resultType": kind, "result": value}})
    )


async def break_off(request: web.BaseRequest) -> web.StreamResponse:
    """Promise a body, send its beginning, cut the connection."""
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "4096"})
    await response.prepare(request)
    await response.write(
        b'{"status":"success","data":{"resultType":"vector","result":[{"metric":{"pod":"web-0"}'
    )
    assert request.transport is not None
    request.transport.close()
    return response


async def trickle(request: web.BaseRequest) -> web.StreamResponse:
    """Send one byte of an answer now and then, without end: each read succeeds, the answer never comes."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    while True:
        await response.write(b" ")
        await asyncio.sleep(0.02)


async def announce_huge(request: web.BaseRequest) -> web.StreamResponse:
    """Announce 100 GiB and begin to send."""
    response = web.StreamResponse(
        headers={"Content-Type": "application/json", "Content-Length": str(100 << 30)}
    )
    await response.prepare(request)
    await response.write(b'{"status":"success","data":{"resultType":"vector","result":[')
    await asyncio.Event().wait()
    return response
