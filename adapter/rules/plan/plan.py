"""Which questions share a query, how that query is written, and which sample answers which question. Pure: nothing is asked here.

The law: a planned answer equals the answer of each question asked alone. Questions come with one `MetricQuery` (equal
metric and equal metric selector); what may be merged is `rules.plan.mergeable`'s verdict.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from adapter.model.metrics import Sample
from adapter.rules import matchers
from adapter.rules.matchers import Matcher
from adapter.rules.query import MetricQuery

# Longest query that a list of names may make: VictoriaMetrics refuses more than 16 KiB.
MAX_QUERY_LENGTH = 15_000

_OBJECTS_BYTES, _NAME_BYTES = 250, 60  # what a question takes, and each name beside its text


class Objects(NamedTuple):
    """The objects of one question, at least one; `namespace` is None for kinds without one."""

    namespace: str | None
    names: tuple[str, ...]

    @property
    def weight(self) -> int:
        """Return about how many bytes it takes in memory."""
        return _OBJECTS_BYTES + _NAME_BYTES * len(self.names) + len("".join(self.names))


class Kind(StrEnum):
    """How a query came about: one question, several, or every object of the metric."""

    ALONE = "alone"
    MERGED = "merged"
    SWEEP = "sweep"


class PlannedQuery(NamedTuple):
    """One query to send. `namespace` is where all its objects live, None when the samples say it themselves (or have none)."""

    promql: str
    kind: Kind
    namespace: str | None
    joined: bool


# Where a sample belongs: namespace ("" for kinds without one) and object name.
Place = tuple[str, str]


def ask_alone(query: MetricQuery, objects: Objects) -> PlannedQuery:
    """Return the query of one question as upstream sends it."""
    return PlannedQuery(
        query.render(objects.namespace, objects.names), Kind.ALONE, objects.namespace, joined=False
    )


def merge(
    query: MetricQuery, questions: Sequence[Objects], limit: int = MAX_QUERY_LENGTH
) -> Iterator[PlannedQuery]:
    """Yield the queries that together answer `questions`, of a query that is separable; lists of names over `limit` are split."""
    if len(questions) == 1:
        alone = ask_alone(query, questions[0])
        if len(alone.promql) <= limit:
            yield alone
            return
    kind = Kind.MERGED if len(questions) > 1 else Kind.ALONE
    wanted: dict[str | None, dict[str, None]] = {}
    for question in questions:
        wanted.setdefault(question.namespace, {}).update(dict.fromkeys(question.names))
    room = _room(query, limit)
    if len(wanted) == 1 or not query.separability.joined:
        for namespace, names in wanted.items():
            for chunk in _chunks(names, room - _cost(namespace or "")):
                yield _in_namespace(query, namespace, chunk, kind)
    else:
        for pack in _packs(wanted, room):
            yield _across(query, pack)


def sweep(query: MetricQuery) -> PlannedQuery:
    """Return the query for every object of the metric; never with empty matchers."""
    present = [matchers.present(label) for label in (query.namespace_label, query.object_label) if label]
    parts = [*query.selector, *present]
    if not query.namespace_label:
        return PlannedQuery(query.render_with(parts), Kind.SWEEP, None, joined=False)
    return PlannedQuery(query.render_joined(parts), Kind.SWEEP, None, joined=True)


def may_sweep(query: MetricQuery) -> bool:
    """Whether one query can be asked for all objects of all namespaces."""
    verdict = query.separability
    return verdict.separable and (not query.namespace_label or bool(verdict.joined))


def place_samples(
    query: MetricQuery, planned: PlannedQuery, samples: Iterable[Sample]
) -> Iterator[tuple[Place, Sample]]:
    """Yield each sample with the object it belongs to; a missing object label counts as the name ""."""
    object_label, namespace_label = query.object_label, query.namespace_label
    if planned.joined:
        for sample in samples:
            labels = sample.labels
            yield (labels.get(namespace_label, ""), labels.get(object_label, "")), sample
    else:
        namespace = planned.namespace or ""
        for sample in samples:
            yield (namespace, sample.labels.get(object_label, "")), sample


def _in_namespace(
    query: MetricQuery, namespace: str | None, names: Sequence[str], kind: Kind
) -> PlannedQuery:
    parts = list(query.selector)
    if query.namespace_label and namespace is not None:
        parts.append(Matcher(query.namespace_label, "=", namespace))
    parts.append(matchers.for_any_of(query.object_label, names))
    return PlannedQuery(query.render_with(parts), kind, namespace, joined=False)


def _across(query: MetricQuery, wanted: dict[str | None, list[str]]) -> PlannedQuery:
    if len(wanted) == 1:
        ((namespace, listed),) = wanted.items()
        return _in_namespace(query, namespace, listed, Kind.MERGED)
    namespaces = sorted(namespace for namespace in wanted if namespace is not None)
    names = dict.fromkeys(name for each in wanted.values() for name in each)
    parts = [
        *query.selector,
        matchers.for_any_of(query.namespace_label, namespaces),
        matchers.for_any_of(query.object_label, names),
    ]
    return PlannedQuery(query.render_joined(parts), Kind.MERGED, None, joined=True)


def _room(query: MetricQuery, limit: int) -> int:
    """Return how many characters of names a query of `limit` has room for: every selector repeats the names."""
    slots = query.rule.query.text.count(".LabelMatchers")
    parts = [Matcher(label, "=~", "") for label in (query.namespace_label, query.object_label) if label]
    base = len(query.render_with([*query.selector, *parts]))
    if query.separability.joined:
        base = max(base, len(query.render_joined([*query.selector, *parts])))
    return max(1, (limit - base) // slots)


def _chunks(names: Iterable[str], room: int) -> Iterator[list[str]]:
    """Yield runs of names that fit a query; always at least one name."""
    chunk: list[str] = []
    used = 0
    for name in names:
        cost = _cost(name)
        if chunk and used + cost > room:
            yield chunk
            chunk, used = [], 0
        chunk.append(name)
        used += cost
    yield chunk


def _packs(wanted: dict[str | None, dict[str, None]], room: int) -> Iterator[dict[str | None, list[str]]]:
    """Yield namespaces with runs of their names that fit a query together."""
    pack: dict[str | None, list[str]] = {}
    used = 0
    for namespace, names in wanted.items():
        for name in names:
            cost = _cost(name) + (0 if namespace in pack else _cost(namespace or ""))
            if pack and used + cost > room:
                yield pack
                pack, used = {}, 0
                cost = _cost(name) + _cost(namespace or "")
            pack.setdefault(namespace, []).append(name)
            used += cost
    yield pack


def _cost(name: str) -> int:
    return len(name) + 2 * name.count(".") + 1


def prefetch(
    query: MetricQuery, wanted: Sequence[Objects], recent: Iterable[Objects], limit: int = MAX_QUERY_LENGTH
) -> list[Objects]:
    """Return the recent questions, in their order, that the last query of `wanted` still has room for.

    Where namespaces cannot share a query, only questions of a namespace that is asked anyway ride along.
    """
    room = _room(query, limit)
    namespaces = {question.namespace for question in wanted}
    anywhere = may_sweep(query)
    used = sum(map(_weight, wanted)) % room
    taken = []
    for question in recent:
        if not anywhere and question.namespace not in namespaces:
            continue
        used += _weight(question)
        if used > room:
            break
        taken.append(question)
    return taken


def _weight(question: Objects) -> int:
    joined = "".join(question.names)  # at once: there may be thousands
    return _cost(question.namespace or "") + _cost(joined) - 1 + len(question.names)
