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

import asyncio
import base64
import contextlib
import math
import posixpath
import re
import ssl
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

from adapter import net
from adapter.config.options import PrometheusOptions
from adapter.errors import Fault, InputError
from adapter.kubernetes import credentials
from adapter.model.clock import Clock
from adapter.prometheus.endpoint import PrometheusEndpoint, PrometheusServer, TLSFiles
from adapter.telemetry.problems import ProblemLog, SourceProblems

FILE_CHECK_SECONDS = 1.0
"""How often, at most, credentials and TLS files are checked for changes."""

# Time, inode and size of each file: Kubernetes swaps a link, editors replace or rewrite.
_Identity = tuple[tuple[int, int, int], ...]

T = TypeVar("T")


class Authorization:
    """The Authorization header of requests: a constant, "" for no header, or what `read` returns now."""

    def __init__(self, value: str = "", read: Callable[[], Awaitable[str]] | None = None) -> None:
        self._value = value
        self._read = read

    async def header(self) -> str:
        return self._value if self._read is None else await self._read()

    def refuse(self) -> None:
        """Note that the server refused the last value with 401."""


class FollowedFiles(Generic[T]):
    """A value made of files, which are checked once a second at most.

    Files that cannot be used, such as half-written ones, leave the last value in use and are reported.
    """

    def __init__(
        self,
        paths: Iterable[str],
        build: Callable[[], T],
        what: str,
        subject: str,
        clock: Clock,
        problems: ProblemLog | SourceProblems,
    ) -> None:
        """Build the value; raises what `build` raises. `what` and `subject` are for messages."""
        self._paths = tuple(Path(path) for path in paths if path)
        self._build = build
        self._message = f"{what} cannot be reloaded; the old ones stay in use"
        self._subject = subject
        self._clock = clock
        self._problems = problems
        self._identity: _Identity | None = None
        with contextlib.suppress(OSError):  # building the value names the file
            self._identity = _identify(self._paths)
        self._value = build()
        self._next_check = clock.monotonic() + FILE_CHECK_SECONDS
        self._checking = asyncio.Lock()

    async def value(self) -> T:
        """Return the value of the files as of now or of a second ago."""
        if not self._paths or (self._clock.monotonic() < self._next_check and not self._checking.locked()):
            return self._value
        async with self._checking:  # one builds for all that wait
            now = self._clock.monotonic()
            if now >= self._next_check:
                self._next_check = now + FILE_CHECK_SECONDS
                try:
                    # before reading: the next check finds a change in between
                    identity = _identify(self._paths)
                    if identity != self._identity:
                        # in a thread, because parsing all CAs of a system takes time
                        self._value = await asyncio.to_thread(self._build)
                        self._identity = identity
                except (OSError, ValueError, InputError) as error:
                    self._problems.report("credentials", self._message, str(error), subject=self._subject)
                else:
                    self._problems.resolve("credentials", subject=self._subject)
            return self._value

    def check(self) -> None:
        """Check the files at the next use."""
        self._next_check = -math.inf


class FileAuthorization(Authorization):
    """A value rendered from a file, which is checked again after a refusal, too."""

    def __init__(
        self,
        path: str,
        render: Callable[[str], str],
        flag: str,
        clock: Clock,
        problems: ProblemLog | SourceProblems,
        *,
        receiver: str = "Prometheus",
    ) -> None:
        """`flag` and `receiver` are for messages. `render` raises ValueError with the text that it expected.

        Raises InputError if the file cannot be read now.
        """

        def build() -> str:
            return render(Path(path).read_text(encoding="utf-8").strip())

        try:
            what = f"credentials for {receiver}"
            self._file = FollowedFiles([path], build, what, flag, clock, problems)
        except (OSError, ValueError) as error:
            expected = f"a readable file ({error.strerror})" if isinstance(error, OSError) else str(error)
            raise _refuse(flag, path, expected) from error
        super().__init__(read=self._file.value)

    def refuse(self) -> None:
        self._file.check()


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


def follow_tls(
    files: TLSFiles,
    clock: Clock,
    problems: ProblemLog | SourceProblems,
    *,
    system_cas: bool = True,
    receiver: str = "Prometheus",
    flag: str = "--prometheus-ca-file",
    subject: str = "prometheus-tls",
) -> FollowedFiles[ssl.SSLContext]:
    """Return the context of TLS files or of the system's CAs. InputError for files that cannot be used.

    `system_cas` False, for a server without TLS, spares the memory that the system's CAs take.
    """
    ca_file = files.ca_file or (system_cas and ssl.get_default_verify_paths().cafile) or ""
    return FollowedFiles(
        (ca_file, files.cert_file, files.key_file),
        lambda: build_context(files, flag, system_cas=system_cas),
        f"TLS files for {receiver}",
        subject,
        clock,
        problems,
    )


def build_context(
    files: TLSFiles, flag: str = "--prometheus-ca-file", *, system_cas: bool = True
) -> ssl.SSLContext:
    """Return a client's TLS context; `flag` names the CA file. InputError for files that cannot be used."""
    try:
        if files.ca_file or system_cas:
            context = ssl.create_default_context(cafile=files.ca_file or None)
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts no authority
    except OSError as error:  # SSLError is one
        expected = f"a file of PEM certificates ({_reason(error)})"
        raise _refuse(flag, files.ca_file, expected) from error
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
    """Resolved options. `proxy` is "" for a direct connection."""

    options: PrometheusOptions
    endpoint: PrometheusEndpoint
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    tls: TLSFiles
    proxy: str = field(repr=False)
    authorization: Authorization

    @property
    def uses_tls(self) -> bool:
        return self.endpoint.base.startswith("https:") or self.proxy.lower().startswith("https:")

    async def request_headers(self) -> dict[str, str]:
        headers = dict(self.headers)
        if value := await self.authorization.header():
            headers["Authorization"] = value
        return headers

    async def server(self, seconds: float, max_bytes: int | None = None) -> PrometheusServer:
        """Return what another process or thread needs for requests sent now; the bounds are theirs."""
        headers, most = await self.request_headers(), max_bytes or self.options.prometheus_max_answer_bytes
        return PrometheusServer(self.endpoint, self.tls, headers, self.proxy, seconds, most)


async def open_connection(
    options: PrometheusOptions, clock: Clock, problems: ProblemLog
) -> PrometheusConnection:
    """Resolve the options and read the files. Raises InputError with the flag that cannot be used."""
    split, headers = _split_url(options.prometheus_url), _merge_headers(options.prometheus_headers)
    explicit = [value for name, value in options.prometheus_headers if name.lower() == "authorization"]
    tls, cluster, cluster_proxy = await _resolve_tls(options, clock, problems)
    token_file, password_file = options.prometheus_token_file, options.prometheus_basic_auth_file
    if explicit:
        authorization = Authorization(explicit[-1])
    elif split.username is not None:
        user, password = unquote(split.username), unquote(split.password or "")
        authorization = Authorization(render_basic(f"{user}:{password}"))
    elif token_file:
        flag = "--prometheus-token-file"
        authorization = FileAuthorization(token_file, render_bearer, flag, clock, problems)
    elif cluster is not None:
        authorization = cluster
    elif password_file:
        flag = "--prometheus-basic-auth-file"
        authorization = FileAuthorization(password_file, render_basic, flag, clock, problems)
    else:
        authorization = Authorization()
    host = split.netloc.rpartition("@")[2]
    # as Go's path.Join cleans a path, without a final slash, repeated slashes and dots
    path = posixpath.normpath(f"/{split.path.lstrip('/')}").rstrip("/")
    base = f"{split.scheme}://{host}{path}"
    return PrometheusConnection(
        options=options,
        endpoint=PrometheusEndpoint(
            base, split.query, options.prometheus_verb, options.prometheus_query_params
        ),
        headers=headers,
        tls=tls,
        proxy="" if options.prometheus_ca_file else cluster_proxy or net.proxy_of(base, split.hostname or ""),
        authorization=authorization,
    )


async def _resolve_tls(
    options: PrometheusOptions, clock: Clock, problems: ProblemLog
) -> tuple[TLSFiles, Authorization | None, str]:
    """Return the TLS files, and the credentials of the cluster that apply with their proxy."""
    ca_file, kubeconfig = options.prometheus_ca_file, options.prometheus_auth_config
    certificate, key = options.prometheus_client_tls_cert_file, options.prometheus_client_tls_key_file
    # upstream ignores one without the other
    own = TLSFiles(ca_file, certificate, key) if certificate and key else TLSFiles(ca_file)
    if ca_file:
        return own, None, ""
    if options.prometheus_auth_incluster:
        token = FileAuthorization(
            f"{credentials.SERVICE_ACCOUNT}/token",
            render_bearer,
            "--prometheus-auth-incluster",
            clock,
            problems,
        )
        return TLSFiles(f"{credentials.SERVICE_ACCOUNT}/ca.crt", own.cert_file, own.key_file), token, ""
    if kubeconfig:
        try:
            cluster = await credentials.load_configuration([Path(kubeconfig)], clock, problems)
        except InputError as error:
            named = [replace(fault, path="--prometheus-auth-config") for fault in error.faults]
            raise InputError(named) from error
        tls = TLSFiles(
            cluster.ca_file,
            own.cert_file or cluster.cert_file,
            own.key_file or cluster.key_file,
            cluster.verify,
            cluster.tls_server_name,
        )
        # the credentials are renewed when due, even if the last were refused
        return tls, Authorization(read=cluster.authorization), cluster.proxy
    return own, None, ""


def _merge_headers(headers: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return each header once, without Authorization. Raises InputError for one that HTTP does not allow."""
    # compression is used only on request: it costs more than the network
    merged = {"accept-encoding": ("Accept-Encoding", "identity")}
    given: set[str] = set()
    for name, value in headers:
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or re.search(r"[\r\n\0]", value):
            raise _refuse("--prometheus-header", name, "name=value, a header of HTTP without line ends")
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


def _identify(paths: Iterable[Path]) -> _Identity:
    return tuple((status.st_mtime_ns, status.st_ino, status.st_size) for status in map(Path.stat, paths))


def _reason(error: OSError) -> str:
    return (error.strerror or str(error))[:200]


def _refuse(flag: str, value: str, expected: str) -> InputError:
    return InputError([Fault(path=flag, value=value, expected=expected)])
