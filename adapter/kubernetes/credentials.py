"""Where the API server is and which identity we have: a kubeconfig file, else the Pod's service account.

kubernetes-asyncio loads both, and renews what they refer to (token files, exec plugins, OIDC). If a renewal
fails, the old credentials stay in use: only the API server can decide whether they are still valid.
"""

import asyncio
import atexit
import os
import socket
import tempfile
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from kubernetes_asyncio import config
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException, incluster_config, kube_config
from kubernetes_asyncio.config.incluster_config import InClusterConfigLoader

from adapter import errors, net
from adapter.model.clock import Clock
from adapter.telemetry.problems import ProblemLog

FLAG = "--lister-kubeconfig"

_REMEDY = {"--kubeconfig": "KUBECONFIG or --kubeconfig"}

RENEWAL_SECONDS = 60.0
"""Interval between renewals of credentials, in seconds; kubernetes-asyncio's own for service account
tokens.
"""

_UNUSABLE = (
    ConfigException,
    OSError,
    yaml.YAMLError,
    aiohttp.ClientError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
    ImportError,
    RuntimeError,
)
"""Exceptions of kubernetes-asyncio for an unusable kubeconfig: its own, and any that its code happens to
raise on odd input.
"""


def _write_temporary_file(holder: kube_config.FileOrData, content: str | bytes) -> str:
    """Return the name of a file with `content`, the same for equal contents; it is removed at exit.

    Replaces a method of kubernetes-asyncio (36.1) that never closes the descriptor of `mkstemp`. It leaks one
    descriptor for each inline `*-data` field, and another whenever an exec plugin returns a new certificate.
    """
    written = kube_config._temp_files  # noqa: SLF001
    name = written.get(str(content))
    if name is None:
        if not written:
            atexit.register(kube_config._cleanup_temp_files)  # noqa: SLF001
        descriptor, name = tempfile.mkstemp(dir=holder._temp_file_path)  # noqa: SLF001
        with os.fdopen(descriptor, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        written[str(content)] = name
    return name


_holder: Any = kube_config.FileOrData
_holder._create_temp_file_with_content = _write_temporary_file  # noqa: SLF001


async def load_configuration(
    kubeconfig: Path | None,
    clock: Clock,
    problems: ProblemLog,
    *,
    flag: str = FLAG,
    context: str | None = None,
) -> Configuration:
    """Load the configuration from the file `kubeconfig`, or if that is None from the Pod of this process.

    `context` names a context of the file, None for the current one. Raises `errors.InputError`, which names
    `flag`, if the configuration cannot be loaded.
    """
    configuration = _new_configuration()
    if kubeconfig is None:
        try:
            service_account = InClusterConfigLoader(
                token_filename=incluster_config.SERVICE_TOKEN_FILENAME,
                cert_filename=incluster_config.SERVICE_CERT_FILENAME,
                # with its own renewal, every call fails while the file is unreadable
                try_refresh_token=False,
            )
            service_account.load_and_set(configuration)
        except (ConfigException, OSError) as error:
            raise _refuse(
                flag,
                "",
                f"expected a kubeconfig file: set {_REMEDY.get(flag, flag)},"
                f" or run in a pod of the cluster ({_sentence(error)})",
            ) from error
        configuration.refresh_api_key_hook = _Renewal(service_account.load_and_set, clock, problems)
        return configuration
    if not await asyncio.to_thread(kubeconfig.is_file):
        raise _refuse(flag, str(kubeconfig), "expected a kubeconfig file; there is no such file")
    try:
        # do not write renewed tokens to the file: it may be a mounted Secret, and it belongs to its owner
        loader = await config.load_kube_config(
            str(kubeconfig), context=context, client_configuration=configuration, persist_config=False
        )
    except _UNUSABLE as error:
        raise _refuse(
            flag, str(kubeconfig), f"expected a usable kubeconfig file ({_sentence(error)})"
        ) from error
    configuration.refresh_api_key_hook = _Renewal(loader.load_and_set, clock, problems)
    return configuration


def build_configuration(host: str) -> Configuration:
    """Return a configuration for an API server at the URL `host`, without credentials."""
    configuration = _new_configuration()
    configuration.host = host
    return configuration


def _new_configuration() -> Configuration:
    configuration = Configuration()
    # Python 3.13 by default refuses certificate authorities without certain extensions. Go accepts them, and
    # clusters use them.
    configuration.disable_strict_ssl_verification = True
    return configuration


async def fetch_authorization(configuration: Configuration) -> str:
    """Return the value of the Authorization header, renewed if it is due; "" without token and password."""
    settings = await configuration.auth_settings()
    bearer = settings.get("BearerToken")
    # token files usually end with a newline, which a header must not contain
    return str(bearer["value"]).strip() if bearer else ""


class _Renewal:
    """The hook that kubernetes-asyncio calls before each use of a token; renews once in `RENEWAL_SECONDS`."""

    def __init__(
        self, renew: Callable[[Configuration], Awaitable[None] | None], clock: Clock, problems: ProblemLog
    ) -> None:
        self._renew = renew
        self._clock = clock
        self._problems = problems
        self._last = clock.monotonic()
        self._lock = asyncio.Lock()

    async def __call__(self, configuration: Configuration) -> None:
        async with self._lock:
            if self._clock.monotonic() - self._last < RENEWAL_SECONDS:
                return
            self._last = self._clock.monotonic()
            try:
                renewing = self._renew(configuration)
                if renewing is not None:
                    await renewing
            except _UNUSABLE as error:
                self._problems.report(
                    "credentials",
                    "credentials for the API server cannot be renewed; the old ones stay in use",
                    _sentence(error),
                )
            else:
                self._problems.resolve("credentials")


def _sentence(error: BaseException) -> str:
    text = " ".join(net.describe_error(error).split()).rstrip(".")  # YAML errors have several lines
    return (text or type(error).__name__)[:500]


def _refuse(flag: str, value: str, expected: str) -> errors.InputError:
    return errors.InputError([errors.Fault(flag, value, expected)])


# -- our own Pod ---------------------------------------------------------------------------------------------

NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def find_pod_name(environment: Mapping[str, str] = os.environ) -> str:
    """Return `POD_NAME`, else the host name, which is the Pod's name unless it uses the host network."""
    return environment.get("POD_NAME") or socket.gethostname()


def find_namespace(environment: Mapping[str, str] = os.environ, file: Path = NAMESPACE_FILE) -> str:
    """Return `POD_NAMESPACE`, else the namespace of the service account, "" outside of a cluster."""
    if found := environment.get("POD_NAMESPACE"):
        return found
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def new_identity(pod_name: str) -> str:
    """Return a unique identity of this process: the Pod's name and a UUID (containers restart)."""
    return f"{pod_name}_{uuid.uuid4()}"
