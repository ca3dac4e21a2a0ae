"""The scale subresource, and the owner of the replicas in ``metadata.managedFields``.

A Scale carries the version of its object, so a client that holds the object can write its Scale without
another read. Only the replicas have an owner here. The real API server tracks one for each field.
"""

from typing import Any, NamedTuple

from fastpath_sandbox.apiserver import status
from fastpath_sandbox.apiserver.kinds import Kind, ScalePaths
from fastpath_sandbox.apiserver.store import JSON, Record, clone

_SIGNS = {"In": "in", "NotIn": "notin"}


class WriteOptions(NamedTuple):
    """The field manager of a write, its operation (``Update`` or ``Apply``) and its subresource.

    A `dry_run` is checked and answered, but stores nothing.
    """

    manager: str = "sandbox"
    operation: str = "Update"
    subresource: str = ""
    dry_run: bool = False


SANDBOX = WriteOptions()
"""The default for writes from Python."""


def build_scale(kind: Kind, record: Record) -> JSON:
    """Return the Scale of an object; as upstream, spec omits 0 replicas."""
    document = record.document
    metadata = document["metadata"]
    paths = kind.scale or ScalePaths()
    replicas = _find(document, paths.spec_replicas)
    if replicas is None and kind.custom:
        raise status.StatusFailure(
            500,
            "InternalError",
            f'Internal error occurred: the spec replicas field "{paths.spec_replicas}" does not exist',
        )
    state: JSON = {"replicas": _find(document, paths.status_replicas) or 0}
    selector = _find(document, paths.selector) if paths.selector else _selector_text(kind, document)
    if selector:
        state["selector"] = selector
    fields = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {field: metadata[field] for field in fields if field in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": state,
    }


def rescaled(kind: Kind, record: Record, scale: JSON) -> JSON:
    """Return the object with the replicas of a Scale. A resourceVersion in the Scale must be current."""
    metadata = scale.get("metadata") or {}
    if metadata.get("name", record.name) != record.name:
        raise status.wrong_name(metadata["name"], record.name)
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise status.bad_request(
            "json: cannot unmarshal into Go struct field ScaleSpec.spec.replicas of type int32"
        )
    if replicas < 0:
        message = f"Invalid value: {replicas}: must be greater than or equal to 0"
        raise status.invalid("Scale", "autoscaling", record.name, field="spec.replicas", message=message)
    version = metadata.get("resourceVersion", "")
    if version and version != str(record.version):
        raise status.conflict(kind, record.name)
    document: JSON = clone(record.document)
    place = document
    *steps, last = _steps((kind.scale or ScalePaths()).spec_replicas)
    for step in steps:
        place = place.setdefault(step, {})
    place[last] = replicas
    return document


def record_writer(kind: Kind, old: JSON | None, document: JSON, writer: WriteOptions, now: str) -> None:
    """Update ``managedFields`` of `document`: the last writer of the replicas is their only owner."""
    if "scale" not in kind.subresources:
        return
    path = (kind.scale or ScalePaths()).spec_replicas
    replicas = _find(document, path)
    if replicas is None or (old is not None and _find(old, path) == replicas):
        return
    fields: Any = {}
    for step in reversed(_steps(path)):
        fields = {f"f:{step}": fields}
    entry: JSON = {
        "manager": writer.manager,
        "operation": writer.operation,
        "apiVersion": kind.api_version,
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    if writer.subresource:
        entry["subresource"] = writer.subresource
    document["metadata"]["managedFields"] = [entry]


def _steps(path: str) -> list[str]:
    """Return the fields of a path such as ``.spec.replicas``."""
    return path.removeprefix(".").split(".")


def _find(document: JSON, path: str) -> Any:
    node: Any = document
    for step in _steps(path):
        node = node.get(step) if isinstance(node, dict) else None
    return node


def _selector_text(kind: Kind, document: JSON) -> str:
    """Return the selector of a built-in kind as status.selector of a Scale has it."""
    selector = document.get("spec", {}).get("selector") or {}
    if not kind.group:  # a ReplicationController's is labels alone
        selector = {"matchLabels": selector}
    terms = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        key, operator = expression["key"], expression["operator"]
        if operator in _SIGNS:
            terms.append(f"{key} {_SIGNS[operator]} ({','.join(sorted(expression['values']))})")
        else:
            terms.append(key if operator == "Exists" else f"!{key}")
    return ",".join(sorted(terms))
