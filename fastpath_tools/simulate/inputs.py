"""What a simulation runs with, from the command line: the scenario and the policies."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from adapter.cli import command_line
from adapter.config.yaml import documents
from adapter.errors import Fault, InputError
from adapter.model import quantity
from adapter.model.autoscaling import documents as autoscaler_documents
from adapter.model.autoscaling import forecast as forecast_spec
from adapter.model.autoscaling.fastpath_autoscaler import HPA_API_VERSION, HPA_KIND, FastPathAutoscaler
from adapter.model.autoscaling.forecast import ForecastSettings, ForecastSpec
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerBehavior
from adapter.model.timestamps import SECOND
from adapter.simulate import simulation
from adapter.simulate.policies import BOOST, FAST, FIXED, FLAG, SimulatedPolicy, read_policy
from adapter.simulate.simulation import Scenario
from fastpath_tools.loads import forecasts
from fastpath_tools.loads.autoscaler import NAMESPACE
from fastpath_tools.loads.sources import Recorded, read_recorded, read_schedules
from fastpath_tools.loads.start_ups import read_start_ups
from fastpath_tools.simulate import schedules, suggest
from fastpath_tools.simulate.options import CARRY, DEFAULT_POLICIES, SimulateOptions


class PolicyVariant(NamedTuple):
    """A policy, the behavior that it overrides that of the autoscaler with, and the forecast that it has."""

    policy: SimulatedPolicy
    behavior: HorizontalPodAutoscalerBehavior | None = None
    forecast: ForecastSettings | None = None

    @property
    def name(self) -> str:
        return self.policy.text if self.forecast is None else f"{self.policy.text} with forecast"


class Inputs(NamedTuple):
    scenario: Scenario
    variants: Sequence[PolicyVariant]
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


def _with_forecasts(
    variants: Sequence[PolicyVariant], recorded: Recorded, notes: list[str]
) -> list[PolicyVariant]:
    """Return the variants, each that can have floors also with a forecast; `notes` grow."""
    spec = forecasts.asked_of(recorded.given.autoscaler) or ForecastSpec()
    asked = forecast_spec.settings_of(spec)
    settings = forecasts.dated(asked, recorded.start)
    if settings != asked:
        notes.append(forecasts.UNDATED)
    found: list[PolicyVariant] = []
    for variant in variants:
        found.append(variant)
        if variant.policy.name in {FAST, BOOST}:
            found.append(variant._replace(forecast=settings))
    if len(found) == len(variants):
        expected = f"expected a policy that can have a floor: {FAST} or {BOOST}"
        raise InputError([Fault("--forecast", "", expected)])
    return found


# -- policies ------------------------------------------------------------------------------------------------


def _variant(text: str, scenario: Scenario) -> PolicyVariant:
    """Return the policy of a text, checked with the autoscaler that it changes. InputError."""
    policy = read_policy(text)
    behavior = read_behavior(policy.behavior, scenario.autoscaler) if policy.behavior else None
    if policy.name != FIXED:
        _check(policy, behavior, scenario.autoscaler)
    return PolicyVariant(policy, behavior)


def _check(
    policy: SimulatedPolicy, behavior: HorizontalPodAutoscalerBehavior | None, autoscaler: FastPathAutoscaler
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
        whole = autoscaler_documents.read_document(_with_behavior(tree, autoscaler), NAMESPACE)
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
