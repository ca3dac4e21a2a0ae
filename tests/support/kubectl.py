"""The real kubectl against a server of a test, with no configuration but what the test gives."""

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support import tools

TOKEN = "kubectl-token"
"""What it shows unless told otherwise; without any credential it asks for a name at the terminal."""


class Finished(NamedTuple):
    """What a run of kubectl came to."""

    status: int
    stdout: str
    stderr: str


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
        process = await asyncio.create_subprocess_exec(
            self._program,
            *arguments,
            env={
                "HOME": str(self._directory),
                "KUBECONFIG": str(self._directory / "none"),
                "PATH": "/usr/bin:/bin",
            },
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            stdout, stderr = await process.communicate(stdin.encode())
        finally:
            if process.returncode is None:  # the test was cancelled
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        assert process.returncode is not None
        return Finished(process.returncode, stdout.decode(), stderr.decode())

    async def get_raw(self, server: str, path: str, *, ca: Path | None = None, token: str = TOKEN) -> Any:
        """Return the decoded JSON of ``kubectl get --raw PATH``; otherwise fail with kubectl's message."""
        finished = await self.run(server, "get", "--raw", path, ca=ca, token=token)
        assert finished.status == 0, finished.stderr
        return json.loads(finished.stdout)


@pytest.fixture
def kubectl(tmp_path: Path) -> Kubectl:
    """Return the real kubectl. Needs the marks integration and timeout."""
    return Kubectl(tmp_path)
