"""The history of an HPA, from the series of kube-state-metrics."""

import promql_parser
import pytest

from fastpath_forecast.simulate.load import Grid
from fastpath_tools.ui import hpa_history
from fastpath_tools.ui.hpa_history import HistoryPlace, SeenHistory
from tests.support.answers import answers
from tests.tools.ui.autoscaler_views import NOW, at, view

WEB = HistoryPlace("shop", "web", ("Deployment", "api"), (2, 10))
GRID = Grid(NOW - 60, NOW, 15)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "ReplicaSet", "Rollout"])
def test_queries_name_the_autoscaler_and_its_target(kind: str) -> None:
    written = hpa_history.queries(WEB._replace(target=(kind, "api")))
    for query in written.values():
        promql_parser.parse(query)
        assert 'namespace="shop"' in query
    assert 'horizontalpodautoscaler="web"' in written["desired"]
    assert ("ready" in written) == (kind != "Rollout")
    if kind != "Rollout":
        assert f'{kind.lower()}="api"' in written["ready"]


def series(**values: list[float | None]) -> dict[str, dict[int, float]]:
    return {
        name: {GRID.start + 15 * place: value for place, value in enumerate(listed) if value is not None}
        for name, listed in values.items()
    }


def test_points_that_repeat_are_left_out_and_the_first_is_known() -> None:
    given = series(
        current=[None, 4, 4, 4, 6], desired=[None, 4, 4, 6, 6], ratio=[None, 1, 1, 1.5, 1], ready=[None] * 5
    )
    built = hpa_history.build(given, GRID, WEB, NOW)
    assert (built.resolution, built.until) == (15.0, at(0))
    assert [(point.at, point.demand, point.desired, point.ready) for point in built.points] == [
        (at(-45), 4, 4, None),
        (at(-15), 6, 6, None),
    ]
    assert (built.points[0].min, built.points[0].max) == (2, 10)
    assert not hpa_history.build(series(), GRID, WEB, NOW).points


@pytest.mark.parametrize(
    ("current", "desired", "ratio", "bounds", "restraint"), answers("ui/hpa_history", "restraints")
)
def test_what_limited_the_count(
    current: float, desired: float, ratio: float | None, bounds: list[int], restraint: str
) -> None:
    given = series(current=[current], desired=[desired], ratio=[ratio], min=[bounds[0]], max=[bounds[1]])
    [point, *_] = hpa_history.build(given, GRID, WEB, NOW).points
    assert point.limited_by == restraint


def test_what_was_seen_is_kept_for_an_hour() -> None:
    seen = SeenHistory()

    def points(seconds: float, desired: int) -> list[str]:
        shown = seen.add(view(time=at(seconds), status={"desiredReplicas": desired}))
        assert shown.until == at(seconds)
        return [point.at for point in shown.points]

    assert points(0, 4) == [at(0)]
    assert points(1, 4) == [at(0)], "it repeats the last one"
    assert points(60, 5) == [at(0), at(60)]
    assert points(3600, 6) == [at(0), at(60), at(3600)]
    assert points(3700, 7) == [at(60), at(3600), at(3700)], "the last one before the hour holds at its begin"
    assert points(3800, 7) == [at(60), at(3600), at(3700)]
