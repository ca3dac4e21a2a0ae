"""A rule's query as a tree, with placeholders for what a request brings: the series and its matchers."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import promql_parser as promql

from adapter.errors import TemplateError
from adapter.rules import matchers, parsing
from adapter.rules.matchers import Matcher
from adapter.rules.template.template import Template

SERIES = "fastpath_series_slot"
"""Stands for `.Series`."""

LABEL = "fastpath_matchers_slot"
MATCHERS = f'{LABEL}="1"'
"""Stands for `.LabelMatchers`, with the label LABEL."""

OPERATORS: Mapping[str, str] = MappingProxyType(
    {
        str(promql.MatchOp.Equal): "=",
        str(promql.MatchOp.NotEqual): "!=",
        str(promql.MatchOp.Re): "=~",
        str(promql.MatchOp.NotRe): "!~",
    }
)
"""PromQL's text of the operators of matchers."""

_FIELDS = frozenset({"Series", "LabelMatchers", "GroupBy"})


def parse(template: Template, group_by: str) -> Any:
    """Return the tree of a query. Raises TemplateError with the reason why only a request has one."""
    if not template.is_plain:
        raise TemplateError("the template has actions other than a plain variable")
    foreign = sorted(set(template.fields) - _FIELDS)
    if foreign:
        raise TemplateError(f"the template uses .{foreign[0]}")
    try:
        return parsing.parse(
            template.render({"Series": SERIES, "LabelMatchers": MATCHERS, "GroupBy": group_by})
        )
    except (TemplateError, ValueError) as error:
        raise TemplateError(f"the query does not parse: {matchers.shorten(str(error))}") from error


def read_matcher(node: Any) -> Matcher:
    """Return a matcher of a selector."""
    return Matcher(node.name, OPERATORS[str(node.op)], node.value)


def show(name: str) -> str:
    """Return the name of a series as the rule's template has it."""
    return name.replace(SERIES, "<<.Series>>")
