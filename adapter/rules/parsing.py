"""PromQL as the tree of promql-parser, within the length and the nesting that its recursion bears.

promql-parser copies the tree below each of its levels: 5,000 parentheses take 1.7 GiB, and some thousand more
end the process. So the levels are counted first, in one pass over the text and without recursion.
"""

import re
from typing import Any

import promql_parser

LONGEST_RULE = 64 * 1024
"""Characters of a query in a rules file."""

LONGEST = 1024 * 1024
"""Characters of a rendered query; the selectors of a request make it longer than its rule."""

DEEPEST = 100
"""Levels of a query: brackets, and operators, because each operand of a chain is one level deeper."""

_ACTION = re.compile(r"<<.*?>>", re.DOTALL)
# promql-parser takes a backslash for an escape between backticks too, unlike Prometheus.
_TEXT = r"""(?P<quote>["'`])(?:[^"'`\\]|\\.?|(?!(?P=quote))["'`])*+(?:(?P=quote)|\Z)|\#[^\n]*"""
_SYMBOL = re.compile(
    rf"""{_TEXT}
    |(?P<open>[(\[{{])
    |(?P<close>[)\]}}])
    |(?P<next>,)
    |(?P<operator>[-+*/%^<>]|[=!]=|(?<![\w:.])(?i:and|or|unless|atan2)(?![\w:.]))""",
    re.VERBOSE | re.DOTALL,
)


def parse(query: str) -> Any:
    """Return the tree of a query. Raises ValueError with the reason."""
    if excess := _excess(query, query, LONGEST):
        raise ValueError(excess)
    return promql_parser.parse(query)


def excess_of(template: str) -> str:
    """Return how the query of a rule, with its actions, exceeds the limits; "" if it keeps them."""
    return _excess(template, _ACTION.sub("x", template), LONGEST_RULE)


def _excess(written: str, query: str, longest: int) -> str:
    if len(written) > longest:
        return f"it has {len(written):,} characters, more than {longest:,}"
    levels = [0]  # the levels of each open bracket: its own, and one for each operator since the last comma
    depth = 0
    for symbol in _SYMBOL.finditer(query):
        kind = symbol.lastgroup
        if kind == "open":
            levels.append(1)
            depth += 1
        elif kind == "operator":
            levels[-1] += 1
            depth += 1
        elif kind == "close" and len(levels) > 1:
            depth -= levels.pop()
        elif kind == "next":
            depth -= levels[-1]
            levels[-1] = 1 if len(levels) > 1 else 0
            depth += levels[-1]
        if depth > DEEPEST:
            return f"its brackets and operators nest more than {DEEPEST} deep"
    return ""
