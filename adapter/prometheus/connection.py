"""How Prometheus is reached, for queries and for discovery: URL, TLS, proxy and credentials.

The precedence is prometheus-adapter's. A CA file means that CA alone and no proxy from the environment, and
it beats both sources of cluster credentials; otherwise the CA of those credentials applies, or the system's
CAs. An explicit Authorization header beats the URL's user and password, which beat a token, which beats basic
authentication.

Unlike there, token, password and TLS files are read again when they change, because Kubernetes rotates tokens
under the same path. An `ssl.SSLContext` cannot unload what it has loaded, so changed TLS files mean a new
context. The HTTP client keeps idle connections by context: after a change it opens new ones, while queries in
flight end on theirs.
"""

import base64
import contextlib
import logging
import posixpath
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal
from urllib.parse import SplitResult, unquote, urlsplit

from adapter import net
from adapter.errors import Fault, InputError
from adapter.kubernetes import credentials
from adapter.kubernetes.credentials import ClientConfiguration
from adapter.model.clock import Clock
from adapter.prometheus.endpoint import PrometheusEndpoint, TLSFiles
from adapter.telemetry.problems import ProblemLog

_log = logging.getLogger(__name__)

FILE_CHECK_SECONDS = 1.0
"""How often, at most, credentials and TLS files are checked for changes."""

_SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_TLS_SUBJECT = "prometheus-tls"

# Time, inode and size of each file: Kubernetes swaps a link, editors replace or rewrite.
_Identity = tuple[tuple[int, int, int], ...]


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


class Authorization:
    """The Authorization header of requests: a constant value, "" for no header."""

    def __init__(self, value: str = "") -> None:
        self._value = value

    async def header(self) -> str:
        """Return the header's value now."""
        return self._value

    def refuse(self) -> None:
        """Note that the server refused the last value with 401."""


class FileAuthorization(Authorization):
    """A value rendered from a file.

    The file is checked for changes (time, size or inode: Kubernetes swaps links) once a second at most, and
    at the next request after a refusal. If it cannot be read, the last value stays in use, as in client-go.
    """

    def __init__(
        self,
        path: str,
        render: Callable[[str], str],
        flag: str,
        clock: Clock,
        problems: ProblemLog,
        *,
        receiver: str = "Prometheus",
    ) -> None:
        """`flag` and `receiver` are for messages. `render` raises ValueError with the text that it expected.

        Raises InputError if the file cannot be read now.
        """
        super().__init__()
        self._receiver = receiver
        self._path = Path(path)
        self._render = render
        self._flag = flag
        self._clock = clock
        self._problems = problems
        self._identity: _Identity | None = None
        self._next_check = 0.0
        try:
            self._read()
        except (OSError, ValueError) as error:
            expected = f"a readable file ({error.strerror})" if isinstance(error, OSError) else str(error)
            raise InputError([Fault(path=flag, value=path, expected=expected)]) from error
        self._next_check = clock.monotonic() + FILE_CHECK_SECONDS

    async def header(self) -> str:
        now = self._clock.monotonic()
        if now >= self._next_check:
            self._next_check = now + FILE_CHECK_SECONDS
            try:
                self._read()
            except (OSError, ValueError) as error:
                message = f"credentials for {self._receiver} cannot be reloaded; the old ones stay in use"
                self._problems.report("credentials", message, str(error), subject=self._flag)
            else:
                self._problems.resolve("credentials", subject=self._flag)
        return self._value

    def refuse(self) -> None:
        """Check the file at the next request."""
        self._next_check = 0.0

    def _read(self) -> None:
        # a few hundred bytes of a local file, usually in memory: not worth a thread
        identity = _identify(self._path)
        if identity != self._identity:
            self._value = self._render(self._path.read_text(encoding="utf-8").strip())
            self._identity = identity


class KubeconfigAuthorization(Authorization):
    """The credentials of a kubeconfig's user. They are renewed when due, even if the last were refused."""

    def __init__(self, configuration: ClientConfiguration) -> None:
        super().__init__()
        self._configuration = configuration

    async def header(self) -> str:
        return await self._configuration.authorization()


def render_bearer(text: str) -> str:
    """Return the header's value for a token. Raises ValueError that says what is expected."""
    if not text or not text.isascii() or not text.isprintable():
        raise ValueError("a file that holds a token, one line of printable characters")
    return f"Bearer {text}"


def render_basic(text: str) -> str:
    """Return the header's value for ``user:password``. Raises ValueError that says what is expected."""
    if ":" not in text or not text.isprintable():
        raise ValueError("a file that holds one line, user:password")
    return "Basic " + base64.b64encode(text.encode()).decode()


class FollowedTLS:
    """The context for some `TLSFiles`.

    Files that cannot be used, such as half-written ones, leave the last context in use. That is reported
    once, and the files are checked every second until they can be used.
    """

    def __init__(self, files: TLSFiles, clock: Clock, problems: ProblemLog) -> None:
        """Read the files. Raises InputError for files that cannot be used."""
        self._files = files
        self._clock = clock
        self._problems = problems
        self._paths = tuple(Path(name) for name in (files.ca_file, files.cert_file, files.key_file) if name)
        self._next_check = clock.monotonic() + FILE_CHECK_SECONDS
        self._identity: _Identity | None = None
        with contextlib.suppress(OSError):  # building the context names the file
            self._identity = _identify(*self._paths)
        self._context = build_context(files)

    def context(self) -> ssl.SSLContext:
        """Return the context of the files as of now or of a second ago."""
        now = self._clock.monotonic()
        if self._paths and now >= self._next_check:
            self._next_check = now + FILE_CHECK_SECONDS
            self._reload()
        return self._context

    def _reload(self) -> None:
        # a few small local files, read only when they changed: not worth a thread
        try:
            identity = _identify(
                *self._paths
            )  # before reading: a change in between is found by the next check
            if identity != self._identity:
                self._context = build_context(self._files)
                self._identity = identity
        except (OSError, InputError) as error:
            message = "TLS files for Prometheus cannot be reloaded; the old ones stay in use"
            self._problems.report("credentials", message, str(error), subject=_TLS_SUBJECT)
        else:
            self._problems.resolve("credentials", subject=_TLS_SUBJECT)


def build_context(files: TLSFiles) -> ssl.SSLContext:
    """Return the client's TLS context. Raises InputError for files that cannot be used."""
    try:
        context = ssl.create_default_context(cafile=files.ca_file or None)
    except OSError as error:  # SSLError is one
        raise _refuse(
            "--prometheus-ca-file", files.ca_file, f"a file of PEM certificates ({_reason(error)})"
        ) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # Go does not require it, and private CAs do not meet it
    if not files.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if files.cert_file:
        try:
            # for an encrypted key without a password OpenSSL would block the event loop with a prompt
            context.load_cert_chain(files.cert_file, files.key_file, password="")
        except OSError as error:
            expected = f"a PEM certificate and its key in {files.key_file} ({_reason(error)})"
            raise _refuse("--prometheus-client-tls-cert-file", files.cert_file, expected) from error
    return context


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
    settings: PrometheusSettings, clock: Clock, problems: ProblemLog
) -> PrometheusConnection:
    """Resolve the settings and read the files. Raises InputError with the flag that cannot be used."""
    split = _split_url(settings.url)
    for name, value in settings.headers:
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or re.search(r"[\r\n\0]", value):
            raise _refuse("--prometheus-header", name, "name=value, a header of HTTP without line ends")
    explicit = [value for name, value in settings.headers if name.lower() == "authorization"]
    tls, cluster, cluster_proxy = await _resolve_tls(settings, clock, problems)
    if explicit:
        authorization = Authorization(explicit[-1])
    elif split.username is not None:
        authorization = Authorization(
            render_basic(f"{unquote(split.username)}:{unquote(split.password or '')}")
        )
    elif settings.token_file:
        authorization = FileAuthorization(
            settings.token_file, render_bearer, "--prometheus-token-file", clock, problems
        )
    elif cluster is not None:
        authorization = cluster
    elif settings.basic_auth_file:
        authorization = FileAuthorization(
            settings.basic_auth_file, render_basic, "--prometheus-basic-auth-file", clock, problems
        )
    else:
        authorization = Authorization()
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
    settings: PrometheusSettings, clock: Clock, problems: ProblemLog
) -> tuple[TLSFiles, Authorization | None, str]:
    """Return the TLS files, and the credentials of the cluster that apply with their proxy."""
    if settings.auth_incluster and settings.kubeconfig:
        raise _refuse(
            "--prometheus-auth-config",
            settings.kubeconfig,
            "cannot be combined with --prometheus-auth-incluster",
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
            f"{settings.service_account}/token", render_bearer, "--prometheus-auth-incluster", clock, problems
        )
        return TLSFiles(f"{settings.service_account}/ca.crt", own.cert_file, own.key_file), token, ""
    if settings.kubeconfig:
        try:
            found = await credentials.load_configuration(Path(settings.kubeconfig), clock, problems)
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


def _identify(*paths: Path) -> _Identity:
    return tuple((status.st_mtime_ns, status.st_ino, status.st_size) for status in map(Path.stat, paths))


def _reason(error: OSError) -> str:
    return (error.strerror or str(error))[:200]


def _refuse(flag: str, value: str, expected: str) -> InputError:
    return InputError([Fault(path=flag, value=value, expected=expected)])
