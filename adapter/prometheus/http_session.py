"""prometheus-api-client for one Prometheus, with our TLS files, headers, proxy and errors.

The library is given a session, because its own reads certificates and proxies from the environment and
repeats what fails. The session sends what the library asks for as queries are sent, and bounds the answers.
"""

import contextlib
import ssl
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import requests
from prometheus_api_client.exceptions import PrometheusApiClientException
from prometheus_api_client.prometheus_connect import PrometheusConnect
from requests import exceptions
from requests.adapters import HTTPAdapter
from urllib3.response import BaseHTTPResponse
from urllib3.util.retry import Retry

from adapter.errors import PrometheusError
from adapter.prometheus import endpoint, response
from adapter.prometheus.endpoint import PrometheusServer

BodyReader = Callable[[Iterable[bytes]], Iterator[bytes]]
"""Takes the parts of a body while they arrive, and returns the parts of what the library decodes."""

_NO_RETRY = Retry(0, read=False)
_CHUNK = 256 * 1024
_REFUSAL_BYTES = 64 * 1024


class EndpointSession(requests.Session):
    """A session for one Prometheus.

    `unsent` are parameters that the library adds and upstream does not send.
    """

    def __init__(
        self, server: PrometheusServer, read: BodyReader, *, unsent: frozenset[str] = frozenset()
    ) -> None:
        super().__init__()
        self._server = server
        self._read = read
        self._unsent = unsent
        self.trust_env = False  # proxies are resolved already; netrc and CA variables do not apply
        self.headers = requests.structures.CaseInsensitiveDict(server.headers)
        self.max_redirects = 10
        self.hooks["response"] = [self._bound]
        if server.proxy:
            self.proxies = {"http": server.proxy, "https": server.proxy}
        system, tls = ssl.get_default_verify_paths(), server.tls
        self.verify = tls.verify and (tls.ca_file or system.cafile or system.capath or True)
        self.cert = (tls.cert_file, tls.key_file) if tls.cert_file else None
        if tls.server_name:
            adapter = HTTPAdapter(max_retries=_NO_RETRY)
            adapter.poolmanager.connection_pool_kw |= dict.fromkeys(
                ("server_hostname", "assert_hostname"), tls.server_name
            )
            # a longer prefix than that of the library's adapter, so that it takes precedence
            self.mount(f"{server.endpoint.base}/api", adapter)

    def client(self) -> Any:
        connect: Any = PrometheusConnect  # its types ask for more than it uses
        server = self._server
        return connect(server.endpoint.base, session=self, retry=_NO_RETRY, timeout=server.timeout)

    def prepare_request(self, request: Any) -> requests.PreparedRequest:
        """Prepare a request with the endpoint's verb, parameters and length of a URL."""
        params = [(name, str(value)) for name, value in request.params.items() if name not in self._unsent]
        place = self._server.endpoint
        path = request.url.removeprefix(place.base)
        request.method, request.url, body = place.request(path, params)
        request.params = {}
        if body is not None:
            request.data = body
            request.headers["Content-Type"] = "application/x-www-form-urlencoded"
        return super().prepare_request(request)

    def _bound(self, answer: requests.Response, **_: object) -> None:
        """Refuse an error of the server, and let `read` see an answer's body before the library."""
        if answer.is_redirect:
            return
        if answer.status_code >= 300:
            with answer:
                readable = answer.status_code in response.READABLE_STATUSES
                refusal = next(answer.iter_content(_REFUSAL_BYTES), b"") if readable else b""
            raise response.explain_refusal(answer.status_code, refusal)
        answer.raw = _Body(answer.raw, self._read)


class _Body:
    """The body of a response, whose parts pass through a reader."""

    def __init__(self, raw: BaseHTTPResponse, read: BodyReader) -> None:
        self._raw = raw
        self._read = read

    def stream(self, _size: int, *, decode_content: bool) -> Iterator[bytes]:
        return self._read(self._raw.stream(_CHUNK, decode_content=decode_content))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)


@contextlib.contextmanager
def mapped_errors() -> Iterator[None]:
    """Turn what the library, requests and TLS files raise into PrometheusError."""
    try:
        yield
    except requests.RequestException as error:
        raise _map_error(error) from error
    except PrometheusApiClientException as error:
        raise PrometheusError("status", response.shorten(str(error))) from error
    except OSError as error:  # for TLS files that cannot be read, such as half-written ones
        raise PrometheusError("unreachable", response.shorten(error.strerror or str(error))) from error


def _map_error(error: requests.RequestException) -> PrometheusError:
    """Map an error of requests by its innermost cause: outer ones hold the URL and memory addresses."""
    cause: BaseException = error
    while (inner := cause.__cause__ or cause.__context__) is not None:
        cause = inner
    match error:
        case exceptions.TooManyRedirects() | exceptions.InvalidURL() | exceptions.InvalidSchema():
            return PrometheusError("status", "too many redirects, or a redirect to an invalid URL")
        case exceptions.ChunkedEncodingError() | exceptions.ContentDecodingError():
            return PrometheusError("unreachable", "the connection broke within the answer")
        case _ if isinstance(error, requests.Timeout) or isinstance(cause, TimeoutError):
            return PrometheusError("timeout", "no answer in time")
        case _ if isinstance(cause, ssl.SSLError):
            text = endpoint.explain_tls(cause)
        case exceptions.SSLError():
            text = f"certificate not accepted: {cause}"
        case _:
            text = (isinstance(cause, OSError) and cause.strerror) or str(cause)
    return PrometheusError("unreachable", response.shorten(text))
