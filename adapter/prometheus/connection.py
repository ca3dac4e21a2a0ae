"""How Prometheus is reached, for queries and for discovery: URL, TLS files, proxy and credentials.

The precedence is prometheus-adapter's. A CA file means that CA alone and no proxy from the environment, and
it beats both sources of cluster credentials; otherwise the CA of those credentials applies, or the system's
CAs. An explicit Authorization header beats the URL's user and password, which beat a token, which beats basic
authentication. Unlike there, token, password and TLS files are read again when they change.
"""

import logging
import posixpath
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal
from urllib.parse import SplitResult, unquote, urlsplit

from adapter import net
from adapter.errors import Fault, InputError
from adapter.kubernetes import credentials
from adapter.model.clock import Clock
from adapter.prometheus.authorization import (
    Authorization,
    FileAuthorization,
    FixedAuthorization,
    KubeconfigAuthorization,
    render_basic,
    render_bearer,
)
from adapter.prometheus.endpoint import PrometheusEndpoint, TLSFiles
from adapter.telemetry.problems import ProblemLog

_log = logging.getLogger(__name__)

_SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """Everything about the connection that users can set. "" means not given; times are seconds.

    `headers` and `params` (extra query parameters, such as a tenant) are sent with every request.
    `attempt_timeout` bounds a request from its start to the last byte, `request_timeout` also the waiting for
    one of `max_connections`.
    """

    url: str = field(default="https://localhost", repr=False)  # may hold a password
    verb: Literal["GET", "POST"] = "GET"
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    params: tuple[tuple[str, str], ...] = ()
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    token_file: str = ""
    basic_auth_file: str = ""  # one line, user:password
    auth_incluster: bool = False
    kubeconfig: str = ""
    attempt_timeout: float = 5.0
    request_timeout: float = 8.0
    max_connections: int = 20  # as many queries as Prometheus itself runs at once
    max_answer_bytes: int = 64 * 1024 * 1024
    service_account: str = _SERVICE_ACCOUNT


@dataclass(frozen=True, slots=True)
class PrometheusConnection:
    """Resolved settings. `proxy` is "" for a direct connection."""

    settings: PrometheusSettings
    endpoint: PrometheusEndpoint
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    tls: TLSFiles
    proxy: str = field(repr=False)
    authorization: Authorization

    async def request_headers(self) -> dict[str, str]:
        """Return the headers of a request sent now."""
        headers = dict(self.headers)
        if value := await self.authorization.header():
            headers["Authorization"] = value
        return headers


async def open_connection(
    settings: PrometheusSettings, clock: Clock, faults: ProblemLog
) -> PrometheusConnection:
    """Resolve the settings and read the files. Raises InputError with the flag that cannot be used."""
    split = _split_url(settings.url)
    for name, value in settings.headers:
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or re.search(r"[\r\n\0]", value):
            raise _refuse("--prometheus-header", name, "name=value, a header of HTTP without line ends")
    explicit = [value for name, value in settings.headers if name.lower() == "authorization"]
    tls, cluster, cluster_proxy = await _resolve_tls(settings, clock, faults)
    authorization: Authorization
    if explicit:
        authorization = FixedAuthorization(explicit[-1])
    elif split.username is not None:
        authorization = FixedAuthorization(
            render_basic(f"{unquote(split.username)}:{unquote(split.password or '')}")
        )
    elif settings.token_file:
        authorization = FileAuthorization(
            settings.token_file, render_bearer, "--prometheus-token-file", clock, faults
        )
    elif cluster is not None:
        authorization = cluster
    elif settings.basic_auth_file:
        authorization = FileAuthorization(
            settings.basic_auth_file, render_basic, "--prometheus-basic-auth-file", clock, faults
        )
    else:
        authorization = FixedAuthorization()
    host = split.netloc.rpartition("@")[2]
    base = f"{split.scheme}://{host}{_clean(split.path)}"
    return PrometheusConnection(
        settings=settings,
        endpoint=PrometheusEndpoint(base, split.query, settings.verb, settings.params),
        headers=_merge_headers(settings.headers),
        tls=tls,
        proxy="" if settings.ca_file else cluster_proxy or net.proxy_of(base, split.hostname or ""),
        authorization=authorization,
    )


async def _resolve_tls(
    settings: PrometheusSettings, clock: Clock, faults: ProblemLog
) -> tuple[TLSFiles, Authorization | None, str]:
    """Return the TLS files, and the credentials of the cluster that apply with their proxy."""
    if settings.auth_incluster and settings.kubeconfig:
        raise _refuse(
            "--prometheus-auth-config", settings.kubeconfig, "not together with --prometheus-auth-incluster"
        )
    own = TLSFiles(settings.ca_file)
    if settings.cert_file and settings.key_file:  # upstream ignores one without the other
        own = TLSFiles(settings.ca_file, settings.cert_file, settings.key_file)
    elif settings.cert_file or settings.key_file:
        _log.warning("client certificate and key must be set together; neither is used")
    if settings.ca_file:
        return own, None, ""
    if settings.auth_incluster:
        token = FileAuthorization(
            f"{settings.service_account}/token", render_bearer, "--prometheus-auth-incluster", clock, faults
        )
        return TLSFiles(f"{settings.service_account}/ca.crt", own.cert_file, own.key_file), token, ""
    if settings.kubeconfig:
        try:
            found = await credentials.load_configuration(Path(settings.kubeconfig), clock, faults)
        except InputError as error:
            named = [replace(fault, path="--prometheus-auth-config") for fault in error.faults]
            raise InputError(named) from error
        tls = TLSFiles(
            found.ca_file,
            own.cert_file or found.cert_file,
            own.key_file or found.key_file,
            found.verify,
            found.tls_server_name,
        )
        return tls, KubeconfigAuthorization(found), found.proxy
    return own, None, ""


def _merge_headers(headers: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return each header once, without Authorization.

    Compression is used only on request, because it costs more than the network.
    """
    merged = {"accept-encoding": ("Accept-Encoding", "identity")}
    given: set[str] = set()
    for name, value in headers:
        key = name.lower()
        merged[key] = (merged[key][0], f"{merged[key][1]}, {value}") if key in given else (name, value)
        given.add(key)
    merged.pop("authorization", None)
    return tuple(merged.values())


def _split_url(url: str) -> SplitResult:
    try:
        split = urlsplit(url)
        usable = split.scheme in {"http", "https"} and bool(split.hostname) and split.port != 0
    except ValueError:
        usable = False
    if not usable or re.search(r"[\x00-\x20]", url):
        # without user, password and query parameters, which may hold a token
        shown = re.sub(r"^(\w+://)?.*@", r"\1", url.partition("?")[0], flags=re.DOTALL)
        raise _refuse("--prometheus-url", repr(shown), "http://host[:port][/path] or https://...")
    return split


def _clean(path: str) -> str:
    """Return a path as Go's path.Join does, without a final slash, repeated slashes and dots."""
    return posixpath.normpath(f"/{path.lstrip('/')}").rstrip("/")


def _refuse(flag: str, value: str, expected: str) -> InputError:
    return InputError([Fault(path=flag, value=value, expected=expected)])
