"""Which values a field of an API object may have: limits that stand beside its type, in `Annotated`.

`check` finds the values that break them. `scripts/generate` writes them into schemas and tables, with the
docstring below a field as its description. A rule between fields is code beside a call of `check`, and CEL in
`scripts/generate/crd.py`.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from inspect import get_annotations
from typing import Any, NamedTuple

from adapter.model import local_time
from adapter.model.go_text import quote
from adapter.model.objects.api_objects import Struct
from adapter.model.quantity import GREATEST, Quantity
from adapter.model.timestamps import Span, read_span, write_span


class Violation(NamedTuple):
    """A refused value: its path, the kind of problem, the value ("" where upstream shows none), the rule."""

    path: str
    problem: str
    value: str
    detail: str

    def __str__(self) -> str:
        """Return upstream's line: ``spec.maxReplicas: Invalid value: 0: must be greater than 0``."""
        return ": ".join(part for part in self if part)


Violations = Iterator[Violation]


def invalid(path: str, value: str, detail: str) -> Violation:
    return Violation(path, "Invalid value", value, detail)


def required(path: str, detail: str) -> Violation:
    return Violation(path, "Required value", "", detail)


def forbidden(path: str, detail: str) -> Violation:
    return Violation(path, "Forbidden", "", detail)


def unsupported(path: str, value: str, supported: Iterable[str]) -> Violation:
    listed = ", ".join(map(quote, sorted(supported)))
    return Violation(path, "Unsupported value", quote(value), f"supported values: {listed}")


class OneOf:
    def __init__(self, *texts: str) -> None:
        self.texts = texts

    def faults(self, path: str, value: str) -> Violations:
        if value not in self.texts:
            yield unsupported(path, value, self.texts)


class Matches(NamedTuple):
    """A text that a pattern describes, which allows `longest` characters. `detail` says the same."""

    pattern: str
    longest: int
    detail: str

    def faults(self, path: str, value: str) -> Violations:
        if not re.fullmatch(self.pattern, value):
            yield invalid(path, quote(value), self.detail)


class Filled:
    """A text or a list that is not empty; `missing` is the answer to one that is."""

    def __init__(self, missing: str = "") -> None:
        self.missing = missing

    def faults(self, path: str, value: Any) -> Violations:
        if not value:
            yield required(path, self.missing)


class Segment(Filled):
    """A text that can stand in a URL path."""

    def faults(self, path: str, value: str) -> Violations:
        yield from super().faults(path, value)
        if value in {".", ".."}:
            yield invalid(path, quote(value), f"may not be '{value}'")
        for sign in "/%":
            if sign in value:
                yield invalid(path, quote(value), f"may not contain '{sign}'")


class Date:
    def faults(self, path: str, value: str) -> Violations:
        if local_time.read_date(value) is None:
            yield invalid(path, quote(value), "must be a date such as 2026-12-25")


class Within(NamedTuple):
    """A duration from `least` to `most`, or `word`."""

    least: Span
    most: Span
    word: str = ""

    def faults(self, path: str, value: Span | str) -> Violations:
        text = value if isinstance(value, str) else write_span(value)
        with contextlib.suppress(ValueError):
            if text == self.word or self.least <= read_span(text) <= self.most:
                return
        expected = f"{self.word}, or from" if self.word else "from"
        bounds = f"{write_span(self.least)} to {write_span(self.most)}"
        yield invalid(path, quote(text), f"must be {expected} {bounds}")


class Count(NamedTuple):
    """A number from `least` to `most`. `zero` is how upstream writes 0 in the answer."""

    least: int
    most: int = 2**31 - 1
    zero: str = "0"

    def faults(self, path: str, value: int) -> Violations:
        if value < self.least:
            bound = f"than {self.zero}" if self.least == 1 else f"than or equal to {self.least or self.zero}"
            yield invalid(path, str(value), f"must be greater {bound}")
        elif value > self.most:
            yield invalid(path, str(value), f"must be less than or equal to {self.most}")


class Amount(NamedTuple):
    """A quantity whose sign is at least `least`. If `counted`, its thousandths fit 64 bits."""

    least: int = 1
    counted: bool = False

    def faults(self, path: str, value: Quantity) -> Violations:
        if value.sign < self.least:
            detail = "must be positive" if self.least else "must be greater than or equal to 0"
            yield invalid(path, quote(str(value)), detail)
        elif self.counted and not value.has_milli:
            yield invalid(path, quote(str(value)), f"must be at most {GREATEST}")


class Items(NamedTuple):
    """A list of at most `most` items, each within a limit."""

    most: int
    each: Any = None

    def faults(self, path: str, value: Sequence[object]) -> Violations:
        if len(value) > self.most:
            yield Violation(path, "Too many", str(len(value)), f"must have at most {self.most} items")
        for index, item in enumerate(value if self.each is not None else ()):
            yield from self.each.faults(f"{path}[{index}]", item)


@cache
def declared(struct: type[Struct]) -> tuple[tuple[str, str, Sequence[Any]], ...]:
    """Return the fields that a struct itself declares: attribute, name in JSON, and limits."""
    limits = {
        field: tuple(one for one in getattr(kind, "__metadata__", ()) if hasattr(one, "faults"))
        for field, kind in get_annotations(struct).items()
    }
    names = zip(struct.__struct_fields__, struct.__struct_encode_fields__, strict=True)
    return tuple((field, name, limits[field]) for field, name in names if field in limits)


def check(value: Struct, path: str, struct: type[Struct] | None = None) -> Violations:
    """Yield what breaks a limit of the fields that the class of a value declares, or `struct`, and below."""
    for field, name, limits in declared(struct or type(value)):
        if (content := getattr(value, field)) is None:
            continue
        for limit in limits:
            yield from limit.faults(f"{path}.{name}", content)
        if isinstance(content, Struct):
            yield from check(content, f"{path}.{name}")
        for index, item in enumerate(content if isinstance(content, tuple) else ()):
            if isinstance(item, Struct):
                yield from check(item, f"{path}.{name}[{index}]")
