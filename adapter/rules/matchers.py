"""Label matchers: requirements of a selector and names of objects in PromQL, byte for byte as upstream.

`Matcher` keeps label and value separate for templates that use `.LabelValuesByName`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import re2

from adapter.errors import UnsupportedSelectorError
from adapter.model import memo
from adapter.model.go_text import quote
from adapter.model.objects.label_selectors import LabelSelector, Operator

_LABEL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# PromQL reads `Inf{...}` as a number and, after a comparison, `bool{...}` as a modifier before a selector
# without a name.
_KEYWORD = "inf|nan|atan2|bool|group_left|group_right|ignoring|on"
_SERIES_NAME = re.compile(rf"(?!(?i:{_KEYWORD})\Z)[A-Za-z_:][A-Za-z0-9_:]*\Z")
_PLAIN = re.compile(r"[A-Za-z0-9_-]*\Z")  # needs no escaping in a pattern; true of nearly every name
_SHOWN = 200
_MATCHER_BYTES = 200


class Matcher(NamedTuple):
    """One matcher: `label`, the PromQL operator, and the value before quoting."""

    label: str
    operator: str
    value: str

    def __str__(self) -> str:
        """Return the matcher in PromQL, with the label quoted if necessary."""
        return f"{write_label(self.label)}{self.operator}{quote(self.value)}"


# A set of one is still a regular expression, as upstream.
_TABLE: Mapping[Operator, str] = {
    Operator.EQUALS: "=",
    Operator.DOUBLE_EQUALS: "=",
    Operator.NOT_EQUALS: "!=",
    Operator.IN: "=~",
    Operator.NOT_IN: "!~",
    Operator.EXISTS: "!=",
    Operator.DOES_NOT_EXIST: "=",
}


def from_selector(selector: LabelSelector) -> tuple[Matcher, ...]:
    """Return one matcher per requirement, in the selector's order (by key). Values are not escaped."""
    for requirement in selector.requirements:
        if requirement.operator not in _TABLE:
            raise UnsupportedSelectorError(f"{requirement.key} {requirement.operator} has no form in PromQL")
    return tuple(
        Matcher(requirement.key, _TABLE[requirement.operator], "|".join(requirement.values))
        for requirement in selector.requirements
    )


def for_any_of(label: str, names: Iterable[str]) -> Matcher:
    """Return the matcher of the named objects for merged queries, in which a dot matches only a dot."""
    listed = tuple(names)
    if len(listed) == 1:
        return Matcher(label, "=", listed[0])
    escaped = [name if _PLAIN.match(name) else re.escape(name).replace("\\-", "-") for name in listed]
    return Matcher(label, "=~", "|".join(escaped))


def present(label: str) -> Matcher:
    """Return the matcher of every series that has the label."""
    return Matcher(label, "!=", "")


def join(matchers: Iterable[Matcher]) -> str:
    """Return `.LabelMatchers`."""
    return ",".join(map(str, matchers))


def weigh(matchers: Iterable[Matcher]) -> int:
    """Return the estimated bytes of matchers."""
    return sum(_MATCHER_BYTES + len(matcher.label) + len(matcher.value) for matcher in matchers)


def is_label_name(text: str) -> bool:
    """Whether Prometheus reads `text` as a label name without quotes."""
    return _LABEL_NAME.match(text) is not None


def write_label(name: str) -> str:
    """Return a label name for a matcher or grouping; UTF-8 names are quoted."""
    return name if _LABEL_NAME.match(name) else quote(name)


def is_series_name(text: str) -> bool:
    """Whether `text` before a brace is the name of one series and nothing else.

    Prometheus 3 and VictoriaMetrics store any text as a name, which the owner of a scraped pod chooses.
    """
    return _SERIES_NAME.match(text) is not None


def shorten(text: str) -> str:
    """Return foreign text on one line and cut to a fixed length."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."


def show_series(name: str) -> str:
    """Return the name of a series; one that PromQL cannot write is quoted and cut."""
    return name if is_series_name(name) else quote(shorten(name))


TESTS_BYTES = 4 * 1024 * 1024
"""Bound on the compiled matchers, whose values may come from the selector of an autoscaler or a request."""

_TEST_BYTES = 600
_PATTERN_BYTES = 100
"""Estimated bytes of a test, and of its expression for each character of the value."""

_QUIET = re2.Options()
_QUIET.log_errors = False
# Go takes expressions of some 3 million instructions, RE2 by default much smaller ones.
_ROOMY = re2.Options()
_ROOMY.log_errors = False
_ROOMY.max_mem = 256 * 1024 * 1024
# Text between `\Q` and `\E`, or one escape, so that a `\C` is found only where it is an escape.
_ESCAPES = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.", re.DOTALL)


def compile_expression(text: str) -> Any:
    """Compile a Go (RE2) regular expression. Raises ValueError with the reason.

    Two things that RE2 takes are refused as in Go: the escape for a single byte, and group names beyond
    ASCII.
    """
    if r"\C" in _ESCAPES.findall(text):
        raise ValueError(r"invalid escape sequence: \C")
    try:
        expression = re2.compile(text, options=_QUIET)
    except re2.error as error:
        if "too large" not in _reason(error):
            raise ValueError(_reason(error).removesuffix(f": {text}")) from error
        try:
            expression = re2.compile(text, options=_ROOMY)
        except re2.error as again:
            raise ValueError(_reason(again)) from again
    for name in expression.groupindex:
        if not name.isascii():
            raise ValueError(f"invalid name of a group: {name}")
    return expression


def _reason(error: re2.error) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)


class HasLabels(Protocol):
    def get(self, label: str, default: str, /) -> str: ...


SeriesTest = Callable[[HasLabels], bool]


def _weigh_test(matcher: Matcher) -> int:
    per_character = _PATTERN_BYTES if matcher.operator.endswith("~") else 2
    return _TEST_BYTES + len(matcher.label) + per_character * len(matcher.value)


@memo.remember(TESTS_BYTES, _weigh_test)
def build_test(matcher: Matcher) -> SeriesTest:
    """Return a function that tells whether labels match, as in PromQL.

    An absent label is empty, and expressions match whole values.
    """
    label, sign, value = matcher
    if sign in {"=", "!="}:
        return lambda labels: (labels.get(label, "") == value) is (sign == "=")
    expression = compile_expression(f"^(?s:{value})$")
    return lambda labels: bool(expression.search(labels.get(label, ""))) is (sign == "=~")
