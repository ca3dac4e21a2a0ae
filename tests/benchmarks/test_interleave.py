"""`scripts/bench --interleave`: two revisions in turns."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import common, interleave

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


def _interleave(ref: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.suite", "--interleave", ref, *arguments]
    return subprocess.run(command, cwd=common.ROOT, capture_output=True, text=True, check=False)


@pytest.fixture
def _git() -> None:
    if common.git("rev-parse", "HEAD") is None:
        pytest.skip("this tree is no git repository")


@pytest.mark.usefixtures("_git")
def test_each_figure_has_both_medians_and_a_ratio() -> None:
    done = _interleave("HEAD", "--rounds", "1", "--tiny", "tick")

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("new: ")
    assert lines[0].endswith("; old: HEAD; 1 rounds in turns")
    assert lines[3].split() == ["figure", "old", "new", "new/old", "lowest", "highest"]
    (row,) = (line.split() for line in lines if line.startswith("  tick_steady_seconds "))
    assert len(row) == 6
    assert row[3] == row[4] == row[5]


@pytest.mark.usefixtures("_git")
def test_an_unknown_revision_is_refused() -> None:
    done = _interleave("no-such-revision", "tick")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "scripts/bench: no-such-revision: no such revision\n"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of two commits, "old" and "new", where each file says which it is of."""
    root = tmp_path / "tree"
    names = ("adapter/a.py", "benchmarks/b.py", "tests/support/s.py", "fastpath_sandbox/f.py")
    root.mkdir()
    monkeypatch.setattr(common, "ROOT", root)
    assert common.git("init", "-q") is not None
    for word in ("old", "new"):
        for name in names:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(word)
        (root / "requirements").mkdir(exist_ok=True)
        (root / interleave.LOCK).write_text("same")
        author = ("-c", "user.name=test", "-c", "user.email=test@localhost")
        assert common.git("add", ".") is not None
        assert common.git(*author, "commit", "-q", "-m", word) is not None
    return root


@pytest.mark.usefixtures("repository")
def test_the_old_program_has_the_benchmark_of_this_tree(tmp_path: Path) -> None:
    tree = interleave.check_out("HEAD~1", tmp_path / "there")

    words = {name: (tree.root / name).read_text() for name in ("adapter/a.py", "benchmarks/b.py")}
    assert words == {"adapter/a.py": "old", "benchmarks/b.py": "new"}
    assert (tree.root / "tests/support/s.py").read_text() == "new"
    assert tree.python == interleave.HERE.python


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    pairs = [
        ({"a": 1.0, "b": 0.0}, {"a": 2.0, "b": 1.0, "c": 1.0}),
        ({"a": 4.0, "b": 0.0}, {"a": 2.0, "b": 3.0, "c": 1.0}),
    ]
    pairs.append(({"a": 10.0, "b": 0.0}, {"a": 9.0, "b": 2.0, "c": 1.0}))

    assert interleave.compare(pairs) == [("a", "4", "2", "0.9", "0.5", "2"), ("b", "0", "2", "", "", "")]
