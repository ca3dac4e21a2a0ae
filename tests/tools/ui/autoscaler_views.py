"""Documents of autoscalers, and doctor's examination of one with which all is well."""

from typing import Any

import msgspec

from adapter.autoscaler.decide.restraint import Restraint
from adapter.autoscaler.explain.debug import moment
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND, FastPathAutoscaler, FastPathAutoscalerSpec
from adapter.model.autoscaling.view import (
    VERSION,
    AutoscalerView,
    FleetEntry,
    HistoryPoint,
    HistoryView,
    LastDecisionView,
    LimitsView,
    MetricView,
    TargetView,
    WritersView,
)
from adapter.model.objects.api_objects import Metadata
from adapter.model.timestamps import SECOND
from fastpath_tools.doctor.diagnosis import Examination
from fastpath_tools.doctor.hops import Hop, State
from fastpath_tools.live.facts import Leaders
from fastpath_tools.ui import sentence
from tests.support.doctor import fast_facts

NOW = 1_800_000_000
REQUESTS = MetricView(name="http_requests", current="12", target="10", ratio=1.2, age=2.0)
FPA = FastPathAutoscaler(
    metadata=Metadata("web", "shop"), spec=FastPathAutoscalerSpec(min_replicas=2, max_replicas=10)
)
HEALTHY = Examination(
    fast_facts(FPA, Leaders(())),
    (Hop("autoscaler", State.OK, "its conditions report no problem", timed=False),),
    fpa=FPA,
)
ENTRY = FleetEntry(
    kind=HPA_KIND,
    namespace="shop",
    name="web",
    target="Deployment web",
    mode="Boost",
    replicas=4,
    desired=7,
    min=2,
    max=7,
    limited_by=Restraint.HIGHEST.value,
    sample_age=0.8,
    chain=3.5,
    overdue=0,
    reversals=2,
    floor=7,
    boosted=True,
    fault="",
)


def at(seconds: float) -> str:
    """Return the instant so many seconds after now."""
    return moment(round((NOW + seconds) * SECOND))


def view(restraint: Restraint | None = Restraint.FOLLOWS, **changes: Any) -> AutoscalerView:
    """Return a document of five replicas, of 2 to 10."""
    last = None
    if restraint is not None:
        last = LastDecisionView(
            time=at(0), inputs=(), trace=("first step", "stays 5"), error="", limited_by=restraint.value
        )
    whole = AutoscalerView(
        version=VERSION,
        kind=HPA_KIND,
        namespace="shop",
        name="web",
        time=at(0),
        mode="Auto",
        writing=True,
        decided_since=at(-7200),
        target=TargetView(kind="Deployment", name="web", replicas=5, status_replicas=5, ready=5),
        limits=LimitsView(min=2, max=10),
        metrics=(REQUESTS,),
        next=None,
        history=None,
        ahead=(),
        status={},
        recommendations={},
        writers=WritersView(paused_until=None, paused_by="", reversals=()),
        ready_times={"pods": 3, "seconds": {"total": {"p50": 8.0, "p95": 12.0}}},
        last=last,
        journal=(),
    )
    return msgspec.structs.replace(whole, **changes)


def point(seconds: float, demand: int | None, desired: int | None = None, **changes: Any) -> HistoryPoint:
    """Return a point of the history that follows the metrics; all pods are Ready."""
    count = demand if desired is None else desired
    values: dict[str, Any] = {
        "demand": demand,
        "desired": count,
        "ready": count,
        "floor": 0,
        "min": 2,
        "max": 10,
        "limited_by": Restraint.FOLLOWS.value,
    }
    return HistoryPoint(at=at(seconds), **(values | changes))


def history(*points: HistoryPoint) -> HistoryView:
    return HistoryView(resolution=15.0, until=at(0), exact=600.0, points=points)


def explain(document: AutoscalerView, examination: Examination | None) -> str:
    """Return the sentence of a page as text."""
    why = sentence.describe(document, examination)
    parts = [f"{why.replicas}: {why.cause}", why.advice, why.then]
    return " ".join(map(why.written, filter(None, parts)))
