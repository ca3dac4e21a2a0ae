"""For tests of what reads an API server: clients, contexts of reflectors, servers of a few lines, pods."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.errors import KubernetesError
from adapter.kubernetes import client as kubernetes
from adapter.kubernetes.cache.reflector import ReflectorContext, ReflectorPeriods
from adapter.kubernetes.client import KubernetesClient
from adapter.kubernetes.credentials import ClientConfiguration
from adapter.model.clock import Clock
from adapter.model.objects.resources import BUILTIN, APIResource
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.support.clock import FakeClock, ShiftedClock

QUICK = ReflectorPeriods(
    backoff=0.01, backoff_limit=0.05, short_watch=0.02, relist=0.05, refusals=0, first_list=1.0
)

Sleep = Callable[[float], Awaitable[None]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Speaker = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def resource(text: str) -> APIResource:
    known = BUILTIN.lookup(text)
    assert known is not None
    return known


PODS = resource("pods")


def pod(name: str, namespace: str = "default", **labels: str) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": [{"name": "main"}]},
    }


async def error_of(call: Awaitable[object]) -> KubernetesError:
    with pytest.raises(KubernetesError) as raised:
        await call
    return raised.value


@contextlib.asynccontextmanager
async def connected(
    url: str,
    sleep: Sleep = asyncio.sleep,
    *,
    random: float = 0.0,
    timeout: float = 1.0,  # noqa: ASYNC109 - the client's
) -> AsyncIterator[KubernetesClient]:
    configuration = ClientConfiguration(url)
    async with await kubernetes.connect(
        configuration, sleep=sleep, random=lambda: random, timeout=timeout
    ) as client:
        yield client


def unconnected(clock: Clock | None = None, periods: ReflectorPeriods = QUICK) -> ReflectorContext:
    """Return the context of caches that a test feeds by hand."""
    client: Any = None  # never called
    clock, monitoring = clock or FakeClock(), Monitoring()
    problems = ProblemLog(monitoring, clock)
    return ReflectorContext(client, clock, monitoring, problems, lambda: 0.0, periods=periods)


@contextlib.asynccontextmanager
async def reflecting(
    url: str,
    clock: Clock | None = None,
    periods: ReflectorPeriods = QUICK,
    timeout: float = 1.0,  # noqa: ASYNC109 - the client's
) -> AsyncIterator[ReflectorContext]:
    async with connected(url, timeout=timeout) as client:
        clock, monitoring = clock or ShiftedClock(), Monitoring()
        problems = ProblemLog(monitoring, clock)
        yield ReflectorContext(client, clock, monitoring, problems, lambda: 0.0, periods=periods)


@contextlib.asynccontextmanager
async def answering(handler: Handler) -> AsyncIterator[str]:
    """Answer every request by `handler`; yield the address."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    async with TestServer(app) as server:
        yield str(server.make_url("")).rstrip("/")


@contextlib.asynccontextmanager
async def listening(serve: Speaker) -> AsyncIterator[str]:
    """Serve each connection by `serve`; yield the address."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
