"""What the guides of simulations and forecasts show: ``python -m scripts.generate.simulated_guide``.

A block of a page that begins with ``$ fastpath`` runs in the folder of the page's examples; what it prints
follows. A command that is redirected draws a picture.
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
IMAGES = _DOCS / "images"

_BLOCK = re.compile(
    r"^```console\n\$ (fastpath (?:simulate|forecast) [^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)


class Page(NamedTuple):
    """A page, and the folder that its commands run in."""

    file: Path
    folder: Path


PAGES = tuple(
    Page(_DOCS / "guides" / f"{guide}.md", _DOCS / "examples" / folder)
    for guide, folder in (("simulate", "simulate"), ("forecasts", "forecast"))
)


class Block(NamedTuple):
    """A command of a page, and what the page says that it prints."""

    page: Page
    command: str
    output: str

    @property
    def picture(self) -> Path | None:
        """The file that the command is redirected to."""
        _, redirected, name = self.command.partition(" > ")
        return IMAGES / name if redirected else None

    @property
    def takes_long(self) -> bool:
        is_card = self.command.startswith("fastpath forecast") and self.picture is not None
        return "--suggest" in self.command or "--forecast" in self.command or is_card

    def run(self) -> str:
        """Return what the command prints."""
        arguments = shlex.split(self.command.partition(" > ")[0])[1:]
        printed = io.TextIOWrapper(io.BytesIO(), "utf-8", newline="")
        with (
            contextlib.chdir(self.page.folder),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
        ):
            main.main(arguments)
        printed.seek(0)
        return printed.read()


def blocks() -> Iterator[Block]:
    for page in PAGES:
        for match in _BLOCK.finditer(page.file.read_text()):
            yield Block(page, match[1], match[2])


def _write(page: Page) -> None:
    def written(match: re.Match[str]) -> str:
        block = Block(page, match[1], match[2])
        printed = block.run()
        if block.picture is not None:
            block.picture.write_text(printed)
            printed = ""
        return f"```console\n$ {block.command}\n{printed}```"

    page.file.write_text(_BLOCK.sub(written, page.file.read_text()))


if __name__ == "__main__":
    for each in PAGES:
        _write(each)
