"""The command `fastpath`: finds the verb, runs it, and turns errors into one line each and an exit status."""

import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from adapter.cli.command_line import version
from adapter.errors import FastpathError, InputError


class _Verb(NamedTuple):
    """What a verb does, and the function that does it. Its module is imported only when the verb runs."""

    about: str
    module: str
    function: str = "main"


_VERBS = {
    "serve": _Verb("serve the metrics APIs; takes every prometheus-adapter flag", "serve"),
    "scale": _Verb("run the scaler of `serve --scaler` alone, without the metrics APIs", "serve", "scale"),
    "explain": _Verb("show what the scaler decided for one autoscaler and why", "explain"),
    "check": _Verb(
        "validate a rules file, show what each rule asks and serves, explain why a metric is missing",
        "check.command",
    ),
    "evaluate": _Verb("show what an autoscaler does with exactly this input, offline, and why", "evaluate"),
    "doctor": _Verb(
        "measure how long an autoscaler of a live cluster takes to react, hop by hop, and what helps most",
        "doctor.command",
    ),
    "convert": _Verb("print the FastPathAutoscaler for a HorizontalPodAutoscaler, or the reverse", "convert"),
    "boost": _Verb(
        "make the HorizontalPodAutoscalers of a manifest boosted, advised, or plain again", "boost"
    ),
    "certs": _Verb("make the serving Secret and the caBundle of the APIServices", "certs"),
    "preflight": _Verb(
        "show which server has the metrics APIs of a cluster, before the manifests are applied", "preflight"
    ),
    "demo": _Verb("run everything in one process on an embedded cluster, live in the terminal", "demo"),
}

_HELP = frozenset({"-h", "--help", "help"})


def usage() -> str:
    verbs = "\n".join(f"  {name:<11}{verb.about}" for name, verb in _VERBS.items())
    return f"""\
Usage: fastpath VERB [arguments] [flags]

{verbs}

`fastpath VERB --help` lists the flags of a verb; `fastpath --version` prints the version.

Exit status: 0 when it is done, 1 when a run failed, 2 when the command line or a file is wrong.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if len(argv) > 1 and argv[0] in _HELP:
        argv = [argv[1], "--help"]
    if not argv or argv[0] in _HELP:
        print(usage(), end="", file=sys.stdout if argv else sys.stderr)
        return 0 if argv else 2
    if argv[0] in {"--version", "version"}:
        print(f"fastpath {version()}")
        return 0
    name, *rest = argv
    if name not in _VERBS:
        close = difflib.get_close_matches(name, _VERBS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(_VERBS)}"
        print(f"fastpath: {name}: no such verb: {hint}", file=sys.stderr)
        return 2
    try:
        verb = _VERBS[name]
        module = importlib.import_module(f"adapter.cli.{verb.module}")
        status: int = getattr(module, verb.function)(rest)
        sys.stdout.flush()
    except InputError as error:
        for fault in error.faults:
            print(f"fastpath {name}: {fault}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of the output has ended, as `head` does
        # the interpreter flushes standard output when it ends, and would complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (FastpathError, OSError) as error:
        print(f"fastpath {name}: {_sentence(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return status


def _sentence(error: Exception) -> str:
    """Return an error for people: of the system's errors the reason and the file, not the number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)
