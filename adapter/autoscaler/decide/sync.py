"""One sync of an autoscaler while it is decided, and the decision that comes of it.

`Sync` mirrors what ``reconcileAutoscaler`` of Kubernetes 1.36 keeps while it runs. The course (`decision`)
and the guards (`guarded`) fill it, and it is closed once.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import msgspec

from adapter.autoscaler.decide.history import History, with_event
from adapter.autoscaler.decide.observation import Observation, Reading
from adapter.autoscaler.decide.prepared_spec import PreparedSpec
from adapter.autoscaler.decide.restraint import FOLLOWS, TOLERATED, Restraint
from adapter.autoscaler.decide.trace import Step
from adapter.model.autoscaling import status as conditions
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerStatus, MetricStatus
from adapter.model.autoscaling.status import ABLE_TO_SCALE, SCALED_TO_ZERO, Conditions
from adapter.model.timestamps import Instant


class Event(NamedTuple):
    """An event about the autoscaler, of type Normal or Warning."""

    type: str
    reason: str
    message: str


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one sync.

    `replicas` is the count afterwards; `rescale` says whether to write it, and `reason` why. `status` is the
    status afterwards, to be written if `status_changed`. `error` is the error that ends the sync, "" without
    one; some metrics may have failed all the same. `history` is the next sync's, once this decision is
    carried out. `desired` is the count that was decided, also if it is withheld or cannot be written, and
    None if no count was decided: the status then repeats the previous one. `spec` is what it was made with.

    `absent` are the descriptions of the metrics without a value, None if no metric was computed. `wanted` is
    what the metrics ask for before limits, None if one is absent or none was computed. `covered` is by how
    much pending capacity has reduced that, None without the option. `draining` is since when scale-downs wait
    for pods to become idle, None if this one does not. `restraint` is what kept the count where it is,
    `limit` which limit applied to it, whether it is written or not. `obstacle` is the last step that kept it
    from being decided or written.
    """

    replicas: int
    rescale: bool = False
    reason: str = ""
    status: HorizontalPodAutoscalerStatus
    status_changed: bool
    events: tuple[Event, ...]
    error: str = ""
    history: History
    trace: tuple[Step, ...]
    spec: PreparedSpec
    desired: int | None = None
    absent: tuple[str, ...] | None = None
    wanted: int | None = None
    covered: int | None = None
    draining: int | None = None
    restraint: Restraint = FOLLOWS
    limit: Restraint = FOLLOWS
    obstacle: Step | None = None


class Veto(NamedTuple):
    """Why a count is not written: a reason, and a text for people.

    Both are shown in the condition `kind`, which does not hold. `tells` adds an event when that begins.
    """

    reason: str
    text: str
    kind: str = ABLE_TO_SCALE
    tells: bool = False


class Draining(NamedTuple):
    """A scale-down goes no lower than `least`, by pods that are idle; `since` is when that began."""

    least: int
    since: int


class Sync(msgspec.Struct):
    """One sync while it is decided: inputs that guards may change, and what has come of them so far.

    `status` is that before the sync. `time` is the time of day at `now`. `fallback` is the least count
    while a metric has no value, 0 without one. `is_decided` says that the scale was looked at, `desired`
    is the count then, and `replicas` the one after the sync if there is no veto; `rescales` says that it
    is another. `able` is the reason of AbleToScale if nothing is written. `undrained` is the count if it
    did not wait for `waiting` idle pods, since `draining`. `statuses` are those of the metrics, None if
    none was computed. `error` is that of the sync, and before it ends that of the metrics that failed.
    `lasting` is what the windows remember in place of `wanted`. `tolerated` says that a ratio is within
    tolerance. `restraint` is what counts before any `limit`. With `veto` nothing is written.
    """

    spec: PreparedSpec
    observation: Observation
    status: HorizontalPodAutoscalerStatus
    history: History
    now: int
    time: int
    readings: Sequence[Reading]
    conditions: Conditions
    replicas: int
    rescales: bool = False
    fallback: int = 0
    drain: Draining | None = None
    events: list[Event] = []
    steps: list[Step] = []
    statuses: tuple[MetricStatus, ...] | None = None
    error: str = ""
    absent: tuple[str, ...] | None = None
    wanted: int | None = None
    lasting: int | None = None
    covered: int | None = None
    is_decided: bool = False
    desired: int | None = None
    reason: str = ""
    able: str = "SucceededGetScale"
    undrained: int | None = None
    waiting: int = 0
    draining: int | None = None
    veto: Veto | None = None
    limit: Restraint | None = None
    tolerated: bool = False
    restraint: Restraint | None = None
    obstacle: Step | None = None

    @classmethod
    def begin(
        cls,
        spec: PreparedSpec,
        observation: Observation,
        status: HorizontalPodAutoscalerStatus,
        history: History,
        now: int,
    ) -> Self:
        time, current = now + (observation.set_by or 0), observation.replicas
        before, readings = Conditions(status.conditions or (), time), observation.readings
        steps = [*spec.opening]
        return cls(spec, observation, status, history, now, time, readings, before, current, steps=steps)

    def settle(self, desired: int) -> None:
        """Note the count that is decided."""
        self.desired = desired
        if not self.observation.write_error:
            self.replicas, self.rescales = desired, desired != self.replicas

    def warn(self, reason: str, message: str) -> None:
        self.events.append(Event("Warning", reason, message))

    def stop(self, name: str, values: tuple[object, ...], restraint: Restraint | None = None) -> None:
        """Add a step that keeps the count from being decided or written."""
        self.obstacle = Step(name, values)
        self.steps.append(self.obstacle)
        self.restraint = restraint or self.restraint

    def record(self, replicas: int) -> None:
        """Count as recommended: the stabilization window begins with it."""
        recommendations = self.history.recommendations.recorded(replicas, self.now)
        self.history = msgspec.structs.replace(self.history, recommendations=recommendations)

    def conclude(self, veto: Veto | None = None) -> None:
        """Note that the count is written, or why it is not: because of `veto`, or as it has failed."""
        current, self.veto = self.observation.replicas, veto
        has_failed = self.observation.write_error and self.desired not in {None, current}
        if has_failed:
            self._fail()
        if self.is_decided:
            replicas, reason = self.replicas, self.reason
            if self.undrained is not None and not self.observation.write_error:
                replicas = self.undrained
            if replicas == current:
                reason = ""
            self.steps.append(Step("result", (current, replicas, reason)))
        if self.waiting:
            self.steps.append(Step("draining", (self.replicas, self.waiting)))
        if veto is not None:
            self._withhold(veto)
        elif self.rescales:
            self._write()
        elif not has_failed:
            self.conditions.set(ABLE_TO_SCALE, holds=True, reason=self.able)

    def close(self, spec: PreparedSpec) -> Decision:
        """Return the decision, made with `spec`.

        Without a decided count, and if it could not be written, the status keeps the previous one.
        """
        before, current, after = self.status, self.observation.replicas, self.replicas
        time = self.time
        is_written = self.rescales and self.veto is None
        follows = TOLERATED if self.tolerated and not is_written else FOLLOWS
        has_count = not self.is_decided or self.desired == after
        status = HorizontalPodAutoscalerStatus(
            last_scale_time=Instant(time) if is_written else before.last_scale_time,
            current_replicas=current,
            desired_replicas=after if has_count else before.desired_replicas,
            current_metrics=self.statuses,
            conditions=self.conditions.listed(),
        )
        is_same = conditions.same_status(before, status)
        return Decision(
            replicas=after if self.veto is None else current,
            rescale=is_written,
            reason="" if after == current else self.reason,
            status=before if is_same else status,  # the memory has the one before
            status_changed=not is_same,
            events=tuple(self.events),
            error=self.error,
            history=self.history,
            trace=tuple(self.steps),
            desired=self.desired,
            absent=self.absent,
            wanted=self.wanted,
            covered=self.covered,
            spec=spec,
            draining=self.draining,
            restraint=self.restraint or self.limit or follows,
            limit=self.limit or FOLLOWS,
            obstacle=self.obstacle,
        )

    def _withhold(self, veto: Veto) -> None:
        before = conditions.find(self.status.conditions, veto.kind)
        if veto.tells and (before is None or before.reason != veto.reason):
            self.warn(veto.reason, veto.text)
        self.conditions.set(veto.kind, holds=False, reason=veto.reason, message=veto.text)
        self.conditions.settle()
        self.stop("withheld", (self.replicas, self.observation.replicas, veto.text), Restraint.WITHHELD)

    def _fail(self) -> None:
        problem = self.observation.write_error
        self.warn("FailedRescale", f"New size: {self.desired}; reason: {self.reason}; error: {problem}")
        text = f"the HPA controller was unable to update the target scale: {problem}"
        self.conditions.set(ABLE_TO_SCALE, holds=False, reason="FailedUpdateScale", message=text)
        self.stop("failed", ("written", problem), Restraint.FAILED)
        self.error = f"failed to rescale {self.spec.target}: {problem}"

    def _write(self) -> None:
        spec, current, replicas = self.spec, self.observation.replicas, self.replicas
        text = f"the HPA controller was able to update the target scale to {replicas}"
        self.conditions.set(ABLE_TO_SCALE, holds=True, reason="SucceededRescale", message=text)
        done = f"New size: {replicas}; reason: {self.reason}"
        self.events.append(Event("Normal", "SuccessfulRescale", done))
        ups, downs = self.history.ups, self.history.downs
        if spec.up is not None and spec.down is not None:
            if replicas > current:
                ups = with_event(ups, replicas - current, self.now, spec.up.longest_period)
            else:
                downs = with_event(downs, current - replicas, self.now, spec.down.longest_period)
            self.history = msgspec.structs.replace(self.history, ups=ups, downs=downs)
        if spec.settings.scale_to_zero:
            to_zero = replicas == 0 and spec.limits.lowest == 0 and spec.has_outer_metric
            reason_of_zero = "ScaledToZero" if to_zero else "NotScaledToZero"
            self.conditions.set(SCALED_TO_ZERO, holds=to_zero, reason=reason_of_zero)
        else:
            self.conditions.remove(SCALED_TO_ZERO)
