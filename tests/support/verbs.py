"""Verbs that run beside a sandbox cluster, and what verbs print."""

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from adapter.cli import main


class Printed(NamedTuple):
    """What the verb came to."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The JSON that it printed."""
        return json.loads(self.out)


async def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> Printed:
    """Run a verb in a thread with a loop of its own."""
    capsys.readouterr()
    status = await asyncio.to_thread(main.main, list(arguments))
    return Printed(status, *capsys.readouterr())


class Verb:
    """A verb that reads the cluster."""

    def __init__(self, name: str, kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._name = name
        self._kubeconfig = kubeconfig
        self._capsys = capsys

    async def __call__(self, *arguments: str) -> Printed:
        return await printed(self._capsys, self._name, f"--kubeconfig={self._kubeconfig}", *arguments)
