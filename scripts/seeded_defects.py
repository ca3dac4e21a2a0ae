"""Seeded defects: small wrong changes of the code, each of which a test has to notice.

`tests/defects/PACKAGE.diff` has the defects of a package. `scripts/defects` applies one after the other to a
copy of the tree, and runs tests there until one fails. A file reads:

    tests: tests/rules tests/scenarios/test_serve.py

    == A matcher of a regular expression is not anchored
    from: 1f9c2ab4
    found: tests/rules/test_matchers.py::test_a_whole_name
    --- adapter/rules/matchers.py
     def compile_matcher(text: str) -> Pattern:
    -    return re.compile(f"^(?:{text})$")
    +    return re.compile(text)

`found:` is the test that notices the defect. If it does not, or no test is known, all of `tests:` run.
`from:` is the commit that corrected the defect, or `mutation`. A change has no line numbers: its lines are in
the file exactly once. `@@` divides two changes of one file.
"""

import argparse
import ast
import hashlib
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tests" / "defects"
LIMIT = 900  # seconds in which the tests of a package end; a defect that hangs longer counts as found


class DefectError(Exception):
    """A defect is not written as the module's docstring says, or its lines are not in the tree."""


@dataclass(frozen=True)
class Replacement:
    """Lines of a file, and what they become."""

    path: str
    before: str
    after: str


@dataclass(frozen=True)
class Defect:
    """A wrong change, and the test that notices it."""

    package: str
    name: str
    origin: str
    found_by: str | None
    tests: tuple[str, ...]
    changes: tuple[Replacement, ...]


def parse(package: str, text: str) -> tuple[Defect, ...]:
    """Return the defects of a package's file. A DefectError names the line that is not understood."""
    head, *blocks = re.split(r"^== ", text, flags=re.MULTILINE)
    tests = re.search(r"^tests: (.+)$", head, re.MULTILINE)
    if tests is None:
        raise DefectError(f"{package}.diff: no line `tests: PATH ...` before the first defect")
    return tuple(parse_defect(package, block, tuple(tests[1].split())) for block in blocks)


def parse_defect(package: str, block: str, tests: tuple[str, ...]) -> Defect:
    name, *lines = block.rstrip().splitlines()
    facts: dict[str, str] = {}
    hunks: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.startswith("--- "):
            hunks.append((line[4:].strip(), []))
        elif not hunks and (fact := re.fullmatch(r"(from|found): (.+)", line)):
            facts[fact[1]] = fact[2]
        elif hunks and line.startswith("@@"):
            hunks.append((hunks[-1][0], []))
        elif hunks and (not line or line[0] in " -+"):
            hunks[-1][1].append(line or " ")
        else:
            raise DefectError(
                f"{package}.diff: {name}: the line {line!r} is neither a fact nor part of a change"
            )
    if "from" not in facts or not any(line[0] != " " for _, hunk in hunks for line in hunk):
        raise DefectError(f"{package}.diff: {name}: `from:` and a changed line are needed")
    changes = tuple(
        Replacement(
            path,
            "".join(f"{line[1:]}\n" for line in hunk if line[0] != "+"),
            "".join(f"{line[1:]}\n" for line in hunk if line[0] != "-"),
        )
        for path, hunk in hunks
    )
    return Defect(package, name, facts["from"], facts.get("found"), tests, changes)


def read(packages: Sequence[str] = ()) -> tuple[Defect, ...]:
    """Return the defects of these packages, of all where none is named."""
    names = packages or sorted(file.stem for file in FOLDER.glob("*.diff"))
    files = [FOLDER / f"{name}.diff" for name in names]
    for file in files:
        if not file.exists():
            raise DefectError(f"{file.relative_to(ROOT)} does not exist")
    return tuple(defect for file in files for defect in parse(file.stem, file.read_text()))


def changed(defect: Defect, root: Path) -> dict[Path, str]:
    """Return the text of each file that a defect changes in a tree."""
    texts: dict[Path, str] = {}
    for change in defect.changes:
        path = root / change.path
        if path not in texts:
            if not path.exists():
                raise DefectError(f"{defect.package}.diff: {defect.name}: {change.path} does not exist")
            texts[path] = path.read_text()
        count = texts[path].count(change.before) if change.before else 0
        if count != 1:
            wrong = f"its lines are {count} times in {change.path}, not once"
            raise DefectError(f"{defect.package}.diff: {defect.name}: {wrong}")
        texts[path] = texts[path].replace(change.before, change.after)
        try:
            ast.parse(texts[path])
        except SyntaxError as error:
            raise DefectError(
                f"{defect.package}.diff: {defect.name}: {change.path} is no Python: {error}"
            ) from None
    return texts


def write(texts: dict[Path, str]) -> None:
    """Write modules, and have them compiled: Python takes a file of the same size and second for the same."""
    for path, text in texts.items():
        path.write_text(text)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()


@dataclass(frozen=True)
class DefectOutcome:
    """What the tests said to a defect: the one that failed, or None."""

    defect: Defect
    found_by: str | None
    seconds: float


class Copy:
    """A copy of the tree, in which one defect at a time is applied."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in (
            subprocess.run(listing, cwd=ROOT, check=True, capture_output=True).stdout.decode().split("\0")
        ):
            if name and (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)

    def seed(self, defect: Defect, *, known_only: bool = False) -> DefectOutcome:
        """Apply a defect, run its tests until one fails, and take it back. `known_only` is about `found:`."""
        texts = changed(defect, self._folder)
        before = {path: path.read_text() for path in texts}
        begun = time.monotonic()  # noqa: TID251 - a program of its own
        write(texts)
        try:
            found_by = self.failing((defect.found_by,)) if defect.found_by else None
            if found_by is None and not known_only:
                found_by = self.failing(defect.tests)
        finally:
            write(before)
        return DefectOutcome(defect, found_by, time.monotonic() - begun)  # noqa: TID251

    def failing(self, tests: Sequence[str]) -> str | None:
        """Run tests, and return the first that fails; of its parameters only the case of a transcript."""
        options = ["-q", "-x", "--tb=no", "-rfE", "-p", "no:cacheprovider"]
        present = [test for test in tests if (self._folder / test.split("::")[0]).exists()]
        if not present:
            return None
        command = [sys.executable, "-m", "pytest", *options, *present]
        environment = os.environ | {"PYTHONPATH": str(self._folder), "HYPOTHESIS_PROFILE": "ci"}
        try:
            run = subprocess.run(
                command,
                check=False,
                cwd=self._folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=LIMIT,
            )
        except subprocess.TimeoutExpired:
            return f"no end within {LIMIT} s"
        if run.returncode in {0, 4, 5}:  # all passed; the test does not exist any more; none is collected
            return None
        if run.returncode != 1:
            raise DefectError(f"pytest ended with {run.returncode}: {run.stdout[-2000:]}{run.stderr[-2000:]}")
        transcript = r"::test_transcript\[[\w/-]+\]"
        failed = re.search(
            rf"^(?:FAILED|ERROR) (\S+?\.py(?:{transcript}|::[\w:]+)?)", run.stdout, re.MULTILINE
        )
        assert failed is not None, run.stdout
        return failed[1]


def failing_without(defects: Sequence[Defect]) -> str | None:
    """Return the first known test that fails without a defect: nothing can be said of the defects then."""
    known = sorted({defect.found_by for defect in defects if defect.found_by})
    with tempfile.TemporaryDirectory(prefix="defects-") as folder:
        return Copy(Path(folder)).failing(known) if known else None


def seed_all(defects: Sequence[Defect], jobs: int, *, known_only: bool = False) -> Iterator[DefectOutcome]:
    """Seed defects in several copies at a time; the outcomes come as they are known."""
    with tempfile.TemporaryDirectory(prefix="defects-") as folder, ThreadPoolExecutor(jobs) as threads:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(jobs):
            copies.put(Copy(Path(folder, str(number))))

        def seed(defect: Defect) -> DefectOutcome:
            copy = copies.get()
            try:
                return copy.seed(defect, known_only=known_only)
            finally:
                copies.put(copy)

        yield from (
            future.result() for future in as_completed([threads.submit(seed, defect) for defect in defects])
        )


def sample(defects: Sequence[Defect], count: int, seed: str) -> list[Defect]:
    """Choose some of the defects that a test is known to find; the same ones for the same seed."""
    known = [defect for defect in defects if defect.found_by]
    number = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8])
    return random.Random(number).sample(known, min(count, len(known)))  # noqa: S311 - a sample, and no secret


def record(outcome: DefectOutcome) -> None:
    """Write the test that found a defect into its file; a known one stays until another finds it."""
    defect = outcome.defect
    if "::" not in (outcome.found_by or ""):
        return
    file = FOLDER / f"{defect.package}.diff"
    block = re.compile(rf"(^== {re.escape(defect.name)}\nfrom: .+\n)(?:found: .+\n)?", re.MULTILINE)
    file.write_text(block.sub(lambda match: f"{match[1]}found: {outcome.found_by}\n", file.read_text()))


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/defects", description="Seed defects and see which tests find them."
    )
    parser.add_argument(
        "packages", nargs="*", metavar="PACKAGE", help="a file of tests/defects; all without one"
    )
    parser.add_argument(
        "--named", default="", metavar="TEXT", help="only defects with this text in their name"
    )
    parser.add_argument("--unknown", action="store_true", help="only defects that no test is known to find")
    parser.add_argument("--sample", type=int, metavar="N", help="only N of them, chosen by --seed")
    parser.add_argument(
        "--seed", default="", metavar="TEXT", help="what chooses a sample, such as a commit's hash"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="copies at a time")
    parser.add_argument(
        "--update", action="store_true", help="write the tests that found them into tests/defects"
    )
    parser.add_argument("--known", action="store_true", help="only run the test that is known to find each")
    options = parser.parse_args()
    missed: list[Defect] = []
    try:
        defects = [defect for defect in read(options.packages) if options.named in defect.name]
        if options.unknown:
            defects = [defect for defect in defects if not defect.found_by]
        if options.sample is not None:
            defects = sample(defects, options.sample, options.seed)
        for defect in defects:
            changed(defect, ROOT)
        if wrong := failing_without(defects):
            parser.error(f"{wrong} fails without a defect: correct that first")
        for outcome in seed_all(defects, options.jobs, known_only=options.known):
            missed += [] if outcome.found_by else [outcome.defect]
            where = f"{outcome.defect.package}: {outcome.defect.name}"
            found_by = outcome.found_by or "no test"
            word = "found " if outcome.found_by else "MISSED"
            sys.stdout.write(f"{word} {outcome.seconds:4.0f} s  {where}  {found_by}\n")
            sys.stdout.flush()
            if options.update:
                record(outcome)
    except DefectError as error:
        parser.error(str(error))
    sys.stdout.write(f"{len(defects) - len(missed)} of {len(defects)} defects found\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
