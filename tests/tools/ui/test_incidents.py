"""Incidents: the readings of a cluster that has one put its cause into the first sentence of the page."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from adapter.model.autoscaling.fastpath_autoscaler import KIND
from fastpath_sandbox.apiserver.objects import timestamp
from fastpath_tools.ui import sentence
from tests.support.doctor import REQUESTS
from tests.support.tls import Authority
from tests.tools.ui import incidents
from tests.tools.ui.autoscaler_views import explain
from tests.tools.ui.incidents import Incident, incident, measured

QUEUE: dict[str, Any] = {
    "type": "External",
    "external": {
        "metric": {"name": "queue_depth", "selector": {"matchLabels": {"queue": "mails"}}},
        "target": {"type": "AverageValue", "averageValue": "5"},
    },
}


@pytest.fixture
async def shop(tmp_path: Path, authority: Authority) -> AsyncIterator[Incident]:
    async with incident(tmp_path, authority) as shop:
        yield shop


async def first_sentence(shop: Incident, *, prometheus: bool = False) -> str:
    reading = await shop.read(prometheus=prometheus)
    return explain(reading.view, reading.examination).split(". ")[0]


NO_EXTERNAL = (
    "False",
    "FailedGetExternalMetric",
    "the HPA was unable to compute the replica count: no metrics returned from external metrics API",
)


async def test_a_wrong_label(shop: Incident) -> None:
    shop.metrics.count = 0
    shop.prometheus.values = {'queue="mails"': None, "count(queue_depth": 3.0}
    shop.create(QUEUE, ScalingActive=NO_EXTERNAL)
    assert await first_sentence(shop, prometheus=True) == (
        '4 replicas: no series matches externalRules[0]: queue_depth has series, but not with queue="mails"'
    )


async def test_a_wrong_label_in_a_rule(shop: Incident) -> None:
    """The series has no label pod, so the rule makes no metric of it."""
    shop.metrics.count = 0
    shop.prometheus.series = []
    shop.prometheus.values = {'count(http_requests_total{namespace!=""})': 3.0}
    failure = "the HPA was unable to compute the replica count: unable to get metric http_requests_per_second"
    shop.create(REQUESTS, ScalingActive=("False", "FailedGetPodsMetric", failure))
    assert await first_sentence(shop, prometheus=True) == (
        "4 replicas: no series matches rules[0].seriesQuery: http_requests_total has series, but not with "
        'pod!=""'
    )


async def test_a_series_that_comes_between_two_queries_has_no_wrong_label(shop: Incident) -> None:
    shop.metrics.count = 0
    came = {"count(queue_depth{queue=": 3.0}
    shop.prometheus.values = {**came, 'queue="mails"': None, "count(queue_depth": 3.0}
    shop.create(QUEUE, ScalingActive=NO_EXTERNAL)
    assert "but not with" not in await first_sentence(shop, prometheus=True)


async def test_a_stale_exporter(shop: Incident) -> None:
    shop.prometheus.values["max(timestamp("] = incidents.now() - 200
    shop.create(REQUESTS, current=measured("10"))
    assert re.fullmatch(
        r"4 replicas: the value of http_requests_per_second is 3 m 2\d s old: a sample comes every 15 s",
        await first_sentence(shop, prometheus=True),
    )


async def test_a_revert_that_the_autoscaler_undid_is_seen_in_events(shop: Incident) -> None:
    at = timestamp(incidents.now() - 60)
    for number, (name, reason, message) in enumerate(
        (
            ("web-scaled", "ScalingReplicaSet", "Scaled down replica set web-cbf8c to 2 from 4"),
            ("web-scaled", "ScalingReplicaSet", "Scaled up replica set web-cbf8c to 4 from 2"),
            ("web", "SuccessfulRescale", "New size: 4; reason: pods metric above target"),
        )
    ):
        shop.cluster.create(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"{name}-{number}", "namespace": "shop"},
                "involvedObject": {"name": "web", "namespace": "shop"},
                "reason": reason,
                "message": message,
                "lastTimestamp": at,
            }
        )
    shop.create(REQUESTS, current=measured("10"), status={"lastScaleTime": at})
    assert await first_sentence(shop) == (
        f"4 replicas: another writer lowered the replicas of Deployment web to 2 at {at}, "
        "below what the autoscaler wants"
    )


async def test_when_a_stabilization_window_ends(shop: Incident) -> None:
    held = ("True", "ScaleDownStabilized", "recent recommendations were higher than current one")
    shop.create(REQUESTS, current=measured("5"), AbleToScale=held)
    shop.prometheus.ranges = {"status_(current|desired)_replicas": [4.0], "target_metric": [1.0, 0.5]}
    reading = await shop.read(prometheus=True)
    change = reading.view.next
    assert change is not None
    assert change.replicas == 2
    text = explain(reading.view, reading.examination)
    assert text.endswith(f"2 replicas at {change.at[11:19]} UTC if the load stays.")


HITS: dict[str, Any] = {
    "type": "Object",
    "object": {
        "metric": {"name": "hits"},
        "describedObject": {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "mein"},
        "target": {"type": "Value", "value": "100"},
    },
}
LOST = ("False", "FailedGetPodsMetric", "the HPA was unable to compute the replica count: no metrics")


@pytest.mark.parametrize("kind", ["HorizontalPodAutoscaler", KIND])
@pytest.mark.parametrize(
    ("metric", "cause", "advice"),
    [
        (
            REQUESTS,
            "Fastpath answers without a value of http_requests_per_second",
            "check that the pods run and expose the metric",
        ),
        (
            HITS,
            "Ingress mein, which metric hits is of, does not exist",
            "correct describedObject.name in spec.metrics",
        ),
    ],
    ids=["a metric without a value", "an object that is not there"],
)
async def test_both_kinds_name_the_same_cause(
    shop: Incident, kind: str, metric: dict[str, Any], cause: str, advice: str
) -> None:
    shop.metrics.count = 0
    shop.lead()
    shop.create(metric, kind=kind, current=[{"type": ""}], ScalingActive=LOST)
    reading = await shop.read()
    why = sentence.describe(reading.view, reading.examination)
    assert (why.cause, why.advice, why.state.value) == (cause, advice, "fault")


async def test_a_direction_that_is_disabled_of_a_fast_path_autoscaler(shop: Incident) -> None:
    shop.lead()
    held = ("True", "ScaleDownStabilized", "recent recommendations were higher than current one")
    spec = {"behavior": {"scaleDown": {"selectPolicy": "Disabled"}}}
    shop.create(REQUESTS, kind=KIND, spec=spec, current=measured("5"), AbleToScale=held)
    reading = await shop.read()
    why = sentence.describe(reading.view, reading.examination)
    assert why.cause.startswith("spec.behavior.scaleDown.selectPolicy is Disabled: it never scales down")
    assert (why.advice, why.state.value) == ("remove spec.behavior.scaleDown.selectPolicy", "warning")


@pytest.mark.parametrize(
    ("verb", "resource", "note"),
    [
        ("list", "pods", "the pods of Deployment web cannot be read: pods is forbidden"),
        ("get", "deployments/scale", 'Deployment web cannot be read: deployments.apps "web" is forbidden'),
    ],
)
async def test_what_may_not_be_read_is_a_note(shop: Incident, verb: str, resource: str, note: str) -> None:
    shop.cluster.forbid(verb, resource)
    shop.create(REQUESTS, current=measured("10"))
    reading = await shop.read()
    assert reading.view.target.ready is None
    assert reading.notes[0].startswith(note)
    assert sentence.describe(reading.view, reading.examination).replicas == "4 replicas"
