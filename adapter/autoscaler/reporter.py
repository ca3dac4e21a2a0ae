"""What is said of decisions: statuses and events, the journal, and the metrics about ourselves.

Here: what is told of a decision, and where. Not here: when it is made (`loop`), what it is (`autoscaler.decide.guarded`). Law: what says the same as
before is not said again.
"""

from collections.abc import Iterable

from prometheus_client import Gauge

from adapter.autoscaler import journal as journals
from adapter.autoscaler.decide.conflicts import Change
from adapter.autoscaler.decide.decision import Decision, Event
from adapter.autoscaler.interfaces import Hands, Key
from adapter.autoscaler.journal import Entry, Input, Journal
from adapter.autoscaler.state import Last, Seen, Work
from adapter.model.autoscaling.conditions import SCALING_LIMITED
from adapter.model.timestamps import SECOND
from adapter.telemetry.metrics import Monitoring


class Teller:
    """Tells of decisions."""

    def __init__(self, hands: Hands, monitoring: Monitoring, journal: Journal) -> None:
        self._hands = hands
        self._monitoring = monitoring
        self._journal = journal
        self._decisions = {each: monitoring.scaler_decisions.labels(each) for each in ("up", "down", "none")}

    def forget(self, key: Key) -> None:
        """Show an autoscaler no more, and forget what was decided."""
        self._journal.forget(key)
        self.hide(key)

    def hide(self, key: Key) -> None:
        """Show an autoscaler no more."""
        for gauge in self._gauges_of(key):
            gauge.remove(*key.plain)

    def _gauges_of(self, key: Key) -> tuple[Gauge, ...]:
        """Return the gauges that show an autoscaler: what it wants, what there is; of a native one what we would, by how much it differs."""
        monitoring = self._monitoring
        if key.is_native:
            return monitoring.recommended, monitoring.recommended_difference, monitoring.floor
        return monitoring.scaler_desired, monitoring.scaler_current

    def tell(self, work: Work, made: Decision, events: Iterable[Event], now: int) -> None:
        """Have the status and the events of a decision written, and show its counts."""
        memory, status = work.memory, made.status
        if made.status_changed:
            self._hands.status(work.object, memory.status, work.recent_changes(now))
        for event in events:
            if event.type == "Normal" or work.is_news(event, now):
                self._hands.event(work.object, event)
        if work.gauges is None:
            work.gauges = tuple(gauge.labels(*work.key.plain) for gauge in self._gauges_of(work.key))
        desired, current = status.desired_replicas, status.current_replicas
        if work.boost is None:
            shown: tuple[int, ...] = (desired, current)
        else:
            floor = memory.boost.floor
            shown = (desired, desired - current, 0 if floor is None else floor.replicas)
        if work.shown != shown:
            work.shown = shown
            for gauge, value in zip(work.gauges, shown, strict=True):
                gauge.set(value)

    def note(
        self,
        work: Work,
        seen: Seen | None,
        made: Decision,
        events: tuple[Event, ...],
        change: Change | None,
        now: int,
        outcome: str,
    ) -> None:
        """Enter a decision into the journal if it changed something or was kept from it."""
        after = made.status.desired_replicas
        current = made.status.current_replicas
        self._decisions["none" if not made.rescale else "up" if made.replicas > current else "down"].inc()
        limited = False
        for each in made.status.conditions or ():
            if each.type == SCALING_LIMITED and each.status == "True":
                limited = True
                self._monitoring.scaler_limited.inc()
        work.last = Last(now, seen, made)
        if not (made.rescale or made.error or limited or change or events or after != current):
            self._journal.quiet(work.key)
            return
        mark = journals.mark_of(made)
        if outcome == "none" and change is None and not self._journal.tells(work.key, mark):
            return
        if seen is not None and (
            sampled := [each.sampled for each in seen.inputs if each.sampled is not None]
        ):
            self._monitoring.scaler_sample_age.observe(max(0.0, (now - min(sampled)) / SECOND))
        self._journal.note(
            Entry(
                work.key,
                now,
                current,
                after,
                outcome,
                made.reason,
                made.error,
                len(seen.observation.pods) if seen is not None else 0,
                seen.inputs if seen is not None else (),
                made.trace,
                events,
                change,
                mark,
            )
        )

    def observe_stages(self, seen: Seen, now: int, seconds: float) -> None:
        """Measure how long the stages of a change took; from the load to its sample it is at most what one sample speaks of."""
        stages = {"decision-to-write": seconds}
        newest = max((each for each in seen.inputs if each.sampled is not None), key=_sampled, default=None)
        if newest is not None:
            stages["sample-to-decision"] = max(0.0, (now - _sampled(newest)) / SECOND)
            if newest.span is not None:
                stages["load-to-sample"] = newest.span / SECOND
        for stage, length in stages.items():
            self._monitoring.scaler_stages.labels(stage).observe(length)


def _sampled(given: Input) -> int:
    return given.sampled or 0
