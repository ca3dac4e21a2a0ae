"""The metrics that exist, each with its series and rule: an immutable snapshot, built from the known series.

The order of prometheus-adapter decides collisions: rules in file order, series in Prometheus' order, the last
one wins.

There may be a hundred thousand metrics. Functions that walk over all of them are generators, which yield
where other tasks may run, and what exists once for each metric is not tracked by the garbage collector
(`gc=False`).
"""

import functools
import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import msgspec

from adapter.model.metrics import CustomMetricInfo, GroupResource, SeriesInfo
from adapter.model.objects.resources import APIResource
from adapter.model.steps import Steps
from adapter.rules import matchers
from adapter.rules.compile import Rule, Ruleset, UsageEntry
from adapter.rules.naming import NAMESPACES, UNWRITABLE

# The only kinds that prometheus-adapter treats as root-scoped; all others are registered under a namespace.
ROOT_SCOPED = frozenset({NAMESPACES, GroupResource("", "nodes"), GroupResource("", "persistentvolumes")})

# A series that is missing from this many answers in a row is forgotten, so that one gap of a target removes
# no metric.
_FORGOTTEN_AFTER = 2

_STEP = 1_000
"""How many names or metrics are processed in a step."""

_NAMED_STEP = 100
"""How many series are named in a step, which is a dozen times the work."""

_K = TypeVar("_K")
_T = TypeVar("_T")


class CustomEntry(msgspec.Struct, frozen=True, gc=False):
    """What defines one custom metric of one kind. `series_count`: how many series of that name exist."""

    resource: APIResource
    series: str
    rule: Rule
    series_count: int


class ExternalEntry(msgspec.Struct, frozen=True, gc=False):
    series: str
    rule: Rule


class Refused(NamedTuple):
    """A rule, by its path, whose metric has a reserved name."""

    rule: str
    metric: str


class Unwritable(NamedTuple):
    """How many series a rule rejects because PromQL cannot write their names, and one of the names."""

    rule: str
    names: int
    example: str


@dataclass(frozen=True, slots=True)
class Registry:
    """All metrics known at one moment. `generation` grows with every new snapshot.

    The metrics of `refused` and the series of `unwritable` are not in the other fields.
    """

    generation: int
    custom: Mapping[CustomMetricInfo, CustomEntry]
    external: Mapping[str, ExternalEntry]
    listed: tuple[CustomMetricInfo, ...]
    collisions: tuple[str, ...] = ()
    refused: tuple[Refused, ...] = ()
    unwritable: tuple[Unwritable, ...] = ()
    usage: UsageEntry | None = None


EMPTY = Registry(0, {}, {}, ())


class KnownSeries(msgspec.Struct, frozen=True, gc=False):
    """A series name from discovery. `missed` counts the answers since that lacked it.

    `labels` are those of the last answer that had it, and the labels of `series` those of the last two: a gap
    of one label removes no metric either.
    """

    series: SeriesInfo
    missed: int
    labels: frozenset[str]


SeriesMemory = Mapping[str, tuple[KnownSeries, ...]]
"""The known series by selector, in the order in which later names win."""


def remembering(
    memory: SeriesMemory, selector: str, answer: Sequence[SeriesInfo], *, whole: bool = True
) -> Steps[dict[str, tuple[KnownSeries, ...]]]:
    """Return the known series after one answer.

    Names and labels missing from a `whole` answer are kept until the next one. What an answer about a shorter
    time (`whole` false) lacks is not missing. Missing names come before the answer's own, so that they never
    win over those.
    """
    seen = {series.name for series in answer}
    earlier: dict[str, KnownSeries] = {}
    kept = []
    for count, known in enumerate(memory.get(selector, ()), 1):
        if count % _STEP == 0:
            yield
        missed = known.missed + whole
        if known.series.name in seen:
            earlier[known.series.name] = known
        elif missed < _FORGOTTEN_AFTER:
            kept.append(msgspec.structs.replace(known, missed=missed))
    shared: dict[frozenset[str], frozenset[str]] = {}  # most names have labels that many others have
    for count, series in enumerate(answer, 1):
        if count % _STEP == 0:
            yield
        labels = every = series.labels
        number = series.count
        if (before := earlier.get(series.name)) is not None:
            every |= before.labels if whole else before.series.labels
            if not whole:  # an answer about a shorter time only adds
                labels |= before.labels
                number = max(number, before.series.count)
        labels, every = shared.setdefault(labels, labels), shared.setdefault(every, every)
        kept.append(KnownSeries(SeriesInfo(series.name, every, number), 0, labels))
    return {**memory, selector: tuple(kept)}


def building(
    ruleset: Ruleset, memory: SeriesMemory, generation: int, reserved: Collection[str] = frozenset()
) -> Steps[Registry]:
    """Return the snapshot that the rules define from the known series; `reserved` names are refused."""
    collisions: dict[str, None] = {}
    refused: dict[Refused, None] = {}
    unwritable: dict[str, Unwritable] = {}
    custom: dict[CustomMetricInfo, CustomEntry] = {}
    listed: dict[tuple[GroupResource, bool], dict[str, None]] = {}
    named = functools.partial(
        _named, memory=memory, reserved=reserved, refused=refused, unwritable=unwritable
    )
    for count, (rule, series, metric) in enumerate(named(ruleset.custom), 1):
        if count % _NAMED_STEP == 0:
            yield
        if metric is None:
            continue
        for resource in rule.converter.resources_for(series.labels):
            entry = CustomEntry(resource, series.name, rule, series.count)
            for namespaced in _scopes(resource):
                key = CustomMetricInfo(resource.group_resource, namespaced, metric)
                _note_collision(collisions, f"{resource.group_resource}/{metric}", custom.get(key), entry)
                custom[key] = entry
                listed.setdefault((key.resource, resource.namespaced and namespaced), {})[metric] = None
    external: dict[str, ExternalEntry] = {}
    for count, (rule, series, metric) in enumerate(named(ruleset.external), 1):
        if count % _NAMED_STEP == 0:
            yield
        if metric is None:
            continue
        entry_external = ExternalEntry(series.name, rule)
        _note_collision(collisions, metric, external.get(metric), entry_external)
        external[metric] = entry_external
    infos = yield from _infos(listed)
    return Registry(
        generation,
        custom,
        external,
        infos,
        tuple(collisions),
        tuple(refused),
        tuple(unwritable.values()),
        ruleset.usage,
    )


def _infos(listed: Mapping[tuple[GroupResource, bool], Iterable[str]]) -> Steps[tuple[CustomMetricInfo, ...]]:
    """Return the sorted entries of the discovery document, from the names of each kind and scope."""
    infos: list[CustomMetricInfo] = []
    for kind, namespaced in sorted(listed):
        names = yield from _sorted(listed[kind, namespaced])
        for count, name in enumerate(names, 1):
            if count % _STEP == 0:
                yield
            infos.append(CustomMetricInfo(kind, namespaced, name))
    return tuple(infos)


def _sorted(names: Iterable[str]) -> Steps[list[str]]:
    """Return names in order, sorted in steps."""
    every = list(names)
    parts = []
    for start in range(0, len(every), _STEP):
        parts.append(sorted(every[start : start + _STEP]))
        yield
    merged: list[str] = []
    for name in heapq.merge(*parts):
        merged.append(name)
        if len(merged) % _STEP == 0:
            yield
    return merged


def same(one: Registry, other: Registry) -> Steps[bool]:
    """Return whether two snapshots have the same metrics with the same definitions."""
    if one.usage != other.usage:
        return False
    return (yield from _equal(one.custom, other.custom)) and (yield from _equal(one.external, other.external))


def _equal(one: Mapping[_K, _T], other: Mapping[_K, _T]) -> Steps[bool]:
    if len(one) != len(other):
        return False
    for count, (key, entry) in enumerate(one.items(), 1):
        if count % _STEP == 0:
            yield
        if other.get(key) != entry:
            return False
    return True


def _named(
    rules: Iterable[Rule],
    memory: SeriesMemory,
    reserved: Collection[str],
    refused: dict[Refused, None],
    unwritable: dict[str, Unwritable],
) -> Iterator[tuple[Rule, SeriesInfo, str | None]]:
    """Yield the series of each rule with their metric names, None for no metric.

    Reserved names are added to `refused`, names that PromQL cannot write to `unwritable`, by rule.
    """
    for rule in rules:
        place = rule.config.path
        for series in _known_series(rule, memory):
            name = series.name
            metric = rule.namer.name(name)
            if (
                metric is None
                and not matchers.is_series_name(name)
                and rule.namer.rejection(name) == UNWRITABLE
            ):
                count, example = unwritable[place][1:] if place in unwritable else (0, name)
                unwritable[place] = Unwritable(place, count + 1, example)
            if metric is not None and metric in reserved:
                refused[Refused(rule.config.path, metric)] = None
                metric = None
            yield rule, series, metric


def _known_series(rule: Rule, memory: SeriesMemory) -> Iterator[SeriesInfo]:
    """Yield the known series of a rule, and the one that its endpoints are scraped for."""
    seen = False
    for known in memory.get(rule.config.series_query, ()):
        seen = seen or known.series.name == rule.named_series
        yield known.series
    if rule.named_series and not seen:
        yield SeriesInfo(rule.named_series, frozenset(), 0)


def _scopes(resource: APIResource) -> tuple[bool, ...]:
    """Return the scopes in which a kind can be requested: namespaced or not.

    A cluster-scoped kind that prometheus-adapter treats as namespaced has both.
    """
    if resource.group_resource in ROOT_SCOPED:
        return (False,)
    return (True,) if resource.namespaced else (True, False)


def _note_collision(
    collisions: dict[str, None],
    metric: str,
    old: CustomEntry | ExternalEntry | None,
    new: CustomEntry | ExternalEntry,
) -> None:
    """Note once which of two rules, or of two series of one rule, defines a metric."""
    if old is None:
        return
    if old.rule is not new.rule:
        collisions[f"{metric}: served by {new.rule.config.path}, not by {old.rule.config.path}"] = None
    else:
        collisions[
            f"{metric}: {new.rule.config.path} finds it in several series names and serves the last, such as "
            f"{new.series}"
        ] = None
