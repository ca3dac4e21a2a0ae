"""JSON merge patch (RFC 7386), JSON patch (RFC 6902) and strategic merge patch over plain JSON values.

The functions never change their input. Strategic merge knows the merge keys of the kinds that the sandbox
serves. Any other list is replaced whole, as upstream does for fields without a patch strategy.
"""

import copy
from typing import Any

import jsonpatch

from fastpath_sandbox.apiserver import status

_MERGE_KEYS: dict[str, str] = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "conditions": "type",
    "ownerReferences": "uid",
    "addresses": "type",
    "taints": "key",
    "topologySpreadConstraints": "topologyKey",
}
_PRIMITIVE_SETS = frozenset(("finalizers",))


def merge(target: Any, patch: Any) -> Any:
    """Return `target` with a JSON merge patch applied."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for field, value in patch.items():
        if value is None:
            result.pop(field, None)
        else:
            result[field] = merge(result.get(field), value)
    return result


def strategic(target: Any, patch: dict[str, Any]) -> Any:
    """Return `target` with a strategic merge patch applied. Of its directives only deletions count."""
    result = dict(target) if isinstance(target, dict) else {}
    for field, value in patch.items():
        if value is None or (isinstance(value, dict) and value.get("$patch") == "delete"):
            result.pop(field, None)
        elif isinstance(value, dict):
            result[field] = strategic(result.get(field), value)
        elif isinstance(value, list) and not field.startswith("$"):
            result[field] = _strategic_list(field, result.get(field) or [], value)
        elif not field.startswith("$"):
            result[field] = value
    return result


def _strategic_list(field: str, target: list[Any], patch: list[Any]) -> list[Any]:
    if field in _PRIMITIVE_SETS:
        return [*target, *(entry for entry in patch if entry not in target)]
    if any(not isinstance(entry, dict) for entry in patch):
        return copy.deepcopy(patch)
    key = _MERGE_KEYS.get(field)
    if field == "ports":  # those of a container, or of a Service
        key = "containerPort" if any("containerPort" in entry for entry in [*target, *patch]) else "port"
    if key is None:
        return copy.deepcopy(patch)
    result = list(target)
    for entry in patch:
        if key not in entry:
            raise status.bad_request(f"map: {entry} does not contain declared merge key: {key}")
        place = next((place for place, present in enumerate(result) if present.get(key) == entry[key]), None)
        if entry.get("$patch") == "delete":
            if place is not None:
                del result[place]
        elif place is None:
            result.append(strategic({}, entry))
        else:
            result[place] = strategic(result[place], entry)
    return result


def json_patch(target: Any, operations: list[dict[str, Any]]) -> Any:
    """Return `target` with a JSON patch applied; raise 422 for an operation that fails, as upstream."""
    result = copy.deepcopy(target)
    for operation in operations:
        name, path = operation.get("op"), operation.get("path")
        try:
            result = jsonpatch.apply_patch(result, [operation], in_place=True)
        except jsonpatch.JsonPatchTestFailed:
            raise _unfit(f"testing value {path} failed: test failed") from None
        except (jsonpatch.JsonPatchPathNotFound, jsonpatch.JsonPointerException):
            raise _unfit(
                f"{name} operation does not apply: doc is missing path: {path}: missing value"
            ) from None
        except jsonpatch.JsonPatchException as error:
            raise _unfit(f"{name} operation does not apply: {path}: {error}") from None
    return result


def _unfit(cause: str) -> status.StatusFailure:
    return status.StatusFailure(
        422, "Invalid", f"the server rejected our request due to an error in our request: {cause}"
    )
