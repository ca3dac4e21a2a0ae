"""Helm charts as Helm itself renders, checks and installs them.

The package helm-python-sdk holds Helm's own code as a library. It has no wheel for some platforms, for which
the lock leaves it out: there the tests that need it are skipped.
"""

import importlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from adapter.config.rules_config import RuleConfig, RulesConfig
from tests.support import tools
from tests.support.rendered import MANIFESTS, Objects

CHART = MANIFESTS / "chart"
RELEASE = "fastpath"
NAMESPACE = "fastpath"

NOTES = "NOTES.txt"
_SEPARATOR = re.compile(r"^---\s*$", re.MULTILINE)


def require() -> Any:
    """Return the module helm_python; where it is not installed the test is skipped, and in CI it fails."""
    try:
        return importlib.import_module("helm_python")
    except ImportError:
        reason = "Helm is not installed: helm-python-sdk has no wheel for this platform"
        if tools.REQUIRED:
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)


def start_runtime() -> None:
    """Start Go's runtime, which keeps its poller open: before any guard notes the open files."""
    require().lint(CHART)


def read_values(text: str) -> dict[str, Any]:
    """Return the values of a YAML text as `helm --values` reads them."""
    found: dict[str, Any] = require().values_from_yaml(text)
    return found


def merge(values: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return both together; a section that both have is merged, as Helm does."""
    merged = dict(values)
    for key, value in more.items():
        below = merged.get(key)
        merged[key] = merge(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def render_files(
    values: Mapping[str, Any] | None = None,
    *,
    chart: Path = CHART,
    name: str = RELEASE,
    namespace: str = NAMESPACE,
) -> dict[str, str]:
    """Return the rendered templates by their path within the chart.

    Raises helm_python.HelmError where a value or a template is refused. It checks the values' schema as
    `helm template` does.
    """
    helm = require()
    with helm.Chart.load(chart) as loaded:
        loaded.validate_schema(dict(values or {}))
        files = loaded.render(dict(values or {}), name=name, namespace=namespace)
    return {path.partition("/")[2]: text for path, text in files.items()}


def render(
    values: Mapping[str, Any] | None = None,
    *,
    chart: Path = CHART,
    name: str = RELEASE,
    namespace: str = NAMESPACE,
) -> Objects:
    """Return the objects of the rendered templates, without those of `crds/`."""
    files = render_files(values, chart=chart, name=name, namespace=namespace)
    return Objects(
        document
        for path, text in sorted(files.items())
        if not path.endswith(NOTES)
        for document in read_documents(text)
    )


def read_documents(text: str) -> Iterator[dict[str, Any]]:
    """Read the documents of a rendered template with Kubernetes' YAML reader, which is Helm's too."""
    for part in _SEPARATOR.split(text):
        document = read_values(part)
        if document:
            yield document


def without_places(config: RulesConfig) -> RulesConfig:
    """Return rules that do not say where they come from, so that two files can be compared."""

    def plain(rules: tuple[RuleConfig, ...]) -> tuple[RuleConfig, ...]:
        return tuple(replace(rule, path="", source="", line=0) for rule in rules)

    resource = config.resource_rules
    return RulesConfig(
        plain(config.rules),
        plain(config.external_rules),
        replace(resource, path="", source="", line=0) if resource else None,
    )
