"""Lists the names and label names of series in Prometheus, with a worker process that lives for one run.

A process of its own, because decoding a long list holds Python's lock, and because its memory goes back to
the system when it ends. Every selector gets a result or an error of its own, and the run ends at its deadline
whatever the worker does. The worker gets one request on standard input and prints lines of JSON.
"""

import asyncio
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from adapter.errors import PrometheusError
from adapter.model.metrics import SeriesInfo
from adapter.prometheus import worker_process
from adapter.prometheus.endpoint import PrometheusServer

if TYPE_CHECKING:  # the worker imports this module, and starts faster without these
    from adapter.prometheus.connection import PrometheusConnection
    from adapter.telemetry.metrics import Monitoring
    from adapter.telemetry.problems import ProblemLog

ENDPOINT = "/api/v1/series"

MODULE = "adapter.prometheus.series_worker"

LINE_BYTES = 256 * 1024
"""About how long a line of the worker is: decoding one takes a millisecond or two."""

MAX_BYTES = 256 * 1024 * 1024
"""Default bound on the answer to one selector: about a million series."""

TIMEOUT_SECONDS = 60.0
"""Default timeout of a run."""

_CONNECTIONS = 4  # lists read at once: each makes Prometheus look at all matching series

_NOT_OF_THE_SERVER = frozenset({"query", "worker"})  # kinds of failure that do not depend on the URL


class WorkerRequest(msgspec.Struct):
    """All that the worker needs, on standard input, because `server` holds secrets.

    `start` is in epoch seconds; the bounds of `server` are for each selector.
    """

    server: PrometheusServer
    selectors: list[str]
    start: float
    connections: int


class WorkerLine(msgspec.Struct, omit_defaults=True):
    """A part of the result of one selector, by its index in the request.

    Its series come in one or more lines, in order; the last has `done`, or `kind` and `text` of a
    `PrometheusError`. The very last line has `peak`, the worker's largest resident memory in bytes.
    """

    selector: int = -1
    series: tuple[SeriesInfo, ...] = ()
    done: bool = False
    bytes: int = 0
    kind: str = ""
    text: str = ""
    peak: int = 0


_LINE = msgspec.json.Decoder(WorkerLine)


@dataclass(slots=True, eq=False)
class SeriesLister:
    """Lists series. `max_bytes` bounds the answer to one selector, `timeout` a whole run in seconds."""

    origin: "PrometheusConnection"
    monitoring: "Monitoring"
    problems: "ProblemLog"
    max_bytes: int = MAX_BYTES
    timeout: float = TIMEOUT_SECONDS

    async def series(
        self, selectors: Sequence[str], start: float
    ) -> Mapping[str, tuple[SeriesInfo, ...] | PrometheusError]:
        """Return for each selector the names of its series with samples since `start` (epoch seconds).

        Each name has one entry with the label names of all its series, in the order in which the names last
        appear in Prometheus' answer, because upstream lets the last one win. Lists that were complete when
        the run timed out are returned.
        """
        wanted = list(dict.fromkeys(selectors))
        if not wanted:
            return {}
        server = await self.origin.server(self.timeout, self.max_bytes)
        collected = _Collected(wanted)
        request = msgspec.json.encode(WorkerRequest(server, wanted, start, _CONNECTIONS))
        ending = await self._run(request, collected)
        self.monitoring.discovery_bytes.set(collected.size)
        self.monitoring.discovery_worker_memory.set(collected.peak)
        lists = {selector: collected.results.get(selector, ending) for selector in wanted}
        for answer in lists.values():
            if isinstance(answer, PrometheusError) and answer.kind not in _NOT_OF_THE_SERVER:
                answer.url = self.origin.endpoint.shown(ENDPOINT)
                if answer.kind == "status":
                    self.origin.authorization.refuse()
        return lists

    async def _run(self, request: bytes, collected: "_Collected") -> PrometheusError:
        """Run a worker to its end or to the timeout; return the error of the selectors without a result."""
        try:
            process = worker_process.start(MODULE)
        except OSError as error:
            return self._report(f"the discovery worker cannot be started: {error.strerror}", "")
        assert process.stderr is not None
        listening = asyncio.create_task(
            asyncio.to_thread(_converse, process, request, collected), name="discovery-worker"
        )
        errors = asyncio.create_task(
            asyncio.to_thread(worker_process.read_last, process.stderr), name="discovery-worker-stderr"
        )
        in_time = True
        try:
            async with asyncio.timeout(self.timeout):
                await asyncio.shield(listening)
        except TimeoutError:
            in_time = False
        finally:
            process.kill()  # no effect if it has ended
            await asyncio.wait([listening, errors])
        output = errors.result()
        if not in_time:
            return PrometheusError("timeout", f"no series list in {self.timeout:g} s")
        if process.returncode == 0 and not output:
            self.problems.resolve("discovery-worker")
            return PrometheusError("worker", "the discovery worker gave no answer")
        return self._report(
            f"the discovery worker ended with {worker_process.ending(process.returncode)}", output
        )

    def _report(self, text: str, output: str) -> PrometheusError:
        self.problems.report("discovery-worker", "the discovery worker failed", text, output=output)
        return PrometheusError("worker", text)


class _Collected:
    """The results so far, by selector, the bytes of all answers, and the worker's peak memory."""

    def __init__(self, selectors: Sequence[str]) -> None:
        self.results: dict[str, tuple[SeriesInfo, ...] | PrometheusError] = {}
        self.size = 0
        self.peak = 0
        self._selectors = selectors
        self._parts: dict[int, list[SeriesInfo]] = {}

    def add(self, text: bytes) -> None:
        try:
            line = _LINE.decode(text)
        except msgspec.DecodeError:
            return  # cut off when the worker was killed
        if line.selector < 0:
            self.peak = line.peak
            return
        selector = self._selectors[line.selector]
        part = self._parts.setdefault(line.selector, [])
        part.extend(line.series)
        self.size += line.bytes
        if line.kind:
            self.results[selector] = PrometheusError(line.kind, line.text)
        elif line.done:
            self.results[selector] = tuple(part)


def _converse(process: "subprocess.Popen[bytes]", request: bytes, collected: "_Collected") -> None:
    """Send the request and collect the lines until the worker ends. Runs in a thread that mostly waits."""
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdout:
        try:
            with process.stdin:
                process.stdin.write(request)
        except BrokenPipeError:
            pass  # it ended before it read; its exit status says more
        for line in process.stdout:
            collected.add(line)
        process.wait()
