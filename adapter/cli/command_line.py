"""What the verbs share: reading the command line, printing help and notices, reading input files."""

import functools
import os
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import msgspec
import yaml

from adapter.config.option_fields import Command, CommandOptions, option
from adapter.config.pflag import FlagType
from adapter.errors import Fault, InputError
from adapter.model import visible
from adapter.provider import text_files

PLUGIN = "kubectl-fastpath"
"""The name that kubectl runs the command under as a plugin."""

STDIN = "-"
"""Stands for standard input among files."""

T = TypeVar("T", bound=CommandOptions)


def program() -> str:
    """Return how the command was called; usage lines and errors begin with it."""
    called = Path(sys.argv[0]).name.removesuffix(".exe")
    return "kubectl fastpath" if called == PLUGIN else "fastpath"


def read(command: Command[T], argv: Sequence[str]) -> T | None:
    """Return the options of a command line; None if it asked for help, which is then printed.

    Notices go to standard error. Raises InputError with every fault.
    """
    if print_help(command, argv):
        return None
    options, notices = command.parse(argv)
    for notice in notices:
        tell(command.verb, notice)
    return options


def verb(command: Command[T]) -> Callable[[Callable[[T], int]], Callable[[Sequence[str]], int]]:
    """Make the function of a verb from one of its options. Where help is asked for it returns 0."""

    def decorate(run: Callable[[T], int]) -> Callable[[Sequence[str]], int]:
        @functools.wraps(run)
        def main(arguments: Sequence[str]) -> int:
            options = read(command, arguments)
            return 0 if options is None else run(options)

        return main

    return decorate


def print_help(command: Command[T], argv: Sequence[str]) -> bool:
    text = command.help_for(argv, program())
    if text is not None:
        show(text)
    return text is not None


def show(text: str) -> None:
    """Print a result. Of what others chose in it, nothing acts on the terminal."""
    print(visible.escape_lines(text), end="")


def show_file(text: str) -> None:
    """Print a file that others wrote, byte by byte; a terminal gets it as it gets a result."""
    if sys.stdout.isatty():
        show(text)
    else:
        sys.stdout.write(text)


def tell(verb: str, sentence: str) -> None:
    """Print a line to standard error. `verb` may be ""."""
    print(f"{f'{program()} {verb}'.rstrip()}: {visible.escape(sentence)}", file=sys.stderr)


def output(*formats: str, help_: str) -> Any:
    """Return the option for the format of the output, the first of `formats` by default."""
    return option(
        FlagType.TEXT, formats[0], help_, metavar="format", shorthand="o", choices=formats, group="Output"
    )


def to_yaml(document: object) -> str:
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    if visible.escape_lines(text) != text:  # YAML leaves some of these characters as they are
        text = yaml.safe_dump(document, sort_keys=False)
    return text


def to_json(document: object) -> str:
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


class SourceText(NamedTuple):
    """The text of a file, and the file's name in messages."""

    text: str
    name: str


def name_of(file: str) -> str:
    return "standard input" if file == STDIN else file


def given_files(verb: str, files: Sequence[str]) -> Sequence[str]:
    """Return the files to read: standard input without any.

    A person at a terminal is told that the verb waits for it.
    """
    if not files and os.isatty(0):
        tell(verb, "reading standard input; Ctrl-D ends it")
    return files or (STDIN,)


def open_file(file: str) -> IO[bytes]:
    """Open a file to read; InputError if it cannot be read."""
    if file == STDIN:
        return open(0, "rb", closefd=False)
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise _unreadable(file, error) from error


def read_bytes(file: str, stream: IO[bytes]) -> bytes:
    """Return what an open file has; InputError if it cannot be read, or is too large."""
    try:
        return text_files.read_bytes(stream)
    except OSError as error:
        raise _unreadable(file, error) from error


def read_source(file: str) -> SourceText:
    """Return the text of a file; InputError if it cannot be read or is not UTF-8."""
    if file == STDIN:
        content = read_bytes(file, sys.stdin.buffer)
    else:
        with open_file(file) as stream:
            content = read_bytes(file, stream)
    name = name_of(file)
    try:
        return SourceText(content.decode(), name)
    except UnicodeDecodeError as error:
        raise InputError([Fault("", "", f"not UTF-8: {error.reason} at byte {error.start}", name)]) from error


def _unreadable(file: str, error: OSError) -> InputError:
    return InputError([Fault("", "", f"expected a readable file: {error.strerror}", name_of(file))])


def version() -> str:
    """Return the version of the installed distribution, "unknown" if the package is not installed."""
    try:
        return metadata.version("fastpath-adapter")
    except metadata.PackageNotFoundError:
        return "unknown"
