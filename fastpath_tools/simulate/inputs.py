"""What a simulation needs, from the command line: the autoscaler, its loads, start-up times, policies."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from adapter.cli import command_line
from adapter.config.yaml import documents, reader
from adapter.errors import Fault, InputError
from adapter.model import quantity, timestamps
from adapter.model.autoscaling import boost, hpa
from adapter.model.autoscaling import documents as autoscaler_documents
from adapter.model.autoscaling.fastpath_autoscaler import HPA_API_VERSION, HPA_KIND, KIND, FastPathAutoscaler
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerBehavior, HorizontalPodAutoscalerSpec
from adapter.model.forecasts import spec as forecast_spec
from adapter.model.forecasts.settings import ForecastSettings
from adapter.model.forecasts.spec import ForecastSpec
from adapter.model.schedules.documents import ScheduleTarget
from adapter.model.schedules.windows import Schedule
from adapter.model.timestamps import SECOND, Instant
from adapter.simulate import load as loads
from adapter.simulate import metrics, simulation
from adapter.simulate.engine import EPOCH
from adapter.simulate.load import Load
from adapter.simulate.policies import BOOST, FAST, FIXED, FLAG, Policy, read_policy
from adapter.simulate.simulation import Scenario
from fastpath_tools.loads import forecast_settings as forecasts
from fastpath_tools.loads.load_options import LoadOptions
from fastpath_tools.simulate import schedules, suggest
from fastpath_tools.simulate.options import CARRY, DEFAULT_POLICIES, SimulateOptions

_NAMESPACE = "default"
"""The namespace of an autoscaler that names none; no figure depends on it."""

_LONGEST_START_UP = 24 * 3600


class GivenAutoscaler(NamedTuple):
    """An autoscaler, and the kind that it was before it was read as a FastPathAutoscaler.

    `place` leads to it in messages: a file, or an object of a cluster.
    """

    autoscaler: FastPathAutoscaler
    kind: str
    place: str


class Recorded(NamedTuple):
    """An autoscaler and the loads of its metrics by name.

    `start` is second 0 of the loads, None if they do not tell. Each of `notes` is a sentence on the loads,
    without the final stop.
    """

    given: GivenAutoscaler
    loads: Mapping[str, Load]
    start: Instant | None = None
    notes: Sequence[str] = ()


class Variant(NamedTuple):
    """A policy, the behavior that it overrides that of the autoscaler with, and the forecast that it has."""

    policy: Policy
    behavior: HorizontalPodAutoscalerBehavior | None = None
    forecast: ForecastSettings | None = None

    @property
    def name(self) -> str:
        return self.policy.text if self.forecast is None else f"{self.policy.text} with forecast"


class Inputs(NamedTuple):
    """What a simulation runs with."""

    scenario: Scenario
    variants: Sequence[Variant]
    notes: Sequence[str] = ()


def read_inputs(options: SimulateOptions) -> Inputs:
    """Return what the command line asks for. InputError with what is wrong in it and in the files."""
    recorded = read_recorded(options)
    listed, epoch = read_schedules(options, recorded)
    scenario = Scenario(
        recorded.given.autoscaler,
        recorded.loads,
        read_start_ups(options.pod_start),
        quantity.read(options.request) if options.request else None,
        options.capacity_ratio,
        options.backlog == CARRY,
        options.phases,
        options.seed,
        listed,
        forecasts.start_of(recorded.start) * SECOND if options.forecast else epoch,
    )
    variants = [_variant(text, scenario) for text in options.policy or DEFAULT_POLICIES]
    modes = suggest.MODES if options.suggest else [variant.policy.name for variant in variants]
    notes = [*recorded.notes, *schedules.notes(scenario, modes)]
    if options.forecast:
        variants = _with_forecasts(variants, recorded, notes)
    return Inputs(scenario, variants, notes)


def _with_forecasts(variants: Sequence[Variant], recorded: Recorded, notes: list[str]) -> list[Variant]:
    """Return the variants, each that can have floors also with a forecast; `notes` grow."""
    spec = forecasts.asked_of(recorded.given.autoscaler) or ForecastSpec()
    asked = forecast_spec.settings_of(spec)
    settings = forecasts.dated(asked, recorded.start)
    if settings != asked:
        notes.append(forecasts.UNDATED)
    found: list[Variant] = []
    for variant in variants:
        found.append(variant)
        if variant.policy.name in {FAST, BOOST}:
            found.append(variant._replace(forecast=settings))
    if len(found) == len(variants):
        expected = f"expected a policy that can have a floor: {FAST} or {BOOST}"
        raise InputError([Fault("--forecast", "", expected)])
    return found


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
    target = ScheduleTarget(given.kind, meta.name)
    found = schedules.read(options.schedule, target, options.namespace or meta.namespace)
    return found, recorded.start // SECOND * SECOND


# -- the autoscaler ------------------------------------------------------------------------------------------


def read_autoscaler(file: str) -> GivenAutoscaler:
    """Return the one autoscaler of a file. InputError if it has none or several."""
    source = command_line.read_source(file)
    found: list[tuple[GivenAutoscaler, int]] = []
    faults: list[Fault] = []
    for document in documents.read_documents(source.text, source.name):
        if isinstance(document, InputError):
            faults += document.faults
            continue
        for place, tree in autoscaler_documents.documents_in(document.value):
            kind = autoscaler_documents.kind_of(tree)
            if not kind:
                continue
            try:
                read = autoscaler_documents.read_document(tree, _NAMESPACE, floor_metric=True)
            except InputError as error:
                faults += (documents.located(fault, place, document, source.name) for fault in error.faults)
                continue
            given = GivenAutoscaler(prepared(_annotated(read, tree)), kind, source.name)
            found.append((given, document.line_of(place.rstrip("."))))
    if not faults and len(found) != 1:
        expected = f"expected one {HPA_KIND} or {KIND}; the file has {len(found) or 'no such object'}"
        faults.append(Fault("", "", expected, source.name, found[1][1] if found else 0))
    if faults:
        raise InputError(faults)
    return found[0][0]


def _annotated(autoscaler: FastPathAutoscaler, tree: object) -> FastPathAutoscaler:
    """Return an autoscaler with the annotations of its document: those of boost say how an HPA is raised."""
    metadata = tree.get("metadata") if isinstance(tree, dict) else None
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    meta = msgspec.structs.replace(autoscaler.metadata, annotations=annotations)
    return msgspec.structs.replace(autoscaler, metadata=meta)


def prepared(autoscaler: FastPathAutoscaler) -> FastPathAutoscaler:
    """Return an autoscaler without the metric of boost; one without metrics gets the API's default."""
    spec = autoscaler.spec
    own = tuple(metric for metric in spec.metrics or () if not boost.is_handshake(metric))
    listed = own or hpa.with_defaults(HorizontalPodAutoscalerSpec()).metrics
    return msgspec.structs.replace(autoscaler, spec=msgspec.structs.replace(spec, metrics=listed))


# -- loads ---------------------------------------------------------------------------------------------------


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


# -- pods ----------------------------------------------------------------------------------------------------


def read_start_ups(text: str) -> list[int]:
    """Return the start-up times in seconds of a duration, or of a file with one on each line. InputError."""
    seconds = _seconds(text)
    if seconds is not None:
        return [_start_up(seconds, Fault("--pod-start", text, ""))]
    if text[:1].isdigit() or text.startswith(("-", "+")):
        expected = "expected a duration such as 20s, or a file with one on each line"
        raise InputError([Fault("--pod-start", reader.shown_text(text), expected)])
    source = command_line.read_source(text)
    found = []
    for number, line in enumerate(source.text.splitlines(), 1):
        if line.strip():
            fault = Fault("", reader.shown_text(line.strip()), "", source.name, number)
            found.append(_start_up(_seconds(line.strip()), fault))
    if not found:
        raise InputError([Fault("", "", "expected a duration such as 20s on each line", source.name)])
    return found


def _seconds(text: str) -> float | None:
    try:
        return timestamps.parse_go_duration(text)
    except ValueError:
        return None


def _start_up(seconds: float | None, fault: Fault) -> int:
    if seconds is None or not 0 <= seconds <= _LONGEST_START_UP:
        expected = "expected a duration from 0s to 24h such as 20s"
        raise InputError([replace(fault, expected=expected)])
    return math.ceil(seconds)


# -- policies ------------------------------------------------------------------------------------------------


def _variant(text: str, scenario: Scenario) -> Variant:
    """Return the policy of a text, checked with the autoscaler that it changes. InputError."""
    policy = read_policy(text)
    behavior = read_behavior(policy.behavior, scenario.autoscaler) if policy.behavior else None
    if policy.name != FIXED:
        _check(policy, behavior, scenario.autoscaler)
    return Variant(policy, behavior)


def _check(
    policy: Policy, behavior: HorizontalPodAutoscalerBehavior | None, autoscaler: FastPathAutoscaler
) -> None:
    """Raise InputError for an override that gives an autoscaler that the API server refuses."""
    specs = autoscaler.spec.metrics or ()
    if policy.target is not None and len(specs) > 1:
        expected = f"target: expected an autoscaler with one metric, this one has {len(specs)}"
        raise InputError([Fault(FLAG, policy.text, expected)])
    changed = simulation.overridden(autoscaler, policy, behavior)
    faults = [
        Fault(FLAG, policy.text, f"{fault.path}: {': '.join(filter(None, (fault.value, fault.expected)))}")
        for fault in autoscaler_documents.faults_of(changed)
    ]
    if faults:
        raise InputError(faults)


def read_behavior(file: str, autoscaler: FastPathAutoscaler) -> HorizontalPodAutoscalerBehavior:
    """Return the behavior in a file: the mapping itself, or one below `behavior`. InputError."""
    source = command_line.read_source(file)
    read = list(documents.read_documents(source.text, source.name))
    if len(read) != 1:
        raise InputError([Fault("", "", "expected one document with a behavior", source.name)])
    document = read[0]
    if isinstance(document, InputError):
        raise document
    tree, place = document.value, "behavior"
    if isinstance(tree, dict) and set(tree) == {"behavior"}:
        tree, place = tree["behavior"], "behavior."
    if not isinstance(tree, dict):
        expected = "expected a behavior with scaleUp and scaleDown"
        raise InputError([Fault("", autoscaler_documents.shown(tree), expected, source.name, 1)])
    try:
        whole = autoscaler_documents.read_document(_with_behavior(tree, autoscaler), _NAMESPACE)
    except InputError as error:
        raise InputError(list(_below(error, place, document, source.name))) from None
    assert whole.spec.behavior is not None
    return whole.spec.behavior


def _with_behavior(behavior: Mapping[str, Any], autoscaler: FastPathAutoscaler) -> dict[str, Any]:
    """Return the document of a valid autoscaler with a behavior."""
    reference = autoscaler.spec.scale_target_ref
    return {
        "apiVersion": HPA_API_VERSION,
        "kind": HPA_KIND,
        "metadata": {"name": "behavior"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": reference.name},
            "maxReplicas": 1,
            "behavior": dict(behavior),
        },
    }


def _below(error: InputError, place: str, document: documents.YAMLDocument, source: str) -> Iterator[Fault]:
    for fault in error.faults:
        path = fault.path.removeprefix("spec.behavior").removeprefix(".")
        path = f"{place}{path}" if place.endswith(".") else path
        yield replace(fault, path=path, source=source, line=document.line_of(path))
