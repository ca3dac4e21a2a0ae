"""Runs the process that makes forecasts. It starts with the first job, and again after it has failed.

A process of its own, because a verdict takes seconds of computing, and because the scaler then works without
numpy. There is one job at a time, so it uses one core at most, at a low priority.
"""

import asyncio
import importlib.util
import subprocess
import threading
from dataclasses import dataclass, field

import msgspec

from adapter.bounds.forecast import job as jobs
from adapter.bounds.forecast.job import MOST_VALUES, ForecastAnswer, ForecastJob
from adapter.errors import InputError, PrometheusError
from adapter.forecast.messages import WorkerJob, WorkerReply, decode_reply, encode_job
from adapter.prometheus import worker_process
from adapter.prometheus.connection import PrometheusConnection
from adapter.telemetry.problems import ProblemLog

MODULE = "fastpath_forecast.worker"

PROBLEM = "forecast-worker"

CPU_SECONDS = 120.0
"""The CPU time of a job; one that would take more is given up, and the histories stay."""

JOB_TIMEOUT = 600.0
"""The longest time of a job, in seconds; the process is started again after it."""

IN_TIME = 0.8
"""After this share of it the process gives a job up by itself, and the histories stay."""

MEMORY_BYTES = 128 * 1024 * 1024
"""What the process takes beside the histories, measured with the largest job (`benchmarks.forecasting`)."""

QUERY_TIMEOUT = 30.0
"""The longest time of one query for history, in seconds."""

_GRACE = 2.0
"""For how long, in seconds, a process that has closed its output may take to end."""

_MISSING = "numpy is not installed: take an image tagged -forecast, or install 'fastpath-adapter[forecast]'"


@dataclass(slots=True, eq=False)
class ForecastService:
    """The process of forecasts, which reads from `origin`. `close` ends it."""

    origin: PrometheusConnection
    problems: ProblemLog
    cpu_seconds: float = CPU_SECONDS
    job_timeout: float = JOB_TIMEOUT
    most_values: int = MOST_VALUES
    module: str = MODULE
    _process: "_Process | None" = field(default=None, init=False)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def run(self, job: ForecastJob) -> ForecastAnswer:
        """Return the answer to a job, one after the other. One that fails is an answer too."""
        async with self._turn:
            return await self._run(job)

    async def _run(self, job: ForecastJob) -> ForecastAnswer:
        if importlib.util.find_spec("numpy") is None:
            return ForecastAnswer(reason=jobs.NOT_INSTALLED, problem=_MISSING)
        try:
            server = await self.origin.server(QUERY_TIMEOUT)
        except (InputError, PrometheusError) as error:
            return ForecastAnswer(reason=jobs.UNREADABLE, problem=f"the history cannot be read: {error}")
        try:
            process = self._process = self._process or _Process(self.module)
        except OSError as error:
            return self._failed(f"the forecast worker cannot be started: {error.strerror}")
        bounds = self.most_values, self.cpu_seconds, IN_TIME * self.job_timeout
        line = encode_job(WorkerJob(job, server, *bounds))
        exchange = asyncio.create_task(asyncio.to_thread(process.ask, line), name="forecast-worker")
        reply: WorkerReply | None = None
        in_time = True
        try:
            async with asyncio.timeout(self.job_timeout):
                reply = await asyncio.shield(exchange)
        except TimeoutError:
            in_time = False
        finally:
            if reply is None:
                self._process = None
                if not exchange.done():
                    process.kill()
                    await asyncio.wait([exchange])
                await asyncio.to_thread(process.end, _GRACE)
        if reply is not None:
            self.problems.resolve(PROBLEM)
            if reply.refused:
                self.origin.authorization.refuse()
            return reply.answer
        if not in_time:
            return self._failed(f"the forecast worker did not end its job in {self.job_timeout:g} s")
        return self._failed(f"the forecast worker ended with {process.ending}", process.output)

    @property
    def pid(self) -> int:
        """The id of the process, 0 while none runs."""
        return 0 if self._process is None else self._process.pid

    async def close(self) -> None:
        """End the process; a job in progress must have been cancelled."""
        process, self._process = self._process, None
        if process is not None:
            await asyncio.to_thread(process.end, 0.0)

    def _failed(self, message: str, output: str = "") -> ForecastAnswer:
        self.problems.report(PROBLEM, "the forecast worker failed", message, output=output)
        return ForecastAnswer(reason=jobs.WORKER_FAILED, problem=message)


class _Process:
    """A running process. `ask` and `end` block, so they run in threads."""

    def __init__(self, module: str) -> None:
        """Raise OSError if it cannot be started."""
        self._running: subprocess.Popen[bytes] = worker_process.start(module)
        self.output = ""
        """The last line of its standard error, once it has ended."""
        self._errors = threading.Thread(target=self._read_errors, daemon=True)
        self._errors.start()

    @property
    def pid(self) -> int:
        return self._running.pid

    @property
    def ending(self) -> str:
        return worker_process.ending(self._running.returncode)

    def ask(self, line: bytes) -> WorkerReply | None:
        """Send a line and return the reply, None if the process ends before."""
        sink, source = self._running.stdin, self._running.stdout
        assert sink is not None
        assert source is not None
        try:
            sink.write(line)
            sink.flush()
        except BrokenPipeError:
            return None
        reply = source.readline()
        try:
            return decode_reply(reply)
        except msgspec.DecodeError:
            return None  # cut off when the process ended

    def kill(self) -> None:
        self._running.kill()

    def end(self, grace: float) -> None:
        """End the process, after `grace` seconds by force, and close what belongs to it."""
        try:
            self._running.wait(grace)
        except subprocess.TimeoutExpired:
            self._running.kill()
            self._running.wait()
        self._errors.join()
        for stream in (self._running.stdin, self._running.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:
                    continue  # what was not sent is of no use any more

    def _read_errors(self) -> None:
        assert self._running.stderr is not None
        self.output = worker_process.read_last(self._running.stderr)
