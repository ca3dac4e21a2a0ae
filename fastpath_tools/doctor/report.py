"""How `fastpath doctor` prints what it found: one autoscaler hop by hop, several as a table, both as JSON."""

import math
from collections.abc import Sequence
from typing import Any

from adapter.model import visible
from adapter.model.autoscaling.fastpath_autoscaler import AUTO, HPA_KIND, KIND
from fastpath_tools import tables
from fastpath_tools.doctor.diagnosis import Examination
from fastpath_tools.doctor.hops import Hop, State, Took, seconds
from fastpath_tools.live.facts import Unread


def render(examined: Examination) -> str:
    change = examined.change
    if examined.fpa is not None:
        lines = _fast_lines(examined)
    else:
        lines = _lines(examined)
        if not change and examined.state is not State.FAULT:
            change = (
                "no change would save a second" if examined.slowest.whole else "none in what could be read"
            )
    if not isinstance(examined.facts.target, Unread):
        lines += [f"note: {note}" for note in examined.facts.target.notes]
    lines += ["", f"diagnosis: {examined.diagnosis}", *([f"change:    {change}"] if change else [])]
    return visible.join(lines)


def _lines(examined: Examination) -> list[str]:
    facts = examined.facts
    spec, target = facts.hpa.spec, facts.target
    least = 1 if spec.min_replicas is None else spec.min_replicas
    count = f"not read: {target.why}" if isinstance(target, Unread) else f"{target.replicas} replicas"
    mode = f"mode {examined.mode.lower()}" if examined.mode else "not boosted"
    reference = f"{spec.scale_target_ref.kind} {spec.scale_target_ref.name}"
    many = len(examined.chains) > 1
    rows: list[tuple[str, ...]] = [("hop", "usually", "at most", "", "")]
    rows += map(_row, examined.before)
    for chain in examined.chains:
        if many:
            rows.append((chain.metric,))
        rows += map(_row, chain.hops)
    if many:
        rows.append(("for all",))
    rows += map(_row, examined.after)
    for chain in examined.chains:
        total = examined.total(chain)
        rows.append(("in all", *_times(total.took, whole=total.whole), "", chain.metric if many else ""))
    headline = f"{examined.key} scales {reference}: {count}, {least} to {spec.max_replicas}; {mode}"
    return [headline, "", *tables.columns(rows, right=(1, 2))]


def _fast_lines(examined: Examination) -> list[str]:
    spec, status = examined.facts.hpa.spec, examined.facts.hpa.status
    replicas = 0 if status is None else status.current_replicas
    least = 1 if spec.min_replicas is None else spec.min_replicas
    counts = f"{replicas} replicas, {least} to {spec.max_replicas}; mode {examined.mode}"
    return [
        f"{examined.key} is a {KIND}: {examined.explain}",
        f"it scales {spec.scale_target_ref.kind} {spec.scale_target_ref.name}: {counts}",
    ]


def render_table(examined: Sequence[Examination], others: Sequence[Examination] = ()) -> str:
    """Return a line for each HorizontalPodAutoscaler, the slowest first, then for each FastPathAutoscaler."""
    rows: list[tuple[str, ...]] = [("autoscaler", "mode", "usually", "at most", "", "diagnosis")]
    for hpa in sorted(examined, key=lambda hpa: (-hpa.slowest.took.usual, hpa.key)):
        times = _times(hpa.slowest.took, whole=hpa.slowest.whole)
        mode = hpa.mode.lower() or "-"
        rows.append((hpa.key, mode, *times, hpa.state.value, hpa.diagnosis))
    for other in sorted(others, key=lambda fpa: fpa.key):
        mode = "fast-scaler" if other.mode == AUTO else f"fast-scaler ({other.mode.lower()})"
        text = other.diagnosis if other.state is not State.OK else f"{KIND}: {other.explain}"
        rows.append((other.key, mode, "", "", other.state.value, text))
    return visible.join(tables.columns(rows, right=(2, 3)))


def _row(hop: Hop) -> tuple[str, ...]:
    times = ("", "")
    if hop.timed:
        times = ("?", "?") if hop.took is None else _times(hop.took)
    return (f"  {hop.name}", *times, hop.state.value, hop.text)


def _times(took: Took, *, whole: bool = True) -> tuple[str, str]:
    """Return a time; if a part of it is missing, what is known is a lower bound."""
    if not whole and not took.most:
        return "?", "?"
    more = "" if whole else ">"
    return f"{more}{seconds(took.usual)}", f"{more}{seconds(took.most)}"


def document(examined: Examination) -> dict[str, Any]:
    """Return what was found about one autoscaler as JSON has it; seconds that are not known are null."""
    namespace, _, name = examined.key.partition("/")
    shown: dict[str, Any] = {
        "kind": HPA_KIND if examined.fpa is None else KIND,
        "namespace": namespace,
        "name": name,
        "mode": examined.mode,
        "state": examined.state.value,
        "diagnosis": examined.diagnosis,
        "change": examined.change,
    }
    if examined.fpa is not None:
        return shown
    metrics = []
    for chain in examined.chains:
        total = examined.total(chain)
        times = _seconds(total.took) | {"wholeKnown": total.whole}
        metrics.append({"metric": chain.metric} | times | {"hops": [_hop(hop) for hop in chain.hops]})
    return (
        shown
        | _seconds(examined.slowest.took)
        | {"wholeKnown": examined.slowest.whole}
        | {"before": [_hop(hop) for hop in examined.before]}
        | {"metrics": metrics}
        | {"after": [_hop(hop) for hop in examined.after]}
    )


def _hop(hop: Hop) -> dict[str, Any]:
    shown: dict[str, Any] = {"hop": hop.name, "state": hop.state.value, "finding": hop.text}
    if hop.timed:
        shown |= _seconds(hop.took)
    if hop.change is not None:
        shown["change"] = hop.change.text
        if math.isfinite(hop.change.saves):
            shown["savesSeconds"] = round(hop.change.saves, 3)
    return shown


def _seconds(took: Took | None) -> dict[str, float | None]:
    if took is None:
        return {"usualSeconds": None, "mostSeconds": None}
    return {"usualSeconds": round(took.usual, 3), "mostSeconds": round(took.most, 3)}
