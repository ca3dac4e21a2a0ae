"""Reads the endpoints of pods over HTTP: one GET, and a body within its limits or a ScrapeError.

A pod is not trusted. It gets no credentials but the rule's own, in the namespaces that the rule lists.
Redirects are not followed, no proxy is used and no cookie is kept. Bytes, unzipped bytes, lines and time are
bounded, the bytes beside the body as well (`connections`), and all bodies share a budget (`bodies`).
"""

import asyncio
import ssl
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple, Self

import aiohttp

from adapter.config import scrape_keys
from adapter.config.rules_config import Access, EndpointTLS
from adapter.errors import InputError, ScrapeError
from adapter.model.clock import Clock
from adapter.model.objects.pod_networks import PodNetworks
from adapter.prometheus import client, connection
from adapter.prometheus.connection import FollowedFiles
from adapter.prometheus.endpoint import TLSFiles
from adapter.rules import matchers
from adapter.rules.scrape import exposition
from adapter.scrape.bodies import AnswerBody, BodyBuffer
from adapter.scrape.connections import FRAMING_BYTES, PodConnections, PodPlace
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import SourceProblems

# As Prometheus sends, without the formats that are not text, and for names that PromQL needs not quote.
# Compression costs both sides more than the network.
_HEADERS = (
    "Accept: application/openmetrics-text;version=1.0.0;escaping=underscores,"
    "application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n"
    "Accept-Encoding: identity\r\n"
    "User-Agent: fastpath\r\n"
)


class ScrapeEndpoint(NamedTuple):
    namespace: str
    address: str
    port: int
    access: Access

    @property
    def host(self) -> str:
        """The address and port as a URL has them."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"


class ScrapedBody(NamedTuple):
    """An unzipped body, and whether its Content-Type is that of OpenMetrics."""

    content: bytes
    openmetrics: bool


class Scraper:
    """Reads pods, with a keep-alive connection to each. An async context manager."""

    def __init__(
        self,
        clock: Clock,
        monitoring: Monitoring,
        problems: SourceProblems,
        *,
        files: int,
        service_account: str = scrape_keys.SERVICE_ACCOUNT,
        networks: PodNetworks | None = None,
    ) -> None:
        """`files` bounds the connections. `networks` are the addresses of pods, None for all but loopback.

        `service_account` is where our own token is mounted, which is never sent to a pod.
        """
        self._networks = networks or PodNetworks()
        self._clock = clock
        self._monitoring = monitoring
        self._problems = problems
        self._service_account = Path(service_account)
        self._tokens: dict[str, connection.FileAuthorization] = {}
        self._contexts: dict[EndpointTLS, FollowedFiles[ssl.SSLContext]] = {}
        self._building: defaultdict[EndpointTLS, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._connections = PodConnections(clock, problems, files)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._connections.close()
        await asyncio.sleep(0)  # until the sockets are closed

    async def fetch(self, endpoint: ScrapeEndpoint, buffer: BodyBuffer) -> ScrapedBody:
        """Return the body of the endpoint now. Raises ScrapeError.

        The body is charged to `buffer`, which the caller closes once the body is processed.
        """
        started = self._clock.monotonic()
        try:
            async with asyncio.timeout(endpoint.access.timeout) as timeout:
                buffer.lost = lambda _: None if timeout.expired() else timeout.reschedule(0.0)
                return await self._fetch(endpoint, buffer)
        except TimeoutError as error:
            buffer.check()
            raise ScrapeError("timeout", f"no answer in {endpoint.access.timeout:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            mapped = client.map_error(error)
            raise ScrapeError(mapped.kind, str(mapped)) from error
        finally:
            buffer.lost = lambda _: None
            self._monitoring.scrape_duration.observe(self._clock.monotonic() - started)

    async def _fetch(self, endpoint: ScrapeEndpoint, buffer: BodyBuffer) -> ScrapedBody:
        access = endpoint.access
        try:
            address = str(self._networks.resolve(endpoint.address))
        except ValueError as error:  # an address that must not be scraped
            raise ScrapeError("unreachable", str(error)) from error
        head = f"GET {access.path} HTTP/1.1\r\nHost: {endpoint.host}\r\n{_HEADERS}"
        token = self._token(endpoint)
        if token is not None:
            head += f"Authorization: {await token.header()}\r\n"
        context = server_name = None
        if access.scheme == "https":
            context = await self._context(access.tls or EndpointTLS())
            server_name = (access.tls and access.tls.server_name) or address
        place = PodPlace(address, endpoint.port, context, server_name)
        most = 2 * access.max_bytes + FRAMING_BYTES
        body = AnswerBody(buffer, access)
        answer = await self._connections.exchange(place, f"{head}\r\n".encode(), body, most)
        if answer.code != 200:
            if answer.code == 401 and token is not None:
                token.refuse()
            note = ", and redirects are not followed" if 300 <= answer.code < 400 else ""
            raise ScrapeError("status", f"HTTP status {answer.code}{note}")
        return ScrapedBody(body.finish(), exposition.is_openmetrics(answer.headers.get("Content-Type", "")))

    async def _context(self, tls: EndpointTLS) -> ssl.SSLContext:
        """Return the context of a rule, which changes only with its CA file: connections are kept by it."""
        async with self._building[tls]:  # one builds for all that wait, in a thread as in FollowedFiles
            if tls not in self._contexts:
                try:
                    self._contexts[tls] = await asyncio.to_thread(
                        connection.follow_tls,
                        TLSFiles(tls.ca_file, verify=tls.verify),
                        self._clock,
                        self._problems,
                        receiver="pods",
                        flag="scrape.tls.caFile",
                        subject=tls.ca_file or "the system's CAs",
                    )
                except InputError as error:
                    raise ScrapeError("credentials", matchers.shorten(str(error))) from error
        return await self._contexts[tls].value()

    def _token(self, endpoint: ScrapeEndpoint) -> connection.FileAuthorization | None:
        """Return the rule's token, None for a pod that must not get it."""
        credentials = endpoint.access.credentials
        if credentials is None or endpoint.namespace not in credentials.namespaces:
            return None
        path = credentials.token_file
        token = self._tokens.get(path)
        if token is None:
            real = Path(path).resolve()
            if scrape_keys.is_own_identity(str(real)) or self._service_account.resolve() in real.parents:
                text = f"{path} is our own service account token, which is never sent to pods"
                raise ScrapeError("credentials", text)
            flag = "scrape.credentials.tokenFile"
            try:
                token = self._tokens[path] = connection.FileAuthorization(
                    path, self._render, flag, self._clock, self._problems, receiver="pods"
                )
            except InputError as error:
                raise ScrapeError("credentials", matchers.shorten(str(error))) from error
        return token

    def _render(self, text: str) -> str:
        """Return the header's value. Raises ValueError for a text that is no token, or that is our own."""
        header = connection.render_bearer(text)
        try:
            own = (self._service_account / "token").read_text(encoding="utf-8").strip()
        except OSError:
            own = ""
        if own == text:
            raise ValueError("a token other than that of our own service account")
        return header
