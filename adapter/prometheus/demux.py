"""Demultiplexing: which sample of an answer belongs to which object, and whether the answer is complete.

An answer may have a hundred thousand samples, so it is processed in steps between which other tasks may run.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from adapter.errors import PrometheusError
from adapter.model.metrics import QueryResult, Sample
from adapter.prometheus.answers import OBJECT_BYTES, weigh_samples
from adapter.rules.plan import plan
from adapter.rules.plan.plan import Objects, PlannedQuery
from adapter.rules.query import MetricQuery, index_samples

STEP_SAMPLES = 1_000
"""How many samples of an answer are processed in one step."""


class Demuxed(NamedTuple):
    """Samples by namespace and name, whether an object has too many of them, and their estimated bytes."""

    samples: Mapping[str, Mapping[str, tuple[Sample, ...]]]
    duplicates: bool
    size: int


async def demux(
    query: MetricQuery, planned: Sequence[PlannedQuery], results: Sequence[QueryResult]
) -> Demuxed:
    """Return which sample belongs to which object, in steps between which other tasks may run."""
    samples: dict[str, dict[str, tuple[Sample, ...]]] = {}
    duplicates = False
    size = 0
    for one, result in zip(planned, results, strict=True):
        size += weigh_samples(result.samples) + OBJECT_BYTES * len(result.samples)
        for start in range(0, len(result.samples), STEP_SAMPLES):
            if start:
                await asyncio.sleep(0)
            step = result.samples[start : start + STEP_SAMPLES]
            for (namespace, name), sample in plan.place_samples(query, one, step):
                names = samples.setdefault(namespace, {})
                earlier = names.get(name)
                if earlier is None:
                    names[name] = (sample,)
                else:
                    duplicates = duplicates or query.doubles(sample, earlier)
                    names[name] = (*earlier, sample)
    return Demuxed(samples, duplicates, size)


def select_samples(
    query: MetricQuery, objects: Objects, result: QueryResult
) -> dict[str, tuple[Sample, ...]]:
    """Return the samples of the requested objects. Raises PrometheusError unless the answer is a vector."""
    expect_vector(result)
    samples = index_samples(result.samples, query.object_label)
    return {name: samples[name] for name in objects.names if name in samples}


def expect_vector(result: QueryResult) -> None:
    """Raise PrometheusError for an answer without labels, which says nothing about objects."""
    if result.type != "vector":
        raise PrometheusError("type", f"expected a vector, got a {result.type}")


def find_warning(results: Sequence[QueryResult], *, accepts_warnings: bool) -> PrometheusError | None:
    """Return why an answer may lack data: its first warning; None for a complete answer."""
    if accepts_warnings:
        return None
    warnings = [text for result in results for text in result.warnings]
    if not warnings:
        return None
    text = f"the answer has a warning, so it may lack data: {warnings[0]!r}"
    return PrometheusError("partial", f"{text} (onWarnings: accept on the rule takes such answers)")
