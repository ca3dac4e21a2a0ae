"""`fastpath convert`: the FastPathAutoscaler for each HorizontalPodAutoscaler in a manifest.

Reading, writing and exit statuses. What becomes of what is `model.fastpathautoscaler`'s. Law: what is printed is valid, and says
nothing that the manifest does not.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from adapter.cli import files
from adapter.clients.autoscalerfiles import located
from adapter.config import yamldocuments
from adapter.errors import Fault, InputError
from adapter.model import autoscalerdocuments, fastpathautoscaler
from adapter.model.fastpathautoscaler import FastPathAutoscaler

DESCRIPTION = """\
Print the FastPathAutoscaler for each HorizontalPodAutoscaler (autoscaling/v2) of a manifest, as YAML. It wants the same: target,
limits, metrics and behavior are taken over as they are. Delete the HorizontalPodAutoscaler before the other is applied: two
autoscalers on one target stand in each other's way, and Fastpath then does nothing. docs/fast-scaler.md says what can be added.
"""

_NOWHERE = "fastpath-convert-leaves-it-out"
"""Stands in for a namespace that a manifest leaves to `kubectl --namespace`; it is not printed."""


def main(arguments: Sequence[str]) -> int:
    """Convert documents; 0 when all autoscalers were, 2 when one is not valid or there is none: then nothing is printed."""
    parser = argparse.ArgumentParser(
        "fastpath convert", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", metavar="FILE", nargs="*", help="YAML or JSON; - or none: standard input")
    own = parser.parse_args(arguments)
    faults: list[Fault] = []
    made: list[str] = []
    for file in own.files or [files.STDIN]:
        try:
            made += _convert(files.read(file), faults)
        except InputError as error:
            faults += error.faults
    if not made and not faults:
        faults.append(Fault("", "", "expected a HorizontalPodAutoscaler; there is none"))
    if faults:
        raise InputError(faults)
    print("---\n".join(made), end="")
    return 0


def _convert(source: files.Source, faults: list[Fault]) -> Iterator[str]:
    """Yield the autoscalers of a text as YAML. Objects of other kinds are named and left out; `faults` grows with what is wrong."""
    for document in yamldocuments.read_documents(source.text, source.name):
        if isinstance(document, InputError):
            faults += document.faults
            continue
        for place, tree in autoscalerdocuments.documents_in(document.value):
            if not autoscalerdocuments.kind_of(tree):
                line = document.line_of(place.rstrip("."))
                print(f"fastpath convert: {source.name}:{line}: {_named(tree)}: left out", file=sys.stderr)
                continue
            try:
                yield _render(autoscalerdocuments.read_document(tree, _NOWHERE))
            except InputError as error:
                faults += (located(fault, place, document, source.name) for fault in error.faults)


def _named(tree: object) -> str:
    """Return what a document is, as far as it says."""
    if not isinstance(tree, dict):
        return "what is no object"
    meta = tree.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else None
    return " ".join(str(part) for part in (tree.get("kind") or "an object without kind", name) if part)


def _render(autoscaler: FastPathAutoscaler) -> str:
    """Return an autoscaler as YAML."""
    plain = fastpathautoscaler.to_plain(autoscaler)
    if plain["metadata"]["namespace"] == _NOWHERE:
        del plain["metadata"]["namespace"]
    return yaml.safe_dump(_listed(plain), sort_keys=False, allow_unicode=True)


def _listed(value: Any) -> Any:
    """Return a value with lists for tuples, which YAML does not know."""
    if isinstance(value, dict):
        return {name: _listed(below) for name, below in value.items()}
    return [_listed(below) for below in value] if isinstance(value, tuple) else value
