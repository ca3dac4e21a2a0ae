"""A verb run in this process."""

import io
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from adapter.cli import main
from tests.support.verbs import Printed


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Printed]:
    """Run a command line; return its status and what it prints. `stdin` is its standard input."""

    def run(*arguments: str, stdin: str | bytes = b"") -> Printed:
        content = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(content)))
        return Printed(main.main(list(arguments)), *capsys.readouterr())

    return run
