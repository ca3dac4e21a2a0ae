import io
import os
from pathlib import Path

import pytest

from adapter.cli import main
from adapter.provider import text_files
from adapter.provider.rule_source import RulesFiles

LARGE = text_files.MOST_BYTES + 5_000_000


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A file that is larger than it takes on the disk."""
    path = tmp_path / "large.yaml"
    with path.open("wb") as stream:
        stream.truncate(LARGE)
    return path


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("büro\r\n".encode())
    assert text_files.read_text(tmp_path / "a") == "büro\n"


def test_a_large_file_is_refused(large: Path) -> None:
    with pytest.raises(OSError, match=r"it has 68.8 MiB, more than 64 MiB"):
        text_files.read_text(large)


def test_a_stream_without_an_end_is_refused() -> None:
    with pytest.raises(OSError, match=r"it has more than 64 MiB"):
        text_files.read_text(Path("/dev/zero"))
    with pytest.raises(OSError, match=r"it has more than 64 MiB"):
        text_files.read_bytes(io.BytesIO(b" " * LARGE))


def test_rules_of_a_large_file_are_a_fault(large: Path) -> None:
    (fault,) = RulesFiles([str(large)]).read().fatal
    assert str(fault) == f"--config: {large}: expected a readable file: it has 68.8 MiB, more than 64 MiB"


@pytest.mark.parametrize("verb", ["check", "convert", "evaluate", "boost", "schedule", "simulate"])
def test_tools_refuse_a_large_file_in_one_sentence(
    verb: str, large: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--load", os.devnull, "--pod-start", "1s", "--autoscaler"] if verb == "simulate" else []
    assert main.main([verb, *flags, str(large)]) == 2
    err = capsys.readouterr().err
    (line,) = [line for line in err.splitlines() if "more than 64 MiB" in line]
    assert str(large) in line


@pytest.mark.parametrize("verb", ["check", "convert", "evaluate", "boost", "schedule"])
def test_tools_refuse_long_yaml_in_one_sentence(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("a: b\n" * 1_000_000)
    assert main.main([verb, str(path)]) == 2
    err = capsys.readouterr().err
    assert err.count(f"{path}: expected at most 2 MiB of YAML, it has 4.77 MiB") == 1
    assert err.count("\n") == 1
