"""The suite: runs benchmarks, each in its own process, and keeps their results in one file.

    scripts/bench [--tiny] [--results FILE] [NAME ...]
    scripts/bench --pages
    scripts/bench --interleave REF [--rounds N] [--tiny] [NAME ...]
    scripts/bench NAME ITS-OWN-ARGUMENTS

Without names, all but the long ones run. Each replaces its entry in benchmarks/results.json. A benchmark
with arguments of its own only prints: figures of other sizes do not belong in the file.
`scripts/bench NAME --help` lists its sizes. `--tiny` takes sizes that say nothing about speed, and keeps the
figures only with `--results`. `PROMETHEUS_ADAPTER=` names a prometheus-adapter to compare with `serve`.

`--pages` runs all benchmarks, the long ones too, then the profiles, and writes the pictures and
docs/performance.md. It first says how long that takes. All figures then have one commit and one machine.

`--interleave` runs this tree and the revision REF in turns. For each figure it prints the median of both, and
the ratio of new to old with its range. REF's program runs with this tree's benchmark, sandbox and load. A
benchmark that calls functions of the adapter (`tick`) may need some that REF lacks. Each run is short, and
nothing is kept.
"""

import argparse
import importlib.util
import json
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import common, interleave, peer
from benchmarks.common import ROOT

RESULTS = Path(__file__).with_name("results.json")

Entry = dict[str, Any]

_TINY_AT_ONCE = 5
_OPTIONS = {"--tiny", "--results", "--interleave", "--rounds"}
_PROFILES_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Case:
    """A benchmark: the module of that name. `long` ones run only if they are named.

    `short` are the sizes for one of many runs in turns.
    """

    about: str
    tiny: str
    short: str
    long: bool = False


CASES: Mapping[str, Case] = {
    "serve": Case(
        "warm, cold and mixed requests to `fastpath serve`, compared with aiohttp alone and Prometheus alone",
        tiny="--hpas 4 --pods 2 --seconds 0.2 --runs 1",
        short="--seconds 2 --runs 1",
    ),
    "hpas": Case(
        "cost and Prometheus queries of many autoscalers that request a metric every 15 s",
        tiny="--hpas 10 --many 20 --pods 2 --rules 2 --period 0.5 --seconds 1",
        short="--hpas 300 --many 3000 --period 5 --seconds 10",
    ),
    "memory": Case(
        "start-up time and memory, with no pods and with many",
        tiny="--small 10 --large 20 --pods 2 --runs 1",
        short="--small 2000 --large 20000 --runs 1",
    ),
    "limits": Case(
        "memory, and the latency of other callers, under endless new selectors, a huge query response and "
        "many changed pods",
        tiny="--apps 4 --pods 2 --rate 20 --seconds 0.4 --series 120000 --changes 40",
        short="--seconds 2 --series 300000",
    ),
    "scrape": Case(
        "scraping of metrics from pods", tiny="--bodies 20 --pods 4 --rounds 2 --runs 1", short="--runs 1"
    ),
    "podwatch": Case(
        "cost of the scaler's watch of all pods",
        tiny="--pods 40 --events 20 --runs 1",
        short="--pods 20000 --events 5000 --runs 1",
    ),
    "tick": Case(
        "one decision round of the scaler",
        tiny="--autoscalers 6 --pods 3 --ticks 2 --runs 1",
        short="--autoscalers 3000 --ticks 3 --runs 1",
    ),
    "forecasting": Case(
        "what forecasts cost the scaler, and the process that makes them",
        tiny="--autoscalers 6 --pods 3 --rounds 2 --minutes 2 --jobs 1 --days 3 --seconds 1",
        short="--autoscalers 300 --rounds 5 --minutes 5 --jobs 1",
    ),
    "reaction": Case(
        "time from a load step to the written Scale, by source of the metric",
        tiny="--workloads 2 --slow 1 --seconds 1",
        short="--workloads 10 --seconds 10",
    ),
    "cpu": Case(
        "time from a step of the CPU load to the written Scale, on a real control plane",
        tiny="--workloads 1 --millicores 60 --period 4 --seconds 1 --hold 20 --compare 90",
        short="--workloads 3 --seconds 60",
        long=True,
    ),
    "clients": Case(
        "what clients see while a workload is scaled, on a cluster that KUBECONFIG names",
        tiny="--repeat 1 --only spike",
        short="--repeat 2 --only step",
        long=True,
    ),
    "scalability": Case(
        "what 1,000 and 5,000 HPAs get from one control plane, with Fastpath and without",
        tiny="--hpas 10 --longest 200",
        short="--hpas 200",
        long=True,
    ),
    "slices": Case(
        "what each of several scalers costs that share 100,000 autoscalers",
        tiny="--autoscalers 20 --scalers 2",
        short="--autoscalers 4000 --scalers 2",
        long=True,
    ),
    "growth": Case(
        "how cost grows with requests, autoscalers, pods, rules and series, each doubled six times",
        tiny="--runs 1 --requests 10 --autoscalers 2 --ticks 1 --pods 10 --rules 1 --series 100 --swept 10",
        short="--runs 1",
        long=True,
    ),
    "soak": Case(
        "an hour of mixed load with faults",
        tiny="--minutes 0.2 --requests 20 --fresh 5 --apps 4",
        short="--minutes 2",
        long=True,
    ),
}


def main(arguments: Sequence[str]) -> int:
    """Run what the command line says; returns the exit status."""
    own = len(arguments) > 1 and arguments[0] in CASES and arguments[1].startswith("-")
    if own and arguments[1].partition("=")[0] not in _OPTIONS:
        return _run_alone(arguments[0], arguments[1:])
    parser = argparse.ArgumentParser(
        "scripts/bench",
        description=__doc__,
        epilog="\n".join(f"  {name:10} {case.about}{' (long)' * case.long}" for name, case in CASES.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage=argparse.SUPPRESS,
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="benchmarks to run (default: all but the long ones)"
    )
    parser.add_argument("--tiny", action="store_true", help="small sizes, to check that the benchmarks run")
    parser.add_argument(
        "--results", type=Path, metavar="FILE", help="write to FILE instead of benchmarks/results.json"
    )
    parser.add_argument("--pages", action="store_true", help="run all, then profiles, pictures and pages")
    parser.add_argument("--interleave", metavar="REF", help="compare with this revision, in turns")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="runs of each (default: 5)")
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in CASES:
            return _refuse(f"{name}: no such benchmark; there are: {', '.join(CASES)}")
    names = list(dict.fromkeys(options.names)) or [
        name for name, case in CASES.items() if options.pages or not case.long
    ]
    if options.interleave is not None:
        sizes = {name: CASES[name].tiny if options.tiny else CASES[name].short for name in names}
        return interleave.run(options.interleave, sizes, max(1, options.rounds))
    try:
        peer.find()
    except ValueError as error:
        return _refuse(str(error))
    results = options.results or (None if options.tiny else RESULTS)
    if options.pages:
        return _run_for_pages(names)
    return run(names, results, tiny=options.tiny)


def _run_for_pages(names: Sequence[str]) -> int:
    """Run benchmarks and profiles, draw the pictures and write the pages; return the exit status.

    What fails stops nothing: the pages say which figures are of another run.
    """
    if common.find_spy() is None or importlib.util.find_spec("matplotlib") is None:
        return _refuse("--pages needs py-spy and matplotlib: .venv/bin/pip install -r requirements/bench.txt")
    if peer.find() is None:
        print(f"{peer.VARIABLE} names no prometheus-adapter: the pages will have no comparison with it")
    commit = common.describe_commit()
    before = read(RESULTS)
    took = {name: before.get(name, {}).get("took_seconds", 0) for name in names} | {
        "profiles": _PROFILES_SECONDS
    }
    parts = ", ".join(f"{name} {seconds / 60:.0f}" for name, seconds in took.items())
    print(f"commit {commit}; about {sum(took.values()) / 60:.0f} minutes, as in the last run: {parts}")
    status = run(names, RESULTS, tiny=False)
    for module in ("profiles", "plot", "page"):
        status = max(status, subprocess.run(_command(module), cwd=ROOT, check=False).returncode)
    return status


def run(names: Sequence[str], results: Path | None, *, tiny: bool) -> int:
    """Run benchmarks one after the other, save their results, and show them; return the exit status.

    At tiny sizes, whose times mean nothing, several run side by side.
    """
    found: dict[str, Entry] = {}
    writing = threading.Lock()

    def keep(name: str, entry: Entry) -> None:
        with writing:
            found[name] = entry
            if results is not None:
                write(results, read(results) | {name: entry})

    pool = ThreadPoolExecutor(_TINY_AT_ONCE if tiny else 1)
    order = reversed(names) if tiny else names  # the last one waits the most
    running = {name: pool.submit(_run_case, name, keep, tiny=tiny) for name in order}
    try:
        failed = [name for name in names if not running[name].result()]
    finally:
        pool.shutdown(cancel_futures=True)  # an interrupt ends all runs
    _show(found)
    if failed:
        print(f"scripts/bench: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def read(results: Path) -> dict[str, Entry]:
    """Return all entries of a file of results by benchmark; empty without the file."""
    if not results.exists():
        return {}
    entries: dict[str, Entry] = json.loads(results.read_text(encoding="utf-8"))
    return entries


def write(results: Path, entries: Mapping[str, Entry]) -> None:
    """Write a file of results atomically; benchmarks are sorted, their figures keep their order."""
    new = results.with_suffix(".new")
    new.write_text(json.dumps(dict(sorted(entries.items())), indent=1) + "\n", encoding="utf-8")
    new.replace(results)


def _run_alone(name: str, arguments: Sequence[str]) -> int:
    """Run one benchmark with arguments of its own."""
    return subprocess.run([*_command(name), *arguments], cwd=ROOT, check=False).returncode


def _run_case(name: str, keep: Callable[[str, Entry], None], *, tiny: bool) -> bool:
    """Run one benchmark and show its table, at once if it runs alone; return whether it succeeded.

    It prints its entry once or more, and each replaces the one before: what is kept stays if it fails later.
    """
    begun = common.wall()
    commit = common.describe_commit()
    start = time.perf_counter()
    command = [*_command(name), *(shlex.split(CASES[name].tiny) if tiny else [])]
    lines: list[str] = []
    entry = None
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            entry = _read_entry(line)
            if entry is not None:
                day = datetime.fromtimestamp(begun, UTC).isoformat(timespec="seconds")
                took = round(time.perf_counter() - start, 1)
                keep(name, entry | {"commit": commit, "time": day, "took_seconds": took})
            elif tiny:
                lines.append(line)
            else:
                print(line, end="", flush=True)
    print("".join(lines), end="", flush=True)
    return not process.returncode and entry is not None


def _read_entry(line: str) -> Entry | None:
    """Return the entry on a line of a benchmark, None if the line is another."""
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return (
        entry
        if isinstance(entry, dict) and {"figures", "goals", "settings", "machine"} <= entry.keys()
        else None
    )


def _command(name: str) -> list[str]:
    return [sys.executable, "-m", f"benchmarks.{name}"]


def _show(found: Mapping[str, Entry]) -> None:
    """Print the goals of all benchmarks and whether they are reached."""
    rows = []
    for name, entry in found.items():
        for figure, goal in entry["goals"].items():
            limit = common.show_limit(goal["limit"], goal["unit"], at_least=goal["at_least"])
            measured = common.show_number(entry["figures"][figure])
            rows.append((f"{name} {figure}", measured, limit, "reached" if goal["reached"] else "missed"))
    if rows:
        print("\ngoals")
        common.print_table(("figure", "measured", "goal", ""), rows)


def _refuse(sentence: str) -> int:
    print(f"scripts/bench: {sentence}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
