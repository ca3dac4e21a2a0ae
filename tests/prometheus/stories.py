"""A query cache over a Prometheus that answers when a test lets it."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence

import yaml

from adapter.errors import PrometheusError
from adapter.model.metrics import QueryResult
from adapter.model.objects.label_selectors import parse_selector
from adapter.prometheus.answers import Freshness
from adapter.prometheus.query_cache import QueryCache
from adapter.rules import matchers
from adapter.rules.query import MetricQuery
from adapter.rules.query_plan import Objects
from adapter.telemetry.metrics import Monitoring
from tests.support.clock import FakeClock
from tests.support.world import FakeQuerier, Outcome, compile_rule, vector

FRESHNESS = Freshness(ttl=1.0, max_age=30.0)
SUM = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
HALF = "<<.Series>>{<<.LabelMatchers>>} * on (ns, pod) sum by (pod) (y{<<.LabelMatchers>>})"
TOP = "topk(1, <<.Series>>{<<.LabelMatchers>>})"


class HeldPrometheus(FakeQuerier):
    """Holds every query until the test releases it, or answers at once with `reply`."""

    def __init__(self) -> None:
        super().__init__(named_objects)
        self.reply: Callable[[str], Outcome] | None = None
        self._held: dict[int, asyncio.Future[Outcome]] = {}

    async def wait(self, promql: str) -> Outcome:
        if self.reply is not None:
            return self.reply(promql)
        held: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._held[len(self.asked) - 1] = held
        return await held

    def release(self, number: int, outcome: Outcome | None = None) -> None:
        """Answer the query of this number, in the order of arrival, by default with every object it names."""
        self._held.pop(number).set_result(self.answer(self.asked[number]) if outcome is None else outcome)


def named_objects(promql: str) -> QueryResult:
    """Return a sample for each pod that a query names, of value 1, in the namespaces it names.

    For a sweep the pods p and q of the namespaces a and b.
    """

    def values(label: str, otherwise: Sequence[str]) -> Sequence[str]:
        found = re.search(rf'{label}=~?"([^"]*)"', promql)
        return found[1].replace(r"\\", "").split("|") if found else otherwise

    return vector(
        *(
            ({"ns": ns, "pod": pod}, 1.0)
            for ns in values("ns", ["a", "b"] if "ns!=" in promql else ["a"])
            for pod in values("pod", ["p", "q"] if "pod!=" in promql else ["p"])
        )
    )


class AskedCache:
    """A cache, the Prometheus behind it, and a clock that stands."""

    def __init__(self) -> None:
        self.prometheus = HeldPrometheus()
        self.clock = FakeClock()
        self.query = metric_query()
        self.renew()
        self._asking: list[asyncio.Task[object]] = []

    def renew(self) -> None:
        """Make the cache, which reads its limits."""
        self.monitoring = Monitoring()
        self.cache = QueryCache(self.prometheus, self.clock, self.monitoring)

    def text(
        self,
        promql: str,
        freshness: Freshness = FRESHNESS,
        *,
        takes_partial: bool = False,
        accepts_warnings: bool = False,
    ) -> asyncio.Task[object]:
        return self._start(
            self.cache.ask(promql, freshness, takes_partial=takes_partial, accepts_warnings=accepts_warnings)
        )

    def objects(
        self,
        namespace: str | None,
        *names: str,
        query: MetricQuery | None = None,
        expected: int = 0,
        freshness: Freshness = FRESHNESS,
        takes_partial: bool = False,
    ) -> asyncio.Task[object]:
        objects = Objects(namespace, names)
        asking = self.cache.ask_objects(
            query or self.query, objects, freshness, expected, takes_partial=takes_partial
        )
        return self._start(asking)

    def _start(self, asking: Awaitable[object]) -> asyncio.Task[object]:
        async def wait() -> object:
            try:
                return await asking
            except PrometheusError as error:
                return error

        self._asking.append(asyncio.create_task(wait()))
        return self._asking[-1]

    async def settle(self) -> list[str]:
        """Let everything run that can; return the queries sent so far."""
        for _ in range(20):
            await asyncio.sleep(0)
        return self.prometheus.asked

    async def end(self) -> None:
        for task in self._asking:
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)
        await self.cache.__aexit__(None, None, None)

    def cache_metric(self, metric: str, cache: str) -> float:
        return self.monitoring.registry.get_sample_value(f"fastpath_cache_{metric}", {"cache": cache}) or 0.0


def metric_query(
    template: str = SUM, selector: str = "", series: str = "x", namespace_label: str = "ns"
) -> MetricQuery:
    rule = compile_rule(yaml.safe_dump({"rules": [{"seriesQuery": "x", "metricsQuery": template}]}))
    return MetricQuery(rule, series, matchers.from_selector(parse_selector(selector)), namespace_label, "pod")


def of_metric(query: MetricQuery, series: str, *selector: matchers.Matcher) -> MetricQuery:
    """Return the query of another metric or selector by the same rule."""
    return MetricQuery(query.rule, series, selector, "ns", "pod")
