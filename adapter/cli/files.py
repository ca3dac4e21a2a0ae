"""Manifests as commands take them: a file, or ``-`` for standard input."""

import sys
from pathlib import Path
from typing import NamedTuple

from adapter.errors import Fault, InputError

STDIN = "-"


class Source(NamedTuple):
    """A text, and what people call where it comes from."""

    text: str
    name: str


def name_of(file: str) -> str:
    """Return what people call a file."""
    return "standard input" if file == STDIN else file


def read(file: str) -> Source:
    """Return the text of a file; InputError where it is not UTF-8, OSError where it cannot be read."""
    content = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
    name = name_of(file)
    try:
        return Source(content.decode(), name)
    except UnicodeDecodeError as error:
        raise InputError([Fault("", "", f"not UTF-8: {error.reason} at byte {error.start}", name)]) from error
