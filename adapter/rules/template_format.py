"""The values that templates know and how Go prints one: plainly, or under a directive of ``printf``.

A value is text, an integer, a float, a truth value, nil (None), a map of texts, a list of texts, or the `Struct` that a template
is given. Reading format strings is `template_printf`'s business. The law is package fmt, with its complaints inside the output
(``%!d(string=x)``). Not offered, and refused with a sentence: pointers, and floats in base 2 or 16. A byte of a text counts as
an integer.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from adapter import errors
from adapter.model.go_text import quote


class Struct:
    """The value that a template is rendered with: named fields, as a Go struct has them.

    Unlike a map it cannot be indexed or iterated over, is always true, and an unknown field is an error. `text`, if given, is
    how it prints itself.
    """

    __slots__ = ("fields", "text")

    def __init__(self, fields: Mapping[str, "Value"], text: str | None = None) -> None:
        self.fields = fields
        self.text = text


Value = str | bool | int | float | Mapping[str, str] | Sequence[str] | Struct | None


def show(value: Value) -> str:
    """Return a value as ``%v`` prints it: text as it is, ``map[k:v]`` with sorted keys, ``[a b]``, ``<nil>``."""
    return value if isinstance(value, str) else printed(value, _PLAIN)


def sprint(values: Sequence[Value]) -> str:
    """Return the values joined, with a blank between two of which neither is text."""
    pieces: list[str] = []
    for index, value in enumerate(values):
        if index and not isinstance(value, str) and not isinstance(values[index - 1], str):
            pieces.append(" ")
        pieces.append(show(value))
    return "".join(pieces)


def sprintln(values: Sequence[Value]) -> str:
    """Return the values with a blank between any two and a line feed at the end."""
    return " ".join(map(show, values)) + "\n"


@dataclass(slots=True)
class Directive:
    """What stands between ``%`` and the verb, and the verb. `go_syntax` is ``%#v``, `named` is ``%+v``."""

    verb: str = "v"
    minus: bool = False
    plus: bool = False
    sharp: bool = False
    space: bool = False
    zero: bool = False
    width: int = 0
    precision: int | None = None
    go_syntax: bool = False
    named: bool = False

    def pad(self, text: str, *, zeros: bool = True) -> str:
        """Return `text` filled up to the width; `zeros` tells whether the ``0`` flag may fill with zeros."""
        if self.minus:
            return text.ljust(self.width)
        return text.rjust(self.width, "0" if self.zero and zeros else " ")

    def sign(self, *, negative: bool) -> str:
        """Return the sign of a number, "" for one without."""
        if negative:
            return "-"
        return "+" if self.plus else " " if self.space else ""


_PLAIN = Directive()


def printed(value: Value, directive: Directive) -> str:
    """Return one value under a directive; a verb that does not fit its type shows as Go's complaint."""
    if value is None:
        return directive.pad("<nil>") if directive.verb in {"T", "v"} else f"%!{directive.verb}(<nil>)"
    if directive.verb == "T":
        return _cut(_type_name(value), directive)
    match value:
        case bool():
            text = directive.pad("true" if value else "false") if directive.verb in {"t", "v"} else None
        case int():
            text = _printed_integer(value, directive)
        case float():
            text = _printed_float(value, directive)
        case str():
            text = _printed_text(value, directive)
        case _:
            return _printed_compound(value, directive)
    return text if text is not None else f"%!{directive.verb}({typed(value, directive)})"


def typed(value: Value, directive: Directive) -> str:
    """Return ``type=value``, as complaints show a value."""
    return "<nil>" if value is None else f"{_type_name(value)}={printed(value, replace(directive, verb='v'))}"


def _type_name(value: Value) -> str:
    match value:
        case bool():
            return "bool"
        case int():
            return "int"
        case float():
            return "float64"
        case str():
            return "string"
        case Struct():
            return "struct"
        case Mapping():
            return "map[string]string"
        case _:
            return "[]string"


def _printed_compound(value: Struct | Mapping[str, str] | Sequence[str], directive: Directive) -> str:
    """Return a struct, map or list; the directive goes to every element."""
    if directive.verb == "p":
        raise errors.TemplateError("%p is not supported")
    if isinstance(value, Struct):
        if value.text is not None and not directive.go_syntax and directive.verb in "vsxXq":
            return _printed_text(value.text, directive) or ""
        name = "{}:{}" if directive.named or directive.go_syntax else "{1}"
        elements = [name.format(key, printed(field, directive)) for key, field in value.fields.items()]
        opening, closing = ("struct{" if directive.go_syntax else "{"), "}"
    elif isinstance(value, Mapping):
        elements = [f"{printed(key, directive)}:{printed(value[key], directive)}" for key in sorted(value)]
        opening, closing = ("map[string]string{", "}") if directive.go_syntax else ("map[", "]")
    else:
        elements = [printed(element, directive) for element in value]
        opening, closing = ("[]string{", "}") if directive.go_syntax else ("[", "]")
    return f"{opening}{(', ' if directive.go_syntax else ' ').join(elements)}{closing}"


def _cut(text: str, directive: Directive) -> str:
    return directive.pad(text[: directive.precision])


def _printed_text(text: str, directive: Directive) -> str | None:
    match directive.verb:
        case "v" if directive.go_syntax:
            return directive.pad(quote(text[: directive.precision]))
        case "v" | "s":
            return _cut(text, directive)
        case "q":
            return directive.pad(_quoted(text[: directive.precision], directive))
        case "x" | "X":
            octets = text.encode("utf-8", "surrogateescape")[: directive.precision]
            prefix = "0x" if directive.sharp else ""
            joined = (
                f" {prefix}".join(f"{octet:02x}" for octet in octets) if directive.space else octets.hex()
            )
            digits = f"{prefix}{joined}" if octets else ""
            return directive.pad(digits.upper() if directive.verb == "X" else digits)
        case _:
            return None


_NOT_RAW = re.compile("[\x00-\x08\x0a-\x1f`\x7f\ufeff\ud800-\udfff]")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")


def _quoted(text: str, directive: Directive) -> str:
    if directive.sharp and not _NOT_RAW.search(text):
        return f"`{text}`"
    return _ascii(quote(text)) if directive.plus else quote(text)


def _ascii(literal: str) -> str:
    """Return a quoted literal with every character outside ASCII as its number."""
    return _NOT_ASCII.sub(
        lambda match: f"\\u{ord(match[0]):04x}" if match[0] < "\U00010000" else f"\\U{ord(match[0]):08x}",
        literal,
    )


_BASES = {"v": "d", "d": "d", "b": "b", "o": "o", "O": "o", "x": "x", "X": "X"}


def _printed_integer(value: int, directive: Directive) -> str | None:
    verb = directive.verb
    if verb in {"c", "q", "U"}:
        return _printed_character(value, directive)
    if verb not in _BASES:
        return None
    sign = directive.sign(negative=value < 0)
    precision = directive.precision
    if precision == 0 and value == 0:
        return " " * directive.width
    if precision is None:
        precision = directive.width - bool(sign) if directive.zero else 0
    digits = format(abs(value), _BASES[verb]).rjust(precision, "0")
    if directive.sharp:
        if verb == "b":
            digits = f"0b{digits}"
        elif verb in {"o", "O"} and not digits.startswith("0"):
            digits = f"0{digits}"
        elif verb in {"x", "X"}:
            digits = f"0{verb}{digits}"
    if verb == "O":
        digits = f"0o{digits}"
    return directive.pad(f"{sign}{digits}", zeros=False)


def _printed_character(value: int, directive: Directive) -> str:
    """Return the character of a number, bare, quoted or as ``U+0041``; no character is the replacement character."""
    valid = 0 <= value <= 0x10FFFF and not 0xD800 <= value < 0xE000
    character = chr(value) if valid else "\ufffd"
    match directive.verb:
        case "c":
            return directive.pad(character)
        case "q":
            inner = {"'": r"\'", '"': '"'}.get(character) or quote(character)[1:-1]
            return directive.pad(f"'{_ascii(inner) if directive.plus else inner}'")
        case _:
            text = f"U+{value % 2**64:0{max(4, directive.precision or 0)}X}"
            if directive.sharp and valid and character.isprintable():
                text += f" '{character}'"
            return directive.pad(text, zeros=False)


def _printed_float(value: float, directive: Directive) -> str | None:
    verb, precision = directive.verb, directive.precision
    match verb:
        case "v" | "g" | "G":
            digits = _shortest(abs(value)) if precision is None else format(abs(value), f".{precision}g")
            least = 6 if precision is None else precision
        case "e" | "E" | "f" | "F":
            digits = format(abs(value), f".{6 if precision is None else precision}{verb.lower()}")
            least = 0
        case "b" | "x" | "X":
            raise errors.TemplateError(f"%{verb} of a float is not supported")
        case _:
            return None
    if directive.sharp:
        digits = _with_point(digits, least)
    if verb in {"E", "G"}:
        digits = digits.upper()
    sign = directive.sign(negative=math.copysign(1, value) < 0)
    if sign and directive.zero:
        return sign + digits.rjust(directive.width - 1, "0")
    return directive.pad(sign + digits)


def _with_point(digits: str, least: int) -> str:
    """Return a float's digits with a decimal point in any case, and at least so many significant digits."""
    mantissa, mark, exponent = digits.partition("e")
    significant = len(mantissa.replace(".", "").lstrip("0")) or mantissa == "0"
    point = "" if "." in mantissa else "."
    return f"{mantissa}{point}{'0' * (least - significant)}{mark}{exponent}"


def _shortest(value: float) -> str:
    """Return the fewest digits that read back as `value`, which is not negative, with Go's choice between the two notations."""
    _, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)  # only NaN and infinities have letters here, and no literal is one
    text = "".join(map(str, digits))
    point = len(text) + exponent
    if not value or -4 <= point - 1 < 6:
        return format(Decimal(repr(value)).normalize(), "f")
    mantissa = f"{text[0]}.{text[1:]}" if len(text) > 1 else text
    return f"{mantissa}e{point - 1:+03d}"
