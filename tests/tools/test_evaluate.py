import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.cli import main as cli
from fastpath_tools import evaluate, evaluate_document
from fastpath_tools.evaluate_document import ControllerOptions, EvaluateDocument

_ROOT = Path(__file__).parents[2]
_LINES = (_ROOT / "tests/data/hpa-evaluate/hpa-evaluate.jsonl").read_text("utf-8").splitlines()
_CASES = [json.loads(line) for line in _LINES[:6]]
_INPUTS = [case["case"] for case in _CASES]
_YAML = (_ROOT / "tests/data/documents/evaluate.yaml").read_text("utf-8")


def _run(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = cli.main(["evaluate", *arguments])
    out, err = capfd.readouterr()
    return status, out, err


def _json_lines() -> list[str]:
    return [json.dumps(each) for each in _INPUTS]


def _write(path: Path, text: str | bytes) -> str:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


@pytest.fixture
def stdin() -> Any:
    """Return a function that puts bytes on standard input, of which the descriptor is read."""
    kept = os.dup(0)

    def put(text: bytes) -> None:
        read, write = os.pipe()
        os.write(write, text)
        os.close(write)
        os.dup2(read, 0)
        os.close(read)

    yield put
    os.dup2(kept, 0)
    os.close(kept)


def test_json_and_yaml_have_the_same_result(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = _write(tmp_path / "a.json", json.dumps(_INPUTS[0]))
    assert yaml.safe_load(_run(["-o", "yaml", path], capfd)[1]) == json.loads(_run([path], capfd)[1])


@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_standard_input(
    arguments: list[str], stdin: Callable[[bytes], None], capfd: pytest.CaptureFixture[str]
) -> None:
    stdin(_YAML.encode())

    status, out, _ = _run(arguments, capfd)

    assert (status, json.loads(out)["desiredReplicas"]) == (0, 4)


def test_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lines = "\n".join(_json_lines())

    status, out, err = _run(["--jsonl", _write(tmp_path / "a.jsonl", f"{lines}\n\n")], capfd)

    results = [json.loads(line) for line in out.splitlines()]
    assert (status, err) == (0, "")
    assert [each["name"] for each in results] == [each["name"] for each in _INPUTS]
    assert [each["desiredReplicas"] for each in results] == [
        case["expected"]["desiredReplicas"] for case in _CASES
    ]


@pytest.mark.integration
@pytest.mark.timeout(60)
def test_lines_are_answered_as_they_come() -> None:
    command = [sys.executable, "-m", "adapter", "evaluate", "--jsonl"]
    with subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for each in _INPUTS[:3]:
            process.stdin.write(json.dumps(each).encode() + b"\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["name"] == each["name"]
        process.stdin.close()
        assert process.stdout.read() == b""
    assert process.returncode == 0


@pytest.mark.integration
@pytest.mark.timeout(60)
@pytest.mark.parametrize("form", [[], ["-o", "yaml"], ["--explain"]])
def test_names_in_any_script_in_any_locale(form: list[str], tmp_path: Path) -> None:
    path = _write(tmp_path / "a.yaml", f"{_YAML}name: 日本\n")
    command = [sys.executable, "-m", "adapter", "evaluate", *form, path]

    done = subprocess.run(
        command, cwd=_ROOT, capture_output=True, check=False, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )

    assert (done.returncode, done.stderr) == (0, b"")
    assert "日本" in done.stdout.decode()


@pytest.mark.integration
@pytest.mark.timeout(60)
def test_a_reader_that_has_seen_enough_is_no_traceback(tmp_path: Path) -> None:
    path = _write(tmp_path / "many.jsonl", "\n".join(_json_lines() * 300))
    command = [sys.executable, "-m", "adapter", "evaluate", "--jsonl", path]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=_ROOT, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"name":"case-000000"')
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


class TerminalScreen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_indented_json(tmp_path: Path) -> None:
    with contextlib.redirect_stdout(TerminalScreen()) as terminal:
        assert cli.main(["evaluate", _write(tmp_path / "a.yaml", _YAML)]) == 0
    assert '\n  "desiredReplicas": 4,\n' in terminal.getvalue()


def test_help(capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["evaluate", "--help"]) == 0
    assert "--jsonl" in capfd.readouterr().out


def _blocks(language: str) -> list[str]:
    text = (_ROOT / "docs" / "guides" / "evaluate.md").read_text("utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_the_documented_example(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ((written,), (shown,)) = _blocks("yaml"), _blocks("text")
    assert (_ROOT / "docs" / "examples" / "evaluate" / "friday.yaml").read_text("utf-8") == written
    complete = written.replace(
        "- {<<: *sample, metadata: {name: web-2}}",
        "- {<<: *sample, metadata: {name: web-2}}\n  - {<<: *sample, metadata: {name: web-3}}",
    )

    status, out, _ = _run(["--explain", _write(tmp_path / "friday.yaml", written)], capfd)
    with_sample = _run(["--explain", _write(tmp_path / "better.yaml", complete)], capfd)[1]

    assert (status, out) == (0, shown)
    assert with_sample.startswith("friday: scales from 4 to 5\n")


def test_the_documented_traces_are_real() -> None:
    text = (_ROOT / "docs" / "guides" / "evaluate.md").read_text("utf-8")
    (table,) = re.findall(r"^\| what the trace says .*?\n\n", text, re.DOTALL | re.MULTILINE)
    said = re.findall(r"^\| `([^`]*)`", table, re.MULTILINE)
    read = [evaluate_document.read_json(json.dumps(json.loads(line)["case"]).encode()) for line in _LINES]
    steps = {step.text() for each in read for step in evaluate.evaluate(each).trace}

    assert len(said) == 8
    for phrase in said:
        pattern = re.compile(re.sub(r"\d+", r"\\d+", re.escape(phrase)))
        assert any(map(pattern.search, steps)), phrase


def test_every_field_is_documented() -> None:
    text = (_ROOT / "docs" / "guides" / "evaluate.md").read_text("utf-8")
    read = [evaluate_document.read_json(json.dumps(json.loads(line)["case"]).encode()) for line in _LINES]
    shown = {name for each in read for name in evaluate.show(each, evaluate.evaluate(each))}
    assert shown == {"name", "desiredReplicas", "rescaled", "status", "events", "remarks", "error", "trace"}
    fields = [
        *EvaluateDocument.__struct_encode_fields__,
        *ControllerOptions.__struct_encode_fields__,
        *sorted(shown),
    ]

    assert [
        name
        for name in fields
        if f"`{name}" not in text and f".{name}`" not in text and f"{name}." not in text
    ] == []
