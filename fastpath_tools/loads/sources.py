"""The autoscaler and the loads of its metrics, from files or from the history in Prometheus."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from adapter.bounds.schedule.documents import FastPathSchedule, ScheduleTarget
from adapter.bounds.schedule.windows import Schedule
from adapter.cli import command_line
from adapter.config.yaml import reader
from adapter.errors import Fault, InputError
from adapter.model import quantity, timestamps
from adapter.model.timestamps import SECOND, Instant
from adapter.simulate import load as loads
from adapter.simulate import metrics
from adapter.simulate.engine import EPOCH
from adapter.simulate.load import Load
from fastpath_tools import schedule_files
from fastpath_tools.loads.autoscaler import GivenAutoscaler, read_autoscaler
from fastpath_tools.loads.load_options import LoadOptions


class Recorded(NamedTuple):
    """An autoscaler and the loads of its metrics by name.

    `start` is second 0 of the loads, None if they do not tell. Each of `notes` is a sentence on the loads,
    without the final stop.
    """

    given: GivenAutoscaler
    loads: Mapping[str, Load]
    start: Instant | None = None
    notes: Sequence[str] = ()


def read_recorded(options: LoadOptions) -> Recorded:
    """Return the autoscaler and its loads from the sources that the options name."""
    if options.prometheus_url:
        from fastpath_tools.loads import recorded  # noqa: PLC0415 - importing it takes most of a second

        return recorded.read(options)
    given = read_autoscaler(options.autoscaler)
    request = quantity.read(options.request) if options.request else None
    try:
        found = metrics.simulated_metrics(given.autoscaler.spec.metrics or (), request)
    except InputError as error:
        raise InputError([replace(fault, source=given.place) for fault in error.faults]) from None
    start = timestamps.read_instant(options.start) if options.start else None
    return Recorded(given, read_loads(options.load, [metric.name for metric in found]), start)


def read_schedules(options: LoadOptions, recorded: Recorded) -> tuple[Sequence[Schedule], int]:
    """Return the schedules of the autoscaler and second 0 in nanoseconds. InputError."""
    if not options.schedule or recorded.start is None:
        return (), EPOCH
    given, meta = recorded.given, recorded.given.autoscaler.metadata
    target, namespace = ScheduleTarget(given.kind, meta.name), options.namespace or meta.namespace
    found = schedule_files.read_schedules(options.schedule, namespace)
    expected = f"expected the target {target.kind} {namespace}/{target.name}, which is simulated"
    wrong = [
        Fault("--schedule", each.schedule.name, f"{expected}; it has {_targets(each)}")
        for each in found
        if target not in each.targets or each.metadata.namespace != namespace
    ]
    if wrong:
        raise InputError(wrong)
    return [each.schedule for each in found], recorded.start // SECOND * SECOND


def _targets(schedule: FastPathSchedule) -> str:
    namespace = schedule.metadata.namespace
    return ", ".join(f"{each.kind} {namespace}/{each.name}" for each in schedule.targets)


def read_loads(files: Sequence[str], names: Sequence[str]) -> dict[str, Load]:
    """Return the loads of metrics from files, each as FILE or NAME=FILE. InputError."""
    known = dict.fromkeys(names)
    faults: list[Fault] = []
    found: dict[str, str] = {}
    for text in files:
        name, equals, file = text.partition("=")
        if name not in known or not equals:
            name, file = _unnamed(text, list(known), faults)
        if name in found:
            faults.append(Fault("--load", name, "expected one load for each metric"))
        elif name:
            found[name] = file
    faults += (
        Fault("--load", name, f"expected {name}=FILE: the autoscaler has this metric")
        for name in known
        if name not in found and not faults
    )
    if faults:
        raise InputError(faults)
    read = {}
    for name in known:
        source = command_line.read_source(found[name])
        read[name] = loads.read_csv(source.text, source.name)
    return read


def _unnamed(text: str, names: Sequence[str], faults: list[Fault]) -> tuple[str, str]:
    """Return the metric and the file of a load that names no metric of the autoscaler."""
    name, equals, _ = text.partition("=")
    if equals and "/" not in name and "." not in name:
        shown = ", ".join(names)
        faults.append(
            Fault("--load", reader.shown_text(name), f"expected a metric of the autoscaler: {shown}")
        )
    elif len(names) > 1:
        expected = f"expected NAME=FILE: the autoscaler has the metrics {', '.join(names)}"
        faults.append(Fault("--load", reader.shown_text(text), expected))
    else:
        return names[0], text
    return "", ""
