"""The Headlamp plugin agrees with the code that it reads from. `scripts/plugin` runs its own tests."""

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from adapter.model.autoscaling import slices
from fastpath_tools import explain
from fastpath_tools.live import cluster_options
from scripts.generate import plugin_types

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "headlamp-plugin"


def _read(path: str) -> Any:
    return json.loads((PLUGIN / path).read_text())


def _source(name: str) -> str:
    return (PLUGIN / "src" / name).read_text()


def test_the_types_are_those_of_the_document() -> None:
    assert plugin_types.FILE.read_text() == plugin_types.render(), "python -m scripts.generate.plugin_types"


def test_a_namespace_has_the_same_slice() -> None:
    vectors = _read("src/slices.vectors.json")
    assert len(vectors) >= 8
    assert vectors == {namespace: slices.slice_of(namespace) for namespace in vectors}


def test_the_scaler_is_where_explain_looks_for_it() -> None:
    defaults = {field.name: field.default for field in fields(explain.ExplainOptions)}
    (place,) = re.findall(r"PLACE: Place = \{ namespace: '(.*)', leases: '(.*)' \}", _source("reading.ts"))
    assert place == (defaults["namespace"], defaults["lease_name"])
    assert f"export const PORT = {cluster_options.PORT};" in _source("exchange.ts")


def test_the_packages_are_pinned_and_few_are_named() -> None:
    package, lock = _read("package.json"), _read("package-lock.json")
    assert package.keys().isdisjoint({"dependencies", "optionalDependencies", "peerDependencies"})
    assert list(package["devDependencies"]) == ["@kinvolk/headlamp-plugin"]
    assert all(version[0].isdigit() for version in package["devDependencies"].values())
    root = lock["packages"].pop("")
    assert root["version"] == package["version"]
    assert root["devDependencies"] == package["devDependencies"]
    unpinned = [name for name, one in lock["packages"].items() if not one["integrity"].startswith("sha512-")]
    assert len(lock["packages"]) > 100
    assert unpinned == []


def test_no_package_runs_a_script_when_it_is_installed() -> None:
    assert "ignore-scripts=true" in (PLUGIN / ".npmrc").read_text().splitlines()
    script = (ROOT / "scripts" / "plugin").read_text()
    assert re.findall(r"^ *npm (?:ci|install).*", script, re.MULTILINE) == [
        "npm ci --ignore-scripts --no-audit --no-fund"
    ]


def test_each_change_builds_it_and_a_release_publishes_it() -> None:
    check, release = (
        yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())
        for name in ("check", "release")
    )
    assert [step["run"] for step in check["jobs"]["plugin"]["steps"] if "run" in step] == ["scripts/plugin"]
    job = release["jobs"]["plugin"]
    assert [step["run"] for step in job["steps"] if "run" in step] == ["scripts/plugin dist"]
    (upload,) = (step["with"] for step in job["steps"] if "upload-artifact" in step.get("uses", ""))
    assert upload["path"] == "dist"
    assert "plugin" in release["jobs"]["release"]["needs"]
