"""What every rule has that asks Prometheus: a query template, how it is rendered, and whether its questions may be merged.

What a rule is about (`compile.Rule` for series, `resource.ResourceQuery` for cpu and memory) is the business of its kind.
"""

import abc
from collections.abc import Sequence
from typing import TypeAlias

from adapter.errors import TemplateError
from adapter.model.go_text import quote
from adapter.rules import matchers
from adapter.rules.matchers import Matcher
from adapter.rules.plan import mergeable
from adapter.rules.plan.mergeable import Separability
from adapter.rules.template import template
from adapter.rules.template.template import Template

# Object label, namespace label, label of the parts of an object (None where it has none).
SeparabilityKey: TypeAlias = tuple[str, str, str | None]


class QueryRule(abc.ABC):
    """The common part; a kind of rule has the two attributes as fields of its own."""

    __slots__ = ()

    query: Template
    _separability: dict[SeparabilityKey, Separability]

    @property
    @abc.abstractmethod
    def path(self) -> str:
        """Return where the rule stands, as faults and logs name it."""

    @property
    @abc.abstractmethod
    def accepts_warnings(self) -> bool:
        """Return whether an answer that came with a warning counts as whole."""

    def render(self, series: str, parts: Sequence[Matcher], group_by: Sequence[str]) -> str:
        """Return the query text; TemplateError when the template fails or gives nothing.

        `series` is inserted as it is: the caller has checked it with `matchers.is_series_name`. Labels and values of
        `parts` come from requests. `.LabelMatchers` quotes them; a template that uses them in another way gets only
        those that cannot change the query around them.
        """
        if self._inserts_values():
            _check_inert(parts)
        grouping = [matchers.write_label(label) for label in group_by]
        text = self.query.render(
            {
                "Series": series,
                "LabelMatchers": matchers.join(parts),
                "LabelValuesByName": {part.label: part.value for part in parts},
                "GroupBy": ",".join(grouping),
                "GroupBySlice": grouping,
            }
        )
        if not text:
            raise TemplateError(template.empty_query(self.query.text))
        return text

    def _inserts_values(self) -> bool:
        """Whether the template may write the values of matchers by itself, outside `.LabelMatchers`."""
        return not self.query.is_plain() or "LabelValuesByName" in self.query.fields()

    def separability(
        self, object_label: str, namespace_label: str, part_label: str | None = None
    ) -> Separability:
        """Return whether questions about such objects may be merged; worked out once."""
        key = (object_label, namespace_label, part_label)
        known = self._separability.get(key)
        if known is None:
            known = self._separability[key] = mergeable.analyse(
                self.query, object_label, namespace_label, part_label
            )
        return known


def _check_inert(parts: Sequence[Matcher]) -> None:
    """Refuse a label or value that a template with actions could turn into another query."""
    for part in parts:
        if not matchers.is_label_name(part.label):
            raise TemplateError(
                f"label {quote(matchers.shorten(part.label))}: expected a label name of letters, digits and "
                "underscores, because the template uses more than .Series, .LabelMatchers and .GroupBy"
            )
        if not matchers.is_inert(part.value):
            raise TemplateError(
                f"value {quote(matchers.shorten(part.value))} of label {part.label}: expected letters, digits and "
                "any of _.:-, because the template uses more than .Series, .LabelMatchers and .GroupBy"
            )
