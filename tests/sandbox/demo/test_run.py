import io
import os
import re

import pytest
from rich.console import Console

from adapter.cli import main
from adapter.errors import InputError
from fastpath_sandbox.demo import command as verb
from fastpath_sandbox.demo import run
from fastpath_sandbox.demo.run import QUESTIONS, ScreenState
from fastpath_sandbox.demo.view import Reading
from tests.support import tools


def test_a_bad_duration_is_refused() -> None:
    with pytest.raises(InputError, match='--for: "20": expected a Go duration such as 30s'):
        verb.main(["--for", "20"])


@pytest.mark.parametrize("port", ["65536", "-1", "1e3", "9" * 5000])
def test_a_bad_port_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["demo", f"--port={port}"]) == 2
    assert "expected a port from 0 to 65535" in capsys.readouterr().err


def test_a_value_that_never_changes_is_noticed() -> None:
    seen = ScreenState()
    for value in ("1", "1", "2"):
        seen.add(
            [Reading({"x": "5"}) if number else Reading({"x": value}) for number in range(len(QUESTIONS))]
        )
    assert seen.unchanged() == [question.subject for question in QUESTIONS[2:]], (
        "the second may stand still for long"
    )


@pytest.mark.integration
@pytest.mark.timeout(60)
@pytest.mark.parametrize("real", [True, False], ids=["real Prometheus", "small Prometheus"])
async def test_values_change_and_nothing_stays_behind(monkeypatch: pytest.MonkeyPatch, *, real: bool) -> None:
    if real:
        tools.require("prometheus", "prometheus")
    else:
        monkeypatch.setenv("PATH", os.devnull)
    console = Console(file=io.StringIO(), width=80)
    await run.run("test", seconds=16.0, port=0, console=console)  # raises when no value changed
    assert isinstance(console.file, io.StringIO)
    screen = console.file.getvalue()
    assert "requests_in_flight" in screen
    assert re.search(
        r"^From a step .*\n  fast-scaler   (?:under 0\.1|\d+\.\d) s\n  HPA           ", screen, re.MULTILINE
    )
    assert re.search(
        r"^first       export A=https://127\.0\.0\.1:\d+ T='Authorization: Bearer \w+'$", screen, re.MULTILINE
    )
    commands = [line for line in screen.splitlines() if line.startswith(("try ", "decisions ", "metrics "))]
    assert len(commands) == 3
    for command in commands:
        assert re.fullmatch(r'\w+ +curl -kH "\$T" "\$A/\S+"', command), "on one line, to be copied"
        assert len(command) <= 120
    assert ("sandbox's small Prometheus" in screen) is not real
