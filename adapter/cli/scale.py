"""`fastpath scale`: the scaler alone, without the metrics APIs."""

from collections.abc import Sequence

from adapter.cli import command_line, serve
from adapter.config.options import SCALE


def main(arguments: Sequence[str]) -> int:
    """Scale until SIGTERM or SIGINT; 0 after an orderly end. InputError for a wrong command line or file."""
    if command_line.print_help(SCALE, arguments):
        return 0
    from adapter.compose import app  # noqa: PLC0415 - the help needs none of it, and it takes a second

    return serve.run_until_signal(SCALE, arguments, app.run_scaler)
