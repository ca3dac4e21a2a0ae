"""What discovery and its worker process say to each other: one request on standard input, lines of JSON on standard output."""

import msgspec

from adapter.model.metrics import SeriesInfo
from adapter.prometheus.endpoint import Target, Trust

ENDPOINT = "/api/v1/series"

MODULE = "adapter.prometheus.series_worker"

LINE_BYTES = 256 * 1024
"""About how long a line may get: decoding one takes a millisecond or two."""


class WorkerRequest(msgspec.Struct):
    """All that the worker needs; secrets are in `headers` and `proxy`, which is why this travels on standard input.

    `start` is a time as Prometheus takes it; `max_bytes` bounds the answer to each selector; `timeout` is in seconds.
    """

    target: Target
    trust: Trust
    headers: dict[str, str]
    proxy: str
    selectors: list[str]
    start: str
    max_bytes: int
    timeout: float
    connections: int


class WorkerLine(msgspec.Struct, omit_defaults=True):
    """A part of the result. `selector` is an index into the request's selectors.

    A selector's series come in one or more lines, in order; its last line has `done`, or `kind` and `text` of a
    `PrometheusError`. The very last line of all has `peak`, the worker's largest resident memory in bytes.
    """

    selector: int = -1
    series: tuple[SeriesInfo, ...] = ()
    done: bool = False
    bytes: int = 0
    kind: str = ""
    text: str = ""
    peak: int = 0
