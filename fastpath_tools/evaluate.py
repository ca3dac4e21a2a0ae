"""`fastpath evaluate`: what the autoscaler would do with exactly this input, without a cluster.

`fastpath_tools.evaluate_document` reads the input and `autoscaler.decide.decision` decides. The result is
one document for each document of the input, or with --explain lines for people.
"""

import io
import sys
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from adapter.autoscaler.decide.decision import decide
from adapter.autoscaler.decide.prepared_spec import prepare
from adapter.autoscaler.decide.sync import Decision
from adapter.cli import command_line
from adapter.config.option_fields import Command, CommandOptions, arguments, switch
from adapter.errors import Fault, InputError
from adapter.model import visible
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerStatus, encode_scalar, to_plain
from adapter.provider import text_files
from fastpath_tools import evaluate_document, yaml_documents
from fastpath_tools.evaluate_document import ControllerOptions, EvaluateDocument


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(CommandOptions):
    files: tuple[str, ...] = arguments(are_files=True)
    jsonl: bool = switch("Read one JSON document a line, and write one result a line.", group="Input")
    output: str = command_line.output("json", "yaml", help_="Format of the results: json or yaml.")
    explain: bool = switch("Print each step of the decision for people instead.", group="Output")

    def faults(self, given: AbstractSet[str]) -> Iterator[Fault]:
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


@command_line.verb(COMMAND)
def main(options: EvaluateOptions) -> int:
    """Evaluate documents; 0 when all were, 2 when one is not valid."""
    paths = command_line.given_files("evaluate", options.files)
    if isinstance(sys.stdout, io.TextIOWrapper):  # names may have any character, in every locale
        sys.stdout.reconfigure(encoding="utf-8")
    if options.jsonl:
        return _evaluate_lines(paths)
    return _evaluate_documents(paths, options.output, explained=options.explain)


# -- lines ---------------------------------------------------------------------------------------------------


def _evaluate_lines(paths: Iterable[str]) -> int:
    """Answer each line as it comes; blank lines are skipped."""
    status = 0
    out = sys.stdout.buffer
    for file in paths:
        first = True
        with command_line.open_file(file) as stream:
            while line := stream.readline(text_files.MOST_BYTES):
                if not line.strip():
                    continue
                if first and not line.lstrip().startswith(b"{"):
                    command_line.tell("evaluate", f"{command_line.name_of(file)}: {_NO_LINES}")
                first = False
                try:
                    read = evaluate_document.read_json(line)
                    answer = to_json(show(read, evaluate(read)))
                except InputError as error:
                    status = 2
                    invalid = "; ".join(map(str, error.faults))
                    answer = to_json({"name": evaluate_document.read_name(line), "invalid": invalid})
                out.write(visible.escape(answer.decode()).encode() + b"\n")
                out.flush()  # the writer of the next line may wait for this answer
    return status


# -- documents -----------------------------------------------------------------------------------------------


def _evaluate_documents(paths: Iterable[str], output: str, *, explained: bool) -> int:
    """Answer each valid document, and report the others on standard error."""
    status = 0
    written = 0
    for file in paths:
        with command_line.open_file(file) as stream:
            text = command_line.read_bytes(file, stream)
        for read in _read(text, command_line.name_of(file)):
            if isinstance(read, InputError):
                status = 2
                for fault in read.faults:
                    command_line.tell("evaluate", str(fault))
                continue
            decision = evaluate(read)
            if explained:
                command_line.show(("\n" if written else "") + explain(read, decision))
            else:
                command_line.show(_render(show(read, decision), output, first=not written))
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
    for document in yaml_documents.read_documents(decoded, source):
        count += 1
        if isinstance(document, InputError):
            yield not_json if count == 1 and not_json is not None else document
            continue
        try:
            yield evaluate_document.read_plain(document.value, source)
        except InputError as error:
            yield InputError([replace(fault, line=document.line_of(fault.path)) for fault in error.faults])
    if not count:
        yield InputError([Fault("", "", "expected a document; the file is empty", source)])


def _render(shown: dict[str, Any], output: str, *, first: bool) -> str:
    if output == "yaml":
        text = command_line.to_yaml(to_plain(shown))
        return text if first else f"---\n{text}"
    encoded = to_json(shown)
    return (msgspec.json.format(encoded) if sys.stdout.isatty() else encoded).decode() + "\n"


# -- the result ----------------------------------------------------------------------------------------------

_ENCODER = msgspec.json.Encoder(enc_hook=encode_scalar)
_OPTIONS = ControllerOptions()


def evaluate(given: EvaluateDocument) -> Decision:
    autoscaler = prepare(given.hpa, (given.options or _OPTIONS).settings())
    return decide(autoscaler, evaluate_document.observe(given), given.remembered(), given.now)


def show(given: EvaluateDocument, decision: Decision) -> dict[str, Any]:
    """Return the result for a document; `status` is None where nothing is written."""
    return {
        **({} if given.name is None else {"name": given.name}),
        "desiredReplicas": decision.replicas,
        "rescaled": decision.rescale,
        "status": _status(decision.status) if decision.status_changed else None,
        "events": [event._asdict() for event in decision.events],
        **({"remarks": remarks} if (remarks := [*evaluate_document.remarks(given)]) else {}),
        **({"error": decision.error} if decision.error else {}),
        "trace": [
            {"step": step.name, "text": step.text(), "numbers": dict(step.facts)} for step in decision.trace
        ],
    }


def _status(status: HorizontalPodAutoscalerStatus) -> dict[str, Any]:
    """Return a status without its times; a `currentReplicas` of 0 is left out, as upstream does."""
    conditions = sorted(status.conditions or (), key=lambda condition: condition.type)
    return {
        **({"currentReplicas": status.current_replicas} if status.current_replicas else {}),
        "desiredReplicas": status.desired_replicas,
        "currentMetrics": status.current_metrics or (),
        "conditions": [
            msgspec.structs.replace(condition, last_transition_time=None) for condition in conditions
        ],
    }


def to_json(shown: dict[str, Any]) -> bytes:
    """Return a result as JSON on one line."""
    return _ENCODER.encode(shown)


def explain(given: EvaluateDocument, decision: Decision) -> str:
    """Return a decision as lines for people: what it comes to, each step, conditions and events."""
    current = decision.status.current_replicas
    headline = f"scales from {current} to {decision.replicas}" if decision.rescale else f"stays at {current}"
    lines = [f"{given.name or given.hpa.metadata.name}: {headline}", *evaluate_document.remarks(given), ""]
    lines += [f"  {step.text()}" for step in decision.trace]
    lines += ["", "conditions"]
    lines += [
        f"  {condition.type} {condition.status} ({condition.reason}): {condition.message}"
        for condition in decision.status.conditions or ()
    ]
    if decision.events:
        lines += ["", "events"]
        lines += [f"  {event.type} {event.reason}: {event.message}" for event in decision.events]
    if decision.error:
        lines += ["", f"error: {decision.error}"]
    return visible.join(lines)
