import os
from pathlib import Path

import pytest

from adapter.cli import command_line
from adapter.errors import InputError
from fastpath_tools.evaluate import COMMAND
from tests.support.answers import answers


@pytest.mark.parametrize(
    ("files", "is_terminal", "expected", "said"), answers("cli/command_line", "terminals")
)
def test_a_terminal_shows_that_standard_input_is_read(
    files: list[str],
    *,
    is_terminal: bool,
    expected: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(os, "isatty", lambda _: is_terminal)
    assert command_line.given_files("convert", tuple(files)) == tuple(expected)
    assert capsys.readouterr() == ("", said)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.yaml: expected a readable file: No such file or directory"):
        command_line.read_source(str(tmp_path / "a.yaml"))
    with pytest.raises(InputError, match=": expected a readable file: Is a directory"):
        command_line.read_source(str(tmp_path))
    (tmp_path / "b.yaml").write_bytes(b"\xff")
    with pytest.raises(InputError, match=r"b\.yaml: not UTF-8: invalid start byte at byte 0"):
        command_line.read_source(str(tmp_path / "b.yaml"))


def test_help_and_notices_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.read(COMMAND, ["--help"]) is None
    assert capsys.readouterr() == (COMMAND.render_help(), "")
    options = command_line.read(COMMAND, ["-o", "yaml"])
    assert options is not None
    assert options.output == "yaml"
    assert capsys.readouterr() == ("", "")
