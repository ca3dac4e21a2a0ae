"""Label selectors: Kubernetes' grammar with its error messages, and matching.

Lexer, parser, and the value with its two forms: a predicate and canonical text; `api_selectors` has that of
the API. Mirrors ``k8s.io/apimachinery/pkg/labels``; the messages are the same byte for byte, because clients
print them and scripts compare them.
"""

import enum
import operator
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple, NoReturn

from adapter import errors
from adapter.model.go_text import quote


class Operator(enum.StrEnum):
    """How a requirement relates its key to its values; the texts are upstream's names."""

    EQUALS = "="
    DOUBLE_EQUALS = "=="
    NOT_EQUALS = "!="
    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    DOES_NOT_EXIST = "!"
    GREATER_THAN = "gt"
    LESS_THAN = "lt"


_BINARY_OPERATORS = {
    "in": Operator.IN,
    "notin": Operator.NOT_IN,
    "=": Operator.EQUALS,
    "==": Operator.DOUBLE_EQUALS,
    "!=": Operator.NOT_EQUALS,
    ">": Operator.GREATER_THAN,
    "<": Operator.LESS_THAN,
}
_BINARY_TEXT = {relation: text for text, relation in _BINARY_OPERATORS.items()}


class Requirement(NamedTuple):
    """One condition on one label.

    `values` is sorted and free of duplicates; empty for the two existence operators.
    """

    key: str
    operator: Operator
    values: tuple[str, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether `labels` meet the condition, as upstream's ``Requirement.Matches``.

        An absent label meets ``!=``, ``notin`` and ``!`` and nothing else. ``gt`` and ``lt`` hold only
        between integers of 64 bits; any other label value does not match.
        """
        value = labels.get(self.key)
        match self.operator:
            case Operator.EQUALS | Operator.DOUBLE_EQUALS | Operator.IN:
                return value in self.values
            case Operator.NOT_EQUALS | Operator.NOT_IN:
                return value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case _:
                actual, limit = _int64(value), _int64(self.values[0])
                if actual is None or limit is None:
                    return False
                return actual > limit if self.operator is Operator.GREATER_THAN else actual < limit

    def __str__(self) -> str:
        """Return upstream's text: ``a=b``, ``a in (b,c)``, ``a``, ``!a``, ``a>1``."""
        match self.operator:
            case Operator.EXISTS:
                return self.key
            case Operator.DOES_NOT_EXIST:
                return f"!{self.key}"
            case Operator.IN | Operator.NOT_IN:
                return f"{self.key} {self.operator} ({','.join(self.values)})"
            case _:
                return f"{self.key}{_BINARY_TEXT[self.operator]}{self.values[0]}"


class LabelSelector(NamedTuple):
    """Requirements that must all hold, sorted by key; requirements on one key keep their order."""

    requirements: tuple[Requirement, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether `labels` meet all requirements; without requirements all labels do."""
        return all(requirement.matches(labels) for requirement in self.requirements)

    @property
    def weight(self) -> int:
        """Return about how many bytes it takes in memory: many times its text."""
        return _SELECTOR_BYTES + sum(
            _REQUIREMENT_BYTES + len(key) + _VALUE_BYTES * len(values) + len("".join(values))
            for key, _, values in self.requirements
        )

    def __str__(self) -> str:
        """Return the canonical text, joined with commas and no blanks; "" for everything."""
        return ",".join(map(str, self.requirements))


EVERYTHING = LabelSelector(())

_SELECTOR_BYTES, _REQUIREMENT_BYTES, _VALUE_BYTES = 300, 200, 60


def parse_selector(text: str, *, later: bool = False) -> LabelSelector:
    """Parse the text of a ``labelSelector`` parameter; empty text selects everything.

    As version 0.30 does, which the API server of the adapter is; `later`: as 0.36, which the autoscaler of
    Kubernetes 1.36 is. Raise `errors.BadRequestError` with upstream's sentence.
    """
    try:
        requirements = sorted(
            _SelectorParser(text, later=later).requirements(), key=operator.attrgetter("key")
        )
    except errors.BadRequestError as error:
        if not later:
            raise
        raise errors.BadRequestError(in_later_words(error.message)) from None
    return LabelSelector(tuple(requirements))


# --- lexer

# A zero byte ends the text where a token could begin and is swallowed after one, as upstream's lexer does.
# Blanks are taken possessively: a text of nothing else would be tried again from each of them.
_TOKEN = re.compile(r"[ \t\r\n]*+(?:(?P<symbol>==|!=|[=!(),<>])|(?P<word>[^ \t\r\n=!(),<>\0]+))\0?")

_END = ""
_EXPECTED_OPERATORS = ", ".join(_BINARY_OPERATORS.values())


class _SelectorToken(NamedTuple):
    """A lexeme; `word` is true for identifiers, also for ``in`` and ``notin``, which may be either."""

    text: str
    word: bool


def _tokens(text: str) -> Iterator[_SelectorToken]:
    position = 0
    while match := _TOKEN.match(text, position):
        word = match["word"]
        yield _SelectorToken(word or match["symbol"], word is not None)
        position = match.end()
    yield _SelectorToken(_END, word=False)


# --- parser


class _SelectorParser:
    """Recursive descent over the tokens of one selector, taking upstream's decisions in upstream's order."""

    def __init__(self, text: str, *, later: bool) -> None:
        self._tokens = _tokens(text)
        self._following = next(self._tokens)
        self._later = later

    def requirements(self) -> Iterator[Requirement]:
        """Yield the requirements in written order."""
        while True:
            token = self._following
            if token == (_END, False):
                return
            if not (token.word or token.text == "!"):
                _refuse(f"found '{token.text}', expected: !, identifier, or 'end of string'")
            yield self._requirement()
            separator = self._next()
            if separator.text == _END:
                return
            if separator.text != ",":
                _refuse(f"found '{separator.text}', expected: ',' or 'end of string'")
            following = self._following
            if not (following.word or following.text == "!"):
                _refuse(f"found '{following.text}', expected: identifier after ','")

    def _requirement(self) -> Requirement:
        key = self._next()
        absent = key.text == "!"
        if absent:
            key = self._next()
        if not key.word:
            _refuse_requirement(f"found '{key.text}', expected: identifier")
        if faults := key_faults(key.text):
            _refuse_requirement(invalid("<nil>", key.text, "; ".join(faults)))
        if absent:
            return Requirement(key.text, Operator.DOES_NOT_EXIST, ())
        if self._following.text in {_END, ","}:
            return Requirement(key.text, Operator.EXISTS, ())
        token = self._next()
        relation = _BINARY_OPERATORS.get(token.text)
        if relation is None:
            _refuse_requirement(f"found '{token.text}', expected: {_EXPECTED_OPERATORS}")
        if relation in {Operator.IN, Operator.NOT_IN}:
            values = self._value_list()
        elif self._following.text in {_END, ","}:  # nothing is the empty value
            values = ("",)
        else:
            token = self._next()
            if not token.word:
                _refuse_requirement(f"found '{token.text}', expected: identifier")
            values = (token.text,)
        _check_values(key.text, relation, values)
        return Requirement(key.text, relation, values)

    def _value_list(self) -> tuple[str, ...]:
        """Return the values between parentheses; ``()`` and a gap between commas are one empty value each."""
        opening = self._next()
        if opening.text != "(":
            _refuse_requirement(f"found '{opening.text}' expected: '('")
        first = self._following
        if not (first.word or first.text in {",", ")"}):
            _refuse_requirement(f"found '{first.text}', expected: ',', ')' or identifier")
        values: set[str] = set()
        if first.text == ")":
            values.add("")
        owed = False
        while owed or self._following.text != ")":
            owed = self._listed_value(values)
        self._next()
        return tuple(sorted(values))

    def _listed_value(self, values: set[str]) -> bool:
        """Take one value, or the commas before one, into `values`; tell whether the list cannot end here.

        Version 0.30 takes two commas in one step and wants more after them: ``(a,,b)`` is read and ``(a,,)``
        refused. Later ones take them one by one and read both.
        """
        token = self._next()
        following = self._following
        if token.word:
            values.add(token.text)
            if following.text not in {",", ")"}:
                _refuse_requirement(f"found '{following.text}', expected: ',' or ')'")
        elif token.text == ",":
            if not values or following.text in {",", ")"}:
                values.add("")
            if following.text == "," and not self._later:
                self._next()
                return True
        else:
            _refuse_requirement(f"found '{token.text}', expected: ',', or identifier")
        return False

    def _next(self) -> _SelectorToken:
        """Take a token; the end is never passed."""
        token = self._following
        self._following = next(self._tokens, token)
        return token


def _refuse(sentence: str) -> NoReturn:
    raise errors.BadRequestError(sentence)


def _refuse_requirement(sentence: str) -> NoReturn:
    _refuse(f"unable to parse requirement: {sentence}")


# --- validation of keys and values

_NAME_REGEX = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    f"character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME_REGEX}')"
)
_VALUE_REGEX = f"({_NAME_REGEX})?"
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used "
    f"for validation is '{_VALUE_REGEX}')"
)
_SUBDOMAIN_REGEX = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    f"'{_SUBDOMAIN_REGEX}')"
)
_NAME = re.compile(_NAME_REGEX)
SUBDOMAIN = re.compile(_SUBDOMAIN_REGEX)
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NAME_LIMIT = 63
_EMPTY = "must be non-empty"
_LIMIT = re.compile(r"(must be no more than \d+) characters")


def _too_long(text: str, limit: int) -> list[str]:
    """Return the message for a text of more than `limit` bytes; upstream says characters."""
    longer = len(text.encode("utf-8", "surrogatepass")) > limit
    return [f"must be no more than {limit} characters"] if longer else []


def key_faults(key: str) -> list[str]:
    """Return what is wrong with a label key: a name with an optional DNS subdomain and ``/`` before it."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        form = "an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a qualified name {_NAME_RULE} with {form}"]
    faults: list[str] = []
    if slash:
        complaints = _too_long(prefix, 253) if prefix else [_EMPTY]
        if prefix and not SUBDOMAIN.fullmatch(prefix):
            complaints.append(SUBDOMAIN_RULE)
        faults += [f"prefix part {complaint}" for complaint in complaints]
    complaints = _too_long(name, _NAME_LIMIT) if name else [_EMPTY]
    if not _NAME.fullmatch(name):
        complaints.append(_NAME_RULE)
    return faults + [f"name part {complaint}" for complaint in complaints]


def in_later_words(complaint: str) -> str:
    """Return a complaint about a key or a value as version 0.36 words it."""
    return _LIMIT.sub(r"\1 bytes", complaint).replace(
        "a qualified name must consist", "a valid label key must consist"
    )


def value_faults(value: str) -> list[str]:
    """Return what is wrong with a label value: empty, or a name."""
    faults = _too_long(value, _NAME_LIMIT)
    if value and not _NAME.fullmatch(value):
        faults.append(_VALUE_RULE)
    return faults


def _check_values(key: str, relation: Operator, values: tuple[str, ...]) -> None:
    """Refuse invalid label values and limits that are no integers; several messages are put in brackets."""
    complaints: list[str] = []
    if relation in {Operator.GREATER_THAN, Operator.LESS_THAN} and _int64(values[0]) is None:
        rule = "for 'Gt', 'Lt' operators, the value must be an integer"
        complaints.append(invalid("values[0]", values[0], rule))
    for index, value in enumerate(values):
        if faults := value_faults(value):
            complaints.append(invalid(f"values[{index}][{key}]", value, "; ".join(faults)))
    if complaints:
        joined = ", ".join(complaints)
        _refuse_requirement(f"[{joined}]" if len(complaints) > 1 else joined)


def invalid(path: str, value: str, detail: str) -> str:
    return f"{path}: Invalid value: {quote(value)}: {detail}"


def _int64(text: str | None) -> int | None:
    """Return the number in a decimal text, None for anything else or more than 64 bits."""
    if text is None or not _INTEGER.fullmatch(text):
        return None
    digits = text.lstrip("+-").lstrip("0")
    if len(digits) > 19:  # no 64-bit number is longer, and `int` refuses texts of thousands of digits
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
