"""What a failure to reach Prometheus most likely means: the scheme or the path of its URL is wrong.

Used by the query client and by discovery's worker process, so that both say the same.
"""

import re
import ssl

NO_TLS = "the server does not speak TLS: use http:// in place of https://"
ONLY_TLS = "the server expects TLS: use https:// in place of http://"
NO_API = "the server answers, but this is not the API of Prometheus: check host, port and path of the URL"

# What OpenSSL calls the first bytes of a plain HTTP answer, by version.
_PLAIN_ANSWER = frozenset(
    {
        "WRONG_VERSION_NUMBER",
        "RECORD_LAYER_FAILURE",
        "PACKET_LENGTH_TOO_LONG",
        "HTTP_REQUEST",
        "UNEXPECTED_MESSAGE",
    }
)

# How Go's servers, nginx and Apache answer a plain request on a TLS port.
_TLS_PORT = re.compile(
    rb"HTTP request to an HTTPS server|plain HTTP (request was sent )?to (an )?(HTTPS port|SSL)",
    re.IGNORECASE,
)


def of_tls(error: ssl.SSLError) -> str:
    """Return why a TLS connection failed."""
    if getattr(error, "reason", None) in _PLAIN_ANSWER:  # absent where Python itself raises the error
        return NO_TLS
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate not accepted: {error}"
    return f"TLS failed: {error}"


def of_status(status: int, body: bytes = b"") -> str:
    """Return what an HTTP status without an answer of Prometheus means; `body` is its beginning."""
    if status == 400 and _TLS_PORT.search(body):
        return ONLY_TLS
    return f"HTTP status {status}" + (f": {NO_API}" if status == 404 else "")


def of_body(text: str, body: bytes) -> str:
    """Return `text`, which says what is wrong with a body, or a hint where the body, by its beginning, is no JSON object."""
    return text if body.lstrip()[:1] == b"{" else f"not JSON: {NO_API}"
