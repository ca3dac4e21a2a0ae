"""Runs the policies of a simulation, on all cores where that is worth starting processes."""

import multiprocessing
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.progress import track

from adapter.simulate.engine import CountChange
from adapter.simulate.simulation import Scenario, simulate
from fastpath_tools.simulate.inputs import PolicyVariant
from fastpath_tools.simulate.recording import Recording
from fastpath_tools.simulate.results import PolicyFigures

if TYPE_CHECKING:
    from fastpath_tools.simulate.rolled import Rolled

_WORTH = 250_000
"""From so many simulated seconds on, of all policies and phases, processes are started."""


class Played(NamedTuple):
    """What a policy came to, its first phase if that was recorded, and what its forecast did."""

    figures: PolicyFigures
    changes: Sequence[CountChange]
    recording: Recording | None
    rolled: "Rolled | None" = None


def run_all(scenario: Scenario, variants: Sequence[PolicyVariant], columns: int = 0) -> list[Played]:
    """Run policies and return what they came to, in their order.

    With `columns` the first phase of each is recorded.
    """
    seconds = min(load.seconds for load in scenario.loads.values())
    processes = min(os.cpu_count() or 1, len(variants))
    run = partial(_run, scenario, columns, seconds)
    if processes < 2 or seconds * scenario.phases * len(variants) < _WORTH:
        return list(_shown(map(run, variants), len(variants)))
    # A new interpreter for each process: a copy of this one would share its locks.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context, initializer=_end_on_interrupt) as pool:
        done = pool.map(run, variants)
        return list(_shown(done, len(variants)))


def _end_on_interrupt() -> None:
    """Let Ctrl-C end this process without a traceback; the first process says what happened."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _shown(done: Iterator[Played], count: int) -> Iterable[Played]:
    """Show on a terminal how many of the policies are done."""
    console = Console(stderr=True)
    return track(done, "simulating", count, console=console, transient=True, disable=not console.is_terminal)


def _run(scenario: Scenario, columns: int, seconds: int, variant: PolicyVariant) -> Played:
    policy, behavior, settings = variant
    rolled = None
    if settings is not None:
        from fastpath_tools.simulate import rolled as rolling  # noqa: PLC0415 - needs numpy, which is an extra

        rolled = rolling.roll(scenario, variant, settings)
        scenario = replace(scenario, forecast=rolled.minimums)
    recording = Recording(seconds, columns) if columns else None
    result = simulate(scenario, policy, behavior, observer=recording)
    return Played(PolicyFigures(variant.name, result.runs), result.changes, recording, rolled)
