"""The worker process of discovery: reads series lists through prometheus-api-client and prints names and label names.

A process of its own because decoding a long list holds Python's lock, and because memory goes back to the system when it
ends. Not here: what the lists mean, deadlines (the parent ends this process). The law: bounded memory however long the list
is, answers that are too large fail with a sentence, one failed selector does not touch the others, and nothing but
`serieswire` lines on standard output.

prometheus-api-client decides what is asked (`get_series`); the session it is given decides how: trust, headers, GET or POST,
and that an answer is decoded piece by piece while it arrives instead of being loaded whole.
"""

import contextlib
import gc
import os
import queue
import resource
import ssl
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec
import requests
import urllib3
from prometheus_api_client.exceptions import PrometheusApiClientException
from prometheus_api_client.prometheus_connect import PrometheusConnect
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from adapter.errors import PrometheusError
from adapter.model.metrics import SeriesInfo
from adapter.prometheus import hints, series_wire, splitter
from adapter.prometheus import response as envelope
from adapter.prometheus.series_wire import WorkerLine, WorkerRequest

_CHUNK = 256 * 1024
_REFUSAL_BYTES = 64 * 1024
_BEGINNING = 1024  # bytes of an answer that say what it is
_SHAPES = 1000  # sets of label names remembered of one name, only to be quicker
_NICE = 10  # queries are answered first

MEMORY_BYTES = 128 * 1024 * 1024
"""Memory of the worker beside what one list may have bytes: libraries, stacks of threads, pieces of answers."""

_T = TypeVar("_T")

_SERIES = msgspec.json.Decoder(list[dict[str, str]])


_NO_MEMORY = (
    "the names in the series list take more memory than --discovery-max-bytes leaves: narrow the seriesQuery"
)


class _Ending(msgspec.Struct):
    """The end of a series list, or the whole of a short one; `data` stays None when it is null."""

    status: str = ""
    data: list[dict[str, str]] | None = None


_ENDING = msgspec.json.Decoder(_Ending)


class Moment:
    """Stands where prometheus-api-client wants a datetime, of which it uses `timestamp()` alone.

    A datetime would be printed with six decimals; and None is a parameter that is not sent: upstream sends no end.
    """

    def __init__(self, text: str | None) -> None:
        self._text = text

    def timestamp(self) -> str | None:
        """Return the text of the parameter."""
        return self._text


class Tally:
    """What is kept of a series list: for each name the label names and a count, in the order of last appearance."""

    def __init__(self) -> None:
        self._names: dict[str, tuple[set[str], list[int]]] = {}
        self._last: str | None = None
        self._shapes: set[tuple[str, ...]] = set()

    def add(self, series: list[dict[str, str]]) -> None:
        """Take series in the order of the answer."""
        names = self._names
        for labels in series:
            name = labels.get("__name__", "")
            if name != self._last:
                # taken out and put in again: a dict keeps the order of insertion, and the last name wins in the registry
                names[name] = names.pop(name) if name in names else (set(), [0])
                self._last = name
                self._shapes.clear()
            known, count = names[name]
            count[0] += 1
            shape = tuple(labels)
            if shape not in self._shapes:
                if len(self._shapes) >= _SHAPES:
                    self._shapes.clear()
                self._shapes.add(shape)
                known.update(shape)

    def result(self) -> list[SeriesInfo]:
        """Return the names in order; the name itself is not among the labels."""
        return [
            SeriesInfo(name, frozenset(known - {"__name__"}), count[0])
            for name, (known, count) in self._names.items()
        ]


class SeriesResponse:
    """Stands where prometheus-api-client wants the response: its `json` reads the list as it arrives and returns a tally."""

    status_code = 200
    content = b""

    def __init__(self, response: requests.Response, max_bytes: int, note_size: Callable[[int], None]) -> None:
        self._response = response
        self._max_bytes = max_bytes
        self._note_size = note_size

    def json(self) -> dict[str, list[SeriesInfo]]:
        """Return ``{"data": [...]}`` with one `SeriesInfo` for each name instead of one mapping for each series."""
        tally = Tally()
        cutter = splitter.Cutter(splitter.SERIES, _CHUNK)
        size = 0
        beginning = b""
        with self._response:
            for chunk in self._response.iter_content(_CHUNK):
                size += len(chunk)
                beginning = beginning or chunk[:_BEGINNING]
                if size > self._max_bytes:
                    text = f"the series list is larger than {self._max_bytes} bytes (--discovery-max-bytes)"
                    raise PrometheusError("size", text)
                cutter.feed(chunk)
                while (piece := cutter.take()) is not None:
                    tally.add(_decode(_SERIES, piece))
        self._note_size(size)
        rest = cutter.finish()
        try:
            ending = _decode(_ENDING, rest)
        except PrometheusError as error:
            raise PrometheusError(error.kind, hints.of_body(error.message, beginning)) from error
        if ending.status == "error":
            raise envelope.refuse_body(200, rest)
        if ending.data is None:
            raise PrometheusError("decode", "the answer holds no data")
        tally.add(ending.data)
        return {"data": tally.result()}


class Session:
    """Stands where prometheus-api-client wants a session: sends what it asks for over one of requests' in our way."""

    def __init__(self, request: WorkerRequest) -> None:
        self._request = request
        self._requests = requests.Session()
        self._requests.trust_env = (
            False  # proxies were resolved by the parent; netrc and CA variables are not ours
        )
        self._requests.headers.clear()
        self._requests.headers.update(request.headers)
        self._requests.max_redirects = 10
        if request.proxy:
            self._requests.proxies = {"http": request.proxy, "https": request.proxy}
        trust = request.trust
        system = ssl.get_default_verify_paths()
        self.verify = trust.verify and (trust.ca_file or system.cafile or system.capath or True)
        self.cert = (trust.cert_file, trust.key_file) if trust.cert_file else None
        self.size = 0
        """Bytes of the last answer read."""

    def mount(self, prefix: str, adapter: HTTPAdapter) -> None:
        """Take the library's adapter, which says how often to repeat; a longer prefix is ours for the server's name."""
        self._requests.mount(prefix, adapter)
        if name := self._request.trust.server_name:
            self._requests.mount(f"{prefix}/api", _NamedServer(name))

    def get(
        self, url: str, *, params: Mapping[str, str | None], timeout: float, **_: object
    ) -> "SeriesResponse":
        """Send `params` to the target; raises `PrometheusError` for what is not an answer. The rest we know ourselves."""
        given = [(name, value) for name, value in params.items() if value is not None]
        method, full, body = self._request.target.request(url.removeprefix(self._request.target.base), given)
        form = {"Content-Type": "application/x-www-form-urlencoded"} if body is not None else None
        response = self._requests.request(
            method,
            full,
            data=body,
            headers=form,
            timeout=timeout,
            stream=True,
            verify=self.verify,
            cert=self.cert,
        )
        if response.status_code >= 300:
            with response:
                readable = response.status_code in envelope.ENVELOPE_STATUSES
                refusal = next(response.iter_content(_REFUSAL_BYTES), b"") if readable else b""
            raise envelope.refuse_body(response.status_code, refusal)
        return SeriesResponse(response, self._request.max_bytes, self._note_size)

    def close(self) -> None:
        """Close its connections."""
        self._requests.close()

    def _note_size(self, size: int) -> None:
        self.size = size


class _NamedServer(HTTPAdapter):
    """Expects another name in the server's certificate than the URL's."""

    def __init__(self, name: str) -> None:
        self._name = name
        super().__init__(max_retries=Retry(0, read=False))

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **pool: object) -> None:  # noqa: FBT001, FBT002 - requests' own signature
        """Make the pool."""
        super().init_poolmanager(
            connections, maxsize, block, server_hostname=self._name, assert_hostname=self._name, **pool
        )


def list_series(session: Session, request: WorkerRequest, selector: str) -> list[SeriesInfo]:
    """Return the series of a selector; raises `PrometheusError`."""
    connect: Any = PrometheusConnect  # its types ask for more than it uses
    # an explicit Retry: the library's own repeats three times with pauses
    client = connect(
        request.target.base, session=session, retry=Retry(0, read=False), timeout=request.timeout
    )
    try:
        found: list[SeriesInfo] = client.get_series(
            Moment(request.start), Moment(None), params={"match[]": selector}
        )
    except requests.RequestException as error:
        raise map_error(error) from error
    except PrometheusApiClientException as error:
        raise PrometheusError("status", envelope.shorten(str(error))) from error
    except (
        OSError
    ) as error:  # requests' own word for files of TLS that it cannot read, such as half-written ones
        raise PrometheusError("unreachable", envelope.shorten(error.strerror or str(error))) from error
    return found


def map_error(error: requests.RequestException) -> PrometheusError:
    """Return our error for one of requests'; only the innermost cause speaks, for the rest holds the URL and addresses in memory."""
    kind = "timeout" if isinstance(error, requests.Timeout) else "unreachable"
    if isinstance(
        error, requests.TooManyRedirects | requests.exceptions.InvalidURL | requests.exceptions.InvalidSchema
    ):
        return PrometheusError("status", "redirected too often or to nowhere")
    if isinstance(error, requests.exceptions.ChunkedEncodingError | requests.exceptions.ContentDecodingError):
        return PrometheusError(kind, "the connection broke within the answer")
    if kind == "timeout":
        return PrometheusError(kind, "no answer in time")
    cause: BaseException = error
    while (inner := cause.__cause__ or cause.__context__) is not None:
        cause = inner
    text = (isinstance(cause, OSError) and cause.strerror) or str(cause)
    if isinstance(cause, TimeoutError):
        return PrometheusError("timeout", "no answer in time")
    if isinstance(cause, ssl.SSLError):
        text = hints.of_tls(cause)
    elif isinstance(error, requests.exceptions.SSLError):
        text = f"certificate not accepted: {cause}"
    return PrometheusError(kind, envelope.shorten(text))


def run(source: BinaryIO, sink: BinaryIO, *, bound_memory: bool = False) -> bool:
    """Answer the one request on `source` with lines on `sink`; False when something unforeseen happened, told on standard error.

    `bound_memory` limits the whole process: where the names of a list do not fit, the list fails, not the container.
    """
    request = msgspec.json.decode(source.read(), type=WorkerRequest)
    if bound_memory:
        most = request.max_bytes + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    sessions: queue.SimpleQueue[Session] = queue.SimpleQueue()
    connections = max(1, min(request.connections, len(request.selectors)))
    for _ in range(connections):
        sessions.put(Session(request))
    printing = threading.Lock()

    def print_lines(lines: Iterator[WorkerLine]) -> None:
        with printing:
            sink.writelines(msgspec.json.encode(line) + b"\n" for line in lines)
            sink.flush()

    def answer(index: int, selector: str) -> None:
        session = sessions.get()
        try:
            lines = _lines(index, list_series(session, request, selector), session.size)
        except PrometheusError as error:
            lines = iter([WorkerLine(index, kind=error.kind, text=str(error))])
        except MemoryError:
            lines = iter([WorkerLine(index, kind="size", text=_NO_MEMORY)])
        finally:
            sessions.put(session)
        print_lines(lines)

    sound = True
    with ThreadPoolExecutor(connections) as pool:
        for future in [
            pool.submit(answer, index, selector) for index, selector in enumerate(request.selectors)
        ]:
            unforeseen = future.exception()
            if unforeseen is not None:
                traceback.print_exception(unforeseen)
                sound = False
    while not sessions.empty():
        sessions.get().close()
    print_lines(iter([WorkerLine(peak=_peak_memory())]))
    return sound


def _lines(index: int, series: list[SeriesInfo], size: int) -> Iterator[WorkerLine]:
    part: list[SeriesInfo] = []
    length = 0
    for info in series:
        part.append(info)
        length += len(info.name) + sum(map(len, info.labels)) + 4 * len(info.labels) + 50
        if length >= series_wire.LINE_BYTES:
            yield WorkerLine(index, tuple(part))
            part, length = [], 0
    yield WorkerLine(index, tuple(part), done=True, bytes=size)


def _decode(decoder: msgspec.json.Decoder[_T], text: bytes) -> _T:
    try:
        return decoder.decode(text)
    except (ValueError, RecursionError) as error:
        raise PrometheusError("decode", envelope.shorten(f"not a list of series: {error}")) from error


def _peak_memory() -> int:
    """Return the largest resident memory so far in bytes, 0 where the system does not say (getrusage counts the parent in)."""
    with contextlib.suppress(OSError), Path("/proc/self/status").open(encoding="ascii") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def main() -> None:
    """Run as a process."""
    gc.disable()  # it lives shortly, and nothing here refers in circles
    os.nice(_NICE)
    urllib3.disable_warnings()  # a kubeconfig that skips verification says so itself
    sys.exit(0 if run(sys.stdin.buffer, sys.stdout.buffer, bound_memory=True) else 1)


if __name__ == "__main__":
    main()
