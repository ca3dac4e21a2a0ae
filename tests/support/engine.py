"""Debian's buildah: builds the Dockerfile without a daemon and without a registry.

Storage is a folder (vfs) and a step runs in a chroot, so that neither overlayfs nor a user namespace is
needed. The base image cannot be had here: in its place stands a minimal Debian with its Python, which
debootstrap makes and which gets the two names that the official image has, `python` and `pip`. Needs root.
"""

import json
import os
import shutil
import subprocess
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
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}", pytrace=False)
    return done.stdout.strip()
