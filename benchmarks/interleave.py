"""The working tree against an earlier revision, in turns: `scripts/bench --interleave REF [NAME ...]`.

Two runs of one program an hour apart differ by more than most changes do, because the machine is shared. So
both programs run in turns, and each round gives a ratio: this tree's figure over that of REF.

REF's program runs with this tree's benchmark, sandbox and load, since a ratio of two benchmarks says nothing
about the program. A benchmark that calls functions of the adapter (`tick`) may need some that REF
does not have.
"""

import io
import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import common, peer

LOCK = "requirements/lock.txt"
_OURS = ("benchmarks", "tests/support", "fastpath_sandbox")


class RevisionError(Exception):
    """There is no such revision, or it cannot run."""


class Tree(NamedTuple):
    """A checkout, and the interpreter that has its dependencies."""

    root: Path
    python: Path


HERE = Tree(common.ROOT, Path(sys.executable))


def check_out(ref: str, folder: Path) -> Tree:
    """Write a revision into a folder, with this tree's benchmarks; RevisionError if it fails."""
    archive = common.git("archive", "--format=tar", f"{ref}^{{commit}}")
    if archive is None:
        raise RevisionError(_why_not(ref))
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        packed.extractall(folder, filter="data")
    for name in _OURS:
        shutil.rmtree(folder / name, ignore_errors=True)
        shutil.copytree(common.ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    lock = folder / LOCK
    if lock.exists() and lock.read_bytes() == (common.ROOT / LOCK).read_bytes():
        return Tree(folder, HERE.python)
    print(f"{ref} has other dependencies: installing them", file=sys.stderr, flush=True)
    if subprocess.run([folder / "scripts" / "setup"], check=False, stdout=sys.stderr).returncode:
        raise RevisionError(f"{ref}: its dependencies cannot be installed")
    return Tree(folder, folder / ".venv" / "bin" / "python")


def _why_not(ref: str) -> str:
    if shutil.which("git") is None:
        return "--interleave needs git, which is not installed"
    if common.git("rev-parse", "--git-dir") is None:
        return f"--interleave needs a git repository; {common.ROOT} has none"
    return f"{ref}: no such revision"


def run(ref: str, cases: Mapping[str, str], rounds: int) -> int:
    """Compare benchmarks, given with their arguments, and print a table of each; return the exit status."""
    failed = []
    with tempfile.TemporaryDirectory(prefix="fastpath-revision-") as directory:
        try:
            there = check_out(ref, Path(directory))
        except RevisionError as error:
            print(f"scripts/bench: {error}", file=sys.stderr)
            return 2
        print(f"new: {common.describe_commit()}; old: {ref}; {rounds} rounds in turns")
        for name, arguments in cases.items():
            print(f"\n{name}: {arguments or 'default sizes'}", flush=True)
            try:
                pairs = [_run_both(there, name, arguments, turn) for turn in range(rounds)]
            except RevisionError as error:
                print(f"scripts/bench: {name}: {error}", file=sys.stderr)
                failed.append(name)
                continue
            common.print_table(("figure", "old", "new", "new/old", "lowest", "highest"), compare(pairs))
    if failed:
        print(f"scripts/bench: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def compare(pairs: Sequence[tuple[Mapping[str, float], Mapping[str, float]]]) -> list[tuple[str, ...]]:
    """Return a row for each figure that all runs have, from the figures of old and new in each round.

    The ratio is the median of the rounds' own ratios. A figure that was 0 before has no ratio.
    """
    rows = []
    for figure in pairs[0][1]:
        both = [(old[figure], new[figure]) for old, new in pairs if figure in old and figure in new]
        if len(both) < len(pairs):
            continue
        row = [statistics.median(values) for values in zip(*both, strict=True)]
        ratios = [new / old for old, new in both if old]
        if ratios:
            row += [statistics.median(ratios), min(ratios), max(ratios)]
        shown = [common.show_number(value) for value in row]
        rows.append((figure, *shown, *[""] * (5 - len(shown))))
    return rows


def _run_both(there: Tree, name: str, arguments: str, turn: int) -> tuple[dict[str, float], dict[str, float]]:
    """Return the figures of old and new; each is first in every other round."""
    trees = (HERE, there) if turn % 2 else (there, HERE)
    found = {tree: _figures(tree, name, arguments) for tree in trees}
    return found[there], found[HERE]


def _figures(tree: Tree, name: str, arguments: str) -> dict[str, float]:
    command = [str(tree.python), "-m", f"benchmarks.{name}", *shlex.split(arguments)]
    environment = {key: value for key, value in os.environ.items() if key != peer.VARIABLE}
    done = subprocess.run(
        command, cwd=tree.root, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        which = "this tree" if tree is HERE else "the old revision, which may lack what it needs"
        raise RevisionError(f"exit status {done.returncode} with {which}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])["figures"]
    return figures
