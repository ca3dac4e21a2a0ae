"""An exporter of programmable series in the text exposition format, for a real Prometheus to scrape.

A scrape shows the series that exist at that moment, with their values at that moment.
"""

import itertools
import ssl
from collections.abc import Callable
from types import TracebackType
from typing import Self

from aiohttp import web

from adapter.sandbox.listener import Listener
from adapter.sandbox.prometheus.series import NAME, Series, SeriesSet

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(series: SeriesSet, now: float) -> str:
    """Return the exposition of all series at `now` (epoch seconds), grouped by name."""
    lines = []
    for name, grouped in itertools.groupby(series, key=lambda one: one.name):
        rows = [(one, value) for one in grouped if (value := one.at(now)) is not None]
        if not rows:
            continue
        first = rows[0][0]
        if first.help:
            lines.append(f"# HELP {name} {_escape(first.help)}")
        lines.append(f"# TYPE {name} {first.type}")
        lines += [f"{name}{_labels(one)} {float(value)!r}" for one, value in rows]
    return "".join(f"{line}\n" for line in lines)


def _labels(series: Series) -> str:
    pairs = [f'{name}="{_escape(value, quote=True)}"' for name, value in series.labels if name != NAME]
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _escape(text: str, *, quote: bool = False) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    return escaped.replace('"', '\\"') if quote else escaped


class Exporter:
    """Serves ``/metrics`` inside the ``async with`` block.

    `now` gives epoch seconds; `scrapes` counts requests.
    """

    def __init__(
        self,
        series: SeriesSet,
        now: Callable[[], float],
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.series = series
        self.scrapes = 0
        self._now = now
        self._listener = Listener(self._handle, host, port, tls)

    async def __aenter__(self) -> Self:
        await self._listener.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._listener.stop()

    @property
    def address(self) -> str:
        """Host and port, as in the targets of a scrape configuration."""
        return self._listener.address

    @property
    def url(self) -> str:
        """The base URL, without a trailing slash."""
        return self._listener.url

    async def down(self) -> None:
        await self._listener.down()

    async def up(self) -> None:
        await self._listener.up()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path != "/metrics":
            return web.Response(text="only /metrics is served here\n", status=404)
        self.scrapes += 1
        return web.Response(
            body=render(self.series, self._now()).encode(), headers={"Content-Type": CONTENT_TYPE}
        )
