"""Answers of a real Prometheus, asked in several ways about cases at random, and compared."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import hypothesis
from hypothesis import strategies as st

from adapter.prometheus.client import PrometheusClient
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.prometheus.scripted import connection_options
from tests.support.clock import FakeClock

AT = 1_700_000_000.0


class RandomComparison:
    """Asks one case in every way and compares. Counts what was seen, so that a test has shown something."""

    def __init__(self, client: PrometheusClient, clock: FakeClock, monitoring: Monitoring) -> None:
        self.client, self.clock, self.monitoring = client, clock, monitoring
        self.seen: Counter[str] = Counter()

    async def check(self, case: Any) -> None:
        raise NotImplementedError


Made = TypeVar("Made", bound=RandomComparison)


def compare(kind: type[Made], url: str, make_case: Callable[[int], object], examples: int) -> Made:
    """Compare so many cases, each made from a seed; count the queries by their type too."""
    clock, monitoring = FakeClock(wall=AT), Monitoring()
    with asyncio.Runner() as runner:
        opened = PrometheusClient.open(
            connection_options(url), clock, monitoring, ProblemLog(monitoring, clock)
        )
        made = kind(runner.run(opened), clock, monitoring)

        @hypothesis.settings(max_examples=examples, deadline=None, database=None)
        @hypothesis.given(seed=st.integers(0, 2**64))
        def check(seed: int) -> None:
            case = make_case(seed)
            hypothesis.note(f"{case}")
            runner.run(made.check(case))

        try:
            check()
        finally:
            runner.run(made.client.close())
    for sent in ("alone", "merged", "sweep"):
        labels = {"type": sent, "outcome": "success"}
        count = monitoring.registry.get_sample_value("fastpath_prometheus_queries_total", labels)
        made.seen[sent] = int(count or 0)
    return made
