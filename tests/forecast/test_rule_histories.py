"""The queries for the history of an autoscaler, from the rules that the scaler runs with."""

from typing import Any

import pytest

from adapter.bounds.forecast.job import HistoryQuery
from adapter.config import rules_file
from adapter.errors import InputError, NotSyncedError
from adapter.forecast.metric_queries import RuleHistories
from adapter.model import steps
from adapter.model.metrics import SeriesInfo
from adapter.rules import registry
from fastpath_tools.live import rules_files
from tests.support.controller import fpa
from tests.support.scaling import cpu_metric, external_metric, pods_metric
from tests.support.world import compile_text

RULES = """
rules:
- seriesQuery: 'load{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
externalRules:
- seriesQuery: 'queue{namespace!=""}'
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>})'
"""
PODS = "web-[bcdfghjklmnpqrstvwxz2456789]{1,10}-[bcdfghjklmnpqrstvwxz2456789]{5}"


class Listed:
    """A relister whose series are known, or not yet."""

    def __init__(self, *, attempted: bool = True) -> None:
        config = rules_file.parse_rules(RULES, "rules.yaml").config
        self.catalogue = rules_files.assumed_catalogue(config)[0]
        self.ruleset = compile_text(RULES, self.catalogue)
        memory: registry.SeriesMemory = {}
        for selector, name, labels in (
            ('load{namespace!="",pod!=""}', "load", {"namespace", "pod"}),
            ('queue{namespace!=""}', "queue", {"namespace"}),
        ):
            memory = steps.run(
                registry.remembering(memory, selector, (SeriesInfo(name, frozenset(labels), 1),))
            )
        self.registry = steps.run(registry.building(self.ruleset, memory, 1))
        self.attempted = self
        self._attempted = attempted

    def is_set(self) -> bool:
        return self._attempted


def queries(*metrics: dict[str, Any], attempted: bool = True) -> tuple[HistoryQuery, ...]:
    listed = Listed(attempted=attempted)
    histories = RuleHistories(listed, lambda: listed.catalogue)  # type: ignore[arg-type]  # all that it reads
    return histories.build_queries(fpa(list(metrics)))


def test_each_metric_has_the_query_of_its_rule_for_the_total() -> None:
    external = external_metric("queue", averageValue="5")
    load, queue, cpu = queries(pods_metric(), external, cpu_metric())
    within = f'namespace="default",pod=~"{PODS}"'
    assert (load.metric, queue.metric, cpu.metric) == ("load", "queue", "cpu")
    assert load.promql == f"sum(max by (pod) (sum(load{{{within}}}) by (pod)\n))"
    assert queue.promql == 'sum(sum(queue{namespace="default"})\n)'
    assert within in cpu.promql
    assert cpu.promql.startswith("sum(sum by (pod) (rate(container_cpu_usage_seconds_total{")


def test_a_metric_that_no_rule_makes_is_named_with_its_place() -> None:
    with pytest.raises(InputError) as caught:
        queries(pods_metric(), pods_metric(name="renamed"))
    (fault,) = caught.value.faults
    assert (fault.path, fault.value) == ("spec.metrics[1]", "renamed")
    assert fault.expected == "no rule that was read makes renamed for pods"


def test_two_metrics_of_one_name_are_not_forecast() -> None:
    with pytest.raises(InputError, match="a second metric load: a forecast needs different names"):
        queries(pods_metric(), pods_metric())


def test_before_the_series_are_listed_nothing_is_known() -> None:
    with pytest.raises(NotSyncedError):
        queries(pods_metric(), attempted=False)
