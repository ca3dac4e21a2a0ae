"""The functions that templates can call, with the rules of Go's ``text/template`` for their arguments.

Functions take evaluated values and return one; ``and`` and ``or``, which may leave arguments unevaluated, are only named here
and live in `template_eval`. A function that cannot do its work raises
`errors.TemplateError` with a sentence; who knows the place adds it.
Texts are measured, indexed and cut in bytes of UTF-8, as Go does.
"""

import html
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote_plus

from adapter import errors
from adapter.rules import template_format, template_printf
from adapter.rules.template_format import Struct, Value


class Signature(NamedTuple):
    """What a function takes: at least and at most so many arguments (None: any number), and the work."""

    least: int
    most: int | None
    call: Callable[[Sequence[Value]], Value]


def truth(value: Value) -> bool:
    """Tell whether ``if`` takes the value for true: not empty, not zero, not nil; the struct always is."""
    return isinstance(value, Struct) or bool(value)


def kind(value: Value) -> str:
    """Return the name of a value's type for messages."""
    match value:
        case None:
            return "nil"
        case bool():
            return "a truth value"
        case int():
            return "an integer"
        case float():
            return "a float"
        case str():
            return "text"
        case Struct():
            return "the template's variables"
        case Mapping():
            return "a map"
        case _:
            return "a list"


# --- comparison ------------------------------------------------------------------------------------------------------


def _equal(values: Sequence[Value]) -> bool:
    """Tell whether the first value equals any of the others; nil equals only nil."""
    first, *others = values
    if not others:
        raise errors.TemplateError("missing argument for comparison")
    return any(_same(first, other) for other in others)


def _same(first: Value, other: Value) -> bool:
    if first is None or other is None:
        return first is None and other is None
    if isinstance(first, Struct | Mapping | list | tuple) or kind(first) != kind(other):
        raise errors.TemplateError(f"cannot compare {kind(first)} with {kind(other)}")
    return first == other


def _not_equal(values: Sequence[Value]) -> bool:
    return not _equal(values)


def _less(values: Sequence[Value]) -> bool:
    first, other = values
    if isinstance(first, str) and isinstance(other, str):
        return first.encode("utf-8", "surrogateescape") < other.encode("utf-8", "surrogateescape")
    if (
        isinstance(first, int | float)
        and isinstance(other, int | float)
        and type(first) is type(other) is not bool
    ):
        return first < other
    raise errors.TemplateError(f"cannot order {kind(first)} and {kind(other)}")


def _less_or_equal(values: Sequence[Value]) -> bool:
    return _less(values) or _equal(values)


def _greater(values: Sequence[Value]) -> bool:
    return not _less_or_equal(values)


def _greater_or_equal(values: Sequence[Value]) -> bool:
    return not _less(values)


def _not(values: Sequence[Value]) -> bool:
    return not truth(values[0])


# --- parts of texts, lists and maps ----------------------------------------------------------------------------------


def _index(values: Sequence[Value]) -> Value:
    """Return item[a][b]...; a key that a map does not have gives empty text."""
    item, *indexes = values
    if item is None:
        raise errors.TemplateError("cannot index nil")
    for index in indexes:
        match item:
            case Struct() | bool() | int() | float():
                raise errors.TemplateError(f"cannot index {kind(item)}")
            case str():
                octets = _octets(item)
                item = octets[_position(index, len(octets) - 1)]
            case Mapping():
                if not isinstance(index, str):
                    raise errors.TemplateError(f"the key of a map is text, not {kind(index)}")
                item = item.get(index, "")
            case _:
                item = item[_position(index, len(item) - 1)]
    return item


def _slice(values: Sequence[Value]) -> Value:
    """Return item[a:b] of a text or list; a third index of a list limits what Go could append and changes nothing here."""
    item, *indexes = values
    if isinstance(item, str):
        sliced: bytes | Sequence[str] = _octets(item)
    elif isinstance(item, list | tuple):
        sliced = item
    else:
        raise errors.TemplateError(f"cannot slice {kind(item)}")
    if len(indexes) > (2 if isinstance(item, str) else 3):
        raise errors.TemplateError(f"too many indexes for slicing {kind(item)}")
    positions = [_position(index, len(sliced)) for index in indexes]
    bounds = [*positions, *(0, len(sliced), len(sliced))[len(positions) :]]
    if bounds != sorted(bounds):
        raise errors.TemplateError(f"the indexes {' and '.join(map(str, positions))} are out of order")
    part = sliced[bounds[0] : bounds[1]]
    return part.decode("utf-8", "surrogateescape") if isinstance(part, bytes) else part


def _position(index: Value, limit: int) -> int:
    if type(index) is not int:
        raise errors.TemplateError(f"an index is an integer, not {kind(index)}")
    if not 0 <= index <= limit:
        raise errors.TemplateError(f"index {index} is out of range")
    return index


def _length(values: Sequence[Value]) -> int:
    """Return the number of bytes of a text, or of elements."""
    item = values[0]
    match item:
        case str():
            return len(_octets(item))
        case None | Struct() | bool() | int() | float():
            raise errors.TemplateError(f"{kind(item)} has no length")
        case _:
            return len(item)


def _octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


# --- text ------------------------------------------------------------------------------------------------------------


def _printf(values: Sequence[Value]) -> str:
    pattern, *rest = values
    if not isinstance(pattern, str):
        raise errors.TemplateError(f"the format is text, not {kind(pattern)}")
    return template_printf.sprintf(pattern, rest)


def _joined(values: Sequence[Value]) -> str:
    """Return the text that the escaping functions work on; they show nil as an action does."""
    return template_format.sprint(["<no value>" if value is None else value for value in values])


_SCRIPT_SPECIAL = re.compile(r"[\\'\"<>&=\x00-\x1f]|[^\x00-\x7f]")


def _html(values: Sequence[Value]) -> str:
    escaped = html.escape(_joined(values), quote=False)
    return escaped.replace('"', "&#34;").replace("'", "&#39;").replace("\0", "\ufffd")


def _js(values: Sequence[Value]) -> str:
    return _SCRIPT_SPECIAL.sub(_script_escape, _joined(values))


def _script_escape(match: re.Match[str]) -> str:
    character = match[0]
    if character in "\\'\"":
        return f"\\{character}"
    if character in "<>&=" or not (character.isprintable() or 0xDC80 <= ord(character) <= 0xDCFF):
        return f"\\u{ord(character):04X}"
    return character


def _urlquery(values: Sequence[Value]) -> str:
    return quote_plus(_octets(_joined(values)))


def _call(values: Sequence[Value]) -> Value:
    """Refuse: no value that a template here can have is a function."""
    raise errors.TemplateError(
        f"cannot call {kind(values[0])}, none of the template's variables is a function"
    )


def _lazy(values: Sequence[Value]) -> Value:
    """Return the last operand of ``and`` and ``or``, none of which decided alone."""
    return values[-1]


_SIGNATURES = {
    "and": Signature(1, None, _lazy),
    "call": Signature(1, None, _call),
    "eq": Signature(1, None, _equal),
    "ge": Signature(2, 2, _greater_or_equal),
    "gt": Signature(2, 2, _greater),
    "html": Signature(0, None, _html),
    "index": Signature(1, None, _index),
    "js": Signature(0, None, _js),
    "le": Signature(2, 2, _less_or_equal),
    "len": Signature(1, 1, _length),
    "lt": Signature(2, 2, _less),
    "ne": Signature(2, 2, _not_equal),
    "not": Signature(1, 1, _not),
    "or": Signature(1, None, _lazy),
    "print": Signature(0, None, template_format.sprint),
    "printf": Signature(1, None, _printf),
    "println": Signature(0, None, template_format.sprintln),
    "slice": Signature(1, None, _slice),
    "urlquery": Signature(0, None, _urlquery),
}
NAMES = tuple(_SIGNATURES)


def signature(name: str) -> Signature:
    """Return what a function takes and does; `name` is one of `NAMES`."""
    return _SIGNATURES[name]
