"""Scraping targets on time, and processing their bodies within budgets of memory and time.

One namespace cannot use up a budget for others. A scrape that exceeds one fails as a whole, and what is kept
of its pod is dropped: the pod has no value then, with a reason, and never a value that lacks a series. The
largest pod of the namespace that uses most loses first (`model.fairness`); pods that take too much time are
scraped less often (`scrape.schedule`).
"""

import logging
import math
from collections.abc import Awaitable, Callable, Hashable

from adapter.errors import ExpositionError, ExposureLimitError, ScrapeError
from adapter.model.clock import Clock
from adapter.model.fairness import Ledger
from adapter.model.steps import Steps
from adapter.rules.scrape.series import PodSeries
from adapter.scrape.bodies import BodyBudget, BodyBuffer
from adapter.scrape.http import ScrapedBody, ScrapeEndpoint
from adapter.scrape.schedule import FairTurns, ScrapeSchedule, TimeShares
from adapter.scrape.targets import ScrapeTarget
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import SourceProblems

_log = logging.getLogger(__name__)

KEPT_BYTES = 96 * 1024 * 1024
"""Estimated bytes of the series that are kept of all pods."""

NAMESPACE_BYTES = 48 * 1024 * 1024
"""Estimated bytes of these that the pods of one namespace may have."""

_REVIEW_SECONDS = 1.0


class ScrapeWork:
    """The targets that are scraped, each when it is due by `schedule`."""

    def __init__(
        self,
        fetch: Callable[[ScrapeEndpoint, BodyBuffer], Awaitable[ScrapedBody]],
        follow: Callable[[], None],
        clock: Clock,
        monitoring: Monitoring,
        problems: SourceProblems,
        *,
        per_second: float,
        random: Callable[[], float],
    ) -> None:
        """`follow` applies the rules in force, by which a target may go."""
        self.schedule: ScrapeSchedule[ScrapeTarget] = ScrapeSchedule(
            self.scrape, monitoring, per_second=per_second, random=random
        )
        self.listeners: list[Callable[[Hashable], None]] = []
        """Called after every scrape, good or bad, with each owner."""
        self.bodies = BodyBudget()
        self._turns = FairTurns(clock)
        self._fetch = fetch
        self._follow = follow
        self._clock = clock
        self._problems = problems
        self._monitoring = monitoring
        self._kept: Ledger[ScrapeTarget] = Ledger("series", KEPT_BYTES, NAMESPACE_BYTES)
        self._shares: TimeShares[ScrapeTarget] = TimeShares()
        self._slowed: set[ScrapeTarget] = set()
        self._next_review = 0.0
        monitoring.scrape_bodies.set_function(lambda: self.bodies.size)
        monitoring.scraped_series.set_function(lambda: self._kept.total)
        monitoring.scrape_slowed.set_function(lambda: len(self._slowed))

    def put(self, target: ScrapeTarget) -> None:
        """Scrape a target at its interval, or less often if its scrapes take too much time."""
        if target.endpoint.port:
            self.schedule.put(target, target.endpoint.access.interval * target.slowed)

    def drop(self, target: ScrapeTarget) -> None:
        target.gone = True
        self.schedule.drop(target)
        self._kept.put(target.group.namespace, target, 0)
        self._shares.drop(target.group.namespace, target)
        self._slowed.discard(target)

    async def evaluate(self, namespace: str, evaluation: Steps[None]) -> None:
        """Run an evaluation in turns with all other work on the scrapes of a namespace."""
        await self._turns.finish(self._turns.start(namespace, evaluation))

    async def scrape(self, target: ScrapeTarget) -> None:
        """Scrape a target once and notify the listeners; a failure is reported, not raised."""
        self._follow()  # first: by the rules in force it may be gone
        if target.gone:
            return
        time, wall = self._clock.monotonic(), self._clock.wall()
        buffer = self.bodies.open(target.group.namespace)
        try:
            body = await self._fetch(target.endpoint, buffer)
            steps = self._charge_steps(target, target.steps(body, time, wall, self.schedule.stretch))
            job = target.job = self._turns.start(target.group.namespace, steps)
            # A body that has to give way now takes its processing with it.
            buffer.lost = lambda reason: self._turns.abort(job, ScrapeError("budget", reason))
            await self._turns.finish(job)
            for path in target.group.paths:
                self._problems.expire("scrape", path)
            self._monitoring.scrapes.labels("success").inc()
        except ScrapeError as error:
            self._monitoring.scrapes.labels(error.kind).inc()
            if target.job is not None and error.kind != "decode":  # it took too much room
                self._reset(target, error)
            target.fail(error, wall)
            self.report(target)
        except Exception:  # noqa: BLE001 - the body of one pod keeps no other from being scraped
            self._monitoring.scrapes.labels("decode").inc()
            target.fail(ScrapeError("decode", "the body cannot be processed: see the log"), wall)
            _log.exception("unexpected error while scraping a pod")
        finally:
            seconds = buffer.seconds + (0.0 if target.job is None else target.job.seconds)
            target.job, target.busy = None, False
            buffer.close()
            self._monitoring.scrape_seconds.inc(seconds)
            if not target.gone:
                self._shares.note(target.group.namespace, target, seconds / target.endpoint.access.interval)
                if self._clock.monotonic() >= self._next_review:
                    self._review()
        for owner in target.owners:
            for scraped in self.listeners:
                scraped(owner)

    def report(self, target: ScrapeTarget) -> None:
        """Report that the scrapes of a target fail, unless its pod is still starting.

        Of pods that fail alike the log has one. Health checks show no address.
        """
        if not target.is_fault:
            return
        text, cause = f"{target.group.namespace}/{target.fault}", target.reason
        public = f"{target.group.namespace}/{target.pod}: {cause}"
        for path in target.group.paths:
            self._problems.report(
                "scrape", "pods cannot be scraped", text, path, public=public, cause=cause, kind=target.kind
            )

    def _charge_steps(self, target: ScrapeTarget, steps: Steps[None]) -> Steps[None]:
        """Process a scrape, and charge what is kept after each step. Raises ScrapeError."""
        try:
            for _ in steps:
                self._charge(target)
                yield
        except ExposureLimitError as error:
            raise ScrapeError("series", str(error)) from error
        except ExpositionError as error:
            raise ScrapeError("decode", str(error)) from error
        self._charge(target)

    def _charge(self, target: ScrapeTarget) -> None:
        """Note what is kept of a pod; while that is too much, the namespace with most loses its largest."""
        if target.gone:
            return
        is_over = self._kept.put(target.group.namespace, target, target.series.size)
        while is_over and (loss := self._kept.loss(target.group.namespace)) is not None:
            error, holder = ScrapeError("budget", loss.reason), loss.holder
            if holder is target:
                raise error
            if holder.busy and holder.job is not None:
                self._kept.put(holder.group.namespace, holder, 0)
                self._turns.abort(holder.job, error)
            else:
                self._reset(holder, error)
                self.report(holder)

    def _reset(self, target: ScrapeTarget, error: ScrapeError) -> None:
        """Drop all series, because a sum must not lack one."""
        target.series = PodSeries(target.series.relabel)
        target.fail(error, math.inf)
        self._kept.put(target.group.namespace, target, 0)

    def _review(self) -> None:
        """Stretch the intervals of the pods whose scrapes take more than their share of time."""
        self._next_review = self._clock.monotonic() + _REVIEW_SECONDS
        stretches = self._shares.stretches()
        factors = {target: factor for pods in stretches.values() for target, factor in pods.items()}
        for target in self._slowed | factors.keys():
            factor = factors.get(target, 1.0)
            if target.slowed != factor:
                target.slowed = factor
                self.put(target)
        self._slowed = set(factors)
        for namespace in stretches:
            text = (
                f"pods of namespace {namespace} cost more time than their share: they are scraped less often"
            )
            self._problems.report("scrape-time", "pods are scraped less often", text, namespace)
