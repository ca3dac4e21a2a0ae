"""The contest: `python -m benchmarks.contest --folder DIR`, with --write the tables of docs/contest.md.

Each part runs alone with --part. `traces` has the public traces, `worldcup` the windows of two papers, and
`adapt` the generated loads of a third.
"""

import argparse
import math
import os
import platform
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from benchmarks import contest_adapt, contest_scenarios, contest_worldcup, simulated, traces
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


def replace_table(page: Path, name: str, table: str) -> None:
    """Write a table to its place in a page."""
    begin, end = f"<!-- begin of {name} -->", f"<!-- end of {name} -->"
    before, _, rest = page.read_text("utf-8").partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n\n{table}\n\n{end}{after}", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="where the traces are kept")
    parser.add_argument("--part", choices=PARTS, action="append", help="one part, again for more")
    parser.add_argument("--write", action="store_true", help="write the tables to the page")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    for trace in TRACES:
        traces.fetch(trace, given.folder)
    with ProcessPoolExecutor(given.processes) as pool:
        for part in given.part or PARTS:
            began = time.perf_counter()
            tables = run_part(part, given.folder, pool)
            day = datetime.now(UTC).date()  # noqa: TID251 - the date of the table
            machine = f"{simulated.processor()}, Python {platform.python_version()}"
            made = f"Made on {day} on {machine}, in {time.perf_counter() - began:.0f} s."
            for name, table in tables.items():
                print(table, made, sep="\n\n")
                if given.write:
                    replace_table(PAGE, name, f"{table}\n\n{made}")


if __name__ == "__main__":
    main()
