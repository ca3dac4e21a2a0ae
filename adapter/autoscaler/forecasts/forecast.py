"""The forecast of one autoscaler: what it was judged by, its plans, and the minimum that comes out.

Each minute the demand that decisions have seen steps through the plan, and what comes out is the minimum.
That takes microseconds. The book says when: it steps all forecasts, and has their jobs done.
"""

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from adapter.autoscaler.controller.state import AutoscalerState
from adapter.autoscaler.decide.sync import Event
from adapter.autoscaler.explain.series import ForecastSeries
from adapter.autoscaler.forecasts.demand import demand_of, request_of
from adapter.autoscaler.interfaces import UNKNOWN_FORECAST, ForecastBound
from adapter.bounds.forecast import job as jobs
from adapter.bounds.forecast import minimum
from adapter.bounds.forecast import verdict as verdicts
from adapter.bounds.forecast.job import STEP, ForecastAnswer, ForecastJob, HistoryQuery
from adapter.bounds.forecast.minimum import Limits
from adapter.bounds.forecast.plan import HOUR, PlannedMinimum
from adapter.bounds.forecast.stored import StoredVerdict, build_fingerprint, stored_hours
from adapter.bounds.forecast.verdict import ForecastCard, Readiness, Verdict
from adapter.errors import InputError
from adapter.model.autoscaling import forecast as forecast_spec
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.autoscaling.forecast import FLOOR, ForecastSettings
from adapter.model.quantity import from_milli
from adapter.model.timestamps import SECOND
from adapter.telemetry.metrics import Monitoring

SETTLED = 60
"""Seconds after which Prometheus has all samples of an hour."""

SPREAD = 2400
"""The seconds of an hour over which jobs are spread."""

RETRY: Final = 300
"""Seconds to the next try of a job that failed."""

PAUSE: Final = 1800
"""The least seconds from a verdict of an autoscaler to its next."""

_STEPS_KNOWN = 2
"""The number of steps for which a minimum holds without a new computation."""

_SYNCS = 2
"""The number of periods after which a decision says nothing about the demand."""

_CARD = msgspec.json.Decoder(ForecastCard | None)

Queries = Callable[[FastPathAutoscaler], Sequence[HistoryQuery]]
"""Returns the query of each metric of an autoscaler. InputError for one without, NotSyncedError."""


class Judged(msgspec.Struct, frozen=True, eq=False):
    """A verdict, when it was made (in seconds since 1970), what it is about, and what came with it."""

    verdict: Verdict
    at: int
    fingerprint: str
    limits: Limits | None
    card: msgspec.Raw


@dataclass(slots=True, eq=False)
class AutoscalerForecast:
    state: AutoscalerState
    settings: ForecastSettings
    basis: tuple[object, ForecastSettings]
    """The spec and settings that verdict and plans are made for: after a change both are made again."""
    series: ForecastSeries
    due: int
    """The time of day of the next job, in seconds."""
    spread: int
    planned: PlannedMinimum = field(default_factory=lambda: PlannedMinimum(STEP))
    judged: Judged | None = None
    """The last answer with a verdict; each is another object."""
    failure: ForecastAnswer | None = None
    """The answer of the last job if it failed."""
    paused: int = 0
    """The first verdict waits until that time of day, in seconds; 0 if it does not."""
    bound: ForecastBound = UNKNOWN_FORECAST
    """What decisions read each second, with the condition that was shown last."""
    reported: str = ""
    """The reason of the last event."""

    @property
    def verdict(self) -> Verdict | None:
        return None if self.judged is None else self.judged.verdict

    @property
    def minimum(self) -> int:
        return self.planned.minimum if self.settings.mode == FLOOR else 0

    def document(self) -> dict[str, Any]:
        condition = self.bound.readiness
        card = None if self.judged is None else _CARD.decode(self.judged.card)
        return {
            "card": None if card is None else msgspec.structs.replace(card, mode=self.settings.mode),
            "floor": self.minimum,
            "withheld": self.planned.withheld,
            "condition": {
                "status": str(condition.holds),
                "reason": condition.reason,
                "message": condition.message,
            },
        }

    def readiness(self) -> Readiness:
        if self.failure is not None:
            return Readiness(holds=False, reason=self.failure.reason, message=self.failure.problem)
        if self.verdict is None and self.paused:
            return verdicts.paused(self.paused)
        return verdicts.readiness_of(self.settings.mode, self.verdict, self.planned.withheld)

    def show(self) -> tuple[bool, Event | None]:
        """Show what the forecast says now; tell whether its condition has changed, and the event of that."""
        before, now = self.bound.readiness, self.readiness()
        self.series.show(self.minimum, self.verdict, self.planned.day, ready=now.holds)
        if now == before:  # decisions tell by the object whether the condition has changed
            return False, None
        self.bound = self.bound._replace(readiness=now)
        event = _event_of(before, now, self.planned.withheld)
        if event is None or event.reason == self.reported:
            return True, None
        self.reported = event.reason
        return True, event

    def step(self, index: int) -> bool:
        """Compute the minimum of a step that begins; tell whether it is another one."""
        before, last, now = self.minimum, self.state.last, index * STEP * SECOND
        if (
            last is None
            or last.snapshot is None
            or now - last.time > _SYNCS * self.state.spec.period * SECOND
        ):
            demand = math.nan
        else:
            demand = demand_of(self.state.spec.object.spec.metrics or (), last.snapshot.observation)
        self.planned.step(index, demand)
        until = (index + 1 + _STEPS_KNOWN) * STEP * SECOND
        self.bound = ForecastBound(self.minimum, until, self.bound.readiness)
        return self.minimum != before

    # -- jobs ------------------------------------------------------------------------------------------------

    def is_judged_at(self, now: int) -> bool:
        """Tell whether the job at `now` makes a new verdict."""
        if self.verdict is None or self.verdict.missing:
            return True
        hour, last = now // HOUR, self.verdict.at // HOUR
        return hour > last and (hour % 24 == self.spread % 24 or hour - last > 24)

    def build_job(self, queries: Queries, now: int) -> ForecastJob | ForecastAnswer:
        """Return the job at `now`, or the answer to one that cannot be done."""
        autoscaler, last = self.state.spec.object, self.state.last
        pods = () if last is None or last.snapshot is None else last.snapshot.observation.pods
        try:
            selected = tuple(queries(autoscaler))
            milli = request_of(autoscaler.spec.metrics or (), pods)
        except InputError as error:
            problem = "; ".join(f"{fault.path}: {fault.expected}" for fault in error.faults)
            return ForecastAnswer(reason=jobs.NO_QUERY, problem=problem)
        except ValueError as error:
            return ForecastAnswer(reason=jobs.UNSUPPORTED, problem=str(error))
        return ForecastJob(
            str(self.state.key),
            msgspec.structs.replace(autoscaler, status=None),
            "boost" if self.state.key.is_native else "fast",
            self.settings,
            tuple(max(1, math.ceil(start.ready / 1000)) for start in self.state.target.ledger.starts()),
            selected,
            now,
            None if milli is None else from_milli(milli),
            self.verdict,
            None if self.judged is None else self.judged.limits,
            self.is_judged_at(now),
            self.planned.plan is None,
            self.state.schedules,
        )

    def take(
        self, answer: ForecastAnswer, queries: Sequence[HistoryQuery], now: int, *, judges: bool
    ) -> None:
        """Take the answer to the job with some queries at `now`, and with it when the next job is."""
        if answer.verdict is None:
            self.failure, self.due = answer, now + (max(RETRY, pause_after(answer)) if judges else RETRY)
            return
        before, at, fingerprint = self.judged, now, build_fingerprint(self.basis, queries)
        if before is not None and answer.verdict.at == before.verdict.at:
            at, fingerprint = before.at, before.fingerprint
        card = answer.card.copy()  # else it would keep the whole line of the worker
        self.failure, self.judged = None, Judged(answer.verdict, at, fingerprint, answer.limits, card)
        for plan in answer.plans:
            self.planned.take(plan)
        self.due = self._next_job(now // HOUR + 1)

    def _next_job(self, hour: int) -> int:
        """Return when the job of an hour is due, in seconds since 1970."""
        return hour * HOUR + SETTLED + self.spread % SPREAD

    # -- from one owner to the next -------------------------------------------------------------------------

    @property
    def version(self) -> object:
        """What changes when there is something new to store: an answer, an hour of the account, a rule."""
        return self, self.judged, self.planned.withheld, self.bound.until // (HOUR * SECOND)

    def to_store(self) -> StoredVerdict:
        """Return what the next owner needs of a forecast with a verdict."""
        judged, planned = self.judged, self.planned
        assert judged is not None
        hours = stored_hours(planned.plans)
        return StoredVerdict(
            judged.fingerprint, judged.at, judged.verdict, judged.limits, hours, planned.account
        )

    def restore(self, stored: StoredVerdict, now: int) -> None:
        """Go on with the verdict of the previous owner; the next job is when it would have been."""
        settings, verdict, chosen = self.settings, stored.verdict, stored.verdict.chosen
        card = ForecastCard(settings.mode, settings.max_extra, settings.min_gain, verdict, chosen)
        raw = msgspec.Raw(msgspec.json.encode(card))
        self.failure = None
        self.judged = Judged(verdict, stored.judged, stored.fingerprint, stored.limits, raw)
        self.planned = PlannedMinimum(STEP, stored.account)
        for plan in stored.plans(now):
            self.planned.take(plan)
        hour, planned = now // HOUR, {plan.hour for plan in self.planned.plans}
        if self.is_judged_at(now) or (chosen and hour not in planned):
            self.due = max(now, hour * HOUR + SETTLED)
        else:
            self.due = max(now, self._next_job(hour if chosen and hour + 1 not in planned else hour + 1))
        before, readiness = self.bound.readiness, self.readiness()
        self.bound = ForecastBound(readiness=readiness)  # the next step computes the minimum
        event = _event_of(before, readiness, "")
        self.reported = "" if event is None else event.reason  # the previous owner has recorded it


def follow(
    state: AutoscalerState | None, known: AutoscalerForecast | None, monitoring: Monitoring, now: int
) -> AutoscalerForecast | None:
    """Return the forecast of an autoscaler as its spec is now, None without one.

    That is the one that is `known`, unless more than its mode has changed.
    """
    if state is None or state.spec.violations or (spec := state.spec.object.spec.forecast) is None:
        return None
    try:
        settings = forecast_spec.settings_of(spec)
    except ValueError:  # a time zone that this machine does not know, which is a violation of the spec
        return None
    basis = (
        msgspec.structs.replace(state.spec.object.spec, mode="", forecast=None),
        settings._replace(mode=""),
    )
    if known is not None and (known.state, known.basis) == (state, basis):
        known.settings = settings
        known.bound = known.bound._replace(min=known.minimum)
        return known
    due = max(now, now // HOUR * HOUR + SETTLED)
    series, spread = ForecastSeries(monitoring, state.key), zlib.crc32(str(state.key).encode())
    return AutoscalerForecast(state, settings, basis, series, due, spread)


def pause_after(answer: ForecastAnswer) -> int:
    """Return how many seconds after a job for a verdict its autoscaler may have the next one."""
    if answer.verdict is not None:
        return RETRY if answer.verdict.missing else PAUSE
    if answer.reason in jobs.COMPUTED:
        return PAUSE
    return RETRY if answer.reason in jobs.READ else 0


def _event_of(before: Readiness, now: Readiness, withheld: str) -> Event | None:
    """Return the event of a promotion or a demotion, None for no event."""
    acted = {verdicts.ACTING, verdicts.ADVISING, verdicts.WITHHELD}
    if now.reason == verdicts.ACTING:
        return Event("Normal", "ForecastActs", now.message)
    if now.reason == verdicts.ADVISING:
        return Event("Normal", "ForecastAdvises", now.message)
    if now.reason == verdicts.WITHHELD and withheld != minimum.UNKNOWN:
        return Event("Warning", "ForecastWithheld", now.message)
    if now.reason == verdicts.REFUSED and before.reason in acted:
        return Event("Warning", "ForecastRefused", now.message)
    if not now.holds and before.holds:
        return Event("Warning", "ForecastFailed", now.message)
    return None
