"""What a simulation runs with, from the command line: the scenario and the policies."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from adapter.bounds.schedule import windows
from adapter.cli import command_line
from adapter.errors import Fault, InputError
from adapter.model import timestamps
from adapter.model.autoscaling import documents as autoscaler_documents
from adapter.model.autoscaling.fastpath_autoscaler import HPA_API_VERSION, HPA_KIND, FastPathAutoscaler
from adapter.model.autoscaling.forecast import ForecastSettings, ForecastSpec
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerBehavior
from adapter.model.timestamps import SECOND
from fastpath_forecast.simulate import simulation
from fastpath_forecast.simulate.policies import BOOST, FAST, FIXED, FLAG, NATIVE, SimulatedPolicy
from fastpath_forecast.simulate.simulation import Scenario
from fastpath_tools import tables, yaml_documents
from fastpath_tools.loads import sources, wording
from fastpath_tools.loads.sources import NAMESPACE, Recorded
from fastpath_tools.simulate.options import CARRY, DEFAULT_POLICIES, SimulateOptions
from fastpath_tools.simulate.peers import KPA
from fastpath_tools.simulate.policies import KEDA, KINDS, read_policy

SUGGESTED = (NATIVE, BOOST, FAST)
"""The policies that `--suggest` tries."""


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
    recorded = sources.read_recorded(options)
    schedules, epoch = sources.read_schedules(options, recorded)
    scenario = Scenario(
        recorded.given.autoscaler,
        recorded.loads,
        sources.read_start_ups(options.pod_start),
        options.requested,
        options.capacity_ratio,
        options.backlog == CARRY,
        options.phases,
        options.seed,
        schedules,
        recorded.begin * SECOND if options.forecast else epoch,
        spread=options.load_spread,
    )
    variants = [_variant(text, scenario) for text in options.policy or DEFAULT_POLICIES]
    modes = SUGGESTED if options.suggest else [variant.policy.name for variant in variants]
    notes = [*recorded.notes, *_schedule_notes(scenario, modes)]
    if options.forecast:
        variants = _with_forecasts(variants, recorded, notes)
    return Inputs(scenario, variants, notes)


def _with_forecasts(
    variants: Sequence[PolicyVariant], recorded: Recorded, notes: list[str]
) -> list[PolicyVariant]:
    """Return the variants, each that can have floors also with a forecast; `notes` grow."""
    spec = sources.forecast_wish(recorded.given.autoscaler) or ForecastSpec()
    settings = sources.forecast_settings(spec, recorded.start, notes)
    every: list[PolicyVariant] = []
    for variant in variants:
        every.append(variant)
        if variant.policy.name in {FAST, BOOST}:
            every.append(variant._replace(forecast=settings))
    if len(every) == len(variants):
        expected = f"expected a policy that can have a floor: {FAST} or {BOOST}"
        raise InputError([Fault("--forecast", "", expected)])
    return every


def _schedule_notes(scenario: Scenario, policies: Collection[str]) -> Iterator[str]:
    """Yield what figures do not show of schedules; each is a sentence without the final stop.

    `policies` are the names of those that are simulated.
    """
    if not scenario.schedules:
        return
    start, highest = scenario.epoch // SECOND, scenario.autoscaler.spec.max_replicas
    yield f"the load begins at {timestamps.write_instant(scenario.epoch)}"
    for schedule in scenario.schedules:
        levels = windows.levels(schedule, start, start + wording.seconds_of(scenario.loads))
        if not levels:
            yield f"schedule {schedule.name}: no window is active in the time of the load"
            continue
        least = max(level.min or 0 for level in levels)
        if schedule.by_start:
            lead = simulation.learned_lead(scenario.autoscaler, scenario.start_ups).of_raise(0, least)
            early = f"at most {tables.duration(lead)} before their windows"
            yield f"schedule {schedule.name}: floors begin {early}"
        if least > highest:
            floor = f"a floor of {least} is above maxReplicas: it counts as {highest}"
            yield f"schedule {schedule.name}: {floor}"
    without = [name for name in KINDS if name in policies and name not in {FAST, BOOST}]
    if without:
        why = ": an HPA follows one only with boost" if NATIVE in without else ""
        *others, last = without
        names = f"{', '.join(others)} and {last} have" if others else f"{last} has"
        yield f"{names} no schedule{why}"
    bounds = [window.max for schedule in scenario.schedules for window in schedule.windows]
    if BOOST in policies and any(bound is not None for bound in bounds):
        yield f"{BOOST} has the floors of schedules and not the ceilings: boost never lowers a count"


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
    if policy.name == KPA and len(specs) > 1:
        expected = f"expected an autoscaler with one metric, as Knative has, and this one has {len(specs)}"
        raise InputError([Fault(FLAG, policy.text, expected)])
    if policy.target is not None and len(specs) > 1:
        expected = f"target: expected an autoscaler with one metric, this one has {len(specs)}"
        raise InputError([Fault(FLAG, policy.text, expected)])
    changed = simulation.overridden(autoscaler, policy, behavior)
    if policy.name == KEDA and changed.spec.min_replicas == 0:
        expected = "expected minReplicas of 1 or more: the activation of KEDA is not simulated"
        raise InputError([Fault(FLAG, policy.text, expected)])
    faults = [
        Fault(FLAG, policy.text, f"{fault.path}: {': '.join(filter(None, (fault.value, fault.expected)))}")
        for fault in autoscaler_documents.faults_of(changed)
    ]
    if faults:
        raise InputError(faults)


def read_behavior(file: str, autoscaler: FastPathAutoscaler) -> HorizontalPodAutoscalerBehavior:
    """Return the behavior in a file: the mapping itself, or one below `behavior`. InputError."""
    source = command_line.read_source(file)
    read = list(yaml_documents.read_documents(source.text, source.name))
    if len(read) != 1:
        raise InputError([Fault("", "", "expected one document with a behavior", source.name)])
    document = read[0]
    if isinstance(document, InputError):
        raise document
    tree, place = document.value, ""
    if isinstance(tree, dict) and set(tree) == {"behavior"}:
        tree, place = tree["behavior"], "behavior."
    if not isinstance(tree, dict):
        expected = "expected a behavior with scaleUp and scaleDown"
        raise InputError([Fault("", autoscaler_documents.shown(tree), expected, source.name, 1)])
    # it is checked as a part of a valid autoscaler
    name = autoscaler.spec.scale_target_ref.name
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    whole = {
        "apiVersion": HPA_API_VERSION,
        "kind": HPA_KIND,
        "metadata": {"name": "behavior"},
        "spec": {"scaleTargetRef": target, "maxReplicas": 1, "behavior": dict(tree)},
    }
    try:
        behavior = autoscaler_documents.read_document(whole, NAMESPACE).spec.behavior
    except InputError as error:
        faults = []
        for fault in error.faults:
            path = place + fault.path.removeprefix("spec.behavior").removeprefix(".")
            faults.append(replace(fault, path=path, source=source.name, line=document.line_of(path)))
        raise InputError(faults) from None
    assert behavior is not None
    return behavior
