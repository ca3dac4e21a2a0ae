"""The schema of a CustomResourceDefinition, made of the structs that the program decodes objects into.

A struct says which fields there are, of which types, within which limits, and what each means. A table adds
what it does not say: rules between fields, and what only API servers need. The description of a field begins
with its name.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import inspect

from adapter.model.autoscaling import fastpath_autoscaler, limits
from adapter.model.quantity import Quantity
from adapter.model.timestamps import Instant, Span
from scripts.generate import crd_parts as parts
from scripts.generate import declarations
from scripts.generate.crd_parts import JSON, RULES, Table, field
from scripts.generate.declarations import DeclaredField

_WORDS = re.compile(r"\w+(\|\w+)*")


def _matching(limit: limits.Matches) -> JSON:
    if _WORDS.fullmatch(limit.pattern):
        return parts.choice("", *limit.pattern.split("|"))
    return parts.text("", parts.matching(limit.pattern, limit.detail), maxLength=limit.longest)


def _amount(limit: limits.Amount) -> JSON:
    return parts.positive("") if limit.least else parts.quantity("", rf"\+?{parts.ANY}", minimum=0)


def _items(limit: limits.Items) -> JSON:
    items = {} if limit.each is None else {"items": limited(limit.each)}
    return field("") | items | {"maxItems": limit.most}


_LIMITS: Mapping[type, Callable[[Any], JSON]] = MappingProxyType(
    {
        limits.OneOf: lambda limit: parts.choice("", *limit.texts),
        limits.Matches: _matching,
        limits.Within: lambda limit: parts.duration("", (limit.least, limit.most), word=limit.word),
        limits.Count: lambda limit: parts.count("", limit.least, limit.most),
        limits.Amount: _amount,
        limits.Segment: lambda _: parts.segment(""),
        limits.Filled: lambda _: parts.text("", minLength=1),
        limits.Date: lambda _: parts.date("A local date."),
        limits.Items: _items,
    }
)


def limited(limit: object) -> JSON:
    """Return what a limit says of a value."""
    return _LIMITS[type(limit)](limit)


def derive(shape: inspect.Type, table: Table, *, is_spec: bool = True) -> JSON:
    match shape:
        case inspect.UnionType(types=types):
            kind = next(one for one in types if not isinstance(one, inspect.NoneType))
            return derive(kind, table, is_spec=is_spec)
        case inspect.StructType(cls=struct):
            return _derive_struct(struct, table, is_spec=is_spec)
        case inspect.VarTupleType(item_type=item):
            items = derive(item, table, is_spec=is_spec)
            return {"type": "array", "items": items, "x-kubernetes-list-type": "atomic"}
        case inspect.DictType():
            return {"type": "object", "additionalProperties": {"type": "string"}}
        case inspect.BoolType():
            return {"type": "boolean"}
        case inspect.IntType(le=most):
            return {"type": "integer", "format": "int32" if most == parts.INT32 else "int64"}
        case inspect.CustomType(cls=kind) if kind is Quantity:
            return {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
        case inspect.CustomType(cls=kind) if issubclass(kind, Instant):
            return {"type": "string"} | parts.TIME
        case _:
            return {"type": "string"}


def _derive_struct(struct: type, table: Table, *, is_spec: bool) -> JSON:
    added = {name: one for base in reversed(struct.__mro__) for name, one in table.get(base, {}).items()}
    declared = declarations.fields(struct)
    properties = {
        one.name: _described(one, added.get(one.name, {}), table, is_spec=is_spec) for one in declared
    }
    needed = " ".join(one.name for one in declared if one.needed and is_spec)
    head = _joined(field(declarations.about(struct), required=needed), added.get("", {}))
    return {"type": "object"} | head | {"properties": properties}


def _described(declared: DeclaredField, added: JSON, table: Table, *, is_spec: bool) -> JSON:
    schema = derive(declared.type, table, is_spec=is_spec)
    own = _limited(declared) if is_spec else field("")
    needed = {"required": schema.pop("required")} if "required" in schema else {}
    added = _joined(own | field(declared.about) | needed, added)
    if "items" in added:
        added = added | {"items": schema["items"] | added["items"]}
    if not added["description"]:
        del added["description"]
    else:
        # `kubectl explain` shows a default nowhere else
        default = added.get("default")
        ending = f" Defaults to {default}." if isinstance(default, str | int) else ""
        added = added | {"description": f"{declared.name} {added['description']}{ending}"}
    head = {key: schema.pop(key) for key in ("type", "format") if key in schema}
    return head | added | (schema | added)


def _joined(schema: JSON, added: JSON) -> JSON:
    """Return a schema with what is added to it; what is added to a text stands in the place of its limits."""
    kept = {"description": schema["description"]} if "maxLength" in added else schema
    rules = [*kept.get(RULES, ()), *added.get(RULES, ())]
    joined = kept | {key: value for key, value in added.items() if value != "" and key != RULES}
    joined.pop(RULES, None)
    return joined | ({RULES: rules} if rules else {})


def _limited(declared: DeclaredField) -> JSON:
    """Return what the limits of a field say, and its default."""
    default: JSON = {} if declared.default is None else {"default": _plain(declared.default)}
    schema = field("")
    for limit in declared.limits:
        schema = limited(limit)
    if declared.is_list and "maxLength" in schema:
        schema = field("", minItems=1)
    return schema | default


def _plain(default: object) -> object:
    if isinstance(default, Span):
        return parts.short(default)
    return str(default) if isinstance(default, Quantity) else default


def definition(
    about: str, names: JSON, spec: tuple[type, Table], status: tuple[type, Table], columns: list[JSON]
) -> JSON:
    """Return the definition of a namespaced kind with a status."""
    group, _, version = fastpath_autoscaler.API_VERSION.partition("/")
    properties: JSON = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
    properties["metadata"] = {"type": "object"}
    properties["spec"] = derive(inspect.type_info(spec[0]), spec[1])
    properties["status"] = derive(inspect.type_info(status[0]), status[1], is_spec=False)
    schema = {"type": "object"} | field(about, required="spec") | {"properties": properties}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": schema},
    }
    kind, plural = names["kind"], names["plural"]
    names = names | {"listKind": f"{kind}List", "singular": kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [served]},
    }
