"""HTTP requests to Prometheus over keep-alive connections, each written as bytes.

aiohttp connects, also through proxies, keeps the connections and parses the answers. Its `ClientSession`,
which would send the requests as well, takes more processor time for a request than all of that.
"""

import re
import ssl
from collections.abc import Callable, Mapping
from typing import NamedTuple
from weakref import WeakSet

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.streams import StreamReader
from yarl import URL

from adapter.errors import PrometheusError
from adapter.prometheus.endpoint import EndpointRequest

MAX_REDIRECTS = 10  # as Go's client
WRONG_REDIRECT = "too many redirects, or a redirect to an invalid URL"

_KEEP_ALIVE_SECONDS = 90.0  # as Go's transport; Prometheus itself closes after five minutes
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization"})
_LINE_END = re.compile(r"[\r\n\0]")
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None)  # the caller has one for the whole query


class Origin(NamedTuple):
    """What requests to one server have in common. `proxy` is "" for a direct connection."""

    url: str
    headers: Mapping[str, str]
    tls: ssl.SSLContext
    server_name: str
    proxy: str


class HttpAnswer(NamedTuple):
    """An answer whose body is not read yet.

    `release` closes the connection unless the body has been read to its end.
    """

    status: int
    headers: Mapping[str, str]
    body: StreamReader
    release: Callable[[], None]


class HttpConnections:
    """Keep-alive connections, to one Prometheus and to where it redirects."""

    def __init__(self, limit: int, note_retry: Callable[[], None]) -> None:
        """`note_retry` is called if a request is sent again."""
        self._connector = aiohttp.TCPConnector(limit=limit, keepalive_timeout=_KEEP_ALIVE_SECONDS)
        self._note_retry = note_retry
        self._used: WeakSet[ResponseHandler] = WeakSet()
        self._head: _RequestHead | None = None

    @property
    def closed(self) -> bool:
        return self._connector.closed

    async def close(self) -> None:
        """Close all connections; requests in flight fail."""
        await self._connector.close()

    async def send(self, request: EndpointRequest, origin: Origin) -> HttpAnswer:
        """Return the answer to a request, after redirects.

        Raises PrometheusError for a redirect that cannot be followed, and what aiohttp raises.
        """
        for _ in range(MAX_REDIRECTS):
            answer = await self._exchange(request, origin)
            if answer.status not in _REDIRECTS or "Location" not in answer.headers:
                return answer
            answer.release()
            request, origin = _follow(request, origin, answer)
        raise PrometheusError("status", WRONG_REDIRECT)

    async def _exchange(self, request: EndpointRequest, origin: Origin) -> HttpAnswer:
        """Send a request, and once more if the server had closed the idle connection that was used."""
        repeated = False
        while True:
            if self._head is None or self._head.origin != origin:
                self._head = _RequestHead(origin)
            head = self._head
            connection = await self._connector.connect(head.dialed, [], _NO_TIMEOUT)
            protocol = connection.protocol
            assert protocol is not None
            was_used = protocol in self._used
            try:
                protocol.set_response_params(read_until_eof=True)
                if protocol.transport is not None:  # else it is lost already, as `read` says
                    protocol.transport.write(head.render(request))
                message, body = await protocol.read()
                while message.code < 200 and message.code != 101:  # a hint, before the answer
                    message, body = await protocol.read()
            except BaseException as error:
                connection.close()
                is_lost = isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError)
                if repeated or not was_used or not is_lost:
                    raise
            else:
                if not was_used:
                    self._used.add(protocol)
                return HttpAnswer(message.code, message.headers, body, connection.release)
            repeated = True
            self._note_retry()


class _RequestHead:
    """The head of requests to one origin, without the first line."""

    def __init__(self, origin: Origin) -> None:
        if any(map(_LINE_END.search, origin.headers.values())):
            raise PrometheusError("unreachable", "a header to send has a line end")
        self.origin = origin
        self.dialed = aiohttp.ClientRequest(
            "GET",
            URL(origin.url, encoded=True),
            headers=origin.headers,
            ssl=origin.tls,
            server_hostname=origin.server_name or None,
            proxy=URL(origin.proxy) if origin.proxy else None,
        )
        """What aiohttp connects for. It adds credentials of a proxy to the headers when it has connected."""
        is_proxied = bool(origin.proxy) and not self.dialed.is_ssl()
        self._before_path = str(self.dialed.url.origin()) if is_proxied else ""
        self._fields = ""

    def render(self, request: EndpointRequest) -> bytes:
        """Return a request as it is sent, once a connection was opened for it."""
        if not self._fields:
            self._fields = "".join(f"{name}: {value}\r\n" for name, value in self.dialed.headers.items())
        method, url, body = request
        target = f"{self._before_path}{url[len(self.origin.url) :]}"
        head = f"{method} {target} HTTP/1.1\r\n{self._fields}"
        if body is None:
            return f"{head}\r\n".encode()
        length = f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(body)}\r\n\r\n"
        return f"{head}{length}".encode() + body


def _follow(request: EndpointRequest, origin: Origin, answer: HttpAnswer) -> tuple[EndpointRequest, Origin]:
    """Return what a redirect asks for, as aiohttp's session does: another server gets no credentials."""
    before = URL(request.url, encoded=True)
    try:
        url = before.join(URL(answer.headers["Location"]))
        server = url.origin()
    except ValueError as error:
        raise PrometheusError("status", WRONG_REDIRECT) from error
    if url.scheme not in {"http", "https"}:
        raise PrometheusError("status", WRONG_REDIRECT)
    headers = origin.headers
    if server != before.origin():
        headers = {name: value for name, value in headers.items() if name.lower() not in _CREDENTIALS}
    is_read = answer.status == 303 or (answer.status < 303 and request.method == "POST")
    method, body = ("GET", None) if is_read else (request.method, request.body)
    followed = EndpointRequest(method, f"{server}{url.raw_path_qs}", body)
    return followed, origin._replace(url=str(server), headers=headers)
