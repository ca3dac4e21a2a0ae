"""Reads the certificate authorities of clients: the ConfigMap that kube-apiserver publishes, or files.

A source that cannot be read reports that and is read again. It never ends the process and never withdraws
what it delivered before. `server.auth.trust_store` decides what the texts mean.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from adapter import errors
from adapter.kubernetes.client import KubernetesClient
from adapter.kubernetes.codec import PARTIAL_METADATA, UNREADABLE
from adapter.model.resources import APIResource
from adapter.telemetry.problems import ProblemLog

NAMESPACE, NAME = "kube-system", "extension-apiserver-authentication"
FILE_SECONDS = 1.0
"""Interval between checks of a file."""

_PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}"
_CONFIG_MAPS = APIResource("", "v1", "configmaps", "configmap", "ConfigMap", True, frozenset(), True)
_FIELDS = f"metadata.name={NAME}"
_DOUBLINGS = 20  # cap on the backoff exponent: 2.0**n stays finite after days of failures
_UNWATCHED = "the ConfigMap with the authorities cannot be watched; it is read every minute"
_MISSING_RIGHTS = (
    f"; bind the Role extension-apiserver-authentication-reader in {NAMESPACE} to the service account"
    " with a RoleBinding there"
)


@dataclass(frozen=True, slots=True)
class ConfigMapPeriods:
    """Periods and timeouts in seconds."""

    watch: float = 300.0
    """Shortest duration of a watch; the longest is twice that. Then the ConfigMap is read again."""

    silence: float = 120.0
    """A watch without a byte for this long is lost."""

    poll: float = 60.0
    """Interval between reads where watching is forbidden."""

    backoff: float = 0.8
    """Pause after the first failure. Each further failure doubles it; jitter stretches it to at most twice
    its length.
    """

    backoff_limit: float = 30.0


class _ConfigMapData(msgspec.Struct, frozen=True):
    data: dict[str, str] | None = None


_CONFIG_MAP = msgspec.json.Decoder(_ConfigMapData)


class ConfigMapTrustSource:
    """Delivers the entries of the ConfigMap (None if it does not exist) first and after each change."""

    def __init__(
        self,
        client: KubernetesClient,
        deliver: Callable[[Mapping[str, str] | None], None],
        problems: ProblemLog,
        *,
        random: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        periods: ConfigMapPeriods = ConfigMapPeriods(),
    ) -> None:
        self.error = ""
        """The failure of the last read; "" if it succeeded."""
        self._client = client
        self._deliver = deliver
        self._problems = problems
        self._random = random
        self._sleep = sleep
        self._periods = periods
        self._failures = 0

    async def run(self) -> None:
        while True:
            try:
                version = await self._read()
                await self._watch(version)
                await self._sleep(self._periods.backoff)
            except errors.KubernetesError as error:
                await self._fail(error)

    async def _read(self) -> str:
        """Deliver the current entries; return a version, not newer than these, to watch from."""
        version = await self._client.list_objects(
            PARTIAL_METADATA,
            _CONFIG_MAPS,
            lambda _: None,
            namespace=NAMESPACE,
            fields=_FIELDS,
            resource_version="",
        )
        await self._deliver_current()
        self.error = ""
        self._problems.resolve("trust-lookup")
        return version

    async def _deliver_current(self) -> None:
        try:
            body = await self._client.get(_PATH)
        except errors.KubernetesError as error:
            if error.status != 404:
                raise
            self._deliver(None)
            return
        try:
            config_map = _CONFIG_MAP.decode(body.content)
        except (*UNREADABLE, ValueError) as error:
            raise errors.KubernetesError(0, "Decode", f"cannot read {_PATH}: {error}") from error
        self._deliver(config_map.data or {})

    async def _watch(self, version: str) -> None:
        """Deliver the changes after `version` until the watch ends; wait `poll` where it is forbidden."""
        watching = self._client.watch_objects(
            PARTIAL_METADATA,
            _CONFIG_MAPS,
            namespace=NAMESPACE,
            fields=_FIELDS,
            resource_version=version,
            duration=self._periods.watch * (1 + self._random()),
            silence=self._periods.silence,
        )
        try:
            async with watching as watch:
                self._failures = 0
                async for events in watch:
                    if any(event.type != "BOOKMARK" for event in events):
                        await self._deliver_current()
        except errors.KubernetesError as error:
            if error.status == 410:  # too old for the server's log: read again
                return
            if error.status not in {403, 405}:
                raise
            self._problems.report("trust-watch", _UNWATCHED, f"{error}{_hint(error)}")
            await self._sleep(self._periods.poll)
        else:
            self._problems.resolve("trust-watch")

    async def _fail(self, error: errors.KubernetesError) -> None:
        self.error = f"{error}{_hint(error)}"
        self._problems.report(
            "trust-lookup",
            f"the ConfigMap {NAMESPACE}/{NAME} cannot be read; its last content stays in use",
            self.error,
        )
        pause = min(
            self._periods.backoff * 2.0 ** min(self._failures, _DOUBLINGS), self._periods.backoff_limit
        )
        self._failures += 1
        await self._sleep(pause * (1 + self._random()))


class FileTrustSource:
    """Delivers the text of a file first and after each change; `deliver` raises ValueError to refuse it."""

    def __init__(self, path: str, flag: str, deliver: Callable[[str], None], problems: ProblemLog) -> None:
        """Read the file. Raises `errors.InputError`, which names `flag`, if it is unusable."""
        self._path = Path(path)
        self._flag = flag
        self._deliver = deliver
        self._problems = problems
        self._seen = self._signature()
        try:
            self._deliver(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:  # UnicodeDecodeError is a ValueError
            fault = errors.Fault(flag, path, f"expected a file with PEM certificates: {_sentence(error)}")
            raise errors.InputError([fault]) from error

    def poll(self) -> None:
        """Deliver the file if it has changed. An invalid one is reported, and read after its next change."""
        signature = self._signature()
        if signature == self._seen:
            return
        self._seen = signature
        try:
            self._deliver(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            message = "a file of certificate authorities is unusable; its last content stays in use"
            text = _sentence(error)
            self._problems.report("trust-file", message, text, subject=self._flag, file=self._path)
        else:
            self._problems.resolve("trust-file", subject=self._flag)

    async def run(self, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        while True:
            await sleep(FILE_SECONDS)
            self.poll()

    def _signature(self) -> object:
        """Return a value that changes with the file. Links are followed; a missing file has a value too."""
        try:
            status = self._path.stat()
        except OSError as error:
            return error.errno
        return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _hint(error: errors.KubernetesError) -> str:
    return _MISSING_RIGHTS if error.status == 403 else ""


def _sentence(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
