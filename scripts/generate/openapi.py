"""The OpenAPI document in adapter/server/api/openapi.json.

``python -m scripts.generate.openapi`` writes the file.

Both versions of OpenAPI come from the same tables. Only kinds of our own groups have names. The schemas that
they share with other kinds stand in place, since kube-aggregator renames a name that another server gives
another meaning.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from adapter.server.api.paths import CUSTOM_GROUP, EXTERNAL_GROUP, PREVIEW_VERSIONS, RESOURCE_GROUP

JSON = dict[str, object]

PATH = Path(__file__).parent.parent.parent / "adapter" / "server" / "api" / "openapi.json"
_PREFIX = "io.k8s.metrics.pkg.apis"
_PACKAGES = {CUSTOM_GROUP: "custom_metrics", EXTERNAL_GROUP: "external_metrics", RESOURCE_GROUP: "metrics"}


class Operation(NamedTuple):
    """A GET: the path below the group-version, the kind it answers with, and its query parameters.

    `action` is what it counts as in authorization: ``get`` or ``list``.
    """

    path: str
    action: str
    kind: str
    parameters: tuple[str, ...] = ()


class Group(NamedTuple):
    """The operations of a group, and the kinds of its answers by version."""

    operations: tuple[Operation, ...]
    kinds: Callable[[str], Mapping[str, JSON]]


# What the kinds are made of.

_TEXT: JSON = {"type": "string"}
_MAP: JSON = {"type": "object", "additionalProperties": _TEXT}
_TIME: JSON = {"type": "string", "format": "date-time"}
_QUANTITY: JSON = {"type": "string", "description": "A Kubernetes quantity, such as 1500m or 100Mi."}
_LIST_META: JSON = {"type": "object", "description": "Empty."}
_OBJECT_META: JSON = {
    "type": "object",
    "properties": {"name": _TEXT, "namespace": _TEXT, "creationTimestamp": _TIME, "labels": _MAP},
}
_SELECTOR: JSON = {
    "type": "object",
    "description": "The metric selector of the request.",
    "properties": {
        "matchLabels": _MAP,
        "matchExpressions": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["key", "operator"],
                "properties": {"key": _TEXT, "operator": _TEXT, "values": {"type": "array", "items": _TEXT}},
            },
        },
    },
}
_DESCRIBED: JSON = {
    "type": "object",
    "description": "The object that the value describes.",
    "properties": {"kind": _TEXT, "namespace": _TEXT, "name": _TEXT, "apiVersion": _TEXT},
}
_SAMPLED: JSON = _TIME | {"description": "The time of the sample."}
_USAGE: JSON = {
    "type": "object",
    "description": "What is used of cpu and memory.",
    "additionalProperties": _QUANTITY,
}
_WINDOW: JSON = {"type": "string", "description": "The time that a sample covers, as a Go duration."}

_PARAMETERS: Mapping[str, str] = MappingProxyType(
    {
        "namespace": "the namespace of the described objects, or of the caller",
        "resource": "plural name of what is described, with its group unless that is core",
        "name": "name of an object; * stands for all that match where a metric follows",
        "metric": "name of the metric",
        "labelSelector": "which objects, or of an external metric which series, by their labels",
        "metricLabelSelector": "which series of the metric, by their labels",
        "fieldSelector": "which objects, by metadata.name and metadata.namespace",
        "pretty": "if true, the answer is indented",
    }
)


def _object(description: str, required: Iterable[str], properties: Mapping[str, object]) -> JSON:
    return {
        "type": "object",
        "description": description,
        "required": list(required),
        "properties": dict(properties),
    }


def _listing(kind: str, package: str) -> JSON:
    """Return a list kind whose items are `kind`."""
    items = {"type": "array", "items": {"$ref": f"{package}.{kind}"}}
    properties = {"apiVersion": _TEXT, "kind": _TEXT, "metadata": _LIST_META, "items": items}
    return _object(f"A list of {kind}.", ["metadata", "items"], properties)


def _custom_kinds(version: str) -> Mapping[str, JSON]:
    package = _package(CUSTOM_GROUP, version)
    sampled: JSON = {"timestamp": _SAMPLED, "value": _QUANTITY}
    described = {"describedObject": _DESCRIBED}
    if version == "v1beta1":
        own: JSON = {**described, "metricName": _TEXT, "window": {"type": "integer"}, "selector": _SELECTOR}
        required = ["describedObject", "metricName", "timestamp", "value"]
    else:
        metric = _object(
            "A metric and which of its series.", ["name"], {"name": _TEXT, "selector": _SELECTOR}
        )
        own = {**described, "metric": metric, "windowSeconds": {"type": "integer"}}
        required = ["describedObject", "metric", "timestamp", "value"]
    return {
        "MetricValue": _object("A value that describes an object.", required, {**own, **sampled}),
        "MetricValueList": _listing("MetricValue", package),
    }


def _external_kinds(version: str) -> Mapping[str, JSON]:
    properties: JSON = {
        "metricName": _TEXT,
        "metricLabels": _MAP,
        "timestamp": _SAMPLED,
        "window": {"type": "integer"},
        "value": _QUANTITY,
    }
    required = ["metricName", "metricLabels", "timestamp", "value"]
    return {
        "ExternalMetricValue": _object("A value that describes no object.", required, properties),
        "ExternalMetricValueList": _listing("ExternalMetricValue", _package(EXTERNAL_GROUP, version)),
    }


def _resource_kinds(version: str) -> Mapping[str, JSON]:
    package = _package(RESOURCE_GROUP, version)
    common: JSON = {
        "apiVersion": _TEXT,
        "kind": _TEXT,
        "metadata": _OBJECT_META,
        "timestamp": _SAMPLED,
        "window": _WINDOW,
    }
    containers = {"type": "array", "items": {"$ref": f"{package}.ContainerMetrics"}}
    required = ["timestamp", "window"]
    return {
        "ContainerMetrics": _object(
            "The usage of a container.", ["name", "usage"], {"name": _TEXT, "usage": _USAGE}
        ),
        "PodMetrics": _object(
            "The usage of a pod.", [*required, "containers"], {**common, "containers": containers}
        ),
        "PodMetricsList": _listing("PodMetrics", package),
        "NodeMetrics": _object("The usage of a node.", [*required, "usage"], {**common, "usage": _USAGE}),
        "NodeMetricsList": _listing("NodeMetrics", package),
    }


_BY_LABELS = ("labelSelector", "metricLabelSelector")
_SELECTED = ("labelSelector", "fieldSelector")

GROUPS: Mapping[str, Group] = MappingProxyType(
    {
        CUSTOM_GROUP: Group(
            (
                Operation(
                    "namespaces/{namespace}/{resource}/{name}/{metric}", "get", "MetricValueList", _BY_LABELS
                ),
                Operation("namespaces/{name}/metrics/{metric}", "get", "MetricValueList", _BY_LABELS),
                Operation("{resource}/{name}/{metric}", "get", "MetricValueList", _BY_LABELS),
            ),
            _custom_kinds,
        ),
        EXTERNAL_GROUP: Group(
            (
                Operation(
                    "namespaces/{namespace}/{metric}", "list", "ExternalMetricValueList", ("labelSelector",)
                ),
            ),
            _external_kinds,
        ),
        RESOURCE_GROUP: Group(
            (
                Operation("nodes", "list", "NodeMetricsList", _SELECTED),
                Operation("nodes/{name}", "get", "NodeMetrics"),
                Operation("pods", "list", "PodMetricsList", _SELECTED),
                Operation("namespaces/{namespace}/pods", "list", "PodMetricsList", _SELECTED),
                Operation("namespaces/{namespace}/pods/{name}", "get", "PodMetrics"),
            ),
            _resource_kinds,
        ),
    }
)


def build() -> JSON:
    """Return the whole document: by version of OpenAPI, then by group and version, paths and schemas."""
    served = [(group, version) for group, versions in PREVIEW_VERSIONS.items() for version in versions]
    return {
        openapi: {f"{group}/{version}": _build(openapi, group, version) for group, version in served}
        for openapi in ("v2", "v3")
    }


def text() -> str:
    """Return the text of the file."""
    return json.dumps(build(), indent=1) + "\n"


_SCHEMAS = {"v2": "definitions", "v3": "schemas"}
_REFERENCES = {"v2": "#/definitions/", "v3": "#/components/schemas/"}


def _build(openapi: str, group: str, version: str) -> JSON:
    return {
        "paths": {
            f"/apis/{group}/{version}/{operation.path}": _item(openapi, group, version, operation)
            for operation in GROUPS[group].operations
        },
        _SCHEMAS[openapi]: _definitions(group, version, _REFERENCES[openapi]),
    }


def _package(group: str, api_version: str) -> str:
    return f"{_PREFIX}.{_PACKAGES[group]}.{api_version}"


def _definitions(group: str, api_version: str, prefix: str) -> JSON:
    """Return the kinds of a group-version by their full names, with references that begin with `prefix`."""
    package = _package(group, api_version)
    made: JSON = {}
    for kind, schema in GROUPS[group].kinds(api_version).items():
        full = _referring(schema, prefix)
        assert isinstance(full, dict)
        if "apiVersion" in full["properties"]:
            full["x-kubernetes-group-version-kind"] = [{"group": group, "version": api_version, "kind": kind}]
        made[f"{package}.{kind}"] = full
    return made


def _referring(node: object, prefix: str) -> object:
    """Return a copy of a schema with whole references."""
    if isinstance(node, dict):
        return {
            key: f"{prefix}{value}" if key == "$ref" else _referring(value, prefix)
            for key, value in node.items()
        }
    return [_referring(value, prefix) for value in node] if isinstance(node, list) else node


def _item(openapi: str, group: str, api_version: str, operation: Operation) -> JSON:
    def parameter(name: str, place: str) -> JSON:
        kind: JSON = {"type": "string", "uniqueItems": True}
        needed: JSON = {"required": True} if place == "path" else {}
        typed: JSON = kind if openapi == "v2" else {"schema": kind}
        return {"name": name, "in": place, "description": _PARAMETERS[name], **needed, **typed}

    schema: JSON = {
        "schema": {"$ref": f"{_REFERENCES[openapi]}{_package(group, api_version)}.{operation.kind}"}
    }
    get = _common(group, api_version, operation)
    if openapi == "v2":
        get |= {"produces": ["application/json"], "schemes": ["https"]}
    else:
        schema = {"content": {"application/json": schema}}
    get |= {
        "parameters": [parameter(name, "query") for name in (*operation.parameters, "pretty")],
        "responses": {"200": {"description": "OK"} | schema, "401": {"description": "Unauthorized"}},
    }
    within = [part.strip("{}") for part in operation.path.split("/") if part.startswith("{")]
    return {"get": get, "parameters": [parameter(name, "path") for name in within]}


def _common(group: str, api_version: str, operation: Operation) -> JSON:
    """Return what both versions say of an operation alike. The id is unique in the cluster."""
    words = [_PACKAGES[group], api_version, *operation.path.replace("{", "").replace("}", "").split("/")]
    identifier = operation.action + "".join(part.capitalize() for word in words for part in word.split("_"))
    kind = operation.kind.removesuffix("List") if group == RESOURCE_GROUP else operation.kind
    return {
        "description": f"{operation.action} {kind}",
        "operationId": identifier,
        "tags": [f"{_PACKAGES[group]}_{api_version}"],
        "x-kubernetes-action": operation.action,
        "x-kubernetes-group-version-kind": {"group": group, "version": api_version, "kind": kind},
    }


if __name__ == "__main__":
    PATH.write_text(text())
