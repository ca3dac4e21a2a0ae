"""What the chart renders, as data: `chart/CASE/objects.yaml` and `notes.txt` of the case's `values.yaml`.

A case with `compatibility` is a release of prometheus-adapter's chart. Left out are generated certificates,
which differ each time, the names of slices, and what other tests compare with its source: schemas of kinds,
dashboards and alerts.
`refused.yaml` has values with which the chart ends, each with its error. `scripts/test tests/golden --update`
writes objects, notes and errors as they are now; the diff is what a change does to a release.
"""

import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.generate import chart_values
from tests.chart import charts
from tests.support.rendered import JSON
from tests.support.scripts import Recorded

FOLDER = Path(__file__).parent / "chart"
CASES = sorted(path.parent.name for path in FOLDER.glob("*/values.yaml"))
REFUSED = FOLDER / "refused.yaml"
NOTES = f"templates/{charts.NOTES}"
MOST_NAMES = 30
HELMS_OWN = {("global",), ("enabled",)}
MADE = re.compile(r"LS0t\S*|-----BEGIN CERTIFICATE-----[^-]*")

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]


class Dumper(yaml.CSafeDumper):
    """Writes texts of several lines as they are."""


def _represent_text(dumper: Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


Dumper.add_representer(str, _represent_text)


@pytest.fixture(scope="session", autouse=True)
def _helm() -> None:
    charts.start_runtime()


@functools.cache
def values_of(case: str) -> JSON:
    values: JSON = yaml.safe_load((FOLDER / case / "values.yaml").read_text())
    return values


def shortened(value: Any, key: str = "") -> Any:
    """Return an object or a part of it without what is left out."""
    if isinstance(value, Mapping):
        if value.get("kind") in ("CustomResourceDefinition", "PrometheusRule"):
            value = {**value, "spec": "..."}
        return {name: shortened(each, name) for name, each in value.items()}
    if isinstance(value, list) and len(value) > MOST_NAMES:
        return [value[0], f"... {len(value) - 2} more", value[-1]]
    if isinstance(value, list):
        return [shortened(each) for each in value]
    made = isinstance(value, str) and value.startswith(("LS0t", "-----BEGIN"))
    return "..." if made or key.endswith(".json") else value


def render(values: JSON) -> dict[str, str]:
    if values.get("compatibility"):
        return charts.render_files(values, name="prometheus-adapter", namespace="monitoring")
    return charts.render_files(values)


@functools.cache
def rendered(case: str) -> dict[str, str]:
    return render(values_of(case))


@pytest.mark.parametrize("case", CASES)
def test_rendering(case: str, recorded: Recorded) -> None:
    files = rendered(case)
    documents = (
        each for path, text in sorted(files.items()) if path != NOTES for each in charts.read_documents(text)
    )
    objects = yaml.dump_all(map(shortened, documents), Dumper=Dumper, width=1_000)
    recorded(FOLDER / case / "notes.txt", files[NOTES].strip() + "\n")
    recorded(FOLDER / case / "objects.yaml", objects)


def test_values_that_cannot_be_right_are_refused_by_name(recorded: Recorded) -> None:
    cases = yaml.safe_load(REFUSED.read_text())
    errors = {}
    for name, case in cases.items():
        with pytest.raises(charts.require().HelmError) as raised:
            charts.render_files(case["values"])
        errors[name] = str(raised.value)
    refused = {name: {**case, "error": errors[name]} for name, case in cases.items()}
    recorded(REFUSED, yaml.dump(refused, Dumper=Dumper, sort_keys=False, width=1_000))


def without(values: JSON, path: tuple[str, ...]) -> JSON:
    """Return values without one, the same if they do not have it."""
    key, *below = path
    if key not in values:
        return values
    rest = {name: value for name, value in values.items() if name != key}
    return {**rest, key: without(values[key] or {}, tuple(below))} if below else rest


def unmade(files: Mapping[str, str]) -> dict[str, str]:
    """Return rendered templates without certificates that each rendering makes."""
    return {path: MADE.sub("", text) for path, text in files.items()}


def matters(case: str, path: tuple[str, ...]) -> bool:
    """Return whether a case is rendered otherwise, or refused, without a value."""
    rest = without(values_of(case), path)
    if rest == values_of(case):
        return False
    try:
        return unmade(rendered(case)) != unmade(render(rest))
    except charts.require().HelmError:
        return True


@pytest.mark.parametrize(
    "path", [path for path, _ in chart_values.leaves() if path not in HELMS_OWN], ids=".".join
)
def test_each_value_that_the_schema_has_changes_what_some_case_renders(path: tuple[str, ...]) -> None:
    assert any(matters(case, path) for case in CASES)
