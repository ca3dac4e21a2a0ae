"""The chart and the kustomize manifests give the same objects, field by field, but for a list with reasons.

Both sides are compared as a whole: an object or a field that only one of them gains fails the test, and so
does a listed difference that no longer exists.
"""

import functools
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from adapter.config import rules_file
from adapter.config.rules_config import RulesConfig
from fastpath_tools import certs
from tests.chart import charts
from tests.support import rendered
from tests.support.rendered import JSON, MANIFESTS, Objects

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

CERTS = "certs"
"""Stands for the component that `fastpath certs` writes."""

CUSTOM_RULES = MANIFESTS / "base" / "custom.yaml"
EXTERNAL_RULES = MANIFESTS / "components" / "external" / "example-rules.yaml"
RESOURCE_RULES = MANIFESTS / "components" / "resource-rules" / "resource.yaml"


CASES: Mapping[str, JSON] = yaml.safe_load((Path(__file__).parent / "kustomize.yaml").read_text())


def _load(path: Path) -> JSON:
    found: JSON = yaml.safe_load(path.read_text())
    return found


def values_of(name: str) -> JSON:
    """Return the values of a case, with the rules that its components have."""
    components = CASES[name]["components"]
    rules = {"default": False, "custom": _load(CUSTOM_RULES)["rules"]}
    if "external" in components:
        rules["external"] = _load(EXTERNAL_RULES)["externalRules"]
    if "resource-rules" in components:
        rules["resource"] = _load(RESOURCE_RULES)["resourceRules"]
    return {"rules": rules, **CASES[name].get("values", {})}


class Difference(NamedTuple):
    """Fields of objects that differ: a pattern of `Kind/name field`, and the reason."""

    pattern: str
    reason: str


DIFFERENCES = (
    Difference(
        r"(Namespace|ResourceQuota)/\S+ only in kustomize",
        "Helm installs into a namespace that exists, or makes it with --create-namespace",
    ),
    Difference(
        r"\S+ (spec\.template\.)?metadata\.labels\.(helm\.sh/chart"
        r"|app\.kubernetes\.io/(managed-by|instance|version))",
        "the labels by which Helm's users find the objects of a release",
    ),
    Difference(
        r"ServiceMonitor/\S+-scaler spec\.selector\.matchLabels\.app\.kubernetes\.io/instance",
        "a namespace may have two releases, whose Services are told apart by it",
    ),
    Difference(
        r"CustomResourceDefinition/\S+ metadata\.annotations\.helm\.sh/resource-policy",
        "`helm uninstall` would delete all FastPathAutoscalers with the kind",
    ),
    Difference(
        r"Secret/\S+ metadata\.annotations\.fastpath\.io/generated-certificate",
        "tells the next `helm upgrade` that the pair is the chart's, to be kept",
    ),
    Difference(
        r"NetworkPolicy/\S+ spec\.podSelector.*",
        "the namespace of a release may have pods of others; that of kustomize has not",
    ),
)


def kustomize(components: Sequence[str], folder: Path) -> Objects:
    """Return what kubectl renders of base, these components and the example of external rules."""
    listed: list[str | Path] = []
    for name in components:
        if name == CERTS:
            assert certs.main(["--out-dir", str(folder / "certs")]) == 0
        listed.append(folder / "certs" if name == CERTS else name)
    fields: JSON = {}
    if "external" in components:
        (folder / "overlay").mkdir()
        (folder / "overlay" / "external.yaml").write_text(EXTERNAL_RULES.read_text())
        generator = {"name": "fastpath-rules", "namespace": "fastpath", "behavior": "merge"}
        fields["configMapGenerator"] = [{**generator, "files": ["external.yaml"]}]
    kinds = [MANIFESTS / "crd"] if any(name.startswith("scaler") for name in components) else []
    overlay = rendered.write_overlay(folder / "overlay", listed, kinds, **fields)
    return rendered.render(overlay)


def fields(objects: Objects) -> dict[str, dict[str, Any]]:
    """Return the leaves of each object by their path.

    Rules count as what they mean, since the files of kustomize become one. Keys and certificates, which each
    rendering makes, count as present.
    """
    found: dict[str, dict[str, Any]] = {}
    for document in objects.documents:
        metadata = document["metadata"]
        place = f"{metadata['namespace']}/" if "namespace" in metadata else ""
        name = f"{document['kind']}/{place}{metadata['name']}"
        assert name not in found, f"{name} is there twice"
        leaves = dict(_leaves(_comparable(document), ""))
        found[name] = {path: "PEM" if path in MADE else value for path, value in leaves.items()}
    return found


MADE = {"spec.caBundle", "data.ca.crt", "data.tls.crt", "data.tls.key"}


def _comparable(document: JSON) -> JSON:
    if document["kind"] == "ConfigMap" and document["metadata"]["name"] == "fastpath-rules":
        return document | {"data": {"rules": repr(meaning(document["data"]))}}
    return document


def meaning(data: Mapping[str, str]) -> RulesConfig:
    """Return the rules of a ConfigMap without the places where they stand."""
    ordered = {
        name: yaml.safe_dump(yaml.safe_load(text)) for name, text in data.items()
    }  # as Helm sorts keys
    parsed = [rules_file.parse_rules(text, name) for name, text in sorted(ordered.items())]
    assert [(each.faults, each.fatal) for each in parsed] == [((), ())] * len(parsed)
    config, doubled = rules_file.merge([each.config for each in parsed])
    assert not doubled
    return charts.without_places(config)


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{index}]")
    else:
        yield path, value


def compare(left: Objects, right: Objects) -> dict[str, tuple[Any, Any]]:
    """Return the differences as `Kind/name field`, each with both values."""
    ours, theirs = fields(left), fields(right)
    found: dict[str, tuple[Any, Any]] = {}
    for name in sorted(ours.keys() | theirs.keys()):
        if name not in ours or name not in theirs:
            found[f"{name} only in {'kustomize' if name in ours else 'the chart'}"] = (None, None)
            continue
        here, there = ours[name], theirs[name]
        for path in sorted(here.keys() | there.keys()):
            pair = here.get(path, "absent"), there.get(path, "absent")
            if pair[0] != pair[1] or type(pair[0]) is not type(pair[1]):
                found[f"{name} {path}"] = pair
    return found


@functools.cache
def differences_of(name: str) -> Mapping[str, tuple[Any, Any]]:
    """Return what differs in a case, found once."""
    with tempfile.TemporaryDirectory() as folder:
        return compare(kustomize(CASES[name]["components"], Path(folder)), charts.render(values_of(name)))


def reasons(place: str) -> list[Difference]:
    return [difference for difference in DIFFERENCES if re.fullmatch(difference.pattern, place)]


@pytest.mark.parametrize("name", CASES)
def test_the_chart_has_the_objects_of_kustomize(name: str) -> None:
    unexplained = {place: pair for place, pair in differences_of(name).items() if not reasons(place)}
    assert unexplained == dict.fromkeys(CASES[name].get("differences", ()), (None, None))


def test_every_listed_difference_is_one() -> None:
    named = {difference for name in CASES for place in differences_of(name) for difference in reasons(place)}
    assert named == set(DIFFERENCES)


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda objects: objects.documents.pop(), "only in kustomize"),
        (lambda objects: objects.container["args"].append("--x"), "containers[0].args["),
        (lambda objects: objects.one("Service")["spec"].pop("selector"), "spec.selector"),
        (lambda objects: objects.one("Deployment")["spec"].update(replicas="2"), "replicas"),
    ],
    ids=["an object less", "an argument more", "a field less", "another type"],
)
def test_a_difference_is_found(change: Any, wanted: str) -> None:
    values = values_of("base")
    changed = charts.render(values)
    change(changed)
    assert any(wanted in place for place in compare(charts.render(values), changed))
