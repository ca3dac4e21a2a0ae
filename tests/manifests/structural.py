"""An API server's treatment of an object by its CRD's schema: pruning, defaults, and refusals.

Nothing of ours is in here: values by a JSON Schema library with Kubernetes' readings of it, rules by a CEL
library. Expressions are Go's, so RE2 reads them.
"""

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

import cel
import jsonschema
import re2

JSON = dict[str, Any]

_KEYWORDS = """
additionalProperties anyOf default description enum format items maxItems maxLength maxProperties maximum
minItems minLength minimum pattern properties required type x-kubernetes-int-or-string
x-kubernetes-list-map-keys
x-kubernetes-list-type x-kubernetes-map-type x-kubernetes-validations
"""
KEYWORDS = frozenset(_KEYWORDS.split())
"""What a structural schema may say and ours needs.

Among what it may not: $ref, oneOf beside types, patternProperties, uniqueItems.
"""

BLOCKING = frozenset({"required", "maxLength", "maxItems", "maxProperties", "type"})
"""Where one of these is broken the API server does not look at rules."""

_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]


def nodes(schema: JSON, path: str = "") -> Iterator[tuple[str, JSON]]:
    """Yield path and schema of each value."""
    yield path, schema
    for name, below in schema.get("properties", {}).items():
        yield from nodes(below, f"{path}.{name}".lstrip("."))
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from nodes(schema["additionalProperties"], f"{path}{{}}")


def faults_of_form(schema: JSON) -> list[str]:
    """Return what keeps a schema from being structural, as far as it can go wrong with these keywords."""
    return [f"{path}: {fault}" for path, node in nodes(schema) for fault in _faults_of(node)]


def _faults_of(node: JSON) -> Iterator[str]:
    yield from (f"{name} is not of this subset" for name in node.keys() - KEYWORDS)
    if node.get("x-kubernetes-int-or-string"):
        if "type" in node or node.get("anyOf") != _INT_OR_STRING:
            yield "an int-or-string has no type, and exactly this anyOf"
    elif "anyOf" in node:
        yield "anyOf without int-or-string"
    elif node.get("type") not in {"object", "array", "string", "integer", "boolean"}:
        yield "has no type"
    if "properties" in node and "additionalProperties" in node:
        yield "properties and additionalProperties exclude each other"
    if set(node.get("required", ())) - node.get("properties", {}).keys():
        yield "requires what it does not have"
    if (node.get("type") == "array") is not ("items" in node):
        yield "items belong to arrays"
    if "default" in node and list(problems(node["default"], node)):
        yield "its default is refused"


def pruned(value: Any, schema: JSON) -> Any:
    """Return a value without what the schema does not have, and without nulls."""
    if isinstance(value, dict):
        known = schema.get("properties")
        if known is None:
            return copy.deepcopy(value)
        return {
            name: pruned(below, known[name])
            for name, below in value.items()
            if name in known and below is not None
        }
    if isinstance(value, list) and "items" in schema:
        return [pruned(below, schema["items"]) for below in value]
    return value


def defaulted(value: Any, schema: JSON) -> Any:
    """Return a value with its defaults filled in, from the outside inwards."""
    if isinstance(value, dict):
        known = schema.get("properties", {})
        filled = {name: below["default"] for name, below in known.items() if "default" in below} | value
        return {name: defaulted(below, known.get(name, {})) for name, below in filled.items()}
    if isinstance(value, list):
        return [defaulted(below, schema.get("items", {})) for below in value]
    return value


def verdict(written: Any, schema: JSON) -> list[str]:
    """Return what an API server refuses in a written object; nothing when it accepts it."""
    return list(problems(defaulted(pruned(written, schema), schema), schema))


def problems(value: Any, schema: JSON) -> Iterator[str]:
    """Yield what is refused in a value that is pruned and has its defaults."""
    blocked = False
    for error in _Validator(schema).iter_errors(value):
        blocked = blocked or error.validator in BLOCKING or error.validator == "anyOf"
        yield f"{error.json_path}: {error.message}"
    if not blocked:
        yield from _rules(value, schema, "")


def _pattern(
    validator: object, pattern: str, value: object, schema: object
) -> Iterator[jsonschema.ValidationError]:
    if isinstance(value, str) and not re2.search(pattern, value):
        yield jsonschema.ValidationError(f"{value!r} does not match {pattern!r}")


def _map_keys(
    validator: object, keys: list[str], value: object, schema: object
) -> Iterator[jsonschema.ValidationError]:
    seen = set()
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict):
            key = repr([item.get(each) for each in keys])
            if key in seen:
                yield jsonschema.ValidationError(f"Duplicate value: {key}")
            seen.add(key)


_Validator = jsonschema.validators.extend(  # type: ignore[no-untyped-call]  # the stub leaves it untyped
    jsonschema.Draft202012Validator, {"pattern": _pattern, "x-kubernetes-list-map-keys": _map_keys}
)


def _rules(value: Any, schema: JSON, path: str) -> Iterator[str]:
    for each in schema.get("x-kubernetes-validations", ()):
        if not holds(each["rule"], value):
            yield f"{path}: {each['message']}"
    if isinstance(value, dict):
        known: Mapping[str, JSON] = schema.get("properties", {})
        for name, below in value.items():
            if name in known:
                yield from _rules(below, known[name], f"{path}.{name}".lstrip("."))
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from _rules(below, schema["items"], f"{path}[{index}]")


_PROGRAMS: dict[str, Any] = {}

_RESERVED = frozenset({"as", "break", "const", "continue", "else", "false", "for", "function", "if"})
"""Words of CEL, as far as a field may have such a name: rules write it between double underscores."""


def _escaped(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            f"__{name}__" if name in _RESERVED else name: _escaped(below) for name, below in value.items()
        }
    return [_escaped(below) for below in value] if isinstance(value, list) else value


def holds(rule: str, value: Any) -> bool:
    """Tell whether a rule holds of a value; one that cannot be evaluated does not."""
    if rule not in _PROGRAMS:
        _PROGRAMS[rule] = cel.compile(rule)
    try:
        return _PROGRAMS[rule].execute({"self": _escaped(value)}) is True
    except (RuntimeError, TypeError, ValueError):
        return False


def faults_of_descriptions(schema: JSON, within: str = "") -> list[str]:
    """Return the fields of a schema whose description is not as Kubernetes' API conventions ask."""
    faults: list[str] = []
    for name, node in schema.get("properties", {}).items():
        path, about = f"{within}.{name}" if within else name, node.get("description", "")
        default = node.get("default")
        if about and not (about.startswith(f"{name} ") and about.endswith(".")):
            faults.append(f"{path}: {about}")
        if isinstance(default, str | int) and f"Defaults to {default}." not in about:
            faults.append(f"{path}: says no default")
        faults += faults_of_descriptions(node, path) + faults_of_descriptions(
            node.get("items", {}), f"{path}[]"
        )
    return faults


def faults_of_columns(version: JSON) -> list[str]:
    """Return the names of the printed columns whose path the schema of a version does not have."""
    known = {path for path, _ in nodes(version["schema"]["openAPIV3Schema"])} | {"metadata.creationTimestamp"}
    columns = {each["name"]: each["jsonPath"].lstrip(".") for each in version["additionalPrinterColumns"]}
    return [name for name, path in columns.items() if re.sub(r"\[\?.*?\)\]", "[]", path) not in known]


def shown_columns(version: JSON) -> list[str]:
    """Return the columns that are printed without ``-o wide``."""
    return [each["name"] for each in version["additionalPrinterColumns"] if not each.get("priority")]
