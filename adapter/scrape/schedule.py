"""When pods are scraped, and how the time for processing their bodies is divided.

`ScrapeSchedule` scrapes each target at its interval, with the targets spread evenly over it. A target is
never scraped twice at one time, and a missed scrape is not repeated. If all intervals together exceed the
allowed rate of scrapes, all of them are stretched by one factor, which is a self-metric.

A pod chooses how much work its body is, so processing time is limited in two ways. `FairTurns` runs the work
in turns of two milliseconds, between which the event loop serves everything else, and serves the namespace
first that has used the least time: expensive pods delay their own namespace and no other. `TimeShares` bounds
the work over time: a pod demands the cost of its scrape divided by its interval. While all demands fit the
share of time meant for scrapes, each pod is scraped at its interval. Otherwise the namespaces with the
largest demands are cut to one level, and in each of these the pods with the largest demands: they are scraped
less often, and all others as before.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Hashable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from adapter.model import fairness
from adapter.model.clock import Clock
from adapter.telemetry.metrics import Monitoring

TURN_SECONDS = 0.002
"""After this time a turn ends; the running step is finished first."""

TIME_SHARE = 0.4
"""The part of the process's time that all scraped bodies together may take."""

LONGEST_STRETCH = 60.0
"""Bound on the factor by which the interval of a pod is multiplied."""

_IDLE_NAMESPACES = 64
_STEP = 1.25
_NEWEST = 0.3  # weight of the newest cost in the smoothed one
# The fraction whose multiples fill the unit interval most evenly.
_GOLDEN = 0.6180339887498949

KeyT = TypeVar("KeyT", bound=Hashable)


@dataclass(slots=True, eq=False)
class _Timer:
    interval: float
    due: float
    timer: asyncio.TimerHandle | None = None
    task: asyncio.Task[None] | None = field(default=None, repr=False)


class ScrapeSchedule(Generic[KeyT]):
    """Calls `scrape(key)` for every target at its interval while `run` runs."""

    def __init__(
        self,
        scrape: Callable[[KeyT], Coroutine[Any, Any, None]],
        monitoring: Monitoring,
        *,
        per_second: float,
        random: Callable[[], float],
    ) -> None:
        """`scrape` must not raise. `per_second` bounds the scrapes of all targets; `random` is 0 to 1."""
        self._scrape = scrape
        self._monitoring = monitoring
        self._per_second = per_second
        self._phase = random()  # several replicas scrape the same pods at different times
        self._timers: dict[KeyT, _Timer] = {}
        self._rate = 0.0
        self._group: asyncio.TaskGroup | None = None
        self.stretch = 1.0
        """The factor of every interval; 1 while the allowed rate is not exceeded."""

    def put(self, key: KeyT, interval: float) -> None:
        """Scrape a target every `interval` seconds; a known target keeps its phase."""
        known = self._timers.get(key)
        if known is not None:
            self._rate -= 1 / known.interval
            known.interval = interval
        else:
            self._phase = (self._phase + _GOLDEN) % 1.0
            self._timers[key] = _Timer(interval, self._phase)  # the phase becomes a time in _plan_first
        self._rate += 1 / interval
        self._restretch()
        if known is None and self._group is not None:
            self._plan_first(key, self._timers[key])

    def drop(self, key: KeyT) -> None:
        """Stop scraping a target; a running scrape is cancelled."""
        gone = self._timers.pop(key, None)
        if gone is None:
            return
        self._rate -= 1 / gone.interval
        self._restretch()
        if gone.timer is not None:
            gone.timer.cancel()
        if gone.task is not None:
            gone.task.cancel()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for key, planned in self._timers.items():
                    self._plan_first(key, planned)
                await asyncio.get_running_loop().create_future()
            finally:  # before the group waits for its tasks: it takes no new ones then
                self._group = None
                for planned in self._timers.values():
                    if planned.timer is not None:
                        planned.timer.cancel()

    def _restretch(self) -> None:
        if not self._timers:
            self._rate = 0.0  # drop accumulated rounding errors
        self.stretch = max(1.0, self._rate / self._per_second)
        self._monitoring.scrape_stretch.set(self.stretch)
        self._monitoring.scrape_targets.set(len(self._timers))

    def _plan_first(self, key: KeyT, planned: _Timer) -> None:
        loop = asyncio.get_running_loop()
        planned.due = loop.time() + (planned.due % 1.0) * planned.interval * self.stretch
        planned.timer = loop.call_at(planned.due, self._begin, key, planned)

    def _begin(self, key: KeyT, planned: _Timer) -> None:
        """Start a scrape unless the last one is still running, and plan the next."""
        assert self._group is not None
        loop = asyncio.get_running_loop()
        interval = planned.interval * self.stretch
        missed = max(0.0, (loop.time() - planned.due) // interval)  # a timer may be early by a clock's tick
        planned.due += (missed + 1) * interval
        planned.timer = loop.call_at(planned.due, self._begin, key, planned)
        if planned.task is None or planned.task.done():
            planned.task = self._group.create_task(self._scrape(key), name="scrape")


@dataclass(slots=True, eq=False)
class ScrapeJob:
    """Work as an iterator of small steps. `seconds` is the time that it has taken so far."""

    namespace: str
    steps: Generator[None, None, None]
    done: asyncio.Future[None]
    seconds: float = 0.0


class FairTurns:
    """Runs the steps of jobs; those of one namespace run one after the other."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queues: dict[str, deque[ScrapeJob]] = {}
        self._used: dict[str, float] = {}
        # the time used by the namespace that was served last: new namespaces start there, without credit
        self._least = 0.0
        self._turning = False
        self._running: ScrapeJob | None = None

    def start(self, namespace: str, steps: Generator[None, None, None]) -> ScrapeJob:
        job = ScrapeJob(namespace, steps, asyncio.get_running_loop().create_future())
        queue = self._queues.get(namespace)
        if queue is None:
            queue = self._queues[namespace] = deque()
            self._used[namespace] = max(self._used.get(namespace, 0.0), self._least)
            if len(self._used) > len(self._queues) + _IDLE_NAMESPACES:
                self._used = {
                    name: used
                    for name, used in self._used.items()
                    if name in self._queues or used > self._least
                }
        queue.append(job)
        if not self._turning:
            self._turning = True
            asyncio.get_running_loop().call_soon(self._turn)
        return job

    async def finish(self, job: ScrapeJob) -> None:
        """Wait until a job has ended; raise what its steps raise, or what it was aborted with."""
        try:
            await job.done
        except asyncio.CancelledError:
            self.abort(job)
            raise

    def abort(self, job: ScrapeJob, error: Exception | None = None) -> None:
        """End a job early: `finish` raises the error. What its steps hold is released at once."""
        if error is not None and not job.done.done():
            job.done.set_exception(error)
        if job is not self._running:  # otherwise it ends with the step that aborts it
            self._end(job)

    def _turn(self) -> None:
        """Run steps until the turn's time is over, then let the loop run."""
        begun = now = self._clock.monotonic()
        while self._queues and now - begun < TURN_SECONDS:
            namespace = min(self._queues, key=self._used.__getitem__)
            self._least = self._used[namespace]
            job = self._running = self._queues[namespace][0]
            try:
                next(job.steps)
                ended = job.done.done()
            except StopIteration:
                ended = True
            except Exception as error:  # noqa: BLE001 - belongs to the task that waits for the job
                ended = True
                if not job.done.done():
                    job.done.set_exception(error)
            finally:
                self._running = None
            after = self._clock.monotonic()
            job.seconds += after - now
            self._used[namespace] += after - now
            now = after
            if ended:
                self._end(job)
        self._turning = bool(self._queues)
        if self._turning:
            asyncio.get_running_loop().call_soon(self._turn)

    def _end(self, job: ScrapeJob) -> None:
        """Remove a job from its queue and release what its steps hold."""
        queue = self._queues.get(job.namespace)
        if queue is not None and job in queue:
            queue.remove(job)
            if not queue:
                del self._queues[job.namespace]
        job.steps.close()
        if not job.done.done():
            job.done.set_result(None)


class TimeShares(Generic[KeyT]):
    """What each pod demands, and the factor by which its interval is multiplied for that."""

    def __init__(self) -> None:
        self.demands: dict[str, dict[KeyT, float]] = {}
        """By namespace and pod the smoothed part of the time that its scrapes take at its own interval."""

    def note(self, namespace: str, key: KeyT, demand: float) -> None:
        """Note the seconds of a scrape, divided by the interval of the rule."""
        demands = self.demands.setdefault(namespace, {})
        known = demands.get(key, demand)
        demands[key] = known + (demand - known) * _NEWEST

    def drop(self, namespace: str, key: KeyT) -> None:
        demands = self.demands.get(namespace, {})
        demands.pop(key, None)
        if not demands:
            self.demands.pop(namespace, None)

    def stretches(self) -> dict[str, dict[KeyT, float]]:
        """Return the factors by namespace and pod that are more than 1."""
        sums = {namespace: sum(demands.values()) for namespace, demands in self.demands.items()}
        most = fairness.level(sums.values(), TIME_SHARE)
        factors: dict[str, dict[KeyT, float]] = {}
        for namespace, demands in self.demands.items():
            if sums[namespace] > most:
                level = fairness.level(demands.values(), most)
                factors[namespace] = {
                    key: _stretch(demand / level) for key, demand in demands.items() if demand > level
                }
        return factors


def _stretch(ratio: float) -> float:
    """Return a factor of at least `ratio` in coarse steps, so that it does not change with each scrape."""
    return min(LONGEST_STRETCH, _STEP ** math.ceil(math.log(ratio, _STEP)))
