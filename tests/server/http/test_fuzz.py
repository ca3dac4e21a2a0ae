"""Thousands of hostile requests against the whole adapter over real TLS: each answer is proper and discreet.

The adapter is complete, with rules, caches and reviews, before a cluster that reviews no more now and then,
and a Prometheus that fails now and then and then tells all it knows. Each request carries a number that its
answer has to repeat, so that one that is taken for two, or for part of another, is noticed.

It sends 3,000 requests. For 100,000, which take about ten minutes:

    HYPOTHESIS_PROFILE=thorough pytest tests/server/http/test_fuzz.py
"""

import asyncio
import contextlib
import gzip
import json
import logging
import os
import re
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote_to_bytes

import hypothesis
import pytest
from aiohttp import web
from hypothesis import strategies as st

from adapter import errors
from adapter.server.http.budgets import UNCERTIFIED_HEADS
from fastpath_sandbox.apiserver.reviews import AccessReviewVerdict, TokenVerdict
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.prometheus.series import Series, SeriesSet
from tests.server.http import hostile
from tests.server.http.hostile import Hostile
from tests.support import adapter as support
from tests.support import thorough, waiting
from tests.support.certificates import Signer, config_map, config_map_object
from tests.support.clock import ShiftedClock
from tests.support.kubectl import TOKEN
from tests.support.processor import limited
from tests.support.serving import Answer, Connection, careless_context
from tests.world import faulty
from tests.world.faulty import FaultyPrometheus

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "thorough"
REQUESTS = 100_000 if LONG else 3_000 if thorough.is_chosen() else 1_000
BATCH = 10
_TASKS_OF_CONNECTIONS = 20  # to cluster and Prometheus, whose other end is a task of this process
PATIENCE = 15.0
"""Seconds after which a request counts as never answered."""

pytestmark = [pytest.mark.integration, pytest.mark.timeout(3600 if LONG else 120)]

RULES = (Path(__file__).parents[2] / "data" / "rules" / "hushed.yaml").read_text()

BACKEND_FAILED = frozenset(
    {
        "Internal error occurred: unable to fetch metrics",
        "Internal error occurred: unable to list matching resources",
        "Internal error occurred: the access review both allowed and denied",
        "Internal error occurred: unable to review access",
        "encountered an unexpected query result type",
    }
)
"""What a 500 says. Beside it there is a selector of series that cannot be used, a bare 500 as upstream's."""

SINCE = re.compile(r"(?<=: unable to fetch metrics): Prometheus does not answer since [0-9T:-]{19}Z\Z")
"""What follows while Prometheus does not answer."""

FORBIDDEN_HEADERS = frozenset(
    {"location", "set-cookie", "access-control-allow-origin", "x-powered-by", "www-authenticate"}
)
STATUS_FIELDS = {"kind", "apiVersion", "metadata", "status", "message", "reason", "details", "code"}
PROXY, CLIENTS = Signer("front-proxy-ca"), Signer("kubernetes")
BARE = b"400 Bad Request\n"
"""What is told who speaks no HTTP; a HEAD that is no HTTP gets it with its body."""

PEERS = {
    "no peer": None,
    "proxy": PROXY.issue("front-proxy-client"),
    "another name": PROXY.issue("other"),
    "client": CLIENTS.issue("alice", "devs"),
}

Peer = Literal["no peer", "proxy", "another name", "client"]


def _plain(method: str, target: str) -> Hostile:
    raw = f"{method} {target} HTTP/1.1\r\nHost: x\r\nX-Remote-User: alice\r\n\r\n".encode()
    return Hostile(raw, is_head=False, framed=True)


ANSWERS = {
    200: _plain("GET", "/livez"),
    400: _plain("GET", "/apis/metrics.k8s.io/v1beta1/nodes?labelSelector=a%3D%3Db%3D%3Dc"),
    404: _plain("GET", "/apis/metrics.k8s.io/v1beta1/nodes/none"),
    405: _plain("DELETE", "/apis/metrics.k8s.io/v1beta1/nodes/n1"),
    500: _plain("GET", "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/broken"),
}
"""A request for each answer that has to be met, since chance may leave one out."""


def _series() -> SeriesSet:
    pod = {"namespace": "shop", "pod": "web-0"}
    found = [
        Series("hushed_load", pod, lambda _: 7.0),
        Series("hushed_broken", pod, lambda _: 1.0),
        Series("hushed_heat", {"node": "n1"}, lambda _: 40.0),
        Series("hushed_depth", {"namespace": "shop", "queue": "mail"}, lambda _: 3.0),
    ]
    for name in ("hushed_cpu", "hushed_memory"):
        found.append(Series(name, {**pod, "container": "main", "node": "n1"}, lambda _: 2.0))
        found.append(Series(name, {"id": "/", "node": "n1"}, lambda _: 3.0))
    return SeriesSet(found)


async def _refuse(request: web.BaseRequest) -> web.StreamResponse:
    """Refuse the query, and quote it."""
    asked = (await request.post()).get("query") or request.query_string
    return await faulty.refuse(
        400, "bad_data", f"parse error in {asked!r} at http://{request.host}{request.path}"
    )(request)


async def _page(request: web.BaseRequest) -> web.StreamResponse:
    """Answer as a proxy in front of it that has lost it."""
    return await faulty.reply(502, f"<h1>no upstream http://{request.host}/</h1>", "text/html")(request)


FAILURES = {
    "none": None,
    "refuses": _refuse,
    "page": _page,
    "breaks off": faulty.break_off,
    "matrix": faulty.result("matrix", []),
    "no JSON": faulty.reply(200, "hushed_load <html>"),
    "no tokens": None,
    "no reviews": None,
}
REVIEWS = {"no tokens": "tokenreviews", "no reviews": "subjectaccessreviews"}


class StrictConnection(Connection):
    """Reads only responses that are well-formed in every part."""

    async def read_answer(self, *, head: bool = False) -> Answer:
        status_line, *lines = (await self.reader.readuntil(b"\r\n\r\n"))[:-4].decode("ascii").split("\r\n")
        found = re.fullmatch(r"HTTP/\d\.\d ([2345]\d\d) [A-Za-z -]+", status_line)
        assert found is not None, status_line
        status, headers = int(found[1]), dict[str, str]()
        for line in lines:
            name, separator, value = line.partition(": ")
            assert separator, line
            assert name.lower() not in headers, f"{line} stands there twice"
            headers[name.lower()] = value
        length = 0 if head or status == 304 else int(headers["content-length"])
        return Answer(status, headers, await self.reader.readexactly(length))


class Target:
    """The adapter under fire: a connection for each kind of peer, and what has to be true of every answer."""

    def __init__(self, port: int, contexts: dict[str, ssl.SSLContext], secrets: Sequence[bytes]) -> None:
        self.statuses: Counter[int] = Counter()
        self.sent = 0
        self.failed = False
        self._port = port
        self._contexts = contexts
        self._secrets = secrets
        self._open: dict[str, StrictConnection] = {}
        self._last: Hostile | None = None

    async def ask(self, peer: str, *requests: Hostile) -> None:
        """Send requests, all at once, and judge their answers.

        What follows the end of a connection is sent over another.
        """
        connection = await self._connection(peer)
        sent = [(f"{self.sent + number}", request) for number, request in enumerate(requests)]
        connection.writer.write(b"".join(request.numbered(number) for number, request in sent))
        for place, (number, request) in enumerate(sent):
            if self._open.get(peer) is not connection:
                await self.ask(peer, *requests[place:])
                return
            try:
                is_followed = place < len(sent) - 1
                await self._read(peer, connection, number, request, is_followed=is_followed)
            except Exception as error:
                error.add_note(f"asked by {peer}: {request}, after {self._last}")
                self.close()
                raise
            self._last = request

    async def _read(
        self, peer: str, connection: StrictConnection, number: str, request: Hostile, *, is_followed: bool
    ) -> None:
        self.sent += 1
        try:
            async with limited(PATIENCE):
                answer = await connection.read_answer(head=request.is_head)
                status, headers, body = answer.status, answer.headers, answer.body
                if request.framed and body != BARE and not (request.is_head and status == 400):
                    assert headers["audit-id"] == number, "the answer is another's"
                closes = headers.get("connection") == "close"
                if closes and body != BARE and not (request.is_head and status == 400):
                    with contextlib.suppress(ConnectionResetError):  # by what arrives after the end
                        assert await connection.reader.read() == b"", "something follows the last answer"
        except (asyncio.IncompleteReadError, ConnectionResetError):
            # the system resets a closed connection on which more arrives, maybe before the answer is read
            is_reset = is_followed and b"connection: close" in request.raw.lower()
            # a head beyond the limit ends the connection, unless all of it arrives at once
            length = len(request.numbered(number).partition(b"\r\n\r\n")[0])
            is_cut = peer not in {"proxy", "client"} and length > UNCERTIFIED_HEADS.total
            assert is_reset or is_cut or not request.framed, "no answer"
            status, closes = 0, True
        else:
            self._judge(request, status, headers, body)
        self.statuses[status] += 1
        if closes or not request.framed:
            self._leave(peer)

    async def look(self, peer: str) -> None:
        """Make sure that the connection still serves."""
        request = b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Remote-User: bob\r\n\r\n"
        await self.ask(peer, Hostile(request, is_head=False, framed=True))

    def close(self) -> None:
        for peer in list(self._open):
            self._leave(peer)

    def _judge(self, request: Hostile, status: int, headers: dict[str, str], body: bytes) -> None:
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["server"] == "fastpath"
        assert not headers.keys() & FORBIDDEN_HEADERS
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        told = repr(headers).encode() + body
        said = request.raw + unquote_to_bytes(request.raw)
        target = request.target
        for secret in self._secrets if not target.partition(b"?")[0].endswith(b"/metrics") else ():
            assert secret not in told or secret in said, f"{secret!r} is told"
        media_type = headers.get("content-type", "").partition(";")[0]
        if not body:
            assert request.is_head or status == 304
        elif media_type == "application/json":
            _judge_json(request, status, json.loads(body, parse_constant=_refuse_constant))
        else:
            assert media_type == "text/plain"
            if status == 500:
                assert b"/readyz/" in target, body
                assert body.startswith(b"internal server error: ")
                return
            assert status in {200, 400}, body
            assert status == 200 or body == BARE

    async def _connection(self, peer: str) -> Connection:
        found = self._open.get(peer)
        if found is None or found.reader.at_eof():  # one that was idle for longer than the server keeps it
            streams = await asyncio.open_connection("127.0.0.1", self._port, ssl=self._contexts[peer])
            found = self._open[peer] = StrictConnection(*streams)
        return found

    def _leave(self, peer: str) -> None:
        found = self._open.pop(peer)
        found.writer.transport.abort()


def _refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def _judge_json(request: Hostile, status: int, document: dict[str, Any]) -> None:
    if status == 200 or document.keys() == {"paths"}:
        assert status in {200, 404}
        return
    assert document.keys() <= STATUS_FIELDS
    assert (document["kind"], document["status"], document["code"]) == ("Status", "Failure", status)
    if status == 500 and SINCE.sub("", document["message"]) not in BACKEND_FAILED:
        assert b"metricLabelSelector" in unquote_to_bytes(request.raw), document
        assert "reason" not in document, document


class _Verdicts:
    """What the cluster says about callers."""

    def __init__(self, *, is_open: bool) -> None:
        self._is_open = is_open

    def token(self, spec: dict[str, Any]) -> TokenVerdict:
        return TokenVerdict(spec["token"] == TOKEN, "some-user", ("devs",))

    def access(self, spec: dict[str, Any]) -> AccessReviewVerdict:
        if self._is_open:
            return AccessReviewVerdict(allowed=True)
        user = spec["user"]
        if user == "torn":
            return AccessReviewVerdict(allowed=True, denied=True)
        if user in {"denied", "system:anonymous"}:
            return AccessReviewVerdict(allowed=False, reason="<no> & no", denied=user == "denied")
        return AccessReviewVerdict(allowed=True)


@pytest.fixture(params=["anyone may", "callers are told apart"])
def is_open(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "anyone may")


@pytest.fixture
def clock() -> ShiftedClock:
    return ShiftedClock()


@pytest.fixture
async def prometheus(clock: ShiftedClock) -> AsyncIterator[FaultyPrometheus]:
    async with FaultyPrometheus(_series(), clock.wall) as prometheus:
        yield prometheus


@pytest.fixture
async def cluster(*, is_open: bool) -> AsyncIterator[Cluster]:
    async with Cluster() as cluster:
        verdicts = _Verdicts(is_open=is_open)
        cluster.reviews.token, cluster.reviews.access = verdicts.token, verdicts.access
        cluster.create(config_map_object(config_map(PROXY.pem, CLIENTS.pem)))
        labels = {"app": "web"}
        pod = {
            "metadata": {"name": "web-0", "namespace": "shop", "labels": labels},
            "status": {"phase": "Running"},
        }
        cluster.create({"apiVersion": "v1", "kind": "Pod", **pod})
        cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        yield cluster


@pytest.fixture
async def target(
    tmp_path: Path, cluster: Cluster, prometheus: FaultyPrometheus, clock: ShiftedClock, *, is_open: bool
) -> AsyncIterator[Target]:
    (tmp_path / "rules.yaml").write_text(RULES)
    contexts = {
        peer: careless_context(identity.write(tmp_path) if identity is not None else None)
        for peer, identity in PEERS.items()
    }
    secrets = [url.partition("://")[2].encode() for url in (prometheus.url, cluster.url)]
    secrets += [b"hushed", b"sum(", b" by (", b"<<.", b"Traceback", b'File "', b"aiohttp", b"/api/v1/"]
    secrets.append(TOKEN.encode())
    async with AsyncExitStack() as stack:
        adapter = await stack.enter_async_context(
            support.running(
                tmp_path, cluster, prometheus.url, clock=clock, admitted=False, until_ready=not is_open
            )
        )
        await adapter.wait_for("/readyz", lambda answer: answer.status == 200)
        before = _tasks()
        target = Target(int(adapter.url.rpartition(":")[2]), contexts, secrets)
        stack.callback(target.close)
        yield target
        target.close()
        if target.failed:
            return
        assert target.sent >= REQUESTS // 2
        assert ANSWERS.keys() - target.statuses.keys() == set(), "some answer was never met"
        await waiting.until(lambda: _tasks() <= before + _TASKS_OF_CONNECTIONS, 5)
        exposition = (await adapter.get("/metrics")).body
        assert exposition.count("\n") < 3000, "callers do not choose labels"


def _tasks() -> int:
    return len(asyncio.all_tasks())


@hypothesis.settings(
    max_examples=REQUESTS // 2 // BATCH, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
)
@hypothesis.given(
    peer=st.sampled_from(["no peer", "proxy", "client", "no peer", "proxy", "client", *PEERS]),
    failure=st.sampled_from(["none", "none", *FAILURES]),
    batch=st.lists(hostile.requests(), min_size=BATCH, max_size=BATCH),
    pipelined=st.sampled_from([False, False, True]),
)
@hypothesis.example(peer="proxy", failure="refuses", batch=[*ANSWERS.values()], pipelined=False)
async def test_hostile_requests(
    target: Target,
    cluster: Cluster,
    prometheus: FaultyPrometheus,
    clock: ShiftedClock,
    caplog: pytest.LogCaptureFixture,
    peer: Peer,
    failure: str,
    batch: list[Hostile],
    *,
    pipelined: bool,
) -> None:
    caplog.clear()
    prometheus.requests.clear()
    cluster.requests.clear()
    cluster.reviews.received.clear()
    clock.advance(0.1)  # answers age, and reviews, which are asked at a limited rate, have their turn
    behaviour = FAILURES[failure]
    prometheus.behaviours = {faulty.QUERY: behaviour} if behaviour is not None else {}
    if failure in REVIEWS:
        cluster.forbid("create", REVIEWS[failure])
    target.failed = True
    if pipelined:
        in_order = [request for request in batch if request.framed]
        await target.ask(peer, *in_order)
        batch = [request for request in batch if not request.framed]
    for request in batch:
        await target.ask(peer, request)
    await target.look(peer)
    if failure in REVIEWS:
        cluster.allow("create", REVIEWS[failure])
    target.failed = False
    for record in caplog.records:
        assert record.levelno < logging.ERROR, record
        assert record.exc_info is None or isinstance(record.exc_info[1], errors.SourceError), record
        assert TOKEN not in repr(record.__dict__)
