"""The command `fastpath`: finds the verb, runs it, and turns errors into one line each and an exit status."""

import difflib
import os
import signal
import sys
from collections.abc import Sequence

from adapter.cli.command_line import program, show, tell, version
from adapter.cli.verbs import SERVERS, listed, registered
from adapter.errors import FastpathError, InputError

_HELP = frozenset({"-h", "--help", "help"})


def usage() -> str:
    verbs = "\n".join(f"  {name:<11}{verb.about}" for name, verb in listed().items())
    return f"""\
Usage: {program()} VERB [arguments] [flags]

{verbs}

`{program()} VERB --help` lists the flags of a verb; `{program()} --version` prints the version.

Exit status: 0 when it is done, 1 when a run failed, 2 when the command line or a file is wrong.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if len(argv) > 1 and argv[0] in _HELP:
        argv = [argv[1], "--help"]
    if not argv or argv[0] in _HELP:
        stream, status = (sys.stdout, 0) if argv else (sys.stderr, 2)
        stream.write(usage())
        return status
    if argv[0] in {"--version", "version"}:
        show(f"fastpath {version()}\n")
        return 0
    name, *rest = argv
    verb = registered().get(name)
    if verb is None:
        tell("", _unknown(name))
        return 2
    _follow_signals(name, is_process=arguments is None)
    try:
        status = verb.run(rest)
        sys.stdout.flush()
    except InputError as error:
        for fault in error.faults:
            tell(name, str(fault))
        return 2
    except BrokenPipeError:  # the reader of the output has ended, as `head` does
        # the interpreter flushes standard output when it ends, and would complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (FastpathError, OSError) as error:
        tell(name, _sentence(error))
        return 1
    except KeyboardInterrupt:
        return 130
    return status


def _unknown(name: str) -> str:
    what, known = ("flag", ["--help", "--version"]) if name.startswith("-") else ("verb", [*listed()])
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(known)}"
    return f"{name}: no such {what}: {hint}"


def _follow_signals(verb: str, *, is_process: bool) -> None:
    """Have SIGTERM end a verb as Ctrl-C does: with the processes that it has started, and without its files.

    asyncio cancels the verb at a SIGINT, but not where that is ignored, as in background jobs of a script.
    The servers stop in an order of their own.
    """
    if is_process and verb not in SERVERS:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, lambda _signal, _frame: signal.raise_signal(signal.SIGINT))


def _sentence(error: Exception) -> str:
    """Return an error for people: of the system's errors the reason and the file, not the number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)
