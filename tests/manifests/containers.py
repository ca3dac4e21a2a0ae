"""Images and their containers, without a daemon and without a registry.

**Building.** Debian's buildah builds the Dockerfile. Storage is a folder (vfs) and a step runs in a chroot,
so that neither overlayfs nor a user namespace is needed. The base image cannot be had here: in its place
stands a minimal Debian with its Python, which debootstrap makes and which gets the two names that the
official image has, `python` and `pip`.

**Running.** An image's root is read-only, with the mounts of a pod, as a restricted pod runs it. What is
real: the image's own files; a mount namespace and chroot in which the root and every file mounted into it is
read-only; user, environment, working directory and entrypoint of the image's configuration; no other group,
no capability, no new privileges; the paths of a pod (service account, ConfigMap, Secret, emptyDir). What is
not: a network of its own, cgroups and seccomp.

Needs root, and util-linux' unshare and setpriv.
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import tools

BASE = "localhost/python:debian"
PACKAGES = "python3,python3-venv,python3-pip"
RELEASE = "bookworm"


@dataclass(frozen=True, slots=True)
class Image:
    """A built image: its configuration as OCI defines it, and the root of a container that was made of it."""

    config: dict[str, Any]
    root: Path


class Engine:
    """Buildah with its storage in a folder."""

    def __init__(self, folder: Path) -> None:
        if os.geteuid() != 0:
            tools.miss("only root can make a base image and build with it")
        self._program = tools.require("buildah", "buildah")
        self._debootstrap = tools.require("debootstrap", "debootstrap")
        self._folder = folder
        self._storage = ("--root", f"{folder}/storage", "--runroot", f"{folder}/run", "--storage-driver=vfs")

    def build(self, context: Path, name: str, **arguments: str) -> Image:
        """Build the Dockerfile of a folder; `arguments` are its ARGs."""
        given = [f"--build-arg={key}={value}" for key, value in arguments.items()]
        self._run(
            "build", "--isolation=chroot", "--pull=never", *self._index(), *given, "--tag", name, str(context)
        )
        config = json.loads(self._run("inspect", "--type=image", name))["OCIv1"]["config"]
        return Image(config, Path(self._run("mount", self._run("from", "--pull-never", name))))

    def make_base(self) -> str:
        """Make the base image and return its name."""
        root = self._folder / "base"
        _run(self._debootstrap, "--variant=minbase", f"--include={PACKAGES}", RELEASE, str(root))
        (root / "usr/bin/python").symlink_to("python3")
        for mark in root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
            mark.unlink()
        container = self._run("from", "scratch")
        self._run("add", "--quiet", container, str(root), "/")
        self._run("commit", "--quiet", "--rm", container, BASE)
        shutil.rmtree(root)
        return BASE

    def remove(self) -> None:
        """Remove all containers and images."""
        self._run("rm", "--all")
        shutil.rmtree(self._folder)

    def _index(self) -> list[str]:
        """Return the mounts that have pip in a step ask the package index that this machine asks."""
        lines = ["[global]"]
        lines += [
            f"{option.replace('_', '-')} = {os.environ[name]}"
            for option in ("cert", "index_url", "proxy")
            if (name := f"PIP_{option.upper()}") in os.environ
        ]
        settings = self._folder / "pip.conf"
        settings.write_text("\n".join(lines) + "\n")
        mounts = [f"--volume={settings}:/etc/pip.conf:ro"]
        if "PIP_CERT" in os.environ:
            certificates = os.environ["PIP_CERT"]
            mounts.append(f"--volume={certificates}:{certificates}:ro")
        return mounts

    def _run(self, *arguments: str) -> str:
        return _run(self._program, *self._storage, *arguments)


def _run(*command: str) -> str:
    done = tools.call(*command)
    if done.returncode:
        pytest.fail(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}", pytrace=False)
    return done.stdout.strip()


USER = 10001

_PREPARE = """\
set -eu
mount --bind {root} {root}
cd {root}
# a path that is a link in the image leads to another place there
bind() {{
    chroot . mkdir -p "$2"
    target=".$(chroot . readlink -f "$2")"
    mount --rbind "$1" "$target"
    mount -o remount,ro,bind "$target"
}}
{mounts}
mount -o remount,ro,bind {root}
exec chroot {root} setpriv --reuid={user} --regid={group} --clear-groups --no-new-privs \\
    --inh-caps=-all --bounding-set=-all \\
    env -i --chdir={folder} {environment} {command}
"""


@dataclass(frozen=True, slots=True)
class Pod:
    """What a pod adds to its image.

    `files` are folders of this machine by where they are mounted, read-only; `scratch` are emptyDirs.
    `command` takes the place of the image's entrypoint, as in a container of a Pod.
    """

    files: Mapping[str, Path]
    environment: Mapping[str, str]
    arguments: Sequence[str]
    scratch: Sequence[str] = ()
    command: Sequence[str] = ()


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
def running(directory: Path, image: Image, pod: Pod) -> Iterator[Confined]:
    """Run the image in a pod until the block ends; its log is written below `directory`."""
    unshare = tools.require("unshare", "util-linux")
    user, _, group = image.config["User"].partition(":")
    variables = [*image.config["Env"], *(f"{name}={value}" for name, value in pod.environment.items())]
    script = _PREPARE.format(
        root=shlex.quote(str(image.root)),
        mounts="\n".join(_mounts(pod)),
        user=user,
        group=group,
        folder=image.config["WorkingDir"],
        environment=shlex.join(variables),
        command=shlex.join([*(pod.command or image.config["Entrypoint"]), *pod.arguments]),
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
    for path in pod.scratch:
        yield f"mkdir -p .{path}; mount -t tmpfs -o mode=2770,gid={USER} tmpfs .{path}"
    for where, source in pod.files.items():
        yield f"bind {shlex.quote(str(source))} {shlex.quote(where)}"
    yield "mount --rbind /proc ./proc; mount --rbind /dev ./dev"
