"""FastPathSchedules from files."""

from collections.abc import Callable, Iterator, Sequence

from adapter.cli import command_line
from adapter.cli.command_line import SourceText
from adapter.config.yaml import documents as yaml_documents
from adapter.errors import Fault, InputError
from adapter.model.autoscaling import documents as autoscaler_documents
from adapter.model.schedules import documents
from adapter.model.schedules.documents import FastPathSchedule


def read_schedules(
    files: Sequence[str], namespace: str = "default", left_out: Callable[[str], None] = lambda _: None
) -> list[FastPathSchedule]:
    """Return the schedules of files. InputError with the faults of all documents.

    `namespace` is that of schedules that name none. `left_out` is called with the place and the kind of each
    object of another kind.
    """
    faults: list[Fault] = []
    found: list[FastPathSchedule] = []
    names: set[str] = set()
    for file in files:
        try:
            source = command_line.read_source(file)
        except InputError as error:
            faults += error.faults
            continue
        for each in _schedules_in(source, namespace, left_out, faults):
            name = each.schedule.name
            if name in names:
                faults.append(Fault("metadata.name", name, "expected each schedule once", source.name))
            names.add(name)
            found.append(each)
    if not found and not faults:
        expected = f"expected a {documents.KIND}; the files have no such object"
        faults.append(Fault("", "", expected, ", ".join(map(command_line.name_of, files))))
    if faults:
        raise InputError(faults)
    return found


def _schedules_in(
    source: SourceText, namespace: str, left_out: Callable[[str], None], faults: list[Fault]
) -> Iterator[FastPathSchedule]:
    for document in yaml_documents.read_documents(source.text, source.name):
        if isinstance(document, InputError):
            faults += document.faults
            continue
        for place, tree in autoscaler_documents.documents_in(document.value):
            if (
                isinstance(tree, dict)
                and isinstance(kind := tree.get("kind"), str)
                and kind != documents.KIND
            ):
                left_out(f"{source.name}:{document.line_of(place.rstrip('.'))}: {kind}")
                continue
            try:
                yield documents.read_document(tree, namespace)
            except InputError as error:
                faults += (
                    yaml_documents.located(fault, place, document, source.name) for fault in error.faults
                )
