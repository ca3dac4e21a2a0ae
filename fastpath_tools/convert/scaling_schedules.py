"""ScalingSchedules and ClusterScalingSchedules (zalando.org/v1) of kube-metrics-adapter as FastPathSchedules.

The value of an entry counts only through a HorizontalPodAutoscaler: it asks for the value divided by the
averageValue of its Object metric. So the HPAs have to be among the files.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from adapter.bounds.schedule.documents import DAYS, LONGEST_FOR
from adapter.bounds.schedule.windows import ActiveSpan
from adapter.errors import Fault, InputError
from adapter.model import local_time, quantity, timestamps
from adapter.model.autoscaling import documents
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND, KIND
from adapter.model.timestamps import SECOND
from fastpath_tools.convert import drafts
from fastpath_tools.convert.conversion import Converted
from fastpath_tools.convert.cron import clock, length_of
from fastpath_tools.convert.drafts import ScheduleDraft, WindowDraft
from fastpath_tools.manifests import listed_at, mapping_at

NAMESPACED, CLUSTER = "ScalingSchedule", "ClusterScalingSchedule"
SCALER = "kube-metrics-adapter"

_FIELDS = """
spec.scalingWindowDurationMinutes
spec.schedules[].type spec.schedules[].value spec.schedules[].durationMinutes
spec.schedules[].date spec.schedules[].endDate
spec.schedules[].period.startTime spec.schedules[].period.endTime
spec.schedules[].period.days spec.schedules[].period.timezone
"""
_READ = frozenset(_FIELDS.split())
"""The fields that make a schedule, or notes of their own."""

_DEFAULT_ZONE = "Europe/Berlin"
_DEFAULT_RAMP = 10
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")
_MOST_MINUTES = LONGEST_FOR // SECOND // 60
_MINUTE = 60
_DAY = timedelta(days=1)
_EPOCH = datetime.combine(date(1970, 1, 1), time())


@dataclass(frozen=True, slots=True)
class RepeatingEntry:
    """`weekdays` (Monday is 0); `begin` and `end` in minutes since midnight, `duration` in minutes."""

    weekdays: frozenset[int]
    begin: int
    end: int | None
    duration: int

    def spans(self, start: int, end: int, zone: ZoneInfo) -> list[ActiveSpan]:
        """Return when kube-metrics-adapter takes the entry as active, without its ramps.

        It looks at the local day of now only: from the start on that day to the end on that day, so that
        nothing is left after midnight, and an end before the start leaves nothing at all. The end is endTime,
        or durationMinutes after the start, whichever is later.
        """
        spans = []
        day = local_time.local_at(start, zone).date() - 2 * _DAY
        last = local_time.local_at(end, zone).date() + 2 * _DAY
        while day <= last:
            if day.weekday() in self.weekdays:
                begin = go_date(day, self.begin, zone)
                until = begin + self.duration * _MINUTE
                if self.end is not None:
                    until = max(until, go_date(day, self.end, zone))
                midnight = datetime.combine(day, time())
                begin = max(begin, local_time.first_at(midnight, zone))
                until = min(until, local_time.end_of(midnight + _DAY, zone))
                if begin < until:
                    spans.append(ActiveSpan(begin, until))
            day += _DAY
        return spans

    def window(self) -> dict[str, Any] | None:
        """Return the window as a document without name and bounds, None where the entry has no length.

        An end before the start is one on the next day, and a duration may go on after midnight.
        """
        is_daily = len(self.weekdays) == len(DAYS)
        clocked = 0 if self.end is None else (self.end - self.begin) % (24 * _MINUTE)
        # an endTime before the start is never later than the end of the duration
        is_longer = self.end is not None and self.end > self.begin and clocked >= self.duration
        if clocked and (not self.duration or is_longer):
            window = {"from": clock(self.begin * _MINUTE), "to": clock((self.end or 24 * _MINUTE) * _MINUTE)}
            return window if is_daily else {"days": [DAYS[day] for day in sorted(self.weekdays)]} | window
        if not self.duration:
            return None
        days = "*" if is_daily else ",".join(map(str, sorted((day + 1) % 7 for day in self.weekdays)))
        cron = f"{self.begin % _MINUTE} {self.begin // _MINUTE} * * {days}"
        return {"cron": cron, "for": length_of(self.duration * _MINUTE)}


def single_window(span: ActiveSpan, zone: ZoneInfo) -> dict[str, Any] | None:
    """Return a window for one span, None if the zone's clock cannot say it."""
    begin, end = (local_time.local_at(at, zone) for at in span)
    if ActiveSpan(local_time.first_at(begin, zone), local_time.end_of(end, zone)) != span:
        return None
    texts = [f"{local:%Y-%m-%dT%H:%M}" + (f":{local:%S}" if local.second else "") for local in (begin, end)]
    return {"start": texts[0], "end": texts[1]}


def go_date(day: date, minutes: int, zone: ZoneInfo) -> int:
    """Return the instant of a local time as Go's time.Date does.

    A skipped time is taken with the offset after the gap or with that before it, and a time that is shown
    twice is its first or its second instant. Which of the two depends on the zone.
    """
    local = round((datetime.combine(day, time()) - _EPOCH).total_seconds()) + minutes * _MINUTE
    offset = local_time.offset_at(local, zone)
    first, second = sorted((local, local - offset))
    if local_time.transitions(first + 1, second + 1, zone):
        offset = local_time.offset_at(local - offset, zone)
    return local - offset


class Reader(NamedTuple):
    """An autoscaler that reads a schedule: each pod stands for `milli` thousandths of the value."""

    name: str
    namespace: str | None
    metric: str
    milli: int


class _ScalingEntry(NamedTuple):
    label: str
    zone: ZoneInfo
    value: int
    window: dict[str, Any]
    repeating: RepeatingEntry | None

    def draft(self, milli: int) -> WindowDraft:
        """Return the window for an autoscaler; each pod stands for `milli` thousandths of the value."""
        replicas = -(-self.value * 1000 // milli)
        label = f"{self.label} ({replicas} replicas, {self.zone.key})"
        original = None if self.repeating is None else self.repeating.spans
        return WindowDraft(label, self.zone, [self.window], replicas, original, is_weekly=True)


def is_scaling_schedule(tree: object) -> bool:
    return (
        isinstance(tree, dict)
        and tree.get("kind") in (NAMESPACED, CLUSTER)
        and str(tree.get("apiVersion")).startswith("zalando.org/")
    )


def convert(tree: dict[str, Any], autoscalers: Sequence[dict[str, Any]], now: int) -> list[Converted]:
    """Return the schedules for a ScalingSchedule, one for each averageValue, namespace and zone.

    InputError with all faults.
    """
    faults: list[Fault] = []
    notes: list[str] = []
    name, namespace = drafts.named(tree, faults)
    readers = list(_readers(tree["kind"], name, namespace, autoscalers, faults))
    if not readers and not faults:
        expected = (
            f"expected a {HPA_KIND} that reads it among the files: its averageValue says how many "
            "replicas a value is"
        )
        faults.append(Fault("metadata.name", name, expected))
    spec = mapping_at(tree, "spec")
    entries = _entries(spec, faults, notes)
    ramp = drafts.integer_at(
        spec, "scalingWindowDurationMinutes", "spec.scalingWindowDurationMinutes", faults, _DEFAULT_RAMP
    )
    if not entries and not faults:
        faults.append(Fault("spec.schedules", "", f"expected an entry with a length; {'; '.join(notes)}"))
    if faults:
        raise InputError(faults)
    groups: dict[tuple[str | None, int], dict[str, None]] = {}
    for reader in readers:
        groups.setdefault((reader.namespace, reader.milli), {})[reader.name] = None
    namespaces = [place for place, _ in groups]
    schedules: list[Converted] = []
    for (place, milli), names in groups.items():
        targets = [{"kind": KIND, "name": target} for target in names]
        own_name = name if namespaces.count(place) == 1 else f"{name}-{targets[0]['name']}"
        windows = [entry.draft(milli) for entry in entries]
        schedules += drafts.write(ScheduleDraft(SCALER, own_name, place, targets, ramp > 0, windows), now)
    last = schedules[-1]
    schedules[-1] = last._replace(notes=(*last.notes, *notes, *_notes(tree, ramp, readers)))
    return schedules


# -- the autoscalers that read it ----------------------------------------------------------------------------


def _readers(
    kind: str, name: str, namespace: str | None, autoscalers: Sequence[dict[str, Any]], faults: list[Fault]
) -> Iterator[Reader]:
    for tree in autoscalers:
        reader_name, reader_namespace = drafts.named(tree, [])
        if kind == NAMESPACED and reader_namespace != namespace:
            continue
        for metric in listed_at(tree, "spec", "metrics"):
            if not _is_of(metric, kind, name):
                continue
            source = mapping_at(metric, "object")
            milli = _milli(mapping_at(source, "target").get("averageValue"))
            if milli is None:
                expected = f"expected a positive averageValue in the metric of {HPA_KIND} {reader_name}"
                faults.append(Fault("metadata.name", name, expected))
                continue
            metric_name = str(mapping_at(source, "metric").get("name"))
            yield Reader(reader_name, reader_namespace, metric_name, milli)


def _is_of(metric: object, kind: str, name: str) -> bool:
    described = mapping_at(metric, "object", "describedObject")
    return (described.get("kind"), described.get("name")) == (kind, name)


def without_replaced(
    tree: dict[str, Any], schedules: Sequence[dict[str, Any]]
) -> tuple[dict[str, Any], list[str]]:
    """Return a valid autoscaler without its metrics of schedules, and their names."""
    _, namespace = drafts.named(tree, [])
    read = [(schedule["kind"], *drafts.named(schedule, [])) for schedule in schedules]
    near = [(kind, name) for kind, name, where in read if kind == CLUSTER or where == namespace]
    spec = mapping_at(tree, "spec")
    listed = listed_at(spec, "metrics")
    left = [metric for metric in listed if not any(_is_of(metric, *place) for place in near)]
    names = [metric["object"]["metric"]["name"] for metric in listed if metric not in left]
    if not names:
        return tree, []
    rest = {key: value for key, value in spec.items() if key != "metrics"}
    return tree | {"spec": rest | ({"metrics": left} if left else {})}, names


def _milli(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        milli = quantity.read(str(value)).milli
    except ValueError:
        return None
    return milli if milli > 0 else None


# -- entries -------------------------------------------------------------------------------------------------


def _entries(spec: dict[str, Any], faults: list[Fault], notes: list[str]) -> list[_ScalingEntry]:
    listed = listed_at(spec, "schedules")
    zones = [zone for item in listed if isinstance(zone := mapping_at(item, "period").get("timezone"), str)]
    entries: list[_ScalingEntry] = []
    for index, item in enumerate(listed):
        path = f"spec.schedules[{index}]"
        before = len(faults)
        tree = item if isinstance(item, dict) else {}
        value = drafts.integer_at(tree, "value", f"{path}.value", faults, None)
        duration = drafts.integer_at(tree, "durationMinutes", f"{path}.durationMinutes", faults, 0)
        if not 0 <= duration <= _MOST_MINUTES:
            expected = f"expected minutes from 0 to {_MOST_MINUTES}"
            faults.append(Fault(f"{path}.durationMinutes", str(duration), expected))
        label = f"entry {index + 1}"
        entry: _ScalingEntry | None = None
        if tree.get("type") == "Repeating":
            entry = _repeating(tree, duration, path, label, value, faults)
        elif tree.get("type") == "OneTime":
            home = next(filter(None, zones), _DEFAULT_ZONE)
            entry = _one_time(tree, duration, path, label, value, home, faults)
        else:
            shown = documents.shown(tree.get("type"))
            faults.append(Fault(f"{path}.type", shown, "expected Repeating or OneTime"))
        if len(faults) > before:
            continue
        if entry is None:
            notes.append(
                f"{label}: left out: it has no length, and {SCALER} only ramps up and down around it"
            )
        elif value <= 0:
            notes.append(f"{label}: left out: its value is {value}")
        else:
            entries.append(entry._replace(window={"name": f"entry-{index + 1}", **entry.window}))
    return entries


def _repeating(
    tree: dict[str, Any], duration: int, path: str, label: str, value: int, faults: list[Fault]
) -> _ScalingEntry | None:
    period = mapping_at(tree, "period")
    zone = drafts.zone_of(period.get("timezone") or _DEFAULT_ZONE, f"{path}.period.timezone", faults)
    days = period.get("days")
    if not isinstance(days, list) or not days or any(day not in DAYS for day in days):
        drafts.refuse(faults, f"{path}.period.days", days, f"expected days: {', '.join(DAYS)}")
        return None
    begin = _time(period.get("startTime"), f"{path}.period.startTime", faults)
    end = _time(period["endTime"], f"{path}.period.endTime", faults) if period.get("endTime") else None
    if zone is None or begin is None:
        return None
    read = RepeatingEntry(frozenset(map(DAYS.index, days)), begin, end, duration)
    window = read.window()
    return None if window is None else _ScalingEntry(label, zone, value, window, read)


def _one_time(
    tree: dict[str, Any], duration: int, path: str, label: str, value: int, home: str, faults: list[Fault]
) -> _ScalingEntry | None:
    begin = _date(tree.get("date"), f"{path}.date", faults)
    end = _date(tree["endDate"], f"{path}.endDate", faults) if tree.get("endDate") else begin
    zone = drafts.zone_of(home, path, faults)
    if begin is None or end is None or zone is None:
        return None
    span = ActiveSpan(begin, max(end, begin + duration * 60))
    if span.end <= span.begin:
        return None
    window = single_window(span, zone)
    if window is None:  # no local time says an instant in a repeated hour
        zone = ZoneInfo("UTC")
        window = single_window(span, zone)
    assert window is not None
    return _ScalingEntry(label, zone, value, window, None)


def _time(text: object, path: str, faults: list[Fault]) -> int | None:
    match = _TIME.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        drafts.refuse(faults, path, text, "expected HH:MM from 00:00 to 23:59")
        return None
    return int(match[1]) * 60 + int(match[2])


def _date(text: object, path: str, faults: list[Fault]) -> int | None:
    try:
        return timestamps.read_instant(text if isinstance(text, str) else "") // SECOND
    except ValueError:
        drafts.refuse(faults, path, text, "expected an instant such as 2026-11-27T07:00:00Z")
        return None


# -- the report ----------------------------------------------------------------------------------------------


def _notes(tree: dict[str, Any], ramp: int, readers: Sequence[Reader]) -> Iterator[str]:
    spec = mapping_at(tree, "spec")
    if ramp > 0:
        default = "" if spec.get("scalingWindowDurationMinutes") is not None else ", its default"
        yield (
            f"{SCALER} ramps up in the {ramp} minutes before each window and down in the {ramp} minutes "
            f"after it (scalingWindowDurationMinutes{default}); the schedule ends at once, and ready: "
            "ByStart begins it earlier by the time that pods take to be Ready"
        )
    periods = [mapping_at(item, "period") for item in listed_at(spec, "schedules")]
    if any(period and not period.get("timezone") for period in periods):
        yield (
            f"period.timezone is absent: {_DEFAULT_ZONE}, the default of "
            f"{SCALER}'s --scaling-schedule-default-time-zone"
        )
    for reader in readers:
        yield f"{KIND} {reader.name} goes without the metric {reader.metric}: this schedule takes its place"
    yield from drafts.left_out(tree, _READ)
