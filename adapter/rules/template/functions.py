"""The values of templates, how they print, and the functions that templates can call.

Everything follows Go: ``text/template`` for truth, comparison and indexing, ``fmt`` for printing, including
the complaints that ``printf`` prints (``%!d(string=x)``). Texts are measured, indexed and ordered as bytes of
UTF-8. A function raises `errors.TemplateError` without the place, which the evaluator adds.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from adapter import errors
from adapter.model.go_text import quote


@dataclass(frozen=True, slots=True)
class TemplateStruct:
    """The value that a template is rendered with: named fields, as a Go struct has them.

    Unlike a map it has no index and no order, and an unknown field is an error. `text` is how it prints.
    """

    fields: Mapping[str, "Value"]
    text: str | None = None


Value = str | bool | int | Mapping[str, str] | Sequence[str] | TemplateStruct | None

_SCALARS = {type(None): "nil", bool: "a truth value", int: "an integer", str: "text"}


def describe_type(value: Value) -> str:
    if isinstance(value, TemplateStruct):
        return "the template's variables"
    return _SCALARS.get(type(value)) or ("a map" if isinstance(value, Mapping) else "a list")


def truth(value: Value) -> bool:
    """Return the truth of a value in ``if``: not empty, zero or nil. A `TemplateStruct` is always true."""
    return isinstance(value, TemplateStruct) or bool(value)


def _quote_character(code: int) -> str:
    """Return a character in single quotes, U+FFFD for a number without one."""
    character = chr(code) if 0 <= code <= 0x10FFFF and not 0xD800 <= code < 0xE000 else "\ufffd"
    escaped = {"'": r"\'", '"': '"'}.get(character) or quote(character)[1:-1]
    return f"'{escaped}'"


_VERBS: Mapping[type, tuple[str, str, Callable[..., str]]] = {
    str: ("string", "sqv", quote),
    int: ("int", "dqv", _quote_character),
    bool: ("bool", "v", str),
}
"""The name of a type in Go, the verbs that it has, and what ``%q`` prints."""


def show(value: Value, verb: str = "v") -> str:
    """Return a value as ``%s``, ``%d``, ``%q`` or ``%v`` prints it: maps, lists and structs by element."""
    match value:
        case str() if verb == "v":  # nearly all values
            return value
        case None:
            return "<nil>" if verb == "v" else f"%!{verb}(<nil>)"
        case str() | int():
            name, verbs, quoted = _VERBS[type(value)]
            text = str(value).lower() if name == "bool" else str(value)
            if verb not in verbs:
                return f"%!{verb}({name}={text})"
            return quoted(value) if verb == "q" else text
        case TemplateStruct(text=str() as text) if verb != "d":
            return show(text, verb)
        case TemplateStruct():
            return f"{{{' '.join(show(field, verb) for field in value.fields.values())}}}"
        case Mapping():
            return f"map[{' '.join(f'{show(key, verb)}:{show(value[key], verb)}' for key in sorted(value))}]"
        case _:
            return f"[{' '.join(show(element, verb) for element in value)}]"


def _print(*values: Value) -> str:
    """Return the values joined, with a blank between two of which neither is text."""
    text = ""
    for before, value in pairwise(("", *values)):
        text += show(value) if isinstance(before, str) or isinstance(value, str) else f" {show(value)}"
    return text


_DIRECTIVE = re.compile(r"%[-+# 0-9.*\[\]]*.?", re.DOTALL)


def find_format_fault(pattern: str, values: int) -> str | None:
    """Return what is wrong with a format of ``printf`` that is given so many values."""
    directives = _DIRECTIVE.findall(pattern)
    for directive in directives:
        if directive not in {"%s", "%d", "%q", "%v", "%%"}:
            return f"{quote(directive)} is not supported, expected %s, %d, %q, %v or %%"
    wanted = len(directives) - directives.count("%%")
    return None if wanted == values else f"values for {quote(pattern)}: expected {wanted}, not {values}"


def _printf(pattern: str, *values: Value) -> str:
    remaining = iter(values)
    return _DIRECTIVE.sub(
        lambda directive: "%" if directive[0] == "%%" else show(next(remaining), directive[0][1]), pattern
    )


def _equal(first: Value, *others: Value) -> bool:
    return any(_same(first, other) for other in others)


def _same(first: Value, other: Value) -> bool:
    if first is None or other is None:
        return first is None and other is None
    if not isinstance(first, str | int) or describe_type(first) != describe_type(other):
        raise errors.TemplateError(f"cannot compare {describe_type(first)} with {describe_type(other)}")
    return first == other


def _less(first: Value, other: Value) -> bool:
    if isinstance(first, str) and isinstance(other, str):
        return _encode(first) < _encode(other)
    if type(first) is int and type(other) is int:
        return first < other
    raise errors.TemplateError(f"cannot order {describe_type(first)} and {describe_type(other)}")


def _index(item: Value, *indexes: Value) -> Value:
    """Return item[a][b]... A missing key of a map gives empty text, and a byte of a text is an integer."""
    if item is None:
        raise errors.TemplateError("cannot index nil")
    for index in indexes:
        if isinstance(item, TemplateStruct | int):
            raise errors.TemplateError(f"cannot index {describe_type(item)}")
        if isinstance(item, Mapping):
            if not isinstance(index, str):
                raise errors.TemplateError(f"the key of a map is text, not {describe_type(index)}")
            item = item.get(index, "")
        else:
            elements = _encode(item) if isinstance(item, str) else item
            if type(index) is not int:
                raise errors.TemplateError(f"an index is an integer, not {describe_type(index)}")
            if not 0 <= index < len(elements):
                raise errors.TemplateError(f"index {index} is out of range")
            item = elements[index]
    return item


def _length(item: Value) -> int:
    if item is None or isinstance(item, TemplateStruct | int):
        raise errors.TemplateError(f"{describe_type(item)} has no length")
    return len(_encode(item) if isinstance(item, str) else item)


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


# How many arguments a function takes at least and at most, and the function. The evaluator calls ``and`` and
# ``or`` only when no operand before the last decides.
FUNCTIONS: Mapping[str, tuple[int, float, Callable[..., Value]]] = {
    "and": (1, math.inf, lambda *operands: operands[-1]),
    "eq": (2, math.inf, _equal),
    "ge": (2, 2, lambda first, other: not _less(first, other)),
    "gt": (2, 2, lambda first, other: not (_less(first, other) or _same(first, other))),
    "index": (1, math.inf, _index),
    "le": (2, 2, lambda first, other: _less(first, other) or _same(first, other)),
    "len": (1, 1, _length),
    "lt": (2, 2, _less),
    "ne": (2, 2, lambda first, other: not _same(first, other)),
    "not": (1, 1, lambda value: not truth(value)),
    "or": (1, math.inf, lambda *operands: operands[-1]),
    "print": (0, math.inf, _print),
    "printf": (1, math.inf, _printf),
}
