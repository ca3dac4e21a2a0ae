"""From a question to PromQL and from samples back to objects, byte for byte as prometheus-adapter writes and reads them.

One `MetricQuery` is everything of a question but its objects; `rules.plan.plan` decides which questions share a query.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from adapter.model import metrics, milli
from adapter.model.metrics import Sample
from adapter.rules import matchers
from adapter.rules.matchers import Matcher
from adapter.rules.plan import mergeable
from adapter.rules.plan.mergeable import Separability
from adapter.rules.query_rule import QueryRule

_QUERY_BYTES = 250


@dataclass(frozen=True, slots=True)
class MetricQuery:
    """The part that questions about one metric have in common.

    `selector` are the matchers of the metric selector. `namespace_label` and `object_label` are "" where the question has
    no namespace or no object. `part_label` tells several samples of one object apart, such as those of a pod's containers; None
    where an object has one sample.
    """

    rule: QueryRule
    series: str
    selector: tuple[Matcher, ...]
    namespace_label: str
    object_label: str
    part_label: str | None = None

    @property
    def separability(self) -> Separability:
        """Whether questions with this query may be merged; decided once per rule and label."""
        return self.rule.separability(self.object_label, self.namespace_label, self.part_label)

    @property
    def weight(self) -> int:
        """Return about how many bytes it takes in memory, the rule aside: a selector may be much larger than what it selects."""
        return _QUERY_BYTES + matchers.weigh(self.selector)

    def render(self, namespace: str | None, names: Sequence[str]) -> str:
        """Return the query for objects of one namespace as upstream sends it; TemplateError when it cannot be made.

        Matchers in upstream's order: selector by key, namespace, object.
        """
        parts = list(self.selector)
        if self.namespace_label and namespace is not None:
            parts.append(Matcher(self.namespace_label, "=", namespace))
        if self.object_label:
            parts.append(matchers.for_names(self.object_label, names))
        return self.render_with(parts)

    def render_with(self, parts: Sequence[Matcher]) -> str:
        """Return the query with exactly these matchers in `.LabelMatchers`; a result of nothing is a TemplateError."""
        group_by = [self.object_label] if self.object_label else []
        return self.rule.render(
            self.series, parts, group_by if self.part_label is None else [*group_by, self.part_label]
        )

    def render_joined(self, parts: Sequence[Matcher]) -> str:
        """Return the query with the namespace label in every grouping; only where `separability.joined` is given."""
        text = self.separability.joined.replace(mergeable.SERIES_SLOT, self.series)
        return text.replace(mergeable.MATCHERS_SLOT, matchers.join(parts))

    def doubles(self, sample: Sample, earlier: Sequence[Sample]) -> bool:
        """Whether an object that has the samples `earlier`, at least one, should have no other such as `sample`."""
        if self.part_label is None:
            return True
        part = sample.labels.get(self.part_label, "")
        return any(each.labels.get(self.part_label, "") == part for each in earlier)


def index_samples(samples: Iterable[Sample], label: str) -> dict[str, tuple[Sample, ...]]:
    """Return samples by the value of the object's label, each object's in the order received; a missing label counts as ""."""
    found: dict[str, tuple[Sample, ...]] = {}
    for sample in samples:
        name = sample.labels.get(label, "")
        earlier = found.get(name)
        found[name] = (sample,) if earlier is None else (*earlier, sample)
    return found


def last_samples(samples: Iterable[Sample], label: str) -> dict[str, Sample]:
    """Return the sample that counts for each object: the later one replaces an earlier one."""
    return {name: group[-1] for name, group in index_samples(samples, label).items()}


class Dropped(str):
    """Why a sample gives no value: the word that self-metrics count by."""

    __slots__ = ()


NAN = Dropped("nan")
INFINITE = Dropped("infinite")
HISTOGRAM = Dropped("histogram")


def milli_of(value: float, *, nan_is_zero: bool) -> int | Dropped:
    """Return thousandths of a sample's value, or why it has none. OverflowError where 64 bits do not hold it.

    NaN, infinities and native histograms are absences; `onNaN: zero` restores prometheus-adapter's 0 for NaN.
    """
    if value is metrics.HISTOGRAM:
        return HISTOGRAM
    if math.isnan(value):
        return 0 if nan_is_zero else NAN
    if math.isinf(value):
        return INFINITE
    return milli.milli_from_float(value)
