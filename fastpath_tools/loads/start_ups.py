"""How long pods take to start: a duration, or a file of them."""

import math
from dataclasses import replace

from adapter.cli import command_line
from adapter.config.yaml import reader
from adapter.errors import Fault, InputError
from adapter.model import timestamps

_LONGEST_START_UP = 24 * 3600


def read_start_ups(text: str) -> list[int]:
    """Return the start-up times in seconds of a duration, or of a file with one on each line. InputError."""
    seconds = _seconds(text)
    if seconds is not None:
        return [_start_up(seconds, Fault("--pod-start", text, ""))]
    if text[:1].isdigit() or text.startswith(("-", "+")):
        expected = "expected a duration such as 20s, or a file with one on each line"
        raise InputError([Fault("--pod-start", reader.shown_text(text), expected)])
    source = command_line.read_source(text)
    found = []
    for number, line in enumerate(source.text.splitlines(), 1):
        if line.strip():
            fault = Fault("", reader.shown_text(line.strip()), "", source.name, number)
            found.append(_start_up(_seconds(line.strip()), fault))
    if not found:
        raise InputError([Fault("", "", "expected a duration such as 20s on each line", source.name)])
    return found


def _seconds(text: str) -> float | None:
    try:
        return timestamps.parse_go_duration(text)
    except ValueError:
        return None


def _start_up(seconds: float | None, fault: Fault) -> int:
    if seconds is None or not 0 <= seconds <= _LONGEST_START_UP:
        expected = "expected a duration from 0s to 24h such as 20s"
        raise InputError([replace(fault, expected=expected)])
    return math.ceil(seconds)
