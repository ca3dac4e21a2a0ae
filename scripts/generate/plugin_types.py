"""Writes the types of the document in the Headlamp plugin: `python -m scripts.generate.plugin_types`.

They are those of `adapter.model.autoscaling.view`: an interface for each struct of an `AutoscalerView`.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec import inspect

from adapter.model.autoscaling import view

FILE = Path(__file__).parents[2] / "headlamp-plugin" / "src" / "document.ts"

_HEADER = f"""\
// Written by `python -m scripts.generate.plugin_types` from adapter/model/autoscaling/view.py.

/** The version of the document that this plugin reads. */
export const VERSION = '{view.VERSION}';

/** A part whose fields the plugin does not read one by one. */
export type Plain = Record<string, unknown>;
"""
_NAMES = {
    inspect.StrType: "string",
    inspect.IntType: "number",
    inspect.FloatType: "number",
    inspect.BoolType: "boolean",
    inspect.NoneType: "null",
}


def render() -> str:
    """Return the module of types."""
    return _HEADER + "".join(_interfaces(view.AutoscalerView, set()))


def _interfaces(struct: type[msgspec.Struct], known: set[type]) -> Iterator[str]:
    """Yield the interface of a struct after those that its fields have."""
    known.add(struct)
    kind = inspect.type_info(struct)
    assert isinstance(kind, inspect.StructType)
    for part in (one for field in kind.fields for one in _parts(field.type)):
        if part.cls not in known:
            yield from _interfaces(part.cls, known)
    lines = "".join(f"  {_named(field)}: {_written(field.type)};\n" for field in kind.fields)
    summary = (struct.__doc__ or "").partition("\n")[0]
    yield f"\n/** {summary} */\nexport interface {struct.__name__} {{\n{lines}}}\n"


def _parts(kind: inspect.Type) -> Iterator[inspect.StructType]:
    if isinstance(kind, inspect.StructType):
        yield kind
    elif isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from _parts(one)
    elif isinstance(kind, inspect.CollectionType):
        yield from _parts(kind.item_type)


def _named(field: inspect.Field) -> str:
    """Return the name of a field, with a question mark if the field may be left out."""
    is_unset = not field.required and field.default is field.default_factory  # neither: it is UNSET
    return f"{field.encode_name}{'?' if is_unset else ''}"


def _written(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.StructType):
        return kind.cls.__name__
    if isinstance(kind, inspect.UnionType):
        return " | ".join(map(_written, kind.types))
    if isinstance(kind, inspect.CollectionType):
        return f"{_written(kind.item_type)}[]"
    if isinstance(kind, inspect.DictType):
        value = kind.value_type
        return "Plain" if isinstance(value, inspect.AnyType) else f"Record<string, {_written(value)}>"
    return _NAMES[type(kind)]


if __name__ == "__main__":
    FILE.write_text(render())
