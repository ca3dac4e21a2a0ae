"""`fastpath serve`: the metrics APIs, and with --scaler the scaler, with prometheus-adapter's command line."""

import asyncio
import gc
import logging
import signal
from collections.abc import Awaitable, Callable, Sequence

from adapter.cli import command_line
from adapter.cli.version import version
from adapter.config.flags import Command
from adapter.config.options import SERVE, Options
from adapter.net.event_loop import Loop
from adapter.telemetry import logs

_log = logging.getLogger(__name__)

Run = Callable[[Options, str, asyncio.Event], Awaitable[None]]


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT; 0 after an orderly end. InputError for a wrong command line or rules file."""
    if command_line.print_help(SERVE, arguments):
        return 0
    from adapter.compose import app  # noqa: PLC0415 - the help needs none of it, and it takes a second

    return run_until_signal(SERVE, arguments, app.run)


def run_until_signal(command: Command[Options], arguments: Sequence[str], run: Run) -> int:
    """Run what a command line says until SIGTERM or SIGINT."""
    options, notices = command.parse(arguments)
    logs.configure_logging(options.verbosity)
    for notice in notices:
        _log.warning("flag", extra=logs.facts(notice=notice))
    # what is imported never becomes garbage: a full collection does not look at it, and pauses a third as long
    gc.freeze()

    async def until_signal() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await run(options, version(), stop)

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(until_signal())
    return 0
