"""What the debug endpoint and `fastpath explain` show of one autoscaler: a value made of what is remembered. Nothing is computed here."""

from typing import Any, NamedTuple

import msgspec

from adapter.autoscaler import journal
from adapter.autoscaler.decide import boost as boosting
from adapter.autoscaler.decide.boost import Boost
from adapter.autoscaler.decide.history import Queued
from adapter.autoscaler.interfaces import Key, Unfound
from adapter.autoscaler.loop import Controller
from adapter.autoscaler.state import Work
from adapter.model.autoscaling.fastpath_autoscaler import full_status, status_to_plain
from adapter.model.autoscaling.hpa import encode_scalar


class Shown(NamedTuple):
    """An HTTP status and a document."""

    status: int
    document: dict[str, Any]


def show(controller: Controller | None, namespace: str, name: str, leader: str) -> Shown:
    """Return what is known of an autoscaler; of a process that does not lead, who does (the name of its Pod)."""
    if controller is None:
        return Shown(
            503,
            _status(
                503,
                "ServiceUnavailable",
                f"this process does not lead: ask the Pod {leader or 'that does'}",
                {"leader": leader},
            ),
        )
    work = controller.find(Key(namespace, name)) or controller.find(Key.native(namespace, name))
    if work is None:
        text = f'fastpathautoscalers.fastpath.io "{name}" not found in namespace "{namespace}"'
        return Shown(404, _status(404, "NotFound", text, {"name": name}))
    return Shown(200, _show(controller, work))


def _status(code: int, reason: str, message: str, details: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "details": details,
        "code": code,
    }


def _show(controller: Controller, work: Work) -> dict[str, Any]:
    memory, last = work.memory, work.last
    recommendations = memory.history.recommendations
    assert isinstance(recommendations, Queued)  # the only form that the scaler keeps
    now = controller.now()
    shown: dict[str, Any] = {
        "kind": work.object.kind,
        "namespace": work.key.namespace,
        "name": work.object.metadata.name,
        "time": journal.moment(now),
        "mode": work.object.spec.mode,
        "writing": work.busy,
        "target": _target(work),
        "status": status_to_plain(full_status(memory.status, work.recent_changes(now))),
        "recommendations": {
            "highest": [
                {"replicas": each.replicas, "time": journal.moment(each.at)} for each in recommendations.high
            ],
            "lowest": [
                {"replicas": each.replicas, "time": journal.moment(each.at)} for each in recommendations.low
            ],
        },
        "writers": {
            "pausedUntil": journal.moment(memory.writers.paused_until)
            if memory.writers.is_paused(now)
            else None,
            "pausedBy": memory.writers.paused_by,
            "reversals": [journal.moment(at) for at in memory.writers.reversals],
        },
        "last": None,
        "journal": [journal.show(entry) for entry in controller.journal.of(work.key)],
    }
    if work.boost is not None:
        shown["boost"] = _boost(work, work.boost, now)
    if last is not None:
        shown["last"] = {
            "time": journal.moment(last.at),
            "inputs": [journal.show_input(each, last.at) for each in last.seen.inputs]
            if last.seen is not None
            else [],
            "trace": [step.words() for step in last.made.trace],
            "error": last.made.error,
        }
    return shown


def _boost(work: Work, boost: Boost, now: int) -> dict[str, Any]:
    floor, demotion = work.memory.boost.floor, boosting.active_demotion(work.memory.boost, boost, now)
    shown: dict[str, Any] = {
        "fault": boost.fault,
        "floor": None,
        "demotedUntil": None if demotion is None else journal.moment(demotion.until),
        "demotedBy": "" if demotion is None else demotion.by,
        "reversals": [journal.moment(at) for at in work.memory.boost.reversals],
    }
    if floor is not None:
        shown["floor"] = {
            "replicas": floor.replicas,
            "raisedFrom": floor.before,
            "raised": journal.moment(floor.at),
            "shown": None if floor.shown is None else journal.moment(floor.shown),
            "until": journal.moment(floor.until),
        }
    return shown


def _target(work: Work) -> dict[str, Any]:
    reference = work.object.spec.scale_target_ref
    found = work.find_target()
    shown: dict[str, Any] = {"kind": reference.kind, "name": reference.name}
    if isinstance(found, Unfound):
        return shown | {"error": found.message}
    return shown | {
        "replicas": found.replicas,
        "statusReplicas": found.status_replicas,
        "selector": found.selector,
        "manager": found.manager,
    }


def encode(document: dict[str, Any]) -> bytes:
    """Return a document as JSON."""
    return msgspec.json.encode(document, enc_hook=encode_scalar) + b"\n"
