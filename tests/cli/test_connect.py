"""The connection of verbs that ask a cluster as kubectl does."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from adapter.cli import cluster_options
from adapter.cli.cluster_options import KubeconfigOptions
from adapter.config.option_fields import Command
from adapter.errors import InputError
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.support.clock import FakeClock

COMMAND = Command(verb="ask", options=KubeconfigOptions, about="Asks.\n")


class Server:
    """Remembers which user asked."""

    def __init__(self) -> None:
        self.url = ""
        self.users: list[str | None] = []

    async def handle(self, request: web.BaseRequest) -> web.Response:
        self.users.append(request.headers.get("Impersonate-User"))
        return web.json_response({})


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    runner = web.ServerRunner(web.Server(made.handle))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await runner.cleanup()


def write(path: Path, url: str) -> Path:
    """Write a kubeconfig whose current context leads nowhere, and the context `there` to `url`."""
    contexts = {"nowhere": "http://127.0.0.1:1", "there": url}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "nowhere",
        "clusters": [{"name": name, "cluster": {"server": each}} for name, each in contexts.items()],
        "users": [{"name": "me", "user": {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "me"}} for name in contexts],
    }
    path.write_text(yaml.safe_dump(document))
    return path


async def ask(*arguments: str) -> None:
    options, _ = COMMAND.parse(arguments)
    clock = FakeClock()
    async with cluster_options.connect(options, clock, ProblemLog(Monitoring(), clock)) as client:
        await client.get("/version")


async def test_context_and_user_are_those_of_the_flags(server: Server, tmp_path: Path) -> None:
    file = write(tmp_path / "config", server.url)
    await ask(f"--kubeconfig={file}", "--context=there")
    await ask(f"--kubeconfig={file}", "--context=there", "--as=jane")
    assert server.users == [None, "jane"]


async def test_a_context_that_does_not_exist(server: Server, tmp_path: Path) -> None:
    file = write(tmp_path / "config", server.url)
    with pytest.raises(InputError, match=r"--kubeconfig: .*Expected object with name here"):
        await ask(f"--kubeconfig={file}", "--context=here")


async def test_a_context_needs_a_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    with pytest.raises(InputError, match="--context: here: expected a kubeconfig: set KUBECONFIG"):
        await ask("--context=here")


def test_a_user_has_a_name() -> None:
    with pytest.raises(InputError, match="--as: expected the name of a user"):
        COMMAND.parse(["--as="])
