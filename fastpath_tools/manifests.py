"""The objects of manifests, also those in a List, and where each stands; FastPathSchedules among them."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from adapter.bounds.schedule import documents as schedule_documents
from adapter.bounds.schedule.documents import FastPathSchedule
from adapter.cli import command_line
from adapter.errors import Fault, InputError
from fastpath_tools import yaml_documents
from fastpath_tools.yaml_documents import YAMLDocument

NOWHERE = "a-namespace"
"""Stands in for a namespace that a manifest leaves to `kubectl --namespace`; no result has it."""


class ManifestObject(NamedTuple):
    """An object of a file; `place` is its path in the document with a final dot, or ""."""

    tree: Any
    place: str
    document: YAMLDocument
    source: str

    @property
    def line(self) -> int:
        return self.document.line_of(self.place.rstrip("."))

    def located(self, fault: Fault) -> Fault:
        """Return a fault of the object with file and line."""
        return yaml_documents.located(fault, self.place, self.document, self.source)

    @contextlib.contextmanager
    def collecting(self, faults: list[Fault]) -> Iterator[None]:
        """Add the faults of an InputError in the block to `faults`, with file and line."""
        try:
            yield
        except InputError as error:
            faults += map(self.located, error.faults)


def objects_in(text: str, source: str, faults: list[Fault]) -> Iterator[ManifestObject]:
    """Yield the objects of a text; `faults` grows with those of documents that cannot be read."""
    for document in yaml_documents.read_documents(text, source):
        if isinstance(document, InputError):
            faults += document.faults
            continue
        for place, tree in documents_in(document.value):
            yield ManifestObject(tree, place, document, source)


def documents_in(tree: object) -> Iterator[tuple[str, object]]:
    """Yield path and value of each object of a document: of a List its items, else the document itself."""
    if isinstance(tree, dict) and tree.get("kind") == "List" and isinstance(items := tree.get("items"), list):
        yield from ((f"items[{index}].", item) for index, item in enumerate(items))
    else:
        yield "", tree


def mapping_at(tree: object, *keys: str) -> dict[str, Any]:
    """Return the mapping at a path of a document, an empty one where it is absent."""
    for key in keys:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree if isinstance(tree, dict) else {}


def listed_at(tree: object, *keys: str) -> list[Any]:
    """Return the list at a path of a document, an empty one where it is absent."""
    value = mapping_at(tree, *keys[:-1]).get(keys[-1])
    return value if isinstance(value, list) else []


def read_schedules(
    files: Sequence[str], namespace: str = "default", left_out: Callable[[str], None] = lambda _: None
) -> list[FastPathSchedule]:
    """Return the schedules of files. InputError with the faults of all documents.

    `namespace` is that of schedules that name none. `left_out` is called with the place and the kind of each
    object of another kind.
    """
    faults: list[Fault] = []
    schedules: dict[str, FastPathSchedule] = {}
    for file in files:
        try:
            source = command_line.read_source(file)
        except InputError as error:
            faults += error.faults
            continue
        for given in objects_in(*source, faults):
            kind = given.tree.get("kind") if isinstance(given.tree, dict) else None
            if isinstance(kind, str) and kind != schedule_documents.KIND:
                left_out(f"{given.source}:{given.line}: {kind}")
                continue
            with given.collecting(faults):
                schedule = schedule_documents.read_document(given.tree, namespace)
                name = schedule.schedule.name
                if name in schedules:
                    faults.append(Fault("metadata.name", name, "expected each schedule once", source.name))
                schedules[name] = schedule
    if not schedules and not faults:
        expected = f"expected a {schedule_documents.KIND}; the files have no such object"
        faults.append(Fault("", "", expected, ", ".join(map(command_line.name_of, files))))
    if faults:
        raise InputError(faults)
    return list(schedules.values())
