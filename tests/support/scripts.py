"""Scripts: stories in a file, each with a title, lines of what happens, and below them what was said then."""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

Recorded = Callable[[Path, str], None]
"""Compares a text with that of a file: the fixture `recorded`."""


class Scripts:
    """The stories of a file by their titles. A line of what happens begins with `> `."""

    def __init__(self, path: Path) -> None:
        self._path = path
        blocks = re.split(r"^== ", path.read_text(), flags=re.MULTILINE)
        stories = [block.split("\n", 1) for block in blocks if block]
        self._texts = dict(stories)
        self.titles = list(self._texts)
        assert len(stories) == len(self.titles), f"{path}: two stories have one title"

    def lines(self, title: str) -> list[str]:
        """Return what happens in a story."""
        lines = [line[2:] for line in self._texts[title].splitlines() if line.startswith("> ")]
        assert lines, f"{self._path}: nothing happens in the story {title}"
        return lines

    async def play(
        self, title: str, script: object, config: pytest.Config, news: Callable[[], list[str]] = list
    ) -> None:
        """Have each line call the method of its first word, with the others, and check what is said.

        `news` returns what has happened since it was called last.
        """
        said: list[str] = []
        for line in self.lines(title):
            verb, *words = line.split(" ")
            answer = getattr(script, verb.replace("-", "_"))(*words)
            if isinstance(answer, Awaitable):
                answer = await answer
            said += [f"> {line}", *news(), *([answer] if isinstance(answer, str) else answer or [])]
        self.check(title, said, config)

    def check(self, title: str, said: list[str], config: pytest.Config) -> None:
        """Compare what was said, the lines of what happens included; with `--update` write it."""
        text = "".join(f"{line.rstrip()}\n" for line in said)
        if config.getoption("update"):
            self._texts[title] = f"{text}\n"
            self._path.write_text(
                "\n".join(f"== {name}\n{each.rstrip()}\n" for name, each in self._texts.items())
            )
        else:
            assert text.rstrip() == self._texts[title].rstrip()
