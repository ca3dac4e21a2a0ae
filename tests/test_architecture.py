"""docs/architecture.md names functions that exist."""

import importlib
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parent.parent / "docs" / "architecture.md").read_text()
PATHS = PAGE.partition("## Paths through the code\n")[2].partition("\n## ")[0]
_SECTION = re.compile(r"^### (.*)\n((?:(?!### ).*\n)*)", re.MULTILINE)
_STEP = re.compile(r"^\d+\. .*(?:\n {3,}.*)*", re.MULTILINE)
_DOTTED = re.compile(r"`([a-z_]+(?:\.\w+)+)`")


def resolve(name: str) -> object:
    """Return the module, class or function of a dotted name relative to `adapter`."""
    parts = name.split(".")
    found: object = importlib.import_module("adapter")
    path = "adapter"
    for number, part in enumerate(parts):
        path = f"{path}.{part}"
        try:
            found = importlib.import_module(path)
        except ModuleNotFoundError as error:
            if error.name != path:
                raise
            for attribute in parts[number:]:
                found = getattr(found, attribute)
            return found
    return found


def steps() -> list[tuple[str, str]]:
    return [(section, step) for section, text in _SECTION.findall(PATHS) for step in _STEP.findall(text)]


def test_the_paths_are_those_of_a_request_a_tick_and_a_boosted_raise() -> None:
    sections = {section for section, _ in steps()}
    assert sections >= {"A cold request", "A warm request", "A tick", "A boosted raise"}


@pytest.mark.parametrize("step", [f"{section}: {step}" for section, step in steps()])
def test_each_step_names_functions_that_exist(step: str) -> None:
    names = _DOTTED.findall(step)
    assert names, "a step begins with the function that does it"
    for name in names:
        if name != "metrics.k8s.io":
            resolve(name)


@pytest.mark.parametrize(
    "name", ["server.http.handler.Handler.handel", "server.handler", "boost.floors.Floors"]
)
def test_a_wrong_name_is_found(name: str) -> None:
    with pytest.raises((AttributeError, ModuleNotFoundError)):
        resolve(name)
