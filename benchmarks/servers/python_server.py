"""A web server with prometheus-client's process collector: `python python_server.py PORT`.

``/work?ms=N`` takes N milliseconds of processor time, ``/litter?kb=N`` makes so much garbage in cycles.
"""

import sys
import time
from collections.abc import Callable, Iterable
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import make_wsgi_app

StartResponse = Callable[[str, list[tuple[str, str]]], object]

_metrics = make_wsgi_app()


class Node:
    """A part of a cycle."""

    def __init__(self, size: int) -> None:
        self.content = bytearray(size)
        self.own = self


def application(environ: dict[str, str], start_response: StartResponse) -> Iterable[bytes]:
    """Serve metrics and work; gunicorn loads it, too."""
    if environ["PATH_INFO"] == "/metrics":
        return _metrics(environ, start_response)
    asked = parse_qs(environ["QUERY_STRING"])
    end = time.thread_time() + int(asked.get("ms", ["0"])[0]) / 1000
    for _ in range(int(asked.get("kb", ["0"])[0])):
        Node(1024)
    while time.thread_time() < end:
        sum(range(1000))
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"done\n"]


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        pass


if __name__ == "__main__":
    with make_server("127.0.0.1", int(sys.argv[1]), application, handler_class=_Quiet) as server:
        server.serve_forever()
