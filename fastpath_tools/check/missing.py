"""Why a metric that is in Prometheus is not in the API: one sentence that names the cause and the remedy.

`trace_rules` follows the series through the rules: which rule selects, drops and names them. `explain` judges
from these traces and from whether the series exist at all. `empty` explains why a metric that is served has
no value.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from adapter.errors import PrometheusError
from adapter.model.go_text import quote
from adapter.model.metrics import SeriesInfo
from adapter.model.objects.resources import APIResource
from adapter.model.visible import counted, listed
from adapter.rules import matchers, naming
from adapter.rules.compile import Rule, Ruleset
from adapter.rules.matchers import show_series
from adapter.rules.registry import Registry
from fastpath_tools.live.preview import SeriesLists, demanded_labels, may_name, named_series

# Kinds that labels are called after, with whatever exporters put before or behind.
_KINDS = ("namespace", "pod", "deployment", "statefulset", "service", "ingress", "node", "job")
_RULE = re.compile(r"^(.*?\[[0-9]+\])")

# So many of the other metrics that a rule makes are shown.
_SHOWN = 5


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
    error: PrometheusError | None
    gives: tuple[SeriesInfo, ...]
    rejected: tuple[Rejected, ...]
    others: Mapping[str, tuple[SeriesInfo, ...]]
    mapped: tuple[tuple[str, APIResource], ...]
    plain: tuple[str, ...]

    @property
    def place(self) -> str:
        return self.rule.config.path

    def leads_to(self, metric: str) -> bool:
        """Whether the rule drops, renames or does not find what would be the metric, or has an error."""
        names = {name for rejected in self.rejected for name in (rejected.series.name, rejected.otherwise)}
        names |= {series.name for others in self.others.values() for series in others}
        return bool(self.error) or metric in names or self.fixed_name(metric) is not None

    def fixed_name(self, metric: str) -> str | None:
        """Return the only series name that the rule selects, if it would become the metric."""
        name = named_series(self.rule.config.series_query)
        return name if name is not None and self.rule.namer.name(name) == metric else None


def trace_rules(ruleset: Ruleset, lists: SeriesLists, metric: str) -> tuple[RuleTrace, ...]:
    """Return the trace of every rule, custom rules first."""
    rules = [(rule, False) for rule in ruleset.custom] + [(rule, True) for rule in ruleset.external]
    return tuple(
        _trace(rule, lists[rule.config.series_query], metric, external=external) for rule, external in rules
    )


def _trace(
    rule: Rule, known: Sequence[SeriesInfo] | PrometheusError, metric: str, *, external: bool
) -> RuleTrace:
    if isinstance(known, PrometheusError):
        return RuleTrace(rule, external, (), known, (), (), {}, (), ())
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
    labels = sorted(labels_of(gives))
    kinds = [(label, rule.converter.resource_for(label)) for label in labels]
    mapped = tuple((label, resource) for label, resource in kinds if resource is not None)
    plain = tuple(label for label, resource in kinds if resource is None)
    return RuleTrace(rule, external, tuple(known), None, gives, tuple(rejected), named, mapped, plain)


def steps(traced: RuleTrace) -> list[str]:
    if traced.error:
        return [f"the series could not be read: {traced.error}"]
    if not traced.matched:
        return ["matches no series"]
    lines = [f"matches {_names(traced.matched)}"]
    dropped: dict[str, list[SeriesInfo]] = {}
    for series, reason, _ in traced.rejected:
        dropped.setdefault(reason, []).append(series)
    lines += [f"dropped by {reason}: {_names(series)}" for reason, series in dropped.items()]
    for name, others in list(traced.others.items())[:_SHOWN]:
        lines.append(f"becomes {name or '(an empty name)'}: {_names(others)}")
    if len(traced.others) > _SHOWN:
        lines.append(f"and {len(traced.others) - _SHOWN} more metrics")
    if traced.gives:
        lines.append(f"becomes the metric: {_names(traced.gives)}")
    if traced.gives and not traced.external:
        lines += [f"label {label} names {resource.group_resource}" for label, resource in traced.mapped]
        if traced.plain:
            lines.append(f"labels that name no kind of object: {listed(traced.plain)}")
    return lines


def _names(series: Sequence[SeriesInfo]) -> str:
    return listed([f"{show_series(one.name)} ({counted(one.count, 'series', 'series')})" for one in series])


def labels_of(series: Iterable[SeriesInfo]) -> frozenset[str]:
    return frozenset[str]().union(*(one.labels for one in series))


# --- the judgement


@dataclass(frozen=True, slots=True)
class MissingCase:
    """What is known of a metric that is not served.

    `probes` are the series lists of `probe_names`, by name; `left_out` the paths of rules with faults;
    `look_back` how far back series were looked for, as people write it.
    """

    metric: str
    traces: Sequence[RuleTrace]
    probes: SeriesLists
    registry: Registry
    left_out: Sequence[str]
    look_back: str

    def known(self, name: str) -> tuple[SeriesInfo, ...]:
        """Return the series of a name, none where they could not be read."""
        answer = self.probes.get(name, ())
        return () if isinstance(answer, PrometheusError) else tuple(one for one in answer if one.name == name)

    def related(self, name: str) -> str:
        """Return the names of the series that a histogram or a counter of a name has, "" for none."""
        answer = self.probes.get(name, ())
        return "" if isinstance(answer, PrometheusError) else listed(sorted({one.name for one in answer}))


_SUFFIX = re.compile(r"_(?:bucket|count|sum|total)\Z")


def probe(name: str) -> str:
    """Return the selector of the series of a name, with any ending of a histogram or counter."""
    if not matchers.is_series_name(name):
        return f"{{__name__={quote(name)}}}"
    return f'{{__name__=~"{_SUFFIX.sub("", name)}(_bucket|_count|_sum|_total)?"}}'


def probe_names(metric: str, traces: Iterable[RuleTrace]) -> tuple[str, ...]:
    """Return the series names to look for outside any rule.

    The metric's own, and those of rules that match nothing.
    """
    fixed = [
        name for traced in traces if not traced.matched and (name := traced.fixed_name(metric)) is not None
    ]
    return tuple(dict.fromkeys([metric, *fixed]))


def rules_of(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the rules that faults lie in, from the faults' paths.

    What lies outside a rule counts as itself.
    """
    return tuple(
        dict.fromkeys(match[1] if (match := _RULE.match(path)) else path or "the file" for path in paths)
    )


def explain(case: MissingCase) -> str:
    return next(sentence for judge in _JUDGES if (sentence := judge(case)))


def _unmapped(case: MissingCase) -> str:
    """Judge series that become the metric and name no object."""
    for traced in case.traces:
        if traced.gives and not traced.external and not traced.mapped:
            labels = "it has no label that could name an object"
            if traced.plain:
                labels = f"none of its labels ({listed(traced.plain)}) names a kind of object"
            example = ", ".join(guess_overrides(traced.plain))
            example = example or "pod: {resource: pod}, namespace: {resource: namespace}"
            return (
                f"{traced.place} makes {case.metric} of {traced.gives[-1].name}, but {labels}: map them in "
                f"its resources.overrides, such as {example}"
            )
    return ""


def guess_overrides(labels: Iterable[str]) -> list[str]:
    """Return overrides for labels that are called after a kind, as one would write them."""
    guesses: dict[str, str] = {}
    for label in labels:
        words = label.lower().split("_")
        kind = next((kind for kind in _KINDS if kind in words), None)
        if kind is not None:
            guesses.setdefault(kind, f"{label}: {{resource: {kind}}}")
    return list(guesses.values())


def _dropped(case: MissingCase) -> str:
    """Judge a filter that drops the series that would become the metric, or the series of its name."""
    for traced in case.traces:
        for rejected in traced.rejected:
            if case.metric not in {rejected.otherwise, rejected.series.name}:
                continue
            if rejected.reason == naming.UNWRITABLE:
                return (
                    f"{traced.place} leaves out the series {show_series(rejected.series.name)}, because it "
                    f"has {naming.UNWRITABLE}: rename it when it is scraped (metric_relabel_configs), or by "
                    "a recording rule"
                )
            return (
                f"{traced.place} drops the series {rejected.series.name} by {rejected.reason}: change that, "
                "or add a rule that takes the series"
            )
    return ""


def _renamed(case: MissingCase) -> str:
    """Judge a metric that is the name of a series which a rule serves under another."""
    for traced in case.traces:
        for name, series in traced.others.items():
            if any(one.name == case.metric for one in series):
                return (
                    f"{traced.place} serves the series {case.metric} as {name}: request that name, or change "
                    "its name.as"
                )
    return ""


def _unread(case: MissingCase) -> str:
    """Judge a rule that could give the metric and whose series were not read."""
    errors = [traced.error for traced in case.traces if traced.error]
    is_same = len(errors) == len(case.traces) and len({*map(str, errors)}) == 1
    if is_same and (len(errors) > 1 or errors[0].kind == "unreachable"):
        remedy = "check the address of Prometheus, and that it is up"
        return f"no series could be read ({errors[0]}): {remedy}"
    for traced in case.traces:
        if traced.error and traced.rule.namer.may_give(case.metric):
            unread = f"the series of {traced.place} could not be read ({traced.error})"
            return f"{unread}: fix its seriesQuery or the connection"
    return ""


def _missing(case: MissingCase) -> str:
    """Judge a rule that makes the metric of one series name and matches none now."""
    for traced in case.traces:
        name = None if traced.matched else traced.fixed_name(case.metric)
        if name is None:
            continue
        known = case.known(name)
        if not known:
            others = case.related(name)
            remedy = (
                f"it has {others}: select one of these"
                if others
                else "check that its targets are up, and the name"
            )
            return (
                f"{traced.place} makes {case.metric} of {name}, and Prometheus has had no such series in the "
                f"last {case.look_back}: {remedy}"
            )
        labels = labels_of(known)
        demanded = sorted(demanded_labels(traced.rule.config.series_query) - labels)
        if demanded:
            return (
                f"Prometheus has {name}, but not with {_label(demanded)} that the seriesQuery of "
                f"{traced.place} demands: write the rule with labels that are there "
                f"({listed(sorted(labels))}), or have them added when it is scraped"
            )
        return (
            f"Prometheus has {name}, but no series passes all matchers in the seriesQuery of {traced.place}: "
            "compare their values with the labels of the series"
        )
    return ""


def _label(names: Sequence[str]) -> str:
    return f"the label{'s' if len(names) > 1 else ''} {listed(names)}"


def _other_case(case: MissingCase) -> str:
    """Judge an external metric with capitals, which autoscalers ask for in lower case."""
    for name in case.registry.external:
        if name.lower() == case.metric.lower():
            return (
                f"{name} is served, but autoscalers request external metrics in lower case and never find "
                f"it: give it a lower-case name through name.as"
            )
    return ""


def _left_out(case: MissingCase) -> str:
    if not case.left_out:
        return ""
    what = f"{listed(case.left_out)} {'is' if len(case.left_out) == 1 else 'are'}"
    return f"no valid rule makes {case.metric}, and {what} left out because of a fault: fix that first"


def _unclaimed(case: MissingCase) -> str:
    """Judge series of this very name that no rule asks for."""
    known = case.known(case.metric)
    if not known:
        return ""
    labels = labels_of(known)
    number = counted(sum(series.count for series in known), "series", "series")
    lacking: list[tuple[int, str]] = []
    for traced in case.traces:
        demanded = sorted(demanded_labels(traced.rule.config.series_query) - labels)
        if demanded and may_name(traced.rule.config.series_query, case.metric):
            advice = f"{traced.place} demands {_label(demanded)}: add that to the series, or a rule for them"
            lacking.append((len(demanded), f"; {advice}"))
    remedy = min(lacking)[1] if lacking else ": add a rule for it"
    return f"Prometheus has {case.metric} ({number}), and no rule's seriesQuery matches it{remedy}"


def _misspelt(case: MissingCase) -> str:
    served = {key.metric for key in case.registry.custom} | case.registry.external.keys()
    close = difflib.get_close_matches(case.metric, sorted(served), n=1)
    is_typo = close and not case.related(case.metric)
    return f"no rule makes {case.metric}: did you mean {close[0]}?" if is_typo else ""


def _unknown(case: MissingCase) -> str:
    if not case.traces:
        return "the file has no rule: add one that selects the series"
    others = case.related(case.metric)
    return (
        f"no rule makes {case.metric} of the series there are, and Prometheus has had no series of that name "
        f"in the last {case.look_back}{others and f', but {others}'}: check the spelling, or add a rule"
    )


_JUDGES: tuple[Callable[[MissingCase], str], ...] = (
    _unmapped,
    _dropped,
    _renamed,
    _unread,
    _missing,
    _other_case,
    _left_out,
    _unclaimed,
    _misspelt,
    _unknown,
)
