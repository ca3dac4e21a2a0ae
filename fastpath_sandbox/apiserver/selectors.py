"""Label and field selectors, parsed into predicates over records.

The grammar is that of k8s.io/apimachinery. It is written for the sandbox alone, so that the adapter's own
parser is tested against another one. A selector that does not parse is a 400 in upstream's words.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from fastpath_sandbox.apiserver import status
from fastpath_sandbox.apiserver.kinds import COMMON_FIELDS, Kind
from fastpath_sandbox.apiserver.store import Record

Predicate = Callable[[Record], bool]
LabelTest = Callable[[dict[str, str]], bool]

_TOKEN = re.compile(r"\s*(?:(==|!=|=|!|\(|\)|,|<|>)|([^\s=!(),<>]+))")
_OPERATORS = ("in", "notin", "=", "==", "!=", "gt", "lt", ">", "<")
_SIGNS = frozenset(("==", "!=", "=", "!", "(", ")", ",", "<", ">"))
_NAME = re.compile(r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?\Z")


def everything(_record: Record) -> bool:
    return True


class _LabelSelectorParser:
    """One pass over the tokens of a label selector; the end is the empty token."""

    def __init__(self, text: str) -> None:
        self._tokens = [sign or word for sign, word in _TOKEN.findall(text)]
        self._position = 0

    def peek(self) -> str:
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def take(self) -> str:
        token = self.peek()
        self._position += 1
        return token

    def requirements(self) -> list[LabelTest]:
        tests: list[LabelTest] = []
        while self.peek():
            if self.peek() in _SIGNS - {"!"}:
                raise status.bad_request(
                    f"found '{self.peek()}', expected: !, identifier, or 'end of string'"
                )
            tests.append(self._requirement())
            separator = self.take()
            if separator not in {"", ","}:
                raise status.bad_request(f"found '{separator}', expected: ',' or 'end of string'")
            if separator == "," and (not self.peek() or self.peek() in _SIGNS - {"!"}):
                raise status.bad_request(f"found '{self.peek()}', expected: identifier after ','")
        return tests

    def _requirement(self) -> LabelTest:
        negated = self.peek() == "!"
        if negated:
            self.take()
        key = self.take()
        if not key or key in _SIGNS:
            raise _unparsable(f"found '{key}', expected: identifier")
        if not _NAME.match(key):
            raise _unparsable(
                f'key: Invalid value: "{key}": name part must consist of alphanumeric characters'
            )
        if negated:
            return lambda labels: key not in labels
        if self.peek() in {"", ","}:
            return lambda labels: key in labels
        operator = self.take()
        if operator not in _OPERATORS:
            raise _unparsable(f"found '{operator}', expected: {', '.join(_OPERATORS[:7])}")
        if operator in {"<", ">", "lt", "gt"}:
            return _compare(key, operator, self._value())
        values = self._values() if operator in {"in", "notin"} else frozenset((self._value(),))
        if operator in {"in", "=", "=="}:
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values

    def _value(self) -> str:
        value = "" if self.peek() in {"", ","} else self.take()
        if value in _SIGNS:
            raise _unparsable(f"found '{value}', expected: identifier")
        return value

    def _values(self) -> frozenset[str]:
        word = self.take()
        if word != "(":
            raise _unparsable(f"found '{word}' expected: '('")
        values = [""]
        while (word := self.take()) != ")":
            if word == ",":
                values.append("")
            elif not word or word in _SIGNS or values[-1]:
                raise _unparsable(f"found '{word}', expected: ',' or ')'")
            else:
                values[-1] = word
        return frozenset(values)


def _unparsable(cause: str) -> status.StatusFailure:
    return status.bad_request(f"unable to parse requirement: {cause}")


def _compare(key: str, operator: str, value: str) -> LabelTest:
    try:
        limit = int(value)
    except ValueError:
        raise _unparsable(
            f'values[0][{key}]: Invalid value: "{value}": '
            "for 'Gt', 'Lt' operators, the value must be an integer"
        ) from None

    def test(labels: dict[str, str]) -> bool:
        try:
            number = int(labels[key])
        except (KeyError, ValueError):
            return False
        return number > limit if operator in {">", "gt"} else number < limit

    return test


def label_selector(text: str) -> Predicate:
    """Return the predicate of a label selector; "" selects all."""
    tests = _LabelSelectorParser(text).requirements()
    if not tests:
        return everything
    if len(tests) == 1:
        only = tests[0]
        return lambda record: only(record.labels)
    return lambda record: all(test(record.labels) for test in tests)


def field_selector(kind: Kind, text: str) -> Predicate:
    """Return the predicate of a field selector; operators are ``=``, ``==`` and ``!=``."""
    tests: list[Predicate] = []
    for term in filter(None, text.split(",")):
        match = re.fullmatch(r"(.*?)(!=|==|=)(.*)", term)
        if match is None:
            raise status.bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        path, sign, value = match.groups()
        if path not in COMMON_FIELDS + kind.fields:
            known = ", ".join(f'"{field}"' for field in COMMON_FIELDS)
            unknown = f'"{path}" is not a known field selector: only {known}'
            raise status.bad_request(f"field label not supported: {path}" if kind.fields else unknown)
        tests.append(_field_test(path.split("."), value, wanted=sign != "!="))
    if not tests:
        return everything
    return lambda record: all(test(record) for test in tests)


def _field_test(path: list[str], value: str, *, wanted: bool) -> Predicate:
    def test(record: Record) -> bool:
        node: Any = record.document
        for step in path:
            node = node.get(step) if isinstance(node, dict) else None
        return (_text(node) == value) is wanted

    return test


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def of_query(kind: Kind, query: Mapping[str, str]) -> Predicate:
    """Return the predicate of the labelSelector and the fieldSelector of a request."""
    return both(
        label_selector(query.get("labelSelector", "")), field_selector(kind, query.get("fieldSelector", ""))
    )


def both(one: Predicate, other: Predicate) -> Predicate:
    if one is everything:
        return other
    if other is everything:
        return one
    return lambda record: one(record) and other(record)
