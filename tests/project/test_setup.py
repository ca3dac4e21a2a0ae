"""scripts/setup, run twice concurrently: the second waits for the first and finds the work done."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.processor import Limit

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

# Stands in for Python: records each environment and installation that begins and ends, and takes its time for
# it.
INTERPRETER = """\
#!/bin/sh
case "$*" in
"-m venv .venv")
    echo begin >>"$RECORD"
    mkdir -p .venv/bin
    while [ ! -e "$RECORD.go" ]; do sleep 0.02; done
    cp "$0" .venv/bin/python
    echo end >>"$RECORD"
    ;;
"-m pip install "*)
    [ -x .venv/bin/python ] || exit 1
    ;;
*)
    exec "$REAL" "$@"
    ;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """Return a folder with what scripts/setup reads, and the interpreter above."""
    root = tmp_path / "checkout"
    (root / "scripts").mkdir(parents=True)
    (root / "requirements").mkdir()
    shutil.copy(request.config.rootpath / "scripts" / "setup", root / "scripts")
    for name in ("lock", "setup"):
        (root / "requirements" / f"{name}.txt").write_text("")
    (root / "pyproject.toml").write_text("")
    for name in ("python", "prometheus"):  # a program that is there is not installed
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(INTERPRETER if name == "python" else "")
        program.chmod(0o755)
    return root


def test_two_at_once_take_turns(checkout: Path, tmp_path: Path) -> None:
    record = tmp_path / "record"
    environment = {
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin",
        "PYTHON": str(tmp_path / "bin" / "python"),
        "REAL": sys.executable,
        "RECORD": str(record),
    }
    with (
        subprocess.Popen([checkout / "scripts" / "setup"], env=environment) as first,
        subprocess.Popen([checkout / "scripts" / "setup"], env=environment) as second,
    ):
        limit = Limit(30)
        while not waits_for_the_lock({first.pid, second.pid}) and limit.left() > 0:
            time.sleep(0.02)
        (tmp_path / "record.go").touch()
    assert (first.returncode, second.returncode) == (0, 0)
    assert record.read_text().splitlines() == ["begin", "end"]


def waits_for_the_lock(processes: set[int]) -> bool:
    """Tell whether one of the processes waits for a lock of another, as the kernel lists them."""
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any(fields[1] == "->" and int(fields[5]) in processes for fields in lines)
