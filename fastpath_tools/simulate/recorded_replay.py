"""Replay: the recorded decisions of a live scaler, made again from the same inputs.

The source is what `fastpath explain -o json` prints of a scaler with `--journal-records`. The same version
gives the same counts; another one may not, and then the first step in which the two differ says why.
"""

import itertools
from typing import Any, NamedTuple

import msgspec

from adapter.autoscaler.decide import record
from adapter.cli import command_line
from adapter.errors import Fault, InputError
from adapter.model import visible
from adapter.model.visible import counted

_NO_RECORDS = (
    "its decisions have no records: run the scaler with --journal-records, and export its journal again"
)
_NO_JOURNAL = "expected what `fastpath explain NAMESPACE/NAME -o json` prints"


def run(file: str, output: str) -> int:
    """Print what a replay of an export comes to; 1 if a decision comes out differently. InputError."""
    source = command_line.read_source(file)
    done = replay(source.text, source.name)
    if output == "json":
        command_line.show(command_line.to_json(done.document()))
    else:
        command_line.show(visible.join(render(done)))
    return 1 if done.differences else 0


def render(done: "Replayed") -> list[str]:
    decisions = counted(done.decisions, "decision", "decisions")
    lines = [f"{decisions} made again: {done.differences or 'none'} different"]
    if done.without_inputs:
        what = counted(done.without_inputs, "entry has", "entries have")
        lines.append(f"{what} no record: the decision looked at nothing")
    if (first := done.first) is not None:
        lines += ["", f"first difference, {first}"]
        if first.recorded or first.now:
            lines.append(f"  recorded: {first.recorded or 'no such step'}")
            lines.append(f"  now:      {first.now or 'no such step'}")
    return lines


class Difference(NamedTuple):
    """A decision that comes out differently; `recorded` and `now` are the first steps that differ."""

    label: str
    current: int
    before: int
    after: int
    recorded: str
    now: str

    def __str__(self) -> str:
        counts = f"{self.label}: from {self.current} replicas the recorded decision is {self.before}"
        return f"{counts}, and this version decides {self.after}"


class Replayed(NamedTuple):
    """What a replay comes to. `without_inputs` are entries of decisions that looked at nothing."""

    decisions: int
    without_inputs: int
    differences: int
    first: Difference | None

    def document(self) -> dict[str, Any]:
        first = None if self.first is None else self.first._asdict()
        return {
            "decisions": self.decisions,
            "withoutInputs": self.without_inputs,
            "differences": self.differences,
            "first": first,
        }


def replay(text: str, source: str) -> Replayed:
    """Make the decisions of an export again. Raises InputError for another text."""
    decisions = without = differences = 0
    first: Difference | None = None
    for place, entry in enumerate(_journal(text, source)):
        if entry.get("record") is None:
            without += 1
            continue
        decisions += 1
        if (difference := _compare(entry, f"journal[{place}]", source)) is not None:
            differences += 1
            first = first or difference
    if not decisions:
        raise InputError([Fault("journal", "", _NO_RECORDS if without else _NO_JOURNAL, source)])
    return Replayed(decisions, without, differences, first)


def _journal(text: str, source: str) -> list[dict[str, Any]]:
    """Return the entries of an export in the order of the file."""
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError([Fault("", "", f"{_NO_JOURNAL}: not JSON: {error}", source)]) from error
    journal = document.get("journal") if isinstance(document, dict) else None
    if not isinstance(journal, list):
        raise InputError([Fault("journal", "", _NO_JOURNAL, source)])
    for place, entry in enumerate(journal):
        if not isinstance(entry, dict):
            raise InputError([Fault(f"journal[{place}]", "", _NO_JOURNAL, source)])
    return journal


def _compare(entry: dict[str, Any], place: str, source: str) -> Difference | None:
    """Make the decision of an entry again; None if it comes out the same."""
    try:
        recorded = record.convert(entry["record"])
        again = record.decide_again(recorded.inputs)
    except (ValueError, ArithmeticError, LookupError, AssertionError) as error:
        expected = f"expected the record of a decision of this version: {str(error) or type(error).__name__}"
        raise InputError([Fault(f"{place}.record", "", expected, source)]) from error
    if (recorded.replicas, recorded.rescale) == (again.replicas, again.rescale):
        return None
    steps = [str(step) for step in entry.get("trace") or ()], [step.text() for step in again.trace]
    pairs = itertools.zip_longest(*steps, fillvalue="")
    before, now = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
    seen = recorded.inputs.observation.replicas
    label = str(entry.get("time") or place)
    return Difference(label, seen, recorded.replicas, again.replicas, before, now)
