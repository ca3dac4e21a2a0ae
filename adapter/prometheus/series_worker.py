"""The discovery worker: reads series lists through prometheus-api-client and prints names and label names.

prometheus-api-client decides what is requested (`get_series`). The session it is given decides how: TLS,
headers, GET or POST, and that an answer is reduced to its names while it arrives and never loaded whole.
Memory is bounded however long a list is, and a failed selector does not affect the others.
"""

import contextlib
import functools
import gc
import os
import queue
import resource
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import msgspec
import urllib3

from adapter.errors import PrometheusError
from adapter.model.metrics import SeriesInfo
from adapter.prometheus import endpoint, http_session, response, series
from adapter.prometheus.http_session import EndpointSession
from adapter.prometheus.series import WorkerLine, WorkerRequest

MEMORY_BYTES = 128 * 1024 * 1024
"""Memory of the worker beside one list: libraries, stacks of threads, pieces of answers."""

_CHUNK = 256 * 1024
_BEGINNING = 1024  # bytes of an answer that are examined if it is not JSON
_LABEL_SETS = 1000  # sets of label names remembered of one name, to skip those already seen
_NICE = 10  # queries have priority

_NO_MEMORY = (
    "the names in the series list take more memory than --discovery-max-bytes leaves: narrow the seriesQuery"
)


class _Ending(msgspec.Struct):
    """The end of a series list, or all of a short one; `data` is None if it is null."""

    status: str = ""
    data: list[dict[str, str]] | None = None


_SERIES = msgspec.json.Decoder(list[dict[str, str]])
_ENDING = msgspec.json.Decoder(_Ending)


class SeriesTally:
    """What is kept of a series list: label names and count of each name, in the order of last appearance."""

    def __init__(self) -> None:
        self._names: dict[str, tuple[set[str], list[int]]] = {}
        self._last: str | None = None
        self._label_sets: set[tuple[str, ...]] = set()

    def add(self, listed: list[dict[str, str]]) -> None:
        """Take series in the order of the answer."""
        names = self._names
        for labels in listed:
            name = labels.get("__name__", "")
            if name != self._last:
                # inserted again, because a dict keeps the order of insertion, and the last name wins in the
                # registry
                names[name] = names.pop(name) if name in names else (set(), [0])
                self._last = name
                self._label_sets.clear()
            known, count = names[name]
            count[0] += 1
            label_set = tuple(labels)
            if label_set not in self._label_sets:
                if len(self._label_sets) >= _LABEL_SETS:
                    self._label_sets.clear()
                self._label_sets.add(label_set)
                known.update(label_set)

    def result(self) -> list[SeriesInfo]:
        """Return the names in order; ``__name__`` is not among the labels."""
        return [
            SeriesInfo(name, frozenset(known - {"__name__"}), count[0])
            for name, (known, count) in self._names.items()
        ]


class SeriesList(msgspec.Struct):
    """A series list as the library gets it: a `SeriesInfo` for each name in place of each series.

    `size` is the number of bytes that Prometheus sent.
    """

    size: int
    names: list[SeriesInfo]


def reduce_list(parts: Iterable[bytes], most: int) -> Iterator[bytes]:
    """Read an answer of `most` bytes in pieces while it arrives, and return one with the names alone."""
    tally = SeriesTally()
    splitter = response.Splitter(response.SERIES, _CHUNK)
    size = 0
    beginning = b""
    for part in parts:
        size += len(part)
        beginning = beginning or part[:_BEGINNING]
        if size > most:
            text = f"the series list is larger than {most} bytes (--discovery-max-bytes)"
            raise PrometheusError("size", text)
        splitter.feed(part)
        while (piece := splitter.take()) is not None:
            tally.add(response.decode(_SERIES, piece))
    rest = splitter.finish()
    try:
        ending = response.decode(_ENDING, rest)
    except PrometheusError as error:
        raise PrometheusError(error.kind, endpoint.explain_body(error.message, beginning)) from error
    if ending.status == "error":
        raise response.explain_refusal(200, rest)
    if ending.data is None:
        raise PrometheusError("decode", "the answer holds no data")
    tally.add(ending.data)
    yield msgspec.json.encode({"data": SeriesList(size, tally.result())})


def list_series(session: EndpointSession, start: float, selector: str) -> SeriesList:
    """Return the series of a selector. Raises PrometheusError."""
    first = datetime.fromtimestamp(start, UTC)
    with http_session.mapped_errors():
        listed = session.client().get_series(first, first, {"match[]": selector})
    return msgspec.convert(listed, SeriesList)


def run(source: BinaryIO, sink: BinaryIO, *, bound_memory: bool = False) -> bool:
    """Answer the one request on `source` with lines on `sink`; return False after a defect, which is printed.

    `bound_memory` limits the process: if the names of a list do not fit, the list fails and not the
    container.
    """
    request = msgspec.json.decode(source.read(), type=WorkerRequest)
    if bound_memory:
        most = request.server.max_bytes + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    sessions: queue.SimpleQueue[EndpointSession] = queue.SimpleQueue()
    connections = max(1, min(request.connections, len(request.selectors)))
    reader = functools.partial(reduce_list, most=request.server.max_bytes)
    for _ in range(connections):  # upstream sends no end time
        sessions.put(EndpointSession(request.server, reader, unsent=frozenset({"end"})))
    printing = threading.Lock()

    def print_lines(lines: Iterator[WorkerLine]) -> None:
        with printing:
            sink.writelines(msgspec.json.encode(line) + b"\n" for line in lines)
            sink.flush()

    def answer(index: int, selector: str) -> None:
        session = sessions.get()
        try:
            lines = _lines(index, list_series(session, request.start, selector))
        except PrometheusError as error:
            lines = iter([WorkerLine(index, kind=error.kind, text=str(error))])
        except MemoryError:
            lines = iter([WorkerLine(index, kind="size", text=_NO_MEMORY)])
        finally:
            sessions.put(session)
        print_lines(lines)

    sound = True
    with ThreadPoolExecutor(connections) as pool:
        futures = [pool.submit(answer, index, selector) for index, selector in enumerate(request.selectors)]
        for future in futures:
            if (defect := future.exception()) is not None:
                traceback.print_exception(defect)
                sound = False
    while not sessions.empty():
        sessions.get().close()
    print_lines(iter([WorkerLine(peak=_peak_memory())]))
    return sound


def _lines(index: int, listed: SeriesList) -> Iterator[WorkerLine]:
    part: list[SeriesInfo] = []
    length = 0
    for info in listed.names:
        part.append(info)
        length += len(info.name) + sum(map(len, info.labels)) + 4 * len(info.labels) + 50
        if length >= series.LINE_BYTES:
            yield WorkerLine(index, tuple(part))
            part, length = [], 0
    yield WorkerLine(index, tuple(part), done=True, bytes=listed.size)


def _peak_memory() -> int:
    """Return the peak resident memory in bytes, 0 if it is not reported (getrusage includes the parent's)."""
    with contextlib.suppress(OSError), Path("/proc/self/status").open(encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def main() -> None:
    gc.disable()  # a short life without reference cycles
    os.nice(_NICE)
    urllib3.disable_warnings()  # a kubeconfig that skips verification is reported by the parent
    sys.exit(0 if run(sys.stdin.buffer, sys.stdout.buffer, bound_memory=True) else 1)


if __name__ == "__main__":
    main()
