"""How `fastpath doctor` tells what it found: one autoscaler hop by hop, many as a table, both as JSON."""

import math
from collections.abc import Sequence
from typing import Any

from adapter.cli.doctor.diagnosis import Examination
from adapter.cli.doctor.facts import Unread
from adapter.cli.doctor.fast import FastExamination
from adapter.cli.doctor.stage import Hop, State, Total, seconds
from adapter.model.autoscaling.fastpath_autoscaler import AUTO, HPA_KIND, KIND
from adapter.model.autoscaling.hpa import ObjectMeta

_LINE = 150
"""How much of a sentence a line of a table shows; the diagnosis of one autoscaler is told whole."""


def render(found: Examination | FastExamination) -> str:
    """Return what was found about one autoscaler, for people."""
    lines = _fast_lines(found) if isinstance(found, FastExamination) else _lines(found)
    change = found.change
    if isinstance(found, Examination) and not change and found.state is not State.FAULT:
        change = "none that would save a second" if found.slowest.whole else "none, by what could be read"
    lines += ["", f"diagnosis: {found.diagnosis}", *([f"change:    {change}"] if change else [])]
    return "\n".join(lines) + "\n"


def _lines(found: Examination) -> list[str]:
    """Return the headline and the hops of a HorizontalPodAutoscaler."""
    many = len(found.chains) > 1
    rows: list[tuple[str, ...]] = [("hop", "usually", "at most", "", "")]
    rows += map(_row, found.before)
    for chain in found.chains:
        if many:
            rows.append((chain.metric,))
        rows += map(_row, chain.hops)
    if many:
        rows.append(("for all",))
    rows += map(_row, found.after)
    for chain in found.chains:
        total = found.total(chain)
        rows.append(("in all", *_times(total), "", chain.metric if many else ""))
    return [_headline(found), "", *_columns(rows)]


def _fast_lines(found: FastExamination) -> list[str]:
    spec, status = found.fpa.spec, found.fpa.status
    counts = (
        f"{status.current_replicas} replicas, {spec.min_replicas} to {spec.max_replicas}; mode {spec.mode}"
    )
    return [
        f"{found.key} is a {KIND}: {found.explain}",
        f"it scales {spec.scale_target_ref.kind} {spec.scale_target_ref.name}: {counts}",
    ]


def render_table(found: Sequence[Examination], others: Sequence[FastExamination] = ()) -> str:
    """Return a line for each HorizontalPodAutoscaler, the slowest first, then for each FastPathAutoscaler."""
    order = sorted(found, key=lambda each: (-each.slowest.took.usual, each.facts.key))
    rows: list[tuple[str, ...]] = [("autoscaler", "mode", "usually", "at most", "", "diagnosis")]
    for each in order:
        mode = each.facts.mode.lower() or "-"
        rows.append((each.facts.key, mode, *_times(each.slowest), each.state.value, _shorten(each.diagnosis)))
    for other in sorted(others, key=lambda each: each.key):
        spec = other.fpa.spec
        mode = "fast-scaler" if spec.mode == AUTO else f"fast-scaler ({spec.mode.lower()})"
        text = other.diagnosis if other.state is not State.OK else f"{KIND}: {other.explain}"
        rows.append((other.key, mode, "", "", other.state.value, _shorten(text)))
    return "\n".join(_columns(rows, right=(2, 3))) + "\n"


def document(found: Examination | FastExamination) -> dict[str, Any]:
    """Return what was found about one autoscaler as JSON has it; seconds that are not known are null."""
    if isinstance(found, FastExamination):
        return _verdict(KIND, found.fpa.metadata, found.fpa.spec.mode, found)
    facts = found.facts
    return _verdict(HPA_KIND, facts.hpa.metadata, facts.mode, found) | {
        "usualSeconds": _number(found.slowest.took.usual),
        "mostSeconds": _number(found.slowest.took.most),
        "wholeKnown": found.slowest.whole,
        "before": [_hop(each) for each in found.before],
        "metrics": [
            {
                "metric": chain.metric,
                "usualSeconds": _number(found.total(chain).took.usual),
                "mostSeconds": _number(found.total(chain).took.most),
                "wholeKnown": found.total(chain).whole,
                "hops": [_hop(each) for each in chain.hops],
            }
            for chain in found.chains
        ],
        "after": [_hop(each) for each in found.after],
    }


def _verdict(kind: str, meta: ObjectMeta, mode: str, found: Examination | FastExamination) -> dict[str, Any]:
    """Return what the documents of both kinds of autoscaler begin with."""
    return {
        "kind": kind,
        "namespace": meta.namespace,
        "name": meta.name,
        "mode": mode,
        "state": found.state.value,
        "diagnosis": found.diagnosis,
        "change": found.change,
    }


def _headline(found: Examination) -> str:
    facts = found.facts
    spec, target = facts.hpa.spec, facts.target
    reference = f"{spec.scale_target_ref.kind} {spec.scale_target_ref.name}"
    least = 1 if spec.min_replicas is None else spec.min_replicas
    count = f"not read: {target.why}" if isinstance(target, Unread) else f"{target.replicas} replicas"
    mode = f"mode {facts.mode.lower()}" if facts.mode else "not boosted"
    return f"{facts.key} scales {reference}: {count}, {least} to {spec.max_replicas}; {mode}"


def _row(hop: Hop) -> tuple[str, ...]:
    if not hop.timed:
        times = ("", "")
    elif hop.took is None:
        times = ("?", "?")
    else:
        times = (seconds(hop.took.usual), seconds(hop.took.most))
    return (f"  {hop.name}", *times, hop.state.value, _shorten(hop.text))


def _times(total: Total) -> tuple[str, str]:
    """Return a total; where a part of it is missing it is more than what is known."""
    if not total.whole and not total.took.most:
        return "?", "?"
    more = "" if total.whole else ">"
    return f"{more}{seconds(total.took.usual)}", f"{more}{seconds(total.took.most)}"


def _columns(rows: Sequence[tuple[str, ...]], right: tuple[int, ...] = (1, 2)) -> list[str]:
    """Return rows as lines; a row of one cell stands over the others."""
    whole = [row for row in rows if len(row) > 1]
    widths = [max(len(row[column]) for row in whole) for column in range(len(whole[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=len(row) > 1))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def _hop(hop: Hop) -> dict[str, Any]:
    found: dict[str, Any] = {"hop": hop.name, "state": hop.state.value, "finding": hop.text}
    if hop.timed:
        found["usualSeconds"] = None if hop.took is None else _number(hop.took.usual)
        found["mostSeconds"] = None if hop.took is None else _number(hop.took.most)
    if hop.change is not None:
        found["change"] = hop.change.text
        if math.isfinite(hop.change.saves):
            found["savesSeconds"] = _number(hop.change.saves)
    return found


def _number(value: float) -> float:
    return round(value, 3)


def _shorten(text: str) -> str:
    return text if len(text) <= _LINE else f"{text[: _LINE - 3]}..."
