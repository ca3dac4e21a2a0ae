"""How `fastpath doctor` tells what it found: one autoscaler hop by hop, many as a table, both as JSON."""

import math
from collections.abc import Sequence
from typing import Any

from adapter.cli.doctor import fast
from adapter.cli.doctor.diagnosis import Examination
from adapter.cli.doctor.facts import Unread
from adapter.cli.doctor.fast import FastExamination
from adapter.cli.doctor.stage import Hop, State, Total, seconds
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND

_LINE = 150
"""How much of a sentence a line of a table shows; the diagnosis of one autoscaler is told whole."""


def render(found: Examination) -> str:
    """Return what was found about one autoscaler, for people."""
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
    lines = [_headline(found), "", *_columns(rows), "", f"diagnosis: {found.diagnosis}"]
    if found.change or found.state is not State.FAULT:
        none = "none that would save a second" if found.slowest.whole else "none, by what could be read"
        lines.append(f"change:    {found.change or none}")
    return "\n".join(lines) + "\n"


def render_table(found: Sequence[Examination], others: Sequence[FastExamination] = ()) -> str:
    """Return a line for each HorizontalPodAutoscaler, the slowest first, then for each FastPathAutoscaler."""
    order = sorted(found, key=lambda each: (-each.slowest.took.usual, each.facts.key))
    rows: list[tuple[str, ...]] = [("autoscaler", "mode", "usually", "at most", "", "diagnosis")]
    for each in order:
        mode = each.facts.mode.lower() or "-"
        rows.append((each.facts.key, mode, *_times(each.slowest), each.state.value, _shorten(each.diagnosis)))
    for other in sorted(others, key=lambda each: each.key):
        *cells, text = fast.row(other)
        rows.append((*cells, _shorten(text)))
    return "\n".join(_columns(rows, right=(2, 3))) + "\n"


def document(found: Examination) -> dict[str, Any]:
    """Return what was found about one autoscaler as JSON has it; seconds that are not known are null."""
    facts = found.facts
    return {
        "kind": HPA_KIND,
        "namespace": facts.hpa.metadata.namespace,
        "name": facts.hpa.metadata.name,
        "mode": facts.mode,
        "state": found.state.value,
        "diagnosis": found.diagnosis,
        "change": found.change,
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
