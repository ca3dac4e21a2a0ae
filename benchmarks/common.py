"""What all benchmarks share: the cores of the programs, the median of several runs, and the printed result.

Every benchmark prints a table for people and, as its last line, one JSON object for programs. A goal that is
missed is reported like any other figure: no benchmark fails because it is slow.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

_CORES = sorted(os.sched_getaffinity(0))

SERVER_CORE = _CORES[0]
"""Where the program that is measured runs, with its children."""

LOAD_CORE = _CORES[-1]
"""Where all else runs: the load generator, Prometheus, the sandbox cluster.

The same core where there is only one.
"""

_LIBRARIES = ("aiohttp", "uvloop", "msgspec", "prometheus-client", "promql-parser")


_CODE = (
    "adapter",
    "fastpath_forecast",
    "fastpath_tools",
    "fastpath_sandbox",
    "benchmarks/*.py",
    "tests/support",
    "requirements",
)


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure to reach: at most `limit`, or at least with `at_least`.

    `what` describes it for docs/performance.md, in words that stand alone.
    """

    what: str
    limit: float
    unit: str
    at_least: bool = False

    def reached(self, measured: float) -> bool:
        return measured >= self.limit if self.at_least else measured <= self.limit


@dataclass(slots=True)
class Report:
    """The results of one benchmark.

    Names of `figures` carry their unit; `goals` has those that must be reached.
    """

    benchmark: str
    settings: Mapping[str, object]
    goals: Mapping[str, Goal]
    figures: dict[str, float] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def add(self, **figures: float) -> None:
        """Add figures, rounded: small ones keep four significant digits."""
        for name, value in figures.items():
            self.figures[name] = round(value, 4) if abs(value) >= 1 else float(f"{value:.4g}")

    def show(self) -> None:
        print(f"\n{self.benchmark}: {', '.join(f'{name} {value}' for name, value in self.settings.items())}")
        print_table(("figure", "measured", "goal", ""), [self._row(name) for name in self.figures])
        judged = {
            name: asdict(goal) | {"reached": goal.reached(self.figures[name])}
            for name, goal in self.goals.items()
        }
        result = {
            "benchmark": self.benchmark,
            "settings": self.settings,
            "machine": describe_machine(),
            "figures": self.figures,
            "goals": judged,
            "notes": self.notes,
        }
        print(json.dumps(result), flush=True)

    def _row(self, name: str) -> tuple[str, ...]:
        measured = show_number(self.figures[name])
        goal = self.goals.get(name)
        if goal is None:
            return name, measured, "", ""
        verdict = "reached" if goal.reached(self.figures[name]) else "missed"
        return name, measured, show_limit(goal.limit, goal.unit, at_least=goal.at_least), verdict


def show_number(value: float) -> str:
    """Return a figure with three digits, or all digits before the point."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def show_limit(limit: float, unit: str, *, at_least: bool) -> str:
    """Return a goal's limit, as `<= 2.3 ms` or `>= 5,000/s`."""
    space = "" if not unit or unit.startswith("/") else " "
    return f"{'>=' if at_least else '<='} {limit:,g}{space}{unit}"


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns, the first to the left and the others to the right."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        print("  " + "  ".join(cells).rstrip())


def describe_machine() -> dict[str, object]:
    """Return the machine and versions; `load` is the load average of the last minute."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = next(
        (line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")), ""
    )
    return {
        "cpu": model,
        "cores": len(_CORES),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in _LIBRARIES},
        "prometheus": _version_of("prometheus"),
    }


def find_spy() -> str | None:
    """Return the path of py-spy, which makes the profiles; None if it is not installed."""
    return shutil.which("py-spy") or shutil.which("py-spy", path=Path(sys.executable).parent)


def git(*arguments: str) -> bytes | None:
    """Return what git prints in this tree, None if it fails or is not installed."""
    if shutil.which("git") is None:
        return None
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    return None if done.returncode else done.stdout


def describe_commit() -> str:
    """Return the commit of this tree; it says if code has changed since, and is "unknown" without git."""
    commit = git("rev-parse", "--short=12", "HEAD")
    if commit is None:
        return "unknown"
    changed = git("status", "--porcelain", "--untracked-files=no", "--", *_CODE)
    return commit.decode().strip() + (" with changes" if changed else "")


def _version_of(program: str) -> str:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "not installed"
    words = (done.stdout or done.stderr).split()
    return words[2] if len(words) > 2 else "unknown"


def run_part(module: str, *arguments: object) -> dict[str, float]:
    """Run a module of this folder in a process of its own on the server's core; return what it prints."""
    command = on_server_core([sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)])
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900)
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def median_of(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each figure over several runs of the same."""
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that `share` (0 to 1) of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def parse_sizes(
    about: str, arguments: Sequence[str] | None = None, **defaults: float | str
) -> argparse.Namespace:
    """Return the sizes of a benchmark; each default is an option of the command line."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in defaults.items():
        shown = value if isinstance(value, str) else f"{value:,}"
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value, help=shown)
    return parser.parse_args(arguments)


def wall() -> float:
    """Return epoch seconds. The adapter's own clock takes half a second to import."""
    return time.time()  # noqa: TID251 - a benchmark is a program of its own


def busy_seconds(core: int | str = "") -> float:
    """Return the busy seconds of a core, from any program; without one those of all."""
    text = Path("/proc/stat").read_text(encoding="ascii")
    (line,) = (line for line in text.splitlines() if line.startswith(f"cpu{core} "))
    user, nice, system, _idle, _waiting, interrupts, soft, *_ = map(int, line.split()[1:])
    return (user + nice + system + interrupts + soft) / os.sysconf("SC_CLK_TCK")


def stay_on_load_core() -> None:
    """Move this process and its children off the server's core."""
    os.sched_setaffinity(0, {LOAD_CORE})


def on_server_core(command: Sequence[str]) -> list[str]:
    """Return the command that starts `command` on the server's core."""
    return ["taskset", "--cpu-list", str(SERVER_CORE), *command]
