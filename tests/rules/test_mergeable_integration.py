"""On a real Prometheus: what is refused gives other answers when it is merged all the same.

Objects are pods named by `pod` in namespaces named by `namespace`.
"""

import math
from typing import Any

import pytest
import yaml

from adapter.rules import query_plan
from adapter.rules.query import MetricQuery
from adapter.rules.query_plan import Objects
from tests.support.answers import answers
from tests.support.prometheus import PrometheusFactory, PrometheusServer
from tests.support.world import compile_rule

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

SAMPLES = """
# TYPE x gauge
x{namespace="n1",pod="a",team="b"} 1 1700000000
x{namespace="n1",pod="b",team="b"} 2 1700000000
x{namespace="n2",pod="a",team="b"} 10 1700000000
x{namespace="n2",pod="b",team="b"} 20 1700000000
# TYPE y gauge
y{namespace="n1",pod="b"} 5 1700000000
# TYPE z gauge
z{namespace="n1",pod="a",q="map[namespace:n1 pod:a]"} 7 1700000000
z{namespace="n1",pod="a",q="namespace=\\"n1\\",pod=\\"a\\""} 8 1700000000
# TYPE u gauge
u{namespace="n1",pod="a",instance="1",team="b"} 1 1700000000
u{namespace="n1",pod="b",instance="2",team="b"} 2 1700000000
# TYPE v gauge
v{namespace="n1",pod="1"} 1 1700000000
v{namespace="n1",pod="2"} 1 1700000000
"""
AT = 1_700_000_000.0

Answers = dict[tuple[str, str], float]

SHOWN = [
    row
    for row in (*answers("rules/mergeable", "refused"), *answers("rules/mergeable", "not joined"))
    if "merged" in row.values[0]
]
"""Where a merged query would do harm, and a Prometheus of ours knows it."""


def questions(case: dict[str, Any]) -> list[tuple[str, str]]:
    return [(namespace, name) for namespace, name in case.get("asked", [("n1", "a"), ("n1", "b")])]


@pytest.fixture(scope="module")
def server(module_prometheus: PrometheusFactory) -> PrometheusServer:
    return module_prometheus(samples=SAMPLES)


def ask(server: PrometheusServer, promql: str, namespace: str | None) -> Answers:
    """Return values by namespace and pod; a later sample of one pod replaces an earlier one.

    NaN is no value.
    """
    return {
        (namespace or sample["metric"].get("namespace", ""), sample["metric"].get("pod", "")): float(
            sample["value"][1]
        )
        for sample in server.query(promql, AT)
        if not math.isnan(float(sample["value"][1]))
    }


def ask_separately(server: PrometheusServer, case: dict[str, Any]) -> Answers:
    rule = compile_rule(yaml.safe_dump({"rules": [{"seriesQuery": "x", "metricsQuery": case["template"]}]}))
    query = MetricQuery(rule, "x", (), "namespace", "pod")
    found: Answers = {}
    for namespace, name in questions(case):
        answered = ask(server, query_plan.ask_alone(query, Objects(namespace, (name,))).promql, namespace)
        found.update({place: value for place, value in answered.items() if place == (namespace, name)})
    return found


@pytest.mark.parametrize("case", SHOWN)
def test_merged_it_would_be_wrong(server: PrometheusServer, case: dict[str, Any]) -> None:
    namespaces = {namespace for namespace, _ in questions(case)}
    merged = ask(server, case["merged"], namespaces.pop() if len(namespaces) == 1 else None)
    assert {place: merged[place] for place in questions(case) if place in merged} != ask_separately(
        server, case
    )
