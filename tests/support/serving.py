"""The API server of a test: real TLS on loopback, a provider with set answers, and raw requests."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from adapter.boost.provider import FLOOR_METRIC, FloorProvider
from adapter.errors import KubernetesError
from adapter.model import metrics
from adapter.model.clock import Clock
from adapter.model.identity import AccessVerdict, User
from adapter.server import tls
from adapter.server.api.documents import Documents
from adapter.server.api.paths import CUSTOM_GROUP, EXTERNAL_GROUP, VERSIONS
from adapter.server.api.query_string import Question
from adapter.server.auth.admission import Admission
from adapter.server.auth.authentication import Authenticator
from adapter.server.auth.authorization import Authorizer
from adapter.server.auth.trust_store import TrustStore
from adapter.server.health import Check, Health
from adapter.server.http.access_log import AccessLog
from adapter.server.http.connection import ClientConnection
from adapter.server.http.connection_server import MetricsServer, ServerLimits, Shutdown
from adapter.server.http.handler import Handler, HandlerLimits
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.support.certificates import Signer, config_map
from tests.support.clock import FakeClock
from tests.support.tls import Authority


class Provider:
    """Meets `adapter.model.metrics.MetricsProvider`: records questions; answers are set, or `answer`'s."""

    def __init__(self) -> None:
        self.generation = 1
        self.questions: list[Question] = []
        self.metrics: list[metrics.CustomMetricInfo] = []
        self.canonical: dict[str, str | None] = {}
        self.external_names: list[str] = []
        self.items: tuple[metrics.MetricValue, ...] = ()
        self.external_items: tuple[metrics.ExternalValue, ...] = ()
        self.usages: tuple[metrics.ObjectUsage, ...] = ()
        self.window = 60.0
        self.fresh_until = 0.0
        self.error: Exception | None = None
        self.before: Callable[[], Awaitable[object]] | None = None
        self.while_listing: Callable[[], None] | None = None
        self.floors: FloorProvider | None = None

    async def custom(self, question: metrics.CustomQuestion) -> metrics.CustomAnswer:
        if self.floors is not None and question.metric == FLOOR_METRIC.metric:
            return await self.floors.custom(question)
        await self._meet(question)
        resource = self.canonical_resource(question.resource) or ""
        return metrics.CustomAnswer(self.items, self.fresh_until, resource=resource)

    async def external(self, question: metrics.ExternalQuestion) -> metrics.ExternalAnswer:
        if self.floors is not None and question.metric == FLOOR_METRIC.metric:
            return await self.floors.external(question)
        await self._meet(question)
        return metrics.ExternalAnswer(self.external_items, self.fresh_until)

    async def resource(self, question: metrics.ResourceQuestion) -> metrics.ResourceAnswer:
        await self._meet(question)
        return metrics.ResourceAnswer(self.usages, self.window, 1_700_000_005.0, self.fresh_until)

    def hold(self) -> asyncio.Event:
        """Answer no question before the event is set."""
        release = asyncio.Event()
        self.before = release.wait
        return release

    def canonical_resource(self, resource: str) -> str | None:
        return self.canonical.get(resource, resource)

    def custom_metrics(self) -> list[metrics.CustomMetricInfo]:
        return self.metrics

    def external_metrics(self) -> list[str]:
        names = list(self.external_names)
        if self.while_listing is not None:
            self.while_listing()
        return names

    async def _meet(self, question: Question) -> None:
        self.questions.append(question)
        if self.before is not None:
            await self.before()
        if self.error is not None:
            raise self.error


class Reviews:
    """The API server's reviews: tokens by name, and all requests allowed unless a test says otherwise."""

    def __init__(self) -> None:
        self.tokens: dict[str, User] = {}
        self.verdict: Callable[[dict[str, Any]], AccessVerdict] = lambda _: AccessVerdict(allowed=True)
        self.reviewed: list[str] = []
        self.specs: list[dict[str, Any]] = []
        self.error: KubernetesError | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def review_token(self, token: str) -> User | None:
        self.reviewed.append(token)
        await self._meet()
        return self.tokens.get(token)

    async def review_access(self, spec: dict[str, Any]) -> AccessVerdict:
        self.specs.append(spec)
        await self._meet()
        return self.verdict(spec)

    async def _meet(self) -> None:
        await self.gate.wait()
        if self.error is not None:
            raise self.error


def pod_value(name: str, milli: int, *, time: float = 1_700_000_000.0) -> metrics.MetricValue:
    """Return a value of a pod in the namespace default."""
    return metrics.MetricValue(
        metrics.ObjectReference("Pod", "default", name, "/v1"), "http_requests", milli, time
    )


class Answer(NamedTuple):
    """An HTTP response as it came, header names in lower case, the last of equal names kept."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Connection:
    """One TLS connection that sends requests as they are written, without normalizing them."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def request(
        self, target: str, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        lines = [f"{method} {target} HTTP/1.1", "Host: localhost"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        return await self.read_answer(head=method == "HEAD")

    async def read_answer(self, *, head: bool = False) -> Answer:
        """Read one response; of a HEAD request it has no body."""
        status_line, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = {}
        for line in lines:
            name, _, value = line.partition(": ")
            headers[name.lower()] = value
        length = 0 if head else int(headers.get("content-length", "0"))
        return Answer(int(status_line.split()[1]), headers, await self.reader.readexactly(length))

    async def closed(self) -> bool:
        """Wait for the server to close the connection; true when it sent nothing more."""
        return await self.reader.read() == b""

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


@dataclass(eq=False)
class Served:
    """A running server and everything it was made of."""

    server: MetricsServer
    handler: Handler
    documents: Documents
    provider: Provider
    clock: FakeClock
    monitoring: Monitoring
    certificate: tls.ServingCertificate
    trust: ssl.SSLContext
    believed: TrustStore
    reviews: Reviews
    access: Admission
    access_log: AccessLog | None
    _connections: list[Connection] = field(default_factory=list)

    @property
    def ends(self) -> list[ClientConnection]:
        """The server's ends of the open connections."""
        return self.server._connections.open_connections()

    @property
    def in_review(self) -> int:
        """How many requests wait for a review."""
        return self.handler._in_review.total()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server.port}"

    async def connect(self, trust: ssl.SSLContext | None = None, *, address: str = "127.0.0.1") -> Connection:
        """Open a connection from an address of loopback; it ends with the fixture."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.server.port, ssl=trust or self.trust, local_addr=(address, 0)
        )
        connection = Connection(reader, writer)
        self._connections.append(connection)
        return connection

    async def get(
        self, target: str, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Answer:
        """Send one request on a connection of its own."""
        connection = await self.connect()
        return await connection.request(target, method, headers, body)

    async def close(self) -> None:
        for connection in self._connections:
            connection.writer.transport.abort()
        await self.server.stop()
        await self.access.close()


class ServerFactory:
    """Starts servers that end with the fixture; see `serve`."""

    def __init__(self, authority: Authority) -> None:
        self._authority = authority
        self._started: list[Served] = []

    async def __call__(
        self,
        *,
        groups: Iterable[str] = (CUSTOM_GROUP, EXTERNAL_GROUP),
        versions: Mapping[str, tuple[str, ...]] = VERSIONS,
        limits: HandlerLimits | None = None,
        readyz: Iterable[Check] = (),
        livez: Iterable[Check] = (),
        pair: tls.CertificatePair | None = None,
        shutdown_delay: float = 0.0,
        drain_timeout: float = 1.0,
        believed: TrustStore | None = None,
        clock: Clock | None = None,
        anonymous: bool = True,
        always_allow: Iterable[str] = ("/healthz", "/readyz", "/livez"),
        sink: Callable[[bytes], None] | None = None,
        floors: FloorProvider | None = None,
        **bounds: Any,
    ) -> Served:
        """Start a server on a free port of loopback; `believed` says whose client certificates mean
        something, `bounds` what connections may.

        `floors` are served beside the provider's metrics.
        """
        provider, fake, shutdown, reviews = Provider(), FakeClock(), Shutdown(), Reviews()
        now: Clock = clock or fake
        own_metrics = Monitoring()
        believed = believed or TrustStore(ProblemLog(own_metrics, now), lookup=False)
        certificate = tls.ServingCertificate(
            pair or self._authority.issue(), ask_clients=believed.asks_for_certificates
        )
        believed.changed = lambda trust: certificate.believe(trust.pem)
        believed.changed(believed.current)
        access = Admission(
            Authenticator(believed, reviews.review_token, now, own_metrics),
            Authorizer(reviews.review_access, now, own_metrics, always_allow=always_allow),
            anonymous=anonymous,
        )
        if floors is not None:
            provider.floors = floors
            provider.metrics.append(FLOOR_METRIC)
            provider.external_names.append(FLOOR_METRIC.metric)
        documents = Documents(provider, groups, "1.2.3", versions)
        problems = ProblemLog(own_metrics, now)
        access_log = AccessLog(sink, now, own_metrics, problems) if sink is not None else None
        handler = Handler(
            provider,
            documents,
            Health(livez=list(livez), readyz=[*readyz, shutdown.check]),
            access,
            own_metrics=own_metrics,
            clock=now,
            limits=limits or HandlerLimits(),
            ask_usages=provider.resource,
            access_log=access_log,
        )
        server = MetricsServer(
            handler,
            certificate,
            shutdown,
            host="127.0.0.1",
            port=0,
            shutdown_delay=shutdown_delay,
            drain_timeout=drain_timeout,
            limits=ServerLimits(**bounds),
        )
        await server.start()
        served = Served(
            server,
            handler,
            documents,
            provider,
            fake,
            own_metrics,
            certificate,
            self._authority.client_context(),
            believed,
            reviews,
            access,
            access_log,
        )
        self._started.append(served)
        return served

    async def close(self) -> None:
        for served in self._started:
            await served.close()


@dataclass(eq=False)
class Caller:
    """Meets `budgets.BoundedConnection`: a client that reads nothing. Keeps why it was cut."""

    address: str = "a"
    is_certified: bool = False
    is_open: bool = True
    writing_paused: bool = True
    reasons: list[str] = field(default_factory=list)

    def cut(self, reason: str) -> None:
        self.reasons.append(reason)
        self.is_open = False


class Certified:
    """A server that trusts client certificates, and the contexts of clients: a front proxy and a user."""

    def __init__(self, serve: ServerFactory, directory: Path, clock: Clock) -> None:
        proxies, clients = Signer("front-proxy-ca"), Signer("kubernetes")
        self._serve = serve
        self._clock = clock
        self._believed = TrustStore(ProblemLog(Monitoring(), clock))
        self._believed.adopt_config_map(config_map(proxies.pem, clients.pem))
        self.proxy = careless_context(proxies.issue("front-proxy-client").write(directory))
        self.alice = careless_context(clients.issue("alice").write(directory))
        self.other_name = careless_context(proxies.issue("another-client").write(directory))

    async def start(self, **settings: Any) -> Served:
        return await self._serve(believed=self._believed, clock=self._clock, **settings)

    def lose_trust(self) -> None:
        """Believe in other authorities from now on."""
        self._believed.adopt_config_map(config_map(Signer("front-proxy-ca").pem, Signer("kubernetes").pem))


def careless_context(identity: Path | None = None) -> ssl.SSLContext:
    """Return the context of a client that trusts every server, and shows a certificate if given."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if identity is not None:
        context.load_cert_chain(identity)
    return context


@pytest.fixture
async def serve(authority: Authority) -> AsyncIterator[ServerFactory]:
    """Return a starter of API servers."""
    factory = ServerFactory(authority)
    yield factory
    await factory.close()


@pytest.fixture
async def served(serve: ServerFactory) -> Served:
    """Return a running API server that serves both groups, with default limits."""
    return await serve()
