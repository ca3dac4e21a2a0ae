"""What the debug endpoint shows: an `AutoscalerView` of one autoscaler, a `FleetView` of all."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from adapter.autoscaler.controller.registry import Controller
from adapter.autoscaler.controller.reporter import JournalEntry
from adapter.autoscaler.controller.state import AHEAD, AutoscalerState
from adapter.autoscaler.decide import roster as rosters
from adapter.autoscaler.decide.guards import boost as boosting
from adapter.autoscaler.decide.guards.boost import Boost
from adapter.autoscaler.decide.guards.scheduled import describe
from adapter.autoscaler.decide.history import Recommendation
from adapter.autoscaler.decide.observation import (
    ExternalReading,
    ObjectReading,
    PodsReading,
    Reading,
    Unavailable,
    Ways,
)
from adapter.autoscaler.decide.record import encode as encode_record
from adapter.autoscaler.decide.restraint import Restraint
from adapter.autoscaler.explain.past_hour import EXACT, HOUR, SLOT, Counts
from adapter.autoscaler.inputs.snapshot import MetricInput
from adapter.autoscaler.interfaces import Key
from adapter.kubernetes.cache.scale_targets import Unfound
from adapter.model import visible
from adapter.model.autoscaling import status as statuses
from adapter.model.autoscaling import view as views
from adapter.model.autoscaling.fastpath_autoscaler import full_status, status_to_plain, with_defaults
from adapter.model.autoscaling.hpa import encode_scalar
from adapter.model.ready_times import PARTS, TOTAL
from adapter.model.steps import Steps
from adapter.model.timestamps import SECOND, write_instant

_IN_A_ROW = 50
"""After so many lines other tasks may run."""


class DebugResponse(NamedTuple):
    """An HTTP status, and a document as JSON."""

    status: int
    body: bytes


def show(
    controller: Controller | None, namespace: str, name: str, leader: str, *, with_journal: bool = True
) -> DebugResponse:
    """Return the state of an autoscaler; `leader` is the Pod that decides it if this process does not."""
    if controller is None:
        message = "another scaler owns its slice" + (f"; query Pod {leader}" if leader else "")
        return _failure(503, "ServiceUnavailable", message, {"leader": leader})
    state = controller.find(Key(namespace, name)) or controller.find(Key(namespace, name, is_native=True))
    if state is None:
        text = f'fastpathautoscalers.fastpath.io "{name}" not found in namespace "{namespace}"'
        return _failure(404, "NotFound", text, {"name": name})
    document = _show(controller, state)
    if with_journal:
        journal = [show_entry(entry) for entry in controller.journal.of(state.key)]
        document = msgspec.structs.replace(document, journal=journal)
    return DebugResponse(200, encode(document))


def _failure(code: int, reason: str, message: str, details: dict[str, Any]) -> DebugResponse:
    head = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    status = {**head, "message": message, "reason": reason, "details": details, "code": code}
    return DebugResponse(code, encode(status))


def encode(document: views.AutoscalerView | views.FleetView | views.FleetEntry | dict[str, Any]) -> bytes:
    """Return the document as JSON; of names that others chose, nothing acts on a terminal that shows it."""
    return visible.escape(msgspec.json.encode(document, enc_hook=encode_scalar).decode()).encode() + b"\n"


def _show(controller: Controller, state: AutoscalerState) -> views.AutoscalerView:
    memory, now, time = state.memory, state.clock.now(), controller.loop.clock.time_of_day()
    recommendations, conflicts = memory.history.recommendations, memory.conflicts
    status = full_status(
        statuses.without_hpa(memory.status),
        state.recent_changes(now),
        credited=state.backlog_credits,
        limited_by=_limited_by(state),
    )
    forecast = controller.context.forecasts.document_of(state.key)
    return views.AutoscalerView(
        version=views.VERSION,
        kind=state.spec.object.kind,
        namespace=state.key.namespace,
        name=state.spec.object.metadata.name,
        time=moment(time),
        mode=state.spec.object.spec.mode,
        writing=state.turn.is_writing,
        decided_since=None if state.turn.since is None else moment(state.turn.since),
        target=_target(state),
        limits=_limits(state),
        metrics=_metrics(state, time),
        next=_next(state, now),
        history=_history(state, now),
        ahead=_ahead(state, now),
        status=status_to_plain(status),
        recommendations={
            "highest": _recommendations(state, recommendations.high),
            "lowest": _recommendations(state, recommendations.low),
        },
        writers=views.WritersView(
            paused_until=_moment(state, conflicts.paused_until) if conflicts.is_paused(now) else None,
            paused_by=conflicts.paused_by,
            reversals=[_moment(state, at) for at in conflicts.reversals],
        ),
        ready_times=_ready_times(state),
        last=_last(state),
        boost=msgspec.UNSET if state.spec.boost is None else _boost(state, state.spec.boost, now),
        forecast=msgspec.UNSET if forecast is None else forecast,
    )


def _moment(state: AutoscalerState, at: int) -> str:
    """Return a time of decisions as a time of day."""
    return moment(state.clock.time_of_day(at))


def _limited_by(state: AutoscalerState) -> str:
    return "" if state.last is None else state.last.decision.restraint.value


def _inputs(state: AutoscalerState) -> Sequence[MetricInput]:
    """Return the metrics as the last decision saw them, none without a snapshot."""
    return () if state.last is None or state.last.snapshot is None else state.last.snapshot.inputs


def _limits(state: AutoscalerState) -> views.LimitsView:
    spec = state.spec.prepared if state.last is None else state.last.decision.spec
    lowest, highest = spec.limits
    floor = state.memory.boost.floor
    return views.LimitsView(
        min=lowest,
        max=highest,
        windows=state.bounds.now.windows,
        forecast=state.bounds.now.forecast,
        floor=0 if floor is None else floor.replicas,
    )


def _metrics(state: AutoscalerState, time: int) -> list[views.MetricView]:
    """Return the metrics of the spec as the last decision saw them; the ages are those at a time of day."""
    if state.spec.violations:
        return []
    specs = with_defaults(state.spec.object).spec.metrics or ()
    known = None if state.last is None else state.last.decision.status.current_metrics
    inputs, measured = dict(enumerate(_inputs(state))), dict(enumerate(known or ()))
    shown = []
    for place, spec in enumerate(specs):
        given = inputs.get(place)
        current, target, ratio = statuses.describe_value(spec, measured.get(place))
        shown.append(
            views.MetricView(
                name=state.spec.prepared.metrics[place].description,
                current=current,
                target=target,
                ratio=None if ratio is None else round(ratio, 4),
                age=None if given is None or given.sampled is None else _seconds(time - given.sampled),
                overdue="" if given is None else getattr(given.reading, "overdue", ""),
                fault=given.reading.message if given and isinstance(given.reading, Unavailable) else "",
                scrape_fault="" if given is None else given.scrape_fault,
            )
        )
    return shown


def _next(state: AutoscalerState, now: int) -> views.NextChange | None:
    foreseen = state.foresee(now)
    if foreseen is None:
        return None
    released, ahead = _limited_by(state), state.bounds_ahead(now)[1:]
    if released == Restraint.SCHEDULED.value and ahead and ahead[0].at < foreseen.at:
        released += f" until {_moment(state, ahead[0].at)}, then by stabilization"
    at = _moment(state, max(foreseen.at, now))
    return views.NextChange(replicas=foreseen.replicas, at=at, released=released)


def _history(state: AutoscalerState, now: int) -> views.HistoryView | None:
    if state.past is None:
        return None
    known, until = state.past.changes(now), _moment(state, now)
    points = [_point(change, _moment(state, max(change.at, now - HOUR))) for change in known]
    return views.HistoryView(resolution=SLOT / SECOND, until=until, exact=EXACT / SECOND, points=points)


def _point(change: Counts, at: str) -> views.HistoryPoint:
    bounds = dict(zip(("floor", "min", "max"), change.bounds, strict=True))
    text = "" if change.restraint is None else change.restraint.value
    shown = {**msgspec.structs.asdict(change), **bounds, "at": at, "limitedBy": text}
    return msgspec.convert(shown, views.HistoryPoint)


def _ahead(state: AutoscalerState, now: int) -> list[views.BoundsAhead]:
    """Return the bounds of the next hour that differ from those of the spec."""
    bounds = state.bounds_ahead(now)
    ends = [*(begin.at for begin in bounds[1:]), now + AHEAD]
    return [
        views.BoundsAhead(
            start=_moment(state, start),
            end=_moment(state, end),
            min=one.lowest or None,
            max=one.max,
            source=describe(one),
        )
        for (start, one), end in zip(bounds, ends, strict=True)
        if one.lowest or one.max is not None
    ]


def _last(state: AutoscalerState) -> views.LastDecisionView | None:
    last = state.last
    if last is None:
        return None
    return views.LastDecisionView(
        time=moment(last.time),
        demand=last.decision.wanted,
        inputs=[_show_input(metric, last.time) for metric in _inputs(state)],
        trace=[step.text() for step in last.decision.trace],
        error=last.decision.error,
        limited_by=_limited_by(state),
    )


def _recommendations(state: AutoscalerState, entries: Sequence[Recommendation]) -> list[dict[str, Any]]:
    return [{"replicas": entry.replicas, "time": _moment(state, entry.at)} for entry in entries]


def _boost(state: AutoscalerState, boost: Boost, now: int) -> dict[str, Any]:
    memory, published = state.memory.boost, state.published
    floor, demotion = memory.floor, boosting.active_demotion(memory, boost, now)
    shown: dict[str, Any] = {
        "fault": boost.fault,
        "floor": None,
        "demotedUntil": None if demotion is None else _moment(state, demotion.until),
        "demotedBy": "" if demotion is None else demotion.by,
        "reversals": [_moment(state, at) for at in memory.reversals],
    }
    if floor is not None:
        is_scheduled = published is not None and published.scheduled >= floor.replicas
        end = state.clock.time_of_day(floor.until)
        shown["floor"] = {
            "replicas": floor.replicas,
            "raisedFrom": floor.raised_from,
            "raised": _moment(state, floor.raised_at),
            "shown": None if floor.shown is None else _moment(state, floor.shown),
            "until": moment(max(end, published.scheduled_until) if published and is_scheduled else end),
        }
    return shown


def _target(state: AutoscalerState) -> views.TargetView:
    reference, target = state.spec.object.spec.scale_target_ref, state.subscriptions.find_target()
    if isinstance(target, Unfound):
        return views.TargetView(kind=reference.kind, name=reference.name, error=target.message)
    snapshot = None if state.last is None else state.last.snapshot
    return views.TargetView(
        kind=reference.kind,
        name=reference.name,
        replicas=target.replicas,
        status_replicas=target.status_replicas,
        ready=None if snapshot is None else rosters.prepare(snapshot.observation.pods).ready,
        selector=target.selector,
        manager=target.manager,
    )


def _ready_times(state: AutoscalerState) -> dict[str, Any]:
    """Return how long the last pods took to be Ready, in seconds, and how many pods are not in that."""
    times, starting = state.ready_times, state.subscriptions.starting()
    shown: dict[str, Any] = {"pods": 0 if times is None else times.count}
    if times is not None:
        parts = {part: getattr(times, part) for part in (*PARTS, TOTAL)}
        shown["seconds"] = {part: seconds._asdict() for part, seconds in parts.items() if seconds is not None}
        shown["unschedulable"] = times.unschedulable
        shown["pullFailed"] = times.pull_failed
    shown["leftOut"] = state.target.ledger.left_out()._asdict()
    shown["starting"] = None
    if starting is not None:
        shown["starting"] = {
            "pods": starting.pods,
            "noNode": starting.no_node,
            "pullFails": starting.pulling,
            "crashing": starting.crashing,
        }
    return shown


# -- all autoscalers -----------------------------------------------------------------------------------------


def show_fleet(controller: Controller | None, now: float) -> Steps[DebugResponse]:
    """Return a line about each autoscaler that this process decides; `now` is in seconds since 1970."""
    keys = [] if controller is None else sorted(controller.names())
    view = views.FleetView(version=views.VERSION, time=moment(round(now * SECOND)), autoscalers=())
    begin, end = encode(view).split(b"[]")
    lines = []
    for place, key in enumerate(keys):
        if controller is not None and (state := controller.find(key)) is not None:
            lines.append(encode(_show_line(controller, state)).rstrip())
        if place % _IN_A_ROW == 0:
            yield  # the lines of thousands take longer to encode than other tasks can wait
    return DebugResponse(200, begin + b"[" + b",".join(lines) + b"]" + end)


def _show_line(controller: Controller, state: AutoscalerState) -> views.FleetEntry:
    key, last, limits, time = state.key, state.last, _limits(state), controller.loop.clock.time_of_day()
    inputs = _inputs(state)
    sampled = [given.sampled for given in inputs if given.sampled is not None]
    boost = state.spec.boost
    return views.FleetEntry(
        kind=key.kind,
        namespace=key.namespace,
        name=key.name,
        target=f"{state.spec.object.spec.scale_target_ref.kind}/{state.spec.object.spec.scale_target_ref.name}",
        mode=state.spec.object.spec.mode,
        replicas=None if last is None else last.decision.status.current_replicas,
        desired=None if last is None else last.decision.desired,
        min=limits.min,
        max=limits.max,
        limited_by=_limited_by(state),
        sample_age=_seconds(time - min(sampled)) if sampled else None,
        chain=controller.last_chain(key),
        overdue=sum(isinstance(one.reading, Unavailable) or bool(one.reading.overdue) for one in inputs),
        reversals=0 if state.past is None else state.past.reversals(state.clock.now()),
        floor=limits.floor,
        boosted=boost is not None and not boosting.only_advised(state.memory.boost, boost, state.clock.now()),
        fault="" if last is None else last.decision.error,
    )


# -- the journal ---------------------------------------------------------------------------------------------


def show_entry(entry: JournalEntry) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "time": moment(entry.time),
        "currentReplicas": entry.current,
        "desiredReplicas": entry.replicas,
        "outcome": entry.outcome,
        "reason": entry.reason,
        "error": entry.error,
        "pods": entry.pods,
        "inputs": [_show_input(metric, entry.time) for metric in entry.inputs],
        "trace": [step.text() for step in entry.steps],
        "events": [event._asdict() for event in entry.events],
    }
    if entry.change is not None:
        by, count = entry.change.by, entry.change.replicas
        shown["changeSeen"] = {"replicas": count, "manager": by, "reversal": entry.change.reverses}
    if entry.record is not None:
        shown["record"] = msgspec.Raw(encode_record(entry.record))
    return shown


def moment(instant: int) -> str:
    """Return an instant as RFC 3339 in UTC with milliseconds."""
    return write_instant(instant).replace("Z", f".{instant // 1_000_000 % 1000:03d}Z")


def _show_input(given: MetricInput, time: int) -> dict[str, Any]:
    """Return a metric as JSON: its value, and its age in seconds, null if unknown."""
    age = None if given.sampled is None else _seconds(time - given.sampled)
    named = {"notFaster": given.slow, "scrapeFault": given.scrape_fault}
    shown = {name: text for name, text in named.items() if text}
    return {"metric": given.metric, **_value(given.reading), "ageSeconds": age, **shown}


def _seconds(span: int) -> float:
    return round(span / SECOND, 3)


def _value(reading: Reading) -> Mapping[str, Any]:
    if isinstance(reading, Ways):
        *ways, shown = map(_value, reading.ways)
        for way in reversed(ways):
            shown = {**way, "faster": shown}
        return shown
    if isinstance(reading, PodsReading):
        left_out = {"leftOut": dict(reading.left_out)} if reading.left_out else {}
        return {"values": dict(reading.values), "overdue": reading.overdue, **left_out}
    if isinstance(reading, ObjectReading):
        return {"value": reading.value, "readyThen": reading.ready_then, "overdue": reading.overdue}
    if isinstance(reading, ExternalReading):
        return {"values": list(reading.values), "readyThen": reading.ready_then, "overdue": reading.overdue}
    return {"unavailable": reading.message}
