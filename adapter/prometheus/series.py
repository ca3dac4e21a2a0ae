"""Which series exist: lists of names and label names, read in a worker process that lives as long as one run.

Not here: reading and decoding (`discovery_worker`), when to ask and what to make of it (the provider). The law: every
selector gets a result or an error of its own, the run ends at its deadline whatever the worker does, and no step on the event
loop grows with the number of series.
"""

import asyncio
import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

import adapter
from adapter.errors import PrometheusError
from adapter.model.metrics import SeriesInfo
from adapter.prometheus import endpoint, response, series_wire
from adapter.prometheus.connection import Connection
from adapter.prometheus.series_wire import WorkerLine, WorkerRequest
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

MAX_BYTES = 256 * 1024 * 1024
"""How large the answer to one selector may be unless told otherwise: about a million series."""

TIMEOUT_SECONDS = 60.0
"""How long one run may take unless told otherwise."""

_CONNECTIONS = 4  # lists read at once: each costs Prometheus a look at all its matching series

_NOT_OF_THE_SERVER = frozenset({"query", "worker"})  # kinds of failure that do not depend on the URL

_LINE = msgspec.json.Decoder(WorkerLine)


class SeriesLister:
    """Reads series lists from where `origin` leads. It holds no connection, so there is nothing to close.

    `max_bytes` bounds the answer to one selector, `timeout` a whole run in seconds.
    """

    def __init__(
        self,
        origin: Connection,
        monitoring: Monitoring,
        faults: ProblemLog,
        *,
        max_bytes: int = MAX_BYTES,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        self._origin = origin
        self._monitoring = monitoring
        self._faults = faults
        self._max_bytes = max_bytes
        self._timeout = timeout

    async def series(
        self, selectors: Sequence[str], start: float
    ) -> Mapping[str, tuple[SeriesInfo, ...] | PrometheusError]:
        """Return for each selector, sent verbatim, the names of its series with samples since `start` (epoch seconds).

        One entry for each name, with the label names of all its series, in the order in which the names last appear in
        Prometheus' answer: upstream lets the last one win. There is no end time, as upstream sends none. Selectors whose
        lists were complete when the run was cut off keep them.
        """
        wanted = list(dict.fromkeys(selectors))
        if not wanted:
            return {}
        request = WorkerRequest(
            target=self._origin.target,
            trust=self._origin.trust,
            headers=await self._origin.request_headers(),
            proxy=self._origin.proxy,
            selectors=wanted,
            start=endpoint.format_time(start),
            max_bytes=self._max_bytes,
            timeout=self._timeout,
            connections=_CONNECTIONS,
        )
        collected = _Collected(wanted)
        ending = await self._run(msgspec.json.encode(request), collected)
        if any(
            isinstance(each, PrometheusError) and each.kind == "status" for each in collected.results.values()
        ):
            self._origin.authorization.refuse()
        self._monitoring.discovery_bytes.set(collected.size)
        self._monitoring.discovery_worker_memory.set(collected.peak)
        found = {selector: collected.results.get(selector, ending) for selector in wanted}
        for each in found.values():
            if isinstance(each, PrometheusError) and each.kind not in _NOT_OF_THE_SERVER:
                each.url = self._origin.target.shown(series_wire.ENDPOINT)
        return found

    async def _run(self, request: bytes, collected: "_Collected") -> PrometheusError:
        """Run a worker to its end or to the deadline; return the error of the selectors it said nothing final about."""
        try:
            process = _start()
        except OSError as error:
            return self._complain(f"the discovery worker cannot be started: {error.strerror}", "")
        assert process.stderr is not None
        listening = asyncio.create_task(
            asyncio.to_thread(_converse, process, request, collected), name="discovery-worker"
        )
        complaints = asyncio.create_task(
            asyncio.to_thread(_read_last, process.stderr), name="discovery-worker-complaints"
        )
        in_time = True
        try:
            async with asyncio.timeout(self._timeout):
                await asyncio.shield(listening)
        except TimeoutError:
            in_time = False
        finally:
            process.kill()  # nothing, when it has ended
            await asyncio.wait([listening, complaints])
        words = complaints.result()
        if not in_time:
            return PrometheusError("timeout", f"no series list in {self._timeout:g} s")
        if process.returncode == 0 and not words:
            self._faults.resolve("discovery-worker")
            return PrometheusError("worker", "the discovery worker gave no answer")
        return self._complain(f"the discovery worker ended with {_status(process.returncode)}", words)

    def _complain(self, text: str, words: str) -> PrometheusError:
        self._faults.report("discovery-worker", "the discovery worker is not well", text, words=words)
        return PrometheusError("worker", text)


class _Collected:
    """What the worker has said so far, by selector; `size` in bytes over all selectors, `peak` of the worker's memory."""

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
            return  # cut off in the middle, at the worker's death
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


def _start() -> "subprocess.Popen[bytes]":
    """Start a worker in a millisecond: uvloop's own way copies the page tables of this process first, 80 ms at 800 MB."""
    return subprocess.Popen(  # noqa: S603 - this very program
        [sys.executable, "-P", "-m", series_wire.MODULE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(),
    )


def _converse(process: "subprocess.Popen[bytes]", request: bytes, collected: "_Collected") -> None:
    """Send the request and collect the lines until the worker has ended; in a thread, that waits nearly all of the time."""
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdout:
        try:
            with process.stdin:
                process.stdin.write(request)
        except BrokenPipeError:
            pass  # it died before it read; its status says more
        for line in process.stdout:
            collected.add(line)
        process.wait()


def _read_last(stream: IO[bytes]) -> str:
    """Read a stream to its end; return its last line, where a traceback says what happened."""
    last = b""
    with stream:
        for line in stream:
            last = line.strip() or last
    return response.shorten(last.decode(errors="replace"))


def _status(returncode: int | None) -> str:
    if returncode is not None and returncode < 0:
        name = signal.Signals(-returncode).name
        return f"{name}, as when memory runs out" if name == "SIGKILL" else name
    return f"exit status {returncode}"


def _environment() -> dict[str, str]:
    """Return our environment, in which the worker finds this same package where it is not installed."""
    root = str(Path(adapter.__file__).parent.parent)
    if root in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        return dict(os.environ)
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", "")))),
    }
