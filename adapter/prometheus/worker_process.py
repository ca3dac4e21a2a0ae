"""Starts the processes that do what would hold up the event loop, and says how they ended."""

import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import IO

import adapter
from adapter.prometheus import response


def start(module: str) -> "subprocess.Popen[bytes]":
    """Start a module of this program as a process, in a millisecond.

    Uvloop would copy the page tables of this process first, 80 ms at 800 MB.
    """
    return subprocess.Popen(  # noqa: S603 - this program itself
        [sys.executable, "-P", "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(),
    )


def read_last(stream: IO[bytes]) -> str:
    """Read a stream to its end; return the last line, where a traceback has the exception."""
    last = b""
    with stream:
        for line in stream:
            last = line.strip() or last
    return response.shorten(last.decode(errors="replace"))


def ending(returncode: int | None) -> str:
    if returncode is not None and returncode < 0:
        name = signal.Signals(-returncode).name
        return f"{name}, as when memory runs out" if name == "SIGKILL" else name
    return f"exit status {returncode}"


def _environment() -> dict[str, str]:
    """Return our environment, with the path of this package if it is not installed."""
    root = str(Path(adapter.__file__).parent.parent)
    if root in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        return dict(os.environ)
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", "")))),
    }
