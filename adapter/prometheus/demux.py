"""What the answers of Prometheus say about the objects that were asked for.

Not here: which queries are sent, and when (`querycache`). The law: long work goes in pieces, between which other requests run.
"""

import asyncio
from collections.abc import Iterable, Sequence

from adapter.errors import PrometheusError
from adapter.model.metrics import QueryResult, Sample
from adapter.prometheus.answers import OBJECT_BYTES, weigh_samples
from adapter.rules.plan import plan
from adapter.rules.plan.plan import Objects, PlannedQuery
from adapter.rules.query import MetricQuery, index_samples

PLACED_AT_ONCE = 1_000
"""How many samples of an answer are sorted out between two points at which other work may run."""


def partial_of(
    results: Iterable[QueryResult | PrometheusError], *, accepts_warnings: bool
) -> PrometheusError | None:
    """Return why an answer may lack a part of the data: its first warning, None for a whole answer."""
    warnings = [
        text
        for result in results
        if isinstance(result, QueryResult) and not accepts_warnings
        for text in result.warnings
    ]
    if not warnings:
        return None
    text = f"the answer has a warning, so it may lack data: {warnings[0]!r}"
    return PrometheusError("partial", f"{text} (onWarnings: accept on the rule takes such answers)")


def failure_of(result: QueryResult | PrometheusError) -> PrometheusError | None:
    """Return why a result says nothing about objects: it is a failure, or no vector."""
    if isinstance(result, PrometheusError) or result.type == "vector":
        return result if isinstance(result, PrometheusError) else None
    return PrometheusError("type", f"expected a vector, got a {result.type}")


def pick(query: MetricQuery, objects: Objects, result: QueryResult) -> dict[str, tuple[Sample, ...]]:
    """Return the samples of the objects asked for; PrometheusError for an answer that is not a vector."""
    failure = failure_of(result)
    if failure is not None:
        raise failure
    found = index_samples(result.samples, query.object_label)
    return {name: found[name] for name in objects.names if name in found}


async def place(
    query: MetricQuery, planned: Sequence[PlannedQuery], results: Sequence[QueryResult | PrometheusError]
) -> tuple[dict[str, dict[str, tuple[Sample, ...]]], bool, int]:
    """Return the samples by namespace and name, whether some object had two where it should have one, and about how many bytes they take."""
    placed: dict[str, dict[str, tuple[Sample, ...]]] = {}
    doubled = False
    size = 0
    for one, result in zip(planned, results, strict=True):
        assert isinstance(result, QueryResult)  # failures were dealt with before
        size += weigh_samples(result.samples) + OBJECT_BYTES * len(result.samples)
        for start in range(0, len(result.samples), PLACED_AT_ONCE):
            if start:
                await asyncio.sleep(0)
            for (namespace, name), sample in plan.place_samples(
                query, one, result.samples[start : start + PLACED_AT_ONCE]
            ):
                names = placed.setdefault(namespace, {})
                earlier = names.get(name)
                if earlier is None:
                    names[name] = (sample,)
                else:
                    doubled = doubled or query.doubles(sample, earlier)
                    names[name] = (*earlier, sample)
    return placed, doubled, size
