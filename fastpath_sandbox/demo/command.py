"""`fastpath demo`: everything in one process on an embedded cluster, live in the terminal."""

import asyncio
import errno
import logging
from dataclasses import dataclass

from adapter.cli import command_line
from adapter.config import checks
from adapter.config.option_fields import Command, CommandOptions, option, switch
from adapter.config.pflag import FlagType
from adapter.errors import RunError


@dataclass(frozen=True, kw_only=True)
class DemoOptions(CommandOptions):
    length: float = option(
        FlagType.DURATION,
        "0s",
        "End after this time, such as 60s or 5m; 0 runs until Ctrl-C.",
        name="for",
        check=checks.not_negative,
    )
    port: int = option(FlagType.PORT, "0", "Port of the adapter; 0 takes any free one.")
    ui: bool = switch("Show the two workloads in a browser too, on the pages of `fastpath ui`.")


COMMAND = Command(
    verb="demo",
    options=DemoOptions,
    about="""\
Runs a small cluster, a Prometheus and the adapter with its fast-scaler, and shows two workloads
under the same stepped load: one scaled by the fast-scaler, the other by a stand-in of the native
chain (scraped every 15 s, decided every 15 s). At the end it prints how long each took from the
step to the Scale.

A real Prometheus is used if one is installed, else the sandbox's small one. The demo contacts
nothing outside this machine and leaves nothing behind. Ctrl-C ends it.
""",
)


@command_line.verb(COMMAND)
def main(options: DemoOptions) -> int:
    """Run the demo; 0 when it ends by itself or by Ctrl-C, 1 when a bounded run saw no value change."""
    from rich.console import Console  # noqa: PLC0415 - the help needs none of it

    from fastpath_sandbox.demo import run  # noqa: PLC0415

    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(name)s: %(message)s")
    seconds = options.length or None
    try:
        running = run.run(
            command_line.version(), seconds=seconds, port=options.port, console=Console(), ui=options.ui
        )
        asyncio.run(running)
    except OSError as error:
        if error.errno != errno.EADDRINUSE or f", {options.port})" not in str(error):
            raise
        raise RunError(f"--port: {error.strerror}") from error
    return 0
