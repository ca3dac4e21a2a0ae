"""A versioned object store with a watch log, in place of etcd and the watch cache.

One counter gives the versions of all objects. A stored object never changes in place: every write adds a
record with a higher version. The log serves watches and the snapshots of earlier versions.
"""

import bisect
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

JSON = dict[str, Any]
KindKey = tuple[str, str]
"""Group and plural: the versions of a group share their objects."""


def key_of(namespace: str, name: str) -> str:
    """Return the sort key of lists: as in etcd the whole path, so ``a-b/x`` precedes ``a/x``."""
    return f"{namespace}/{name}" if namespace else name


def clone(document: Any) -> Any:
    """Return a deep copy through JSON, which is faster than copy.deepcopy and refuses other values."""
    return msgspec.json.decode(msgspec.json.encode(document))


class Record:
    """One version of one object, encoded at most once. `document` must not be changed."""

    __slots__ = ("_metadata", "_rest", "document", "key", "labels", "name", "namespace", "version")

    def __init__(self, document: JSON, version: int) -> None:
        metadata = document["metadata"]
        metadata["resourceVersion"] = str(version)
        self.document = document
        self.version = version
        self.name: str = metadata["name"]
        self.namespace: str = metadata.get("namespace", "")
        self.key = key_of(self.namespace, self.name)
        self.labels: dict[str, str] = metadata.get("labels") or {}
        self._metadata: bytes | None = None
        self._rest: bytes | None = None

    @property
    def metadata(self) -> bytes:
        if self._metadata is None:
            self._metadata = msgspec.json.encode(self.document["metadata"])
        return self._metadata

    @property
    def body(self) -> bytes:
        """The encoded object after kind and apiVersion, without the outer braces."""
        if self._rest is None:
            rest = {
                field: value
                for field, value in self.document.items()
                if field not in ("kind", "apiVersion", "metadata")
            }
            self._rest = b"," + msgspec.json.encode(rest)[1:-1] if rest else b""
        return b'"metadata":' + self.metadata + self._rest

    def copied(self) -> JSON:
        """Return a copy of the document."""
        document: JSON = clone(self.document)
        return document

    def at(self, version: int) -> "Record":
        """Return the same object under another version, as the events of a deletion carry it."""
        return Record(self.document | {"metadata": dict(self.document["metadata"])}, version)


class Change(NamedTuple):
    """One entry of the log. `old` is None for an addition, `new` for a deletion.

    A deletion keeps the last record unchanged; its event carries ``old.at(version)``.
    """

    version: int
    old: Record | None
    new: Record | None


Subscriber = Callable[[Change], None]


class _KindObjects:
    """The objects of one kind, their log and its subscribers."""

    def __init__(self, log_size: int, horizon: int) -> None:
        self.records: dict[str, Record] = {}
        self.keys: list[str] = []
        self.log: deque[Change] = deque(maxlen=log_size)
        self.horizon = horizon
        self.subscribers: dict[int, Subscriber] = {}


class Store:
    """All objects of a cluster. `log_size` is the number of changes kept for each kind."""

    def __init__(self, log_size: int) -> None:
        self.version = 0
        self._log_size = log_size
        self._compacted = 0
        self._by_kind: dict[KindKey, _KindObjects] = {}
        self._subscriptions = 0
        self._dependents: dict[str, set[tuple[KindKey, str]]] = {}

    def _objects_of(self, kind: KindKey) -> _KindObjects:
        objects = self._by_kind.get(kind)
        if objects is None:
            objects = self._by_kind[kind] = _KindObjects(self._log_size, self._compacted)
        return objects

    def get(self, kind: KindKey, namespace: str, name: str) -> Record | None:
        return self._objects_of(kind).records.get(key_of(namespace, name))

    def put(self, kind: KindKey, document: JSON) -> Record:
        """Store `document` under the next version. The store owns it from here on."""
        objects = self._objects_of(kind)
        self.version += 1
        record = Record(document, self.version)
        old = objects.records.get(record.key)
        if old is None:
            bisect.insort(objects.keys, record.key)
        else:
            self._disown(kind, old)
        objects.records[record.key] = record
        for owner in document["metadata"].get("ownerReferences") or ():
            self._dependents.setdefault(owner["uid"], set()).add((kind, record.key))
        self._append(objects, Change(self.version, old, record))
        return record

    def remove(self, kind: KindKey, record: Record) -> Record:
        """Delete an object; return its last state under the version of the deletion."""
        objects = self._objects_of(kind)
        self.version += 1
        del objects.records[record.key]
        del objects.keys[bisect.bisect_left(objects.keys, record.key)]
        self._disown(kind, record)
        self._append(objects, Change(self.version, record, None))
        return record.at(self.version)

    def _disown(self, kind: KindKey, record: Record) -> None:
        for owner in record.document["metadata"].get("ownerReferences") or ():
            dependents = self._dependents.get(owner["uid"])
            if dependents is not None:
                dependents.discard((kind, record.key))
                if not dependents:
                    del self._dependents[owner["uid"]]

    def _append(self, objects: _KindObjects, change: Change) -> None:
        if len(objects.log) == self._log_size:
            objects.horizon = objects.log[0].version if self._log_size else change.version
        objects.log.append(change)
        for subscriber in list(objects.subscribers.values()):
            subscriber(change)

    def dependents(self, uid: str) -> list[tuple[KindKey, Record]]:
        """Return the objects that name `uid` as an owner."""
        return [
            (kind, self._objects_of(kind).records[key]) for kind, key in sorted(self._dependents.get(uid, ()))
        ]

    def records(self, kind: KindKey, namespace: str = "", after: str = "") -> Iterator[Record]:
        """Yield the records of a kind in list order: of one namespace if given, after the key `after`."""
        objects = self._objects_of(kind)
        return _select(objects.records, objects.keys, namespace, after)

    def records_at(
        self, kind: KindKey, version: int, namespace: str = "", after: str = ""
    ) -> Iterator[Record] | None:
        """Yield the records as of `version`, or return None if the log does not reach back that far."""
        objects = self._objects_of(kind)
        if version >= (objects.log[-1].version if objects.log else objects.horizon):
            return self.records(kind, namespace, after)
        if version < objects.horizon:
            return None
        past = dict(objects.records)
        for change in reversed(objects.log):
            if change.version <= version:
                break
            if change.old is not None:
                past[change.old.key] = change.old
            elif change.new is not None:
                del past[change.new.key]
        return _select(past, sorted(past), namespace, after)

    def kinds_in(self, namespace: str) -> list[tuple[KindKey, list[Record]]]:
        listed = ((kind, list(self.records(kind, namespace))) for kind in list(self._by_kind))
        return [(kind, records) for kind, records in listed if records]

    def changes_since(self, kind: KindKey, version: int) -> list[Change] | None:
        """Return the changes after `version`, or None if some are no longer in the log."""
        objects = self._objects_of(kind)
        if version < objects.horizon:
            return None
        newer = []
        for change in reversed(objects.log):
            if change.version <= version:
                break
            newer.append(change)
        newer.reverse()
        return newer

    def horizon(self, kind: KindKey) -> int:
        """Return the oldest version from which a watch can start."""
        return self._objects_of(kind).horizon

    def compact(self) -> None:
        """Drop the whole log: watches and continued lists from older versions are too old."""
        self._compacted = self.version
        for objects in self._by_kind.values():
            objects.log.clear()
            objects.horizon = self.version

    def subscribe(self, kind: KindKey, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber` at every later change of a kind, until the returned function is called."""
        objects = self._objects_of(kind)
        self._subscriptions += 1
        number = self._subscriptions
        objects.subscribers[number] = subscriber

        def unsubscribe() -> None:
            objects.subscribers.pop(number, None)

        return unsubscribe


def _select(records: dict[str, Record], keys: list[str], namespace: str, after: str) -> Iterator[Record]:
    prefix = f"{namespace}/" if namespace else ""
    start = max(bisect.bisect_left(keys, prefix), bisect.bisect_right(keys, after) if after else 0)
    for position in range(start, len(keys)):
        key = keys[position]
        if not key.startswith(prefix):
            return
        yield records[key]
