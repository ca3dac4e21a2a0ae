"""scripts/check-budgets fails beyond a budget of lines or names, and for a class name in two modules."""

import shutil
import sys
from pathlib import Path

import pytest

from tests.support import tools
from tests.support.answers import answers

ROOT = Path(__file__).parents[2]
_SETTINGS = """\
[tool.check-budgets.lines]
package = 5
[tool.check-budgets.names]
"functions ending in _of" = 0
"vague variables" = 1
[tool.check-budgets.fields]
any = 1
time_zone = 2
"""
_SPEC = "class FastPathAutoscalerSpec:\n    mode: str\n    time_zone: str\n"


def check(folder: Path, *arguments: str, **modules: str) -> tuple[int, str, str]:
    """Return status and output of the check in a repository with a package of these modules.

    A module `test_...` is in `tests`.
    """
    for name in ("scripts", "package", "tests"):
        (folder / name).mkdir()
    shutil.copy(ROOT / "scripts" / "check-budgets", folder / "scripts")
    (folder / "pyproject.toml").write_text(_SETTINGS)
    for name, text in modules.items():
        place = "tests" if name.startswith("test_") else "package"
        (folder / place / f"{name}.py").write_text(text)
    done = tools.call(sys.executable, folder / "scripts" / "check-budgets", *arguments)
    return done.returncode, done.stdout, done.stderr


def test_what_is_left_is_shown(tmp_path: Path) -> None:
    assert check(tmp_path, "--all", one="class Rule:\n\n    pass\n", two="found = 1\n") == (
        0,
        "lines of package: 4, 1 left\nfunctions ending in _of: 0, 0 left\nvague variables: 1, 0 left\n",
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
        (
            {"test_one": "class Bench: ...\n", "test_two": "def test() -> None:\n    class Bench: ...\n"},
            "class Bench is in several modules: tests/test_one.py, tests/test_two.py",
        ),
    ],
    ids=["lines", "of", "vague", "class", "class of tests"],
)
def test_what_is_beyond_a_budget_fails(tmp_path: Path, modules: dict[str, str], message: str) -> None:
    assert check(tmp_path, **modules) == (1, "", f"{message}\n")


@pytest.mark.parametrize("reader", answers("project/check_budgets", "a_field_that_many_modules_name_fails"))
def test_a_field_that_many_modules_name_fails(tmp_path: Path, reader: str) -> None:
    line = "modules that name spec.mode (package/one.py, package/two.py): 2, 1 more than the budget of 1\n"
    assert check(tmp_path, one=_SPEC, two=reader) == (1, "", line)


@pytest.mark.parametrize("other", answers("project/check_budgets", "what_names_no_field_too_often"))
def test_what_names_no_field_too_often(tmp_path: Path, other: str) -> None:
    assert check(tmp_path, one=_SPEC, two=other) == (0, "", "")
