"""Documents of a scaler whose address is given. tests/tools/test_explain.py has those at a forwarded port."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from adapter.model.autoscaling import slices
from adapter.model.autoscaling.view import FleetEntry, FleetView
from fastpath_sandbox.listener import Listener
from fastpath_tools.live.cluster_options import KubeconfigOptions, ScalerAddressOptions
from fastpath_tools.live.facts import Leader, Leaders, Unread
from fastpath_tools.live.scaler_access import LeaderReader
from tests.support.answering import AnsweringServer, forward

SHOP = slices.slice_of("shop")
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


def decided(namespace: str) -> FleetEntry:
    state = ("Deployment web", "Boost", 2, 2, 2, 8, "", None, None, 0, 0, 0, True, "")
    return FleetEntry("HorizontalPodAutoscaler", namespace, "web", *state)


async def test_leases_that_are_not_trusted_start_few_processes_and_show_their_namespace_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users who may edit a namespace can make such Leases, and Pods that answer."""
    shown = msgspec.structs.replace(_FLEET, autoscalers=[decided("shop"), decided("tenant")])

    leaders = tuple(
        Leader(f"tenant/s-slice-{number:02d}", f"pod-{number}_1", 1.0, 15.0, number, is_trusted=False)
        for number in range(64)
    )
    async with AnsweringServer(msgspec.json.encode(shown)) as scaler, contextlib.AsyncExitStack() as stack:
        calls = forward(tmp_path, monkeypatch, scaler)
        reader = LeaderReader(KubeconfigOptions(context="staging"), stack)
        *views, left = await reader.read_all(Leaders(leaders))
    started = calls.read_text().splitlines()
    names = {entry.namespace for view in views if isinstance(view, FleetView) for entry in view.autoscalers}
    assert (len(started), names) == (8, {"tenant"})
    assert left == Unread("56 more processes hold Leases like a scaler's")
    assert all("--context=staging" in call for call in started)


async def test_the_scaler_of_fastpath_is_asked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with AnsweringServer() as scaler, contextlib.AsyncExitStack() as stack:
        calls = forward(tmp_path, monkeypatch, scaler)
        leaders = Leaders(
            (
                Leader("shop/fastpath-scaler", "forged_1", 0.0, 15.0, SHOP, is_trusted=False),
                Leader("fastpath/fastpath-scaler", "scaler-0_1", 9.0, 15.0, SHOP),
            )
        )
        await LeaderReader(KubeconfigOptions(), stack).read(leaders, "shop", "web")
    assert "--namespace=fastpath pod/scaler-0 " in calls.read_text()


async def test_a_response_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with AnsweringServer(b" " * ((16 << 20) + 1)) as scaler, contextlib.AsyncExitStack() as stack:
        forward(tmp_path, monkeypatch, scaler)
        leaders = Leaders((Leader("fastpath/fastpath-scaler", "scaler-0_1", 1.0, 15.0, SHOP),))
        read = await LeaderReader(KubeconfigOptions(), stack).read(leaders, "shop", "web")
    assert isinstance(read, Unread)
    assert read.why.endswith("its response has more than 16 MiB")
