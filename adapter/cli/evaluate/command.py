"""`fastpath evaluate`: what the autoscaler would do with exactly this input, without a cluster.

`autoscaler.decide.evaluate_document` reads the input, `autoscaler.decide.decision` decides, and `result`
shows the outcome.
"""

import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

import msgspec
import yaml

from adapter.autoscaler.decide import evaluate_document
from adapter.autoscaler.decide.evaluate_document import EvaluateDocument
from adapter.cli import command_line
from adapter.cli.evaluate import result
from adapter.config.flags import Command, CommandOptions, arguments, option
from adapter.config.pflag import FlagType
from adapter.config.yaml import documents
from adapter.config.yaml.documents import YAMLDocument
from adapter.errors import Fault, InputError


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(CommandOptions):
    """What to evaluate, and how to print it."""

    files: tuple[str, ...] = arguments()
    jsonl: bool = option(
        FlagType.BOOL, "false", "Read one JSON document a line, and write one result a line.", group="Input"
    )
    output: str = command_line.output("json", "yaml", help_="Format of the results: json or yaml.")
    explain: bool = option(
        FlagType.BOOL, "false", "Print each step of the decision for people instead.", group="Output"
    )

    def faults(self, given: AbstractSet[str]) -> Iterator[Fault]:
        """Yield what is wrong with values together."""
        yield from super().faults(given)
        if self.jsonl and (self.explain or self.output != "json"):
            yield Fault("--jsonl", "", "writes one JSON result a line: without --explain and -o yaml")


COMMAND = Command(
    verb="evaluate",
    options=EvaluateOptions,
    usage="[FILE...] [flags]",
    about="""\
Shows what Kubernetes' horizontal pod autoscaler (1.36) would do with the input of one sync: an
autoscaler, the scale of its target, pods, metrics, and what earlier syncs recorded. It contacts no
cluster. docs/guides/evaluate.md has the document and an example. FILE is YAML or JSON; - or no FILE:
standard input.
""",
)

_LINES = "JSON documents on lines of their own need --jsonl"
_NO_LINES = "expected a JSON document on each line: give YAML, or JSON over several lines, without --jsonl"


def main(argv: Sequence[str]) -> int:
    """Evaluate documents; 0 when all were, 2 when one is not valid."""
    options = command_line.read(COMMAND, argv)
    if options is None:
        return 0
    paths = command_line.given_files("evaluate", options.files)
    if isinstance(sys.stdout, io.TextIOWrapper):  # names may have any character, in every locale
        sys.stdout.reconfigure(encoding="utf-8")
    if options.jsonl:
        return _evaluate_lines(paths)
    return _evaluate_documents(paths, options.output, explain=options.explain)


# --- lines
# -----------------------------------------------------------------------------------------------------------


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
        with command_line.open_file(file) as stream:
            for line in stream:
                if not line.strip():
                    continue
                if first and not line.lstrip().startswith(b"{"):
                    print(f"fastpath evaluate: {command_line.name_of(file)}: {_NO_LINES}", file=sys.stderr)
                first = False
                try:
                    read = evaluate_document.read_json(line)
                    answer = result.to_json(result.show(read, result.evaluate(read)))
                except InputError as error:
                    status = 2
                    invalid = "; ".join(map(str, error.faults))
                    answer = msgspec.json.encode(_Invalid(evaluate_document.name_of(line), invalid))
                out.write(answer + b"\n")
                out.flush()  # the writer of the next line may wait for this answer
    return status


# --- documents
# -------------------------------------------------------------------------------------------------------


def _evaluate_documents(paths: Iterable[str], output: str, *, explain: bool) -> int:
    """Answer each document.

    Those that are not valid are reported on standard error, and the others evaluated.
    """
    status = 0
    written = 0
    for file in paths:
        with command_line.open_file(file) as stream:
            text = stream.read()
        for read in _read(text, command_line.name_of(file)):
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
    """Yield the documents of a text: JSON if it begins with a brace and can be read as such, else YAML."""
    if text.lstrip().startswith(b"{"):
        try:
            yield evaluate_document.read_json(text, source)
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
        yield InputError([Fault("", "", "expected a document; the file is empty", source)])


def _read_document(read: YAMLDocument, source: str) -> EvaluateDocument | InputError:
    try:
        return evaluate_document.read_plain(read.value, source)
    except InputError as error:
        return InputError([replace(fault, line=read.line_of(fault.path)) for fault in error.faults])


def _render(shown: result.Result, output: str, *, first: bool) -> str:
    if output == "yaml":
        text = yaml.safe_dump(result.to_plain(shown), sort_keys=False, allow_unicode=True)
        return text if first else f"---\n{text}"
    encoded = result.to_json(shown)
    return (msgspec.json.format(encoded) if sys.stdout.isatty() else encoded).decode() + "\n"
