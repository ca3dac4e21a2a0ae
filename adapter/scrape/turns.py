"""Runs what is computed from scraped bodies on the event loop in short turns, fairly between namespaces.

A pod chooses how much work its body is. The work comes as an iterator of small steps. Each turn runs steps
for about two milliseconds, then the loop serves everything else. The namespace that has used the least time
is served first, so a namespace with expensive pods delays its own scrapes and not those of others.
"""

import asyncio
from collections import deque
from collections.abc import Generator

from adapter.model.clock import Clock

TURN_SECONDS = 0.002
"""After this time a turn ends; the step that is running is finished first."""

_IDLE_NAMESPACES = 64


class Job:
    """Work under way. `seconds` is the time that it has taken so far."""

    __slots__ = ("done", "namespace", "seconds", "steps")

    def __init__(self, namespace: str, steps: Generator[None, None, None]) -> None:
        self.namespace = namespace
        self.steps = steps
        self.seconds = 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class Turns:
    """Takes jobs and runs their steps."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queues: dict[str, deque[Job]] = {}
        self._used: dict[str, float] = {}
        self._least = 0.0  # what the namespace served last had used: newcomers start here, without credit
        self._turning = False
        self._running: Job | None = None

    def start(self, namespace: str, steps: Generator[None, None, None]) -> Job:
        """Queue a job; jobs of one namespace run one after the other."""
        job = Job(namespace, steps)
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

    async def finish(self, job: Job) -> None:
        """Wait until a job has ended; raises what its steps raise, or what it was aborted with."""
        try:
            await job.done
        except asyncio.CancelledError:
            self.abort(job)
            raise

    def abort(self, job: Job, error: Exception | None = None) -> None:
        """End a job before its time: `finish` raises the error. What its steps hold is released at once."""
        if error is not None and not job.done.done():
            job.done.set_exception(error)
        if job is not self._running:  # else it ends with the step that aborts it
            self._end(job)

    def _turn(self) -> None:
        """Run steps until the turn's time is over, then let the loop run."""
        begun = now = self._clock.monotonic()
        while self._queues and now - begun < TURN_SECONDS:
            namespace = min(self._queues, key=self._used.__getitem__)
            self._least = self._used[namespace]
            job = self._queues[namespace][0]
            ended = self._step(job)
            after = self._clock.monotonic()
            job.seconds += after - now
            self._used[namespace] += after - now
            now = after
            if ended:
                self._end(job)
        self._turning = bool(self._queues)
        if self._turning:
            asyncio.get_running_loop().call_soon(self._turn)

    def _step(self, job: Job) -> bool:
        """Run one step; return whether the job has ended."""
        self._running = job
        try:
            next(job.steps)
        except StopIteration:
            return True
        except Exception as error:  # noqa: BLE001 - belongs to the task that waits for the job
            if not job.done.done():
                job.done.set_exception(error)
            return True
        finally:
            self._running = None
        return job.done.done()

    def _end(self, job: Job) -> None:
        """Take a job out of its queue and release what its steps hold."""
        queue = self._queues.get(job.namespace)
        if queue is not None and job in queue:
            queue.remove(job)
            if not queue:
                del self._queues[job.namespace]
        job.steps.close()
        if not job.done.done():
            job.done.set_result(None)
