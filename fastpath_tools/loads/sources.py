"""What a simulation and a forecast are made from: an autoscaler, its loads, and the start-up times of pods.

They are read from files here; `recorded` reads loads from the history in Prometheus.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from msgspec import structs

from adapter.bounds.schedule.documents import ScheduleTarget
from adapter.bounds.schedule.windows import Schedule
from adapter.cli import command_line
from adapter.config.yaml import reader
from adapter.errors import Fault, InputError
from adapter.model import timestamps
from adapter.model.autoscaling import boost, documents, forecast, hpa
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND, KIND, FastPathAutoscaler
from adapter.model.autoscaling.forecast import ForecastSettings, ForecastSpec
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerSpec
from adapter.model.timestamps import SECOND, Instant
from fastpath_forecast.simulate import load as loads
from fastpath_forecast.simulate import metrics
from fastpath_forecast.simulate.engine import EPOCH
from fastpath_forecast.simulate.load import Load
from fastpath_forecast.simulate.metrics import SimulatedMetric
from fastpath_tools import manifests
from fastpath_tools.loads.load_options import LoadOptions

NAMESPACE = "default"
"""The namespace of an autoscaler that names none; no figure depends on it."""

_HOUR = 3600

_MIDNIGHT = 1_699_920_000
"""Second 0 of a load that does not tell when it begins, in seconds since 1970: a midnight in UTC."""

_UNDATED = "the load does not tell when it begins: days repeat in UTC, and no day is a holiday; give --start"

_LONGEST_START_UP = 24 * _HOUR


class GivenAutoscaler(NamedTuple):
    """An autoscaler, and the kind that it was before it was read as a FastPathAutoscaler.

    `place` leads to it in messages: a file, or an object of a cluster.
    """

    autoscaler: FastPathAutoscaler
    kind: str
    place: str

    def simulated_metrics(self, options: LoadOptions) -> tuple[SimulatedMetric, ...]:
        """Return its metrics as a simulation has them. InputError for one that cannot be simulated."""
        try:
            return metrics.simulated_metrics(self.autoscaler.spec.metrics or (), options.requested)
        except InputError as error:
            raise InputError([replace(fault, source=self.place) for fault in error.faults]) from None


class Recorded(NamedTuple):
    """An autoscaler and the loads of its metrics by name.

    `start` is second 0 of the loads, None if they do not tell. Each of `notes` is a sentence on the loads,
    without the final stop.
    """

    given: GivenAutoscaler
    loads: Mapping[str, Load]
    start: Instant | None = None
    notes: Sequence[str] = ()

    @property
    def begin(self) -> int:
        """Second 0 of the loads in seconds since 1970, a midnight in UTC if they do not tell."""
        return _MIDNIGHT if self.start is None else self.start // SECOND


def read_recorded(options: LoadOptions) -> Recorded:
    """Return the autoscaler and its loads from the sources that the options name."""
    if options.prometheus_url:
        from fastpath_tools.loads import recorded  # noqa: PLC0415 - importing it takes most of a second

        return recorded.read(options)
    given = read_autoscaler(options.autoscaler)
    names = [metric.name for metric in given.simulated_metrics(options)]
    start = timestamps.read_instant(options.start) if options.start else None
    return Recorded(given, read_loads(options.load, names), start)


# -- the autoscaler ------------------------------------------------------------------------------------------


def read_autoscaler(file: str) -> GivenAutoscaler:
    """Return the one autoscaler of a file. InputError if it has none or several."""
    source = command_line.read_source(file)
    autoscalers: list[tuple[GivenAutoscaler, int]] = []
    faults: list[Fault] = []
    for given in manifests.objects_in(*source, faults):
        if kind := documents.kind_of(given.tree):
            with given.collecting(faults):
                autoscaler = documents.read_document(given.tree, NAMESPACE, floor_metric=True)
                annotations = manifests.mapping_at(given.tree, "metadata").get("annotations")
                autoscaler = prepared(autoscaler, annotations)
                autoscalers.append((GivenAutoscaler(autoscaler, kind, source.name), given.line))
    if not faults and len(autoscalers) != 1:
        expected = f"expected one {HPA_KIND} or {KIND}; the file has {len(autoscalers) or 'no such object'}"
        faults.append(Fault("", "", expected, source.name, autoscalers[1][1] if autoscalers else 0))
    if faults:
        raise InputError(faults)
    return autoscalers[0][0]


def prepared(autoscaler: FastPathAutoscaler, annotations: Mapping[str, str] | None) -> FastPathAutoscaler:
    """Return an autoscaler without the metric of boost; one without metrics gets the API's default.

    Reading drops the annotations of boost, which say how an HPA is raised; those given are all of them.
    """
    spec, meta = autoscaler.spec, structs.replace(autoscaler.metadata, annotations=annotations)
    own = tuple(metric for metric in spec.metrics or () if not boost.is_handshake(metric))
    listed = own or hpa.with_defaults(HorizontalPodAutoscalerSpec()).metrics
    return structs.replace(autoscaler, metadata=meta, spec=structs.replace(spec, metrics=listed))


def read_schedules(options: LoadOptions, recorded: Recorded) -> tuple[Sequence[Schedule], int]:
    """Return the schedules of the autoscaler and second 0 in nanoseconds. InputError."""
    if not options.schedule or recorded.start is None:
        return (), EPOCH
    given, meta = recorded.given, recorded.given.autoscaler.metadata
    target, namespace = ScheduleTarget(given.kind, meta.name), options.namespace or meta.namespace
    schedules = manifests.read_schedules(options.schedule, namespace)
    expected = f"expected the target {target.kind} {namespace}/{target.name}, which is simulated"
    faults = []
    for schedule in schedules:
        own = schedule.metadata.namespace
        if target not in schedule.targets or own != namespace:
            others = ", ".join(f"{other.kind} {own}/{other.name}" for other in schedule.targets)
            faults.append(Fault("--schedule", schedule.schedule.name, f"{expected}; it has {others}"))
    if faults:
        raise InputError(faults)
    return [schedule.schedule for schedule in schedules], recorded.start // SECOND * SECOND


# -- loads ---------------------------------------------------------------------------------------------------


def read_loads(files: Sequence[str], names: Sequence[str]) -> dict[str, Load]:
    """Return the loads of metrics from files, each as FILE or NAME=FILE. InputError."""
    faults: list[Fault] = []
    chosen: dict[str, str] = {}
    for text in files:
        name, equals, file = text.partition("=")
        if name not in names or not equals:
            name, file = _unnamed(text, names, faults)
        if name in chosen:
            faults.append(Fault("--load", name, "expected one load for each metric"))
        elif name:
            chosen[name] = file
    faults += (
        Fault("--load", name, f"expected {name}=FILE: the autoscaler has this metric")
        for name in names
        if name not in chosen and not faults
    )
    if faults:
        raise InputError(faults)
    sources = {name: command_line.read_source(chosen[name]) for name in names}
    return {name: loads.read_csv(*source) for name, source in sources.items()}


def _unnamed(text: str, names: Sequence[str], faults: list[Fault]) -> tuple[str, str]:
    """Return the metric and the file of a load that names no metric of the autoscaler."""
    name, equals, _ = text.partition("=")
    listed = ", ".join(names)
    if equals and "/" not in name and "." not in name:
        expected = f"expected a metric of the autoscaler: {listed}"
        faults.append(Fault("--load", reader.shown_text(name), expected))
    elif len(names) > 1:
        expected = f"expected NAME=FILE: the autoscaler has the metrics {listed}"
        faults.append(Fault("--load", reader.shown_text(text), expected))
    else:
        return names[0], text
    return "", ""


def whole_hours(
    all_loads: Mapping[str, Load], start: int, most: int | None = None
) -> tuple[dict[str, Load], int]:
    """Return the whole hours of loads, the last `most` seconds of them, and when they begin.

    `start` and that are in seconds since 1970. Loads without a whole hour have no seconds.
    """
    first = -start % _HOUR
    seconds = (min(load.seconds for load in all_loads.values()) - first) // _HOUR * _HOUR
    if seconds <= 0:
        return {name: Load((0,), (math.nan,), 0) for name in all_loads}, start + first
    end = first + seconds
    first = first if most is None else max(first, end - most)
    return {name: load.part(first, end) for name, load in all_loads.items()}, start + first


# -- start-up times ------------------------------------------------------------------------------------------


def read_start_ups(text: str) -> list[int]:
    """Return the start-up times in seconds of a duration, or of a file with one on each line. InputError."""
    seconds = _seconds(text)
    if seconds is not None:
        return [_start_up(seconds, Fault("--pod-start", text, ""))]
    if text[:1].isdigit() or text.startswith(("-", "+")):
        expected = "expected a duration such as 20s, or a file with one on each line"
        raise InputError([Fault("--pod-start", reader.shown_text(text), expected)])
    source = command_line.read_source(text)
    start_ups = [
        _start_up(_seconds(line), Fault("", reader.shown_text(line), "", source.name, number))
        for number, line in enumerate(map(str.strip, source.text.splitlines()), 1)
        if line
    ]
    if not start_ups:
        raise InputError([Fault("", "", "expected a duration such as 20s on each line", source.name)])
    return start_ups


def _seconds(text: str) -> float | None:
    try:
        return timestamps.parse_go_duration(text)
    except ValueError:
        return None


def _start_up(seconds: float | None, fault: Fault) -> int:
    if seconds is None or not 0 <= seconds <= _LONGEST_START_UP:
        raise InputError([replace(fault, expected="expected a duration from 0s to 24h such as 20s")])
    return math.ceil(seconds)


# -- forecasts -----------------------------------------------------------------------------------------------


def forecast_wish(autoscaler: FastPathAutoscaler) -> ForecastSpec | None:
    """Return what an autoscaler asks of a forecast, an HPA in its annotation; None for nothing."""
    wishes = boost.read_annotations(autoscaler.metadata.annotations)
    return autoscaler.spec.forecast or boost.with_options(autoscaler, wishes).spec.forecast


def forecast_settings(spec: ForecastSpec, start: Instant | None, notes: list[str]) -> ForecastSettings:
    """Return the settings for a load; one without a `start` has no local days, and `notes` tell that."""
    settings = forecast.settings_of(spec)
    if start is not None:
        return settings
    undated = settings._replace(zone=ForecastSettings().zone, holidays=frozenset())
    if undated != settings:
        notes.append(_UNDATED)
    return undated
