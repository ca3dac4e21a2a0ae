"""Reading the endpoints of pods over HTTP: one GET, one body within its limits, or a ScrapeError.

Not here: when a pod is read (`scraperounds`), what its body means (`rules.scrape.exposition`), which pods (`scrape.cache`). The law: a pod
is foreign. It gets no credentials but the rule's own, in the namespaces that the rule lists; it cannot send us elsewhere, no proxy
stands between, no cookie is kept; bytes, unzipped bytes, lines and time are bounded.
"""

import asyncio
import math
import os
import ssl
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple, Self

import aiohttp
from aiohttp import http_exceptions
from yarl import URL

from adapter.config import scrape_keys
from adapter.config.scrape_keys import Access, EndpointTLS
from adapter.errors import InputError, ScrapeError
from adapter.model.clock import Clock
from adapter.model.pod_networks import PodNetworks
from adapter.prometheus import authorization, client
from adapter.rules import matchers
from adapter.rules.scrape import exposition
from adapter.scrape.bodies import Buffer
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

# As Prometheus asks, without the formats that are not text. Compression costs both sides more than a cluster's network does.
_HEADERS = {
    "Accept": "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
    "Accept-Encoding": "identity",
    "User-Agent": "fastpath",
}
_KEEP_ALIVE_SECONDS = 150.0  # longer than the longest interval
_UNZIPPED_BYTES = 256 * 1024  # in one step of the event loop
HEADERS_TAKEN = 64
HEADER_BYTES = 4096
"""Headers of an answer, and bytes of each: a head is not charged to a budget."""
_TRUST_SECONDS = 60.0  # how often, at most, the file with a rule's authorities is read again


class Endpoint(NamedTuple):
    """Where a pod is read, and how."""

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


class Body(NamedTuple):
    """What a pod has shown: the body, unzipped, and whether its Content-Type is that of OpenMetrics."""

    content: bytes
    openmetrics: bool


class Scraper:
    """Reads pods, keeping a connection to each; open it as a context manager."""

    def __init__(
        self,
        clock: Clock,
        monitoring: Monitoring,
        faults: ProblemLog,
        *,
        service_account: str = scrape_keys.SERVICE_ACCOUNT,
        networks: PodNetworks | None = None,
    ) -> None:
        """`service_account`: where our own token is mounted; what is the same file is never sent.

        `networks`: where pods are; None for anywhere, loopback excepted.
        """
        self._networks = networks or PodNetworks()
        self._clock = clock
        self._monitoring = monitoring
        self._faults = faults
        self._service_account = Path(service_account)
        self._tokens: dict[str, authorization.FileAuthorization] = {}
        self._trusts: dict[EndpointTLS, _Trust] = {}
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

    async def fetch(self, endpoint: Endpoint, buffer: Buffer | None = None) -> Body:
        """Return what the pod shows now. Raises ScrapeError.

        The body is charged to `buffer`, which the caller closes once the body is processed; None for a body that is
        read alone.
        """
        started = self._clock.monotonic()
        try:
            async with asyncio.timeout(endpoint.access.timeout):
                return await self._fetch(endpoint, buffer or Buffer())
        except TimeoutError as error:
            raise ScrapeError("timeout", f"no answer in {endpoint.access.timeout:g} s") from error
        except (aiohttp.ClientError, http_exceptions.HttpProcessingError, OSError) as error:
            raise connection_error(error) from error
        finally:
            self._monitoring.scrape_duration.observe(self._clock.monotonic() - started)

    async def _fetch(self, endpoint: Endpoint, buffer: Buffer) -> Body:
        assert self._session is not None, "used outside its context"
        access = endpoint.access
        headers = _HEADERS
        token = self._token(endpoint)
        if token is not None:
            headers = {**_HEADERS, "Authorization": await token.header()}
        trust: ssl.SSLContext | bool = True
        if access.scheme == "https":
            trust = await self._trust(access.tls or EndpointTLS())
        async with self._session.get(
            URL(endpoint.url(self._networks), encoded=True),
            headers=headers,
            allow_redirects=False,
            ssl=trust,
            server_hostname=(access.tls and access.tls.server_name) or None,
        ) as response:
            if response.status != 200:
                if response.status == 401 and token is not None:
                    token.refuse()
                note = ", and redirects are not followed" if 300 <= response.status < 400 else ""
                raise ScrapeError("status", f"HTTP status {response.status}{note}")
            content = await _read(response, access, buffer)
            return Body(content, exposition.is_openmetrics(response.headers.get("Content-Type", "")))

    def _token(self, endpoint: Endpoint) -> authorization.FileAuthorization | None:
        """Return where the rule's token comes from, None where the pod may see none."""
        credentials = endpoint.access.credentials
        if credentials is None or endpoint.namespace not in credentials.namespaces:
            return None
        path = credentials.token_file
        token = self._tokens.get(path)
        if token is None:
            if self._is_own_identity(path):
                raise ScrapeError(
                    "credentials", f"{path} is our own service account token, which is never sent to pods"
                )
            try:
                token = self._tokens[path] = authorization.FileAuthorization(
                    path,
                    self._render,
                    "scrape.credentials.tokenFile",
                    self._clock,
                    self._faults,
                    receiver="pods",
                )
            except InputError as error:
                raise ScrapeError("credentials", matchers.shorten(str(error))) from error
        return token

    def _is_own_identity(self, path: str) -> bool:
        """Whether a path leads, over whatever links, to where our service account is mounted."""
        real = Path(path).resolve()
        return scrape_keys.is_own_identity(str(real)) or self._service_account.resolve() in real.parents

    def _render(self, text: str) -> str:
        """Return the header's value; ValueError for a text that is no token or is our own, however it came into the file."""
        header = authorization.render_bearer(text)
        try:
            own = (self._service_account / "token").read_text(encoding="utf-8").strip()
        except OSError:
            own = ""
        if own == text:
            raise ValueError("a token other than that of our own service account")
        return header

    async def _trust(self, tls: EndpointTLS) -> ssl.SSLContext:
        trust = self._trusts.get(tls)
        if trust is None:
            trust = self._trusts[tls] = _Trust(tls)
        return await trust.context(self._clock.monotonic())


class _Trust:
    """The authorities that a rule names, read by one scrape for all.

    The context is another only when they are: connections are kept by it.
    """

    def __init__(self, tls: EndpointTLS) -> None:
        self._tls = tls
        self._known: tuple[bytes, ssl.SSLContext] | None = None
        self._good_until = -math.inf
        self._reading = asyncio.Lock()

    async def context(self, now: float) -> ssl.SSLContext:
        """Return what they are by now, or were when they could last be read; ScrapeError if they never could."""
        async with self._reading:
            if self._known is None or now >= self._good_until:
                try:
                    self._known = await asyncio.to_thread(
                        self._read
                    )  # all of a system's authorities take their time
                except (OSError, ValueError) as error:
                    if self._known is None:
                        text = f"authorities cannot be read: {matchers.shorten(str(error))}"
                        raise ScrapeError("credentials", text) from error
                self._good_until = now + _TRUST_SECONDS
            return self._known[1]

    def _read(self) -> tuple[bytes, ssl.SSLContext]:
        file = self._tls.ca_file or ssl.get_default_verify_paths().cafile
        text = Path(file).read_bytes() if file else b""
        if self._known is not None and self._known[0] == text:
            return self._known
        return text, _build_trust(self._tls)


def _build_trust(tls: EndpointTLS) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca_file or None)
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


async def _read(response: aiohttp.ClientResponse, access: Access, buffer: Buffer) -> bytes:
    """Return the body, unzipped, within the limits."""
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in {"identity", "", "gzip", "x-gzip"}:
        raise ScrapeError(
            "decode", f"the body is encoded as {matchers.shorten(encoding)}, which was not asked for"
        )
    unzip = zlib.decompressobj(zlib.MAX_WBITS | 16) if encoding.endswith("gzip") else None
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
        raise ScrapeError("decode", "the zipped body was cut short")
    body = buffer.content()
    delimited = "Content-Length" in response.headers or "Transfer-Encoding" in response.headers
    if body and not delimited and not body.endswith(b"\n"):
        raise ScrapeError("decode", "the body ends within a line, and nothing says that it ends there")
    return body


async def _parts(unzip: "zlib._Decompress | None", chunk: bytes) -> AsyncIterator[bytes]:
    """Yield what a chunk unzips to in small parts: a kilobyte may be a megabyte."""
    if unzip is None:
        yield chunk
        return
    while True:
        try:
            part = unzip.decompress(chunk, _UNZIPPED_BYTES)
        except zlib.error as error:
            raise ScrapeError("decode", "the body is not zipped as it says") from error
        if unzip.unused_data:
            raise ScrapeError("decode", "something follows the zipped body")
        yield part
        chunk = unzip.unconsumed_tail
        if not chunk and len(part) < _UNZIPPED_BYTES:
            return
        await asyncio.sleep(0)


def _too_large(access: Access) -> ScrapeError:
    return ScrapeError("size", f"the body is larger than {access.max_bytes} bytes")


def connection_error(error: Exception) -> ScrapeError:
    """Return our error for one of aiohttp's or of the socket's, the same for all pods that fail alike: without address or port."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else None
    if cause is not None and cause.errno and not isinstance(cause, ssl.SSLError):
        return ScrapeError("unreachable", f"cannot connect: {os.strerror(cause.errno)}")
    mapped = client.map_error(error)
    return ScrapeError(mapped.kind, str(mapped))
