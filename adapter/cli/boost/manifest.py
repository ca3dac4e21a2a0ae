"""Manifests whose HorizontalPodAutoscalers are boosted.

A text with documents to the same text, or to a JSON patch. It finds the autoscalers, in Lists too; `patch`
says what changes in one, `round_trip` changes its text. A document without a change comes out byte for byte,
and a text with a fault does not come out at all.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from adapter.cli.boost import patch, round_trip
from adapter.cli.boost.json_patch import REMOVE, PatchOperation
from adapter.cli.boost.patch import Wish
from adapter.cli.boost.round_trip import Edited
from adapter.config.yaml import documents
from adapter.config.yaml.documents import YAMLDocument
from adapter.errors import Fault, InputError
from adapter.model.autoscaling import documents as autoscalerdocuments
from adapter.model.autoscaling.boost import MODE_ANNOTATION

_REWRITTEN = (
    "its document is written as a whole, without comments: the change reaches into an alias or a merge key"
)
_NO_ANNOTATIONS = (
    "the document has no annotations, and its patch takes away those that an object of the cluster may have: "
    "make the patch for one of what `kubectl get hpa NAME -o yaml` prints"
)


class Manifest(NamedTuple):
    """What became of a text: itself, and the operations of each autoscaler in it.

    `notes` are lines that begin with a place.
    """

    text: str
    patches: tuple[tuple[PatchOperation, ...], ...]
    notes: tuple[str, ...]


class _Planned(NamedTuple):
    """One autoscaler: where it stands in its document, and its operations there."""

    place: str
    name: str
    operations: tuple[PatchOperation, ...]
    notes: tuple[str, ...]


def change(text: str, source: str, wish: Wish, *, patches: bool = False) -> Manifest:
    """Return a text whose autoscalers are what is wished for.

    InputError with all that is wrong, or without one. With `patches` exactly one autoscaler has to be there,
    and notes are about its patch.
    """
    faults: list[Fault] = []
    pieces: list[str] = []
    made: list[tuple[PatchOperation, ...]] = []
    notes: list[str] = []
    lines_of: list[int] = []
    for lines, part in documents.split_documents(text):
        document = documents.read_part(lines, part, source)
        if isinstance(document, InputError):
            faults += document.faults
        if not isinstance(document, YAMLDocument):
            pieces.append(part)
            continue
        planned = list(_plan(document, source, wish, faults))
        operations = [_in_list(each, operation) for each in planned for operation in each.operations]
        # a document without a change stays byte for byte as it is
        edited = (
            round_trip.edit(part, document, operations) if operations else Edited(part, is_rewritten=False)
        )
        pieces.append(edited.text)
        made += (tuple(map(_for_an_object, each.operations)) for each in planned)
        for each in planned:
            line = document.line_of(each.place)
            lines_of.append(line)
            said = [*each.notes, *_more(each.operations, is_rewritten=edited.is_rewritten, patches=patches)]
            notes += (f"{source}:{line}: {patch.KIND} {each.name}: {note}" for note in said)
    if not made and not faults:
        faults.append(Fault("", "", f"expected a {patch.KIND}; the file has no such object", source))
    if patches and len(made) > 1 and not faults:
        faults.append(
            Fault("", "", f"expected one {patch.KIND}: a patch is for one object", source, lines_of[1])
        )
    if faults:
        raise InputError(faults)
    return Manifest("".join(pieces), tuple(made), tuple(notes))


def _plan(document: YAMLDocument, source: str, wish: Wish, faults: list[Fault]) -> Iterator[_Planned]:
    """Yield the autoscalers of a document; `faults` grows with what is wrong."""
    for place, tree in autoscalerdocuments.documents_in(document.value):
        if not patch.is_autoscaler(tree):
            continue
        assert isinstance(tree, dict)
        try:
            planned = patch.plan(tree, wish)
        except InputError as error:
            for fault in error.faults:
                path = f"{place}{fault.path}"
                faults.append(replace(fault, path=path, source=source, line=document.line_of(path)))
        else:
            yield _Planned(place.rstrip("."), tree["metadata"]["name"], planned.operations, planned.notes)


def _in_list(planned: _Planned, operation: PatchOperation) -> PatchOperation:
    """Return an operation on an autoscaler as one on its document.

    Itself, or the List that has it as an item.
    """
    index = planned.place.removeprefix("items[").removesuffix("]")
    return operation.below("items", index) if index else operation


def _for_an_object(operation: PatchOperation) -> PatchOperation:
    """Return an operation as one on the object of a cluster, which may have further annotations."""
    is_all = operation.op == REMOVE and operation.path == ("metadata", "annotations")
    return operation._replace(path=(*operation.path, MODE_ANNOTATION)) if is_all else operation


def _more(operations: tuple[PatchOperation, ...], *, is_rewritten: bool, patches: bool) -> Iterator[str]:
    """Yield what is to be said of the form that a change is given in."""
    if not patches:
        if is_rewritten:
            yield _REWRITTEN
    elif any(each.path == ("metadata", "annotations") and each.value for each in operations):
        yield _NO_ANNOTATIONS
