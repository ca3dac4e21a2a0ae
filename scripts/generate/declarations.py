"""What the struct of an API object says of its fields: descriptions, limits, defaults, and which are needed.

A description is the docstring below a field. It begins with the name of the field in JSON, and is read from
the source, because a program does not keep it.
"""

import ast
import inspect
import textwrap
from functools import cache
from typing import Any, NamedTuple, get_type_hints

import msgspec

from adapter.model.quantity import Quantity


class DeclaredField(NamedTuple):
    """A field by its name in JSON. `about` is its description without the name, "" without one."""

    name: str
    type: msgspec.inspect.Type
    about: str
    limits: tuple[Any, ...]
    default: Any
    """The default that an object may have in the field, None where that is absence or not valid."""
    needed: bool

    @property
    def is_list(self) -> bool:
        types = getattr(self.type, "types", (self.type,))
        return any(isinstance(one, msgspec.inspect.VarTupleType) for one in types)


@cache
def fields(struct: type[msgspec.Struct]) -> tuple[DeclaredField, ...]:
    """Return the fields of a struct, those that it inherits first."""
    shape = msgspec.inspect.type_info(struct)
    assert isinstance(shape, msgspec.inspect.StructType)
    kinds, texts = get_type_hints(struct, include_extras=True), _descriptions(struct)
    return tuple(_declared(one, kinds[one.name], texts.get(one.name, "")) for one in shape.fields)


def about(struct: type) -> str:
    """Return the first sentence of the docstring of a class, "" without one."""
    return (inspect.cleandoc(struct.__doc__ or "").split("\n\n")[0]).replace("\n", " ")


def _declared(field: msgspec.inspect.Field, kind: Any, text: str) -> DeclaredField:
    limits = tuple(one for one in getattr(kind, "__metadata__", ()) if hasattr(one, "faults"))
    default = None if field.default is msgspec.NODEFAULT else field.default
    is_written = field.default_factory is not msgspec.NODEFAULT
    needed = is_written or (default is not None and not _is_valid(default, limits))
    name, _, description = text.partition(" ")
    if name not in {"", field.encode_name}:
        raise ValueError(f"{field.name}: the description begins with {name}, expected {field.encode_name}")
    is_shown = isinstance(default, str | int | Quantity) and default != "" and not needed
    return DeclaredField(
        field.encode_name, field.type, description, limits, default if is_shown else None, needed
    )


def _is_valid(value: Any, limits: tuple[Any, ...]) -> bool:
    """Tell whether a default is within limits, and has all that a struct needs."""
    if isinstance(value, msgspec.Struct):
        return not any(field.needed for field in fields(type(value)))
    return not any(fault for limit in limits for fault in limit.faults("", value))


def _descriptions(struct: type) -> dict[str, str]:
    """Return the docstrings below the fields of a class, and of those that it inherits from, by attribute."""
    texts: dict[str, str] = {}
    for declaring in reversed(struct.__mro__[:-1]):
        if issubclass(declaring, msgspec.Struct) and declaring.__module__ != "msgspec":
            (node,) = ast.parse(textwrap.dedent(inspect.getsource(declaring))).body
            assert isinstance(node, ast.ClassDef)
            for field, below in zip(node.body, node.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    texts.pop(field.target.id, None)
                    if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                        texts[field.target.id] = " ".join(str(below.value.value).split())
    return texts
