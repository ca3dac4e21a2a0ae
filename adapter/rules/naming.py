"""Names: from a series to its metric, and between series labels and Kubernetes resources.

These are the rules of prometheus-adapter's `pkg/naming` without its caches and its map order: if two
overrides name one resource, queries use the last one in the file.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import re2

from adapter.errors import NamingError
from adapter.model.metrics import GroupResource
from adapter.model.objects.resources import APIResource, Catalogue
from adapter.rules import matchers
from adapter.rules.template.template import LabelTemplate

NAMESPACES = GroupResource("", "namespaces")

UNWRITABLE = "a name that PromQL cannot write without quotes"
"""Why `MetricNamer` rejects names with other characters than letters, digits, underscores and colons."""


@dataclass(frozen=True, slots=True)
class MetricNamer:
    """Which series a rule takes, and the metric name of each.

    `filters` are `(expression, wanted)`, searched anywhere in the name. `expansion` refers to the groups of
    `matches`.

    Templates write `<<.Series>>{...}`, where a name with other characters than those of a Prometheus 2 metric
    name would be read as PromQL: the owner of a scraped pod could add a query of another namespace's series
    to a rule. Such a series is never taken. It cannot be quoted, because the text around `<<.Series>>` is
    arbitrary.
    """

    filters: tuple[tuple[Any, bool], ...]
    matches: Any
    expansion: tuple["_Piece", ...]

    def rejection(self, series: str) -> str | None:
        """Return why a series is rejected: by which filter, or by `name.matches`; None if it is taken."""
        for expression, wanted in self.filters:
            if (expression.search(series) is not None) != wanted:
                return f"seriesFilters {'is' if wanted else 'isNot'} {expression.pattern}"
        if self.matches.search(series) is None:
            return f"name.matches {self.matches.pattern}"
        return None if matchers.is_series_name(series) else UNWRITABLE

    def name(self, series: str) -> str | None:
        """Return the metric name of a series, None if the rule does not take it."""
        if not matchers.is_series_name(series):
            return None
        if any((expression.search(series) is not None) != wanted for expression, wanted in self.filters):
            return None
        return self.expand(series)

    def expand(self, series: str) -> str | None:
        """Return the name without regard to the filters, None without a match."""
        match = self.matches.search(series)
        if match is None:
            return None
        return "".join(
            piece.text if piece.group is None else (match.group(piece.group) or "")
            for piece in self.expansion
        )

    def may_give(self, metric: str) -> bool:
        """Whether some series could get this name: false only if the expansion is another fixed text."""
        return (
            any(piece.group is not None for piece in self.expansion)
            or "".join(piece.text for piece in self.expansion) == metric
        )


class _Piece(NamedTuple):
    """Literal text, or a group by number."""

    text: str
    group: int | None = None


# The letters and digits of any script, as Go's Regexp.Expand takes them.
_REFERENCE = re2.compile(r"\$(?:(\$)|\{([\pL\p{Nd}_]+)\}|([\pL\p{Nd}_]+))")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,8}")  # numbers with leading zeros are names, as in Go


def parse_expansion(text: str, groups: int, names: Mapping[str, int]) -> tuple[_Piece, ...]:
    """Return the pieces of a `name.as`, parsed as by Go's Regexp.Expand.

    `$name` extends over all letters, digits and underscores, so `$1x` is the group named "1x"; `${1}x` is
    group 1. Unknown groups are empty, `$$` is a dollar, and so is a dollar that starts no reference.
    """
    pieces: list[_Piece] = []
    end = 0
    for match in _REFERENCE.finditer(text):
        pieces.append(_Piece(text[end : match.start()]))
        end = match.end()
        name = match[2] or match[3]
        if name is None:
            pieces.append(_Piece("$"))
            continue
        group = int(name) if _NUMBER.fullmatch(name) else names.get(name)
        if group is not None and group <= groups:
            pieces.append(_Piece("", group))
    pieces.append(_Piece(text[end:]))
    return tuple(piece for piece in pieces if piece.text or piece.group is not None)


@dataclass(frozen=True, slots=True)
class ResourceConverter:
    """Converts between the series labels and resources of one rule.

    `by_label` has the overrides (label to resource); `template` and `pattern` apply to all other labels, if
    any.
    """

    by_label: Mapping[str, APIResource]
    template: LabelTemplate | None
    pattern: Any
    catalogue: Catalogue
    _by_resource: dict[GroupResource, str] = field(default_factory=dict, compare=False)
    _seen: dict[str, APIResource | None] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        for label, resource in self.by_label.items():
            self._by_resource[resource.group_resource] = label  # the last in the file wins

    def resource_for(self, label: str) -> APIResource | None:
        """Return the resource that a series label names, None for any other label."""
        override = self.by_label.get(label)
        if override is not None:
            return override
        if self.pattern is None:
            return None
        if label not in self._seen:
            match = self.pattern.search(label)
            groups = {} if match is None else match.groupdict()
            name, group = groups.get("resource"), groups.get("group") or None
            self._seen[label] = self.catalogue.lookup(name, group) if name is not None else None
        return self._seen[label]

    def resources_for(self, labels: Iterable[str]) -> list[APIResource]:
        """Return the distinct resources among the labels of a series, in order of the labels' names."""
        resources = filter(None, map(self.resource_for, sorted(labels)))
        return list({resource.group_resource: resource for resource in resources}.values())

    def label_for(self, resource: GroupResource) -> str:
        """Return the series label with the names of such objects. Raises NamingError."""
        known = self._by_resource.get(resource)
        if known is not None:
            return known
        if self.template is None:
            raise NamingError("no generic resource label form specified for this metric")
        label = self.template.render(resource.group, self.catalogue.singular(resource))
        self._by_resource[resource] = label
        return label


def compile_namer(
    filters: Sequence[tuple[str, bool]], matches: str, expansion: str, fault: Callable[[str, str, str], None]
) -> MetricNamer | None:
    """Return the namer of a rule, or None after calls of `fault(path below the rule, value, expected)`.

    `filters` are `(expression, wanted)`. An empty `matches` takes every name as a whole.
    """
    compiled = []
    for number, (text, wanted) in enumerate(filters):
        try:
            compiled.append((matchers.compile_expression(text), wanted))
        except ValueError as error:
            place = f"seriesFilters[{number}].{'is' if wanted else 'isNot'}"
            fault(place, text, f"expected a Go regular expression (RE2): {error}")
    try:
        expression = matchers.compile_expression(matches or ".*")
    except ValueError as error:
        fault("name.matches", matches, f"expected a Go regular expression (RE2): {error}")
        return None
    # an empty name.as means the whole match, or the one group
    wanted_expansion = expansion or {0: "$0", 1: "$1"}.get(expression.groups)
    if wanted_expansion is None:
        expected = "expected a replacement such as ${1}_${2}, because name.matches has"
        fault("name.as", expansion, f"{expected} {expression.groups} capture groups")
        return None
    if len(compiled) < len(filters):
        return None
    pieces = parse_expansion(wanted_expansion, expression.groups, expression.groupindex)
    return MetricNamer(tuple(compiled), expression, pieces)
