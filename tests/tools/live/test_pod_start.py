"""How long pods take to start, what that consists of, and whether a probe delays them."""

from typing import Any

import msgspec
import pytest

from adapter.model.autoscaling.hpa import decode_scalar
from adapter.model.ready_times import Percentiles, ReadyTimes
from adapter.model.timestamps import SECOND, write_instant
from fastpath_tools.doctor.autoscaler_hops import advise, may_pull, pods_hop
from fastpath_tools.doctor.hops import Improvement, Took
from fastpath_tools.live import api_objects
from fastpath_tools.live.facts import Probe, Pulls, Starts, Unread
from tests.support.answers import answers
from tests.tools.doctor.test_diagnosis import facts

CREATED = 1_772_445_600
"""2026-03-02T10:00:00Z"""
PROBE = Probe("readiness probe of container web", 0.0, 10.0)


def pod(
    scheduled: float | None,
    started: float | None,
    ready: float,
    *,
    restarts: int = 0,
    created: int = 0,
    containers: Any = (),
) -> api_objects.PodDocument:
    """Return a Ready pod; times are seconds since its creation, `created` since the first one."""

    def at(seconds: float) -> str:
        return write_instant(int((CREATED + created + seconds) * SECOND))

    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": at(ready)}]
    if scheduled is not None:
        conditions += [
            {"type": kind, "status": "True", "lastTransitionTime": at(scheduled)}
            for kind in ("PodScheduled", "Initialized")
        ]
    state = {"running": {"startedAt": at(started)}} if started is not None else {}
    document = {
        "metadata": {"creationTimestamp": at(0)},
        "spec": {"containers": list(containers)},
        "status": {
            "conditions": conditions,
            "containerStatuses": [{"restartCount": restarts, "state": state}],
        },
    }
    return msgspec.convert(document, api_objects.PodDocument, dec_hook=decode_scalar)


def times(
    total: float, ready: float | None, *, scheduled: float = 0, unschedulable: int = 0, pull_failed: int = 0
) -> ReadyTimes:
    """Return the times of four alike pods."""
    if ready is None:
        return ReadyTimes(Percentiles(total, total), None, None, None, None, 4, unschedulable, pull_failed)
    parts = {"scheduled": scheduled, "started": total - ready - scheduled, "ready": ready, "total": total}
    alike = {part: Percentiles(each, each) for part, each in parts.items()}
    return msgspec.convert(
        alike | {"initialized": None, "count": 4, "unschedulable": unschedulable, "pull_failed": pull_failed},
        ReadyTimes,
    )


# -- what is measured ----------------------------------------------------------------------------------------


def test_only_pods_without_a_restart_tell_how_long_a_start_takes() -> None:
    found = api_objects.measure_starts(
        [pod(None, None, 10), pod(None, None, 30), pod(None, None, 12), pod(0, 1, 600, restarts=1)]
    )

    assert found is not None
    assert (found.times.count, found.times.total) == (3, Percentiles(12, 30))
    assert found.times.scheduled is None
    assert api_objects.measure_starts([pod(0, 1, 600, restarts=1)]) is None
    assert api_objects.measure_starts([]) is None


def test_the_parts_of_a_start() -> None:
    found = api_objects.measure_starts([pod(1, 3, 14), pod(1, 4, 14)])

    assert found is not None
    assert found.times.scheduled == Percentiles(1, 1)
    assert found.times.started == Percentiles(2, 3)
    assert found.times.ready == Percentiles(10, 11)


def test_the_newest_pods_weigh_most() -> None:
    """Of twenty pods the ten newest weigh twice as much, whatever the order of the list."""
    slow = [pod(None, None, 60, created=number) for number in range(10)]
    quick = [pod(None, None, 20, created=100 + number) for number in range(10)]

    found = api_objects.measure_starts([*quick, *slow])

    assert found is not None
    assert found.times.total == Percentiles(20, 60)


@pytest.mark.parametrize(("containers", "probe"), answers("live/pod_start", "probes"))
def test_the_probe_that_can_delay_most(containers: Any, probe: list[Any] | None) -> None:
    """It is that of the newest pod."""
    older = pod(0, 1, 14, containers=[{"name": "former", "readinessProbe": {"periodSeconds": 60}}])
    found = api_objects.measure_starts([pod(0, 1, 14, created=10, containers=containers), older])

    assert found is not None
    assert found.probe == (None if probe is None else Probe(*probe))


@pytest.mark.parametrize(
    ("messages", "pulls"),
    [*answers("live/pod_start", "pulls"), ([("a", 'Successfully pulled image "' + "x" * 100_000)], None)],
)
def test_image_pulls_of_events(messages: list[tuple[str, str]], pulls: list[Any] | None) -> None:
    events = [
        api_objects.ObjectEvent(api_objects.InvolvedObject(name), message) for name, message in messages
    ]

    assert api_objects.measure_pulls(events, {"a", "b", "c"}) == (pulls and Pulls(*pulls))


@pytest.mark.parametrize(("started", "looks"), [(None, False), (1, False), (2, True), (40, True)])
def test_events_are_read_where_containers_are_slow(started: float | None, looks: bool) -> None:  # noqa: FBT001
    shown = times(50, None if started is None else 50 - started)

    assert may_pull(shown) is looks


# -- advice --------------------------------------------------------------------------------------------------


def test_the_period_of_a_probe() -> None:
    """Started after 2 s, Ready 12 s later: at the second attempt, 10 s after the first."""
    advice = advise(times(14, 12), PROBE)

    assert advice == Improvement(
        "lower periodSeconds of the readiness probe of container web: up to 10 s of 14 s are its period", 4.5
    )


def test_the_delay_of_a_probe() -> None:
    advice = advise(times(34, 31), PROBE._replace(delay=30.0))

    assert advice == Improvement(
        "lower initialDelaySeconds of the readiness probe of container web: pods pass its first attempt, "
        "so it may be up to 30 s of 34 s",
        15.0,
    )


@pytest.mark.parametrize(("ready", "probe"), answers("live/pod_start", "no advice"))
def test_no_advice_that_the_times_do_not_support(ready: float | None, probe: dict[str, Any] | None) -> None:
    assert advise(times(40, ready), None if probe is None else PROBE._replace(**probe)) is None


# -- what is shown -------------------------------------------------------------------------------------------


def test_the_hop_of_a_pod() -> None:
    shown = times(110, 12, scheduled=95, unschedulable=2, pull_failed=1)
    target = facts().target
    assert not isinstance(target, Unread)

    starts = Starts(shown, PROBE, Pulls(2.5, 3))
    hop = pods_hop(facts(target=target._replace(starts=starts)))

    assert hop.text == (
        "from creation to ready, 4 pods: 95 s until scheduled, 3 s until containers run, 12 s until Ready, "
        "no node fitted at first for 2, an image pull failed for 1, image pulls took 2.5 s in 3 of the pods"
    )
    assert hop.took == Took(110, 110)
    assert hop.change is not None
