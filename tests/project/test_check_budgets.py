"""scripts/check-budgets fails beyond a budget of lines or names, and for a class name in two modules."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_SETTINGS = """\
[tool.check-budgets.lines]
package = 5
[tool.check-budgets.names]
"functions ending in _of" = 0
"vague variables" = 1
"""


def check(folder: Path, *arguments: str, **modules: str) -> tuple[int, str, str]:
    """Return status and output of the check in a repository with a package of these modules."""
    (folder / "scripts").mkdir()
    (folder / "package").mkdir()
    shutil.copy(ROOT / "scripts" / "check-budgets", folder / "scripts")
    (folder / "pyproject.toml").write_text(_SETTINGS)
    for name, text in modules.items():
        (folder / "package" / f"{name}.py").write_text(text)
    done = subprocess.run(
        [sys.executable, str(folder / "scripts" / "check-budgets"), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_what_is_left_is_shown(tmp_path: Path) -> None:
    assert check(tmp_path, "--all", one="class Rule:\n\n    pass\n", two="found = 1\n") == (
        0,
        "lines of package: 3, 2 left\nfunctions ending in _of: 0, 0 left\nvague variables: 1, 0 left\n",
        "",
    )


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ({"one": "1\n" * 6}, "lines of package: 6, 1 more than the budget of 5"),
        ({"one": "def name_of(): ...\n"}, "functions ending in _of: 1, 1 more than the budget of 0"),
        ({"one": "found, said = 1, 2\n"}, "vague variables: 2, 1 more than the budget of 1"),
        (
            {"one": "class Rule: ...\n", "two": "class Rule: ...\n"},
            "class Rule is in several modules: package/one.py, package/two.py",
        ),
    ],
    ids=["lines", "of", "vague", "class"],
)
def test_what_is_beyond_a_budget_fails(tmp_path: Path, modules: dict[str, str], message: str) -> None:
    assert check(tmp_path, **modules) == (1, "", f"{message}\n")
