"""Processes scraped bodies within budgets of memory and time that one namespace cannot use up for others.

A scrape that exceeds a budget fails as a whole, and what is kept of its pod is dropped: the pod has no value
then, with a reason, and never a value that lacks a series. The largest pod of the namespace that uses most
loses first (`model.fairness`); pods that take too much time are scraped less often (`turns`).
"""

from collections.abc import Callable, Generator, Mapping, Sequence

from adapter.errors import ExpositionError, ExposureLimitError, ScrapeError
from adapter.model.clock import Clock
from adapter.model.fairness import Ledger
from adapter.scrape.http import BodyBudget, BodyBuffer
from adapter.scrape.targets import Scrape, ScrapeTarget, TargetQuery
from adapter.scrape.turns import FairTurns, TimeShares
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import SourceProblems

KEPT_BYTES = 96 * 1024 * 1024
"""Estimated bytes of the series that are kept of all pods."""

NAMESPACE_BYTES = 48 * 1024 * 1024
"""Estimated bytes of these that the pods of one namespace may have."""

_REVIEW_SECONDS = 1.0


class ScrapeWork:
    """Processes the bodies of all targets.

    `lost` is called with a target whose series had to be dropped although its own scrapes succeed, `slowed`
    with a target whose interval has changed.
    """

    def __init__(
        self,
        clock: Clock,
        monitoring: Monitoring,
        faults: SourceProblems,
        *,
        lost: Callable[[ScrapeTarget, ScrapeError], None],
        slowed: Callable[[ScrapeTarget], None],
    ) -> None:
        self.bodies = BodyBudget()
        self.turns = FairTurns(clock)
        self._clock = clock
        self._faults = faults
        self._monitoring = monitoring
        self._lost = lost
        self._slowed_changed = slowed
        self._kept: Ledger[ScrapeTarget] = Ledger("series", KEPT_BYTES, NAMESPACE_BYTES)
        self._shares: TimeShares[ScrapeTarget] = TimeShares()
        self._slowed: set[ScrapeTarget] = set()
        self._next_review = 0.0
        monitoring.scrape_bodies.set_function(lambda: self.bodies.size)
        monitoring.scraped_series.set_function(lambda: self._kept.total)
        monitoring.scrape_slowed.set_function(lambda: len(self._slowed))

    async def take(self, target: ScrapeTarget, buffer: BodyBuffer, scrape: Scrape) -> None:
        """Process a body. Raises ScrapeError; then nothing of the scrape counts."""
        job = target.job = self.turns.start(target.namespace, self._steps(target, scrape))
        buffer.lost = lambda reason: self.turns.abort(job, ScrapeError("budget", reason))
        try:
            await self.turns.finish(job)
        except ExposureLimitError as error:
            self._reset(target, str(error))
            raise ScrapeError("series", str(error)) from error
        except ExpositionError as error:
            raise ScrapeError("decode", str(error)) from error
        except ScrapeError as error:
            self._reset(target, str(error))
            raise
        finally:
            target.job, target.busy = None, False
            self._monitoring.scrape_seconds.inc(job.seconds)
            if not target.gone:
                self._shares.note(target.namespace, target, job.seconds, target.endpoint.access.interval)
                self._review()

    async def answer(
        self,
        namespace: str,
        targets: Sequence[ScrapeTarget],
        query: TargetQuery,
        stretch: Callable[[ScrapeTarget], float],
    ) -> None:
        """Compute the answers of pods of one namespace to a query, in turns with all other work."""

        def steps() -> Generator[None, None, None]:
            for target in targets:
                if target.can_answer() and not target.gone:
                    answer = yield from target.answer_steps(query, stretch(target))
                    target.put(query, answer)
                    yield

        await self.turns.finish(self.turns.start(namespace, steps()))

    def drop(self, target: ScrapeTarget) -> None:
        """Forget a target that is no longer scraped."""
        target.gone = True
        self._kept.put(target.namespace, target, 0)
        self._shares.drop(target.namespace, target)
        self._slowed.discard(target)

    def _steps(self, target: ScrapeTarget, scrape: Scrape) -> Generator[None, None, None]:
        for _ in target.steps(scrape):
            self._charge(target)
            yield
        self._charge(target)

    def _charge(self, target: ScrapeTarget) -> None:
        """Note what is kept of a pod.

        While that is too much, drop the largest pod of the namespace that keeps most.
        """
        if target.gone:
            return
        self._kept.put(target.namespace, target, target.series.size)
        while (loss := self._kept.loss(target.namespace)) is not None:
            error = ScrapeError("budget", loss.reason)
            if loss.holder is target:
                raise error
            self._kept.put(loss.holder.namespace, loss.holder, 0)
            if loss.holder.busy and loss.holder.job is not None:
                self.turns.abort(loss.holder.job, error)
            else:
                loss.holder.reset(loss.reason)
                self._lost(loss.holder, error)

    def _reset(self, target: ScrapeTarget, reason: str) -> None:
        target.reset(reason)
        self._kept.put(target.namespace, target, 0)

    def _review(self) -> None:
        """Stretch the intervals of the pods whose scrapes take more than their share of time."""
        now = self._clock.monotonic()
        if now < self._next_review:
            return
        self._next_review = now + _REVIEW_SECONDS
        stretches = self._shares.stretches()
        factors: Mapping[ScrapeTarget, float] = {
            target: factor for pods in stretches.values() for target, factor in pods.items()
        }
        for target in self._slowed | factors.keys():
            factor = factors.get(target, 1.0)
            if target.slowed != factor:
                target.slowed = factor
                self._slowed_changed(target)
        self._slowed = set(factors)
        for namespace in stretches:
            text = (
                f"pods of namespace {namespace} cost more time than their share: they are scraped less often"
            )
            self._faults.report("scrape-time", "pods are scraped less often", text, namespace)
