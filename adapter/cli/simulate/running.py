"""Runs the policies of a simulation, on all cores where that is worth starting processes."""

import multiprocessing
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

from adapter.cli.simulate.inputs import Variant
from adapter.cli.simulate.results import PolicyFigures
from adapter.simulate.engine import Change
from adapter.simulate.recording import Recording
from adapter.simulate.simulation import Scenario, simulate

_WORTH = 250_000
"""From so many simulated seconds on, of all policies and phases, processes are started."""


class Played(NamedTuple):
    """What a policy came to, and its first phase if that was recorded."""

    figures: PolicyFigures
    changes: Sequence[Change]
    recording: Recording | None


def run_all(scenario: Scenario, variants: Sequence[Variant], columns: int = 0) -> list[Played]:
    """Run policies and return what they came to, in their order.

    With `columns` the first phase of each is recorded.
    """
    seconds = min(load.seconds for load in scenario.loads.values())
    processes = min(os.cpu_count() or 1, len(variants))
    run = partial(_run, scenario, columns, seconds)
    if processes < 2 or seconds * scenario.phases * len(variants) < _WORTH:
        return [run(variant) for variant in variants]
    # A new interpreter for each process: a copy of this one would share its locks.
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(run, variants))


def _run(scenario: Scenario, columns: int, seconds: int, variant: Variant) -> Played:
    policy, behavior = variant
    recording = Recording(seconds, columns) if columns else None
    result = simulate(scenario, policy, behavior, observer=recording)
    return Played(PolicyFigures(policy.text, result.runs), result.changes, recording)
