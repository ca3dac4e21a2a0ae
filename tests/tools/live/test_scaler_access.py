"""Documents of a scaler whose address is given. tests/tools/test_explain.py has those at a forwarded port."""

import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest
from aiohttp import web

from adapter.model.autoscaling.view import FleetView
from fastpath_sandbox.listener import Listener
from fastpath_tools.live.cluster_options import KubeconfigOptions, ScalerAddressOptions
from fastpath_tools.live.facts import Leaders, Unread
from fastpath_tools.live.scaler_access import LeaderReader

_FLEET = FleetView(version="v1", time="2026-11-28T00:00:00.000Z", autoscalers=[])


@pytest.fixture
async def reader() -> AsyncIterator[LeaderReader]:
    async def answer(request: web.BaseRequest) -> web.Response:
        bodies = {
            "/debug/fastpath/autoscalers": msgspec.json.encode(_FLEET),
            "/debug/fastpath/autoscalers/shop/web": b'{"name": "web"}',
        }
        if request.path not in bodies:
            return web.Response(status=404, body=b'{"message": "not decided here"}')
        return web.Response(body=bodies[request.path])

    async with Listener(answer, "127.0.0.1", 0) as scaler, contextlib.AsyncExitStack() as stack:
        server = ScalerAddressOptions(server=f"{scaler.url}/")
        yield LeaderReader(KubeconfigOptions(), stack, server)


async def test_it_is_read_whatever_the_leases_say(reader: LeaderReader) -> None:
    assert await reader.read(Unread("forbidden"), "shop", "web") == {"name": "web"}
    assert await reader.read(Leaders(()), "shop", "web") == {"name": "web"}
    assert await reader.read_all(Leaders(())) == [_FLEET]


async def test_what_it_refuses_is_unread(reader: LeaderReader) -> None:
    refused = await reader.read(Leaders(()), "shop", "other")
    assert isinstance(refused, Unread)
    assert refused.why.endswith("/debug/fastpath/autoscalers/shop/other?journal=false: not decided here")
