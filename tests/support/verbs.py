"""A verb that runs beside a sandbox cluster."""

import asyncio
from pathlib import Path
from typing import NamedTuple

import pytest

from adapter.cli import main


class Finished(NamedTuple):
    """What a run came to."""

    status: int
    out: str
    err: str


class Verb:
    """Runs a verb in a thread, beside the cluster."""

    def __init__(self, name: str, kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._name = name
        self._kubeconfig = kubeconfig
        self._capsys = capsys

    async def __call__(self, *arguments: str) -> Finished:
        given = [self._name, f"--kubeconfig={self._kubeconfig}", *arguments]
        status = await asyncio.to_thread(main.main, given)
        return Finished(status, *self._capsys.readouterr())
