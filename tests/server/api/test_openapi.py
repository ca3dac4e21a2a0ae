"""The specifications: whole, consistent, and true to the answers that are served."""

import json
import re
from typing import Any

import pytest

from adapter.model import metrics
from adapter.model.objects import field_selectors
from adapter.model.objects.label_selectors import EVERYTHING, parse_selector
from adapter.server.api import documents, encoding
from adapter.server.api import paths as api
from adapter.server.api.paths import CUSTOM_GROUP, EXTERNAL_GROUP, PREVIEW_VERSIONS, RESOURCE_GROUP, VERSIONS
from scripts.generate import openapi as specification

GROUP_VERSIONS = [(group, version) for group, versions in PREVIEW_VERSIONS.items() for version in versions]


def plain(document: object) -> Any:
    """Return a document as a client reads it."""
    return json.loads(json.dumps(document))


def test_the_shipped_file_is_as_generated() -> None:
    assert specification.PATH.read_text() == specification.text(), (
        "python -m scripts.generate.openapi writes it"
    )


def v2() -> Any:
    return plain(documents.build_v2(PREVIEW_VERSIONS, "1.2.3"))


def references(node: Any) -> list[str]:
    if isinstance(node, dict):
        own = [node["$ref"]] if "$ref" in node else []
        return own + [found for value in node.values() for found in references(value)]
    return [found for value in node for found in references(value)] if isinstance(node, list) else []


def check_paths(paths: Any, groups: set[str]) -> None:
    for path, item in paths.items():
        assert path.split("/")[2] in groups
        assert item.keys() == {"get", "parameters"}, "nothing but GET exists"
        placed = {each["name"] for each in item["parameters"]}
        assert placed == set(re.findall(r"{(\w+)}", path))
        assert all(each["in"] == "path" and each["required"] for each in item["parameters"])
        assert all(each["in"] == "query" for each in item["get"]["parameters"])


def test_v2() -> None:
    document = v2()
    assert document["swagger"] == "2.0"
    check_paths(document["paths"], set(VERSIONS))
    defined = {f"#/definitions/{name}" for name in document["definitions"]}
    assert set(references(document)) <= defined
    identifiers = [item["get"]["operationId"] for item in document["paths"].values()]
    assert len(identifiers) == len(set(identifiers))


@pytest.mark.parametrize(("group", "version"), GROUP_VERSIONS)
def test_v3(group: str, version: str) -> None:
    document = plain(documents.build_v3(group, version, "1.2.3"))
    assert document["openapi"].startswith("3.0")
    check_paths(document["paths"], {group})
    assert all(path.startswith(f"/apis/{group}/{version}/") for path in document["paths"])
    defined = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(references(document)) <= defined


def test_both_versions_say_the_same() -> None:
    whole = v2()
    for group, version in GROUP_VERSIONS:
        part = plain(documents.build_v3(group, version, "1.2.3"))
        for path, item in part["paths"].items():
            for key in ("operationId", "x-kubernetes-action", "x-kubernetes-group-version-kind"):
                assert item["get"][key] == whole["paths"][path]["get"][key]
        as_v2 = json.loads(
            json.dumps(part["components"]["schemas"]).replace("#/components/schemas/", "#/definitions/")
        )
        assert as_v2.items() <= whole["definitions"].items()


def test_only_what_is_served() -> None:
    document = plain(documents.build_v2({EXTERNAL_GROUP: VERSIONS[EXTERNAL_GROUP]}, "1.2.3"))
    check_paths(document["paths"], {EXTERNAL_GROUP})
    assert len(document["definitions"]) == 2


EXAMPLES = {
    CUSTOM_GROUP: {
        "namespaces/{namespace}/{resource}/{name}/{metric}": "namespaces/shop/pods/a/hits",
        "namespaces/{name}/metrics/{metric}": "namespaces/shop/metrics/hits",
        "{resource}/{name}/{metric}": "nodes/a/hits",
    },
    EXTERNAL_GROUP: {"namespaces/{namespace}/{metric}": "namespaces/shop/queue"},
    RESOURCE_GROUP: {
        "nodes": "nodes",
        "nodes/{name}": "nodes/a",
        "pods": "pods",
        "namespaces/{namespace}/pods": "namespaces/shop/pods",
        "namespaces/{namespace}/pods/{name}": "namespaces/shop/pods/a",
    },
}


@pytest.mark.parametrize("group", VERSIONS)
def test_every_path_is_one_that_the_server_reads(group: str) -> None:
    """And its parameters are the parts that the server makes of it."""
    operations = specification.GROUPS[group].operations
    assert EXAMPLES[group].keys() == {each.path for each in operations}
    for each in operations:
        path = api.parse_metric_path(group, VERSIONS[group][0], EXAMPLES[group][each.path].split("/"))
        assert (path.name is None and group != CUSTOM_GROUP) is (each.action == "list")


def conforms(value: Any, schema: Any, definitions: Any) -> None:
    """Check a value against the few words of the schema language that are used."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    if schema["type"] == "array":
        for each in value:
            conforms(each, schema["items"], definitions)
    elif schema["type"] == "object":
        assert set(schema.get("required", ())) <= value.keys()
        for key, each in value.items():
            if "properties" not in schema:
                conforms(each, schema.get("additionalProperties", {"type": "string"}), definitions)
            elif each is not None:
                conforms(each, schema["properties"][key], definitions)
    else:
        assert isinstance(value, str)


USAGE = metrics.Usage(1500, 2_048_000)
POD = metrics.ObjectUsage("shop", "a", {"app": "web"}, 0.0, USAGE, (metrics.ContainerUsage("main", USAGE),))
NODE = metrics.ObjectUsage("", "n", {}, 0.0, USAGE)


def _custom(version: str) -> bytes:
    value = metrics.MetricValue(metrics.ObjectReference("Pod", "shop", "a", "/v1"), "hits", 1000, 0.0)
    question = metrics.CustomQuestion(
        "pods", "shop", None, "hits", EVERYTHING, parse_selector("a=b,c in (d)")
    )
    return b"".join(encoding.encode_custom(version, question, metrics.CustomAnswer((value,), 0.0)))


def _resource(kind: Any, name: str | None) -> bytes:
    question = metrics.ResourceQuestion(kind, None, name, EVERYTHING, field_selectors.EVERYTHING)
    answer = metrics.ResourceAnswer((POD if kind == "pods" else NODE,), 60.0, 0.0, 0.0)
    return b"".join(encoding.encode_resource("v1beta1", question, answer, None))


ANSWERS = {
    "custom v1beta1": ("custom_metrics.v1beta1.MetricValueList", _custom("v1beta1")),
    "custom v1beta2": ("custom_metrics.v1beta2.MetricValueList", _custom("v1beta2")),
    "custom v1": ("custom_metrics.v1.MetricValueList", _custom("v1")),
    "external": (
        "external_metrics.v1beta1.ExternalMetricValueList",
        b"".join(
            encoding.encode_external(
                "v1beta1",
                metrics.ExternalAnswer((metrics.ExternalValue("queue", {"a": "b"}, 1000, 0.0),), 0.0),
            )
        ),
    ),
    "pods": ("metrics.v1beta1.PodMetricsList", _resource("pods", None)),
    "pod": ("metrics.v1beta1.PodMetrics", _resource("pods", "a")),
    "nodes": ("metrics.v1beta1.NodeMetricsList", _resource("nodes", None)),
    "node": ("metrics.v1beta1.NodeMetrics", _resource("nodes", "n")),
}


@pytest.mark.parametrize(("kind", "body"), ANSWERS.values(), ids=ANSWERS)
def test_answers_are_what_the_specification_says(kind: str, body: bytes) -> None:
    definitions = v2()["definitions"]
    schema = definitions[f"io.k8s.metrics.pkg.apis.{kind}"]
    value = json.loads(body)
    [about] = schema["x-kubernetes-group-version-kind"]
    assert (value["kind"], value["apiVersion"]) == (about["kind"], f"{about['group']}/{about['version']}")
    conforms(value, schema, definitions)
