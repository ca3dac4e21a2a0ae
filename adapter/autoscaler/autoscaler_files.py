"""Autoscalers in files: a folder of documents, read at start, looked at again while the process runs.

Here: which files there are and what becomes of one that is wrong. Not here: what a document may say (`model.autoscaling.documents`), who
runs the autoscalers. Files are looked at rather than watched, for the reasons in `rulesfiles`. Law: a file that is wrong changes
nothing: its autoscalers stay as they were when it was last right, and it is reported. Only a file that is gone takes its own away.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from adapter.config.yaml import documents
from adapter.config.yaml.documents import YAMLDocument
from adapter.errors import Fault, InputError
from adapter.model.autoscaling import documents as autoscalerdocuments
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.provider import rules_files

_FLAG = "--autoscalers"
_EXPECTED = "expected an autoscaler in it; to remove its autoscalers remove the file"


class Read(NamedTuple):
    """What the files say together: autoscalers in the order of files and documents, and all that is wrong."""

    autoscalers: tuple[FastPathAutoscaler, ...]
    faults: tuple[Fault, ...]


class AutoscalerFiles:
    """The .yaml, .yml and .json files of a folder. `namespace` is where autoscalers belong that name none."""

    def __init__(self, folder: str, namespace: str) -> None:
        self._folder = Path(folder)
        self._namespace = namespace
        self._seen: object = None
        self._good: dict[Path, tuple[FastPathAutoscaler, ...]] = {}
        """What each file said when it was last right."""

    def read(self) -> Read:
        """Return what the files say."""
        self._seen = self._signature()
        faults: list[Fault] = []
        files = self._files(faults)
        if files is not None:
            self._good = {path: good for path, good in self._good.items() if path in files}
            for path in files:
                try:
                    self._good[path] = tuple(self._parse(path))
                except InputError as error:
                    faults += error.faults
        return Read(tuple(self._distinct(faults)), tuple(faults))

    def poll(self) -> Read | None:
        """Return what the files say when one is another than when last read, else None."""
        return None if self._signature() == self._seen else self.read()

    def _files(self, faults: list[Fault]) -> list[Path] | None:
        """Return the files in the order of their names; None, and a fault, where the folder cannot be read."""
        try:
            entries = list(self._folder.iterdir())
        except OSError as error:
            reason = rules_files.reason_of(error)
            faults.append(Fault(_FLAG, str(self._folder), f"expected a readable folder: {reason}"))
            return None
        return sorted(
            entry
            for entry in entries
            if entry.suffix in rules_files.SUFFIXES and not entry.name.startswith(".")
        )

    def _signature(self) -> object:
        files = self._files([])
        return None if files is None else tuple((str(path), rules_files.stamp_of(path)) for path in files)

    def _parse(self, path: Path) -> Iterator[FastPathAutoscaler]:
        """Yield the autoscalers of a file; InputError with all faults of the file after the last."""
        source = str(path)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = rules_files.reason_of(error)
            raise InputError([Fault(_FLAG, source, f"expected a readable file: {reason}")]) from error
        faults: list[Fault] = []
        count = 0
        for document in documents.read_documents(text, source):
            count += 1
            if isinstance(document, InputError):
                faults += document.faults
                continue
            for place, tree in autoscalerdocuments.documents_in(document.value):
                try:
                    yield autoscalerdocuments.read_document(tree, self._namespace)
                except InputError as error:
                    faults += (located(fault, place, document, source) for fault in error.faults)
        if not count:
            faults.append(Fault("", "", _EXPECTED, source))
        if faults:
            raise InputError(faults)

    def _distinct(self, faults: list[Fault]) -> Iterator[FastPathAutoscaler]:
        """Yield each autoscaler once; another of the same name is a fault, and the first one counts."""
        first: dict[tuple[str, str], Path] = {}
        for path, autoscalers in sorted(self._good.items()):
            for autoscaler in autoscalers:
                name = (autoscaler.metadata.namespace, autoscaler.metadata.name)
                if name in first:
                    expected = f"an autoscaler of this name is in {first[name]} already, and that one counts"
                    faults.append(Fault("metadata.name", "/".join(name), expected, str(path)))
                else:
                    first[name] = path
                    yield autoscaler


def located(fault: Fault, place: str, document: YAMLDocument, source: str) -> Fault:
    """Return a fault of an object with file and line; `place` is the object's path in its document, ending with a dot, or ""."""
    path = f"{place}{fault.path}"
    return replace(fault, path=path, source=source, line=document.line_of(path))
