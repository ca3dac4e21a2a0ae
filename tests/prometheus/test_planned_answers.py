"""On a real Prometheus: planned answers equal those of each request sent alone, for any rule and any
requests.

Rules are made of all aggregations, functions over one series, matchers, binary and set operators, and of what
must not be merged. Objects share names across namespaces and have dots in their names; some have no series,
some have several.
"""

import asyncio
import itertools
import math
import random
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import pytest
import yaml

from adapter.errors import PrometheusError
from adapter.model.metrics import QueryResult
from adapter.model.objects.label_selectors import parse_selector
from adapter.prometheus.answers import Freshness
from adapter.prometheus.client import PrometheusClient
from adapter.prometheus.query_cache import QueryCache
from adapter.rules import matchers, query_plan
from adapter.rules.query import MetricQuery
from adapter.rules.query_plan import Objects
from tests.prometheus.compared import AT, RandomComparison, compare
from tests.support.prometheus import PrometheusFactory
from tests.support.world import compile_rule

EXAMPLES = 200
Chosen = TypeVar("Chosen")
FRESHNESS = Freshness(ttl=1.0, max_age=1.5)

NAMESPACES = ("n1", "n2", "n.3")
PODS = ("a", "b", "a.b", "axb", "c")
FLAGGED = {("n1", "a"), ("n2", "b"), ("n2", "a.b"), ("n.3", "a"), ("n.3", "axb")}


def _samples() -> str:
    """Return five minutes of series in OpenMetrics: some objects have several, `c` is in one namespace."""
    lines: dict[str, list[str]] = {
        name: [] for name in ("gauge", "ratio", "flag", "rank", "hits", "wait_bucket")
    }
    for number, (namespace, pod) in enumerate(itertools.product(NAMESPACES, PODS)):
        if pod == "c" and namespace != "n2":
            continue
        service = "web" if pod in {"a", "a.b"} else "web.api"
        labels = f'namespace="{namespace}",pod="{pod}",service="{service}",node="node-{number % 3}"'
        for step in range(21):
            time = int(AT) - 300 + 15 * step
            for instance in range(1 + number % 2):
                code = "xyz"[(number + instance) % 3]
                more = f'{labels},instance="i{instance}",code="{code}"'
                lines["gauge"].append(f"gauge{{{more}}} {(number * 7 + instance * 3 + step) % 11 - 3} {time}")
                lines["hits"].append(f"hits_total{{{more}}} {step * (number + 1) + instance} {time}")
            if (namespace, pod) in FLAGGED:
                lines["flag"].append(f"flag{{{labels}}} {number % 2 + 1} {time}")
            if number % 5 != 3:
                lines["ratio"].append(f"ratio{{{labels}}} {number % 4} {time}")
            lines["rank"].append(f"rank{{{labels}}} {number * 7 % 13} {time}")
            for le, share in (("1", 1), ("5", 3), ("+Inf", 4)):
                lines["wait_bucket"].append(
                    f'wait_bucket{{{labels},le="{le}"}} {step * share * (number + 1)} {time}'
                )
    # promtool wants the samples of one series together and in the order of time
    return "\n".join(line for each in lines.values() for line in sorted(each, key=_series_and_time))


def _series_and_time(line: str) -> tuple[str, int]:
    series, _, rest = line.rpartition("} ")
    return series, int(rest.split()[1])


# --- rules ----------------------------------------------------------------------------------------
# `@` stands for <<.LabelMatchers>>, `#` for <<.GroupBy>>.

SELECTORS = (
    "gauge{@}",
    'gauge{@,code="x"}',
    'gauge{code!="y",@}',
    'gauge{@,pod!="",namespace=~".+"}',
    'gauge{code=~"x|z",@}',
    "ratio{@}",
    "flag{@}",
    "ratio{@} offset 15s",
    f"ratio{{@}} @ {int(AT) - 30}",
)
RANGE_FUNCTIONS = ("rate", "irate", "delta", "changes", "max_over_time", "last_over_time", "deriv")
RANGES = ("hits_total{@}[1m]", "gauge{@}[45s]", "hits_total{@}[2m] offset 30s")
HISTOGRAMS = (
    "histogram_quantile(0.9, sum by (#, le) (rate(wait_bucket{@}[1m])))",
    "histogram_quantile(0.5, rate(wait_bucket{@}[1m]))",
    "quantile_over_time(0.5, gauge{@}[1m])",
    "predict_linear(gauge{@}[1m], 60)",
)
# Of these every object has one series or none.
SINGLE = ("ratio{@}", "flag{@}", "rank{@}")
AGGREGATIONS = (
    "sum by (#) ({})",
    "avg by (#, code) ({})",
    "max({}) by (#)",
    "min by (namespace, #) ({})",
    "count by (#, namespace, service) ({})",
    "sum without (instance) ({})",
    "stddev without (instance, code, node) ({})",
    "quantile by (#) (0.5, {})",
    "quantile without (code) (0.9, {})",
)
FUNCTIONS = (
    "-({})",
    "clamp({}, -1, 5)",
    "({}) * 2",
    "100 - ({})",
    "({}) > 1",
    "({}) >= bool 2",
    "max_over_time(({})[1m:15s])",
    "avg_over_time(({})[45s:15s] offset 15s)",
)
OPERATORS = tuple(
    f"({{}}) {operator} {matching} ({{}})"
    for operators, matchings in (
        (("+", "/", "== bool", ">"), ("", "on (#)", "on (#, namespace)", "on (#) group_left ()")),
        (("*", "<= bool"), ("on (#) group_left (code)", "on (#, namespace) group_right ()")),
        (("and", "or", "unless"), ("", "on (#)", "on (#, namespace)")),
    )
    for operator in operators
    for matching in matchings
)
UNMERGEABLE = (
    "sum({})",
    "topk(1, rank{{@}})",  # of no other vector: among equal values Prometheus chooses by chance
    "bottomk by (namespace) (1, rank{{@}})",
    "max by (code) ({})",
    "({}) * on (namespace) group_left () sum(flag{{@}}) by (namespace)",
    "({}) * on (namespace) group_left () sum without (#, service, node, pod) (rank{{@}})",
    "sum without (namespace) ({})",
    "({}) unless ignoring (pod, service, node) (flag{{@}})",
    "({}) unless on (namespace) (flag{{@}})",
    "({}) and on (code) (flag{{@}})",
    "({}) * scalar(ratio{{@}})",
    "({}) or vector(1)",
    'sum by (#) (label_replace({}, "#", "a", "pod", "b"))',
    "sort_desc({})",
    "({}) + on (#) sum by (#) (ratio)",
    "sum by (#) (rank)",
    '({}) + on (#) sum by (#) (ratio{{@,namespace="n1"}})',
)


class Dice:
    """Makes rules and questions by chance.

    Not by hypothesis' own strategies, which repeat and vary few examples: what breaks is a rare meeting of a
    rule with objects.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def one(self, choices: Sequence[Chosen]) -> Chosen:
        return self._random.choice(choices)

    def some(self, choices: Sequence[str], most: int) -> tuple[str, ...]:
        return tuple(self._random.sample(choices, self._random.randint(1, min(most, len(choices)))))

    def leaf(self) -> str:
        kind = self._random.randrange(6)
        if kind < 4:
            return self.one(SELECTORS)
        return f"{self.one(RANGE_FUNCTIONS)}({self.one(RANGES)})" if kind < 5 else self.one(HISTOGRAMS)

    def vector(self, depth: int) -> str:
        if not depth:
            return self.leaf()
        forms = self.one((AGGREGATIONS, AGGREGATIONS, FUNCTIONS, OPERATORS))
        return self.one(forms).format(self.vector(depth - 1), self.vector(self._random.randrange(depth)))

    def side(self) -> str:
        """Return a vector with at most one sample for each object, mostly; not every object has one."""
        vector = self.one(SINGLE)
        form = self.one(("{}", "{}", "sum by (#) ({})", "max by (#, namespace) ({})", self.one(AGGREGATIONS)))
        return form.format(vector if self._random.random() < 0.7 else self.leaf())

    def template(self) -> str:
        match self._random.randrange(5):
            case 0:
                return self.one(UNMERGEABLE).format(self.side())
            case 1 | 2:
                return self.one(OPERATORS).format(self.side(), self.side())
            case _:
                return self.vector(self._random.randrange(4))

    def questions(self, kind: "ObjectKind") -> tuple[tuple[str, Objects], ...]:
        """Return requests for names that exist in several of their namespaces, mostly with one selector."""
        selectors = ("", "", "", "", "code in (x,y)", "code!=x", "!missing")
        places = self.some((*NAMESPACES, "empty"), 3) if kind.namespaced else (None,)
        shared = self.some(kind.names, 3)
        asked = [(self.one(selectors), Objects(place, shared)) for place in places]
        more = range(self._random.randint(1, 3))
        asked += [(self.one(selectors), Objects(self.one(places), self.some(kind.names, 3))) for _ in more]
        return tuple(asked)

    def case(self) -> "RuleQuestions":
        kind = self.one(KINDS)
        return RuleQuestions(self.template(), kind, self.questions(kind), self.one((0, 4, 1000)))


class ObjectKind(NamedTuple):
    """What kind of object is asked about: its label, whether it lives in namespaces, and names to ask for."""

    label: str
    namespaced: bool
    names: tuple[str, ...]


_PODS = ObjectKind("pod", namespaced=True, names=(*PODS, "missing"))
KINDS = (
    _PODS,
    _PODS,
    ObjectKind("service", namespaced=True, names=("web", "web.api", "webxapi")),
    ObjectKind("node", namespaced=False, names=("node-0", "node-1", "node-2", "node-9")),
)


class RuleQuestions(NamedTuple):
    """A rule and questions about one kind of object, each with a metric selector."""

    template: str
    kind: ObjectKind
    questions: tuple[tuple[str, Objects], ...]
    expected: int


# --- answers --------------------------------------------------------------------------------------

# For each object the values that its samples have: one, unless the query gives several; upstream takes any of
# those.
Candidates = dict[str, list[float]]
Outcomes = list[Candidates | PrometheusError]


def metric_query(case: RuleQuestions, selector: str, rules: dict[str, MetricQuery]) -> MetricQuery:
    """Return the query of a selector; all of one case share a rule."""
    if not rules:
        text = case.template.replace("@", "<<.LabelMatchers>>").replace("#", "<<.GroupBy>>")
        text = text.replace(f"<<.LabelMatchers>> {int(AT) - 30}", f"@ {int(AT) - 30}")
        rule = compile_rule(yaml.safe_dump({"rules": [{"seriesQuery": "x", "metricsQuery": text}]}))
        rules[""] = MetricQuery(rule, "x", (), "namespace" if case.kind.namespaced else "", case.kind.label)
    base = rules[""]
    parts = matchers.from_selector(parse_selector(selector))
    return rules.setdefault(
        selector, MetricQuery(base.rule, "x", parts, base.namespace_label, base.object_label)
    )


def candidates(query: MetricQuery, result: QueryResult, objects: Objects) -> Candidates:
    found: Candidates = {}
    for sample in result.samples:
        name = sample.labels.get(query.object_label, "")
        if name in objects.names:
            found.setdefault(name, []).append(sample.value)
    return found


def agrees(answer: object, wanted: Outcomes) -> bool:
    """Whether an answer is one that the question asked alone could have got."""
    for outcome in wanted:
        if isinstance(outcome, PrometheusError) or isinstance(answer, PrometheusError):
            if type(outcome) is type(answer):
                return True
        elif isinstance(answer, dict) and answer.keys() == outcome.keys():
            return all(any(same(answer[name], value) for value in outcome[name]) for name in answer)
    return False


def same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12) or (math.isnan(one) and math.isnan(other))


class AnswerComparison(RandomComparison):
    async def check(self, case: RuleQuestions) -> None:
        queries: dict[str, MetricQuery] = {}
        asked = [(metric_query(case, selector, queries), objects) for selector, objects in case.questions]
        alone = [await self.ask_alone(query, objects) for query, objects in asked]
        self.seen["values"] += sum(
            len(each) for outcomes in alone for each in outcomes if isinstance(each, dict)
        )
        await self.check_cache(case, asked, alone)

    async def ask_alone(self, query: MetricQuery, objects: Objects) -> Outcomes:
        """Return what the question may be answered with.

        A query for several names can fail through an object that it does not even ask for, because dots in
        names match anything as upstream sends them, or through two of its objects together; what then holds
        is each name asked for alone.
        """
        result = await self.send(query, objects)
        if isinstance(result, QueryResult):
            return [candidates(query, result, objects)]
        each = [Objects(objects.namespace, (name,)) for name in objects.names]
        results = [await self.send(query, one) for one in each]
        whole = [found for found in results if isinstance(found, QueryResult)]
        if len(whole) < len(results):
            return [result]
        joined: Candidates = {}
        for one, found in zip(each, whole, strict=True):
            joined |= candidates(query, found, one)
        return [result, joined]

    async def send(self, query: MetricQuery, objects: Objects) -> QueryResult | PrometheusError:
        try:
            return await self.client.query(query_plan.ask_alone(query, objects).promql, AT)
        except PrometheusError as error:
            if error.kind != "query":
                raise
            return error

    async def check_cache(
        self, case: RuleQuestions, asked: Sequence[tuple[MetricQuery, Objects]], alone: Sequence[Outcomes]
    ) -> None:
        """Ask the cache: requests are pending while the first is in flight; then all again later."""
        querier = GatedQuerier(self.client)
        async with QueryCache(querier, self.clock, self.monitoring) as cache:
            for turn in range(3):
                querier.gate.clear()
                order = [*range(turn % len(asked), len(asked)), *range(turn % len(asked))]
                tasks: dict[int, asyncio.Task[object]] = {}
                for position, index in enumerate(order):
                    query, objects = asked[index]
                    work = cache.ask_objects(query, objects, FRESHNESS, case.expected)
                    tasks[index] = asyncio.create_task(self.outcome(work))
                    if position == 0:
                        await querier.called.wait()
                for _ in range(3):  # until all wait
                    await asyncio.sleep(0)
                querier.gate.set()
                for index in order:
                    got = await tasks[index]
                    assert agrees(got, alone[index]), (
                        f"turn {turn}: {querier.asked}: {asked[index][1]}: {got}, not {alone[index]}"
                    )
                querier.called.clear()
                self.clock.advance(2.0)
                self.clock.set_wall(AT)

    @staticmethod
    async def outcome(work: object) -> object:
        try:
            answer = await work  # type: ignore[misc]  # the coroutine of ask_objects
        except PrometheusError as error:
            return error
        return {name: samples[-1].value for name, samples in answer.samples.items()}


class GatedQuerier:
    """Passes queries on, each when the gate is open."""

    def __init__(self, client: PrometheusClient) -> None:
        self._client = client
        self.asked: list[str] = []
        self.called = asyncio.Event()
        self.gate = asyncio.Event()

    async def query(self, promql: str, time: float, *, most: int | None = None) -> QueryResult:
        self.asked.append(promql)
        self.called.set()
        await self.gate.wait()
        return await self._client.query(promql, time, most=most)


@pytest.mark.integration
@pytest.mark.timeout(60)
def test_planned_answers_equal_those_of_each_question_alone(prometheus_server: PrometheusFactory) -> None:
    server = prometheus_server(samples=_samples(), flags=["--query.lookback-delta=5m"])
    seen = compare(AnswerComparison, server.url, lambda seed: Dice(seed).case(), EXAMPLES).seen
    assert seen["values"] > EXAMPLES
    assert min(seen.values()) >= EXAMPLES / 10, seen
