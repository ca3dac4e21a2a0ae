"""Reads the endpoints of pods over HTTP: one GET, and a body within its limits or a ScrapeError.

A pod is not trusted. It gets no credentials but the rule's own, in the namespaces that the rule lists.
Redirects are not followed, no proxy is used and no cookie is kept. Bytes, unzipped bytes, lines and time are
bounded.

The bodies that are read or parsed at one time share a budget. A body is charged from its first byte until it
is parsed. If the budget is exceeded, the namespace that holds most loses its largest body: that scrape fails,
and all others go on.
"""

import asyncio
import os
import ssl
import zlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple, Self

import aiohttp
from aiohttp import http_exceptions
from yarl import URL

from adapter.config import scrape_keys
from adapter.config.rules_config import Access, EndpointTLS
from adapter.errors import InputError, ScrapeError
from adapter.model.clock import Clock
from adapter.model.fairness import Ledger
from adapter.model.pod_networks import PodNetworks
from adapter.prometheus import client, connection
from adapter.prometheus.connection import FollowedFiles
from adapter.prometheus.endpoint import TLSFiles
from adapter.rules import matchers
from adapter.rules.scrape import exposition
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import SourceProblems

# As Prometheus sends, without the formats that are not text. Compression costs both sides more than the
# network.
_HEADERS = {
    "Accept": "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "Accept-Encoding": "identity",
    "User-Agent": "fastpath",
}
_KEEP_ALIVE_SECONDS = 150.0  # longer than the longest interval
_UNZIPPED_BYTES = 256 * 1024  # in one step of the event loop
HEADERS_TAKEN, HEADER_BYTES = 64, 4096
"""Bounds on the headers of an answer, and on the bytes of each: heads are not charged to the budget."""

BODIES_BYTES = 48 * 1024 * 1024
"""Budget of all bodies that are read or parsed at one time."""

NAMESPACE_BODIES_BYTES = 24 * 1024 * 1024
"""The part of it that the pods of one namespace may use."""


class ScrapeEndpoint(NamedTuple):
    namespace: str
    address: str
    port: int
    access: Access

    def url(self, networks: PodNetworks) -> str:
        """Return the URL. Raises ScrapeError for an address that must not be scraped."""
        try:
            address = networks.resolve(self.address)
        except ValueError as error:
            raise ScrapeError("unreachable", str(error)) from error
        host = f"[{address}]" if address.version == 6 else str(address)
        return f"{self.access.scheme}://{host}:{self.port}{self.access.path}"


class ScrapedBody(NamedTuple):
    """An unzipped body, and whether its Content-Type is that of OpenMetrics."""

    content: bytes
    openmetrics: bool


class BodyBuffer:
    """One body while it is read and parsed. `lost` is called with the reason if it has to give way."""

    def __init__(self, budget: "BodyBudget", namespace: str) -> None:
        self._budget = budget
        self.namespace = namespace
        self._parts: list[bytes] = []
        self._size = 0
        self._reason = ""
        self.lost: Callable[[str], None] = lambda _: None

    def add(self, part: bytes) -> None:
        """Add a part. Raises ScrapeError if the body had to give way."""
        if not self._reason:
            self._parts.append(part)
            self._size += len(part)
            self._budget.charge(self.namespace, self, self._size)
        if self._reason:
            raise ScrapeError("budget", self._reason)

    def content(self) -> bytes:
        """Return all parts as one and release them. Raises ScrapeError as `add` does."""
        if self._reason:
            raise ScrapeError("budget", self._reason)
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def lose(self, reason: str) -> None:
        """Drop the parts, because other bodies need the memory; the scrape fails with the reason."""
        self._reason = reason
        self._parts = []
        self.lost(reason)

    def close(self) -> None:
        self._parts = []
        self._budget.charge(self.namespace, self, 0)


class BodyBudget:
    def __init__(self, room: int = BODIES_BYTES, namespace_room: int = NAMESPACE_BODIES_BYTES) -> None:
        self._ledger: Ledger[BodyBuffer] = Ledger("bodies", room, namespace_room)

    @property
    def size(self) -> int:
        return self._ledger.total

    def open(self, namespace: str) -> BodyBuffer:
        """Return a buffer for the body of a pod of a namespace, which the caller closes in any case."""
        return BodyBuffer(self, namespace)

    def charge(self, namespace: str, buffer: BodyBuffer, size: int) -> None:
        """Note the size of a body; while it is too much, the namespace that holds most loses its largest."""
        is_over = self._ledger.put(namespace, buffer, size)
        while is_over and (loss := self._ledger.loss(namespace)) is not None:
            self._ledger.put(loss.holder.namespace, loss.holder, 0)
            loss.holder.lose(loss.reason)


class Scraper:
    """Reads pods, with a keep-alive connection to each. An async context manager."""

    def __init__(
        self,
        clock: Clock,
        monitoring: Monitoring,
        problems: SourceProblems,
        *,
        service_account: str = scrape_keys.SERVICE_ACCOUNT,
        networks: PodNetworks | None = None,
    ) -> None:
        """`networks` are the addresses of pods, None for all but loopback.

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
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS, happy_eyeballs_delay=None
            ),
            timeout=aiohttp.ClientTimeout(total=None),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            max_headers=HEADERS_TAKEN,
            max_line_size=HEADER_BYTES,
            max_field_size=HEADER_BYTES,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def fetch(self, endpoint: ScrapeEndpoint, buffer: BodyBuffer) -> ScrapedBody:
        """Return the body of the endpoint now. Raises ScrapeError.

        The body is charged to `buffer`, which the caller closes once the body is processed.
        """
        started = self._clock.monotonic()
        try:
            async with asyncio.timeout(endpoint.access.timeout):
                return await self._fetch(endpoint, buffer)
        except TimeoutError as error:
            raise ScrapeError("timeout", f"no answer in {endpoint.access.timeout:g} s") from error
        except (aiohttp.ClientError, http_exceptions.HttpProcessingError, OSError) as error:
            raise connection_error(error) from error
        finally:
            self._monitoring.scrape_duration.observe(self._clock.monotonic() - started)

    async def _fetch(self, endpoint: ScrapeEndpoint, buffer: BodyBuffer) -> ScrapedBody:
        assert self._session is not None, "used outside its context"
        access = endpoint.access
        headers = _HEADERS
        token = self._token(endpoint)
        if token is not None:
            headers = {**_HEADERS, "Authorization": await token.header()}
        context: ssl.SSLContext | bool = True
        if access.scheme == "https":
            context = await self._context(access.tls or EndpointTLS())
        async with self._session.get(
            URL(endpoint.url(self._networks), encoded=True),
            headers=headers,
            allow_redirects=False,
            ssl=context,
            server_hostname=(access.tls and access.tls.server_name) or None,
        ) as response:
            if response.status != 200:
                if response.status == 401 and token is not None:
                    token.refuse()
                note = ", and redirects are not followed" if 300 <= response.status < 400 else ""
                raise ScrapeError("status", f"HTTP status {response.status}{note}")
            content = await _read(response, access, buffer)
            return ScrapedBody(content, exposition.is_openmetrics(response.headers.get("Content-Type", "")))

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


async def _read(response: aiohttp.ClientResponse, access: Access, buffer: BodyBuffer) -> bytes:
    """Return the unzipped body. Raises ScrapeError beyond a limit."""
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in {"identity", "", "gzip", "x-gzip"}:
        text = f"the body is encoded as {matchers.shorten(encoding)}, which was not requested"
        raise ScrapeError("decode", text)
    unzip = zlib.decompressobj(zlib.MAX_WBITS | 16) if encoding.endswith("gzip") else None
    # both sides of the gzip stream are bounded: a small body can unzip to gigabytes, a large one to nothing
    left = unread = access.max_bytes
    lines = access.max_lines
    if (response.content_length or 0) > left:
        raise _too_large(access)
    async for chunk in response.content.iter_any():
        unread -= len(chunk)
        async for part in _parts(unzip, chunk):
            left -= len(part)
            if left < 0 or unread < 0:
                raise _too_large(access)
            lines -= part.count(b"\n")
            if lines < 0:
                raise ScrapeError("size", f"the body has more than {access.max_lines} lines")
            buffer.add(part)
    if unzip is not None and not unzip.eof:
        raise ScrapeError("decode", "the gzip body is truncated")
    body = buffer.content()
    # a connection that breaks looks like the end of a body without a length, a cut line like a smaller value
    delimited = "Content-Length" in response.headers or "Transfer-Encoding" in response.headers
    if body and not delimited and not body.endswith(b"\n"):
        raise ScrapeError("decode", "the body ends within a line and has no length, so it may be truncated")
    return body


async def _parts(unzip: "zlib._Decompress | None", chunk: bytes) -> AsyncIterator[bytes]:
    """Unzip a chunk in small parts, because a kilobyte may unzip to a megabyte."""
    if unzip is None:
        yield chunk
        return
    while True:
        try:
            part = unzip.decompress(chunk, _UNZIPPED_BYTES)
        except zlib.error as error:
            raise ScrapeError("decode", "the body is not valid gzip") from error
        if unzip.unused_data:
            raise ScrapeError("decode", "data follows the gzip body")
        yield part
        chunk = unzip.unconsumed_tail
        if not chunk and len(part) < _UNZIPPED_BYTES:
            return
        await asyncio.sleep(0)


def _too_large(access: Access) -> ScrapeError:
    return ScrapeError("size", f"the body is larger than {access.max_bytes} bytes")


def connection_error(error: Exception) -> ScrapeError:
    """Map an error of aiohttp or of the socket, without the address: pods that fail alike have one text."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else None
    if cause is not None and cause.errno and not isinstance(cause, ssl.SSLError):
        return ScrapeError("unreachable", f"cannot connect: {os.strerror(cause.errno)}")
    mapped = client.map_error(error)
    return ScrapeError(mapped.kind, str(mapped))
