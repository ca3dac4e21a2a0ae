"""The contest: `python -m benchmarks.contest --folder DIR`, with --write the tables of docs/contest.md.

Each part runs alone with --part. `traces` has the public traces, `worldcup` the windows of two papers, and
`adapt` the generated loads of a third.
"""

import math
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from benchmarks import contest_adapt, contest_scenarios, contest_worldcup, traces
from benchmarks.contest_scenarios import Line
from benchmarks.traces import TRACES
from fastpath_forecast.simulate.load import Load

PAGE = Path(__file__).parent.parent / "docs" / "contest.md"
PARTS = ("traces", "worldcup", "adapt")

LONGEST = 24 * 3600
"""The seconds around the highest value of a trace that count."""

START_UP = 60
PHASES = 3
PODS_AT_MEAN = 10


class TraceLines(NamedTuple):
    """The policies on a trace."""

    trace: int
    lines: Sequence[Line]


def peak_of(load: Load) -> Load:
    """Return the part of a load around its highest value."""
    at = load.starts[max(range(len(load.values)), key=lambda place: _known(load.values[place]))]
    begin = min(max(0, at - LONGEST // 2), max(0, load.seconds - LONGEST))
    return load.part(begin, min(load.seconds, begin + LONGEST))


def _known(value: float) -> float:
    return -1.0 if math.isnan(value) else value


def run_trace(job: tuple[int, Path]) -> TraceLines:
    place, folder = job
    load = peak_of(traces.load_of(TRACES[place], folder))
    scenario = contest_scenarios.scenario(load, load.mean / PODS_AT_MEAN, START_UP, PHASES)
    return TraceLines(place, contest_scenarios.contest(scenario))


def render_traces(done: Sequence[TraceLines]) -> str:
    lines = [f"| trace | policy | {contest_scenarios.HEAD} |", "|---|---|---|---|---|---|---|---|---|"]
    for trace in done:
        name = f"{TRACES[trace.trace].name} ({TRACES[trace.trace].resolution})"
        lines += contest_scenarios.rows(trace.lines, f"{name} | ")
    return "\n".join(lines)


def run_part(part: str, folder: Path, pool: ProcessPoolExecutor) -> dict[str, str]:
    """Return the tables of a part by the name of their place in the page."""
    if part == "traces":
        done = []
        for trace in pool.map(run_trace, [(place, folder) for place in range(len(TRACES))]):
            print(TRACES[trace.trace].name, flush=True)
            done.append(trace)
        return {"traces": render_traces(done)}
    if part == "worldcup":
        windows = contest_worldcup.run(folder)
        return {
            "guruge": contest_worldcup.render_guruge(windows),
            "imdoukh": contest_worldcup.render_imdoukh(windows),
        }
    return {"adapt": contest_adapt.render(list(pool.map(contest_adapt.run, contest_adapt.PUBLISHED)))}


def main() -> None:
    parser = traces.parser_of(__doc__)
    parser.add_argument("--part", choices=PARTS, action="append", help="one part, again for more")
    given = parser.parse_args()
    for trace in TRACES:
        traces.fetch(trace, given.folder)
    with ProcessPoolExecutor(given.processes) as pool:
        for part in given.part or PARTS:
            began = time.perf_counter()
            for name, table in run_part(part, given.folder, pool).items():
                seconds = f"{time.perf_counter() - began:.0f} s"
                traces.put_table(PAGE, name, table, seconds, write=given.write)


if __name__ == "__main__":
    main()
