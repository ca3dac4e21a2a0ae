"""The queries for the history of an autoscaler's metrics, from the rules that the scaler runs with.

They are those of `fastpath simulate --prometheus-url`. A metric that is scraped has the query of its rule.
"""

from collections.abc import Callable

from adapter.bounds.forecast.job import HistoryQuery
from adapter.errors import Fault, InputError, NotSyncedError
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.resources import Catalogue
from adapter.provider.relist import Relister
from adapter.simulate.recorded import metric_queries


class RuleHistories:
    """The queries by the rules of the moment. `catalogue` returns the kinds of the cluster."""

    def __init__(self, relister: Relister, catalogue: Callable[[], Catalogue]) -> None:
        self._relister = relister
        self._catalogue = catalogue

    def build_queries(self, autoscaler: FastPathAutoscaler) -> tuple[HistoryQuery, ...]:
        """Return the query for the total of each metric.

        Raises InputError for a metric that has none, NotSyncedError before the rules are known.
        """
        relister = self._relister
        if not relister.attempted.is_set():
            raise NotSyncedError("the series of the rules are not listed yet")
        known, catalogue, ruleset = relister.registry, self._catalogue(), relister.ruleset
        places = metric_queries.build_places(autoscaler, autoscaler.metadata.namespace, "", "")
        queries: dict[str, HistoryQuery] = {}
        for name, metric, path in metric_queries.name_metrics(autoscaler.spec.metrics or ()):
            if name in queries:
                raise InputError(
                    [Fault(path, name, f"a second metric {name}: a forecast needs different names")]
                )
            total = metric_queries.build_queries(metric, known, catalogue, ruleset, places, path).total
            queries[name] = HistoryQuery(name, total)
        return tuple(queries.values())
