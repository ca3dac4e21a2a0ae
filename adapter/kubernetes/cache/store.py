"""The objects of one kind in memory, and the index that answers label selectors.

What lives here: `Store`. Not here: where objects come from (`informer`). The law: an answer equals that of a scan over all
objects with `LabelSelector.matches`, in the API server's list order, and costs what it finds, not what there is.

Objects of a namespace that carry the same labels, as the pods of a ReplicaSet do, share one record; the index and the
selector see these records, not the objects. What exists once per object is kept out of the garbage collector's sight where
it can be (a tuple of strings, a record of its own in place of a set of one, a dictionary in place of a larger set, for it is
looked through only if there is something to find): 100,000 more objects to look through stop the event loop for a tenth of a second.
"""

import bisect
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from adapter.model.selectors.label_selectors import LabelSelector, Operator, Requirement
from adapter.telemetry.caching import BoundedCache
from adapter.telemetry.metrics import Monitoring

_STEP = 1_000
"""How many objects or records are looked at between two points at which other work may run."""

_FEW = 32
_REMEMBERED_BYTES = 16 * 1024 * 1024  # some 15,000 selectors, one for each of many autoscalers
_ANSWER_BYTES = (
    256  # beside selector and names: the record, its key, and its place among those that were used earlier
)
_NAME_BYTES = 8  # names are those of the objects themselves

_EQUALITY = frozenset({Operator.EQUALS, Operator.DOUBLE_EQUALS, Operator.IN})


class _Alike(msgspec.Struct, gc=False, eq=False):
    """The objects of one namespace that carry the same labels; `names` is sorted, a tuple while they are few."""

    key: str
    labels: dict[str, str]
    names: tuple[str, ...] | list[str] = ()

    def add(self, name: str) -> None:
        if isinstance(self.names, tuple) and len(self.names) < _FEW:
            self.names = tuple(sorted((*self.names, name)))
            return
        if isinstance(self.names, tuple):
            self.names = list(self.names)
        bisect.insort(self.names, name)

    def remove(self, name: str) -> None:
        if isinstance(self.names, tuple):
            self.names = tuple(other for other in self.names if other != name)
        else:
            del self.names[bisect.bisect_left(self.names, name)]


_Group = dict[_Alike, None]
"""A set of records."""


class _Namespace:
    """One namespace: its names in order, who carries which labels, and label -> value -> records (one, or a group)."""

    __slots__ = ("alike", "index", "names", "of_name", "version")

    def __init__(self) -> None:
        self.names: list[str] = []
        self.of_name: dict[str, _Alike] = {}
        self.alike: dict[str, _Alike] = {}
        self.index: dict[str, dict[str, _Alike | _Group]] = {}
        self.version = 0

    def put(self, name: str, labels: Mapping[str, str]) -> bool:
        """Add or relabel; tell whether anything changed."""
        key = "\0".join([f"{label}={labels[label]}" for label in sorted(labels)])
        current = self.of_name.get(name)
        if current is None:
            bisect.insort(self.names, name)
        elif current.key == key:
            return False
        else:
            self._leave(name, current)
        record = self.alike.get(key) or self._make(key, labels)
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

    def _make(self, key: str, labels: Mapping[str, str]) -> _Alike:
        interned = {sys.intern(label): sys.intern(value) for label, value in labels.items()}
        record = self.alike[key] = _Alike(key, interned)
        for label, value in interned.items():
            values = self.index.setdefault(label, {})
            found = values.get(value)
            if found is None:
                values[value] = record
            elif isinstance(found, dict):
                found[record] = None
            else:
                values[value] = {found: None, record: None}
        return record

    def _leave(self, name: str, record: _Alike) -> None:
        record.remove(name)
        if record.names:
            return
        del self.alike[record.key]
        for label, value in record.labels.items():
            values = self.index[label]
            found = values[value]
            if isinstance(found, dict):
                del found[record]
                if len(found) == 1:
                    values[value] = next(iter(found))
            else:
                del values[value]
                if not values:
                    del self.index[label]

    def candidates(self, selector: LabelSelector) -> Iterable[_Alike]:
        """Return a small set of records that holds all those that match."""
        smallest: list[_Alike | _Group] | None = None
        size = len(self.alike)
        for requirement in selector.requirements:
            found = self._indexed(requirement)
            if found is None:
                continue
            length = sum(len(each) if isinstance(each, dict) else 1 for each in found)
            if length < size:
                smallest, size = found, length
        if smallest is None:
            return self.alike.values()
        return (record for each in smallest for record in (each if isinstance(each, dict) else (each,)))

    def _indexed(self, requirement: Requirement) -> list[_Alike | _Group] | None:
        """Return the index's entries for a requirement that asks for a label to be there, None for any other."""
        if requirement.operator in _EQUALITY:
            values = self.index.get(requirement.key, {})
            return [values[value] for value in requirement.values if value in values]
        if requirement.operator is Operator.EXISTS:
            return list(self.index.get(requirement.key, {}).values())
        return None


class _Remembered(NamedTuple):
    """An answer, the version of what it was found in, and about how many bytes it takes with its selector."""

    version: int
    names: tuple[str, ...]
    weight: int


class Store:
    """All objects of one kind. Cluster-scoped objects have the namespace ""."""

    def __init__(self, monitoring: Monitoring | None = None) -> None:
        self._namespaces: dict[str, _Namespace] = {}
        self._size = 0
        self._version = 0
        self._answers: BoundedCache[tuple[str | None, LabelSelector], _Remembered] = BoundedCache(
            "selections", monitoring, _REMEMBERED_BYTES, lambda answer: answer.weight
        )

    def __len__(self) -> int:
        return self._size

    def put(self, namespace: str, name: str, labels: Mapping[str, str] | None) -> None:
        """Add an object or give it new labels."""
        found = self._namespaces.get(namespace)
        if found is None:
            found = self._namespaces[sys.intern(namespace)] = _Namespace()
        before = len(found.names)
        if found.put(name, labels or {}):
            self._size += len(found.names) - before
            self._version += 1
            found.version = self._version

    def remove(self, namespace: str, name: str) -> None:
        """Forget an object; nothing happens if it is not there."""
        found = self._namespaces.get(namespace)
        if found is None or not found.remove(name):
            return
        self._size -= 1
        self._version += 1
        found.version = self._version
        if not found.names:
            del self._namespaces[namespace]

    def labels(self, namespace: str, name: str) -> Mapping[str, str] | None:
        """Return the labels of an object, which others may share; None if it is not there."""
        found = self._namespaces.get(namespace)
        record = found.of_name.get(name) if found else None
        return record.labels if record is not None else None

    def namespaces(self) -> list[str]:
        """Return the namespaces that have objects, sorted."""
        return sorted(self._namespaces)

    def listing(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield namespaces with their names, each as they are when their turn comes."""
        for namespace in list(self._namespaces):
            if (found := self._namespaces.get(namespace)) is not None:
                yield namespace, tuple(found.names)

    def _version_of(self, namespace: str | None) -> int:
        """Return a number that changes with every change of what a question about `namespace` may see."""
        if namespace is None:
            return self._version
        found = self._namespaces.get(namespace)
        return found.version if found else 0

    def names(self, namespace: str | None, selector: LabelSelector) -> tuple[str, ...]:
        """Return the names that match, in list order; None asks in all namespaces, where names may come twice."""
        known = self.known(namespace, selector)
        if known is not None:
            return known
        steps = self.select(namespace, selector)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                answer: tuple[str, ...] = end.value
                return answer

    def known(self, namespace: str | None, selector: LabelSelector) -> tuple[str, ...] | None:
        """Return the answer to a question that was asked before if nothing has changed since, else None."""
        answer = self._answers.get((namespace, selector))
        return answer.names if answer is not None and answer.version == self._version_of(namespace) else None

    def select(
        self, namespace: str | None, selector: LabelSelector
    ) -> Generator[None, None, tuple[str, ...]]:
        """Return what `names` does; yield wherever other work may run, which may change the store.

        What comes or goes meanwhile may or may not be in the answer; all else is.
        """
        version = self._version_of(namespace)
        # etcd's keys end namespaces with a slash, which stands behind "-": "a-b" comes before "a"
        chosen = sorted(self._namespaces, key="{}/".format) if namespace is None else [namespace]
        names: list[str] = []
        done = 0
        for each in chosen:
            found = self._namespaces.get(each)
            if found is None:
                continue
            names += yield from _select_in(found, selector)
            if len(names) - done >= _STEP:
                done = len(names)
                yield
        answer = tuple(names)
        weight = _ANSWER_BYTES + selector.weight + _NAME_BYTES * len(answer)
        if version == self._version_of(namespace) and weight <= _REMEMBERED_BYTES:
            self._answers[namespace, selector] = _Remembered(version, answer, weight)
        return answer


def _select_in(namespace: _Namespace, selector: LabelSelector) -> Generator[None, None, list[str]]:
    if not selector.requirements:
        return namespace.names.copy()
    matching: list[_Alike] = []
    for count, record in enumerate(list(namespace.candidates(selector)), 1):
        if selector.matches(record.labels):
            matching.append(record)
        if count % _STEP == 0:
            yield
    if len(matching) == 1:
        return list(matching[0].names)
    total = sum(len(record.names) for record in matching)
    if total <= _STEP:
        return sorted([name for record in matching for name in record.names])
    # many: walking the names in order costs less than bringing them into order, and can be interrupted
    wanted = set(matching)
    names: list[str] = []
    for count, name in enumerate(namespace.names.copy(), 1):
        if namespace.of_name.get(name) in wanted:
            names.append(name)
        if count % _STEP == 0:
            yield
    return names
