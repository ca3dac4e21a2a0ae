"""Exposition text of exporters, in `tests/data/exposition`, as a real Prometheus scrapes it.

A file is what one endpoint shows at the end of a recording. Each series of a counter that a test reads has a
comment before it, ``# grows by N``, which says by how much it grows in a second; gauges stay as they are. The
endpoints show their past with timestamps, step by step, so that Prometheus has minutes of it after a second,
and rates come out exact.
"""

import http.server
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parents[1] / "data" / "exposition"

STEP, STEPS = 5, 37
"""Seconds between two samples, and how many there are: three minutes, longer than any window of the rules."""

_GROWTH = re.compile(r"# grows by (\S+)")
_SAMPLE = re.compile(r"((?!#)\S.*) (\S+)")


class RecordedEndpoint(NamedTuple):
    """An endpoint with the labels that a PodMonitor or ServiceMonitor attaches: `pod` is the file's name."""

    pack: str
    pod: str
    namespace: str
    service: str = ""

    @property
    def path(self) -> str:
        return f"/{self.pack}/{self.pod}"

    @property
    def text(self) -> str:
        return (FOLDER / self.pack / f"{self.pod}.txt").read_text()

    def body(self, before: float, timestamp: float | None = None) -> str:
        """Return what it shows `before` seconds before the end, with `timestamp` (epoch seconds) if given."""
        lines, growth = [], 0.0
        for line in self.text.splitlines():
            if found := _GROWTH.fullmatch(line):
                growth = float(found[1])
            sample = _SAMPLE.fullmatch(line)
            if sample is None:
                lines.append(line)
                continue
            stamp = "" if timestamp is None else f" {timestamp * 1000:.0f}"
            lines.append(f"{sample[1]} {float(sample[2]) - growth * before!r}{stamp}")
            growth = 0.0
        return "\n".join(lines) + "\n"

    def scrape_config(self, address: str) -> dict[str, Any]:
        """Return the job that scrapes it at a server's address, with the labels of a ServiceMonitor."""
        labels = {"namespace": self.namespace, "pod": self.pod, "endpoint": "metrics"}
        if self.service:
            labels["service"] = self.service
        job = f"{self.namespace}/{self.service or self.pack}"
        target = {"targets": [address], "labels": {**labels, "job": job, "instance": f"{self.pod}:80"}}
        return {
            "job_name": self.path,
            "metrics_path": self.path,
            "scrape_interval": "50ms",
            "scrape_timeout": "50ms",
            "static_configs": [target],
        }


class RecordedEndpoints(NamedTuple):
    """A server of endpoints. `complete` is set once each has shown its end and was asked again."""

    address: str
    complete: threading.Event


@contextmanager
def serving(endpoints: Sequence[RecordedEndpoint], end: int) -> Iterator[RecordedEndpoints]:
    """Serve the endpoints; each request gets the next step of the past, at last that of `end`."""
    by_path = {endpoint.path: endpoint for endpoint in endpoints}
    asked = dict.fromkeys(by_path, 0)
    complete = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            before = STEP * max(STEPS - 1 - asked[self.path], 0)
            asked[self.path] += 1
            if min(asked.values()) > STEPS:  # what was shown before has been stored by now
                complete.set()
            body = by_path[self.path].body(before, end - before).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Requests are not logged."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield RecordedEndpoints(f"127.0.0.1:{server.server_port}", complete)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def now() -> int:
    return int(time.time())  # noqa: TID251 - the clock of a real Prometheus
