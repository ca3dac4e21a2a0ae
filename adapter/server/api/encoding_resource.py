# ruff: noqa: N815 - the fields are named as they are sent
"""The JSON of resource metrics: lists and single objects, and both as a Table.

Text and pieces follow the rules of `encoding`.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from adapter.model import quantity, timestamps
from adapter.model.metrics import ObjectUsage, ResourceAnswer, ResourceQuestion, Usage
from adapter.server.api import encoding
from adapter.server.api.paths import RESOURCE_GROUP

_KINDS = {"pods": "PodMetrics", "nodes": "NodeMetrics"}


class _ObjectMeta(msgspec.Struct, gc=False):
    name: str
    namespace: str | msgspec.UnsetType
    creationTimestamp: str
    labels: Mapping[str, str] | msgspec.UnsetType


class _Usage(msgspec.Struct, gc=False):
    cpu: str
    memory: str


class _ContainerMetrics(msgspec.Struct, gc=False):
    name: str
    usage: _Usage


class _PodMetrics(msgspec.Struct, gc=False):
    metadata: _ObjectMeta
    timestamp: str
    window: str
    containers: list[_ContainerMetrics]


class _NodeMetrics(msgspec.Struct, gc=False):
    metadata: _ObjectMeta
    timestamp: str
    window: str
    usage: _Usage


class _PartialObject(msgspec.Struct, gc=False):
    kind: str
    apiVersion: str
    metadata: _ObjectMeta


class _Row(msgspec.Struct, gc=False):
    cells: list[str]
    object: _PartialObject | msgspec.Raw | None


class _Column(msgspec.Struct):
    """A TableColumnDefinition of the API, in the order of the Go type."""

    name: str
    type: str
    format: str
    description: str = ""
    priority: int = 0


_COLUMNS = encoding.encode_fragment(
    [
        _Column("Name", "string", "name", "Name of the resource"),
        _Column("cpu", "string", "quantity"),
        _Column("memory", "string", "quantity"),
        _Column("Window", "string", "duration"),
    ]
)


class _Stamp(NamedTuple):
    """The texts that all objects of one answer share."""

    made: str
    window: str


class TableOptions(NamedTuple):
    """The Table that a caller wants: its `version`, and the part of each object (``includeObject``)."""

    version: str
    include: str = ""


def encode(
    version: str, question: ResourceQuestion, answer: ResourceAnswer, table: TableOptions | None
) -> Iterator[bytes]:
    """Yield a PodMetricsList or NodeMetricsList, or the one object of a name, in pieces.

    With `table` their Table.

    `version` is that of ``metrics.k8s.io``.
    """
    stamp = _Stamp(encoding.format_time(answer.made), timestamps.format_go_duration(answer.window))
    head = f'"kind":"{_KINDS[question.resource]}","apiVersion":"{RESOURCE_GROUP}/{version}",'.encode()
    if table is not None:
        start = b'{"kind":"Table","apiVersion":"meta.k8s.io/%s","metadata":{},"columnDefinitions":%s,"rows":['
        yield start % (table.version.encode(), _COLUMNS)
        yield from encoding.members(answer.items, lambda item: _row(item, stamp, table, head))
        yield b"]}\n"
    elif question.name is not None:
        (one,) = answer.items
        yield b"{" + head + encoding.encode_fragment(_object(one, stamp))[1:] + b"\n"
    else:
        kind = f"{_KINDS[question.resource]}List"
        yield from encoding.encode_list(
            kind, f"{RESOURCE_GROUP}/{version}", answer.items, lambda item: _object(item, stamp)
        )


def _row(item: ObjectUsage, stamp: _Stamp, table: TableOptions, head: bytes) -> _Row:
    """Return the cells of metrics-server: name, the sum of each resource, window."""
    usage = _usage(item.usage)
    shown: _PartialObject | msgspec.Raw | None = None
    if table.include == "Object":
        shown = msgspec.Raw(b"{" + head + encoding.encode_fragment(_object(item, stamp))[1:])
    elif table.include != "None":
        shown = _PartialObject(
            "PartialObjectMetadata", f"meta.k8s.io/{table.version}", _metadata(item, stamp)
        )
    return _Row([item.name, usage.cpu, usage.memory, stamp.window], shown)


def _object(item: ObjectUsage, stamp: _Stamp) -> _PodMetrics | _NodeMetrics:
    metadata, time = _metadata(item, stamp), encoding.format_time(item.time)
    if not item.containers:
        return _NodeMetrics(metadata, time, stamp.window, _usage(item.usage))
    containers = [_ContainerMetrics(container.name, _usage(container.usage)) for container in item.containers]
    return _PodMetrics(metadata, time, stamp.window, containers)


def _metadata(item: ObjectUsage, stamp: _Stamp) -> _ObjectMeta:
    return _ObjectMeta(item.name, item.namespace or msgspec.UNSET, stamp.made, item.labels or msgspec.UNSET)


def _usage(usage: Usage) -> _Usage:
    return _Usage(quantity.format_milli(usage.cpu), quantity.format_binary(usage.memory))
