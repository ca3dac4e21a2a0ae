"""PromQL as the tree of promql-parser; that of a rule has placeholders for what a request brings.

A query is parsed within the length and the nesting that promql-parser's recursion bears.

promql-parser copies the tree below each of its levels: 5,000 parentheses take 1.7 GiB, and some thousand more
end the process. So the levels are counted first, in one pass over the text and without recursion.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import promql_parser as promql

from adapter.errors import TemplateError
from adapter.rules import matchers
from adapter.rules.matchers import Matcher
from adapter.rules.template.template import Template

SERIES = "fastpath_series_slot"
"""Stands for `.Series`."""

LABEL = "fastpath_matchers_slot"
MATCHERS = f'{LABEL}="1"'
"""Stands for `.LabelMatchers`, with the label LABEL."""

OPERATORS: Mapping[str, str] = {
    str(promql.MatchOp.Equal): "=",
    str(promql.MatchOp.NotEqual): "!=",
    str(promql.MatchOp.Re): "=~",
    str(promql.MatchOp.NotRe): "!~",
}
"""PromQL's text of the operators of matchers."""

_FIELDS = frozenset({"Series", "LabelMatchers", "GroupBy"})

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
    return promql.parse(query)


def parse_rule(template: Template, group_by: str) -> Any:
    """Return the tree of a rule's query. Raises TemplateError with the reason why only a request has one."""
    if not template.is_plain:
        raise TemplateError("the template has actions other than a plain variable")
    foreign = sorted(set(template.fields) - _FIELDS)
    if foreign:
        raise TemplateError(f"the template uses .{foreign[0]}")
    try:
        return parse(template.render({"Series": SERIES, "LabelMatchers": MATCHERS, "GroupBy": group_by}))
    except (TemplateError, ValueError) as error:
        raise TemplateError(f"the query does not parse: {matchers.shorten(show(str(error)))}") from error


def nodes(tree: Any) -> list[Any]:
    """Return a parsed query and all its parts."""
    parts: list[Any] = []

    def collect(node: Any) -> bool:
        parts.append(node)
        return True

    promql.walk(tree, collect)
    return parts


def unwrapped(node: Any) -> Any:
    """Return a part of a query without the parentheses around it."""
    while isinstance(node, promql.ParenExpr):
        node = node.expr
    return node


def read_matcher(node: Any) -> Matcher:
    return Matcher(node.name, OPERATORS[str(node.op)], node.value)


def series_name(selector: Any) -> str:
    """Return the name of the series that a selector requires, "" if there may be several."""
    names = [matcher for matcher in selector.matchers.matchers if matcher.name == "__name__"]
    is_one = len(names) == 1 and names[0].op == promql.MatchOp.Equal and not selector.matchers.or_matchers
    return str(selector.name or (names[0].value if is_one else ""))


def show(text: str) -> str:
    """Return a name or a message with what the rule's template has, in place of the placeholders."""
    text = text.replace(SERIES, "<<.Series>>").replace(MATCHERS, "<<.LabelMatchers>>")
    return text.replace(LABEL, "<<.LabelMatchers>>")


def find_excess(template: str) -> str:
    """Return how the query of a rule, with its actions, exceeds the limits; "" if it keeps them."""
    return _excess(template, _ACTION.sub("x", template), LONGEST_RULE)


@dataclass(slots=True)
class _Bracket:
    """An open bracket: its own level and one for each operator since the last comma.

    `operand` is the depth of what has been read since that comma. An operator or a range encloses it, and
    makes it deeper by one. `others` is the depth of what was read before.
    """

    levels: int
    operand: int
    others: int = 0


def _excess(written: str, query: str, longest: int) -> str:
    if len(written) > longest:
        return f"it has {len(written):,} characters, more than {longest:,}"
    brackets = [_Bracket(0, 0)]
    depth = 0
    for symbol in _SYMBOL.finditer(query):
        kind, bracket = symbol.lastgroup, brackets[-1]
        if kind == "open":
            bracket.operand += symbol[0] == "["  # a range encloses what is before it
            depth += 1
            brackets.append(_Bracket(1, depth))
        elif kind == "operator":
            bracket.levels += 1
            depth += 1
            bracket.operand = max(bracket.operand + 1, depth)
        elif kind == "close" and len(brackets) > 1:
            depth -= brackets.pop().levels
            brackets[-1].operand = max(brackets[-1].operand, bracket.operand, bracket.others)
        elif kind == "next":
            depth -= bracket.levels
            bracket.levels = 1 if len(brackets) > 1 else 0
            depth += bracket.levels
            bracket.others, bracket.operand = max(bracket.others, bracket.operand), depth
        if max(depth, brackets[-1].operand) > DEEPEST:
            return f"its brackets and operators nest more than {DEEPEST} deep"
    return ""
