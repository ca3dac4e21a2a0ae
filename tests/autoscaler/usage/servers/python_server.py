"""A web server with the process collector of prometheus-client: `python_server PORT`.

``/work?ms=N`` takes N milliseconds of processor time.
"""

import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import REGISTRY, CollectorRegistry, make_wsgi_app
from prometheus_client.multiprocess import MultiProcessCollector

Application = Callable[[dict[str, str], Any], Iterable[bytes]]

_registry = REGISTRY
if "PROMETHEUS_MULTIPROC_DIR" in os.environ:  # the workers share their metrics in files
    _registry = CollectorRegistry()
    MultiProcessCollector(_registry)  # type: ignore[no-untyped-call]
_metrics: Application = make_wsgi_app(_registry)


def application(environ: dict[str, str], start_response: Any) -> Iterable[bytes]:
    """Serve metrics and work; gunicorn loads it, too."""
    if environ["PATH_INFO"] == "/metrics":
        return _metrics(environ, start_response)
    return work(environ, start_response)


def work(environ: dict[str, str], start_response: Any) -> Iterable[bytes]:
    asked = parse_qs(environ["QUERY_STRING"])
    end = time.thread_time() + int(asked.get("ms", ["0"])[0]) / 1000
    while time.thread_time() < end:
        sum(range(1000))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"done\n"]


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        pass


def serve(port: int, served: Application) -> None:
    with make_server("127.0.0.1", port, served, handler_class=_Quiet) as server:
        server.serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]), application)
