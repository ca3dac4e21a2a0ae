"""How Prometheus is reached: settings, URL, trust, proxy, and who we say we are.

Used by the query client and by discovery's worker process, so that both connect alike. Not here: sending. The law is
prometheus-adapter's: a CA file means that CA alone and no proxy from the environment, and wins over both sources of cluster
credentials; else those credentials' own CA; else the system's CAs. An explicit Authorization header beats what the URL
carries, which beats a token, which beats basic authentication. What is ours: token and password files are read again when
they change; so are the files of TLS (`clienttls`).
"""

import base64
import logging
import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Protocol
from urllib.parse import SplitResult, unquote, urlsplit

from kubernetes_asyncio.client import Configuration

from adapter.errors import Fault, InputError
from adapter.kubernetes import credentials
from adapter.model.clock import Clock
from adapter.net import proxies
from adapter.prometheus.endpoint import Target, Trust
from adapter.telemetry.problems import ProblemLog

FILE_CHECK_SECONDS = 1.0
"""How often, at most, a token or password file is looked at."""

_log = logging.getLogger(__name__)

_SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """Everything about the connection that a person can set. "" means not given; times are seconds.

    `headers` and `params` (extra query parameters, such as a tenant) are sent with every request. `attempt_timeout` bounds a
    request from its start to the last byte, `request_timeout` also the waiting for one of `max_connections`.
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


class Authorization(Protocol):
    """Says what stands in the Authorization header."""

    async def header(self) -> str:
        """Return the header's value now; "" for none."""
        ...

    def refuse(self) -> None:
        """Note that the server refused the last value."""
        ...


class Fixed:
    """An Authorization that does not change."""

    def __init__(self, value: str = "") -> None:
        self._value = value

    async def header(self) -> str:
        """Return it."""
        return self._value

    def refuse(self) -> None:
        """Do nothing: there is no other value."""


class FromFile:
    """An Authorization made from a file, which is read again when it changes (time, size or inode: Kubernetes swaps links).

    It is looked at once a second at most, and at the next request after a refusal. A file that cannot be read keeps the
    value last read, as client-go does.
    """

    def __init__(
        self,
        path: str,
        render: Callable[[str], str],
        flag: str,
        clock: Clock,
        faults: ProblemLog,
        *,
        whom: str = "Prometheus",
    ) -> None:
        """`flag` is where the path was given; `whom` the value is shown to."""
        self._whom = whom
        self._path = Path(path)
        self._render = render
        self._flag = flag
        self._clock = clock
        self._faults = faults
        self._identity: tuple[int, int, int] | None = None
        self._value = ""
        self._look_again = 0.0
        try:
            self._read()
        except (OSError, ValueError) as error:
            expected = f"a readable file ({error.strerror})" if isinstance(error, OSError) else str(error)
            raise _refuse(flag, path, expected) from error
        self._look_again = clock.monotonic() + FILE_CHECK_SECONDS

    async def header(self) -> str:
        """Return the value of the file as it is now, or was up to a second ago."""
        now = self._clock.monotonic()
        if now >= self._look_again:
            self._look_again = now + FILE_CHECK_SECONDS
            try:
                self._read()
            except (OSError, ValueError) as error:
                message = f"credentials for {self._whom} cannot be read again; the old ones stay"
                self._faults.report("credentials", message, str(error), subject=self._flag)
            else:
                self._faults.resolve("credentials", subject=self._flag)
        return self._value

    def refuse(self) -> None:
        """Look at the file at the next request."""
        self._look_again = 0.0

    def _read(self) -> None:
        # a few hundred bytes of a local file (usually in memory): not worth a thread
        status = self._path.stat()
        identity = (status.st_mtime_ns, status.st_ino, status.st_size)
        if identity != self._identity:
            self._value = self._render(self._path.read_text(encoding="utf-8").strip())
            self._identity = identity


class FromKubeconfig:
    """The token of a kubeconfig's user, renewed by kubernetes-asyncio's own hook."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration

    async def header(self) -> str:
        """Return the token as it is now."""
        return await self._configuration.get_api_key_with_prefix("BearerToken") or ""

    def refuse(self) -> None:
        """Do nothing: the hook has its own period."""


@dataclass(frozen=True, slots=True)
class Connection:
    """What a sender needs: target, headers, trust, proxy ("" for none) and Authorization."""

    settings: PrometheusSettings
    target: Target
    headers: tuple[tuple[str, str], ...] = field(repr=False)
    trust: Trust
    proxy: str = field(repr=False)
    authorization: Authorization

    async def request_headers(self) -> dict[str, str]:
        """Return the headers of a request now, Authorization included."""
        headers = dict(self.headers)
        if value := await self.authorization.header():
            headers["Authorization"] = value
        return headers


async def open_connection(settings: PrometheusSettings, clock: Clock, faults: ProblemLog) -> Connection:
    """Resolve the settings; files are read now. Raises `InputError` with the flag of what cannot be used."""
    split = _split_url(settings.url)
    for name, value in settings.headers:
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or re.search(r"[\r\n\0]", value):
            raise _refuse("--prometheus-header", name, "name=value, a header of HTTP without line ends")
    explicit = [value for name, value in settings.headers if name.lower() == "authorization"]
    trust, cluster, cluster_proxy = await _resolve_trust(settings, clock, faults)
    authorization: Authorization
    if explicit:
        authorization = Fixed(explicit[-1])
    elif split.username is not None:
        authorization = Fixed(_basic(f"{unquote(split.username)}:{unquote(split.password or '')}"))
    elif settings.token_file:
        authorization = FromFile(settings.token_file, bearer, "--prometheus-token-file", clock, faults)
    elif cluster is not None:
        authorization = cluster
    elif settings.basic_auth_file:
        authorization = FromFile(
            settings.basic_auth_file, _basic, "--prometheus-basic-auth-file", clock, faults
        )
    else:
        authorization = Fixed()
    host = split.netloc.rpartition("@")[2]
    base = f"{split.scheme}://{host}{_clean(split.path)}"
    return Connection(
        settings=settings,
        target=Target(base, split.query, settings.verb, settings.params),
        headers=_merge_headers(settings.headers),
        trust=trust,
        proxy="" if settings.ca_file else cluster_proxy or proxies.proxy_of(base, split.hostname or ""),
        authorization=authorization,
    )


async def _resolve_trust(
    settings: PrometheusSettings, clock: Clock, faults: ProblemLog
) -> tuple[Trust, Authorization | None, str]:
    """Return whom to trust, the credentials of the cluster that apply, and the proxy that comes with them."""
    if settings.auth_incluster and settings.kubeconfig:
        raise _refuse(
            "--prometheus-auth-config", settings.kubeconfig, "not together with --prometheus-auth-incluster"
        )
    own = Trust(settings.ca_file)
    if (
        settings.cert_file and settings.key_file
    ):  # as upstream, which takes no notice of one without the other
        own = Trust(settings.ca_file, settings.cert_file, settings.key_file)
    elif settings.cert_file or settings.key_file:
        _log.warning("a client certificate and its key are used together only; neither is used")
    if settings.ca_file:
        return own, None, ""
    if settings.auth_incluster:
        token = FromFile(
            f"{settings.service_account}/token", bearer, "--prometheus-auth-incluster", clock, faults
        )
        return Trust(f"{settings.service_account}/ca.crt", own.cert_file, own.key_file), token, ""
    if settings.kubeconfig:
        try:
            found = await credentials.load_configuration(Path(settings.kubeconfig), clock, faults)
        except InputError as error:
            named = [replace(fault, path="--prometheus-auth-config") for fault in error.faults]
            raise InputError(named) from error
        trust = Trust(
            found.ssl_ca_cert or "",
            own.cert_file or found.cert_file or "",
            own.key_file or found.key_file or "",
            bool(found.verify_ssl),
            found.tls_server_name or "",
        )
        return trust, FromKubeconfig(found), found.proxy or ""
    return own, None, ""


def _merge_headers(headers: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return each header once, without Authorization; compression only when asked for, as its cost exceeds that of the network."""
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
        # neither user and password nor query parameters, which may hold a token
        shown = re.sub(r"^(\w+://)?.*@", r"\1", url.partition("?")[0], flags=re.DOTALL)
        raise _refuse("--prometheus-url", repr(shown), "http://host[:port][/path] or https://...")
    return split


def _clean(path: str) -> str:
    """Return a path as Go's path.Join leaves it, without a final slash: repeated slashes and dots are gone."""
    return posixpath.normpath(f"/{path.lstrip('/')}").rstrip("/")


def bearer(text: str) -> str:
    """Return the header's value for a token; ValueError, saying what is expected, for what is none."""
    if not text or not text.isascii() or not text.isprintable():
        raise ValueError("a file that holds a token, one line of printable characters")
    return f"Bearer {text}"


def _basic(text: str) -> str:
    if ":" not in text or not text.isprintable():
        raise ValueError("a file that holds one line, user:password")
    return "Basic " + base64.b64encode(text.encode()).decode()


def _refuse(flag: str, value: str, expected: str) -> InputError:
    return InputError([Fault(path=flag, value=value, expected=expected)])
