"""What the query client and the discovery worker share: requests to Prometheus, and what a failure means.

The wire format is prometheus-adapter's, except that a GET with too long a URL becomes a POST. The worker
process starts faster for what this module does not import.
"""

import functools
import re
import ssl
from operator import itemgetter
from typing import Literal, NamedTuple
from urllib.parse import quote_plus

import msgspec

MAX_GET_LENGTH = 8000
"""The longest URL sent with GET: RFC 9110 asks every recipient to support as much; nginx refuses a little
more."""

NO_TLS = "the server does not speak TLS: use http:// in place of https://"
ONLY_TLS = "the server expects TLS: use https:// in place of http://"
NO_API = "the server answers, but this is not the API of Prometheus: check host, port and path of the URL"

# Autoscalers repeat their queries. Longer texts are not kept, so those that are take a few MB at most.
_REPEATED_LENGTH = 1024

# What OpenSSL calls the first bytes of a plain HTTP answer, by version.
_PLAIN_ANSWER = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"}
_PLAIN_ANSWER |= {"HTTP_REQUEST", "UNEXPECTED_MESSAGE"}

# How Go's servers, nginx and Apache answer a plain request on a TLS port.
_TLS_PORT = re.compile(
    rb"HTTP request to an HTTPS server|plain HTTP (request was sent )?to (an )?(HTTPS port|SSL)",
    re.IGNORECASE,
)


class EndpointRequest(NamedTuple):
    """`body` is form-encoded, and None for GET."""

    method: Literal["GET", "POST"]
    url: str
    body: bytes | None


class PrometheusEndpoint(msgspec.Struct, frozen=True):
    """A Prometheus: `base` is scheme, host and cleaned path without a final slash, `query` its query text.

    `params` are sent with every request; with POST they are in the URL, where a gateway reads them.
    """

    base: str
    query: str = ""
    verb: Literal["GET", "POST"] = "GET"
    params: tuple[tuple[str, str], ...] = ()

    def request(self, path: str, params: list[tuple[str, str]]) -> EndpointRequest:
        """Return the request to `path`; with GET the parameters replace the base URL's own query."""
        if self.verb == "GET":
            url = f"{self.base}{path}?{_encode([*params, *self.params])}"
            if len(url) <= MAX_GET_LENGTH:
                return EndpointRequest("GET", url, None)
        query = "&".join(part for part in (self.query, _encode(list(self.params))) if part)
        url = f"{self.base}{path}?{query}" if query else f"{self.base}{path}"
        return EndpointRequest("POST", url, _encode(params).encode())

    def shown(self, path: str) -> str:
        """Return a URL for messages: without query parameters, which may hold a token."""
        return f"{self.base}{path}"


class TLSFiles(msgspec.Struct, frozen=True):
    """CA bundle and client certificate of the connection; "" means the system's CAs and no certificate.

    `server_name` is the name that the server's certificate must have if it is not the URL's host.
    """

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    verify: bool = True
    server_name: str = ""


class PrometheusServer(msgspec.Struct, frozen=True):
    """A Prometheus as another process or thread reaches it. `headers` and `proxy` hold secrets.

    `timeout` bounds what is asked, in seconds, and `max_bytes` an answer.
    """

    endpoint: PrometheusEndpoint
    tls: TLSFiles
    headers: dict[str, str]
    proxy: str
    timeout: float
    max_bytes: int


def format_time(seconds: float) -> str:
    """Return a time or a duration for Prometheus: seconds with up to three decimals, no trailing zeros."""
    text = f"{seconds:.3f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def explain_tls(error: ssl.SSLError) -> str:
    """Return why a TLS connection failed, and the likely mistake in the URL."""
    if getattr(error, "reason", None) in _PLAIN_ANSWER:  # absent where Python itself raises the error
        return NO_TLS
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate not accepted: {error}"
    return f"TLS failed: {error}"


def explain_status(status: int, body: bytes = b"") -> str:
    """Return what an HTTP status without an answer of Prometheus means; `body` is its beginning."""
    if status == 400 and _TLS_PORT.search(body):
        return ONLY_TLS
    return f"HTTP status {status}" + (f": {NO_API}" if status == 404 else "")


def explain_body(text: str, body: bytes) -> str:
    """Return the decoding error `text`, or a hint if the body, by its beginning, is not a JSON object."""
    return text if body.lstrip()[:1] == b"{" else f"not JSON: {NO_API}"


def _encode(params: list[tuple[str, str]]) -> str:
    """Return parameters as Go encodes them: sorted by name, blanks as plus signs."""
    return "&".join([f"{_quote(name)}={_quote(value)}" for name, value in sorted(params, key=itemgetter(0))])


def _quote(text: str) -> str:
    return _quote_kept(text) if len(text) <= _REPEATED_LENGTH else quote_plus(text)


_quote_kept = functools.lru_cache(maxsize=1024)(quote_plus)
