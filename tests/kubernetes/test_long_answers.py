"""Answers of the API server that do not end: what a tenant wrote, or a webhook or a server behind it said.

Each gets 64 MiB. No step of the event loop may take long for it, and only a bounded part of it is kept.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from adapter import errors
from adapter.kubernetes import client as kubernetes
from adapter.kubernetes.cache import autoscalers, pod_codec
from adapter.kubernetes.client import KubernetesClient, ListWatch
from adapter.kubernetes.codec import PARTIAL_METADATA, ObjectCodec
from adapter.kubernetes.credentials import ClientConfiguration
from tests.kubernetes.apiclient import PODS
from tests.scrape.test_floods import FLOOD, pods, resident, without_collections
from tests.support import steps

Ask = Callable[[KubernetesClient], Awaitable[object]]
Answers = dict[str, tuple[bytes, bytes]]

LONGEST_STEP = 0.1  # seconds of processor time; the largest object that a tenant writes is decoded in one
MOST_BYTES = 160 * 1024 * 1024  # the longest answer, what has arrived, and a copy that is decoded

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"
REFUSED = b"HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\n\r\n"
LIST = OK + b'{"kind":"List","metadata":{"resourceVersion":"1"},"items":['
OBJECT = b'{"metadata":{"name":"a","namespace":"b","annotations":{"c":"'
EVENT = b'{"type":"ADDED","object":'
LARGE = json.dumps(
    {"metadata": {"name": "a", "labels": {f"label-{number}": "b" for number in range(40_000)}}}
)

REFUSALS: Answers = {
    "an error without end": (REFUSED + b'{"message":"', b"x"),
    "lines of an error": (REFUSED, b"\n"),
}
BODIES: Answers = {"a text without end": (OK + b'{"a":"', b"x"), "brackets without end": (OK, b"[")}
LISTS: Answers = {
    "an object without end": (LIST + OBJECT, b"x"),
    "large objects before it": (LIST + (LARGE.encode() + b",") * 4 + OBJECT, b"x"),
    "brackets without end": (LIST + b'{"metadata":', b"["),
    "a key without end": (LIST + b'{"', b"x"),
    "the begin of an object within one": (LIST + OBJECT + b'","d":[', b'{"metadata":1},'),
    "closed brackets": (LIST + b'{"metadata":1', b"]"),
    "spaces before the objects": (OK + b'{"items":', b" "),
    "spaces between the objects": (LIST, b" "),
    "what follows the objects": (LIST + b'],"metadata":{"a":"', b"x"),
}
WATCHES: Answers = {
    "an object without end": (OK + EVENT + OBJECT, b"x"),
    "large objects before it": (OK + (EVENT + LARGE.encode() + b"}\n") * 4 + EVENT + OBJECT, b"x"),
    "brackets without end": (OK + EVENT, b"["),
    "an error event without end": (OK + b'{"type":"ERROR","object":{"code":410,"message":"', b"x"),
}
CODECS: dict[str, ObjectCodec[Any]] = {
    "metadata": PARTIAL_METADATA,
    "pods": pod_codec.POD_CODEC,
    "HPAs": ObjectCodec(msgspec.Raw, autoscalers.keep_hpa),
}


async def get(client: KubernetesClient) -> object:
    return await client.get("/apis/apps/v1/namespaces/b/deployments/a/scale")


async def review(client: KubernetesClient) -> object:
    return await client.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", {})


async def write(client: KubernetesClient) -> object:
    return await client.write("PUT", "/api/v1/namespaces/b/events/a", b"{}", seconds=20, check=lambda: None)


def lists(codec: ObjectCodec[Any]) -> Ask:
    return lambda client: client.list_objects(ListWatch(codec, PODS), lambda _: None, lose=lambda _: None)


def watches(codec: ObjectCodec[Any]) -> Ask:
    async def watched(client: KubernetesClient) -> None:
        source = ListWatch(codec, PODS)
        async with client.watch_objects(source, resource_version="1", duration=60, silence=9) as events:
            async for _ in events:
                pass

    return watched


ASKED: list[tuple[str, Ask, Answers]] = [
    ("get", get, BODIES | REFUSALS),
    ("review", review, BODIES | REFUSALS),
    ("write", write, BODIES | REFUSALS),
    ("list", lists(PARTIAL_METADATA), LISTS | REFUSALS),
    ("watch", watches(PARTIAL_METADATA), WATCHES | REFUSALS),
]
for _kind in ("pods", "HPAs"):
    for _verb, _ask, _answers in (("list", lists, LISTS), ("watch", watches, WATCHES)):
        _large = {"large objects before it": _answers["large objects before it"]}
        ASKED.append((f"{_verb} of {_kind}", _ask(CODECS[_kind]), _large))


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        pytest.param(ask, answer, id=f"{verb}: {what}")
        for verb, ask, answers in ASKED
        for what, answer in answers.items()
    ],
)
@pytest.mark.timeout(60)
async def test_a_long_answer_holds_neither_the_loop_nor_memory(ask: Ask, answer: tuple[bytes, bytes]) -> None:
    most = 0

    async def watch_memory() -> None:
        nonlocal most
        while True:
            most = max(most, resident() - before)
            await asyncio.sleep(0.01)

    with without_collections(), pods(1, *answer) as servers:
        before = resident()
        configuration = ClientConfiguration(f"http://127.0.0.1:{servers[0].port}")
        async with await kubernetes.connect(configuration, random=lambda: 0.0) as client:
            watching = asyncio.create_task(watch_memory())
            with steps.measured() as measured, pytest.raises(errors.KubernetesError):
                await ask(client)
            watching.cancel()

    assert measured.longest < LONGEST_STEP
    assert most < MOST_BYTES
    assert servers[0].sent < FLOOD, "the connection is closed before all is sent"
