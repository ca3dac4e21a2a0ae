"""`fastpath serve`, and `fastpath scale`, which is the scaler alone.

Both take prometheus-adapter's command line.
"""

import asyncio
import gc
import importlib
import logging
import re
import signal
from collections.abc import Sequence

from adapter.cli import command_line
from adapter.config.option_fields import Command
from adapter.config.options import SCALE, SERVE, Options
from adapter.errors import RunError
from adapter.runtime.event_loop import Loop
from adapter.runtime.garbage import ShortCollections
from adapter.telemetry import logs

_log = logging.getLogger(__name__)
_BOUND = re.compile(r"bind on address \(.*?, ([0-9]+)")  # asyncio's words


def main(arguments: Sequence[str]) -> int:
    """Serve until SIGTERM or SIGINT; 0 after an orderly end. InputError for a wrong command line or file."""
    return _run_until_signal(SERVE, arguments)


def scale(arguments: Sequence[str]) -> int:
    """Scale until SIGTERM or SIGINT, as `main` serves."""
    return _run_until_signal(SCALE, arguments)


def _run_until_signal(command: Command[Options], arguments: Sequence[str]) -> int:
    if command_line.print_help(command, arguments):
        return 0
    options, notices = command.parse(arguments)
    logs.configure_logging(options.verbosity)
    for notice in notices:
        _log.warning("flag", extra=logs.facts(notice=notice))
    # what is imported never becomes garbage, and a full collection that skips it pauses a third as long
    gc.disable()
    from adapter.compose import app  # noqa: PLC0415 - the help needs none of it, and it takes half a second

    # `app` imports these when it needs them, too late for that
    if options.scaler or command is SCALE:
        importlib.import_module("adapter.compose.scaler")
    if options.lister_kubeconfig:
        importlib.import_module("kubernetes_asyncio.config")
    gc.enable()
    run = app.run if command is SERVE else app.run_scaler

    async def until_signal() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await run(options, command_line.version(), stop)

    try:
        with ShortCollections(), asyncio.Runner(loop_factory=Loop) as runner:
            runner.run(until_signal())
    except OSError as error:
        if flag := _flag_of_address(options, str(error)):
            raise RunError(f"{flag}: {error.strerror or error}") from error
        raise
    return 0


def _flag_of_address(options: Options, text: str) -> str:
    """Return the flag of the address that could not be bound, "" if the error is about something else."""
    bound = _BOUND.search(text)
    addresses = {
        "--secure-port": str(options.secure_port),
        "--local-address": options.local_address,
        "--health-probe-bind-address": options.health_probe_bind_address,
        "--metrics-bind-address": options.metrics_bind_address,
    }
    matching = (flag for flag, text in addresses.items() if bound and text.rpartition(":")[2] == bound[1])
    return next(matching, "")
