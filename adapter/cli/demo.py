"""`fastpath demo`: everything in one process on an embedded cluster, live in the terminal."""

import argparse
import asyncio
import logging
from collections.abc import Sequence

from rich.console import Console

from adapter.cli.version import version
from adapter.config.yaml.reader import shown_text
from adapter.errors import Fault, InputError
from adapter.model import durations
from adapter.sandbox.demo import run

_LAST_PORT = 65535

DESCRIPTION = """\
Run a small cluster, a Prometheus and the adapter with its fast-scaler, and show two workloads under the same load, which steps: one scaled
by the fast-scaler, the other by a stand-in of the native chain (scraped every 15 s, decided every 15 s). At the end it tells how long each
took from the step to the Scale.

A real Prometheus is used where one is installed, else the sandbox's small one. Nothing outside this machine is contacted and nothing
stays behind. Ctrl-C ends it.
"""


def main(arguments: Sequence[str]) -> int:
    """Run the demo; 0 when it ends by itself or by Ctrl-C, 1 when a bounded run saw no value change."""
    parser = argparse.ArgumentParser(
        "fastpath demo", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--for", dest="length", metavar="DURATION", help="end after this time, such as 60s or 5m"
    )
    parser.add_argument("--port", default="0", help="port of the adapter (default: any free one)")
    own = parser.parse_args(arguments)
    if not own.port.isascii() or not own.port.isdigit() or int(own.port[:6]) > _LAST_PORT:
        raise InputError([Fault("--port", shown_text(own.port), f"expected a port from 0 to {_LAST_PORT}")])
    seconds = None
    if own.length is not None:
        try:
            seconds = durations.parse_go_duration(own.length)
        except ValueError as error:
            raise InputError(
                [Fault("--for", own.length, f"expected a duration such as 60s: {error}")]
            ) from error
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(name)s: %(message)s")
    asyncio.run(run.run(version(), seconds=seconds, port=int(own.port), console=Console()))
    return 0
