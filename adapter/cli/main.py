"""The command `fastpath`: finds the verb, runs it, turns errors into one line each and an exit status.

0: done; 1: the work could not be done; 2: what was given is wrong.
"""

import difflib
import importlib
import os
import sys
from collections.abc import Sequence

from adapter.cli.version import version
from adapter.errors import FastpathError, InputError

# Each verb is the module of its name, loaded only when asked for: `serve` starts without what the demo needs.
_VERBS = {
    "serve": "serve the metrics APIs; takes every prometheus-adapter flag",
    "scale": "scale alone: the scaler of `serve --scaler` without the metrics APIs",
    "explain": "say what the scaler decided for one autoscaler and why",
    "check": "validate a rules file, show what each rule asks and serves, explain an absent metric",
    "evaluate": "say what an autoscaler does with exactly this input, offline, and why",
    "doctor": "say how long an autoscaler of a live cluster takes to react, hop by hop, what is wrong, what helps most",
    "convert": "print the FastPathAutoscaler for a HorizontalPodAutoscaler",
    "boost": "make the HorizontalPodAutoscalers of a manifest boosted, advised, or plain again",
    "certs": "make the serving Secret and the caBundle of the APIServices",
    "preflight": "say who serves the metrics APIs of a cluster now, before the manifests are applied",
    "demo": "run everything in one process on an embedded cluster, live in the terminal",
}


def usage() -> str:
    """Return the text of `fastpath --help`."""
    verbs = "\n".join(f"  {name:<11}{about}" for name, about in _VERBS.items())
    return f"usage: fastpath VERB [ARGUMENTS]\n\n{verbs}\n\n`fastpath VERB --help` lists the flags of a verb; `fastpath --version` prints the version.\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit status."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    if not argv or argv[0] in {"-h", "--help", "help"}:
        print(usage(), end="", file=sys.stdout if argv else sys.stderr)
        return 0 if argv else 2
    if argv[0] in {"--version", "version"}:
        print(f"fastpath {version()}")
        return 0
    if argv[0] not in _VERBS:
        close = difflib.get_close_matches(argv[0], _VERBS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"expected one of {', '.join(_VERBS)}"
        print(f"fastpath: {argv[0]}: no such verb: {hint}", file=sys.stderr)
        return 2
    try:
        status: int = importlib.import_module(f"adapter.cli.{argv[0]}").main(argv[1:])
        sys.stdout.flush()
    except InputError as error:
        for fault in error.faults:
            print(f"fastpath {argv[0]}: {fault}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read the output has gone, as `head` does
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # or the interpreter complains when it ends
        return 1
    except (FastpathError, OSError) as error:
        print(f"fastpath {argv[0]}: {_sentence(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return status


def _sentence(error: Exception) -> str:
    """Return an error as people read it: of the system's errors the reason and the file, not the number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)
