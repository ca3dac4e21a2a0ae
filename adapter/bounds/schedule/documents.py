"""FastPathSchedule as a document: its shape, and the schedule that it describes.

Every fault is named with its place, its value and what was expected. What a window means is in `windows`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from typing import NamedTuple

import msgspec
from cronsim import CronSimError

from adapter.bounds.schedule import windows
from adapter.bounds.schedule.windows import CronWindow, DayWindow, Schedule, SingleWindow, Window
from adapter.errors import Fault, InputError
from adapter.model import local_time
from adapter.model.autoscaling import documents
from adapter.model.autoscaling.fastpath_autoscaler import API_VERSION, HPA_KIND
from adapter.model.autoscaling.fastpath_autoscaler import KIND as AUTOSCALER_KIND
from adapter.model.autoscaling.hpa import Int32
from adapter.model.objects.api_objects import Metadata, Struct
from adapter.model.timestamps import SECOND, Span, write_span

KIND = "FastPathSchedule"
PLURAL = "fastpathschedules"

AT_START, BY_START = "AtStart", "ByStart"

MOST_WINDOWS = 100
MOST_TARGETS = 100
MOST_EXCEPTIONS = 1000
MOST_CRON = 512
"""Characters of a cron expression."""
MOST_CRONS = 8192
"""Characters of the cron expressions of a schedule together: to read them takes milliseconds."""
LONGEST_FOR = Span(31 * 24 * 3600 * SECOND)

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
TARGET_KINDS = (HPA_KIND, AUTOSCALER_KIND)

_MOST_PRINTED = 100

_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9]))?|(24):(00)(?::(00))?")
_FORMS = (("from", "to"), ("cron", "for"), ("start", "end"))


class ScheduleTarget(Struct, frozen=True):
    """An autoscaler of the schedule's namespace."""

    kind: str = ""
    name: str = ""


class WindowSpec(Struct, frozen=True):
    """A window as it is written: with `from` and `to`, with `cron` and `for`, or with `start` and `end`."""

    name: str = ""
    days: tuple[str, ...] | None = None
    from_: str | None = msgspec.field(default=None, name="from")
    to: str | None = None
    cron: str | None = None
    for_: Span | None = msgspec.field(default=None, name="for")
    start: str | None = None
    end: str | None = None
    min_replicas: Int32 | None = None
    max_replicas: Int32 | None = None


class ScheduleSpec(Struct, frozen=True):
    targets: tuple[ScheduleTarget, ...] | None = None
    time_zone: str = ""
    ready: str = AT_START
    windows: tuple[WindowSpec, ...] | None = None
    except_: tuple[str, ...] | None = msgspec.field(default=None, name="except")


class ScheduleDocument(Struct, frozen=True):
    """What a FastPathSchedule says, in a form that has a way to another process and back."""

    metadata: Metadata = Metadata()
    spec: ScheduleSpec = ScheduleSpec()


class FastPathSchedule(NamedTuple):
    """A schedule that is valid: the autoscalers that it is for, when its windows begin, and the windows."""

    metadata: Metadata
    targets: tuple[ScheduleTarget, ...]
    ready: str
    schedule: Schedule
    document: ScheduleDocument


def read_document(tree: object, namespace: str = "") -> FastPathSchedule:
    """Return the schedule of a document of plain values. InputError with all faults if it is invalid."""
    if not isinstance(tree, dict) or tree.get("kind") != KIND or tree.get("apiVersion") != API_VERSION:
        given = tree.get("kind") if isinstance(tree, dict) else tree
        raise InputError([Fault("kind", documents.shown(given), f"expected {API_VERSION} {KIND}")])
    read, faults = documents.read_parts(tree, ScheduleDocument, KIND)
    return check(read, namespace, faults)


def check(read: ScheduleDocument, namespace: str, faults: list[Fault]) -> FastPathSchedule:
    """Return the schedule of a document. InputError with its faults, and those found before."""
    meta, spec = read.metadata, read.spec
    meta = msgspec.structs.replace(meta, namespace=meta.namespace or namespace)
    if not meta.name:
        faults.append(Fault("metadata.name", "absent", "it is required"))
    targets = spec.targets or ()
    faults += _target_faults(targets)
    if spec.ready not in (AT_START, BY_START):
        faults.append(Fault("spec.ready", spec.ready, f"expected {AT_START} or {BY_START}"))
    zone = local_time.read_zone(spec.time_zone)
    if zone is None:
        expected = "expected a time zone of the tz database such as Europe/Berlin"
        faults.append(Fault("spec.timeZone", spec.time_zone or "absent", expected))
    days = [_date(text, f"spec.except[{index}]", faults) for index, text in enumerate(spec.except_ or ())]
    faults += _too_many("spec.except", spec.except_, MOST_EXCEPTIONS)
    windows = _windows(spec.windows or (), faults)
    if faults or zone is None:
        raise InputError([replace(fault, value=_printable(fault.value)) for fault in faults])
    by_start = spec.ready == BY_START
    schedule = Schedule(
        f"{meta.namespace}/{meta.name}", zone, windows, frozenset(filter(None, days)), by_start
    )
    return FastPathSchedule(meta, targets, spec.ready, schedule, read)


def _printable(text: str) -> str:
    """Return a text as it is if it fits into a message, else quoted and shortened."""
    return text if text.isprintable() and len(text) <= _MOST_PRINTED else documents.shown(text)


def _target_faults(targets: Sequence[ScheduleTarget]) -> Iterator[Fault]:
    if not targets:
        yield Fault("spec.targets", "absent", "expected at least one target with kind and name")
    yield from _too_many("spec.targets", targets, MOST_TARGETS)
    known: set[ScheduleTarget] = set()
    for index, target in enumerate(targets):
        path = f"spec.targets[{index}]"
        if target.kind not in TARGET_KINDS:
            yield Fault(f"{path}.kind", target.kind or "absent", f"expected {' or '.join(TARGET_KINDS)}")
        if not target.name:
            yield Fault(f"{path}.name", "absent", "it is required")
        elif target in known:
            yield Fault(path, f"{target.kind} {target.name}", "expected each target once")
        known.add(target)


def _too_many(path: str, listed: Sequence[object] | None, most: int) -> Iterator[Fault]:
    if listed and len(listed) > most:
        yield Fault(path, str(len(listed)), f"expected at most {most}")


# -- windows -------------------------------------------------------------------------------------------------


def _windows(listed: Sequence[WindowSpec], faults: list[Fault]) -> tuple[Window, ...]:
    """Return the windows that have no fault.

    What is beyond a limit is reported and not read, so that a hostile object costs no more than the limit.
    """
    if not listed:
        faults.append(Fault("spec.windows", "absent", "expected at least one window"))
    faults += _too_many("spec.windows", listed, MOST_WINDOWS)
    listed = listed[:MOST_WINDOWS]
    characters = sum(len(window.cron or "") for window in listed)
    if characters > MOST_CRONS:
        expected = f"expected cron expressions of {MOST_CRONS} characters together, at most"
        faults.append(Fault("spec.windows", str(characters), expected))
        return ()
    names: set[str] = set()
    windows = []
    for index, window in enumerate(listed):
        path = f"spec.windows[{index}]"
        if not window.name:
            faults.append(Fault(f"{path}.name", "absent", "it is required"))
        elif window.name in names:
            expected = "expected another name: a window has it already"
            faults.append(Fault(f"{path}.name", window.name, expected))
        names.add(window.name)
        windows.append(_window(window, path, faults))
    return tuple(filter(None, windows))


def _window(spec: WindowSpec, path: str, faults: list[Fault]) -> Window | None:
    before = len(faults)
    _check_bounds(spec, path, faults)
    given: dict[str, object] = {"from": spec.from_, "to": spec.to, "cron": spec.cron, "days": spec.days}
    given |= {
        "for": None if spec.for_ is None else write_span(spec.for_),
        "start": spec.start,
        "end": spec.end,
    }
    present = {key for key, value in given.items() if value is not None}
    form = next((form for form in _FORMS if present & set(form)), None)
    if form is None:
        faults.append(Fault(path, spec.name, "expected from and to, cron and for, or start and end"))
        return None
    allowed = {*form, "days"} if form[0] == "from" else {*form}
    faults += [
        Fault(f"{path}.{key}", "absent", f"it is required beside {form[1 - form.index(key)]}")
        for key in form
        if key not in present
    ]
    faults += [
        Fault(f"{path}.{key}", documents.shown(given[key]), f"has no place beside {form[0]}")
        for key in sorted(present - allowed)
    ]
    if len(faults) > before:
        return None
    read = {"from": _day_window, "cron": _cron_window, "start": _single_window}[form[0]]
    times = read(spec, path, faults)
    return None if times is None else Window(spec.name, times, spec.min_replicas, spec.max_replicas)


def _check_bounds(spec: WindowSpec, path: str, faults: list[Fault]) -> None:
    least, most = spec.min_replicas, spec.max_replicas
    if least is None and most is None:
        faults.append(Fault(path, spec.name, "expected minReplicas, maxReplicas, or both"))
    for key, bound in (("minReplicas", least), ("maxReplicas", most)):
        if bound is not None and bound < 0:
            faults.append(Fault(f"{path}.{key}", str(bound), "expected 0 or more"))
    if least is not None and most is not None and least > most:
        faults.append(Fault(f"{path}.minReplicas", str(least), f"expected at most maxReplicas, {most}"))


def _single_window(spec: WindowSpec, path: str, faults: list[Fault]) -> SingleWindow | None:
    start = _local(spec.start or "", f"{path}.start", faults, is_end=False)
    end = _local(spec.end or "", f"{path}.end", faults, is_end=True)
    if start is None or end is None:
        return None
    if end <= start:
        faults.append(Fault(f"{path}.end", spec.end or "", f"expected a time after start, {spec.start}"))
        return None
    return SingleWindow(start, end)


def _day_window(spec: WindowSpec, path: str, faults: list[Fault]) -> DayWindow | None:
    days = DAYS if spec.days is None else spec.days
    if not days:
        faults.append(Fault(f"{path}.days", "[]", f"expected days: {', '.join(DAYS)}"))
    for index, day in enumerate(days):
        if day not in DAYS:
            faults.append(Fault(f"{path}.days[{index}]", day, f"expected one of {', '.join(DAYS)}"))
    begin = _time(spec.from_ or "", f"{path}.from", faults, is_end=False)
    end = _time(spec.to or "", f"{path}.to", faults, is_end=True)
    if begin is None or end is None or not days or not set(days) <= set(DAYS):
        return None
    # It could mean a whole day or nothing.
    if begin == end:
        faults.append(Fault(f"{path}.to", spec.to or "", f"expected another time than from, {spec.from_}"))
        return None
    return DayWindow(frozenset(map(DAYS.index, days)), begin, end)


def _cron_window(spec: WindowSpec, path: str, faults: list[Fault]) -> CronWindow | None:
    text, length = spec.cron or "", spec.for_ or Span(0)
    if not SECOND <= length <= LONGEST_FOR or length % SECOND:
        expected = f"expected whole seconds from 1s to {write_span(LONGEST_FOR)}"
        faults.append(Fault(f"{path}.for", write_span(length), expected))
        return None
    expected = "expected a cron expression of five fields such as 0 22 28-31 * *"
    if len(text.split()) != 5 or len(text) > MOST_CRON:
        faults.append(Fault(f"{path}.cron", documents.shown(text), expected))
        return None
    try:
        windows.read_cron(text)
    except CronSimError as error:
        faults.append(Fault(f"{path}.cron", documents.shown(text), f"{expected}: {str(error).lower()}"))
        return None
    return CronWindow(text, length // SECOND)


def _time(text: str, path: str, faults: list[Fault], *, is_end: bool) -> timedelta | None:
    match = _TIME.fullmatch(text)
    if match is None or (match[4] and not is_end):
        least = "from 00:00 to 24:00" if is_end else "from 00:00 to 23:59:59"
        faults.append(Fault(path, text, f"expected HH:MM or HH:MM:SS {least}"))
        return None
    hours, minutes, seconds = match[1] or match[4], match[2] or match[5], match[3] or match[6] or 0
    return timedelta(hours=int(hours), minutes=int(minutes), seconds=int(seconds))


def _date(text: str, path: str, faults: list[Fault]) -> date | None:
    day = local_time.read_date(text)
    if day is None:
        faults.append(Fault(path, text, "expected a date such as 2026-12-25"))
    return day


def _local(text: str, path: str, faults: list[Fault], *, is_end: bool) -> datetime | None:
    """Return a local time without offset; an end may be at 24:00."""
    day, _, clock = text.partition("T")
    inner: list[Fault] = []
    at, since_midnight = _date(day, path, inner), _time(clock, path, inner, is_end=is_end)
    # a year that local time can be computed around
    if at is None or since_midnight is None or not 1971 <= at.year <= 9998:
        faults.append(Fault(path, text, "expected a local time without offset such as 2026-11-27T00:00"))
        return None
    return datetime.combine(at, time()) + since_midnight
