"""What `fastpath evaluate` writes: a decision as the document that scripts read, and as lines for people."""

from typing import Any

import msgspec

from adapter.autoscaler.decide import evaluate_document
from adapter.autoscaler.decide.decision import Decision, decide
from adapter.autoscaler.decide.evaluate_document import ControllerOptions, EvaluateDocument
from adapter.autoscaler.decide.prepared_spec import prepare
from adapter.autoscaler.decide.trace import Step
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerStatus, MetricStatus, encode_scalar


class ShownCondition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A condition without its time; an empty reason or message is left out, as upstream does."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class ShownStatus(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """A status without its times; a `currentReplicas` of 0 is left out, as upstream does."""

    current_replicas: int = 0
    desired_replicas: int
    current_metrics: tuple[MetricStatus, ...]
    conditions: list[ShownCondition]


class ShownEvent(msgspec.Struct, frozen=True):
    """An event."""

    type: str
    reason: str
    message: str


class ShownStep(msgspec.Struct, frozen=True):
    """A step of the trace: its name, the sentence, the numbers in it."""

    step: str
    text: str
    numbers: dict[str, Any]


class Result(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """The result for one document; `status` is null where nothing is written."""

    name: str | None = None
    desired_replicas: int
    rescaled: bool
    status: ShownStatus | None
    events: list[ShownEvent]
    error: str = ""
    trace: list[ShownStep]


_ENCODER = msgspec.json.Encoder(enc_hook=encode_scalar)


def evaluate(document: EvaluateDocument) -> Decision:
    """Decide what the autoscaler does with exactly this input."""
    autoscaler = prepare(document.hpa, (document.options or _OPTIONS).settings())
    return decide(autoscaler, evaluate_document.observe(document), document.remembered(), document.now)


_OPTIONS = ControllerOptions()


def show(document: EvaluateDocument, decision: Decision) -> Result:
    """Return the result of a document."""
    return Result(
        name=document.name,
        desired_replicas=decision.replicas,
        rescaled=decision.rescale,
        status=_shown_status(decision.status) if decision.status_changed else None,
        events=[ShownEvent(*event) for event in decision.events],
        error=decision.error,
        trace=[ShownStep(step.name, step.text(), dict(step.facts)) for step in decision.trace],
    )


def _shown_status(status: HorizontalPodAutoscalerStatus) -> ShownStatus:
    listed = [
        ShownCondition(condition.type, condition.status, condition.reason, condition.message)
        for condition in status.conditions or ()
    ]
    listed.sort(key=lambda condition: condition.type)
    return ShownStatus(
        current_replicas=status.current_replicas,
        desired_replicas=status.desired_replicas,
        current_metrics=status.current_metrics or (),
        conditions=listed,
    )


def to_json(result: Result) -> bytes:
    """Return a result as JSON on one line."""
    return _ENCODER.encode(result)


def to_plain(result: Result) -> Any:
    """Return a result as mappings, lists and scalars."""
    return msgspec.to_builtins(result, enc_hook=encode_scalar)


def explain(document: EvaluateDocument, decision: Decision) -> str:
    """Return a decision as lines for people: what it comes to, each step, conditions and events."""
    title = document.name or document.hpa.metadata.name
    lines = [f"{title}: {_headline(decision)}", "", *(f"  {step.text()}" for step in decision.trace)]
    conditions = [
        f"  {condition.type} {condition.status} ({condition.reason}): {condition.message}"
        for condition in decision.status.conditions or ()
    ]
    lines += ["", "conditions", *conditions]
    if decision.events:
        lines += [
            "",
            "events",
            *(f"  {event.type} {event.reason}: {event.message}" for event in decision.events),
        ]
    if decision.error:
        lines += ["", f"error: {decision.error}"]
    return "\n".join(lines) + "\n"


def _headline(decision: Decision) -> str:
    current = decision.status.current_replicas
    if decision.rescale:
        return f"scales from {current} to {decision.replicas}"
    return f"stays at {current}"


__all__ = ["Result", "Step", "evaluate", "explain", "show", "to_json", "to_plain"]
