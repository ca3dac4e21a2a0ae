"""FastPathSchedules from files."""

from collections.abc import Callable, Iterator, Sequence

from adapter.bounds.schedule import documents
from adapter.bounds.schedule.documents import FastPathSchedule
from adapter.cli import command_line
from adapter.cli.command_line import SourceText
from adapter.errors import Fault, InputError
from fastpath_tools import manifests


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
    for given in manifests.objects_in(*source, faults):
        tree = given.tree
        if isinstance(tree, dict) and isinstance(kind := tree.get("kind"), str) and kind != documents.KIND:
            left_out(f"{given.source}:{given.line}: {kind}")
            continue
        with given.collecting(faults):
            yield documents.read_document(tree, namespace)
