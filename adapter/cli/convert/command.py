"""`fastpath convert`.

The FastPathAutoscaler for each HorizontalPodAutoscaler of a manifest, with --back the reverse.
`model.autoscaling.conversion` converts the fields. Fields that the other kind does not have are named on
standard error.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from adapter.cli import command_line
from adapter.config.option_fields import Command, CommandOptions, arguments, option
from adapter.config.pflag import FlagType
from adapter.config.yaml import documents
from adapter.errors import Fault, InputError
from adapter.model.autoscaling import conversion
from adapter.model.autoscaling import documents as autoscaler_documents
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND, KIND


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(CommandOptions):
    files: tuple[str, ...] = arguments(are_files=True)
    back: bool = option(
        FlagType.BOOL, "false", "Print the HorizontalPodAutoscaler for each FastPathAutoscaler."
    )


COMMAND = Command(
    verb="convert",
    options=ConvertOptions,
    usage="[FILE...] [flags]",
    about="""\
Prints the FastPathAutoscaler for each HorizontalPodAutoscaler (autoscaling/v2) of a manifest, as
YAML, or with --back the HorizontalPodAutoscaler for each FastPathAutoscaler. Target, limits,
metrics and behavior are kept. What the other kind does not have is left out and named on standard
error: the metric and the annotations of boost, or syncPeriod, mode, fallback
and pendingCapacity.

Delete the autoscaler before its successor is applied. While a target has two, Fastpath does not
scale it. docs/guides/fast-scaler.md has the steps in both directions. FILE is YAML or JSON; - or no FILE:
standard input.
""",
)


def main(argv: Sequence[str]) -> int:
    """Convert documents; 0 if all autoscalers were, 2 if one is not valid or the files have no autoscaler.

    With status 2 nothing is printed.
    """
    options = command_line.read(COMMAND, argv)
    if options is None:
        return 0
    faults: list[Fault] = []
    made: list[str] = []
    for file in command_line.given_files("convert", options.files):
        try:
            made += _convert(command_line.read_source(file), faults, back=options.back)
        except InputError as error:
            faults += error.faults
    if not made and not faults:
        faults.append(
            Fault("", "", f"expected a {KIND if options.back else HPA_KIND}; the files have no such object")
        )
    if faults:
        raise InputError(faults)
    print("---\n".join(made), end="")
    return 0


def _convert(source: command_line.SourceText, faults: list[Fault], *, back: bool) -> Iterator[str]:
    """Yield the autoscalers of a text as YAML.

    Objects of other kinds are named and left out; `faults` grows with what is wrong.
    """
    kinds = {KIND} if back else {HPA_KIND, KIND}
    for document in documents.read_documents(source.text, source.name):
        if isinstance(document, InputError):
            faults += document.faults
            continue
        for place, tree in autoscaler_documents.documents_in(document.value):
            where = f"{source.name}:{document.line_of(place.rstrip('.'))}"
            line = f"{command_line.program()} convert: {where}: {_named(tree)}"
            if autoscaler_documents.kind_of(tree) not in kinds:
                print(f"{line}: left out", file=sys.stderr)
                continue
            assert isinstance(tree, dict)
            try:
                converted = conversion.to_native(tree) if back else conversion.to_fastpath(tree)
            except InputError as error:
                faults += (documents.located(fault, place, document, source.name) for fault in error.faults)
                continue
            for note in converted.notes:
                print(f"{line}: {note}", file=sys.stderr)
            yield yaml.safe_dump(_listed(converted.document), sort_keys=False, allow_unicode=True)


def _named(tree: object) -> str:
    """Return what a document is, as far as it says."""
    if not isinstance(tree, dict):
        return "not an object"
    meta = tree.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else None
    return " ".join(str(part) for part in (tree.get("kind") or "an object without kind", name) if part)


def _listed(value: Any) -> Any:
    """Return a value with lists for tuples, which YAML does not know."""
    if isinstance(value, dict):
        return {name: _listed(below) for name, below in value.items()}
    return [_listed(below) for below in value] if isinstance(value, tuple) else value
