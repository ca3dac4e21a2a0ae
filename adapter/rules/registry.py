"""Which metrics exist, and which series and rule answers each: an immutable snapshot, and the memory it is made from.

The order of prometheus-adapter decides collisions: rules in file order, series in Prometheus' order, the last one wins.

There may be a hundred thousand metrics: what walks over all of them is a generator too, which yields wherever other work may run, and what
exists once for each is kept out of the garbage collector's sight (`gc=False`).
"""

import heapq
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import msgspec

from adapter.errors import NamingError
from adapter.model.metrics import CustomMetricInfo, GroupResource, SeriesInfo
from adapter.model.resources import APIResource
from adapter.rules import matchers
from adapter.rules.compile import Rule, Ruleset
from adapter.rules.naming import NAMESPACES, UNWRITABLE

# prometheus-adapter calls just these root-scoped; everything else is registered under a namespace.
ROOT_SCOPED = frozenset({NAMESPACES, GroupResource("", "nodes"), GroupResource("", "persistentvolumes")})

# A series that is missing from this many answers in a row is forgotten: one blink of a target does not take its metrics away.
_FORGOTTEN_AFTER = 2

_STEP = 1_000
"""How many names or metrics are looked at between two points at which other work may run."""

_NAMED_STEP = 100
"""How many names are made metrics of, which is a dozen times the work; those count too of which a rule makes none."""

_K = TypeVar("_K")
_T = TypeVar("_T")

Steps = Generator[None, None, _T]
"""A computation in steps of about a millisecond; its value is what it returns."""


class CustomEntry(msgspec.Struct, frozen=True, gc=False):
    """What answers one custom metric of one kind of object. `series_count`: how many series of that name there were."""

    resource: APIResource
    series: str
    rule: Rule
    series_count: int


class ExternalEntry(msgspec.Struct, frozen=True, gc=False):
    """What answers one external metric."""

    series: str
    rule: Rule


class CustomKey(msgspec.Struct, frozen=True, gc=False):
    """How a custom metric is asked for: kind, whether under a namespace, name."""

    resource: GroupResource
    namespaced: bool
    metric: str


class Refused(NamedTuple):
    """A rule that gives a metric a name which is not free, by its path."""

    rule: str
    metric: str


class Unwritable(NamedTuple):
    """How many series names a rule would take if PromQL could write them (see `MetricNamer`), and one of them."""

    rule: str
    names: int
    example: str


@dataclass(frozen=True, slots=True)
class Registry:
    """All metrics known at one moment. `generation` grows with every new snapshot.

    The metrics of `refused` and the series of `unwritable` are in none of the others.
    """

    generation: int
    custom: Mapping[CustomKey, CustomEntry]
    external: Mapping[str, ExternalEntry]
    listed: tuple[CustomMetricInfo, ...]
    collisions: tuple[str, ...] = ()
    refused: tuple[Refused, ...] = ()
    unwritable: tuple[Unwritable, ...] = ()

    def resources(self) -> tuple[APIResource, ...]:
        """Return the distinct kinds of object that a metric describes, in order of their names."""
        kinds = {entry.resource.group_resource: entry.resource for entry in self.custom.values()}
        return tuple(kinds[key] for key in sorted(kinds))


EMPTY = Registry(0, {}, {}, ())


class Known(msgspec.Struct, frozen=True, gc=False):
    """A series name that discovery has seen, in how many answers since it was missing, and its labels in the last that had it.

    The labels of `series` are those of the last two answers together: a label that blinks takes no metric away either.
    """

    series: SeriesInfo
    missed: int
    labels: frozenset[str]


# Per series selector: what is known, in the order in which later names win.
Memory = Mapping[str, tuple[Known, ...]]


def run(steps: Steps[_T]) -> _T:
    """Return what a computation in steps comes to, at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            value: _T = end.value
            return value


def remember(
    memory: Memory, selector: str, answer: Sequence[SeriesInfo], *, whole: bool = True
) -> dict[str, tuple[Known, ...]]:
    """Return what `remembering` does, at once."""
    return run(remembering(memory, selector, answer, whole=whole))


def remembering(
    memory: Memory, selector: str, answer: Sequence[SeriesInfo], *, whole: bool = True
) -> Steps[dict[str, tuple[Known, ...]]]:
    """Return the memory after one answer.

    Names and labels missing from a `whole` answer live through one more; what an answer about a shorter time (`whole` false)
    does not hold says nothing. Known-but-missing names stand before the answer's own, so that they never win over what is there.
    """
    seen = {series.name for series in answer}
    earlier: dict[str, Known] = {}
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
        found = _seen_again(series, earlier.get(series.name), whole=whole)
        labels = shared.setdefault(found.labels, found.labels)
        every = shared.setdefault(found.series.labels, found.series.labels)
        kept.append(Known(SeriesInfo(found.series.name, every, found.series.count), found.missed, labels))
    return {**memory, selector: tuple(kept)}


def _seen_again(series: SeriesInfo, earlier: Known | None, *, whole: bool) -> Known:
    """Return what is known of a name that an answer holds; an answer about a shorter time adds and takes nothing away."""
    if earlier is None:
        return Known(series, 0, series.labels)
    if whole:
        return Known(SeriesInfo(series.name, series.labels | earlier.labels, series.count), 0, series.labels)
    merged = SeriesInfo(
        series.name, series.labels | earlier.series.labels, max(series.count, earlier.series.count)
    )
    return Known(merged, 0, series.labels | earlier.labels)


def build(
    ruleset: Ruleset, memory: Memory, generation: int, reserved: Collection[str] = frozenset()
) -> Registry:
    """Return what `building` does, at once."""
    return run(building(ruleset, memory, generation, reserved))


def building(
    ruleset: Ruleset, memory: Memory, generation: int, reserved: Collection[str] = frozenset()
) -> Steps[Registry]:
    """Return the snapshot of what the rules make of the known series; no metric of them has a `reserved` name."""
    collisions: dict[str, None] = {}
    refused: dict[Refused, None] = {}
    unwritable: dict[str, Unwritable] = {}
    custom: dict[CustomKey, CustomEntry] = {}
    listed: dict[tuple[GroupResource, bool], dict[str, None]] = {}
    for count, (rule, series, metric) in enumerate(
        _named(ruleset.custom, memory, reserved, refused, unwritable), 1
    ):
        if count % _NAMED_STEP == 0:
            yield
        if metric is None:
            continue
        for resource in rule.converter.resources_for(series.labels):
            entry = CustomEntry(resource, series.name, rule, series.count)
            for namespaced in _scopes(resource):
                key = CustomKey(resource.group_resource, namespaced, metric)
                _note_collision(collisions, f"{resource.group_resource}/{metric}", custom.get(key), entry)
                custom[key] = entry
                listed.setdefault((key.resource, _listed_scope(key, entry)), {})[metric] = None
    external: dict[str, ExternalEntry] = {}
    for count, (rule, series, metric) in enumerate(
        _named(ruleset.external, memory, reserved, refused, unwritable), 1
    ):
        if count % _NAMED_STEP == 0:
            yield
        if metric is None:
            continue
        found = ExternalEntry(series.name, rule)
        _note_collision(collisions, metric, external.get(metric), found)
        external[metric] = found
    infos = yield from _infos(listed)
    return Registry(
        generation, custom, external, infos, tuple(collisions), tuple(refused), tuple(unwritable.values())
    )


def _infos(listed: Mapping[tuple[GroupResource, bool], Iterable[str]]) -> Steps[tuple[CustomMetricInfo, ...]]:
    """Return the entries of the discovery document, sorted, of the names of each kind and scope."""
    infos: list[CustomMetricInfo] = []
    for kind, namespaced in sorted(listed):
        names = yield from _sorted(listed[kind, namespaced])
        for count, name in enumerate(names, 1):
            if count % _STEP == 0:
                yield
            infos.append(CustomMetricInfo(kind, namespaced, name))
    return tuple(infos)


def _sorted(names: Iterable[str]) -> Steps[list[str]]:
    """Return names in order. Of very many, to sort all at once would take long."""
    every = list(names)
    parts = []
    for start in range(0, len(every), _STEP):
        parts.append(sorted(every[start : start + _STEP]))
        yield
    found: list[str] = []
    for name in heapq.merge(*parts):
        found.append(name)
        if len(found) % _STEP == 0:
            yield
    return found


def same(one: Registry, other: Registry) -> Steps[bool]:
    """Return whether two snapshots have the same metrics, answered by the same."""
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
    memory: Memory,
    reserved: Collection[str],
    refused: dict[Refused, None],
    unwritable: dict[str, Unwritable],
) -> Iterator[tuple[Rule, SeriesInfo, str | None]]:
    """Yield each rule's series with the metric that it makes of each, None for no metric.

    Reserved names are noted in `refused`, names that PromQL cannot write in `unwritable`, by rule.
    """
    for rule in rules:
        place = rule.config.path
        for known in memory.get(rule.config.series_query, ()):
            name = known.series.name
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
            yield rule, known.series, metric


def _scopes(resource: APIResource) -> tuple[bool, ...]:
    """Return under which scopes a kind can be asked for.

    A cluster-scoped kind that prometheus-adapter takes for a namespaced one keeps that form and gets its real one beside it.
    """
    if resource.group_resource in ROOT_SCOPED:
        return (False,)
    return (True,) if resource.namespaced else (True, False)


def _listed_scope(key: CustomKey, entry: CustomEntry) -> bool:
    return entry.resource.namespaced and key.namespaced


def _note_collision(
    collisions: dict[str, None],
    metric: str,
    old: CustomEntry | ExternalEntry | None,
    new: CustomEntry | ExternalEntry,
) -> None:
    """Say once which of two rules, or of two series names of a rule, answers a metric."""
    if old is None:
        return
    if old.rule is not new.rule:
        collisions[f"{metric}: {new.rule.config.path} answers it, {old.rule.config.path} does not"] = None
    else:
        collisions[
            f"{metric}: {new.rule.config.path} makes it from several series names and answers with the last, such as {new.series}"
        ] = None


def namespace_label(rule: Rule) -> str | None:
    """Return the label that holds namespaces, None when the rule names none."""
    try:
        return rule.converter.label_for(NAMESPACES)
    except NamingError:
        return None
