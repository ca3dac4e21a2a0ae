"""Files of an autoscaler and a load, and the verb run in this process."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from adapter.cli import main
from fastpath_tools.simulate import running
from tests.support.simulation import HPA, STEP
from tests.support.verbs import Printed


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with web.yaml and load.csv."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "web.yaml").write_text(HPA)
    (tmp_path / "load.csv").write_text(STEP)
    return tmp_path


@pytest.fixture
def divide(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Have policies be divided among two processes from now on, however short their simulations are."""

    def done() -> None:
        monkeypatch.setattr(running, "WORTH", 0)
        monkeypatch.setattr(os, "cpu_count", lambda: 2)

    return done


@pytest.fixture
def simulated(folder: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., Printed]:
    """Run the verb with the files of the folder; later arguments win."""

    def run(*arguments: str, load: tuple[str, ...] = ("--load", "load.csv")) -> Printed:
        given = ["--autoscaler", "web.yaml", "--pod-start", "20s", *load, *arguments]
        status = main.main(["simulate", *given])
        return Printed(status, *capfd.readouterr())

    return run
