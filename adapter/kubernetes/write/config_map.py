"""ConfigMaps with what the next owner of a slice has to know, each written against the version that was read.

Every write replaces the resource version that it was made from, and makes a new one even if it changes no
floor (annotation `WRITTEN_FROM`). So a write that is still under way, of a previous owner or of our own, can
never land on top of a later one. A write without a response may still land as long as its version is the
stored one; another write follows it, even if it changes nothing, because after that it cannot.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from adapter import errors
from adapter.kubernetes import client, transport
from adapter.kubernetes.codec import ObjectCodec, PartialMetadata
from adapter.kubernetes.write.outbox import UNEXPECTED_PAUSE, Outbox, OutboxKey, Outlet, SendTime
from adapter.kubernetes.write.writer import WriteKind, Writer, may_have_been_applied
from adapter.model.autoscaling import slices
from adapter.model.autoscaling.floor import LABEL
from adapter.model.clock import Clock
from adapter.telemetry.problems import ProblemLog

AGAIN = 5
"""How often a write is repeated, from what is stored by then, before it fails."""

FETCH_SECONDS = 5.0

WRITTEN_FROM = "fastpath.io/written-from"
"""The annotation with the resource version from which the ConfigMap was written."""


class StoredFloors(NamedTuple):
    name: str
    version: str
    texts: Mapping[str, str]


class _FloorDocument(msgspec.Struct, frozen=True, gc=False):
    metadata: PartialMetadata = PartialMetadata()
    data: dict[str, str] | None = None


def _keep(document: _FloorDocument) -> StoredFloors:
    return StoredFloors(document.metadata.name, document.metadata.resource_version, document.data or {})


CODEC = ObjectCodec(_FloorDocument, _keep)


class ConfigMapState(NamedTuple):
    """The ConfigMap as it is stored, without its managed fields; `version` is "" if it does not exist."""

    version: str
    texts: Mapping[str, str]
    document: Mapping[str, Any]


Change = Callable[[Mapping[str, str]], tuple[Mapping[str, str], bool]]
"""Returns the entries to store, made from those that are stored; with True they are written even if equal."""


class OwnConfigMap:
    """The ConfigMap `name` with a label, written as the owner of one term."""

    def __init__(
        self,
        writer: Writer,
        namespace: str,
        name: str,
        label: str = LABEL,
        kind: WriteKind = WriteKind.FLOOR,
        *,
        adopts: bool = True,
    ) -> None:
        """`kind` is the priority of its writes. Without `adopts` one that lacks the label is an error."""
        self.name = f"{namespace}/{name}"
        self._label = label
        self._kind = kind
        self._adopts = adopts
        self.unsure: str | None = None
        """The version from which a write without a response was made that may still land."""
        self._writer = writer
        self._new = {"name": name, "namespace": namespace}
        self._collection = f"/api/v1/namespaces/{namespace}/configmaps"
        self._path = f"{self._collection}/{name}"
        self._stored: ConfigMapState | None = None

    def forget(self) -> None:
        """Make the next update read the ConfigMap first, because another client may have written it."""
        self._stored = None

    async def update(self, make: Change) -> bool:
        """Store what `make` returns; tell whether that took a write.

        `make` is called when the write may be sent, and again with what is stored by then after a conflict, a
        429, or a connection that was closed during the write.
        """
        left = AGAIN
        while True:
            stored = self._stored or await self._fetch()
            await self._writer.acquire(self._kind)
            texts, force = make(stored.texts)
            is_forced = (force and bool(stored.version)) or self.unsure is not None
            is_labelled = not stored.version or self._is_labelled(stored)
            if not is_forced and is_labelled and texts == stored.texts:
                self._stored = stored
                self._writer.give_back()
                return False
            try:
                self._stored = await self._send(stored, texts)
            except errors.KubernetesError as error:
                self._stored = None
                if may_have_been_applied(error):
                    self.unsure = stored.version
                if not left or not _may_help(error, stored):
                    raise
            else:
                self.unsure = None
                return True
            left -= 1

    async def read(self) -> Mapping[str, str]:
        """Return what is stored; errors as `update`, which then begins with it."""
        self._stored = await self._fetch()
        return self._stored.texts

    def _is_labelled(self, stored: ConfigMapState) -> bool:
        labels = stored.document["metadata"].get("labels") or {}
        return bool(labels.get(self._label) == "true")

    async def _fetch(self) -> ConfigMapState:
        try:
            async with asyncio.timeout(FETCH_SECONDS):
                answer = await self._writer.client.get(self._path)
        except TimeoutError as error:
            message = f"cannot get the ConfigMap {self.name}: no answer within {FETCH_SECONDS:g} s"
            raise errors.KubernetesError(0, "Timeout", message) from error
        except errors.KubernetesError as error:
            if error.status != 404:
                raise
            stored = ConfigMapState("", {}, {})
        else:
            stored = self._decode(answer)
            if not self._adopts and not self._is_labelled(stored):
                message = (
                    f"the ConfigMap {self.name} lacks the label {self._label}=true, so it is not used: "
                    "delete it, or add the label"
                )
                raise errors.KubernetesError(0, "Foreign", message)
        if self.unsure != stored.version:
            self.unsure = None  # the write has landed, or never will
        return stored

    async def _send(self, stored: ConfigMapState, texts: Mapping[str, str]) -> ConfigMapState:
        metadata = dict(stored.document.get("metadata") or self._new)
        metadata["labels"] = {**(metadata.get("labels") or {}), self._label: "true"}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), WRITTEN_FROM: stored.version}
        head = {"apiVersion": "v1", "kind": "ConfigMap"}
        content = msgspec.json.encode({**head, **stored.document, "metadata": metadata, "data": texts})
        if stored.version:
            answer = await self._writer.send(self._kind, "PUT", self._path, content)
        else:
            answer = await self._writer.send(self._kind, "POST", self._collection, content)
        return self._decode(answer)

    def _decode(self, answer: client.ResponseBody) -> ConfigMapState:
        try:
            stored = CODEC.decode(answer.content)
            if not stored.version:
                raise ValueError("it has no resourceVersion")  # noqa: TRY301 - as unreadable
            document = msgspec.json.decode(answer.content, type=dict[str, Any])
        except ValueError as error:  # msgspec's own errors are ValueErrors, as is bad UTF-8
            message = f"cannot read the ConfigMap {self.name}: {error}"
            raise errors.KubernetesError(0, "Decode", message) from error
        document["metadata"].pop("managedFields", None)
        return ConfigMapState(stored.version, stored.texts, document)


def _may_help(error: errors.KubernetesError, stored: ConfigMapState) -> bool:
    """Tell whether a write may succeed if it is made from what is stored by now."""
    is_gone = error.status == 404 and bool(stored.version)
    return is_gone or error.status in {409, 429} or error.reason == transport.RESET


# -- through the outbox --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StoreSlot:
    """Where a term stores: ConfigMaps of the slice `number`, in the namespace of the scaler."""

    outlet: "ConfigMapOutlet"
    writer: Writer
    namespace: str
    number: int
    clock: Clock
    problems: ProblemLog


class StoredInTerm(ABC):
    """What a term keeps in one ConfigMap: it knows when that is to be written, and deals with failures."""

    def __init__(self, slot: StoreSlot, name: str, label: str = LABEL, *, adopts: bool = True) -> None:
        self._slot = slot
        self._clock, self._problems = slot.clock, slot.problems
        self._config_map = OwnConfigMap(
            slot.writer, slot.namespace, name, label, slot.outlet.kind, adopts=adopts
        )

    def submit(self) -> None:
        """Begin with the ConfigMap, or note that it may be due sooner."""
        self._slot.outlet.submit(OutboxKey("", self._config_map.name), self, self._slot.number)

    @abstractmethod
    def due(self, now: float) -> SendTime:
        """Return when to `write`, in monotonic seconds."""

    @abstractmethod
    async def write(self) -> None:
        """Bring the ConfigMap up to date."""

    def ends(self) -> bool:
        """Note that the term ends; tell whether there is a last `write`, which is due now."""
        return False

    @abstractmethod
    def close(self) -> None:
        """Note that the term has ended."""


class ConfigMapOutlet(Outlet[StoredInTerm]):
    """Sends the ConfigMaps of a kind. Each waits for its slot itself, after it was read."""

    needs_slot = False
    at_once = slices.COUNT  # a slot is the limit

    def __init__(self, outbox: Outbox, kind: WriteKind, unexpected: str) -> None:
        self.kind, self.unexpected = kind, unexpected
        super().__init__(outbox)

    def due(self, value: StoredInTerm, now: float) -> SendTime:
        return value.due(now)

    def ends(self, value: StoredInTerm) -> bool:
        return value.ends()

    async def send(self, value: StoredInTerm, writer: Writer) -> None:  # noqa: ARG002 - it has the same one
        await value.write()

    def failed(self, value: StoredInTerm, error: Exception, tries: int) -> float:  # noqa: ARG002
        return UNEXPECTED_PAUSE

    def dropped(self, value: StoredInTerm) -> None:
        value.close()
