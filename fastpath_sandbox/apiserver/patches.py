"""JSON merge patch (RFC 7386), JSON patch (RFC 6902) and strategic merge patch over plain JSON values.

The functions never change their input. Strategic merge knows the merge keys of the kinds that the sandbox
serves. Any other list is replaced whole, as upstream does for fields without a patch strategy.
"""

import copy
from typing import Any

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
_DIRECTIVES = ("$patch", "$retainKeys", "$setElementOrder/", "$deleteFromPrimitiveList/")


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
    """Return `target` with a strategic merge patch applied, directives included."""
    if patch.get("$patch") == "replace":
        return {field: copy.deepcopy(value) for field, value in patch.items() if field != "$patch"}
    result = dict(target) if isinstance(target, dict) else {}
    if "$retainKeys" in patch:
        result = {field: value for field, value in result.items() if field in patch["$retainKeys"]}
    for field, value in patch.items():
        if value is None or (isinstance(value, dict) and value.get("$patch") == "delete"):
            result.pop(field, None)
        elif not field.startswith(_DIRECTIVES):
            result[field] = _strategic_value(field, result.get(field), value)
    for field, value in patch.items():
        directive, _, name = field.partition("/")
        if directive == "$deleteFromPrimitiveList":
            result[name] = [entry for entry in result.get(name) or [] if entry not in value]
        elif directive == "$setElementOrder":
            _reorder(result, name, value)
    return result


def _strategic_value(field: str, target: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return strategic(target, value)
    return _strategic_list(field, target or [], value) if isinstance(value, list) else value


def _key_of(field: str, entries: list[Any]) -> str | None:
    if field == "ports":
        return (
            "containerPort"
            if any("containerPort" in entry for entry in entries if isinstance(entry, dict))
            else "port"
        )
    return _MERGE_KEYS.get(field)


def _strategic_list(field: str, target: list[Any], patch: list[Any]) -> list[Any]:
    if field in _PRIMITIVE_SETS:
        return [*target, *(entry for entry in patch if entry not in target)]
    key = _key_of(field, [*target, *patch])
    if key is None or any(not isinstance(entry, dict) for entry in patch):
        return copy.deepcopy(patch)
    if any(entry.get("$patch") == "replace" for entry in patch):
        return [copy.deepcopy(entry) for entry in patch if "$patch" not in entry]
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


def _reorder(result: dict[str, Any], field: str, order: list[Any]) -> None:
    entries = result.get(field)
    if not isinstance(entries, list):
        return
    key = _key_of(field, entries)
    wanted = [entry.get(key) if isinstance(entry, dict) else entry for entry in order]

    def rank(entry: Any) -> int:
        name = entry.get(key) if isinstance(entry, dict) else entry
        return wanted.index(name) if name in wanted else len(wanted)

    result[field] = sorted(entries, key=rank)


def json_patch(target: Any, operations: list[dict[str, Any]]) -> Any:
    """Return `target` with a JSON patch applied; raise 422 for an operation that fails, as upstream."""
    result = copy.deepcopy(target)
    for operation in operations:
        result = _apply(result, operation)
    return result


def _apply(document: Any, operation: dict[str, Any]) -> Any:
    name = operation.get("op")
    path = operation.get("path", "")
    if name in {"add", "replace", "test"} and "value" not in operation:
        raise _unfit(f"{name} operation missing value for path {path}")
    if name == "test":
        if _read(document, path) != operation["value"]:
            raise _unfit(f"testing value {path} failed: test failed")
        return document
    if name in {"move", "copy"}:
        value = copy.deepcopy(_read(document, operation.get("from", "")))
        if name == "move":
            document = _write(document, operation["from"], "remove", None)
        return _write(document, path, "add", value)
    if name in {"add", "replace", "remove"}:
        return _write(document, path, name, copy.deepcopy(operation.get("value")))
    raise _unfit(f"Unexpected kind: {name}")


def _unfit(cause: str) -> status.StatusFailure:
    return status.StatusFailure(
        422, "Invalid", f"the server rejected our request due to an error in our request: {cause}"
    )


def _steps(path: str) -> list[str]:
    if path and not path.startswith("/"):
        raise _unfit(f"invalid path {path}: a JSON pointer starts with /")
    return [step.replace("~1", "/").replace("~0", "~") for step in path.split("/")[1:]]


def _child(container: Any, step: str, path: str) -> Any:
    try:
        return container[int(step)] if isinstance(container, list) else container[step]
    except (KeyError, IndexError, ValueError, TypeError):
        raise _unfit(f"doc is missing path: {path}: missing value") from None


def _read(document: Any, path: str) -> Any:
    for step in _steps(path):
        document = _child(document, step, path)
    return document


def _write(document: Any, path: str, name: str, value: Any) -> Any:
    steps = _steps(path)
    if not steps:
        return value
    container = document
    for step in steps[:-1]:
        container = _child(container, step, path)
    last = steps[-1]
    if isinstance(container, list) and name == "add":
        container.insert(len(container) if last == "-" else _index(last, len(container), path), value)
        return document
    if name != "add":
        _child(container, last, path)
    if not isinstance(container, (dict, list)):
        raise _unfit(f"doc is missing path: {path}: missing value")
    place: Any = int(last) if isinstance(container, list) else last
    if name == "remove":
        del container[place]
    else:
        container[place] = value
    return document


def _index(text: str, length: int, path: str) -> int:
    if not text.isdigit() or int(text) > length:
        raise _unfit(f"Unable to access invalid index: {path}")
    return int(text)
