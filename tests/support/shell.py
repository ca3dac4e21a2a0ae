"""Runs the commands of a page as a reader pastes them: in a shell, in the folder that the page makes."""

import asyncio
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Printed(NamedTuple):
    """What the shell came to with a line."""

    status: int
    stdout: str
    stderr: str


class PageShell:
    """A shell whose kubectl talks to the cluster of a test.

    Without a kubelet no rollout ends, so `kubectl rollout status` returns at once. `apply_flags` are given to
    `kubectl apply` as well; `waits` tells whether `sleep` takes its time.
    """

    def __init__(
        self,
        folder: Path,
        kubectl: Sequence[str],
        apply_flags: Sequence[str] = (),
        *,
        waits: bool = False,
    ) -> None:
        self._folder = folder
        programs = folder.parent / "programs"
        programs.mkdir(exist_ok=True)
        program, flags = shlex.join(kubectl), shlex.join(apply_flags)
        self._write(
            programs / "kubectl",
            f'case " $* " in *" rollout status "*) exit 0 ;; *" apply "*) set -- "$@" {flags} ;; esac\n'
            f'exec {program} "$@"\n',
        )
        if not waits:
            self._write(programs / "sleep", "exit 0\n")
        self._environment = {"HOME": str(folder.parent), "PATH": f"{programs}:/usr/bin:/bin"}

    async def run(self, line: str) -> Printed:
        """Run a line, pipes and redirections included."""
        process = await asyncio.create_subprocess_exec(
            *("/bin/bash", "-o", "pipefail", "-c", line),
            cwd=self._folder,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            stdout, stderr = await process.communicate()
        finally:
            if process.returncode is None:  # the test was cancelled
                process.kill()
                await process.wait()
        assert process.returncode is not None
        return Printed(process.returncode, stdout.decode(), stderr.decode())

    async def paste(self, block: str) -> str:
        """Run each line of a block and return what they print; the test fails with the first that fails."""
        printed = ""
        for line in block.strip().splitlines():
            done = await self.run(line)
            assert done.status == 0, f"{line}\n{done.stderr}"
            printed += done.stdout
        return printed

    @staticmethod
    def _write(path: Path, text: str) -> None:
        path.write_text(f"#!/bin/sh\n{text}")
        path.chmod(0o755)
