"""What goes wrong with a request to the API server, said as `errors.KubernetesError`.

What lives here: which exceptions the libraries raise, one word for each, and what an answer that refuses says. Not here: whether to ask
again (`sending`). The law: no exception of a library leaves, and an error says what could not be done.
"""

import contextlib
import errno
from collections.abc import Iterator

import aiohttp
import msgspec
from aiohttp import http_exceptions
from kubernetes_asyncio.client import exceptions
from kubernetes_asyncio.config import ConfigException

from adapter import errors
from adapter.kubernetes import codec
from adapter.net import connect_errors

FOREIGN = (
    *codec.UNREADABLE,
    aiohttp.ClientError,
    http_exceptions.HttpProcessingError,
    exceptions.OpenApiException,
    ConfigException,
    TimeoutError,
    OSError,
    ValueError,
)
"""What sending, reading and decoding may raise. ValueError: a header that cannot be sent, a host that is no name."""

RESET = "Reset"
"""The reason of an error whose request met a connection that the other side had closed."""

TOO_DEEP = "TooDeep"
"""The reason of an error whose answer has an object with more levels than can be followed."""

_MESSAGE_LENGTH = 500


@contextlib.contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn what libraries raise into `errors.KubernetesError` with status 0."""
    try:
        yield
    except FOREIGN as error:
        reason = _reason_of(error)
        text = connect_errors.describe(error)
        raise errors.KubernetesError(
            0, reason, f"cannot {what}: {reason}: {text[:_MESSAGE_LENGTH]}"
        ) from error


def _reason_of(error: BaseException) -> str:
    """Return one word for a foreign exception; the order matters, for some are of several kinds."""
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
    """Return the error that an answer says: its body is a Status, or any text."""
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
    """Return the error that a Status says."""
    message = status.message[:_MESSAGE_LENGTH]
    text = f"cannot {what}: {status.code} {status.reason}" + (f": {message}" if message else "")
    error = errors.KubernetesError(status.code, status.reason, text)
    error.said = message
    return error
