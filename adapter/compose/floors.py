"""Serves the metric of the floors. Imported only by a process that does: it takes a tenth of the start."""

import functools
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from adapter.boost.provider import FLOOR_METRIC, FloorProvider, ObservedHPA
from adapter.boost.view import FloorView
from adapter.compose.providers import Runtime
from adapter.errors import NotSyncedError
from adapter.kubernetes.cache.autoscalers import HPACache
from adapter.model.autoscaling.fastpath_autoscaler import BOOST
from adapter.provider.metrics import RulesMetricsProvider


def serve_floors(
    runtime: Runtime, provider: RulesMetricsProvider, known: tuple[HPACache, FloorView] | None
) -> Mapping[str, Callable[[], Coroutine[Any, Any, None]]]:
    """Serve the floor metric; return what to run for that, without what the scaler runs already.

    `known` are the caches of the scaler; without them new ones are made.
    """
    tasks: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {}
    if known is None:
        hpas = HPACache(runtime.watching)
        view = FloorView(runtime.client, runtime.clock, runtime.namespace, runtime.problems)
        tasks = {"floors": view.run, "autoscalers": hpas.run}
    else:
        hpas, view = known
    find = functools.partial(_find_autoscaler, hpas)
    provider.register(FLOOR_METRIC, FloorProvider(find, view, runtime.clock, runtime.server_clock.doubt))
    return tasks


def _find_autoscaler(hpas: HPACache, namespace: str, name: str) -> ObservedHPA | None:
    """Return what is known of a HorizontalPodAutoscaler; NotSyncedError before the first list."""
    if not hpas.synced:
        raise NotSyncedError("the first list of horizontalpodautoscalers is not complete")
    hpa = hpas.find(namespace, name)
    if hpa is None:
        return None
    request = hpa.asked
    if request is None:
        return ObservedHPA(hpa.uid, hpa.resource_version, 0, boosts=False)
    boosts = request.boosted.annotations.mode == BOOST and not request.fault
    return ObservedHPA(hpa.uid, hpa.resource_version, request.boosted.autoscaler.spec.max_replicas, boosts)
