"""Runs the commands of a page as a reader pastes them: in a shell, in the folder that the page makes."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.support import tools
from tests.support.rendered import ROOT
from tests.support.tools import Finished


class PageShell:
    """A shell whose kubectl talks to the cluster of a test, as fastpath does with a `kubeconfig`.

    Without `kubelets` no rollout ends, so `kubectl rollout status` returns at once. `kubectl apply` gets
    `apply_flags` as well; `waits` tells whether `sleep` takes its time.
    """

    def __init__(
        self,
        folder: Path,
        kubectl: Sequence[str],
        apply_flags: Sequence[str] = (),
        *,
        waits: bool = False,
        kubelets: bool = False,
        kubeconfig: str = "",
    ) -> None:
        self._folder = folder
        programs = folder.parent / "programs"
        programs.mkdir(exist_ok=True)
        program, flags = shlex.join(kubectl), shlex.join(apply_flags)
        rollout = "" if kubelets else '*" rollout status "*) exit 0 ;; '
        cases = f'case " $* " in {rollout}*" apply "*) set -- "$@" {flags} ;; esac\n'
        self._write(programs / "kubectl", f'{cases}exec {program} "$@"\n')
        self._write(
            programs / "fastpath",
            f'PYTHONPATH={ROOT} exec {Path(sys.executable).with_name("fastpath")} "$@"\n',
        )
        if not waits:
            self._write(programs / "sleep", "exit 0\n")
        self._environment = {"HOME": str(folder.parent), "PATH": f"{programs}:/usr/bin:/bin"}
        if kubeconfig:
            self._environment["KUBECONFIG"] = kubeconfig

    async def run(self, line: str) -> Finished:
        """Run a line, pipes and redirections included."""
        command = ("/bin/bash", "-o", "pipefail", "-c", line)
        return await tools.run(*command, environment=self._environment, folder=self._folder)

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
