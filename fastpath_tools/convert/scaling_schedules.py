"""ScalingSchedules and ClusterScalingSchedules (zalando.org/v1) of kube-metrics-adapter as FastPathSchedules.

The value of an entry counts only through a HorizontalPodAutoscaler: it asks for the value divided by the
averageValue of its Object metric. So the HPAs have to be among the files.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from adapter.bounds.schedule.documents import DAYS, LONGEST_FOR
from adapter.bounds.schedule.windows import ActiveSpan
from adapter.errors import Fault
from adapter.model import quantity, timestamps
from adapter.model.autoscaling import documents
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND, KIND
from adapter.model.timestamps import SECOND
from fastpath_tools.convert import drafts
from fastpath_tools.convert.conversion import Converted
from fastpath_tools.convert.drafts import ScheduleDraft, WindowDraft
from fastpath_tools.convert.scaling_schedule_entry import RepeatingEntry, single_window
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
    drafts.check(faults)
    made: list[Converted] = []
    groups = list(dict.fromkeys((each.namespace, each.milli) for each in readers))
    for group in groups:
        group_readers = [each for each in readers if (each.namespace, each.milli) == group]
        targets = [
            {"kind": KIND, "name": each} for each in dict.fromkeys(each.name for each in group_readers)
        ]
        own_name = (
            name if [each[0] for each in groups].count(group[0]) == 1 else f"{name}-{targets[0]['name']}"
        )
        written = [_draft(entry, group[1]) for entry in entries]
        made += drafts.write(ScheduleDraft(SCALER, own_name, group[0], targets, ramp > 0, written), now)
    made[-1] = made[-1]._replace(notes=(*made[-1].notes, *notes, *_notes(tree, ramp, readers)))
    return made


def _draft(entry: _ScalingEntry, milli: int) -> WindowDraft:
    replicas = -(-entry.value * 1000 // milli)
    label = f"{entry.label} ({replicas} replicas, {entry.zone.key})"
    windows = [entry.window]
    original = None if entry.repeating is None else entry.repeating.spans
    return WindowDraft(label, entry.zone, windows, replicas, original, True)


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
    read = [(each["kind"], *drafts.named(each, [])) for each in schedules]
    near = [(kind, name) for kind, name, where in read if kind == CLUSTER or where == namespace]
    spec = mapping_at(tree, "spec")
    listed = listed_at(spec, "metrics")
    left = [metric for metric in listed if not any(_is_of(metric, *each) for each in near)]
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
    zones = [
        each["period"]["timezone"]
        for each in listed
        if isinstance(mapping_at(each, "period").get("timezone"), str) and each["period"]["timezone"]
    ]
    found: list[_ScalingEntry] = []
    for index, each in enumerate(listed):
        path = f"spec.schedules[{index}]"
        before = len(faults)
        tree = each if isinstance(each, dict) else {}
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
            home = zones[0] if zones else _DEFAULT_ZONE
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
            found.append(entry._replace(window={"name": f"entry-{index + 1}", **entry.window}))
    return found


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
    utc = ZoneInfo("UTC")
    window = single_window(span, zone)
    if window is None:
        # no local time says an instant in a repeated hour
        zone, window = utc, single_window(span, utc)
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
    periods = [mapping_at(each, "period") for each in listed_at(spec, "schedules")]
    if any(period and not period.get("timezone") for period in periods):
        yield (
            f"period.timezone is absent: {_DEFAULT_ZONE}, the default of "
            f"{SCALER}'s --scaling-schedule-default-time-zone"
        )
    for reader in readers:
        yield f"{KIND} {reader.name} goes without the metric {reader.metric}: this schedule takes its place"
    yield from drafts.left_out(tree, _READ)
