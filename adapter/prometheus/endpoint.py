"""Where a request to Prometheus goes and in which form: URL, method, body.

Shared by the query client and by discovery's worker process, which starts faster for what this module does not import. The
law is prometheus-adapter's wire format; ours is that a GET that would be too long becomes a POST.
"""

from typing import Literal, NamedTuple
from urllib.parse import urlencode

import msgspec

MAX_GET_LENGTH = 8000
"""The longest URL sent with GET: what RFC 9110 asks every recipient to support; nginx refuses a little above."""


class Request(NamedTuple):
    """A request ready to be sent; `body` is form-encoded and None for GET."""

    method: Literal["GET", "POST"]
    url: str
    body: bytes | None


class Target(msgspec.Struct, frozen=True):
    """A Prometheus: `base` is scheme, host and cleaned path without a final slash; `query` is the base URL's own query text.

    `params` are sent with every request, in the URL also with POST, since a gateway in front reads them there.
    """

    base: str
    query: str = ""
    verb: Literal["GET", "POST"] = "GET"
    params: tuple[tuple[str, str], ...] = ()

    def request(self, endpoint: str, params: list[tuple[str, str]]) -> Request:
        """Return the request to `endpoint` (``/api/v1/query``). With GET the parameters replace the base URL's own query."""
        if self.verb == "GET":
            url = f"{self.base}{endpoint}?{_encode([*params, *self.params])}"
            if len(url) <= MAX_GET_LENGTH:
                return Request("GET", url, None)
        query = "&".join(part for part in (self.query, _encode(list(self.params))) if part)
        url = f"{self.base}{endpoint}?{query}" if query else f"{self.base}{endpoint}"
        return Request("POST", url, _encode(params).encode())

    def shown(self, endpoint: str) -> str:
        """Return the URL of an endpoint for people: without query parameters, which may hold a token."""
        return f"{self.base}{endpoint}"


class Trust(msgspec.Struct, frozen=True):
    """Whom the server must be signed by and what we show it: files, or "" for the system's CAs and for no certificate.

    `server_name` is the name the server's certificate must bear where it is not the URL's host.
    """

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    verify: bool = True
    server_name: str = ""


def format_time(seconds: float) -> str:
    """Return a time or a duration as Prometheus takes it: seconds, up to three decimals, no trailing zeros."""
    text = f"{seconds:.3f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _encode(params: list[tuple[str, str]]) -> str:
    """Return parameters as Go encodes them: sorted by name, blanks as plus signs."""
    return urlencode(sorted(params, key=lambda pair: pair[0]))
