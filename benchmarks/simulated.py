"""What the autoscalers would have done with public traces: `python -m benchmarks.simulated --folder DIR`.

With --write it makes the table of docs/simulated-traces.md. Each trace has the target at which its mean load
is ten pods, so no target was chosen by its result. Counts have no limit: maxReplicas is twice what the
highest load needs.
"""

import math
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec

from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.autoscaling.hpa import decode_scalar
from benchmarks import documents, traces
from benchmarks.traces import TRACES
from fastpath_forecast.simulate.load import Load
from fastpath_forecast.simulate.simulation import Scenario, simulate
from fastpath_tools.simulate.policies import read_policy
from fastpath_tools.simulate.results import PolicyFigures

PAGE = Path(__file__).parent.parent / "docs" / "simulated-traces.md"

POLICIES = ("native", "boost", "fast")
START_UPS = (20, 60, 180)
PODS_AT_MEAN = 10
PHASES = 2


class Cell(NamedTuple):
    """What one policy came to, in per cent of what the load needed."""

    shortage: float
    pods: float


class Row(NamedTuple):
    """One trace at one start-up time."""

    trace: int
    start_up: int
    ratio: float
    cells: tuple[Cell, ...]
    seconds: float


def autoscaler(target: int, least: int, most: int) -> FastPathAutoscaler:
    """Return an autoscaler with a Pods metric `load`; the target is in thousandths."""
    document = documents.autoscaler(
        "web", "default", [documents.pods_metric("load", f"{target}m")], (least, most)
    )
    return msgspec.convert(document, FastPathAutoscaler, dec_hook=decode_scalar)


def scenario_for(load: Load, start_up: int) -> Scenario:
    """Return the scenario of a load: ten pods at its mean, and no limit that it reaches."""
    target = max(1, round(1000 * load.mean / PODS_AT_MEAN))
    most = math.ceil(2000 * load.highest / target)
    return Scenario(autoscaler(target, 1, most), {"load": load}, [start_up], phases=PHASES)


def run(job: tuple[int, int, Path]) -> Row:
    place, start_up, folder = job
    began = time.process_time()
    load = traces.load_of(TRACES[place], folder)
    scenario = scenario_for(load, start_up)
    cells = []
    for text in POLICIES:
        found = PolicyFigures(text, simulate(scenario, read_policy(text)).runs)
        need = found.mean("needPodSeconds") / 100
        cells.append(Cell(found.mean("shortagePodSeconds") / need, found.mean("podSeconds") / need))
    return Row(place, start_up, load.highest / load.mean, tuple(cells), time.process_time() - began)


def render(rows: list[Row]) -> str:
    """Return the table: shortage and pods of each policy, in per cent of the need."""
    lines = [
        "| trace | max/mean | pods start in | " + " | ".join(POLICIES) + " |",
        "|---|---|---|" + "---|" * len(POLICIES),
    ]
    for row in rows:
        trace = TRACES[row.trace]
        cells = " | ".join(f"{_percent(cell.shortage)} / {cell.pods:.0f} %" for cell in row.cells)
        name = f"{trace.name} ({trace.resolution})"
        lines.append(f"| {name} | {row.ratio:.1f} | {row.start_up} s | {cells} |")
    return "\n".join(lines)


def _percent(share: float) -> str:
    return f"{share:.2f} %" if share < 9.995 else f"{share:.1f} %"


def main() -> None:
    given = traces.parser_of(__doc__).parse_args()
    for trace in TRACES:
        traces.fetch(trace, given.folder)
    jobs = [(place, start_up, given.folder) for place in range(len(TRACES)) for start_up in START_UPS]
    rows = []
    with ProcessPoolExecutor(given.processes) as pool:
        for row in pool.map(run, jobs):
            print(TRACES[row.trace].name, row.start_up, row.cells, f"{row.seconds:.1f} s", flush=True)
            rows.append(row)
    cpu = f"{sum(row.seconds for row in rows):.0f} s of CPU time"
    traces.put_table(PAGE, "the table", render(rows), cpu, write=given.write)


if __name__ == "__main__":
    main()
