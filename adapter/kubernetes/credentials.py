"""Where the API server is and which identity we have there: kubeconfig files, else the Pod's service account.

Whatever renews credentials (token files, exec plugins) may fail for a while. Then the old credentials stay in
use: only the API server can decide whether they are still valid.
"""

import asyncio
import dataclasses
import os
import socket
import ssl
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from adapter import errors, net
from adapter.model.clock import Clock
from adapter.telemetry.problems import ProblemLog

FLAG = "--lister-kubeconfig"

_REMEDY = {"--kubeconfig": "KUBECONFIG or --kubeconfig"}

RENEWAL_SECONDS = 60.0
"""Interval between renewals of credentials, in seconds, as client-go reads service account tokens."""

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The folder that kubelet mounts into a Pod."""


async def _without_credentials() -> str:
    return ""


@dataclasses.dataclass
class ClientConfiguration:
    """How to reach one API server, like client-go's ``rest.Config``.

    Files are names, "" for none; without `ca_file` the system's authorities are trusted. `authorization`
    returns the value of the Authorization header, renewed if it is due, "" for none.
    """

    host: str
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    verify: bool = True
    tls_server_name: str = ""
    proxy: str = ""
    authorization: Callable[[], Awaitable[str]] = _without_credentials
    namespace: str = ""
    """That of the context of a kubeconfig, "" if it names none."""
    contexts: list[ssl.SSLContext] = dataclasses.field(default_factory=list)
    """Those of the connections, which get a certificate that is renewed."""

    def use_certificate(self, cert_file: str, key_file: str) -> None:
        """Use a certificate for new connections. OSError if the files do not fit; then the old one stays."""
        if cert_file:
            # a context that refuses the key keeps the certificate, so one that is not used tries both first
            for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), *self.contexts):
                context.load_cert_chain(cert_file, key_file or None)
        self.cert_file, self.key_file = cert_file, key_file


async def load_configuration(
    files: Sequence[Path], clock: Clock, problems: ProblemLog, *, flag: str = FLAG, context: str | None = None
) -> ClientConfiguration:
    """Load the configuration from kubeconfig files, without files from the Pod of this process.

    `context` names a context of the files, None for the current one. Raises `errors.InputError`, which names
    `flag`, if the configuration cannot be loaded.
    """
    if not files:
        try:
            return _read_service_account(clock, problems)
        except (OSError, ValueError) as error:
            raise _refuse(
                flag,
                "",
                f"expected a kubeconfig file: set {_REMEDY.get(flag, flag)},"
                f" or run in a pod of the cluster ({_sentence(error)})",
            ) from error
    from adapter.kubernetes import kubeconfig  # noqa: PLC0415 - a pod reads none

    for file in files:
        if not await asyncio.to_thread(file.is_file):
            raise _refuse(flag, str(file), "expected a kubeconfig file; there is no such file")
    name = context or ""
    try:
        name = name or kubeconfig.read_current_context(files)
        loaded = kubeconfig.Kubeconfig(files, name, clock)
        header = await loaded.authorize()
    except kubeconfig.UNUSABLE as error:
        of = f"context {name}: " if name else ""
        expected = f"expected a usable kubeconfig file ({of}{_sentence(error)})"
        raise _refuse(flag, os.pathsep.join(map(str, files)), expected) from error

    async def renew() -> str:
        renewed = await loaded.authorize()
        configuration.use_certificate(*loaded.certificate)
        return renewed

    read = loaded.configuration
    configuration = ClientConfiguration(
        read.host or "",
        read.ssl_ca_cert or "",
        *loaded.certificate,
        read.verify_ssl,
        read.tls_server_name or "",
        read.proxy or "",
        _Renewal(header, renew, kubeconfig.UNUSABLE, clock, problems),
        loaded.namespace,
    )
    return configuration


def _read_service_account(clock: Clock, problems: ProblemLog) -> ClientConfiguration:
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    if not host or not port:
        raise ValueError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
    authority = SERVICE_ACCOUNT / "ca.crt"
    if not authority.read_bytes():
        raise ValueError(f"{authority} is empty")

    async def read_token() -> str:
        # a few hundred bytes of a local file, usually in memory: not worth a thread
        return _read_token(SERVICE_ACCOUNT / "token")

    token = _read_token(SERVICE_ACCOUNT / "token")
    renewal = _Renewal(token, read_token, (OSError, ValueError), clock, problems)
    name = f"[{host}]" if ":" in host else host
    return ClientConfiguration(f"https://{name}:{port}", str(authority), authorization=renewal)


def _read_token(file: Path) -> str:
    token = file.read_text(encoding="utf-8").strip()
    if not token:
        raise ValueError(f"{file} is empty")
    return f"Bearer {token}"


class _Renewal:
    """An Authorization header that is renewed at most once in `RENEWAL_SECONDS`."""

    def __init__(
        self,
        header: str,
        renew: Callable[[], Awaitable[str]],
        unusable: tuple[type[Exception], ...],
        clock: Clock,
        problems: ProblemLog,
    ) -> None:
        self._header = header
        self._renew = renew
        self._unusable = unusable
        self._clock = clock
        self._problems = problems
        self._last = clock.monotonic()
        self._lock = asyncio.Lock()

    async def __call__(self) -> str:
        async with self._lock:
            if self._clock.monotonic() - self._last >= RENEWAL_SECONDS:
                self._last = self._clock.monotonic()
                try:
                    self._header = await self._renew()
                except self._unusable as error:
                    self._problems.report(
                        "credentials",
                        "credentials for the API server cannot be renewed; the old ones stay in use",
                        _sentence(error),
                    )
                else:
                    self._problems.resolve("credentials")
            return self._header


def _sentence(error: BaseException) -> str:
    text = " ".join(net.describe_error(error).split()).rstrip(".")  # YAML errors have several lines
    return (text or type(error).__name__)[:500]


def _refuse(flag: str, value: str, expected: str) -> errors.InputError:
    return errors.InputError([errors.Fault(flag, value, expected)])


# -- our own Pod ---------------------------------------------------------------------------------------------


def find_namespace(
    environment: Mapping[str, str] = os.environ, file: Path = SERVICE_ACCOUNT / "namespace"
) -> str:
    """Return `POD_NAMESPACE`, else the namespace of the service account, "" outside of a cluster."""
    if namespace := environment.get("POD_NAMESPACE"):
        return namespace
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def new_identity(environment: Mapping[str, str] = os.environ) -> str:
    """Return a unique identity of this process: the Pod's name and a UUID (containers restart).

    The host name is the Pod's name unless the Pod uses the host network; `POD_NAME` comes before it.
    """
    return f"{environment.get('POD_NAME') or socket.gethostname()}_{uuid.uuid4()}"


def pod_of(identity: str) -> str:
    return identity.rpartition("_")[0] or identity
