"""Traces series through the rules for `fastpath check --why`: which rule selects, drops and names them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from adapter.errors import PrometheusError
from adapter.model.go_text import quote
from adapter.model.metrics import SeriesInfo
from adapter.model.resources import APIResource
from adapter.rules import matchers
from adapter.rules.compile import Rule, Ruleset
from adapter.rules.preview import named_series

SHOWN = 5

# By series selector: the series that it matches, or why they are unknown.
Lists = Mapping[str, tuple[SeriesInfo, ...] | PrometheusError]


class Rejected(NamedTuple):
    """A series that a rule rejects: why, and the name it would have otherwise (None without a match)."""

    series: SeriesInfo
    reason: str
    otherwise: str | None


@dataclass(frozen=True, slots=True)
class RuleTrace:
    """What one rule does with its series, for the metric that is missing.

    `gives` become the metric, `rejected` are dropped, `others` get the other names. `mapped` are the labels
    of `gives` that name kinds, `plain` all others. `error` says why the list could not be read; then all else
    is empty.
    """

    rule: Rule
    external: bool
    matched: tuple[SeriesInfo, ...]
    error: str
    gives: tuple[SeriesInfo, ...]
    rejected: tuple[Rejected, ...]
    others: Mapping[str, tuple[SeriesInfo, ...]]
    mapped: tuple[tuple[str, APIResource], ...]
    plain: tuple[str, ...]

    @property
    def place(self) -> str:
        """The rule's path."""
        return self.rule.config.path

    def leads_to(self, metric: str) -> bool:
        """Whether the rule drops, renames or does not find what would be the metric, or has an error."""
        names = {name for each in self.rejected for name in (each.series.name, each.otherwise)}
        names |= {series.name for others in self.others.values() for series in others}
        return bool(self.error) or metric in names or self.fixed_name(metric) is not None

    def fixed_name(self, metric: str) -> str | None:
        """Return the only series name that the rule selects, if it would become the metric."""
        name = named_series(self.rule.config.series_query)
        return name if name is not None and self.rule.namer.name(name) == metric else None


def trace_rules(ruleset: Ruleset, lists: Lists, metric: str) -> tuple[RuleTrace, ...]:
    """Return the trace of every rule, custom rules first."""
    return (
        *(_trace(rule, lists[rule.config.series_query], metric, external=False) for rule in ruleset.custom),
        *(_trace(rule, lists[rule.config.series_query], metric, external=True) for rule in ruleset.external),
    )


def _trace(
    rule: Rule, known: Sequence[SeriesInfo] | PrometheusError, metric: str, *, external: bool
) -> RuleTrace:
    if isinstance(known, PrometheusError):
        return RuleTrace(rule, external, (), str(known), (), (), {}, (), ())
    rejected: list[Rejected] = []
    named: dict[str, tuple[SeriesInfo, ...]] = {}
    for series in known:
        reason = rule.namer.rejection(series.name)
        if reason is not None:
            rejected.append(Rejected(series, reason, rule.namer.expand(series.name)))
        else:
            name = rule.namer.name(series.name)
            assert name is not None  # it was not rejected
            named[name] = (*named.get(name, ()), series)
    gives = named.pop(metric, ())
    labels = sorted(frozenset[str]().union(*(series.labels for series in gives)))
    mapped = [
        (label, resource) for label in labels if (resource := rule.converter.resource_for(label)) is not None
    ]
    plain = [label for label in labels if label not in dict(mapped)]
    return RuleTrace(
        rule, external, tuple(known), "", gives, tuple(rejected), named, tuple(mapped), tuple(plain)
    )


def steps(traced: RuleTrace) -> list[str]:
    """Return one line for each step of a rule, in order."""
    if traced.error:
        return [f"the series could not be read: {traced.error}"]
    if not traced.matched:
        return ["matches no series"]
    told = [f"matches {_names(traced.matched)}"]
    reasons = dict.fromkeys(each.reason for each in traced.rejected)
    told += [
        f"dropped by {reason}: {_names([each.series for each in traced.rejected if each.reason == reason])}"
        for reason in reasons
    ]
    for name, series in list(traced.others.items())[:SHOWN]:
        told.append(f"becomes {name or '(a name without a character)'}: {_names(series)}")
    if len(traced.others) > SHOWN:
        told.append(f"and {len(traced.others) - SHOWN} metrics more")
    if traced.gives:
        told.append(f"becomes the metric: {_names(traced.gives)}")
        if not traced.external:
            told += _label_steps(traced)
    return told


def _label_steps(traced: RuleTrace) -> list[str]:
    told = [f"label {label} names {resource.group_resource}" for label, resource in traced.mapped]
    if traced.plain:
        told.append(f"labels that name no kind of object: {listed(traced.plain)}")
    return told


def _names(series: Sequence[SeriesInfo]) -> str:
    return listed([f"{shown(each.name)} ({counted(each.count, 'series', 'series')})" for each in series])


def shown(series: str) -> str:
    """Return the name of a series; one that PromQL cannot write is quoted and cut."""
    return series if matchers.is_series_name(series) else quote(matchers.shorten(series))


def listed(texts: Iterable[str]) -> str:
    """Return the first texts, and how many more there are."""
    every = list(texts)
    more = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return f"{', '.join(every[:SHOWN])}{more}"


def counted(number: int, one: str, several: str) -> str:
    """Return a number with its noun."""
    return f"{number} {one if number == 1 else several}"


def label_names(series: Iterable[SeriesInfo], name: str) -> frozenset[str]:
    """Return the labels of the series of one name."""
    return frozenset[str]().union(*(each.labels for each in series if each.name == name))
