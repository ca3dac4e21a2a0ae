"""The queries for the history of an autoscaler's metrics, from the rules that the scaler runs with.

They are those of `fastpath simulate --prometheus-url`. A metric that is scraped has the query of its rule.
"""

from collections.abc import Callable

from adapter.errors import Fault, InputError
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.forecasts.job import HistoryQuery
from adapter.model.resources import Catalogue
from adapter.rules.compile import Ruleset
from adapter.rules.registry import Registry
from adapter.simulate.recorded import metric_queries


class RuleHistories:
    """The queries by the rules of the moment, which the arguments return."""

    def __init__(
        self,
        registry: Callable[[], Registry],
        catalogue: Callable[[], Catalogue],
        ruleset: Callable[[], Ruleset],
    ) -> None:
        self._registry = registry
        self._catalogue = catalogue
        self._ruleset = ruleset

    def queries_of(self, autoscaler: FastPathAutoscaler) -> tuple[HistoryQuery, ...]:
        """Return the query for the total of each metric. InputError for a metric that has none."""
        known, catalogue, ruleset = self._registry(), self._catalogue(), self._ruleset()
        places = metric_queries.places_of(autoscaler, autoscaler.metadata.namespace, "", "")
        found: dict[str, HistoryQuery] = {}
        for name, metric, path in metric_queries.names_of(autoscaler.spec.metrics or ()):
            if name in found:
                raise InputError(
                    [Fault(path, name, f"a second metric {name}: a forecast needs different names")]
                )
            made = metric_queries.queries_of(metric, known, catalogue, ruleset, places, path)
            found[name] = HistoryQuery(name, made.total)
        return tuple(found.values())
