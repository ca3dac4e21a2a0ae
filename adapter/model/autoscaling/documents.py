"""Autoscalers as documents: JSON of the API server, and files of users.

FastPathAutoscalers and HorizontalPodAutoscalers are read into one type. Unknown fields of an object of the
API server are ignored, because the server may be newer. In a file they are faults, because they are typing
mistakes. Any input ends in an autoscaler or in an `InputError`, also where msgspec refuses it: `explain`
makes a fault with path and value of every message of msgspec about a tree of plain values.
"""

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect
from msgspec.structs import replace

from adapter.errors import Fault, InputError
from adapter.model import visible
from adapter.model.autoscaling import fastpath_autoscaler, forecast
from adapter.model.autoscaling.fastpath_autoscaler import (
    API_VERSION,
    HPA_API_VERSION,
    HPA_KIND,
    KIND,
    FastPathAutoscaler,
    FastPathAutoscalerSpec,
    NativeAutoscaler,
)
from adapter.model.autoscaling.hpa import decode_scalar
from adapter.model.objects.api_objects import Struct
from adapter.model.quantity import Quantity

_TOP = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
_OF_METADATA = """
annotations clusterName creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers generateName
generation labels managedFields name namespace ownerReferences resourceVersion selfLink uid
"""
_METADATA = frozenset(_OF_METADATA.split())
_EITHER = f"{API_VERSION} {KIND} or {HPA_API_VERSION} {HPA_KIND}"


Shape = TypeVar("Shape", bound=Struct)

_DECODER = msgspec.json.Decoder(FastPathAutoscaler, dec_hook=decode_scalar)


def decode_object(text: bytes | msgspec.Raw) -> FastPathAutoscaler:
    """Return the FastPathAutoscaler of the API server's JSON.

    Unknown fields are ignored; nothing but the form is checked.
    """
    try:
        return _DECODER.decode(text)
    except msgspec.ValidationError as error:
        raise explain(str(error), msgspec.json.decode(text), "") from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InputError([Fault("", "", f"not JSON: {error}")]) from None


def kind_of(tree: object) -> str:
    """Return the kind of a document of any version, "" if it is no autoscaler."""
    kind = tree.get("kind") if isinstance(tree, dict) else None
    return kind if kind in (KIND, HPA_KIND) else ""


def read_document(tree: object, namespace: str = "", *, floor_metric: bool = False) -> FastPathAutoscaler:
    """Return the autoscaler of a document of plain values; InputError with all faults if it is invalid.

    `namespace` is where it belongs if it says none. Its status, and all that an API server adds to metadata,
    is left out. `floor_metric` accepts the metric of boost, which an autoscaler that Fastpath runs may not
    have.
    """
    kind = kind_of(tree)
    if not isinstance(tree, dict) or not kind:
        given = tree.get("kind") if isinstance(tree, dict) else tree
        raise InputError([Fault("kind", _shown_or_absent(given), f"expected {_EITHER}")])
    shape: type[FastPathAutoscaler | NativeAutoscaler] = (
        FastPathAutoscaler if kind == KIND else NativeAutoscaler
    )
    read, faults = read_parts(tree, shape, kind, _version_faults(tree, kind))
    if isinstance(read, NativeAutoscaler):
        autoscaler = fastpath_autoscaler.from_hpa(read)
    else:  # without the fields that an API server sets
        autoscaler = replace(read, metadata=replace(read.metadata, uid="", resource_version="", generation=0))
    meta = autoscaler.metadata
    autoscaler = replace(autoscaler, metadata=replace(meta, namespace=meta.namespace or namespace))
    faults += faults_of(autoscaler, floor_metric=floor_metric)
    if faults:
        raise InputError(faults)
    return autoscaler


def read_parts(
    tree: dict[str, Any], shape: type[Shape], kind: str, faults: Iterable[Fault] = ()
) -> tuple[Shape, list[Fault]]:
    """Return metadata and spec of a document as a struct, and `faults` with those of its unknown fields.

    InputError with all of them for a value of another type. Null is absence, and the status is not read.
    """
    known = {name: _without_nulls(tree[name]) for name in ("metadata", "spec") if tree.get(name) is not None}
    faults = [*faults, *_unknown_keys(tree, _TOP, "")]
    if isinstance(meta := known.get("metadata"), dict):
        faults += _unknown_keys(meta, _METADATA, "metadata.")
    faults += _unknown_fields(known.get("spec"), _fields(shape)["spec"], "spec", kind)
    try:
        return msgspec.convert(known, shape, dec_hook=decode_scalar), faults
    except msgspec.ValidationError as error:
        raise InputError([*faults, *explain(str(error), known, "").faults]) from None


def faults_of(autoscaler: FastPathAutoscaler, *, floor_metric: bool = False) -> Iterator[Fault]:
    """Yield the violations of an autoscaler as faults, and what is wrong in a file: an unknown time zone."""
    violations = fastpath_autoscaler.validate(autoscaler, floor_metric=floor_metric)
    if (wanted := autoscaler.spec.forecast) is not None:
        violations += forecast.check_zone(wanted)
    for path, problem, value, detail in violations:
        yield Fault(path, ": ".join(filter(None, (problem, value))), detail)


def _version_faults(tree: dict[str, Any], kind: str) -> Iterator[Fault]:
    expected = API_VERSION if kind == KIND else HPA_API_VERSION
    given = tree.get("apiVersion")
    if given != expected:
        advice = "; kubectl get hpa.v2.autoscaling NAME -o yaml gives it" if kind == HPA_KIND else ""
        yield Fault("apiVersion", _shown_or_absent(given), f"expected {expected}{advice}")


def _shown_or_absent(value: object) -> str:
    return "absent" if value is None else shown(value)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(below) for name, below in value.items() if below is not None}
    if isinstance(value, list):
        return [_without_nulls(below) for below in value]
    return value


# --- unknown fields


def _unknown_keys(tree: dict[str, Any], known: frozenset[str], prefix: str) -> Iterator[Fault]:
    for name, value in tree.items():
        if name not in known:
            yield _unknown_field(f"{prefix}{name}", value, name, known)


def _unknown_fields(tree: object, shape: inspect.Type, path: str, kind: str) -> Iterator[Fault]:
    """Yield the fields of a tree that its shape does not have; a value of another type is skipped."""
    if isinstance(shape, inspect.UnionType):
        shape = next(one for one in shape.types if not isinstance(one, inspect.NoneType))
    if isinstance(shape, inspect.StructType) and isinstance(tree, dict):
        fields = _fields(shape.cls)
        for name, value in tree.items():
            if name in fields:
                yield from _unknown_fields(value, fields[name], f"{path}.{name}", kind)
            elif kind == HPA_KIND and path == "spec" and name in _fields(FastPathAutoscalerSpec):
                yield Fault(f"{path}.{name}", shown(value), f"unknown field: only a {KIND} has it")
            else:
                yield _unknown_field(f"{path}.{name}", value, name, fields)
    elif isinstance(shape, inspect.VarTupleType) and isinstance(tree, list):
        for index, item in enumerate(tree):
            yield from _unknown_fields(item, shape.item_type, f"{path}[{index}]", kind)


@cache
def _fields(struct: type) -> dict[str, inspect.Type]:
    shape = inspect.type_info(struct)
    assert isinstance(shape, inspect.StructType)
    return {field.encode_name: field.type for field in shape.fields}


def _unknown_field(path: str, value: object, name: str, known: Iterable[str]) -> Fault:
    near = difflib.get_close_matches(name, known, n=1)
    return Fault(path, shown(value), f"unknown field, did you mean {near[0]}?" if near else "unknown field")


# --- messages of msgspec


_WORDS = {
    "int": "an integer",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}
_TYPES = re.compile(r"`([a-z]+(?: \| [a-z]+)*)`")
_MESSAGE = re.compile(r"(.*?)(?: - at `(?:key in )?\$(.*)`)?", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(\w+)`")
_PLACE = re.compile(r"\.(\w+)|\[(\d+)\]|\[\.\.\.\]")
_SHOWN = 80


def explain(message: str, tree: object, source: str) -> InputError:
    """Return the error for a message of msgspec about a tree: path, value and what was expected."""
    match = _MESSAGE.fullmatch(message)
    assert match is not None  # it fits any text
    problem, place = match[1], match[2] or ""
    if missing := _MISSING.fullmatch(problem):
        return InputError([Fault(f"{place}.{missing[1]}".lstrip("."), "absent", "it is required", source)])
    try:
        path, value = _follow(tree, place, wants_text=problem.startswith("Expected `str`"))
        text = shown(value)
    except (LookupError, TypeError):
        # msgspec refuses the first of two equal keys, but the tree has the last
        path, text = place, "a parent key is given twice"
    return InputError([Fault(path.lstrip(".") or "the document", text, _in_words(problem), source)])


def _follow(tree: Any, place: str, *, wants_text: bool) -> tuple[str, object]:
    """Return a path with the keys that msgspec leaves out, and what stands there.

    It leaves out free keys: those of labels, whose values are text, and those of quantities. The first that
    is wrong is meant.
    """
    path = ""
    for match in _PLACE.finditer(place):
        name, index = match[1], match[2]
        if name is not None:
            path += f".{name}"
            tree = tree[name]
        elif index is not None:
            path += f"[{index}]"
            tree = tree[int(index)]
        else:
            key = _wrong_key(tree, wants_text=wants_text)
            path += f"[{json.dumps(key, ensure_ascii=False)}]"
            tree = tree[key]
    return path, tree


def _wrong_key(mapping: Mapping[str, object], *, wants_text: bool) -> str:
    for key, value in mapping.items():
        if wants_text and not isinstance(value, str):
            return key
        if not wants_text:
            try:
                decode_scalar(Quantity, value)
            except ValueError:
                return key
    raise LookupError("none is wrong")


def _in_words(problem: str) -> str:
    """Return msgspec's sentence in our words, from its small beginning on."""
    words = _TYPES.sub(lambda match: " or ".join(_WORDS[name] for name in match[1].split(" | ")), problem)
    return words[:1].lower() + words[1:]


def shown(value: object) -> str:
    """Return what stands somewhere, on one line and cut to a length that a message can carry."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    text = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
    return visible.escape(text)
