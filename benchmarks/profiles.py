"""Profiles of the benchmarks: `python -m benchmarks.profiles [NAME ...]` writes docs/profiles/NAME.txt.

py-spy samples the benchmark and its children from outside and records the stack of each busy thread. Only the
measured processes count, and only after their start. Time spent in C counts for the Python function that
called it; what the event loop does in C counts as the loop. Needs py-spy (requirements/bench.txt) and
permission to trace processes. `memory` has the allocations of Python as tracemalloc sees them.
"""

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import common, load, memory
from benchmarks.common import ROOT, describe_commit, describe_machine
from benchmarks.stage import Stage

FOLDER = ROOT / "docs" / "profiles"
"""One text for each of CASES, and one of the memory."""

_RATE = 200
_PART = re.compile(r"^ +([\d.]+(?:%| MiB)) {3}(.+)$", re.MULTILINE)
_ROWS = 15
_SHOWN = 5
_LIBRARY = frozenset(
    {"asyncio", "collections", "concurrent", "json", "logging", "urllib", "http", "email", "re"}
)
_PARTS = 8
MIB = 1024 * 1024
_NAME_WIDTH = 84
_IMPORTING = re.compile(r"_find_and_load|_load_unlocked|exec_module|<frozen importlib")
# threads of a pool that wait for work: stopping them to look wakes them for a moment, which is taken for work
_PREFIX = re.compile(r"^.*/(?:site-packages|python3\.\d+)/|^.*/(?=(?:adapter|benchmarks|fastpath_\w+)/)")
_WAITING = re.compile(r"^(_worker|ThreadPoolExecutor\.submit) \(concurrent/futures/thread\.py\)$")


class ProfileError(Exception):
    """A benchmark has no profile."""


class Profile(NamedTuple):
    """A benchmark with its arguments, and regular expressions of the processes and functions that count."""

    about: str
    benchmark: str
    arguments: str
    measured: str
    within: str = ""


_SERVE = r"-m adapter serve|benchmarks\.pod .* serve"
_SCALE = r"-m adapter scale"
_REQUESTS = "--runs 1 --seconds 4 --cases"
_MEMORY = "memory"
_MEMORY_PODS = 10_000

CASES: Mapping[str, Profile] = {
    "warm": Profile("warm requests", "serve", f"{_REQUESTS} warm", _SERVE),
    "cold": Profile("cold requests", "serve", f"{_REQUESTS} cold", _SERVE),
    "mixed": Profile("mixed requests", "serve", f"{_REQUESTS} mixed", _SERVE),
    "hpas": Profile("many HPAs", "hpas", "--hpas 1000 --many 2000 --period 5 --seconds 10", _SERVE),
    "tick": Profile(
        "decisions of the scaler",
        "tick",
        "--autoscalers 2000 --ticks 5 --runs 1",
        r"benchmarks\.tick",
        r"tick \(.*autoscaler/loop",
    ),
    "reaction": Profile("scraping and scaling", "reaction", "--workloads 10 --seconds 10", _SCALE),
    "scrape": Profile("decoding of scrapes", "scrape", "--runs 1", r"benchmarks\.scrape|-m adapter"),
    "podwatch": Profile(
        "watch of pods", "podwatch", "--pods 20000 --events 5000 --runs 1", r"benchmarks\.podwatch|-m adapter"
    ),
}


def record(profile: Profile, raw: Path) -> list[str]:
    """Run a benchmark under py-spy; return a stack a line, with the process first and a count last."""
    spy = common.find_spy()
    if spy is None:
        sys.exit("profiles need py-spy: .venv/bin/pip install --require-hashes -r requirements/bench.txt")
    command = [spy, "record", "--subprocesses", "--format", "raw", "--rate", str(_RATE), "--output", str(raw)]
    ran = [sys.executable, "-m", f"benchmarks.{profile.benchmark}", *shlex.split(profile.arguments)]
    done = subprocess.run([*command, "--", *ran], cwd=ROOT, capture_output=True, text=True, check=False)
    if not raw.exists():
        raise ProfileError(f"py-spy wrote nothing:\n{done.stderr[-2000:]}")
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
        if _WAITING.search(calls[-1]) or not re.search(profile.within, text):
            continue
        alone[calls[-1]] += int(samples)
        for call in set(calls):
            within[call] += int(samples)
    return alone, within, alone.total()


def _short(frame: str) -> str:
    """Return a frame without its line, its file from the package on."""
    name, _, place = frame.removesuffix(")").partition(" (")
    return f"{name} ({_PREFIX.sub('', place.rpartition(':')[0])})"


def find_part(call: str) -> str:
    """Return the part that a function, as `count` names it, belongs to: a package, the event loop, or TLS."""
    place = call.rpartition(" (")[2].removesuffix(")")
    top, inside, rest = place.partition("/")
    if place.startswith(("asyncio/runners", "uvloop", "adapter/event_loop")):
        return "event loop and sockets"
    if place == "ssl.py":
        return "TLS"
    if top == "adapter":
        return f"adapter/{rest.partition('/')[0].removesuffix('.py')}"
    return top if inside and top not in _LIBRARY else "Python's library"


def render(name: str, profile: Profile, stacks: Iterable[str]) -> str:
    """Return the text of a profile: the share of each part, then that of each function."""
    alone, within, total = count(stacks, profile)
    if not total:
        raise ProfileError(f"no sample of a process like {profile.measured}")
    parts: Counter[str] = Counter()
    for call, samples in alone.items():
        parts[find_part(call)] += samples
    lines = [
        *_head(name, f"{profile.about}: {total} samples, each 1/{_RATE} s of a busy thread, without imports"),
        f"  of python -m benchmarks.{profile.benchmark} {profile.arguments}",
        "",
        *(f"{samples / total:7.1%}   {part}" for part, samples in parts.most_common(_PARTS)),
        "",
        "   self   with what it calls",
        *(
            f"{samples / total:7.1%} {within[call] / total:7.1%}   {call[:_NAME_WIDTH]}"
            for call, samples in alone.most_common(_ROWS)
        ),
    ]
    return "\n".join(lines) + "\n"


def _head(name: str, about: str) -> list[str]:
    machine = describe_machine()
    return [
        f"python -m benchmarks.profiles {name}",
        f"  commit {describe_commit()}, Python {machine['python']}, {machine['cpu']}",
        f"  {about}",
    ]


def render_memory() -> str:
    """Return the memory of `fastpath serve` with watched pods, by the package that allocated it."""
    resident = memory.run_case(_MEMORY_PODS, 10, "Deployment")["asked_mib"]
    with Stage() as stage:
        os.environ["PYTHONTRACEMALLOC"] = "1"
        adapter, apps = memory.start(stage, _MEMORY_PODS, 10, "Deployment")
        memory.ask(stage, adapter, apps)
        traces = stage.directory / "serviceaccount" / "traces"
        os.kill(adapter.pid, signal.SIGUSR1)
        asyncio.run(load.wait_for(traces.exists, "the traces"))
        sizes: dict[str, int] = json.loads(traces.read_text(encoding="utf-8"))
    parts: Counter[str] = Counter()
    for file, size in sizes.items():
        parts["code of modules" if "importlib" in file else find_part(_short(f"f ({file}:1)"))] += size
    outside = resident - parts.total() / MIB
    parts["interpreter, libraries in C, buffers"] = round(outside * MIB)
    about = f"memory with {_MEMORY_PODS:,} pods: {resident:.0f} MiB resident, allocations by tracemalloc"
    rows = (f"{size / MIB:7.1f} MiB   {part}" for part, size in parts.most_common(_ROWS))
    return "\n".join([*_head(_MEMORY, about), "", *rows, ""])


class KeptProfile(NamedTuple):
    """What a file of docs/profiles says: its largest parts with their shares."""

    about: str
    commit: str
    parts: list[tuple[str, str]]


def read() -> list[KeptProfile]:
    """Return the kept profiles."""
    kept = []
    for name in (*CASES, _MEMORY):
        _, origin, about, *rest = (FOLDER / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        commit = origin.strip().removeprefix("commit ").partition(",")[0]
        shares = "\n".join(rest).partition("\n   self ")[0]
        parts = [(part, share) for share, part in _PART.findall(shares)]
        kept.append(KeptProfile(about.strip().partition(":")[0], commit, parts[:_SHOWN]))
    return kept


def main(names: Sequence[str]) -> None:
    known = [*CASES, _MEMORY]
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"{unknown[0]}: no such profile; there are: {' '.join(known)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in names or known:
        try:
            text = render_memory() if name == _MEMORY else _profile(name)
        except (ProfileError, TimeoutError) as error:
            print(f"{name}: {error}", file=sys.stderr, flush=True)
            failed.append(name)
            continue
        (FOLDER / f"{name}.txt").write_text(text, encoding="utf-8")
        print(text, flush=True)
    if failed:
        sys.exit(f"profiles: failed: {', '.join(failed)}")


def _profile(name: str) -> str:
    with tempfile.TemporaryDirectory(prefix="fastpath-profile-") as directory:
        return render(name, CASES[name], record(CASES[name], Path(directory) / "stacks"))


if __name__ == "__main__":
    main(sys.argv[1:])
