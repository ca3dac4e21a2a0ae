"""The status of schedules: what is active and next, what keeps them from acting, and when it is written."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from adapter.autoscaler.schedules import status
from adapter.autoscaler.schedules.status import Lookout, Outlook, ScheduleStatus, TargetState, TargetStatus
from adapter.bounds.schedule import documents, windows
from adapter.bounds.schedule.documents import FastPathSchedule, ScheduleTarget
from adapter.errors import Fault
from adapter.model.timestamps import SECOND, read_instant
from tests.bounds.test_reading import cases
from tests.support.schedules import schedule

HPA = ScheduleTarget("HorizontalPodAutoscaler", "web")
OWN = ScheduleTarget("FastPathAutoscaler", "api")
BOTH = [{"kind": each.kind, "name": each.name} for each in (HPA, OWN)]
BUSINESS = {"name": "business", "days": ["Fri"], "from": "08:00", "to": "18:30", "minReplicas": 20}
QUIET = {"name": "quiet", "days": ["Fri"], "from": "12:00", "to": "14:00", "maxReplicas": 10}


def at(text: str) -> int:
    return read_instant(text) // SECOND


FRIDAY = at("2026-11-27T11:30:00Z")  # 12:30 in Berlin


def described(
    found: FastPathSchedule,
    now: int,
    states: Mapping[ScheduleTarget, TargetState] | None = None,
    before: ScheduleStatus = ScheduleStatus(),  # noqa: B008 - immutable
) -> Any:
    """Return the status as it is stored."""
    known = {target: TargetState() for target in found.targets} | dict(states or {})
    made = status.describe(found, 3, known, look(Lookout(found.schedule), now), before, now)
    assert status.decode(json.dumps(json.loads(_encode(made))).encode()) == made
    return json.loads(_encode(made))


def look(lookout: Lookout, now: int) -> Outlook:
    steps = lookout.look(now)
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            found: Outlook = ended.value
            return found


def _encode(made: ScheduleStatus) -> bytes:
    return msgspec.json.encode(made)


def test_active_windows_and_the_next_boundary() -> None:
    shown = described(schedule(BUSINESS, QUIET, targets=BOTH), FRIDAY)
    assert shown["active"] == "business, quiet"
    assert shown["windows"] == ["business", "quiet"]
    assert (shown["minReplicas"], shown["maxReplicas"]) == (20, 20)
    assert shown["nextBoundary"] == {"time": "2026-11-27T13:00:00Z", "window": "quiet", "edge": "end"}
    assert shown["conflicts"] == ["business has a floor above the ceiling of quiet"]
    assert shown["observedGeneration"] == 3


def test_the_next_boundary_of_windows_that_are_many_is_looked_for_nearby() -> None:
    """On Fridays each second minute, but none this week."""
    often = {"cron": "*/2 * * * 5", "for": "1m", "minReplicas": 3}
    shown = described(schedule(often, **{"except": ["2026-11-27"]}), FRIDAY)
    assert shown["nextBoundary"] is None
    seldom = schedule({"cron": "0 8 * * 5", "for": "1m", "minReplicas": 3}, **{"except": ["2026-11-27"]})
    assert described(seldom, FRIDAY)["nextBoundary"]["time"] == "2026-12-04T07:00:00Z"


def test_what_keeps_it_from_acting() -> None:
    found = schedule(BUSINESS, targets=BOTH)
    missing = TargetState(status.TARGET_NOT_FOUND, "there is no FastPathAutoscaler shop/api")
    shown = described(found, FRIDAY, {OWN: missing})
    assert shown["targets"] == [
        {"kind": HPA.kind, "name": "web", "applied": True, "reason": "Applied"},
        {"kind": OWN.kind, "name": "api", "applied": False, "reason": missing.reason}
        | {"message": missing.message},
    ]
    (condition,) = shown["conditions"]
    assert condition == {
        "type": "Applied",
        "status": "False",
        "reason": "TargetNotFound",
        "message": "FastPathAutoscaler/api: there is no FastPathAutoscaler shop/api",
        "lastTransitionTime": "2026-11-27T11:30:00Z",
        "observedGeneration": 3,
    }


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    found = schedule(BUSINESS, targets=BOTH)
    first = status.decode(json.dumps(described(found, FRIDAY)).encode())
    assert first.conditions[0].message == "the bounds reach all 2 targets"
    later = described(found, FRIDAY + 60, before=first)
    assert later["conditions"][0]["lastTransitionTime"] == "2026-11-27T11:30:00Z"
    paused = described(found, FRIDAY + 90, {OWN: TargetState(status.PAUSED, "paused")}, first)
    assert paused["conditions"][0]["lastTransitionTime"] == "2026-11-27T11:31:30Z"


def test_a_ceiling_and_an_early_begin_are_explained() -> None:
    found = schedule(BUSINESS, QUIET, targets=BOTH, ready="ByStart")
    shown = described(found, FRIDAY, {OWN: TargetState(lead=43)})
    hpa, own = shown["targets"]
    assert hpa["message"] == (
        "a ceiling is not for a HorizontalPodAutoscaler: it gets the floor alone; no start-up time is known "
        "yet: floors begin at the start of their window"
    )
    assert "leadSeconds" not in hpa
    assert (own["leadSeconds"], own.get("message")) == (43, None)


def test_one_that_cannot_be_used_says_why_and_keeps_the_rest() -> None:
    before = ScheduleStatus(2, "business", ("business",), 20, targets=(TargetStatus("a", "b", True, "c"),))
    fault = Fault("spec.timeZone", "Europe/Berlln", "expected a time zone")
    made = status.describe_invalid([fault] * 20, 3, before, FRIDAY)
    assert (made.observed_generation, made.active, made.targets) == (3, "business", before.targets)
    assert made.conditions[0].reason == "Invalid"
    assert made.conditions[0].message.count("spec.timeZone: Europe/Berlln: expected a time zone") == 10


def test_a_stored_status_that_cannot_be_read_counts_as_none() -> None:
    assert status.decode(b"") == status.decode(b'{"targets": 7}') == ScheduleStatus()


@pytest.mark.timeout(60)
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(cases(), st.lists(st.integers(-2 * 86_400, 4 * 86_400), min_size=1, max_size=4))
def test_the_outlook_is_that_of_the_windows(
    case: tuple[str, int, dict[str, Any]], moments: list[int]
) -> None:
    """Whatever was looked at before, also if a clock is set back."""
    _, middle, tree = case
    found = documents.read_document(tree).schedule
    lookout = Lookout(found)
    for moment in moments:
        now = middle + moment
        outlook = look(lookout, now)
        plain = windows.levels(found, now, now + 1)
        assert outlook.level == (plain[0] if plain else None)
        following = next(
            (
                listed[0]
                for days in (1, 31, 366)
                if (listed := windows.boundaries([found], now + 1, now + days * 86_400))
            ),
            None,
        )
        if windows.spans_a_day(found) < 50 or (following is not None and following.at < now + 86_400):
            assert outlook.following == following
        assert outlook.until == min(now + 86_400, now + 86_400 if following is None else following.at)


def test_conflicts_are_kept_for_some_minutes() -> None:
    lookout = Lookout(schedule(BUSINESS, QUIET, targets=BOTH).schedule)
    (conflict,) = look(lookout, FRIDAY).conflicts
    assert look(lookout, FRIDAY + 599).conflicts == (conflict,)
    assert look(lookout, FRIDAY + 2 * 3600).conflicts == ()
    assert look(lookout, FRIDAY).conflicts == (conflict,)
