"""Matches names and labels: Go's regular expressions (RE2), and label matchers compiled to functions."""

import re
from collections.abc import Callable
from typing import Any, Protocol

import re2

from adapter.model import memo
from adapter.rules.matchers import Matcher

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
        expression = _compile(text)
    except re2.error as error:
        raise ValueError(_reason(error)) from error
    for name in expression.groupindex:
        if not name.isascii():
            raise ValueError(f"invalid name of a group: {name}")
    return expression


def _compile(text: str) -> Any:
    try:
        return re2.compile(text, options=_QUIET)
    except re2.error as error:
        if "too large" not in _reason(error):
            raise
        return re2.compile(text, options=_ROOMY)


def _reason(error: re2.error) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)


class HasLabels(Protocol):
    """Labels by name."""

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
