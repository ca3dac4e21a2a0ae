"""Plans queries: which requests share one, how it is written, and which sample belongs to which object.

HorizontalPodAutoscalers ask for the same metric of different objects, each with a request of its own. One
query can answer many of them, if it gives each object the same samples as a query for that object alone. It
does under these conditions:

1. The requests have one `MetricQuery`: the same rule, series and metric selector, and the same kind of
   object. The queries then differ only in the matchers that name objects.
2. The query is separable (`mergeable`): every operation in it works series by series, or groups by labels
   that include the object's. Each selector has all of `.LabelMatchers`, so series of other objects have no
   part in an object's result. Then a query with ``pod=~"a|b"`` returns the union of what ``pod="a"`` and
   ``pod="b"`` return, and the object's label says which sample belongs to which object. A query with
   ``topk`` or without a grouping, for example, is never merged.
3. Objects of several namespaces share a query only if the namespace's label can be added to every grouping
   (the joined form), because two namespaces may have objects of one name. The combination of namespaces and
   names may match objects that no request named; their samples are ignored. Otherwise each namespace has a
   query of its own.

Names are escaped in a merged query, so that a dot matches only a dot; a query for one object is written as
upstream writes it. A query with many names is split at `MAX_QUERY_LENGTH`. A sweep has no names: its matchers
only require that the labels of the namespace and of the object exist.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from adapter.model import memo
from adapter.model.metrics import Sample
from adapter.rules import matchers
from adapter.rules.matchers import Matcher
from adapter.rules.query import MetricQuery

# Bound on a query with a list of names: VictoriaMetrics refuses more than 16 KiB.
MAX_QUERY_LENGTH = 15_000

ALONE_BYTES = 4 * 1024 * 1024
"""Bound on the queries for one request that are kept: autoscalers repeat their requests."""

_OBJECTS_BYTES, _NAME_BYTES = 250, 60  # estimated bytes of a request, and of each name beside its text


class Objects(NamedTuple):
    """The objects of one request, at least one; `namespace` is None for cluster-scoped kinds."""

    namespace: str | None
    names: tuple[str, ...]

    @property
    def weight(self) -> int:
        """Estimated bytes."""
        return _OBJECTS_BYTES + _NAME_BYTES * len(self.names) + len("".join(self.names))


class QueryKind(StrEnum):
    """Whether a query answers one request, several, or all requests for the metric."""

    ALONE = "alone"
    MERGED = "merged"
    SWEEP = "sweep"


class PlannedQuery(NamedTuple):
    """One query to send. `namespace` is that of all its objects, None if it is cluster-scoped or joined."""

    promql: str
    kind: QueryKind
    namespace: str | None
    joined: bool


def ask_alone(query: MetricQuery, objects: Objects) -> PlannedQuery:
    """Return the query for one request as upstream sends it."""
    return _ask_alone((query, objects))


def _weigh(request: tuple[MetricQuery, Objects]) -> int:
    query, objects = request
    return 2 * (query.weight + objects.weight)  # the text is about as long again


@memo.remember(ALONE_BYTES, _weigh)
def _ask_alone(request: tuple[MetricQuery, Objects]) -> PlannedQuery:
    query, objects = request
    return PlannedQuery(
        query.render(objects.namespace, objects.names), QueryKind.ALONE, objects.namespace, joined=False
    )


def merge(
    query: MetricQuery, requests: Sequence[Objects], limit: int = MAX_QUERY_LENGTH
) -> Iterator[PlannedQuery]:
    """Yield the queries that together answer `requests`. The query must be separable.

    Lists of names that make a query longer than `limit` are split.
    """
    if len(requests) == 1:
        alone = ask_alone(query, requests[0])
        if len(alone.promql) <= limit:
            yield alone
            return
    kind = QueryKind.MERGED if len(requests) > 1 else QueryKind.ALONE
    wanted: dict[str | None, dict[str, None]] = {}
    for request in requests:
        wanted.setdefault(request.namespace, {}).update(dict.fromkeys(request.names))
    room = _room(query, limit)
    joins = bool(query.separability.joined)
    for group in [wanted] if joins else [{namespace: names} for namespace, names in wanted.items()]:
        for pack in _packs(group, room):
            yield _plan(query, pack, kind)


def sweep(query: MetricQuery) -> PlannedQuery:
    """Return the query for every object of the metric; its matchers are never empty."""
    present = [matchers.present(label) for label in (query.namespace_label, query.object_label) if label]
    joined = bool(query.namespace_label)
    render = query.render_joined if joined else query.render_with
    return PlannedQuery(render([*query.selector, *present]), QueryKind.SWEEP, None, joined=joined)


def place_samples(
    query: MetricQuery, planned: PlannedQuery, samples: Iterable[Sample]
) -> Iterator[tuple[tuple[str, str], Sample]]:
    """Yield each sample with namespace ("" for cluster-scoped kinds) and name of the object it belongs to.

    A missing object label counts as the name "".
    """
    object_label, namespace_label = query.object_label, query.namespace_label
    if planned.joined:
        for sample in samples:
            labels = sample.labels
            yield (labels.get(namespace_label, ""), labels.get(object_label, "")), sample
    else:
        namespace = planned.namespace or ""
        for sample in samples:
            yield (namespace, sample.labels.get(object_label, "")), sample


def _plan(query: MetricQuery, wanted: dict[str | None, list[str]], kind: QueryKind) -> PlannedQuery:
    if len(wanted) > 1:
        namespaces = sorted(namespace for namespace in wanted if namespace is not None)
        names = dict.fromkeys(itertools.chain.from_iterable(wanted.values()))
        of_namespaces = matchers.for_any_of(query.namespace_label, namespaces)
        of_names = matchers.for_any_of(query.object_label, names)
        text = query.render_joined([*query.selector, of_namespaces, of_names])
        return PlannedQuery(text, kind, None, joined=True)
    ((namespace, listed),) = wanted.items()
    parts = list(query.selector)
    if query.namespace_label and namespace is not None:
        parts.append(Matcher(query.namespace_label, "=", namespace))
    parts.append(matchers.for_any_of(query.object_label, listed))
    return PlannedQuery(query.render_with(parts), kind, namespace, joined=False)


def _room(query: MetricQuery, limit: int) -> int:
    """Return for how many characters of names a query has room: every selector repeats the names."""
    slots = query.rule.query.text.count(".LabelMatchers")
    parts = [Matcher(label, "=~", "") for label in (query.namespace_label, query.object_label) if label]
    base = len(query.render_with([*query.selector, *parts]))
    if query.separability.joined:
        base = max(base, len(query.render_joined([*query.selector, *parts])))
    return max(1, (limit - base) // slots)


def _packs(wanted: dict[str | None, dict[str, None]], room: int) -> Iterator[dict[str | None, list[str]]]:
    """Yield namespaces with lists of their names that fit a query together."""
    pack: dict[str | None, list[str]] = {}
    used = 0
    for namespace, names in wanted.items():
        taken: list[str] = []
        for name in names:
            cost = _cost(name) + (0 if taken else _cost(namespace or ""))
            if pack and used + cost > room:
                yield pack
                pack, used, taken = {}, 0, []
                cost = _cost(name) + _cost(namespace or "")
            taken.append(name)
            pack[namespace] = taken
            used += cost
    yield pack


def _cost(name: str) -> int:
    return len(name) + 2 * name.count(".") + 1


def prefetch(
    query: MetricQuery, wanted: Sequence[Objects], recent: Iterable[Objects], limit: int = MAX_QUERY_LENGTH
) -> list[Objects]:
    """Return the recent requests, in their order, for which the last query of `wanted` has room left.

    If namespaces cannot share a query, only requests for a namespace of `wanted` are returned.
    """
    room = _room(query, limit)
    namespaces = {request.namespace for request in wanted}
    anywhere = query.sweepable
    used = sum(map(_weight, wanted)) % room
    taken = []
    for request in recent:
        if not anywhere and request.namespace not in namespaces:
            continue
        used += _weight(request)
        if used > room:
            break
        taken.append(request)
    return taken


def _weight(request: Objects) -> int:
    joined = "".join(request.names)  # at once: there may be thousands
    return _cost(request.namespace or "") + _cost(joined) - 1 + len(request.names)
