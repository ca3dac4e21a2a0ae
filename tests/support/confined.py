"""A program in a read-only root file system, as the user of the image: a restricted pod without an engine.

What is real: a mount namespace and chroot in which the root and everything bound into it is mounted
read-only; user and group 10001, no other group, no capability, no new privileges; an environment with nothing
inherited; the paths of a pod (service account, ConfigMap, Secret, emptyDir). What is not: the image's own
files (Python and the C library are this machine's), a network of its own, cgroups and seccomp. Needs root and
util-linux' unshare and setpriv.
"""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support import tools

USER = 10001

_SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/sbin")
_PREPARE = """\
set -eu
mount --bind {root} {root}
cd {root}
bind() {{ mkdir -p ".$2"; mount --rbind "$1" ".$2"; }}
{mounts}
mount -o remount,ro,bind {root}
exec chroot {root} setpriv --reuid={user} --regid={user} --clear-groups --no-new-privs \\
    --inh-caps=-all --bounding-set=-all \\
    env -i {environment} {command}
"""


@dataclass(frozen=True, slots=True)
class Pod:
    """What a pod sees.

    `files` are folders of this machine by where they are mounted, read-only; `scratch` are emptyDirs.
    """

    files: Mapping[str, Path]
    environment: Mapping[str, str]
    scratch: Sequence[str] = ()
    programs: Sequence[Path] = field(default_factory=lambda: [Path(sys.base_prefix)])
    """Folders that are mounted where they are here: what the program is made of."""


class Confined:
    """A running program. `log` is what it printed so far."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.pid = process.pid
        self._process = process
        self._log = log

    @property
    def log(self) -> str:
        """Return what it printed so far, on either stream."""
        return self._log.read_text(errors="replace")

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def stop(self) -> int:
        """End it in order and return its exit status."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(20)

    def status(self, name: str) -> list[str]:
        found = re.search(rf"^{name}:[ \t]*(.*)$", Path(f"/proc/{self.pid}/status").read_text(), re.MULTILINE)
        assert found is not None, name
        return found[1].split()

    def mounts(self) -> dict[str, set[str]]:
        """Return the options of each mount that it sees, by where it is."""
        lines = Path(f"/proc/{self.pid}/mountinfo").read_text().splitlines()
        return {line.split()[4]: set(line.split()[5].split(",")) for line in lines}


@contextlib.contextmanager
def running(directory: Path, pod: Pod, command: Sequence[str]) -> Iterator[Confined]:
    """Run `command` in a pod made below `directory` until the block ends."""
    unshare = tools.require("unshare", "util-linux")
    tools.require("setpriv", "util-linux")
    if os.geteuid() != 0:
        reason = "only root can make a read-only root file system and give up its own user"
        if tools.REQUIRED:
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    root = directory / "root"
    root.mkdir()
    environment = " ".join(shlex.quote(f"{name}={value}") for name, value in pod.environment.items())
    script = _PREPARE.format(
        root=shlex.quote(str(root)),
        mounts="\n".join(_mounts(pod)),
        user=USER,
        environment=environment,
        command=shlex.join(command),
    )
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [unshare, "--mount", "--propagation=private", "sh", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield Confined(process, log)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def _mounts(pod: Pod) -> Iterator[str]:
    for path in _SYSTEM:
        if Path(path).is_symlink():
            yield f"ln -s {shlex.quote(str(Path(path).readlink()))} .{path}"
        elif Path(path).exists():
            yield f"bind {path} {path}"
    for path in pod.scratch:
        yield f"mkdir -p .{path}; mount -t tmpfs -o mode=2770,gid={USER} tmpfs .{path}"
    for folder in pod.programs:
        quoted = shlex.quote(str(folder))
        yield f"bind {quoted} {quoted}"
    for where, source in pod.files.items():
        yield f"bind {shlex.quote(str(source))} {shlex.quote(where)}"
    bound = [*(path for path in _SYSTEM if Path(path).exists() and not Path(path).is_symlink())]
    bound += [*map(str, pod.programs), *pod.files]
    for where in bound:
        yield f"mount -o remount,ro,bind .{shlex.quote(where)}"
    yield "mkdir -p ./proc ./dev; mount --rbind /proc ./proc; mount --rbind /dev ./dev"
