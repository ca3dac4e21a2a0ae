"""docs/contributing/paths.md, other pages and docstrings name modules and functions that exist."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATHS = (ROOT / "docs" / "contributing" / "paths.md").read_text()
PACKAGES = ("adapter", "fastpath_forecast", "fastpath_tools", "fastpath_sandbox")

_SECTION = re.compile(r"^## (.*)\n((?:(?!## ).*\n)*)", re.MULTILINE)
_STEP = re.compile(r"^\d+\. .*(?:\n {3,}.*)*", re.MULTILINE)
_DOTTED = re.compile(r"(?<!`)`(?:adapter\.)?([a-z_]+(?:\.\w+)*\.(?!py`)\w+)`(?!`)")
_FILE = re.compile(
    r"(?<![\w/.-])(?:adapter|fastpath_forecast|fastpath_tools|fastpath_sandbox|benchmarks|tests)/[\w/]+\.py\b"
)
_KEYS = frozenset({"metrics.k8s.io", "rules.default", "resources.template", "resources.overrides"})
"""API groups and keys of rules files and of the chart that look like names of modules."""


def resolve(name: str) -> object:
    """Return the module, class or function of a dotted name, which may leave out `adapter`."""
    parts = name.split(".")
    if parts[0] not in PACKAGES:
        parts.insert(0, "adapter")
    found: object = None
    path = ""
    for number, part in enumerate(parts):
        path = f"{path}.{part}".lstrip(".")
        try:
            found = importlib.import_module(path)
        except ModuleNotFoundError as error:
            if error.name != path:
                raise
            for attribute in parts[number:]:
                found = getattr(found, attribute)
            return found
    return found


def modules() -> list[Path]:
    return [module for package in PACKAGES for module in (ROOT / package).rglob("*.py")]


def exists(name: str) -> bool:
    try:
        resolve(name)
    except (AttributeError, ModuleNotFoundError):
        return False
    return True


def unknown_names(text: str, package: str = "") -> list[str]:
    """Return the names in backticks that begin with a package or module and lead nowhere.

    A name counts from `adapter`, from `package` or from one of the packages around it.
    """
    parts = package.split(".") if package else []
    bases = [".".join([*parts[:number], ""]) for number in range(1, len(parts) + 1)]
    unknown = []
    for name in _DOTTED.findall(text):
        first = name.partition(".")[0]
        places = [base for base in ("", *bases) if _is_module(f"{base}{first}")]
        if name not in _KEYS and places and not any(exists(f"{place}{name}") for place in places):
            unknown.append(name)
    return unknown


def _is_module(name: str) -> bool:
    paths = [folder / name.replace(".", "/") for folder in (ROOT, ROOT / "adapter")]
    return any((path / "__init__.py").exists() or path.with_suffix(".py").exists() for path in paths)


def steps() -> list[str]:
    return [f"{section}: {step}" for section, text in _SECTION.findall(PATHS) for step in _STEP.findall(text)]


def test_the_paths_are_those_of_a_request_a_tick_and_a_boosted_raise() -> None:
    sections = {step.partition(":")[0] for step in steps()}
    assert sections >= {"A cold request", "A warm request", "A tick", "A boosted raise"}


@pytest.mark.parametrize("step", steps())
def test_each_step_names_functions_that_exist(step: str) -> None:
    names = _DOTTED.findall(step)
    assert names, "a step names the function that does it"
    assert [name for name in names if not exists(name)] == []


@pytest.mark.parametrize("name", ["server.http.handler.Handler.answered", "server.handler", "floors.Floors"])
def test_a_wrong_name_is_found(name: str) -> None:
    assert not exists(name)


def test_pages_name_modules_that_exist() -> None:
    """Those about the code; the others name keys of files, which look alike."""
    pages = [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "architecture.md"]
    pages += [*ROOT.glob("docs/contributing/*.md"), *ROOT.glob("docs/decisions/*.md")]
    unknown = {page.name: unknown_names(page.read_text()) for page in pages}
    assert {page: names for page, names in unknown.items() if names} == {}


def test_docstrings_and_comments_name_modules_that_exist() -> None:
    unknown = {}
    for module in modules():
        package = ".".join(module.relative_to(ROOT).parts[:-1])
        unknown[str(module)] = unknown_names(module.read_text(), package)
    assert {module: names for module, names in unknown.items() if names} == {}


def test_a_name_that_leads_nowhere_is_found() -> None:
    assert unknown_names("`http.handle` and `api.paths`", "server.auth") == ["http.handle"]
    assert unknown_names("`adapter.rules.sketch`, `spec.mode`") == ["rules.sketch"]


def test_pages_and_code_name_files_that_exist() -> None:
    places = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "pyproject.toml"]
    places += [*modules(), *ROOT.glob("benchmarks/*.py"), *ROOT.glob("tests/support/*.py")]
    named = {name for place in places for name in _FILE.findall(place.read_text())}
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []
