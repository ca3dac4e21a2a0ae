"""Messages of msgspec as faults with a path, the value there and what was expected.

Every message of msgspec about a tree of plain values becomes an `InputError` with one fault.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from adapter.errors import Fault, InputError
from adapter.model.autoscaling.hpa import decode_scalar
from adapter.model.quantity import Quantity

_WORDS = {
    "int": "an integer",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}
_TYPES = re.compile(r"`([a-z]+(?: \| [a-z]+)*)`")
_MESSAGE = re.compile(r"(.*?)(?: - at `(?:key in )?\$(.*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_PLACE = re.compile(r"\.(\w+)|\[(\d+)\]|\[\.\.\.\]")
_SHOWN = 80


def explain(message: str, tree: object, source: str) -> InputError:
    """Return the error for a message of msgspec about a tree: path, value and what was expected."""
    match = _MESSAGE.fullmatch(message)
    assert match is not None  # it fits any text
    problem, place = match[1], match[2] or ""
    if missing := _MISSING.fullmatch(problem):
        return InputError([Fault(f"{place}.{missing[1]}".lstrip("."), "absent", "it is required", source)])
    try:
        path, value = _follow(tree, place, wants_text=problem.startswith("Expected `str`"))
        text = shown(value)
    except (LookupError, TypeError):
        # msgspec refuses the first of two equal keys, but the tree has the last
        path, text = place, "a key on the way is given twice"
    return InputError([Fault(path.lstrip(".") or "the document", text, _in_words(problem), source)])


def _follow(tree: Any, place: str, *, wants_text: bool) -> tuple[str, object]:
    """Return a path with the keys that msgspec leaves out, and what stands there.

    It leaves out free keys: those of labels, whose values are text, and those of quantities. The first that
    is wrong is meant.
    """
    path = ""
    for match in _PLACE.finditer(place):
        name, index = match[1], match[2]
        if name is not None:
            path += f".{name}"
            tree = tree[name]
        elif index is not None:
            path += f"[{index}]"
            tree = tree[int(index)]
        else:
            key = _wrong_key(tree, wants_text=wants_text)
            path += f"[{json.dumps(key, ensure_ascii=False)}]"
            tree = tree[key]
    return path, tree


def _wrong_key(mapping: Mapping[str, object], *, wants_text: bool) -> str:
    for key, value in mapping.items():
        if wants_text and not isinstance(value, str):
            return key
        if not wants_text:
            try:
                decode_scalar(Quantity, value)
            except ValueError:
                return key
    raise LookupError("none is wrong")


def _in_words(problem: str) -> str:
    """Return msgspec's sentence in our words, from its small beginning on."""
    words = _TYPES.sub(lambda match: " or ".join(_WORDS[name] for name in match[1].split(" | ")), problem)
    return words[:1].lower() + words[1:]


def shown(value: object) -> str:
    """Return what stands somewhere, on one line and cut to a length that a message can carry."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    text = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
    return "".join(sign if sign.isprintable() else f"\\u{ord(sign):04x}" for sign in text)
