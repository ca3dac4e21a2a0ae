"""Field selectors: their grammar, its error sentences, and the fields that a metric has.

Terms are joined with commas; a value escapes comma, equals sign and backslash with a backslash. Only pods and
nodes are selected by them (`FieldSelector`): the other metrics APIs only check that they agree with the name
in the path. Mirrors ``k8s.io/apimachinery/pkg/fields``; the messages are the same byte for byte.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from adapter import errors
from adapter.model.go_text import quote

NAME, NAMESPACE = "metadata.name", "metadata.namespace"
_KNOWN = frozenset({NAME, NAMESPACE})

_TERM = re.compile(r"(?:\\.|[^\\,])*\\?", re.DOTALL)
_OPERATOR = re.compile(r"!=|==?")


class FieldTerm(NamedTuple):
    """One condition on one field: equal to the value, or (`negated`) different from it."""

    field: str
    value: str
    negated: bool


class FieldSelector(NamedTuple):
    """Terms that must all hold. A field that an object lacks has the value ""."""

    terms: tuple[FieldTerm, ...] = ()

    def matches(self, fields: Mapping[str, str]) -> bool:
        return all((fields.get(term.field, "") == term.value) is not term.negated for term in self.terms)

    def required(self, field: str) -> str | None:
        """Return the value that one of the terms demands of a field, None when none does."""
        return next((term.value for term in self.terms if term.field == field and not term.negated), None)


EVERYTHING = FieldSelector()


def parse_metadata(text: str) -> FieldSelector:
    """Return a selector of name and namespace; BadRequestError if it is invalid or has other fields."""
    terms = parse_selector(text)
    check_fields(terms)
    return FieldSelector(terms)


def parse_selector(text: str) -> tuple[FieldTerm, ...]:
    """Return the terms, sorted by their text; those of nothing are left out.

    `errors.BadRequestError` with upstream's sentence.
    """
    terms = [_parse_term(term, text) for term in sorted(_split(text)) if term]
    return tuple(term for term in terms if term.field or term.value)


def check_fields(terms: Sequence[FieldTerm]) -> None:
    """Raise `errors.BadRequestError` for a field that a metric does not have."""
    for term in terms:
        if term.field not in _KNOWN:
            known = ", ".join(map(quote, sorted(_KNOWN)))
            raise errors.BadRequestError(f"{quote(term.field)} is not a known field selector: only {known}")


def check_name(terms: Sequence[FieldTerm], name: str) -> None:
    """Raise BadRequestError unless the first condition on the name has that of the path (``*`` for all)."""
    wanted = next((term.value for term in terms if term.field == NAME and not term.negated), None)
    if terms and wanted != name:
        raise errors.BadRequestError("fieldSelector metadata.name doesn't match requested name")


def _split(text: str) -> list[str]:
    terms, position = [], 0
    while True:
        match = _TERM.match(text, position)
        assert match is not None  # it takes the empty text too
        terms.append(match[0])
        position = match.end() + 1
        if position > len(text):
            return terms


def _parse_term(term: str, whole: str) -> FieldTerm:
    operator = _OPERATOR.search(term)
    if operator is None:
        raise errors.BadRequestError(f"invalid selector: '{whole}'; can't understand '{term}'")
    return FieldTerm(term[: operator.start()], _unescape(term[operator.end() :]), operator[0] == "!=")


def _unescape(value: str) -> str:
    pieces = []
    characters = iter(value)
    for character in characters:
        if character in ",=":
            raise errors.BadRequestError(
                f"invalid field selector: unescaped character in value: {ord(character)}"
            )
        if character == "\\":
            character = next(characters, "")  # noqa: PLW2901 - an escape stands for what follows it
            if character not in {"\\", ",", "="}:
                raise errors.BadRequestError(
                    f"invalid field selector: invalid escape sequence: \\{character}"
                )
        pieces.append(character)
    return "".join(pieces)
