"""On a real Prometheus: cpu and memory equal those of one query for each namespace, however requests combine.

What is asked separately here are prometheus-adapter's own queries; what a usage is, is worked out again from
their samples: whole, or absent. The series have what clusters have: containers without a name, pods with one
of the two, invalid values, several series of one container, names with dots that exist in several
namespaces.
"""

import asyncio
import functools
import itertools
import json
import math
import random
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import pytest
import yaml

from adapter.errors import NotFoundError
from adapter.kubernetes.cache.lister import LabeledObject
from adapter.model.metrics import GroupResource, ObjectUsage, Sample
from adapter.prometheus.query_cache import QueryCache
from adapter.provider.resource import ResourceProvider
from adapter.rules.resource import KINDS, PODS, CpuAndMemory, ResourceQuery
from adapter.server.api import encoding
from tests.prometheus.compared import AT, RandomComparison, compare
from tests.support.prometheus import PrometheusFactory
from tests.support.world import FRESHNESS, RulesWorld, compile_text, resource_question

EXAMPLES = 40

LABELS = ({"app": "web"}, {"app": "db"}, {"app": "web", "tier": "x"})
RUNNING = tuple(
    LabeledObject(namespace, name, LABELS[number % 3])
    for number, (namespace, name) in enumerate(
        itertools.product(("n.3", "n1", "n2", "quiet"), ("a", "a.b", "axb", "b", "c"))
    )
)
NODES = tuple(LabeledObject("", f"node-{number}", {"pool": "ab"[number % 2]}) for number in range(4))
VALUES = (0.0, 0.25, 1.5, 0.0004, 7.0, 3e6, math.nan, -1.0, math.inf)
SOUND = 6  # so many of the values are usages


def _samples() -> str:
    """Return five minutes of series, in OpenMetrics; nothing of the namespace `quiet`."""
    chance = random.Random(7)
    series: list[tuple[str, float]] = []
    for each in RUNNING[:-5]:
        for container in chance.sample(("main", "side", None, "init"), chance.randint(1, 3)):
            named = "" if container is None else f',container="{container}"'
            labels = (
                f'namespace="{each.namespace}",pod="{each.name}"{named},node="node-{chance.randrange(3)}"'
            )
            for metric in ("used", "kept"):
                if chance.random() < 0.1:
                    continue  # cpu without memory, or memory without cpu
                for instance in range(2 if chance.random() < 0.1 else 1):
                    value = chance.choice(VALUES[:SOUND] if chance.random() < 0.85 else VALUES)
                    series.append((f'{metric}{{{labels},instance="i{instance}"}}', value))
    for number, metric in itertools.product(range(3), ("node_used", "node_kept")):
        series += [
            (f'{metric}{{node="node-{number}",instance="i{instance}"}}', chance.choice(VALUES[:SOUND]))
            for instance in range(1 + number % 2)
        ]
    series.append(('node_used{node="node-3",instance="i0"}', 1.0))
    lines = [f"{each} {value} {int(AT) - 300 + 15 * step}" for each, value in series for step in range(21)]
    return "\n".join(sorted(lines, key=lambda line: (line.partition("{")[0], line)))


# `@` stands for <<.LabelMatchers>>, `#` for <<.GroupBy>>, `M` for used or kept.
CONTAINERS = (
    "sum by (#) (M{@})",
    "sum by (#) (M{@})",
    'sum by (#) (M{@,container!="",pod!=""})',
    'max by (#) (M{container=~".+",@})',
    "M{@}",  # several series of a container
    "sum by (#, node) (M{@})",
    "sum by (#) (avg_over_time(M{@}[1m])) + 1",
    "sum by (#) (M{@}) > 1",
    "sum by (#) (M{@} - M{@} * 3)",
    'sum by (#) (M{@} * on (namespace, pod) group_left () max by (namespace, pod) (used{@,instance="i0"}))',
    "sort_desc(sum by (#) (M{@}))",  # asked alone
    "sum by (pod) (M{@})",  # every pod has one container without a name
)
NODE_QUERIES = ("sum by (#) (node_M{@})", "node_M{@}", "max by (#) (node_M{@} / 0.3)", "sort(node_M{@})")


def place(each: LabeledObject | ObjectUsage) -> tuple[str, str]:
    return each.namespace, each.name


def _is(wanted: tuple[str, str], each: LabeledObject) -> bool:
    return place(each) == wanted


# Paths, and which objects they are about.
QUESTIONS: dict[str, Callable[[LabeledObject], bool]] = {
    "/pods": lambda _: True,
    "/pods?labelSelector=app%3Dweb": lambda each: each.labels["app"] == "web",
    "/pods?labelSelector=tier%20notin%20(x)": lambda each: "tier" not in each.labels,
    "/pods?fieldSelector=metadata.namespace%3Dn1": lambda each: each.namespace == "n1",
    "/pods?fieldSelector=metadata.name!%3Da": lambda each: each.name != "a",
    "/namespaces/n1/pods": lambda each: each.namespace == "n1",
    "/namespaces/quiet/pods": lambda each: each.namespace == "quiet",
    "/namespaces/n.3/pods?labelSelector=app%3Ddb": lambda each: (
        each.namespace == "n.3" and each.labels["app"] == "db"
    ),
    "/namespaces/n2/pods?fieldSelector=metadata.name%3Da.b": lambda each: place(each) == ("n2", "a.b"),
    **{f"/namespaces/{one.namespace}/pods/{one.name}": functools.partial(_is, place(one)) for one in RUNNING},
    "/nodes": lambda _: True,
    "/nodes?labelSelector=pool%3Da": lambda each: each.labels["pool"] == "a",
    "/nodes?fieldSelector=metadata.name!%3Dnode-1": lambda each: each.name != "node-1",
    **{f"/nodes/{one.name}": functools.partial(_is, place(one)) for one in NODES},
}


class SharedQuestions(NamedTuple):
    """Rules, and questions that are asked at the same time."""

    cpu: str
    memory: str
    nodes: str
    asked: tuple[str, ...]


def make_case(seed: int) -> SharedQuestions:
    """Return a case by chance, which hypothesis' own strategies vary too little."""
    chance = random.Random(seed)
    cpu = chance.choice(CONTAINERS)
    memory = cpu if chance.random() < 0.6 else chance.choice(CONTAINERS)
    asked = chance.sample(list(QUESTIONS), chance.randint(1, 8))
    return SharedQuestions(
        cpu, memory, chance.choice(NODE_QUERIES), (*asked, chance.choice(("/pods", "/nodes", asked[0])))
    )


def write_rules(case: SharedQuestions) -> str:
    """Return the rules file of a case."""

    def write(text: str, metric: str) -> str:
        return (
            text.replace("@", "<<.LabelMatchers>>").replace("#", "<<.GroupBy>>").replace("M{", f"{metric}{{")
        )

    both = {
        "containerLabel": "container",
        "resources": {"overrides": {label: {"resource": label} for label in ("namespace", "pod", "node")}},
    }
    return yaml.safe_dump(
        {
            "resourceRules": {
                "cpu": {
                    "containerQuery": write(case.cpu, "used"),
                    "nodeQuery": write(case.nodes, "used"),
                    **both,
                },
                "memory": {
                    "containerQuery": write(case.memory, "kept"),
                    "nodeQuery": write(case.nodes, "kept"),
                    **both,
                },
                "window": "3m",
            }
        }
    )


# A usage: cpu and memory in thousandths by container, of a node under None. None for no usage.
Usages = frozenset[tuple[str | None, int, int]] | None


def allowed(cpu: Sequence[Sample], memory: Sequence[Sample], label: str | None) -> set[Usages]:
    """Return the possible usages of one object: of several samples of one container any may count."""
    cpus, memories = _by_part(cpu, label), _by_part(memory, label)
    if not cpus or cpus.keys() != memories.keys():
        return {None}
    choices = [[(part, one, other) for one in cpus[part] for other in memories[part]] for part in cpus]
    found: set[Usages] = set()
    for chosen in itertools.product(*choices):
        is_sound = all(0 <= value < math.inf for _, *values in chosen for value in values)  # not so for NaN
        found.add(
            frozenset((part, int(one * 1000), int(other * 1000)) for part, one, other in chosen)
            if is_sound
            else None
        )
    return found


def _by_part(samples: Iterable[Sample], label: str | None) -> dict[str | None, list[float]]:
    found: dict[str | None, list[float]] = {}
    for sample in samples:
        found.setdefault(None if label is None else sample.labels.get(label, ""), []).append(sample.value)
    return found


def shape(usage: ObjectUsage) -> Usages:
    if usage.containers:
        return frozenset((each.name, each.usage.cpu, each.usage.memory) for each in usage.containers)
    return frozenset({(None, usage.usage.cpu, usage.usage.memory)})


class UsageComparison(RandomComparison):
    """Asks through the provider and separately, and compares."""

    async def check(self, case: SharedQuestions) -> None:
        """Ask everything at once, and again when the answers are old: busy lanes then merge more."""
        rules = compile_text(write_rules(case))
        assert rules.resource is not None
        here = RulesWorld(running=RUNNING, nodes=NODES, clock=self.clock)
        here.scaler.monitoring = self.monitoring
        await here.relister.adopt(rules)
        wanted = {path: await self.ask_separately(rules.resource.pair, path) for path in case.asked}
        async with QueryCache(self.client, self.clock, self.monitoring) as here.scaler.cache:
            for _ in range(2):
                got = await asyncio.gather(*(self.ask(here.resource_provider, path) for path in case.asked))
                for path, found in zip(case.asked, got, strict=True):
                    self.compare(path, found, wanted[path])
                self.clock.advance(FRESHNESS.ttl + 1)
                self.clock.set_wall(AT)

    async def ask(self, provider: ResourceProvider, path: str) -> dict[tuple[str, str], ObjectUsage]:
        question = resource_question(path)
        try:
            answer = await provider.resource(question)
        except NotFoundError:
            if question.name is None:
                raise  # a list is never "not found"
            return {}
        assert [place(each) for each in answer.items] == sorted(map(place, answer.items)), (
            "by namespace, then name"
        )
        document = json.loads(b"".join(encoding.encode_resource("v1beta1", question, answer, None)))
        assert {each["window"] for each in document.get("items", [document])} <= {"3m0s"}
        return {place(each): each for each in answer.items}

    async def ask_separately(
        self, pair: Callable[[GroupResource], CpuAndMemory], path: str
    ) -> dict[tuple[str, str], set[Usages]]:
        """Return the possible values of each object, by prometheus-adapter's two queries a namespace."""
        kind = KINDS[resource_question(path).resource]
        chosen = [each for each in (RUNNING if kind == PODS else NODES) if QUESTIONS[path](each)]
        wanted: dict[tuple[str, str], set[Usages]] = {}
        for namespace, group in itertools.groupby(chosen, key=lambda each: each.namespace):
            names = [each.name for each in group]
            cpu, memory = [await self.samples(query, kind, namespace, names) for query in pair(kind)]
            for name in names:
                usages = allowed(cpu.get(name, ()), memory.get(name, ()), pair(kind).cpu.part_label)
                wanted[namespace, name] = usages
        return wanted

    async def samples(
        self, query: ResourceQuery, kind: GroupResource, namespace: str, names: Sequence[str]
    ) -> dict[str, list[Sample]]:
        asked = query.metric_query(kind)
        result = await self.client.query(asked.render(namespace or None, names), AT)
        found: dict[str, list[Sample]] = {}
        for sample in result.samples:
            found.setdefault(sample.labels[asked.object_label], []).append(sample)
        return found

    def compare(
        self, path: str, got: dict[tuple[str, str], ObjectUsage], wanted: dict[tuple[str, str], set[Usages]]
    ) -> None:
        assert got.keys() <= wanted.keys(), path
        for where, usages in wanted.items():
            found = got.get(where)
            assert (None if found is None else shape(found)) in usages, (
                f"{path}: {where}: {found}, not {usages}"
            )
            self.seen["usages" if found else "absent"] += 1
            if found is not None:
                described = next(each for each in (*RUNNING, *NODES) if place(each) == where)
                assert (found.labels, found.time) == (described.labels, AT)
                self.seen["without a name"] += any(not each.name for each in found.containers)
                self.seen["zero"] += any(0 in usage[1:] for usage in shape(found) or ())


@pytest.mark.integration
@pytest.mark.timeout(60)
def test_answers_equal_those_of_separate_queries(prometheus_server: PrometheusFactory) -> None:
    server = prometheus_server(samples=_samples(), flags=["--query.lookback-delta=5m"])
    bench = compare(UsageComparison, server.url, make_case, EXAMPLES)
    for reason in ("nan", "negative", "infinite", "incomplete", "duplicate"):
        dropped = bench.monitoring.registry.get_sample_value(
            "fastpath_values_dropped_total", {"reason": reason}
        )
        bench.seen[reason] = int(dropped or 0)
    assert min(bench.seen.values()) >= EXAMPLES / 10, bench.seen
