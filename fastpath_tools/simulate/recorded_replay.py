"""Replay: the recorded decisions of a live scaler, made again from the same inputs.

The source is what `fastpath explain -o json` prints of a scaler with `--journal-records`, or lines of JSON
with a document of `fastpath evaluate` under `case` and the result under `expected`. The same version gives
the same counts; another one may not, and then the first step in which the two differ says why.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from adapter.autoscaler.decide import decision, evaluate_document, prepared_spec, record
from adapter.autoscaler.decide.decision import Decision
from adapter.errors import Fault, InputError

_NO_RECORDS = (
    "its decisions have no records: run the scaler with --journal-records, and export its journal again"
)
_NO_JOURNAL = "expected what `fastpath explain NAMESPACE/NAME -o json` prints"


class RecordedDecision(NamedTuple):
    """A decision as it was made: when, from which count to which, and its steps where they are known."""

    label: str
    current: int
    replicas: int
    rescale: bool
    trace: Sequence[str]
    made_again: Decision


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
    for made in _decisions(text, source):
        if made is None:
            without += 1
            continue
        decisions += 1
        difference = _compare(made)
        if difference is not None:
            differences += 1
            first = first or difference
    if not decisions:
        raise InputError([Fault("journal", "", _NO_RECORDS if without else _NO_JOURNAL, source)])
    return Replayed(decisions, without, differences, first)


def _compare(made: RecordedDecision) -> Difference | None:
    again = made.made_again
    if (made.replicas, made.rescale) == (again.replicas, again.rescale):
        return None
    steps = tuple(step.text() for step in again.trace)
    place = next(
        (
            place
            for place in range(max(len(made.trace), len(steps)))
            if made.trace[place : place + 1] != steps[place : place + 1]
        ),
        0,
    )
    recorded, now = "".join(made.trace[place : place + 1]), "".join(steps[place : place + 1])
    return Difference(made.label, made.current, made.replicas, again.replicas, recorded, now)


def _decisions(text: str, source: str) -> Iterator[RecordedDecision | None]:
    """Yield the decisions in the order of the file, None for an entry without a record."""
    first_line = text.lstrip().split("\n", 1)[0]
    if first_line.startswith('{"case"'):
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                yield _evaluated(line, source, number)
        return
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InputError([Fault("", "", f"{_NO_JOURNAL}: not JSON: {error}", source)]) from error
    journal = document.get("journal") if isinstance(document, dict) else None
    if not isinstance(journal, list):
        raise InputError([Fault("journal", "", _NO_JOURNAL, source)])
    for place, entry in enumerate(journal):
        yield _entry(entry, f"journal[{place}]", source)


def _entry(entry: object, place: str, source: str) -> RecordedDecision | None:
    if not isinstance(entry, dict):
        raise InputError([Fault(place, "", _NO_JOURNAL, source)])
    if entry.get("record") is None:
        return None
    try:
        made = record.convert(entry["record"])
        again = record.decide_again(made.inputs)
    except (ValueError, ArithmeticError, LookupError, AssertionError) as error:
        expected = f"expected the record of a decision of this version: {str(error) or type(error).__name__}"
        raise InputError([Fault(f"{place}.record", "", expected, source)]) from error
    trace = tuple(map(str, entry.get("trace") or ()))
    seen = made.inputs.observation.replicas
    return RecordedDecision(str(entry.get("time") or place), seen, made.replicas, made.rescale, trace, again)


def _evaluated(line: str, source: str, number: int) -> RecordedDecision:
    try:
        tree = msgspec.json.decode(line)
        case, expected = tree["case"], tree["expected"]
        replicas, rescale = int(expected["desiredReplicas"]), bool(expected["rescaled"])
    except (msgspec.DecodeError, RecursionError, LookupError, TypeError, ValueError) as error:
        wanted = "expected a JSON object with case and expected, input and result of fastpath evaluate"
        raise InputError([Fault("", "", wanted, source, number)]) from error
    document = evaluate_document.read_plain(case, f"{source}:{number}")
    spec = prepared_spec.prepare(document.hpa, (document.options or _DEFAULTS).settings())
    seen = evaluate_document.observe(document)
    made = decision.decide(spec, seen, document.remembered(), document.now)
    return RecordedDecision(document.name or f"line {number}", seen.replicas, replicas, rescale, (), made)


_DEFAULTS = evaluate_document.ControllerOptions()
