"""The speed of simulations: `python -m benchmarks.simulate`, in CPU seconds for 14 days of one autoscaler.

The load is a daily wave with noise, for about twenty pods with a Pods metric. `minute` has a new value each
minute, as a recorded load has, so most seconds need no decision. `second` has one each second, so hardly any
can be skipped. Each policy runs at one phase.
"""

import math
import os
import random
import resource
import time

from adapter.model.autoscaling.documents import read_document
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from benchmarks import common, documents
from benchmarks.common import Goal, Report
from fastpath_forecast.simulate import load
from fastpath_forecast.simulate.load import Load
from fastpath_forecast.simulate.simulation import Scenario, simulate
from fastpath_tools.simulate.policies import read_policy

_SEED = 20261123
_DAY = 86_400
_POLICIES = ("native", "fast", "boost")


def main() -> None:
    sizes = common.parse_sizes("How fast simulations are.", days=14.0, runs=3)
    os.sched_setaffinity(0, {common.SERVER_CORE})
    goals = {
        "minute_fast_cpu_seconds": Goal(
            "14 days of one autoscaler with the policy fast, a load with a value each minute", 10, "s"
        )
    }
    report = Report("simulate", {"days": sizes.days, "runs": sizes.runs}, goals)
    for name, step in (("minute", 60), ("second", 1)):
        demand = _load(sizes.days, step)
        for policy in _POLICIES:
            figure = f"{name}_{policy}_cpu_seconds"
            runs = [_run(demand, policy) for _ in range(int(sizes.runs))]
            seconds, decisions = sorted(runs)[len(runs) // 2]
            report.add(**{figure: seconds, f"{name}_{policy}_decisions": decisions})
    report.add(peak_memory_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    report.show()


def _load(days: float, step: int) -> Load:
    chance = random.Random(_SEED)
    seconds = int(days * _DAY)
    points = (
        (at, max(0.0, 200 + 150 * math.sin(at / _DAY * 2 * math.pi) + chance.gauss(0, 10)))
        for at in range(0, seconds, step)
    )
    return load.of_points(points, seconds)


def _run(demand: Load, policy: str) -> tuple[float, int]:
    """Return the CPU seconds of a run, and how many decisions it computed."""
    scenario = Scenario(_autoscaler(), {"load": demand}, (40,), phases=1)
    start = time.process_time()
    result = simulate(scenario, read_policy(policy))
    return time.process_time() - start, result.decisions


def _autoscaler() -> FastPathAutoscaler:
    metrics = [documents.pods_metric("load", "10")]
    return read_document(documents.autoscaler("web", "shop", metrics, (2, 100), native=True))


if __name__ == "__main__":
    main()
