"""Profiles of the benchmarks: `python -m benchmarks.profiles [NAME ...]` writes docs/profiles/NAME.txt.

py-spy samples the benchmark and its children from outside and records the stack of each busy thread. Only the
measured processes count, and only after their start. Time spent in C counts for the Python function that
called it. Needs py-spy (requirements/bench.txt) and permission to trace processes.
"""

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.common import ROOT, describe_machine

FOLDER = ROOT / "docs" / "profiles"
_RATE = 200
_ROWS = 18
_NAME_WIDTH = 84
_IMPORTING = re.compile(r"_find_and_load|_load_unlocked|exec_module|<frozen importlib")
# threads of a pool that wait for work: stopping them to look wakes them for a moment, which is taken for work
_WAITING = re.compile(r"^(_worker|ThreadPoolExecutor\.submit) \(concurrent/futures/thread\.py\)$")


class Profile(NamedTuple):
    """A benchmark with its arguments, and regular expressions of the processes and functions that count."""

    arguments: str
    measured: str
    within: str = ""


_SERVE = r"-m adapter serve"
_SCALE = r"-m adapter scale"

CASES: Mapping[str, Profile] = {
    "serve": Profile("--runs 1 --seconds 3", _SERVE),
    "hpas": Profile("--hpas 300 --many 300 --period 5 --seconds 8", _SERVE),
    "memory": Profile("--small 2000 --large 20000 --runs 1", _SERVE),
    "discovery": Profile("--series 300000 --runs 1", r"benchmarks\.discovery relist|series_worker"),
    "reload": Profile("--runs 1", _SERVE),
    "tick": Profile(
        "--autoscalers 2000 --ticks 20 --runs 1", r"benchmarks\.tick", r"tick \(.*controller/loop"
    ),
    "decide": Profile("--runs 1", r"adapter evaluate|benchmarks\.decide"),
    "scrape": Profile("--runs 1", r"benchmarks\.scrape|-m adapter"),
    "podwatch": Profile("--pods 20000 --events 5000 --runs 1", r"benchmarks\.podwatch|-m adapter"),
    "reaction": Profile("--workloads 10 --seconds 10", _SCALE),
}


def record(name: str, profile: Profile, raw: Path) -> list[str]:
    """Run a benchmark under py-spy; return a stack a line, with the process first and a count last."""
    spy = shutil.which("py-spy") or str(Path(sys.executable).with_name("py-spy"))
    command = [spy, "record", "--subprocesses", "--format", "raw", "--rate", str(_RATE), "--output", str(raw)]
    ran = [sys.executable, "-m", f"benchmarks.{name}", *shlex.split(profile.arguments)]
    try:
        done = subprocess.run([*command, "--", *ran], cwd=ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        sys.exit("profiles need py-spy: .venv/bin/pip install --require-hashes -r requirements/bench.txt")
    if not raw.exists():
        sys.exit(f"{name} has no profile:\n{done.stderr[-2000:]}")
    return raw.read_text(encoding="utf-8").splitlines()


def count(stacks: Iterable[str], profile: Profile) -> tuple[Counter[str], Counter[str], int]:
    """Return samples by function, own and inclusive, and their number; imports do not count."""
    alone: Counter[str] = Counter()
    within: Counter[str] = Counter()
    for stack in stacks:
        text, _, samples = stack.rpartition(" ")
        process, *frames = text.split(";")
        calls = [_short(frame) for frame in frames if not frame.startswith(("process ", "thread "))]
        found = [frame for frame in frames if frame.startswith("process ")]
        if not re.search(profile.measured, (found or [process])[-1]) or not calls or _IMPORTING.search(text):
            continue
        if _WAITING.search(calls[-1]):
            continue
        if not re.search(profile.within, text):
            continue
        alone[calls[-1]] += int(samples)
        for call in set(calls):
            within[call] += int(samples)
    return alone, within, alone.total()


def _short(frame: str) -> str:
    """Return a frame without its line, its file shortened to the last folders."""
    name, _, place = frame.removesuffix(")").partition(" (")
    file = place.rpartition(":")[0]
    short = (
        file.rpartition("site-packages/")[2] if "site-packages/" in file else "/".join(file.split("/")[-3:])
    )
    return f"{name} ({short})"


def render(name: str, profile: Profile, stacks: Iterable[str]) -> str:
    """Return the text of a profile: at most 25 lines."""
    alone, within, total = count(stacks, profile)
    if not total:
        sys.exit(f"{name}: no sample of a process like {profile.measured}")
    machine = describe_machine()
    lines = [
        f"python -m benchmarks.profiles {name}",
        f"  = py-spy record --subprocesses --rate {_RATE} -- python -m benchmarks.{name} {profile.arguments}",
        (
            f"  {total} samples of processes like /{profile.measured}/, without imports; "
            f"Python {machine['python']}, {machine['cpu']}"
        ),
        "",
        "   self   with what it calls",
    ]
    for call, samples in alone.most_common(_ROWS):
        lines.append(f"{samples / total:7.1%} {within[call] / total:7.1%}   {call[:_NAME_WIDTH]}")
    rest = 1 - sum(samples for _, samples in alone.most_common(_ROWS)) / total
    lines.append(f"{rest:7.1%}           all others")
    return "\n".join(lines) + "\n"


def main(names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in CASES]
    if unknown:
        sys.exit(f"{unknown[0]}: no such profile; there are: {' '.join(CASES)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names or CASES:
        with tempfile.TemporaryDirectory(prefix="fastpath-profile-") as directory:
            stacks = record(name, CASES[name], Path(directory) / "stacks")
        text = render(name, CASES[name], stacks)
        (FOLDER / f"{name}.txt").write_text(text, encoding="utf-8")
        print(text, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
