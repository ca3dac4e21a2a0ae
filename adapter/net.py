"""What HTTP clients share: the limit on open files, the proxy for a URL, and reasons of failed connections.

aiohttp's messages contain the SSL context as a Python object, and errors of the ssl module their arguments
and the place in the C code. The text here has host and port but never the URL: the caller names what it
requested.
"""

import contextlib
import ipaddress
import os
import re
import resource
import ssl
from urllib.parse import urlsplit
from urllib.request import getproxies_environment

import aiohttp

_WRONG_PROTOCOL = frozenset(
    {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNEXPECTED_MESSAGE", "PACKET_LENGTH_TOO_LONG"}
)
"""OpenSSL's reasons for a response without TLS."""


_PLACE = re.compile(r"^\[[^]]*\] | \(_ssl\.c:\d+\)$")


def raise_file_limit() -> int:
    """Let the process open as many files as it may allow itself, and return how many that are.

    A container starts with 1,024, so that programs that use select() work.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # a system may allow fewer than its hard limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return soft if soft >= 0 else 1 << 20  # -1 is no limit


def describe_error(error: BaseException) -> str:
    """Return the reason of an error of aiohttp, of ssl or of the system."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _tls(error.certificate_error, f"{error.host}:{error.port}")
    if isinstance(error, aiohttp.ClientConnectorError):
        cause, server = error.os_error, f"{error.host}:{error.port}"
        if isinstance(cause, ssl.SSLError):
            return _tls(cause, server)
        return f"cannot connect to {server}: {_system(cause)}"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ssl.SSLError):
        return _tls(error, "the server")
    if isinstance(error, OSError) and not error.filename:
        return _system(error)
    return str(error) or type(error).__name__


def describe_file_error(error: Exception) -> str:
    """Return why a file of certificates cannot be loaded."""
    return _openssl(error) if isinstance(error, ssl.SSLError) else describe_error(error)


def _tls(error: BaseException, server: str) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of {server} is not accepted: {error.verify_message or error.reason}".rstrip(
            "."
        )
    reason = _openssl(error)
    if reason in _WRONG_PROTOCOL:
        return f"{server} does not speak TLS: http:// instead of https://?"
    return f"the TLS handshake with {server} failed: {reason}"


def _openssl(error: BaseException) -> str:
    """Return OpenSSL's reason, without the library and the place in the C code."""
    return getattr(error, "reason", "") or _PLACE.sub("", str(error.args[-1] if error.args else error))


def _system(error: OSError) -> str:
    """Return the system's message. asyncio replaces it by the addresses it tried, but keeps the number."""
    if error.errno and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error) or type(error).__name__


def proxy_of(base: str, host: str) -> str:
    """Return the URL of the proxy, "" for none.

    As in Go, loopback addresses need no proxy, `ALL_PROXY` is ignored, and a value without a scheme means
    HTTP.
    """
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    if local or not getproxies_environment():
        return ""
    from requests.utils import get_environ_proxies  # noqa: PLC0415 - knows NO_PROXY, and takes 6 MiB

    proxy = get_environ_proxies(base).get(urlsplit(base).scheme, "")
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"
