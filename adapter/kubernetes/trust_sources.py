"""Reads the certificate authorities of clients: the ConfigMap that kube-apiserver publishes, or files.

A source that cannot be read reports that and is read again. It never ends the process and never withdraws
what it delivered before. `server.auth.trust_store` decides what the texts mean.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from adapter import errors
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.cache.store import ObjectCache, in_steps
from adapter.kubernetes.client import ListWatch
from adapter.kubernetes.codec import ObjectCodec, PartialMetadata, Unreadable
from adapter.model.objects.resources import known_kind
from adapter.telemetry.problems import ProblemLog

NAMESPACE, NAME = "kube-system", "extension-apiserver-authentication"
FILE_SECONDS = 1.0
"""Interval between checks of a file."""

_CONFIG_MAPS = known_kind("v1", "ConfigMap")
_REMEDY = (
    f"; bind the Role extension-apiserver-authentication-reader in {NAMESPACE} to the service account"
    " with a RoleBinding there"
)


class _TrustConfigMap(msgspec.Struct, frozen=True):
    metadata: PartialMetadata
    data: dict[str, str] | None = None
    unreadable: str = ""
    """Why it cannot be read: then nothing is delivered of it, though it is not absent."""

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def name(self) -> str:
        return self.metadata.name


_CODEC: ObjectCodec[_TrustConfigMap] = ObjectCodec(_TrustConfigMap, lambda config_map: config_map)


class ConfigMapTrustSource(ObjectCache[_TrustConfigMap]):
    """Delivers the entries of the ConfigMap (None if it does not exist) first and after each change.

    Entries whose delivery failed are delivered again with the next event or list.
    """

    def __init__(
        self, context: ReflectorContext, deliver: Callable[[Mapping[str, str] | None], None]
    ) -> None:
        # each object is compared with what was delivered, which need not be the one before
        super().__init__(
            ListWatch(_CODEC, _CONFIG_MAPS, NAMESPACE, fields=f"metadata.name={NAME}"),
            context,
            self._deliver_current,
            f"configmap {NAMESPACE}/{NAME}",
            same=lambda *_: False,
            lost=_lose,
            listed=self._deliver_absence,
            remedy=_REMEDY,
        )
        self._deliver = deliver
        self._delivered: tuple[Mapping[str, str] | None, ...] = ()

    @property
    def fault(self) -> str:
        """The failure of the last list or watch, or why the ConfigMap cannot be read; "" without either."""
        config_map = self.find(NAMESPACE, NAME)
        reason = "" if config_map is None else config_map.unreadable
        return self.failure or (reason and f"the ConfigMap cannot be read: {reason}")

    def _deliver_current(self, namespace: str, name: str) -> None:
        config_map = self.find(namespace, name)
        if config_map is None:
            self._deliver_new(None)
        elif not config_map.unreadable:
            self._deliver_new(config_map.data or {})

    def _deliver_absence(self) -> Iterator[None]:
        absent = () if self.count() else (None,)
        return in_steps(absent, self._deliver_new, self._context.problems.defects)

    def _deliver_new(self, entries: Mapping[str, str] | None) -> None:
        if self._delivered != (entries,):
            self._delivered = ()  # until the delivery succeeds
            self._deliver(entries)
            self._delivered = (entries,)


def _lose(lost: Unreadable, _last: _TrustConfigMap | None) -> _TrustConfigMap:
    return _TrustConfigMap(PartialMetadata(lost.name, lost.namespace), unreadable=lost.reason)


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


def _sentence(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
