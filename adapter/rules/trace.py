"""Why a metric is in Prometheus and not in the API: what each rule makes of the series that exist, step by step.

Pure: series lists come in, sentences go out. Asking Prometheus is the caller's.
"""

from collections.abc import Sequence
from typing import NamedTuple

from adapter.model.metrics import SeriesInfo
from adapter.rules.compile import Rule

_SHOWN = 5


class RuleTrace(NamedTuple):
    """What one rule makes of its series. `gives` are the series names that become the metric asked about; `steps` the sentences."""

    rule: Rule
    gives: tuple[SeriesInfo, ...]
    steps: tuple[str, ...]


def trace_rule(rule: Rule, known: Sequence[SeriesInfo], metric: str, *, external: bool) -> RuleTrace:
    """Return what became of each series: matched, rejected by which filter, named what, mapped to which kinds of object."""
    if not known:
        return RuleTrace(rule, (), ("seriesQuery matches no series",))
    steps = [f"seriesQuery matches {_names(known)}"]
    rejected: dict[str, list[SeriesInfo]] = {}
    named: dict[str, list[SeriesInfo]] = {}
    for series in known:
        reason = rule.namer.rejection(series.name)
        if reason is not None:
            rejected.setdefault(reason, []).append(series)
        else:
            named.setdefault(rule.namer.name(series.name) or "", []).append(series)
    steps += [f"{_names(dropped)}: dropped by {reason}" for reason, dropped in rejected.items()]
    given = named.pop(metric, [])
    steps += [f"{_names(others)}: named {name}" for name, others in list(named.items())[:_SHOWN]]
    if len(named) > _SHOWN:
        steps.append(f"... and {len(named) - _SHOWN} other metric names")
    if not given:
        return RuleTrace(rule, (), (*steps, f"no series becomes {metric}"))
    steps.append(f"{_names(given)}: named {metric}")
    if not external:
        steps += _mapping(rule, given)
    return RuleTrace(rule, tuple(given), tuple(steps))


def _mapping(rule: Rule, given: Sequence[SeriesInfo]) -> list[str]:
    """Say which labels name objects; a series without any is listed nowhere."""
    labels = sorted(frozenset().union(*(series.labels for series in given)) - {"__name__"})
    mapped = [(label, resource) for label in labels if (resource := rule.converter.resource_for(label)) is not None]
    steps = [f"label {label} names {resource.group_resource}" for label, resource in mapped]
    plain = [label for label in labels if label not in {label for label, _ in mapped}]
    if plain:
        steps.append(f"labels that name no object: {_listed(plain)}")
    if not mapped:
        steps.append("no label names an object, so the metric is listed nowhere: add an override or a template")
    return steps


def _names(series: Sequence[SeriesInfo]) -> str:
    shown = _listed([f"{each.name} ({each.count} series)" if each.count != 1 else f"{each.name} (1 series)" for each in series])
    return shown


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return f"{', '.join(texts[:_SHOWN])}{more}"
