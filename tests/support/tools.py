"""Finds the real programs that integration tests start, and ports for them."""

import os
import shutil
import socket
from typing import NoReturn

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
