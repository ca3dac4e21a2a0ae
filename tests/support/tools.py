"""Finds the real programs that integration tests start, and ports for them."""

import asyncio
import contextlib
import os
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

REQUIRED = os.environ.get("FASTPATH_REQUIRE_TOOLS") == "1"
"""Set in CI, where a missing program is a failure: a test skipped there would never run anywhere."""


def require(program: str, package: str) -> str:
    """Return the program's path; where it is not installed the test is skipped, and in CI it fails."""
    path = shutil.which(program)
    if path is None:
        miss(f"{program} is not installed; Debian's package {package} has it")
    return path


def miss(reason: str) -> NoReturn:
    """Skip the test, and in CI fail it."""
    if REQUIRED:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def free_port(host: str = "127.0.0.1") -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


class Finished(NamedTuple):
    """What a run of a program came to."""

    status: int
    stdout: str
    stderr: str


async def run(
    *command: str, environment: Mapping[str, str], folder: Path | None = None, stdin: str = ""
) -> Finished:
    """Run a program beside the test's event loop; it ends with the test."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        stdout, stderr = await process.communicate(stdin.encode())
    finally:
        if process.returncode is None:  # the test was cancelled
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    assert process.returncode is not None
    return Finished(process.returncode, stdout.decode(), stderr.decode())
