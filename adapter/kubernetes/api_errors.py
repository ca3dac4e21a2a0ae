"""Maps failures of requests to the API server to `errors.KubernetesError`.

A failed connection, an unreadable body and a response with a Status all become one error with a status (0
without a response), a reason and a sentence that says what could not be done. No exception of a library gets
past here.
"""

import contextlib
import errno
from collections.abc import Iterator

import aiohttp
import msgspec
from aiohttp import http_exceptions

from adapter import errors, net
from adapter.kubernetes import codec

FOREIGN = (
    *codec.UNREADABLE,
    aiohttp.ClientError,
    http_exceptions.HttpProcessingError,
    TimeoutError,
    OSError,
    ValueError,
)
"""Exceptions of sending, reading and decoding. ValueError: an invalid header value or host name."""

RESET = "Reset"
"""Reason of an error: the server had closed the connection."""

TOO_DEEP = "TooDeep"
"""Reason of an error: the response contains an object that is nested too deep."""

_MESSAGE_LENGTH = 500


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise `errors.KubernetesError` with status 0 in place of the exceptions of libraries."""
    try:
        yield
    except FOREIGN as error:
        reason = _reason_of(error)
        text = net.describe_error(error)
        raise errors.KubernetesError(
            0, reason, f"cannot {what}: {reason}: {text[:_MESSAGE_LENGTH]}"
        ) from error


def _reason_of(error: BaseException) -> str:
    """Return the reason of a foreign exception. The order matters: some belong to several classes."""
    if isinstance(error, aiohttp.ServerDisconnectedError | ConnectionResetError | BrokenPipeError):
        return RESET
    if isinstance(error, OSError) and error.errno in {errno.ECONNRESET, errno.EPIPE}:
        return RESET
    if isinstance(error, RecursionError):
        return TOO_DEEP
    if isinstance(error, msgspec.MsgspecError):
        return "Decode"
    if isinstance(error, TimeoutError):
        return "Timeout"
    if isinstance(
        error, aiohttp.ClientPayloadError | aiohttp.ClientResponseError | http_exceptions.HttpProcessingError
    ):
        return "Broken"
    return "Unreachable"


def refusal_of(what: str, response: aiohttp.ClientResponse, text: bytes) -> errors.KubernetesError:
    """Build the error of a refused request, whose body is a Status or any text."""
    try:
        status = codec.STATUS.decode(text)
    except codec.UNREADABLE:
        status = codec.Status()
    message = status.message or text.decode(errors="replace").strip()
    error = error_of(
        what, codec.Status(response.status, status.reason or response.reason or "Unknown", message)
    )
    error.plain = not status.message
    return error


def error_of(what: str, status: codec.Status) -> errors.KubernetesError:
    """Build the error of a Status."""
    message = status.message[:_MESSAGE_LENGTH]
    text = f"cannot {what}: {status.code} {status.reason}" + (f": {message}" if message else "")
    error = errors.KubernetesError(status.code, status.reason, text)
    error.said = message
    return error
