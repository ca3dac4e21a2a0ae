"""On a real Prometheus: what is refused gives other answers when it is merged all the same."""

import math

import pytest
import yaml

from adapter.rules import query_plan
from adapter.rules.query import MetricQuery
from adapter.rules.query_plan import Objects
from tests.support.prometheus import PrometheusFactory, PrometheusServer
from tests.support.refusals import AT, JOIN_REFUSALS, REFUSALS, SAMPLES, Answers, Refusal
from tests.support.world import compile_rule

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

SHOWN = {name: case for name, case in {**REFUSALS, **JOIN_REFUSALS}.items() if case.merged is not None}


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


def ask_separately(server: PrometheusServer, case: Refusal) -> Answers:
    rule = compile_rule(yaml.safe_dump({"rules": [{"seriesQuery": "x", "metricsQuery": case.template}]}))
    query = MetricQuery(rule, "x", (), "namespace", "pod")
    found: Answers = {}
    for namespace, name in case.asked:
        answers = ask(server, query_plan.ask_alone(query, Objects(namespace, (name,))).promql, namespace)
        found.update({place: value for place, value in answers.items() if place == (namespace, name)})
    return found


@pytest.mark.parametrize("case", SHOWN.values(), ids=SHOWN)
def test_merged_it_would_be_wrong(server: PrometheusServer, case: Refusal) -> None:
    assert case.merged is not None
    namespaces = {namespace for namespace, _ in case.asked}
    merged = ask(server, case.merged, namespaces.pop() if len(namespaces) == 1 else None)
    assert {place: merged[place] for place in case.asked if place in merged} != ask_separately(server, case)
