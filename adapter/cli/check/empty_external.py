"""Why an external metric that is served has no value: one sentence that names the cause and the remedy.

As `diagnosis`, for metrics that describe no object: only the namespace of the autoscaler and its selector can be wrong.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from adapter.cli.check.empty import Followups, namespace_guess, query_gives_nothing
from adapter.model.metrics import Sample
from adapter.rules import matchers
from adapter.rules.matchers import Matcher
from adapter.rules.registry import ExternalEntry
from adapter.rules.trace import counted, listed


def build_followups(series: str, label: str, namespace: str, selector: Sequence[Matcher]) -> Followups:
    """Return the queries that count the series of a selector in any namespace, and those of the namespace with any labels."""
    around = matchers.join([Matcher(label, "=", namespace)] if label else [])
    return Followups(
        f"count by ({matchers.write_label(label) if label else ''}) ({series}{{{matchers.join(selector)}}})",
        f"count ({series}{{{around}}})",
    )


@dataclass(frozen=True, slots=True)
class Nothing:
    """An external metric without a sample in a namespace, and what the follow-ups found."""

    entry: ExternalEntry
    label: str
    namespace: str
    selector: str
    named: Sequence[Sample]
    around: Sequence[Sample]
    labels: frozenset[str]
    look_back: str


def explain_nothing(case: Nothing) -> str:
    """Return the sentence for an external metric without a sample."""
    series, place = case.entry.series, case.entry.rule.config.path
    spaces = sorted({sample.labels.get(case.label, "") for sample in case.named})
    if case.named and (not case.label or case.namespace in spaces):
        return query_gives_nothing(place, series)
    if case.named:
        have = f"{case.label}={listed(map(repr, spaces))}" if any(spaces) else f"no label {case.label}"
        return (
            f"{series} has {have}, and an external metric is read in the namespace of the autoscaler ({case.namespace}): map the "
            f"label that holds it{namespace_guess(case.labels, case.label)}, or set resources.namespaced: false on {place}"
        )
    if case.around and case.selector:
        return f"no series of {series} passes the selector {case.selector}: compare it with the labels ({listed(sorted(case.labels))})"
    return f"{series} was there in the last {case.look_back} but has no sample now: check that its targets are up"


def can_be_asked_for(metric: str) -> bool:
    """Tell whether an autoscaler can ask for an external metric: its client writes the name in lower case."""
    return metric == metric.lower()


def lacks_a_part(metric: str, lost: int, number: int) -> str:
    """Return the sentence for an external metric of whose `number` values `lost` are none."""
    return (
        f"{lost} of {counted(number, 'value', 'values')} of {metric} are no number, so every request fails: the sum of the rest would be "
        "too small. Let metricsQuery return numbers, or set onNaN on the rule: zero serves NaN as 0, drop serves the rest"
    )


def served(metric: str, number: int) -> str:
    """Return the sentence for an external metric with `number` values."""
    if not can_be_asked_for(metric):
        return (
            f"{metric} is served, but autoscalers ask for external metrics in lower case and never find it: give it a lower-case "
            "name through name.as"
        )
    adds = ", which an autoscaler adds up" if number > 1 else ""
    return f"{metric} is served: {counted(number, 'value', 'values')}{adds}"


def no_namespace_label(place: str) -> str:
    """Return the sentence for a namespaced rule without a label for namespaces."""
    return (
        f"{place} names no label for namespaces, so every request fails: add an override for namespace, or set "
        "resources.namespaced: false"
    )
