"""Command-line syntax as pflag reads it, the library of prometheus-adapter and kubectl.

`scan` splits a command line into uses of flags and other arguments; `FlagType.read` turns the text of one use
into a value. `option_fields` declares the flags of a verb.

The rules are pflag's: `--name=value` and `--name value` are equal, a boolean never takes the next argument,
`-v 4`, `-v=4` and `-v4` are equal, `--` ends the flags, an underscore is not a dash, and arguments may stand
between flags.
`scan` collects every fault instead of stopping at the first, so that one run shows all of them.
"""

import csv
import difflib
import enum
import ipaddress
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from adapter import errors
from adapter.config.yaml import reader
from adapter.model import timestamps


class NamedPair(NamedTuple):
    """A certificate and key for some server names; without `names`, for those in the certificate."""

    certificate: str
    key: str
    names: tuple[str, ...]


_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_GO_INT = re.compile(r"[+-]?(0[xX](_?[0-9a-fA-F])+|0[bB](_?[01])+|0[oO]?(_?[0-7])+|[1-9](_?[0-9])*|0)")
_GO_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_SIZE = re.compile(r"([0-9]{1,15})(?:(B|k|M|G|Ki|Mi|Gi)|(Ki|Mi|Gi)B)?")
_UNITS = {"B": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
_HEADER_LIKE = re.compile(r"[^\x00-\x1f\x7f=]+")


def _read_bool(text: str) -> bool:
    if text not in _TRUE and text not in _FALSE:
        raise ValueError(text)
    return text in _TRUE


def _read_int(text: str) -> int:
    """Read an integer as Go does with base 0.

    0x, 0o and 0b prefixes, a leading 0 for octal, underscores between digits.
    """
    written = text.strip()
    if not _GO_INT.fullmatch(written) or len(written) > 70:
        raise ValueError(text)
    digits = written.lstrip("+-").replace("_", "")
    octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit()
    number = int(digits, 8 if octal else 0)
    if number >= 2**63:
        raise ValueError(text)
    return -number if written.startswith("-") else number


def _read_port(text: str) -> int:
    if not 0 <= (number := _read_int(text)) <= 65535:
        raise ValueError(text)
    return number


def _read_float(text: str) -> float:
    if not _GO_FLOAT.fullmatch(text.strip()):
        raise ValueError(text)
    number = float(text)
    if math.isinf(number):
        raise ValueError(text)
    return number


def _read_size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None or not int(match[1]):
        raise ValueError(text)
    return int(match[1]) * _UNITS[match[2] or match[3] or "B"]


def _read_list(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    try:
        return tuple(next(csv.reader([text], strict=True)))
    except csv.Error as error:
        raise ValueError(text) from error


def _read_pairs(text: str) -> tuple[tuple[str, str], ...]:
    """Read a pair as upstream reads headers: split at the first `=`, an empty value without one."""
    name, _, value = text.partition("=")
    if not _HEADER_LIKE.fullmatch(name) or "\n" in value or "\r" in value:
        raise ValueError(text)
    return ((name, value),)


def _read_certificates(text: str) -> tuple[NamedPair, ...]:
    files, colon, names = text.partition(":")
    parts = files.split(",")
    if len(parts) != 2 or not all(parts):
        raise ValueError(text)
    return (NamedPair(parts[0], parts[1], tuple(names.split(",")) if colon else ()),)


class FlagType(enum.Enum):
    """The type of a flag's value: the word for it in the help text, and what its text looks like.

    `read` returns the value of one use; for a repeatable type the tuple of what this use adds. It raises
    ValueError (whose text is of no use) when the text is not of the type.
    """

    BOOL = "", _read_bool, "true or false"
    TEXT = "string", str, "text"
    INT = "int", _read_int, "a whole number"
    FLOAT = "float", _read_float, "a number"
    DURATION = "duration", timestamps.parse_go_duration, "a Go duration such as 30s or 1m30s"
    SIZE = "bytes", _read_size, "a size above 0 such as 256MiB or 1000000"
    ADDRESS = "ip", lambda text: str(ipaddress.ip_address(text.strip())), "an IP address such as 127.0.0.1"
    PORT = "port", _read_port, "a port from 0 to 65535"
    # pflag's stringSlice: comma-separated as in CSV, may be repeated
    LIST = "strings", _read_list, "a comma-separated list"
    ARRAY = "stringArray", lambda text: (text,), "text"  # one value each time, taken as it is
    PAIRS = "name=value", _read_pairs, "name=value on one line"  # one pair each time, split at the first =
    CERTIFICATES = (
        "cert,key[:names]",
        _read_certificates,
        "certificate file, comma, key file, and optionally :name,name",
    )

    def __init__(self, word: str, read: Callable[[str], Any], expected: str) -> None:
        self.word = word
        self.read = read
        self.expected = expected


REPEATABLE = frozenset({FlagType.LIST, FlagType.ARRAY, FlagType.PAIRS, FlagType.CERTIFICATES})
"""Types whose uses add up; the first use replaces the default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag of a verb.

    `field` is the attribute of the verb's options that the flag sets, "" for a flag that is accepted without
    effect. `default` is written as on a command line. `check` returns what a value must be beyond its type,
    as a sentence "expected ...", and "" for a good one; `choices` lists the good ones if they are few. A
    `secret` value never appears in a message. A deprecated flag names in `instead` the flag that replaces it;
    a boolean one stands for that flag with `instead_value`.
    """

    name: str
    type: FlagType
    default: str = ""
    help: str = ""
    group: str = ""
    field: str = ""
    metavar: str = ""
    shorthand: str = ""
    check: Callable[[Any], str] = lambda _: ""
    choices: tuple[str, ...] = ()
    secret: bool = False
    instead: str = ""
    instead_value: str = ""


class FlagUse(NamedTuple):
    """One use of a flag on the command line; `text` is its value."""

    flag: Flag
    text: str


@dataclass
class CommandLine:
    """A command line without the program's name.

    Its flags in order, its other arguments, and its faults of syntax.
    """

    uses: list[FlagUse] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    faults: list[errors.Fault] = field(default_factory=list)
    help: bool = False
    help_all: bool = False


def scan(argv: Sequence[str], table: Mapping[str, Flag]) -> CommandLine:
    """Split a command line without the program's name."""
    line = CommandLine()
    rest = list(argv)[::-1]
    while rest:
        argument = rest.pop()
        if argument == "--":
            line.arguments += rest[::-1]
            break
        if argument.startswith("--"):
            _scan_long(argument, rest, table, line)
        elif argument.startswith("-") and argument != "-":
            _scan_short(argument, rest, table, line)
        else:
            line.arguments.append(argument)
    return line


def _scan_long(argument: str, rest: list[str], table: Mapping[str, Flag], line: CommandLine) -> None:
    name, equals, text = argument[2:].partition("=")
    if not name or name.startswith("-"):
        line.faults.append(errors.Fault(_shown(argument), "", "expected --name=value or --name value"))
        return
    flag = table.get(name)
    if flag is not None:
        _take(flag, f"--{name}", text if equals else None, rest, line)
    elif name == "help":
        line.help = True
    elif name == "help-all":
        line.help_all = True
    else:
        line.faults.append(errors.Fault(f"--{reader.one_line(name)}", "", _unknown(name, table)))


def _scan_short(argument: str, rest: list[str], table: Mapping[str, Flag], line: CommandLine) -> None:
    letters = argument[1:]
    while letters:
        letter, letters = letters[0], letters[1:]
        flag = next((flag for flag in table.values() if flag.shorthand == letter), None)
        if flag is not None:
            text = letters[1:] if letters.startswith("=") and len(letters) > 1 else letters
            _take(flag, f"-{letter}", text or None, rest, line)
            return
        if letter != "h":
            name = argument[1:].partition("=")[0]
            expected = (
                f"expected two dashes: --{name}" if name in table else f"unknown shorthand flag {letter!r}"
            )
            line.faults.append(errors.Fault(_shown(argument), "", expected))
            return
        line.help = True


def _take(flag: Flag, place: str, text: str | None, rest: list[str], line: CommandLine) -> None:
    if text is None and flag.type is FlagType.BOOL:
        text = "true"
    elif text is None and not rest:
        expected = f"expected a value after it: {flag.type.expected}"
        line.faults.append(errors.Fault(place, "", expected))
        return
    line.uses.append(FlagUse(flag, rest.pop() if text is None else text))


def _unknown(name: str, table: Mapping[str, Flag]) -> str:
    current = [flag.name for flag in table.values() if not flag.instead]
    near = difflib.get_close_matches(name, current, n=1, cutoff=0.7)
    return f"unknown flag, did you mean --{near[0]}?" if near else "unknown flag; --help lists all"


def _shown(argument: str) -> str:
    """Return the name part of an argument: its value may be a secret."""
    return reader.one_line(argument.partition("=")[0]) or "-"
