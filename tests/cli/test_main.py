import asyncio
import os
import subprocess
import sys

import pytest

from adapter import errors
from adapter.cli import command_line, main, verbs
from fastpath_tools.check import command
from tests.support.answers import answers

VERBS = tuple(verbs.listed())


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    for argument in ("--help", "-h", "help"):
        assert main.main([argument]) == 0
        assert capsys.readouterr().out == main.usage()
    assert all(f"\n  {verb} " in main.usage() for verb in VERBS)


def test_no_verb_shows_the_usage_as_a_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", main.usage())


@pytest.mark.parametrize("argument", ["--version", "version"])
def test_version(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([argument]) == 0
    assert capsys.readouterr().out == f"fastpath {command_line.version()}\n"


@pytest.mark.parametrize(("verb", "hint"), answers("cli/main", "verbs"))
def test_unknown_verb(verb: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([verb]) == 2
    kind = "flag" if verb.startswith("-") else "verb"
    assert capsys.readouterr().err == f"fastpath: {verb}: no such {kind}: {hint}\n"


def test_a_verb_whose_packages_are_missing_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "jsonpatch", None)
    assert "  check " in main.usage()
    assert "  demo " not in main.usage()
    assert main.main(["demo", "--help"]) == 1
    assert capsys.readouterr().err == (
        "fastpath demo: needs jsonpatch, which is not installed: "
        "pip install '.[tools]' in a clone of the repository\n"
    )


def test_help_needs_no_packages(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delitem(sys.modules, "ruamel.yaml", raising=False)
    for package in ("jsonpatch", "rich", "ruamel"):
        monkeypatch.setitem(sys.modules, package, None)
    assert main.main(["simulate", "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: fastpath simulate ")
    assert main.main(["boost", "x"]) == 1
    assert capsys.readouterr().err.startswith(
        "fastpath boost: needs jsonpatch and ruamel.yaml, which are not installed: "
    )


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([verb, "--help"]) == 0
    text = capsys.readouterr().out
    usage, blank, first, *_ = text.splitlines()
    assert usage.startswith(f"Usage: fastpath {verb} ")
    assert not blank
    assert first[0].isupper(), "a sentence on what it does"
    assert main.main(["help", verb]) == 0
    assert capsys.readouterr().out == text


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (
            errors.InputError([errors.Fault("--a", "x", "y"), errors.Fault("b", "", "z", "f.yaml", 3)]),
            2,
            ["--a: x: y", "f.yaml:3: b: z"],
        ),
        (errors.RunError("it broke"), 1, ["it broke"]),
        (errors.PrometheusError("timeout", "too slow"), 1, ["too slow"]),
        (OSError(98, "address already in use"), 1, ["address already in use"]),
        (PermissionError(13, "Permission denied", "secret.key"), 1, ["secret.key: Permission denied"]),
        (OSError("no route"), 1, ["no route"]),
        (KeyboardInterrupt(), 130, []),
    ],
    ids=["input", "run", "source", "os", "file", "text", "interrupt"],
)
def test_errors_become_lines_and_a_status(
    error: BaseException,
    status: int,
    said: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_: object) -> int:
        raise error

    monkeypatch.setattr(command, "main", fail)
    assert main.main(["check", "x"]) == status
    assert capsys.readouterr().err == "".join(f"fastpath check: {line}\n" for line in said)


@pytest.mark.integration
@pytest.mark.timeout(60)
async def test_python_m_adapter_is_the_command() -> None:
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "adapter", "--version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"fastpath {command_line.version()}\n")


@pytest.mark.integration
@pytest.mark.timeout(60)
async def test_a_reader_that_goes_away_is_no_traceback() -> None:
    """As in `fastpath serve --help | head`, when head was quicker."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "adapter", "serve", "--help"],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_package_is_missing_too_when_its_parent_is() -> None:
    assert verbs.missing(("rich", "no_such_parent.package")) == ("no_such_parent.package",)
