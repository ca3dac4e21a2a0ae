"""Whether labels match a matcher, as in PromQL: an absent label is empty, expressions match whole values."""

from collections.abc import Callable
from typing import Protocol

from adapter.model import memo
from adapter.rules import naming
from adapter.rules.matchers import Matcher

TESTS_BYTES = 4 * 1024 * 1024
"""Room for compiled matchers, whose values may come from the selector of an autoscaler or a request."""

_TEST_BYTES = 600
_PATTERN_BYTES = 100
"""Estimated memory of a test, and of its expression for each character of the value."""


class Labelled(Protocol):
    """Labels by name."""

    def get(self, label: str, default: str, /) -> str:
        """Return the value of a label."""
        ...


Test = Callable[[Labelled], bool]


def _weigh(matcher: Matcher) -> int:
    per_character = _PATTERN_BYTES if matcher.operator.endswith("~") else 2
    return _TEST_BYTES + len(matcher.label) + per_character * len(matcher.value)


@memo.remember(TESTS_BYTES, _weigh)
def build_test(matcher: Matcher) -> Test:
    """Return the function that says whether labels match."""
    label, sign, value = matcher
    if sign in {"=", "!="}:
        return lambda labels: (labels.get(label, "") == value) is (sign == "=")
    expression = naming.compile_expression(f"^(?s:{value})$")
    return lambda labels: bool(expression.search(labels.get(label, ""))) is (sign == "=~")
