"""Rules that query Prometheus: from a request to PromQL, and from samples back to objects.

Queries and values are byte for byte those of prometheus-adapter. A `QueryRule` renders its template; a
`MetricQuery` is everything in a request but its objects, and `rules.query_plan` decides which requests share
a query.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from adapter.errors import TemplateError
from adapter.model import metrics, quantity
from adapter.model.go_text import quote
from adapter.model.metrics import Sample
from adapter.rules import matchers, mergeable, parsing
from adapter.rules.matchers import Matcher
from adapter.rules.mergeable import Separability
from adapter.rules.template.template import Template

_QUERY_BYTES = 250
# Characters of Kubernetes names and label values, and the bar between several of them: these can be anywhere
# in a template, in quotes or not, without ending what surrounds them.
_INERT_VALUE = re.compile(r"[A-Za-z0-9_.:|-]*\Z")


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class QueryRule:
    """What every rule has that queries Prometheus. Compared by identity: a reload makes new rules.

    `path` is the place of the rule in the file, such as ``rules[3]``, for faults and logs. With
    `accepts_warnings` an answer with a warning counts as complete.
    """

    path: str
    query: Template
    accepts_warnings: bool
    _separability: dict[tuple[str, str, str | None], Separability] = field(default_factory=dict, init=False)

    def render(self, series: str, parts: Sequence[Matcher], group_by: Sequence[str]) -> str:
        """Return the query. Raises TemplateError if the template fails or renders to nothing.

        `series` is inserted as it is: the caller has checked it with `matchers.is_series_name`. Labels and
        values of `parts` come from requests. `.LabelMatchers` quotes them; a template that uses them in
        another way gets only values that cannot change the query around them.
        """
        if not self.query.is_plain or "LabelValuesByName" in self.query.fields:
            _check_inert(parts)  # values may stand outside of `.LabelMatchers`
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
            raise TemplateError(f"empty query produced by metrics query template {quote(self.query.text)}")
        return text

    def separability(
        self, object_label: str, namespace_label: str, part_label: str | None = None
    ) -> Separability:
        """Return whether requests for such objects may be merged; computed once."""
        key = (object_label, namespace_label, part_label)
        known = self._separability.get(key)
        if known is None:
            known = self._separability[key] = mergeable.analyse(
                self.query, object_label, namespace_label, part_label
            )
        return known


@dataclass(frozen=True, slots=True)
class MetricQuery:
    """What requests for one metric have in common.

    `selector` has the matchers of the metric selector. `namespace_label` and `object_label` are "" for
    requests without a namespace or an object. `part_label` distinguishes several samples of one object, such
    as those of a pod's containers; None if an object has one sample.
    """

    rule: QueryRule
    series: str
    selector: tuple[Matcher, ...]
    namespace_label: str
    object_label: str
    part_label: str | None = None
    separability: Separability = field(init=False, compare=False)
    """Whether requests with this query may be merged; computed once per rule and label."""
    sweepable: bool = field(init=False, compare=False)
    """Whether one query can answer for all objects of all namespaces."""
    weight: int = field(init=False, compare=False)
    """Estimated bytes without the rule: a selector may be much larger than what it selects."""
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        separability = self.rule.separability(self.object_label, self.namespace_label, self.part_label)
        sweepable = not separability.reason and (not self.namespace_label or bool(separability.joined))
        object.__setattr__(self, "separability", separability)
        object.__setattr__(self, "sweepable", sweepable)
        object.__setattr__(self, "weight", _QUERY_BYTES + matchers.weigh(self.selector))
        key = (
            self.rule,
            self.series,
            self.selector,
            self.namespace_label,
            self.object_label,
            self.part_label,
        )
        object.__setattr__(self, "_hash", hash(key))

    def __hash__(self) -> int:
        """Return what is computed once: a request looks into many caches."""
        return self._hash

    def render(self, namespace: str | None, names: Sequence[str]) -> str:
        """Return the query for objects of one namespace as upstream sends it. Raises TemplateError.

        The matchers are in upstream's order: selector by key, namespace, object.
        """
        parts = list(self.selector)
        if self.namespace_label and namespace is not None:
            parts.append(Matcher(self.namespace_label, "=", namespace))
        if self.object_label:
            operator = "=" if len(names) == 1 else "=~"
            parts.append(Matcher(self.object_label, operator, "|".join(names)))
        return self.render_with(parts)

    def render_with(self, parts: Sequence[Matcher]) -> str:
        """Return the query with exactly these matchers in `.LabelMatchers`. Raises TemplateError."""
        group_by = [self.object_label] if self.object_label else []
        return self.rule.render(
            self.series, parts, group_by if self.part_label is None else [*group_by, self.part_label]
        )

    def render_joined(self, parts: Sequence[Matcher]) -> str:
        """Return the query with the namespace label in every grouping. Requires `separability.joined`."""
        text = self.separability.joined.replace(parsing.SERIES, self.series)
        return text.replace(parsing.MATCHERS, matchers.join(parts))

    def doubles(self, sample: Sample, earlier: Sequence[Sample]) -> bool:
        """Whether an object with the samples `earlier` (at least one) has `sample` in excess."""
        if self.part_label is None:
            return True
        part = sample.labels.get(self.part_label, "")
        return any(other.labels.get(self.part_label, "") == part for other in earlier)


def last_samples(samples: Iterable[Sample], label: str) -> dict[str, Sample]:
    """Return the last sample of each value of `label`, which is the one that counts; none counts as ""."""
    return {sample.labels.get(label, ""): sample for sample in samples}


class Dropped(str):
    """Why a sample has no value; the label of a self-metric."""

    __slots__ = ()


NAN = Dropped("nan")
INFINITE = Dropped("infinite")
HISTOGRAM = Dropped("histogram")
OVERFLOW = Dropped("overflow")
"""A value beyond 64 bits makes its metric unavailable: it is an error, and is not left out."""

TOO_LARGE = "beyond 9.2e15, the limit of a quantity"
"""What such a value is."""


def milli_of(value: float, *, nan_is_zero: bool) -> int | Dropped:
    """Return thousandths of a sample's value, or why it has no value.

    NaN, infinities and native histograms are absent; `onNaN: zero` restores prometheus-adapter's 0 for NaN.
    """
    try:
        return quantity.milli_from_float(value)
    except OverflowError:
        if math.isfinite(value):
            return OVERFLOW
    if value is metrics.HISTOGRAM:
        return HISTOGRAM
    if math.isinf(value):
        return INFINITE
    return 0 if nan_is_zero else NAN


def _check_inert(parts: Sequence[Matcher]) -> None:
    """Raise TemplateError for a label or value that could change the query of a template with actions."""
    for part in parts:
        if not matchers.is_label_name(part.label):
            raise TemplateError(
                f"label {quote(matchers.shorten(part.label))}: expected a label name of letters, digits and "
                "underscores, because the template uses more than .Series, .LabelMatchers and .GroupBy"
            )
        if not _INERT_VALUE.match(part.value):
            raise TemplateError(
                f"value {quote(matchers.shorten(part.value))} of label {part.label}: expected letters, "
                "digits and any of _.:-, because the template uses more than .Series, .LabelMatchers "
                "and .GroupBy"
            )
