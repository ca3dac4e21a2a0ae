"""Where the API server is and who we are there: a kubeconfig file, else the service account of the pod.

What lives here: loading through kubernetes-asyncio, and renewing what it loaded (token files, exec plugins, OIDC). Not here:
sending requests. The law: loading fails with a sentence that names the file or says that there is no cluster around us;
a renewal that fails keeps the old credentials, for the API server is the judge of them.
"""

import asyncio
import atexit
import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import yaml
from kubernetes_asyncio import config
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException, incluster_config, kube_config
from kubernetes_asyncio.config.incluster_config import InClusterConfigLoader

from adapter import errors
from adapter.model.clock import Clock
from adapter.net import connect_errors
from adapter.telemetry.problems import ProblemLog

FLAG = "--lister-kubeconfig"

RENEWAL_SECONDS = 60.0
"""How often a kubeconfig's credentials are looked at again; kubernetes-asyncio's own period, and that of the service account token."""

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
"""What kubernetes-asyncio raises for a kubeconfig it cannot use: its own exception, and whatever the place happens to give."""


def _write_temporary_file(holder: kube_config.FileOrData, content: str | bytes) -> str:
    """Return the name of a file with `content`, the same for equal contents; it is removed when the process ends.

    Stands in for a method of kubernetes-asyncio (36.1) that never closes the descriptor of `mkstemp`: one for each inline
    `*-data` field, and one more whenever an exec plugin returns another certificate.
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


kube_config.FileOrData._create_temp_file_with_content = _write_temporary_file  # type: ignore[method-assign, assignment]  # noqa: SLF001


async def load_configuration(
    kubeconfig: Path | None,
    clock: Clock,
    faults: ProblemLog,
    *,
    flag: str = FLAG,
    context: str | None = None,
) -> Configuration:
    """Return how to reach the API server: from the file `kubeconfig`, or from the pod we run in if that is None.

    `context` names a context of the file, None for its current one. Raise `errors.InputError` naming `flag`, which the file was given with, if neither gives an answer.
    """
    configuration = _new_configuration()
    if kubeconfig is None:
        try:
            service_account = InClusterConfigLoader(
                token_filename=incluster_config.SERVICE_TOKEN_FILENAME,
                cert_filename=incluster_config.SERVICE_CERT_FILENAME,
                try_refresh_token=False,  # its own renewal lets every call fail while the file cannot be read
            )
            service_account.load_and_set(configuration)
        except (ConfigException, OSError) as error:
            raise _refuse(
                flag,
                "",
                f"expected a kubeconfig file, or to run in a pod of the cluster ({_sentence(error)})"
                + ("; set KUBECONFIG or --kubeconfig" if flag == "--kubeconfig" else ""),
            ) from error
        configuration.refresh_api_key_hook = _Renewal(service_account.load_and_set, clock, faults)
        return configuration
    if not await asyncio.to_thread(kubeconfig.is_file):
        raise _refuse(flag, str(kubeconfig), "expected a kubeconfig file: there is no such file")
    try:
        # tokens that are renewed stay with us: the file may be a mounted secret, and is nobody's to rewrite but its owner's
        loader = await config.load_kube_config(
            str(kubeconfig), context=context, client_configuration=configuration, persist_config=False
        )
    except _UNUSABLE as error:
        raise _refuse(
            flag, str(kubeconfig), f"expected a kubeconfig file that can be used ({_sentence(error)})"
        ) from error
    configuration.refresh_api_key_hook = _Renewal(loader.load_and_set, clock, faults)
    return configuration


def build_configuration(host: str) -> Configuration:
    """Return how to reach an API server at the URL `host` that asks for no credentials."""
    configuration = _new_configuration()
    configuration.host = host
    return configuration


def _new_configuration() -> Configuration:
    configuration = Configuration()
    # Python 3.13 refuses certificate authorities without certain extensions by default. Go does not, and clusters have them.
    configuration.disable_strict_ssl_verification = True
    return configuration


async def fetch_authorization(configuration: Configuration) -> str:
    """Return the value of the Authorization header, renewed if it is time; "" if we have neither token nor password."""
    settings = await configuration.auth_settings()
    bearer = settings.get("BearerToken")
    # token files end with a newline more often than not, and a header must not
    return str(bearer["value"]).strip() if bearer else ""


class _Renewal:
    """kubernetes-asyncio's hook before each use of a token; lets its loader look again once in `RENEWAL_SECONDS`."""

    def __init__(
        self, renew: Callable[[Configuration], Awaitable[None] | None], clock: Clock, faults: ProblemLog
    ) -> None:
        self._renew = renew
        self._clock = clock
        self._faults = faults
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
                self._faults.report(
                    "credentials",
                    "credentials for the API server cannot be renewed; the old ones stay",
                    _sentence(error),
                )
            else:
                self._faults.resolve("credentials")


def _sentence(error: BaseException) -> str:
    text = " ".join(connect_errors.describe(error).split()).rstrip(".")  # a YAML error has several lines
    return (text or type(error).__name__)[:500]


def _refuse(flag: str, value: str, expected: str) -> errors.InputError:
    return errors.InputError([errors.Fault(path=flag, value=value, expected=expected)])
