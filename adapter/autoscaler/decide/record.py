"""Records of decisions: everything that one was made from, as JSON, so that it can be made again elsewhere.

A record holds the arguments of `guarded.decide` and the count that came of them. `decide_again` is a pure
function of these arguments, so the same program gives the same count; another version of it shows which
decisions it would change. Instants and durations are nanoseconds in JSON: nothing is rounded.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from adapter.autoscaler.decide import decision, guarded, prepared_spec
from adapter.autoscaler.decide.guarded import Constraints
from adapter.autoscaler.decide.guards import boost as boosting
from adapter.autoscaler.decide.memory import Memory
from adapter.autoscaler.decide.observation import NO_STATUS, Observation, Settings, Ways
from adapter.autoscaler.decide.sync import Decision
from adapter.model.autoscaling import fastpath_autoscaler
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.autoscaling.hpa import decode_scalar, encode_scalar
from adapter.model.objects.api_objects import Metadata
from adapter.model.timestamps import FineInstant, Instant, Span

_NANOSECONDS = (Instant, FineInstant, Span)
_POD_BYTES = 400


class DecisionInputs(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a decision was made from.

    `autoscaler` has no status: that of `memory` counts. `constraints` are None for the HPA controller, which
    has no guards. `most` is the largest count that a published floor covers, None without one.
    """

    autoscaler: FastPathAutoscaler
    settings: Settings
    now: int
    observation: Observation
    memory: Memory
    constraints: Constraints | None = Constraints()
    most: int | None = None

    @property
    def weight(self) -> int:
        """Its estimated size in bytes beside the values of metrics."""
        return _POD_BYTES * len(self.observation.pods)


class DecisionRecord(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A decision with its inputs: the count, whether it was written to the Scale, and why."""

    inputs: DecisionInputs
    replicas: int
    rescale: bool = False
    reason: str = ""


def record(inputs: DecisionInputs, made: Decision) -> DecisionRecord:
    """Return the record of a decision, without what no decision reads."""
    meta, seen = inputs.autoscaler.metadata, inputs.observation
    kept = Metadata(name=meta.name, namespace=meta.namespace)
    autoscaler = replace(inputs.autoscaler, metadata=kept, status=None)
    pods = tuple(replace(pod, labels={}) for pod in seen.pods)
    observation = replace(seen, pods=pods, status=NO_STATUS)
    return DecisionRecord(
        replace(inputs, autoscaler=autoscaler, observation=observation),
        made.replicas,
        made.rescale,
        made.reason,
    )


def decide_again(inputs: DecisionInputs) -> Decision:
    autoscaler, memory = inputs.autoscaler, inputs.memory
    if inputs.constraints is None:
        spec = prepared_spec.prepare(fastpath_autoscaler.native(autoscaler), inputs.settings)
        observation = replace(inputs.observation, status=memory.status)
        return decision.decide(spec, observation, memory.history, inputs.now)
    spec = prepared_spec.prepare(fastpath_autoscaler.with_defaults(autoscaler), inputs.settings)
    if inputs.most is not None:
        spec = boosting.capped(spec, inputs.most)
    return guarded.decide(spec, inputs.observation, memory, inputs.now, inputs.constraints)


def encode(made: DecisionRecord) -> bytes:
    return msgspec.json.encode(made, enc_hook=_encode)


def convert(tree: object) -> DecisionRecord:
    """Return the record in a decoded JSON document. Raises msgspec.ValidationError or ValueError."""
    match tree:
        case {"inputs": {"observation": {"readings": [*readings]} as seen}}:
            seen["readings"] = [_with_ways(reading) for reading in readings]
    return msgspec.convert(tree, DecisionRecord, dec_hook=_decode)


def _with_ways(reading: Any) -> Any:
    """Return a reading as it is recorded now: in older records the first way contains the second."""
    match reading:
        case {"faster": {} as faster}:
            return {"type": Ways.__name__, "ways": [reading, faster]}
    return reading


def _encode(value: Any) -> int | str:
    return int(value) if isinstance(value, _NANOSECONDS) else encode_scalar(value)


def _decode(wanted: type, written: Any) -> Any:
    if wanted in _NANOSECONDS and isinstance(written, int):
        return wanted(written)
    return decode_scalar(wanted, written)
