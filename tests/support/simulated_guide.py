"""What docs/guides/simulate.md shows. ``python -m tests.support.simulated_guide`` writes it, and the picture.

A block of the page that begins with ``$ fastpath simulate`` runs in docs/examples/simulate; what it prints
follows.
"""

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from adapter.cli import main

_DOCS = Path(__file__).parent.parent.parent / "docs"
PAGE = _DOCS / "guides" / "simulate.md"
FOLDER = _DOCS / "examples" / "simulate"
IMAGES = _DOCS / "images"

_BLOCK = re.compile(r"^```console\n\$ (fastpath simulate [^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A command of the page, and what the page says that it prints."""

    command: str
    output: str

    @property
    def picture(self) -> Path | None:
        """The file that the command is redirected to."""
        _, redirected, name = self.command.partition(" > ")
        return IMAGES / name if redirected else None

    @property
    def takes_long(self) -> bool:
        return "--suggest" in self.command

    def run(self) -> str:
        """Return what the command prints."""
        arguments = shlex.split(self.command.partition(" > ")[0])[1:]
        printed = io.StringIO()
        with (
            contextlib.chdir(FOLDER),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
        ):
            main.main(arguments)
        return printed.getvalue()


def blocks() -> Iterator[Block]:
    for match in _BLOCK.finditer(PAGE.read_text()):
        yield Block(match[1], match[2])


def _written(match: re.Match[str]) -> str:
    block = Block(match[1], match[2])
    printed = block.run()
    if block.picture is not None:
        block.picture.write_text(printed)
        printed = ""
    return f"```console\n$ {block.command}\n{printed}```"


if __name__ == "__main__":
    PAGE.write_text(_BLOCK.sub(_written, PAGE.read_text()))
