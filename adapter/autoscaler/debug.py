"""What the debug endpoint and `fastpath explain` show of one autoscaler."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from adapter.autoscaler.decide import boost as boosting
from adapter.autoscaler.decide.boost import Boost, Boosting
from adapter.autoscaler.decide.history import Recommendation
from adapter.autoscaler.decide.observation import ExternalReading, ObjectReading, PodsReading, Reading
from adapter.autoscaler.decide.record import encode as encode_record
from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.registry import Controller
from adapter.autoscaler.reporter import JournalEntry
from adapter.autoscaler.snapshot import MetricInput
from adapter.autoscaler.state import AutoscalerState
from adapter.kubernetes.cache.scale_targets import Unfound
from adapter.model import visible
from adapter.model.autoscaling.fastpath_autoscaler import full_status, status_to_plain
from adapter.model.autoscaling.hpa import encode_scalar
from adapter.model.ready_times import PARTS, TOTAL
from adapter.model.timestamps import SECOND, write_instant


class DebugResponse(NamedTuple):
    status: int
    document: dict[str, Any]


def show(controller: Controller | None, namespace: str, name: str, leader: str) -> DebugResponse:
    """Return the state of an autoscaler; `leader` is the Pod that decides it if this process does not."""
    if controller is None:
        message = "another scaler owns its slice" + (f"; query Pod {leader}" if leader else "")
        return _failure(503, "ServiceUnavailable", message, {"leader": leader})
    state = controller.find(Key(namespace, name)) or controller.find(Key(namespace, name, is_native=True))
    if state is None:
        text = f'fastpathautoscalers.fastpath.io "{name}" not found in namespace "{namespace}"'
        return _failure(404, "NotFound", text, {"name": name})
    return DebugResponse(200, _show(controller, state))


def _failure(code: int, reason: str, message: str, details: dict[str, Any]) -> DebugResponse:
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details,
        "code": code,
    }
    return DebugResponse(code, status)


def encode(document: dict[str, Any]) -> bytes:
    """Return the document as JSON; of names that others chose, nothing acts on a terminal that shows it."""
    return visible.escape(msgspec.json.encode(document, enc_hook=encode_scalar).decode()).encode() + b"\n"


def _show(controller: Controller, state: AutoscalerState) -> dict[str, Any]:
    memory, last, now = state.memory, state.last, controller.loop.now()
    recommendations, conflicts = memory.history.recommendations, memory.conflicts
    shown: dict[str, Any] = {
        "kind": state.object.kind,
        "namespace": state.key.namespace,
        "name": state.object.metadata.name,
        "time": moment(now),
        "mode": state.object.spec.mode,
        "writing": state.is_writing,
        "decidedSince": None if state.since is None else moment(state.since),
        "target": _target(state),
        "status": status_to_plain(
            full_status(memory.status, state.recent_changes(now), credited=state.backlog_credits)
        ),
        "recommendations": {
            "highest": _recommendations(recommendations.high),
            "lowest": _recommendations(recommendations.low),
        },
        "writers": {
            "pausedUntil": moment(conflicts.paused_until) if conflicts.is_paused(now) else None,
            "pausedBy": conflicts.paused_by,
            "reversals": [moment(at) for at in conflicts.reversals],
        },
        "readyTimes": _ready_times(state),
        "last": None,
        "journal": [show_entry(entry) for entry in controller.journal.of(state.key)],
    }
    if state.boost is not None:
        shown["boost"] = _boost(memory.boost, state.boost, now)
    if (forecast := controller.context.forecasts.document_of(state.key)) is not None:
        shown["forecast"] = forecast
    if last is not None:
        inputs = () if last.snapshot is None else last.snapshot.inputs
        shown["last"] = {
            "time": moment(last.at),
            "inputs": [_show_input(metric, last.at) for metric in inputs],
            "trace": [step.text() for step in last.decision.trace],
            "error": last.decision.error,
        }
    return shown


def _recommendations(entries: Sequence[Recommendation]) -> list[dict[str, Any]]:
    return [{"replicas": entry.replicas, "time": moment(entry.at)} for entry in entries]


def _boost(memory: Boosting, boost: Boost, now: int) -> dict[str, Any]:
    floor, demotion = memory.floor, boosting.active_demotion(memory, boost, now)
    shown: dict[str, Any] = {
        "fault": boost.fault,
        "floor": None,
        "demotedUntil": None if demotion is None else moment(demotion.until),
        "demotedBy": "" if demotion is None else demotion.by,
        "reversals": [moment(at) for at in memory.reversals],
    }
    if floor is not None:
        shown["floor"] = {
            "replicas": floor.replicas,
            "raisedFrom": floor.raised_from,
            "raised": moment(floor.raised_at),
            "shown": None if floor.shown is None else moment(floor.shown),
            "until": moment(floor.until),
        }
    return shown


def _target(state: AutoscalerState) -> dict[str, Any]:
    reference, target = state.object.spec.scale_target_ref, state.subscriptions.find_target()
    shown: dict[str, Any] = {"kind": reference.kind, "name": reference.name}
    if isinstance(target, Unfound):
        return shown | {"error": target.message}
    return shown | {
        "replicas": target.replicas,
        "statusReplicas": target.status_replicas,
        "selector": target.selector,
        "manager": target.manager,
    }


def _ready_times(state: AutoscalerState) -> dict[str, Any]:
    """Return how long the last pods took to be Ready, in seconds, and how many pods are not in that."""
    times, left_out, starting = state.ready_times, state.ledger.left_out(), state.subscriptions.starting()
    shown: dict[str, Any] = {"pods": 0 if times is None else times.count}
    if times is not None:
        parts = {part: getattr(times, part) for part in (*PARTS, TOTAL)}
        shown["seconds"] = {part: seconds._asdict() for part, seconds in parts.items() if seconds is not None}
        shown["unschedulable"] = times.unschedulable
        shown["pullFailed"] = times.pull_failed
    shown["leftOut"] = left_out._asdict()
    shown["starting"] = None
    if starting is not None:
        shown["starting"] = {
            "pods": starting.pods,
            "noNode": starting.no_node,
            "pullFails": starting.pulling,
            "crashing": starting.crashing,
        }
    return shown


# -- the journal ---------------------------------------------------------------------------------------------


def show_entry(entry: JournalEntry) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "time": moment(entry.at),
        "currentReplicas": entry.current,
        "desiredReplicas": entry.replicas,
        "outcome": entry.outcome,
        "reason": entry.reason,
        "error": entry.error,
        "pods": entry.pods,
        "inputs": [_show_input(metric, entry.at) for metric in entry.inputs],
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


def _show_input(given: MetricInput, now: int) -> dict[str, Any]:
    """Return a metric as JSON: its value, and its age in seconds, null if unknown."""
    age = None if given.sampled is None else round((now - given.sampled) / SECOND, 3)
    slow = {"notFaster": given.slow} if given.slow else {}
    return {"metric": given.metric, **_value(given.reading), "ageSeconds": age, **slow}


def _value(reading: Reading) -> Mapping[str, Any]:
    if isinstance(reading, PodsReading):
        left_out = {"leftOut": dict(reading.left_out)} if reading.left_out else {}
        faster = {} if reading.faster is None else {"faster": _value(reading.faster)}
        return {"values": dict(reading.values), "overdue": reading.overdue, **left_out, **faster}
    if isinstance(reading, ObjectReading):
        return {"value": reading.value, "readyThen": reading.ready_then, "overdue": reading.overdue}
    if isinstance(reading, ExternalReading):
        return {"values": list(reading.values), "readyThen": reading.ready_then, "overdue": reading.overdue}
    return {"unavailable": reading.message}
