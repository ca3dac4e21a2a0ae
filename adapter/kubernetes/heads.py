"""Reads where an object is, and in which version, without decoding the rest of it.

The API server writes the metadata of built-in kinds in the order of their Go fields. Namespace and version
are then among the first of them, before anything that a user can write, so a regular expression finds them
in a microsecond. The keys of a custom resource are sorted. Its metadata is decoded by itself.
"""

import re
from collections.abc import Callable
from typing import Generic, TypeGuard, TypeVar

import msgspec

_T = TypeVar("_T")

Keeps = Callable[[str], bool]
"""Tells whether the objects of a namespace are kept."""

_TEXT = rb'"([-.0-9A-Za-z]*)"'
_METADATA = (
    rb'\{(?:"kind":"[^"\\]*","apiVersion":"[^"\\]*",)?"metadata":\{"name":"[^"\\]*",'
    rb'(?:"generateName":"[^"\\]*",)?"namespace":' + _TEXT + rb',"uid":"[^"\\]*","resourceVersion":' + _TEXT
)
_OBJECT = re.compile(_METADATA)
_EVENT = re.compile(rb'\{"type":"(?:ADDED|MODIFIED|DELETED)","object":' + _METADATA)


class ObjectHead(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    namespace: str = ""
    resource_version: str = ""


class WithMetadata(msgspec.Struct, Generic[_T], frozen=True, gc=False):
    """An object of which nothing but metadata is read."""

    metadata: _T


OBJECT = msgspec.json.Decoder(WithMetadata[ObjectHead])


def read_event_head(line: bytes) -> ObjectHead | None:
    """Return the head of the object of a watch event, None if it is not among its first bytes."""
    head = _EVENT.match(line)
    return None if head is None else ObjectHead(head[1].decode(), head[2].decode())


def read_head(raw: msgspec.Raw) -> ObjectHead | None:
    """Return the head of an object, None if it cannot be read."""
    head = _OBJECT.match(raw)
    if head is not None:
        return ObjectHead(head[1].decode(), head[2].decode())
    try:
        return OBJECT.decode(raw).metadata
    except (msgspec.MsgspecError, RecursionError):
        return None


def is_other(head: ObjectHead | None, keeps: Keeps | None) -> TypeGuard[ObjectHead]:
    """Tell whether an object is of a namespace that is not kept; one without a head is kept."""
    return head is not None and keeps is not None and not keeps(head.namespace)
