"""A verb run in this process."""

import io
import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from adapter.cli import main
from adapter.compose.clock import SystemClock
from fastpath_tools.live import scaler_access
from tests.support.verbs import Printed


@pytest.fixture(scope="module", autouse=True)
def _no_authorities() -> Iterator[None]:
    """Trust none of the system's authorities: each client takes 30 ms to load them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", os.devnull)
        yield


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Printed]:
    """Run a command line; return its status and what it prints. `stdin` is its standard input."""

    def run(*arguments: str, stdin: str | bytes = b"") -> Printed:
        content = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(content)))
        return Printed(main.main(list(arguments)), *capsys.readouterr())

    return run


@pytest.fixture
def stop_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Have the clock of verbs show this time from now on."""
    return lambda now: monkeypatch.setattr(SystemClock, "wall", lambda _: now)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Let a scaler show a document."""

    def shows(document: Any) -> None:
        async def fetch(*_: object) -> Any:
            return document

        monkeypatch.setattr(scaler_access, "fetch", fetch)

    return shows
