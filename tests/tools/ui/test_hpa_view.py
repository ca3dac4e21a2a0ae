"""The document of an HPA that no scaler knows: what its conditions, values and history say."""

from typing import Any

import msgspec
import pytest

from adapter.autoscaler.decide.restraint import Restraint
from adapter.model.autoscaling.hpa import MetricSpec, decode_scalar
from adapter.model.autoscaling.view import AutoscalerView, HistoryView
from adapter.model.timestamps import SECOND
from fastpath_tools.doctor.diagnosis import examine
from fastpath_tools.doctor.hops import Facts
from fastpath_tools.live.api_objects import HPA
from fastpath_tools.live.facts import AnswerFacts, MetricFacts, TargetFacts, Unread
from fastpath_tools.ui import hpa_view
from tests.support.answers import answers
from tests.tools.doctor.test_diagnosis import LOAD, facts, load
from tests.tools.ui.autoscaler_views import NOW, at, history, point

QUEUE: dict[str, Any] = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "100"}},
}
REST = LOAD | {"pods": LOAD["pods"] | {"metric": {"name": "rest"}}}
MEASURED = [{"type": "Pods", "pods": {"metric": {"name": "load"}, "current": {"averageValue": "15"}}}]


def facts_of(*conditions: tuple[str, str, str], **changes: Any) -> Facts:
    """Return the facts of four replicas whose load asks for six; `changes` are of spec and status."""
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 2,
        "maxReplicas": 20,
        "metrics": [LOAD],
    }
    status = {
        "currentReplicas": 4,
        "desiredReplicas": 4,
        "currentMetrics": MEASURED,
        "conditions": [dict(zip(("type", "status", "reason"), one, strict=True)) for one in conditions],
    }
    document = {
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": spec | changes.pop("spec", {}),
        "status": status | changes.pop("status", {}),
    }
    hpa = msgspec.convert(document, HPA, dec_hook=decode_scalar)
    return facts(hpa=hpa, now=NOW * SECOND, **changes)


def with_own_metrics(given: Facts) -> Facts:
    """Have the facts of each metric be of the spec."""
    specs = given.hpa.spec.metrics or ()
    return given._replace(metrics=tuple(load(spec=spec) for spec in specs))


def build(given: Facts, past: HistoryView | None = None) -> AutoscalerView:
    return hpa_view.build(examine(given), past)


ABLE = ("AbleToScale", "True", "ReadyForNewScale")
ACTIVE = ("ScalingActive", "True", "ValidMetricFound")
HELD = ("AbleToScale", "True", "ScaleDownStabilized")


@pytest.mark.parametrize(("conditions", "restraint"), answers("ui/hpa_view", "conditions"))
def test_what_the_conditions_say(conditions: list[tuple[str, str, str]], restraint: str | None) -> None:
    last = build(facts_of(*conditions)).last
    assert last is not None
    assert last.limited_by == (restraint or "")


@pytest.mark.parametrize(("spec", "restraint"), answers("ui/hpa_view", "bounds"))
def test_a_bound_that_no_condition_reports_yet(spec: dict[str, Any], restraint: str) -> None:
    last = build(with_own_metrics(facts_of(ABLE, ACTIVE, spec=spec))).last
    assert last is not None
    assert last.limited_by == restraint


def test_tolerance_is_that_of_the_spec() -> None:
    calm = [{"type": "Pods", "pods": {"metric": {"name": "load"}, "current": {"averageValue": "10400m"}}}]
    strict = {"behavior": {"scaleUp": {"tolerance": "30m"}}}
    wide = build(facts_of(ABLE, ACTIVE, status={"currentMetrics": calm})).last
    narrow = build(facts_of(ABLE, ACTIVE, status={"currentMetrics": calm}, spec=strict)).last
    assert wide is not None
    assert narrow is not None
    assert (wide.limited_by, narrow.limited_by) == (Restraint.TOLERATED.value, Restraint.FOLLOWS.value)


def test_the_ladder_has_the_steps_of_each_metric() -> None:
    spec, unread = msgspec.convert(QUEUE, MetricSpec, dec_hook=decode_scalar), Unread("it is not read")
    queue = MetricFacts("queue", spec, unread, unread)
    given = facts_of(
        ABLE,
        spec={"metrics": [LOAD, QUEUE]},
        status={"currentMetrics": [*MEASURED, {"type": ""}]},
        metrics=(load(), queue),
    )
    view = build(given)
    assert view.last is not None
    assert view.last.trace == (
        "load: 15, target 10: ratio 1.5, asks for 6",
        "queue: no value: no value",
        "AbleToScale True (ReadyForNewScale): ",
    )
    assert [(metric.current, metric.ratio) for metric in view.metrics] == [("15", 1.5), ("<unknown>", None)]


def test_a_metric_that_fails_has_no_value() -> None:
    [metric] = build(facts_of(ABLE, metrics=(load(answer=AnswerFacts(0, error="gone")),))).metrics
    assert (metric.current, metric.ratio) == ("<unknown>", None)
    assert metric.fault == "Fastpath has no value of load: gone"


def test_a_target_that_cannot_be_read() -> None:
    gone = ("AbleToScale", "False", "FailedGetScale")
    view = build(facts_of(gone, target=Unread("not found")))
    assert (view.target.error, view.target.replicas, view.next) == ("not found", None, None)


def test_a_target_that_only_the_controller_may_read_has_the_count_of_the_status() -> None:
    view = build(facts_of(ABLE, ACTIVE, target=Unread("forbidden")))
    assert (view.target.error, view.target.replicas, view.target.ready) == ("", 4, None)
    limited = build(facts_of(ABLE, ACTIVE, spec={"maxReplicas": 4}, target=Unread("forbidden")))
    assert shown(limited) == (Restraint.HIGHEST.value, 6)
    unread = TargetFacts(4, "app=web", unread="forbidden")
    assert build(facts_of(ABLE, ACTIVE, target=unread)).target.ready is None


@pytest.mark.parametrize(("points", "spec", "change"), answers("ui/hpa_view", "window ends"))
def test_when_a_stabilization_window_ends(
    points: list[tuple[int, int | None]], spec: dict[str, Any], change: tuple[int, int] | None
) -> None:
    past = history(*(point(*each) for each in points))
    ends = build(facts_of(HELD, ACTIVE, spec=spec), past).next
    assert (ends and (ends.replicas, ends.at)) == (change and (change[0], at(change[1])))


def test_a_count_that_is_not_written_yet_comes_with_the_next_decision() -> None:
    change = build(facts_of(ABLE, ACTIVE, status={"desiredReplicas": 6})).next
    assert change is not None
    assert (change.replicas, change.at, change.released) == (6, at(15), "")
    assert build(facts_of(ABLE, ACTIVE)).next is None
    bare = facts_of(ABLE)
    assert build(bare._replace(hpa=msgspec.structs.replace(bare.hpa, status=None))).next is None


def pods(count: int, ready: int) -> dict[str, Any]:
    """Return a target of which so many pods are Ready."""
    target = facts().target
    assert not isinstance(target, Unread)
    return {
        "target": target._replace(replicas=count, ready=tuple(f"web-{number}" for number in range(ready)))
    }


def shown(view: AutoscalerView) -> tuple[str, int | None]:
    """Return what keeps the count, and what the metrics ask for."""
    assert view.last is not None
    return view.last.limited_by, view.last.demand


def test_the_status_is_of_the_count_before_it_was_raised() -> None:
    """Its values are of 4 pods, and asked for the 6 that there are now."""
    view = build(facts_of(ABLE, ACTIVE, status={"desiredReplicas": 6}, **pods(6, 4)))
    assert shown(view) == (Restraint.FOLLOWS.value, 6)
    assert view.last is not None
    assert view.last.trace[0] == "load: 15, target 10: ratio 1.5, asks for 6"
    assert view.next is None


def test_pods_that_are_not_ready_have_no_values_that_count() -> None:
    counts = {"currentReplicas": 6, "desiredReplicas": 6}
    assert shown(build(facts_of(ABLE, ACTIVE, status=counts, **pods(6, 4)))) == (Restraint.FOLLOWS.value, 6)
    limited = ("ScalingLimited", "True", "TooManyReplicas")
    assert shown(build(facts_of(ABLE, ACTIVE, limited, status=counts, **pods(6, 4))))[1] == 6
    assert shown(build(facts_of(ABLE, ACTIVE, limited, status=counts, **pods(6, 0))))[1] == 9, "not known"
    assert shown(build(facts_of(ABLE, ACTIVE, limited, status=counts, target=Unread("no"))))[1] == 9


def test_a_total_is_divided_by_all_pods() -> None:
    average = {"type": "AverageValue", "averageValue": "100"}
    queue = {"type": "External", "external": {"metric": {"name": "queue"}, "target": average}}
    status = {
        "currentReplicas": 7,
        "desiredReplicas": 7,
        "currentMetrics": [
            {
                "type": "External",
                "external": {"metric": {"name": "queue"}, "current": {"averageValue": "42858m"}},
            }
        ],
    }
    limited = ("ScalingLimited", "True", "TooManyReplicas")
    given = facts_of(ABLE, ACTIVE, limited, spec={"metrics": [queue]}, status=status, **pods(7, 4))
    assert shown(build(with_own_metrics(given))) == (Restraint.HIGHEST.value, 3), "300 of 7 pods"


def test_the_highest_of_several_metrics_may_be_within_tolerance() -> None:
    measured = [
        {"type": "Pods", "pods": {"metric": {"name": "load"}, "current": {"averageValue": value}}}
        for value in ("10300m", "2")
    ]
    given = facts_of(ABLE, ACTIVE, spec={"metrics": [LOAD, REST]}, status={"currentMetrics": measured})
    assert shown(build(with_own_metrics(given))) == (Restraint.TOLERATED.value, 4)


def test_without_a_value_nothing_is_asked_for() -> None:
    given = facts_of(
        ABLE, ACTIVE, ("ScalingLimited", "True", "TooFewReplicas"), status={"currentMetrics": []}
    )
    assert shown(build(given)) == (Restraint.LOWEST.value, None)
    assert shown(build(facts_of(ABLE, ACTIVE, status={"currentMetrics": []}))) == (Restraint.FOLLOWS.value, 4)
