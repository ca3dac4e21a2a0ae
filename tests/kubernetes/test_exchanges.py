"""Exchanges with an API server as data: what is sent, what is made of the answers, what is tried again.

`scripts/requests` and `scripts/reviews` have stories. After `> ` something happens:

- `answers ANSWER ...` are those of the next requests, the last one of all further. One is a status,
  `Retry-After` in seconds after a `+`, and a body; or `reset`, `silence`, and `raw` bytes before the
  connection is closed. `away` closes the server, `back` opens it again.
- `get PATH`, `start PATH BYTES`, `list` and `watch` of pods, `post PATH`, `write METHOD TYPE`, `token
  TOKEN` and `access` are requests of the client; `host URL` and `timeout SECONDS` are for those that come.
- `problems` and `metric NAME` say what is known then.

Below it are the requests with their bodies, the seconds of the pauses between them, and the result or the
error.
`$DEEP` is JSON of 1,500 levels, `$LONG` 5,000 characters.
`scripts/test tests/kubernetes/test_exchanges.py --update` writes what happens now.
"""

import asyncio
import contextlib
import itertools
import re
import shlex
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from adapter.errors import KubernetesError
from adapter.kubernetes.client import KubernetesClient, ListWatch
from adapter.kubernetes.codec import PARTIAL_METADATA, PartialMetadata
from adapter.kubernetes.reviews import ReviewClient
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.kubernetes.apiclient import PODS, connected
from tests.support.clock import FakeClock
from tests.support.scripts import Scripts

FOLDER = Path(__file__).parent / "scripts"
SCRIPTS = {name: Scripts(FOLDER / name) for name in ("requests", "reviews")}
DEEP = '{"a":' * 1500 + "1" + "}" * 1500
"""What Go's decoder still takes. It is cut down, and then it is no list."""
SPEC = {"user": "u", "resourceAttributes": {"verb": "get", "resource": "pods"}}
SCALE = "/apis/apps/v1/namespaces/default/deployments/web/scale"
SOURCE = ListWatch(PARTIAL_METADATA, PODS)


class Exchange:
    """An API server that answers as it is told, a client, and what is said of them."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self._answers = ["200"]
        self._requests: list[str] = []
        self._last = ""
        self._pauses: list[float] = []
        self._host, self._timeout = "", 1.0
        self._server: asyncio.Server | None = None
        self._ended = asyncio.Event()
        self._port = 0
        self._monitoring, clock = Monitoring(), FakeClock()
        self._problems = ProblemLog(self._monitoring, clock)
        self._clock = clock

    # -- the server ----------------------------------------------------------------------------------------

    async def back(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        self._host = f"http://127.0.0.1:{self._port}"

    async def away(self) -> None:
        self._ended.set()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self._answer(reader, writer):
                await writer.drain()
        writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer a request; return whether the connection stays."""
        line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (each.partition(": ") for each in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        kind = f"{headers['content-type']} " if "content-type" in headers else ""
        self._requests.append(f"{line.removesuffix(' HTTP/1.1')} {kind}{body.decode()}".rstrip())
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer == "reset":
            writer.transport.abort()
        elif answer == "silence":
            await self._ended.wait()
        elif answer.startswith("raw"):
            writer.write(answer.removeprefix("raw").lstrip(" ").encode("latin-1"))
        else:
            status, _, text = answer.partition(" ")
            code, _, seconds = status.partition("+")
            more = f"Retry-After: {seconds}\r\n" * bool(seconds)
            sent = text.encode("latin-1")
            head = (
                f"HTTP/1.1 {code} {HTTPStatus(int(code)).phrase}\r\n{more}Content-Length: {len(sent)}\r\n\r\n"
            )
            writer.write(head.encode() + sent)
            return True
        return False

    # -- requests ------------------------------------------------------------------------------------------

    async def _pause(self, seconds: float) -> None:
        self._pauses.append(round(seconds, 5))

    async def ask(self, verb: str, *words: str) -> None:
        """Send a request, and say how it fared."""
        self._requests.clear()
        self._pauses.clear()
        async with connected(self._host, self._pause, random=0.5, timeout=self._timeout) as client:
            try:
                said = str(await self._ask(client, verb, *words))
            except KubernetesError as error:
                has_cause = error.__cause__ is not None or error.status or error.__suppress_context__
                later = f" (again in {error.retry_after:g} s)" if error.retry_after else ""
                said = f"fails: {error.status} {error.reason}: {self._text(error)}{later}"
                said += " without a cause" * (not has_cause)
        for request, same in itertools.groupby(self._requests):
            times = len(list(same))
            self.said.append(
                f"  {'the same' if request == self._last else request}{f' ({times} times)' * (times > 1)}"
            )
            self._last = request
        self.said += [f"  pauses {' '.join(map(str, self._pauses))}"] * bool(self._pauses)
        self.said.append(said)

    @staticmethod
    def _text(error: object) -> str:
        """Return what an error says, without the words of the system and of libraries."""
        text = re.sub(r"\b(Broken|Unreachable): .*", r"\1", str(error), flags=re.DOTALL)
        return text if len(text) < 200 else f"{text[:100]} and so on, {len(text)} characters"

    async def _ask(self, client: KubernetesClient, verb: str, *words: str) -> object:
        reviews = ReviewClient(client, self._clock, self._monitoring, self._problems)
        match verb:
            case "get":
                return (await client.get(words[0])).content.decode()
            case "start":
                return len(await client.get_start(words[0], int(words[1])))
            case "list":
                objects: list[PartialMetadata] = []
                version = await client.list_objects(SOURCE, objects.extend)
                return f"{[each.name for each in objects]} of version {version}"
            case "watch":
                async with client.watch_objects(
                    SOURCE, resource_version="5", duration=300, silence=self._timeout
                ) as watch:
                    return [event async for batch in watch for event in batch]
            case "post":
                return (await client.create(words[0], {"spec": {}})).content.decode()
            case "token":
                return await reviews.review_token(words[0])
            case "access":
                return await reviews.review_access(SPEC)
        sent: Any = {"method": words[0], "content_type": words[1]}
        parameters = {"fieldManager": "fastpath"}
        written = await client.write(
            path=SCALE, content=b"{}", parameters=parameters, seconds=4.5, check=lambda: None, **sent
        )
        return written.content.decode()

    async def happen(self, verb: str, *words: str) -> None:
        match verb:
            case "answers":
                known = {"$DEEP": DEEP, "$LONG": "x" * 5000}
                for name, text in known.items():
                    words = tuple(word.replace(name, text) for word in words)
                self._answers = [word.encode().decode("unicode_escape") for word in words]
            case "away" | "back":
                await (self.away() if verb == "away" else self.back())
            case "host":
                self._host = words[0]
            case "timeout":
                self._timeout = float(words[0])
            case "problems":
                active = self._problems.active().items()
                self.said += [f"{fault}: {self._text(text)}" for (fault, _), text in active] or ["none"]
            case "metric":
                lines = self._monitoring.exposition().splitlines()
                self.said += [line for line in lines if line.startswith(words[0])]
            case _:
                await self.ask(verb, *words)


@pytest.fixture
async def exchange() -> AsyncIterator[Exchange]:
    exchange = Exchange()
    await exchange.back()
    yield exchange
    await exchange.away()


@pytest.mark.parametrize(
    ("scripts", "title"),
    [(scripts, title) for scripts in SCRIPTS.values() for title in scripts.titles],
    ids=[title for scripts in SCRIPTS.values() for title in scripts.titles],
)
async def test_script(scripts: Scripts, title: str, exchange: Exchange, pytestconfig: pytest.Config) -> None:
    for line in scripts.lines(title):
        exchange.said.append(f"> {line}")
        await exchange.happen(*shlex.split(line))
    scripts.check(title, exchange.said, pytestconfig)
