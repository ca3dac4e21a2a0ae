"""`fastpath evaluate`: what the autoscaler would do with exactly this input, without a cluster.

Reading, writing and exit statuses. The decision is `autoscaler.decide.decision`'s, the documents are `autoscaler.decide.document`'s and `cli.evaluate.result`'s.
"""

import argparse
import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

import msgspec
import yaml

from adapter.autoscaler.decide.evaluate import document
from adapter.autoscaler.decide.evaluate.document import EvaluateDocument
from adapter.cli import files
from adapter.cli.evaluate import result
from adapter.config.yaml import documents
from adapter.config.yaml.documents import YAMLDocument
from adapter.errors import Fault, InputError

DESCRIPTION = """\
Say what Kubernetes' horizontal pod autoscaler (1.36) would do with one sync's input: an autoscaler, the scale of its target, pods,
metrics and what earlier syncs left behind. No cluster is asked. docs/guides/evaluate.md has the document and an example.
"""

_LINES = "JSON documents on lines of their own need --jsonl"
_NO_LINES = "expected a JSON document on each line: give YAML, or JSON over several lines, without --jsonl"


def main(arguments: Sequence[str]) -> int:
    """Evaluate documents; 0 when all were, 2 when one is not valid."""
    parser = argparse.ArgumentParser(
        "fastpath evaluate", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", metavar="FILE", nargs="*", help="YAML or JSON; - or none: standard input")
    parser.add_argument(
        "--jsonl", action="store_true", help="one JSON document a line in, one result a line out"
    )
    parser.add_argument(
        "-o", "--output", choices=("json", "yaml"), default="json", help="form of the results"
    )
    parser.add_argument(
        "--explain", action="store_true", help="print each step of the decision for people instead"
    )
    own = parser.parse_args(arguments)
    if own.jsonl and (own.explain or own.output != "json"):
        raise InputError(
            [Fault("--jsonl", "", "writes one JSON result a line: without --explain and -o yaml")]
        )
    paths = own.files or [files.STDIN]
    if isinstance(sys.stdout, io.TextIOWrapper):  # names may have any character, in every locale
        sys.stdout.reconfigure(encoding="utf-8")
    return (
        _evaluate_lines(paths) if own.jsonl else _evaluate_documents(paths, own.output, explain=own.explain)
    )


# --- lines -----------------------------------------------------------------------------------------------------------


class _Invalid(msgspec.Struct):
    """The result of a line that is not valid."""

    name: str | None
    invalid: str


def _evaluate_lines(paths: Iterable[str]) -> int:
    """Answer each line as it comes; blank lines are skipped."""
    status = 0
    out = sys.stdout.buffer
    for file in paths:
        first = True
        with _open(file) as stream:
            for line in stream:
                if not line.strip():
                    continue
                if first and not line.lstrip().startswith(b"{"):
                    print(f"fastpath evaluate: {files.name_of(file)}: {_NO_LINES}", file=sys.stderr)
                first = False
                try:
                    read = document.read_json(line)
                    answer = result.to_json(result.show(read, result.evaluate(read)))
                except InputError as error:
                    status = 2
                    invalid = "; ".join(map(str, error.faults))
                    answer = msgspec.json.encode(_Invalid(document.name_of(line), invalid))
                out.write(answer + b"\n")
                out.flush()  # whoever writes the next line may wait for this answer
    return status


def _open(file: str) -> IO[bytes]:
    return open(0, "rb", closefd=False) if file == files.STDIN else Path(file).open("rb")


# --- documents -------------------------------------------------------------------------------------------------------


def _evaluate_documents(paths: Iterable[str], output: str, *, explain: bool) -> int:
    """Answer each document; those that are not valid are told on standard error, and the others evaluated all the same."""
    status = 0
    written = 0
    for file in paths:
        with _open(file) as stream:
            text = stream.read()
        for read in _read(text, files.name_of(file)):
            if isinstance(read, InputError):
                status = 2
                for fault in read.faults:
                    print(f"fastpath evaluate: {fault}", file=sys.stderr)
                continue
            decision = result.evaluate(read)
            if explain:
                print("\n" if written else "", result.explain(read, decision), sep="", end="")
            else:
                print(_render(result.show(read, decision), output, first=not written), end="")
            written += 1
    return status


def _read(text: bytes, source: str) -> Iterator[EvaluateDocument | InputError]:
    """Yield the documents of a text, which is JSON if it begins with a brace and can be read as such, else YAML."""
    if text.lstrip().startswith(b"{"):
        try:
            yield document.read_json(text, source)
        except InputError as error:
            if error.faults[0].path:
                yield error
                return
            # not JSON to its end: several documents, or YAML in braces
            if b"\n{" in text:
                error = InputError(
                    [replace(error.faults[0], expected=f"{error.faults[0].expected}; {_LINES}")]
                )
            yield from _read_yaml(text, source, error)
        return
    yield from _read_yaml(text, source, None)


def _read_yaml(
    text: bytes, source: str, not_json: InputError | None
) -> Iterator[EvaluateDocument | InputError]:
    try:
        decoded = text.decode()
    except UnicodeDecodeError as error:
        yield InputError([Fault("", "", f"not UTF-8: {error.reason} at byte {error.start}", source)])
        return
    count = 0
    for each in documents.read_documents(decoded, source):
        if isinstance(each, InputError):
            yield each if count or not_json is None else not_json
        else:
            yield _read_document(each, source)
        count += 1
    if not count:
        yield InputError([Fault("", "", "expected a document; there is none", source)])


def _read_document(read: YAMLDocument, source: str) -> EvaluateDocument | InputError:
    try:
        return document.read_plain(read.value, source)
    except InputError as error:
        return InputError([replace(fault, line=read.line_of(fault.path)) for fault in error.faults])


def _render(shown: result.Result, output: str, *, first: bool) -> str:
    if output == "yaml":
        text = yaml.safe_dump(result.to_plain(shown), sort_keys=False, allow_unicode=True)
        return text if first else f"---\n{text}"
    encoded = result.to_json(shown)
    return (msgspec.json.format(encoded) if sys.stdout.isatty() else encoded).decode() + "\n"
