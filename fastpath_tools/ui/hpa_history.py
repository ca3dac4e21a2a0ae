"""The last hour of an HPA: from Prometheus, as kube-state-metrics has it, or as it was seen.

Demand is what the metrics ask for before all limits: the current replicas times the highest ratio of value
and target. Where there is no sample a number is null.
"""

import itertools
import math
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from adapter.autoscaler.decide.restraint import Restraint
from adapter.autoscaler.explain.debug import moment
from adapter.model.autoscaling.view import AutoscalerView, HistoryPoint, HistoryView
from adapter.model.timestamps import SECOND, read_nanoseconds
from adapter.rules import matchers
from adapter.rules.matchers import Matcher
from fastpath_forecast.range_query import RangeReader
from fastpath_forecast.simulate.load import Grid, Values, build_grid
from fastpath_tools.ui import sentence

HOUR = 3600.0
STEP = 15
_MOST_SEEN = 1200
"""How many points are kept of what was seen."""

_QUERIES = {
    "current": "max(kube_horizontalpodautoscaler_status_current_replicas{%s})",
    "desired": "max(kube_horizontalpodautoscaler_status_desired_replicas{%s})",
    "min": "max(kube_horizontalpodautoscaler_spec_min_replicas{%s})",
    "max": "max(kube_horizontalpodautoscaler_spec_max_replicas{%s})",
    "ratio": (
        "max(kube_horizontalpodautoscaler_status_target_metric{%s} / "
        "on(namespace, horizontalpodautoscaler, metric_name, metric_target_type) "
        "kube_horizontalpodautoscaler_spec_target_metric{%s})"
    ),
}
_READY = {
    "Deployment": "max(kube_deployment_status_replicas_ready{%s})",
    "StatefulSet": "max(kube_statefulset_status_replicas_ready{%s})",
    "ReplicaSet": "max(kube_replicaset_status_ready_replicas{%s})",
}
"""The ready pods of the kinds that kube-state-metrics knows, whose label is the kind in small letters."""


class HistoryPlace(NamedTuple):
    """An autoscaler, the target that it scales, and the bounds of its spec, which it has without a sample."""

    namespace: str
    name: str
    target: tuple[str, str]
    bounds: tuple[int, int]


async def read(ranges: RangeReader, place: HistoryPlace, now: float) -> HistoryView:
    """Return the history up to `now`, in epoch seconds. PrometheusError."""
    grid = build_grid(now, HOUR, STEP)
    series = {
        name: await ranges.read(query, grid.start, grid.end, grid.step)
        for name, query in queries(place).items()
    }
    return build(series, grid, place, now)


def queries(place: HistoryPlace) -> dict[str, str]:
    """Return the query of each number."""
    labels = _labels(place.namespace, "horizontalpodautoscaler", place.name)
    written = {name: query.replace("%s", labels) for name, query in _QUERIES.items()}
    kind, target = place.target
    if kind in _READY:
        written["ready"] = _READY[kind].replace("%s", _labels(place.namespace, kind.lower(), target))
    return written


def _labels(namespace: str, label: str, name: str) -> str:
    return matchers.join([Matcher("namespace", "=", namespace), Matcher(label, "=", name)])


class SeenHistory:
    """What was seen of an autoscaler while its page was open, where no Prometheus knows it."""

    def __init__(self) -> None:
        self._points: deque[HistoryPoint] = deque(maxlen=_MOST_SEEN)

    def add(self, view: AutoscalerView) -> HistoryView:
        """Return the history with what a document shows now."""
        point = HistoryPoint(
            at=view.time,
            demand=sentence.demand(view),
            desired=view.status.get("desiredReplicas"),
            ready=view.target.ready,
            floor=0,
            min=view.limits.min,
            max=view.limits.max,
            limited_by="" if view.last is None else view.last.limited_by,
        )
        if not self._points or not _repeats(point, self._points[-1]):
            self._points.append(point)
        oldest = read_nanoseconds(view.time) - round(HOUR * SECOND)
        while len(self._points) > 1 and read_nanoseconds(self._points[1].at) <= oldest:
            self._points.popleft()
        return HistoryView(resolution=1.0, until=view.time, points=tuple(self._points))


def build(series: Mapping[str, Values], grid: Grid, place: HistoryPlace, now: float) -> HistoryView:
    """Return the history of values by time, from the first known count on, without points that repeat one."""
    points: list[HistoryPoint] = []
    for at in range(grid.start, grid.end + 1, grid.step):
        point = _point({name: values.get(at) for name, values in series.items()}, at, place)
        if not points or not _repeats(point, points[-1]):
            points.append(point)
    known = tuple(itertools.dropwhile(lambda point: point.desired is None, points))
    return HistoryView(resolution=float(grid.step), until=moment(round(now * SECOND)), points=known)


def _point(values: Mapping[str, float | None], at: int, place: HistoryPlace) -> HistoryPoint:
    current, ratio = values.get("current"), values.get("ratio")
    demand = None if current is None or ratio is None else math.ceil(round(current * ratio, sentence.ROUNDED))
    least, most = (_whole(values.get(name)) for name in ("min", "max"))
    bounds = (place.bounds[0] if least is None else least, place.bounds[1] if most is None else most)
    desired = _whole(values.get("desired"))
    return HistoryPoint(
        at=moment(at * SECOND),
        demand=demand,
        desired=desired,
        ready=_whole(values.get("ready")),
        floor=0,
        min=bounds[0],
        max=bounds[1],
        limited_by=_limit(demand, desired, bounds, ratio),
    )


def _limit(demand: int | None, desired: int | None, bounds: tuple[int, int], ratio: float | None) -> str:
    """Return what kept the count, as far as the counts say it."""
    least, most = bounds
    if desired is None:
        return ""
    if demand is None or ratio is None:
        restraint = Restraint.ABSENT
    elif demand == desired:
        restraint = Restraint.FOLLOWS
    elif 0.9 <= ratio <= 1.1:
        restraint = Restraint.TOLERATED
    elif demand > desired:
        restraint = Restraint.HIGHEST if desired >= most else Restraint.LIMITED
    else:
        restraint = Restraint.LOWEST if desired <= least else Restraint.HELD
    return restraint.value


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _repeats(point: HistoryPoint, last: HistoryPoint) -> bool:
    return replace(point, at=last.at) == last
