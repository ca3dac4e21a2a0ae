"""Cpu and memory: prometheus-adapter's answers row by row, deliberate differences, and costs."""

import gc
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.errors import InternalError, KubernetesError, NotSyncedError, PrometheusError, StatusError
from adapter.kubernetes.cache.lister import LabeledObject
from adapter.model.metrics import ContainerUsage, ObjectUsage, ResourceAnswer, Usage
from adapter.model.objects.resources import Catalogue
from adapter.prometheus import query_cache
from adapter.server.api import encoding
from tests.support.waiting import other_work
from tests.support.world import (
    FakeResources,
    Outcome,
    RulesWorld,
    parse_value,
    resource_question,
    scalar,
    vector,
    world,
)

NOON = 1_743_508_800.0  # 2025-04-01T12:00:00Z
DATA = Path(__file__).parents[1] / "data" / "worked-examples.yaml"
ROWS: list[dict[str, Any]] = [row for row in yaml.safe_load(DATA.read_text()) if row["api"] == "resource"]
RULES = yaml.safe_dump({"resourceRules": ROWS[0]["rule"]})

# What we answer instead: a usage is whole or absent. An invalid value is not 0, and neither is a missing
# one.
OURS: dict[int, dict[str, Any]] = {
    41: {"status": 200, "nodes": {"node1": {"cpu": "1500m", "memory": "8Gi"}}},
    42: {"status": 404, "message": 'podmetrics.metrics.k8s.io "somens/pod1" not found'},
}


def _identify(row: dict[str, Any]) -> str:
    return f"{row['id']}-{'OUR-difference-' if row['id'] in OURS else ''}{row['about']}"


def _answer(row: dict[str, Any]) -> Callable[[str], Outcome]:
    def answer(promql: str) -> Outcome:
        result = row["result"]["cpu" if "cpu" in promql else "memory"]
        if result == "error":
            return PrometheusError("query", "bad_data: it is made up")
        return vector(*((labels, parse_value(text)) for labels, text in result), time=NOON)

    return answer


def pods(*names: str, namespace: str = "somens", **labels: str) -> list[LabeledObject]:
    return [LabeledObject(namespace, name, labels) for name in names]


def nodes(*names: str, **labels: str) -> list[LabeledObject]:
    return [LabeledObject("", name, labels) for name in names]


def read(request: str, answer: ResourceAnswer) -> Any:
    """Return the JSON of an answer."""
    return json.loads(b"".join(encoding.encode_resource("v1beta1", resource_question(request), answer, None)))


async def ask(here: RulesWorld, request: str) -> Any:
    return read(request, await here.resource_provider.resource(resource_question(request)))


async def refused(here: RulesWorld, request: str) -> tuple[int, str, dict[str, object] | None]:
    with pytest.raises(StatusError) as raised:
        await ask(here, request)
    return raised.value.code, raised.value.message, raised.value.details


def shown(document: Any) -> Any:
    """Return usages by object, and in pods by container."""
    items = document.get("items", [document])
    return {
        item["metadata"]["name"]: (
            {each["name"]: each["usage"] for each in item["containers"]}
            if "containers" in item
            else item["usage"]
        )
        for item in items
    }


@pytest.mark.parametrize("row", ROWS, ids=_identify)
async def test_rows(row: dict[str, Any]) -> None:
    kind = "nodes" if row["request"] == "/nodes" else "pods"
    async with world(
        yaml.safe_dump({"resourceRules": row["rule"]}),
        answer=_answer(row),
        running=pods(*row["listed"]),
        nodes=nodes(*row["listed"]),
    ) as here:
        got: dict[str, Any] = {"status": 200}
        try:
            document = await ask(here, row["request"])
        except StatusError as error:
            got = {"status": error.code, "message": error.message}
        else:
            got[kind] = shown(document)
            if "window" in row:
                got["window"] = document["items"][0]["window"]
        expected = {key: row[key] for key in ("status", kind, "window") if key in row}
        assert got == OURS.get(row["id"], expected)
        assert sorted(here.querier.asked) == sorted(row["promql"].values())


async def test_a_failed_node_query_empties_the_list() -> None:
    async with world(RULES, answer=lambda _: PrometheusError("status", "503"), nodes=nodes("node1")) as here:
        assert (await ask(here, "/nodes"))["items"] == []


async def test_too_many_questions_empty_no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prometheus was not asked, so nothing is known of any node: the caller is told to come again."""
    monkeypatch.setattr(query_cache, "INFLIGHT_BYTES", 0)
    async with world(RULES, answer=lambda _: vector(), nodes=nodes("node1")) as here:
        assert (await refused(here, "/nodes"))[0] == 429
        assert here.querier.asked == []


# --- whole documents


def usage(cpu: float = 0.25, memory: float = 2048.0, time: float = NOON) -> Callable[[str], Outcome]:
    """Answer every pod of the query, container main, and every node, with the same values."""

    def answer(promql: str) -> Outcome:
        value = cpu if "cpu" in promql else memory
        if "instance" in promql:
            return vector(*(({"instance": node}, value) for node in ("node1", "node2")), time=time)
        asked = [
            space for space in ("other", "shop", "somens") if space in promql or 'namespace!=""' in promql
        ]
        made = [
            ({"namespace": space, "pod": pod, "container": "main"}, value)
            for space in asked
            for pod in ("pod1", "pod2", "pod3")
        ]
        return vector(*made, time=time)

    return answer


async def test_lists_are_sorted_by_namespace_then_name() -> None:
    running = [*pods("pod1", "pod2", namespace="other"), *pods("pod3", namespace="shop")]
    async with world(RULES, answer=usage(), running=running) as here:
        document = await ask(here, "/pods")
        assert [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in document["items"]] == [
            ("other", "pod1"),
            ("other", "pod2"),
            ("shop", "pod3"),
        ]
        assert document["kind"] == "PodMetricsList"
        assert here.querier.asked[1] == (
            'sum by (pod, container, namespace) (container_memory_working_set_bytes{namespace!="",pod!=""})'
        ), "all pods are one sweep"


# --- which objects


UNLISTED: dict[str, dict[str, Any]] = {
    "no first list": {"running": NotSyncedError("pods"), "nodes": NotSyncedError("nodes")},
    "forbidden": {
        "running": KubernetesError(403, "Forbidden", "no"),
        "nodes": KubernetesError(403, "Forbidden", "no"),
    },
    "no catalogue": {"resources": FakeResources(NotSyncedError("the kinds of the cluster"))},
    "a cluster without such a kind": {"resources": FakeResources(Catalogue([]))},
}


@pytest.mark.parametrize("surroundings", UNLISTED.values(), ids=UNLISTED)
@pytest.mark.parametrize("request_", ["/namespaces/somens/pods", "/namespaces/somens/pods/pod1", "/nodes"])
async def test_objects_that_cannot_be_listed(surroundings: dict[str, Any], request_: str) -> None:
    async with world(RULES, answer=usage(), **surroundings) as here:
        with pytest.raises(InternalError, match="unable to list matching resources"):
            await ask(here, request_)
        assert here.querier.asked == []


async def test_a_fault_of_listing_ends() -> None:
    async with world(RULES, answer=usage(), running=NotSyncedError("pods")) as here:
        with pytest.raises(InternalError):
            await ask(here, "/pods")
        assert here.metric("fastpath_faults_active", fault="list") == 1
        here.running.objects_or_error = pods("pod1")
        here.clock.advance(61)
        await ask(here, "/pods")
        assert here.metric("fastpath_faults_active", fault="list") == 0


# --- absent is never zero


# --- what asking costs


async def test_namespaces_share_a_query() -> None:
    running = [
        *pods("pod1", "pod2", namespace="other"),
        *pods("pod3", namespace="shop"),
        *pods(*(f"gone{number}" for number in range(10)), namespace="zzz"),
    ]
    async with world(RULES, answer=usage(), running=running) as here:
        await ask(here, "/pods?fieldSelector=metadata.namespace!%3Dzzz")
        chosen = 'namespace=~"other|shop",pod=~"pod1|pod2|pod3"'
        assert here.querier.asked == [
            f"sum by (pod, container, namespace) (rate(container_cpu_usage_seconds_total{{{chosen}}}[1m]))",
            f"sum by (pod, container, namespace) (container_memory_working_set_bytes{{{chosen}}})",
        ]


UNMERGEABLE = yaml.safe_dump(
    {
        "resourceRules": {
            kind: {
                "containerQuery": f"{kind} * on() group_left scalar({kind}{{<<.LabelMatchers>>}})",
                "nodeQuery": kind,
                "resources": {"template": "<<.Resource>>"},
                "containerLabel": "container",
            }
            for kind in ("cpu", "memory")
        }
    }
)


async def test_what_cannot_be_merged_is_asked_by_namespace_and_fails_so() -> None:
    def answer(promql: str) -> Outcome:
        if 'namespace="other"' in promql and "memory" in promql:
            return PrometheusError("timeout", "too slow")
        return vector(({"pod": "pod1", "container": "main"}, 1.0))

    running = [*pods("pod1", namespace="other"), *pods("pod1", namespace="shop")]
    async with world(UNMERGEABLE, answer=answer, running=running) as here:
        answered = await here.resource_provider.resource(resource_question("/pods"))
        assert [item.namespace for item in answered.items] == ["shop"]
        assert answered.fresh_until == -math.inf, "a list with a hole is not kept"
        assert len(here.querier.asked) == 4


async def test_two_samples_of_one_container_end_merging() -> None:
    def answer(promql: str) -> Outcome:
        several = [
            ({"namespace": space, "pod": "pod1", "container": "main"}, 1.0) for space in ("other", "shop")
        ]
        return vector(*several, *several) if "=~" in promql or "!=" in promql else vector(several[0])

    running = [*pods("pod1", namespace="other"), *pods("pod1", namespace="shop")]
    async with world(RULES, answer=answer, running=running) as here:
        assert len((await ask(here, "/pods"))["items"]) == 2
        assert here.metric("fastpath_values_dropped_total", reason="duplicate") == 2
        here.querier.asked.clear()
        here.clock.advance(2)
        await ask(here, "/pods")
        assert all('namespace="' in promql for promql in here.querier.asked)


async def test_the_last_answer_stands_in_while_prometheus_is_away() -> None:
    async with world(RULES, answer=usage(), running=pods("pod1")) as here:
        first = await ask(here, "/namespaces/somens/pods/pod1")
        here.querier.answer = lambda _: PrometheusError("unreachable", "refused")
        here.clock.advance(29)
        again = await ask(here, "/namespaces/somens/pods/pod1")
        assert again["timestamp"] == first["timestamp"], "it keeps its age"
        question = resource_question("/namespaces/somens/pods/pod1")
        assert (await here.resource_provider.resource(question)).stands_in
        here.clock.advance(2)
        assert (await refused(here, "/namespaces/somens/pods/pod1"))[0] == 404
        assert (await ask(here, "/namespaces/somens/pods"))["items"] == []
        assert here.metric("fastpath_faults_active", fault="prometheus") == 1
        here.querier.answer = usage()
        here.clock.advance(1)
        await ask(here, "/namespaces/somens/pods/pod1")
        assert here.metric("fastpath_faults_active", fault="prometheus") == 0


async def test_usages_that_are_used_for_long_are_of_about_one_moment() -> None:
    """One of several scalers uses them for longer than others do, but not cpu and memory of two times."""
    failing = ["cpu"]

    def answer(promql: str) -> Outcome:
        is_cpu = "cpu" in promql
        return PrometheusError("query", "made up") if is_cpu and failing else usage()(promql)

    async with world(RULES, answer=answer, running=pods("pod1")) as here:
        question = resource_question("/namespaces/somens/pods")
        assert (await here.resource_provider.resource(question, ttl=5.0)).items == ()
        failing.clear()
        here.clock.advance(2.0)
        here.querier.asked.clear()
        assert len((await here.resource_provider.resource(question, ttl=5.0)).items) == 1
        memory = [promql for promql in here.querier.asked if "memory" in promql]
        assert len(memory) == len(here.querier.asked) / 2
        asked = len(here.querier.asked)
        here.clock.advance(4.0)
        assert len((await here.resource_provider.resource(question, ttl=5.0)).items) == 1
        assert len(here.querier.asked) == asked
        await here.resource_provider.resource(question)
        assert len(here.querier.asked) > asked, "other callers are given no old usages"


async def test_an_answer_may_be_used_until_the_older_half_is_out_of_date() -> None:
    async with world(RULES, answer=usage(), running=pods("pod1")) as here:
        answer = await here.resource_provider.resource(resource_question("/pods"))
        assert answer.fresh_until == here.clock.monotonic() + 0.9
        empty = await here.resource_provider.resource(resource_question("/namespaces/nowhere/pods"))
        assert empty.fresh_until == -math.inf, "a pod may start at any moment"


async def test_an_answer_that_is_no_vector_is_a_failed_query() -> None:
    rule = ROWS[0]["rule"]
    rules = yaml.safe_dump({"resourceRules": rule | {"cpu": rule["cpu"] | {"containerQuery": "cpu"}}})
    async with world(
        rules, answer=lambda promql: scalar(1.0) if promql == "cpu" else usage()(promql), running=pods("pod1")
    ) as here:
        assert (await ask(here, "/namespaces/somens/pods"))["items"] == []
        assert here.metric("fastpath_faults_total", fault="query") == 1


async def test_many_pods_leave_the_loop_alone() -> None:
    names = [f"pod{number}" for number in range(3_000)]
    samples = vector(
        *(({"namespace": "somens", "pod": name, "container": "main"}, 1.0) for name in names), time=NOON
    )
    async with world(RULES, answer=lambda _: samples, running=pods(*names)) as here:
        async with other_work() as turns:
            answer = await here.resource_provider.resource(resource_question("/namespaces/somens/pods"))
        assert len(answer.items) == 3_000
        assert turns.count >= 15


async def test_many_namespaces_leave_the_loop_alone() -> None:
    listed = [each for number in range(300) for each in pods("a", "b", namespace=f"ns{number:03}")]
    async with world(RULES, answer=lambda _: vector(), running=listed) as here:
        async with other_work() as turns:
            await here.resource_provider.resource(resource_question("/pods?fieldSelector=metadata.name!%3Da"))
        started = len(here.querier.asked)
        assert turns.count >= 300 // 20
        assert started > 0


def test_usages_are_nothing_to_the_garbage_collector() -> None:
    """A full collection looks at every container that it tracks; of these there are tens of thousands."""
    usage = Usage(1, 2)
    containers = (ContainerUsage("main", usage),)
    found = ObjectUsage("somens", "pod1", {"app": "web"}, NOON, usage, containers)
    gc.collect()
    assert not any(
        map(gc.is_tracked, (usage, containers, containers[0], found, LabeledObject("somens", "pod1", {})))
    )
