"""`fastpath scale`: the scaler alone, without a metrics API and without rights beyond its namespaces where autoscalers stand in files."""

import asyncio
import gc
import logging
import signal
from collections.abc import Sequence

from adapter.cli.version import version
from adapter.compose import app
from adapter.config import flags
from adapter.config.options import Options
from adapter.net.event_loop import Loop
from adapter.telemetry import logs

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> int:
    """Scale until SIGTERM or SIGINT; 0 after an orderly end. InputError for a wrong command line or file."""
    if flags.asks_for_help(arguments):
        print(flags.render_help("scale"), end="")
        return 0
    options, notices = flags.parse_flags(arguments)
    logs.configure_logging(options.verbosity)
    for notice in notices:
        _log.warning("flag", extra=logs.facts(notice=notice))
    gc.freeze()  # what is imported never becomes garbage
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(_scale(options))
    return 0


async def _scale(options: Options) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await app.run_scaler(options, version(), stop)
