"""The real kubectl against a server of a test, with no configuration but what the test gives."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import tools

Finished = tools.Finished
TOKEN = "kubectl-token"
"""What it shows unless told otherwise; without any credential it asks for a name at the terminal."""


class Kubectl:
    """Runs kubectl as its own process beside the test's event loop."""

    def __init__(self, directory: Path, program: str = "") -> None:
        """`program` is its path, if not the one that PATH leads to."""
        self._program = program or tools.require("kubectl", "kubernetes-client")
        self._directory = directory

    async def run(
        self, server: str, *arguments: str, ca: Path | None = None, stdin: str = "", token: str = TOKEN
    ) -> Finished:
        """Run it against `server` (a URL).

        Over TLS the server's certificate is checked only when `ca` is given.
        """
        trust = ["--insecure-skip-tls-verify"] if server.startswith("https:") and ca is None else []
        if ca is not None:
            trust = [f"--certificate-authority={ca}"]
        # without a credential it asks for a name at the terminal
        return await self._execute(f"--server={server}", *trust, f"--token={token}", *arguments, stdin=stdin)

    async def run_with(self, kubeconfig: Path, *arguments: str, stdin: str = "") -> Finished:
        """Run it with a kubeconfig, which names server and user."""
        return await self._execute(f"--kubeconfig={kubeconfig}", *arguments, stdin=stdin)

    async def _execute(self, *arguments: str, stdin: str) -> Finished:
        environment = {
            "HOME": str(self._directory),
            "KUBECONFIG": str(self._directory / "none"),
            "PATH": "/usr/bin:/bin",
        }
        return await tools.run(self._program, *arguments, environment=environment, stdin=stdin)

    async def get_raw(self, server: str, path: str, *, ca: Path | None = None, token: str = TOKEN) -> Any:
        """Return the decoded JSON of ``kubectl get --raw PATH``; otherwise fail with kubectl's message."""
        finished = await self.run(server, "get", "--raw", path, ca=ca, token=token)
        assert finished.status == 0, finished.stderr
        return json.loads(finished.stdout)


@pytest.fixture
def kubectl(tmp_path: Path) -> Kubectl:
    """Return the real kubectl. Needs the marks integration and timeout."""
    return Kubectl(tmp_path)
