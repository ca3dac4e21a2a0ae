"""`LabelIndex` answers label selectors over the names and labels of all objects of one kind.

An answer equals that of matching every object with `LabelSelector.matches`, in the API server's list order,
but its cost grows with the objects found, not with all objects.

Objects of a namespace with equal labels, such as the pods of a ReplicaSet, share one `_LabelSet`; the index
and the selector see label sets, not objects. What exists once per object is hidden from the garbage collector
where possible: a tuple of strings, one label set instead of a set of one, a dictionary instead of a larger
set. With 100,000 more tracked objects, a full collection would stop the event loop for a tenth of a second.

The pods of a StatefulSet have labels of their own, so a label set is small too: one name instead of a tuple
of one, a digest instead of a text of all labels, and the pod's name where a label repeats it.
"""

import bisect
import hashlib
import itertools
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from adapter.model import steps
from adapter.model.memo import Doorkeeper
from adapter.model.objects.label_selectors import LabelSelector, Operator, Requirement
from adapter.runtime.steps import run_steps
from adapter.telemetry.metrics import BoundedCache, Monitoring

STEP = 1_000
"""Objects or label sets examined between two points at which other work may run."""

FEW = 32  # names, or label sets, that a tuple holds
ANSWERS_BYTES = 16 * 1024 * 1024  # about 15,000 selectors, one for each of many autoscalers
_AWAITED = 16_384  # selectors of so many autoscalers are known until they are repeated
ANSWER_BYTES = 256  # besides selector and names: the record, its key and its place in the LRU order
NAME_BYTES = 8  # a reference; the names themselves belong to the objects

_EQUALITY = frozenset({Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.IN})


class _LabelSet(msgspec.Struct, gc=False, eq=False):
    """The objects of one namespace with equal labels."""

    labels: dict[str, str]
    stored: str | tuple[str, ...] | list[str] = ()
    """The names, sorted: the only one itself, a tuple of few, a list of many."""

    @property
    def names(self) -> tuple[str, ...] | list[str]:
        return (self.stored,) if isinstance(self.stored, str) else self.stored

    def add(self, name: str) -> None:
        names = self.names
        if not names:
            self.stored = name
        elif isinstance(names, list):
            bisect.insort(names, name)
        elif len(names) < FEW:
            self.stored = tuple(sorted((*names, name)))
        else:
            self.stored = sorted((*names, name))

    def remove(self, name: str) -> None:
        if isinstance(self.stored, list):
            del self.stored[bisect.bisect_left(self.stored, name)]
        else:
            self.stored = tuple(other for other in self.names if other != name)


_Entry = _LabelSet | tuple[_LabelSet, ...] | dict[_LabelSet, None]
"""The label sets with one value of a label: the only one itself, a tuple of few, a dictionary of many."""


def _members(entry: _Entry) -> tuple[_LabelSet, ...] | dict[_LabelSet, None]:
    return (entry,) if isinstance(entry, _LabelSet) else entry


def _add(entry: _Entry | None, record: _LabelSet) -> _Entry:
    if entry is None:
        return record
    if isinstance(entry, dict):
        entry[record] = None
        return entry
    several = (*_members(entry), record)
    return several if len(several) <= FEW else dict.fromkeys(several)


def _discard(entry: _Entry, record: _LabelSet) -> _Entry | None:
    """Return what is left of an entry, None for nothing."""
    if isinstance(entry, dict) and len(entry) > FEW:
        del entry[record]
        return entry
    left = tuple(other for other in _members(entry) if other is not record)
    return left[0] if len(left) == 1 else left or None


def _identify(labels: Mapping[str, str]) -> bytes:
    """Return a key that is equal for equal labels: 120 bits of a digest, which Python keeps in 48 bytes."""
    text = "\0".join([f"{label}={labels[label]}" for label in sorted(labels)])
    return hashlib.blake2b(text.encode(), digest_size=15).digest()


class _NamespaceIndex:
    """Names in order, the label set of each, and label -> value -> label sets."""

    __slots__ = ("index", "label_sets", "names", "of_name", "version")

    def __init__(self) -> None:
        self.names: list[str] = []
        self.of_name: dict[str, _LabelSet] = {}
        self.label_sets: dict[bytes, _LabelSet] = {}
        self.index: dict[str, dict[str, _Entry]] = {}
        self.version = 0

    def put(self, name: str, labels: Mapping[str, str]) -> bool:
        """Add or relabel an object; return whether anything changed."""
        current = self.of_name.get(name)
        if current is None:
            bisect.insort(self.names, name)
        elif current.labels == labels:
            return False
        else:
            self._leave(name, current)
        key = _identify(labels)
        record = self.label_sets.get(key) or self._make(key, labels, name)
        record.add(name)
        self.of_name[name] = record
        return True

    def remove(self, name: str) -> bool:
        current = self.of_name.pop(name, None)
        if current is None:
            return False
        del self.names[bisect.bisect_left(self.names, name)]
        self._leave(name, current)
        return True

    def _make(self, key: bytes, labels: Mapping[str, str], name: str) -> _LabelSet:
        interned = {
            sys.intern(label): name if value == name else sys.intern(value) for label, value in labels.items()
        }
        record = self.label_sets[key] = _LabelSet(interned)
        for label, value in interned.items():
            values = self.index.setdefault(label, {})
            values[value] = _add(values.get(value), record)
        return record

    def _leave(self, name: str, record: _LabelSet) -> None:
        record.remove(name)
        if record.stored:
            return
        del self.label_sets[_identify(record.labels)]
        for label, value in record.labels.items():
            values = self.index[label]
            left = _discard(values[value], record)
            if left is not None:
                values[value] = left
                continue
            del values[value]
            if not values:
                del self.index[label]

    def candidates(self, selector: LabelSelector) -> Iterable[_LabelSet]:
        """Return a small set of label sets that contains all matching ones."""
        smallest: list[_Entry] | None = None
        size = len(self.label_sets)
        for requirement in selector.requirements:
            indexed = self._indexed(requirement)
            if indexed is None:
                continue
            length = sum(len(_members(entry)) for entry in indexed)
            if length < size:
                smallest, size = indexed, length
        if smallest is None:
            return self.label_sets.values()
        return (record for entry in smallest for record in _members(entry))

    def _indexed(self, requirement: Requirement) -> list[_Entry] | None:
        """Return the index entries for a requirement that needs a label to exist, None for any other."""
        if requirement.operator in _EQUALITY:
            values = self.index.get(requirement.key, {})
            return [values[value] for value in requirement.values if value in values]
        if requirement.operator is Operator.EXISTS:
            return list(self.index.get(requirement.key, {}).values())
        return None


class _CachedAnswer(NamedTuple):
    """An answer, the version of its data, and its approximate size with the selector in bytes."""

    version: int
    names: tuple[str, ...]
    weight: int


class LabelIndex:
    """Names and labels of all objects of one kind. Cluster-scoped objects have the namespace ""."""

    def __init__(self, monitoring: Monitoring | None = None) -> None:
        self._namespaces: dict[str, _NamespaceIndex] = {}
        self._size = 0
        self._version = 0
        self._answers: BoundedCache[tuple[str | None, LabelSelector], _CachedAnswer] = BoundedCache(
            "selections", monitoring, ANSWERS_BYTES, lambda answer: answer.weight
        )
        self._doorkeeper = Doorkeeper(_AWAITED)

    def put(self, namespace: str, name: str, labels: Mapping[str, str] | None) -> Mapping[str, str]:
        """Add or relabel an object; return its labels, which it may share with others."""
        space = self._namespaces.get(namespace)
        if space is None:
            space = self._namespaces[sys.intern(namespace)] = _NamespaceIndex()
        before = len(space.names)
        if space.put(name, labels or {}):
            self._size += len(space.names) - before
            self._version += 1
            space.version = self._version
        return space.of_name[name].labels

    def remove(self, namespace: str, name: str) -> None:
        space = self._namespaces.get(namespace)
        if space is None or not space.remove(name):
            return
        self._size -= 1
        self._version += 1
        space.version = self._version
        if not space.names:
            del self._namespaces[namespace]

    def labels(self, namespace: str, name: str) -> Mapping[str, str] | None:
        """Return the labels of an object, which it may share with others; None if it does not exist."""
        space = self._namespaces.get(namespace)
        record = space.of_name.get(name) if space else None
        return record.labels if record is not None else None

    def namespaces(self) -> list[str]:
        """Return the namespaces that have objects, sorted."""
        return sorted(self._namespaces)

    def count(self) -> int:
        """Return the number of objects."""
        return self._size

    def listing(self, namespace: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield a namespace ("" for all) with the names in it. Both are read when their turn comes."""
        for within in [namespace] if namespace else list(self._namespaces):
            if (space := self._namespaces.get(within)) is not None:
                yield within, tuple(space.names)

    def _current_version(self, namespace: str | None) -> int:
        """Return a number that changes with every change to a namespace (None: to any)."""
        if namespace is None:
            return self._version
        space = self._namespaces.get(namespace)
        return space.version if space else 0

    def names(self, namespace: str | None, selector: LabelSelector) -> tuple[str, ...]:
        """Return the names that match, in list order.

        `namespace` None asks in all namespaces; a name may then occur twice.
        """
        known = self.known(namespace, selector)
        if known is not None:
            return known
        return steps.run(self.select(namespace, selector))

    async def find_names(self, namespace: str | None, selector: LabelSelector) -> tuple[str, ...]:
        """Return what `names` does, in steps between which other tasks run."""
        known = self.known(namespace, selector)
        if known is not None:
            return known
        return await run_steps(self.select(namespace, selector))

    def known(self, namespace: str | None, selector: LabelSelector) -> tuple[str, ...] | None:
        """Return the cached answer if nothing has changed since, else None."""
        answer = self._answers.get((namespace, selector))
        if answer is None or answer.version != self._current_version(namespace):
            return None
        return answer.names

    def select(
        self, namespace: str | None, selector: LabelSelector
    ) -> Generator[None, None, tuple[str, ...]]:
        """Return what `names` does; yield wherever other work may run, which may change the index.

        Objects that are added or removed in between may or may not be in the answer.
        """
        version = self._current_version(namespace)
        # etcd sorts by key, where the namespace ends with a slash, which sorts after "-": "a-b" comes before
        # "a"
        chosen = sorted(self._namespaces, key="{}/".format) if namespace is None else [namespace]
        parts: list[Sequence[str]] = []
        since = 0
        for within in chosen:
            space = self._namespaces.get(within)
            if space is None:
                continue
            parts.append((yield from _select_in(space, selector)))
            since += len(parts[-1])
            if since >= STEP:
                since = 0
                yield
        answer = tuple(parts[0] if len(parts) == 1 else itertools.chain.from_iterable(parts))
        weight = ANSWER_BYTES + selector.weight + NAME_BYTES * len(answer)
        if (
            version == self._current_version(namespace)
            and weight <= ANSWERS_BYTES
            and self._doorkeeper.admits((namespace, selector))
        ):
            self._answers[namespace, selector] = _CachedAnswer(version, answer, weight)
        return answer


def _select_in(namespace: _NamespaceIndex, selector: LabelSelector) -> Generator[None, None, Sequence[str]]:
    if not selector.requirements:
        return namespace.names.copy()
    matching: list[_LabelSet] = []
    for count, record in enumerate(list(namespace.candidates(selector)), 1):
        if selector.matches(record.labels):
            matching.append(record)
        if count % STEP == 0:
            yield
    if len(matching) == 1:
        return matching[0].names
    total = sum(len(record.names) for record in matching)
    if total <= STEP:
        return sorted([name for record in matching for name in record.names])
    # many: walking all names in order is cheaper than sorting, and can be interrupted
    wanted = set(matching)
    names: list[str] = []
    for count, name in enumerate(namespace.names.copy(), 1):
        if namespace.of_name.get(name) in wanted:
            names.append(name)
        if count % STEP == 0:
            yield
    return names
