"""Outputs as data: `VERB/CASE/transcript` has command lines, and what each of them prints.

A line after `$ ` is a command. It runs in a copy of the folder of the case, so the other files of the case
are its input; `< FILE` gives one as standard input, and `--prometheus-url=http://FILE` asks the series of one
(tests/golden/stored_series.py). Below it are its standard output, its standard error
after `! `, and its exit status after `? ` where that is not 0. `scripts/test tests/golden --update` writes
what the commands print now. The diff is what a change does to users, and is reviewed as such.
"""

import io
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from adapter.cli import main
from adapter.compose.clock import SystemClock
from tests.golden import stored_clusters, stored_series
from tests.support.scripts import Recorded

FOLDER = Path(__file__).parent
TRANSCRIPTS = sorted(FOLDER.glob("*/*/transcript"))
MARKS = ("$ ", "! ", "? ")
NOW = 1_795_435_200.0
"""2026-11-23T12:00:00Z, of every command that reads the clock."""


def commands(transcript: str) -> list[str]:
    return [line[2:] for line in transcript.splitlines() if line.startswith("$ ")]


def written(command: str, status: int, out: str, err: str) -> Iterator[str]:
    """Yield the lines of a transcript; a line of output that looks like another kind has a backslash."""
    yield f"$ {command}"
    yield from (f"\\{line}" if line.startswith(MARKS) else line for line in out.splitlines())
    yield from (f"! {line}" for line in err.splitlines())
    if status:
        yield f"? {status}"


def run(command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    program, *arguments = shlex.split(command)
    assert program == "fastpath", command
    given = b""
    if "<" in arguments:
        given = Path(arguments.pop(arguments.index("<") + 1)).read_bytes()
        arguments.remove("<")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(given)))
    status = main.main(arguments)
    return "".join(f"{line}\n" for line in written(command, status, *capsys.readouterr()))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: "/".join(path.parent.parts[-2:]))
def test_transcript(
    path: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    recorded: Recorded,
) -> None:
    folder = shutil.copytree(path.parent, tmp_path / "case")
    for shared in path.parent.parent.glob("*.*"):
        shutil.copy(shared, tmp_path)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "100")
    stored_series.serve_files(monkeypatch)
    stored_clusters.serve_files(monkeypatch, NOW)
    monkeypatch.setattr(SystemClock, "wall", lambda _: NOW)
    recorded(path, "".join(run(command, capsys, monkeypatch) for command in commands(path.read_text())))


def test_each_file_of_a_case_is_read_by_a_command() -> None:
    unread = [
        str(file.relative_to(FOLDER))
        for path in TRANSCRIPTS
        for file in path.parent.iterdir()
        if file != path and file.name not in " ".join(commands(path.read_text()))
    ]
    assert unread == []
