"""Decodes scales: Scale objects, and the objects of scale targets, which show the same numbers.

A scale target is read from the cache of its own kind, so that its scale costs no request. A Scale shows three
fields of the object: spec.replicas, status.replicas and the selector. Built-in kinds keep them at known
places; a CustomResourceDefinition names the places in its scale subresource. For each set of places a decoder
is built that skips everything else. The resulting `ObservedScale` equals what a GET of the scale would
return, so a write against its resourceVersion needs no GET.
"""

import itertools
import operator
import re
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from adapter.kubernetes.codec import ObjectCodec, Unreadable
from adapter.model import memo
from adapter.model.autoscaling.hpa import ScaleSpec, ScaleStatus
from adapter.model.objects import api_selectors
from adapter.model.objects.api_objects import Metadata, Struct
from adapter.model.objects.api_selectors import APISelector
from adapter.model.objects.label_selectors import LabelSelector, Operator, Requirement


class ObservedScale(msgspec.Struct, frozen=True, gc=False):
    """The scale of an object. `replicas` is None if the object lacks the field; `selector` is text.

    `manager` is the field manager that last wrote the count and `since` the time of that write, as the API
    server writes times; both are "" if the object does not say. Of an `unreadable` object the scale has to be
    read by itself.
    """

    namespace: str
    name: str
    replicas: int | None
    status_replicas: int
    selector: str
    resource_version: str
    manager: str
    uid: str = ""
    since: str = ""
    unreadable: bool = False


_READ = operator.attrgetter("replicas", "status_replicas", "selector", "uid", "unreadable")


def same_scale(one: ObservedScale, other: ObservedScale) -> bool:
    """Whether two states of an object are equal in everything that decisions read."""
    return bool(_READ(one) == _READ(other))


def lose(lost: Unreadable, _: ObservedScale | None) -> ObservedScale:
    return ObservedScale(lost.namespace, lost.name, None, 0, "", "", "", unreadable=True)


# -- Scale objects -------------------------------------------------------------------------------------------


class _WireScale(Struct, frozen=True):
    """A Scale of autoscaling/v1. Metadata are required: an empty object is not a scale of 0."""

    metadata: Metadata
    spec: ScaleSpec = ScaleSpec()
    status: ScaleStatus = ScaleStatus()


_SCALE = msgspec.json.Decoder(_WireScale)


def read_scale(content: bytes, namespace: str, name: str) -> ObservedScale:
    """Decode the Scale of an object, which does not name the writer of the count.

    Raises one of `codec.UNREADABLE` if the content is not a Scale.
    """
    scale = _SCALE.decode(content)
    status, meta = scale.status, scale.metadata
    return ObservedScale(
        namespace,
        name,
        scale.spec.replicas,
        status.replicas,
        status.selector,
        meta.resource_version,
        "",
        meta.uid,
    )


# -- CustomResourceDefinitions -------------------------------------------------------------------------------


class _ScaleSubresource(Struct, frozen=True):
    spec_replicas_path: str = ""
    status_replicas_path: str = ""
    label_selector_path: str = ""


class _Subresources(Struct, frozen=True):
    scale: _ScaleSubresource | None = None


class _DefinedVersion(Struct, frozen=True):
    name: str = ""
    subresources: _Subresources | None = None


class _DefinitionSpec(Struct, frozen=True):
    versions: tuple[_DefinedVersion, ...] = ()


class _Definition(Struct, frozen=True):
    spec: _DefinitionSpec = _DefinitionSpec()


_DEFINITION = msgspec.json.Decoder(_Definition)


def read_codec(definition: bytes, version: str) -> ObjectCodec[ObservedScale] | None:
    """Return the codec of a custom kind, None if its definition names no plain field paths for the scale.

    Raises one of `codec.UNREADABLE` if the content is not a definition.
    """
    for entry in _DEFINITION.decode(definition).spec.versions:
        scale = entry.subresources.scale if entry.subresources else None
        if entry.name == version and scale is not None:
            paths = parse_paths(
                scale.spec_replicas_path, scale.status_replicas_path, scale.label_selector_path
            )
            return None if paths is None else custom(paths)
    return None


# -- codecs of scale targets ---------------------------------------------------------------------------------


class ReplicaPaths(NamedTuple):
    """Field paths of the replicas and the selector, as field names from the top; `selector` may be empty."""

    spec_replicas: tuple[str, ...]
    status_replicas: tuple[str, ...]
    selector: tuple[str, ...]


_PATH = re.compile(r"(\.[A-Za-z0-9_-]+){2,}")
_OWN_PATHS = (
    ".metadata.name",
    ".metadata.namespace",
    ".metadata.resourceVersion",
    ".metadata.uid",
    ".metadata.managedFields",
)
_APPS = ReplicaPaths(("spec", "replicas"), ("status", "replicas"), ("spec", "selector"))


def built_in(*, plain_selector: bool = False) -> ObjectCodec[ObservedScale]:
    """Return the codec of a built-in kind. A ReplicationController has a plain map as selector."""
    return _build(_APPS, msgspec.Raw, _bounded(_labels_text if plain_selector else _selector_text))


def custom(paths: ReplicaPaths) -> ObjectCodec[ObservedScale]:
    """Return the codec of a custom kind, whose selector is text."""
    return _build(paths, Any, lambda value: value[:LONGEST_TEXT] if isinstance(value, str) else "")


def parse_paths(spec_replicas: str, status_replicas: str, selector: str) -> ReplicaPaths | None:
    """Parse the paths of a CustomResourceDefinition; None unless they are plain field names and disjoint."""
    written = (spec_replicas, status_replicas, selector) if selector else (spec_replicas, status_replicas)
    if not all(map(_PATH.fullmatch, written)):
        return None
    if any(
        f"{one}.".startswith(f"{other}.") for one, other in itertools.permutations((*written, *_OWN_PATHS), 2)
    ):
        return None
    steps = [tuple(path.split(".")[1:]) for path in written]
    return ReplicaPaths(steps[0], steps[1], steps[2] if selector else ())


# -- selectors -----------------------------------------------------------------------------------------------


LONGEST_TEXT = 32 * 1024
"""Longest selector in bytes. Of a longer one only the beginning is kept, which the decision refuses."""

TEXTS_BYTES = 8 * 1024 * 1024
"""Memory bound of the selector texts, which outlive their objects."""

_LABELS = msgspec.json.Decoder(dict[str, str])
_SELECTOR = msgspec.json.Decoder(APISelector)


def _weigh_text(written: bytes) -> int:
    return 500 + 3 * len(written)


@memo.remember(TEXTS_BYTES, _weigh_text)
def _selector_text(written: bytes) -> str:
    """Return the text as in status.selector of a Scale, "" for a selector the API server would not store."""
    try:
        return str(api_selectors.compile_selector(_SELECTOR.decode(written)))
    except (ValueError, msgspec.MsgspecError):
        return ""


@memo.remember(TEXTS_BYTES, _weigh_text)
def _labels_text(written: bytes) -> str:
    try:
        labels = _LABELS.decode(written)
    except msgspec.MsgspecError:
        return ""
    requirements = (Requirement(key, Operator.EQUALS, (labels[key],)) for key in sorted(labels))
    return str(LabelSelector(tuple(requirements)))


def _bounded(text_of: Callable[[bytes], str]) -> Callable[[Any], str]:
    """Return the function for a selector that is raw JSON; a known selector costs no parsing."""

    def text(raw: Any) -> str:
        written = bytes(raw)
        if len(written) <= LONGEST_TEXT:
            return text_of(written)
        return written[:LONGEST_TEXT].decode("utf-8", "replace")

    return text


# -- a decoder for a few places in an object -----------------------------------------------------------------

Tree = dict[str, Any]
"""Maps field names to a subtree or to the type of a leaf."""


def _plant(tree: Tree, path: tuple[str, ...], leaf: Any) -> None:
    for step in path[:-1]:
        tree = tree.setdefault(step, {})
    tree[path[-1]] = leaf


def _struct(tree: Tree) -> Any:
    """Return a struct type that decodes only the leaves of a tree. Absent fields are None."""
    fields = []
    names = {}
    for number, (name, below) in enumerate(tree.items()):
        field = f"f{number}"
        names[field] = name
        shape = _struct(below) if isinstance(below, dict) else below
        fields.append(
            (field, shape if shape is msgspec.Raw else shape | None, None)
        )  # Raw accepts null itself
    return msgspec.defstruct("_Part", fields, rename=names, frozen=True, gc=False)


def _reader(tree: Tree, path: tuple[str, ...]) -> Callable[[Any], Any]:
    """Return a function that reads a leaf from the struct of a tree."""
    fields = []
    for step in path:
        fields.append(f"f{list(tree).index(step)}")
        tree = tree[step]

    def read(node: Any) -> Any:
        for field in fields:
            node = getattr(node, field, None)  # a part that is absent has none
        return node

    return read


def _build(
    paths: ReplicaPaths, selector_type: Any, text_of: Callable[[Any], str]
) -> ObjectCodec[ObservedScale]:
    owned: Tree = {}
    owned_path = tuple(f"f:{step}" for step in paths.spec_replicas)
    _plant(owned, owned_path, Any)
    owner = msgspec.defstruct(
        "_Entry",
        [("manager", str, ""), ("time", str, ""), ("fields", _struct(owned) | None, None)],
        rename={"fields": "fieldsV1"},
        frozen=True,
        gc=False,
    )
    tree: Tree = {}
    leaves: dict[tuple[str, ...], Any] = {
        ("metadata", "name"): str,
        ("metadata", "namespace"): str,
        ("metadata", "resourceVersion"): str,
        ("metadata", "uid"): str,
        ("metadata", "managedFields"): list[owner],  # type: ignore[valid-type]  # defined at run time
        paths.spec_replicas: Any,
        paths.status_replicas: Any,
        **({paths.selector: selector_type} if paths.selector else {}),
    }
    for path, leaf in leaves.items():
        _plant(tree, path, leaf)
    owns = _reader(owned, owned_path)
    name, namespace, version, uid, managed, replicas, status_replicas = (
        _reader(tree, path) for path in list(leaves)[:7]
    )
    selector = _reader(tree, paths.selector) if paths.selector else lambda _: None

    def keep(document: Any) -> ObservedScale:
        written = selector(document)
        writers = [
            (entry.time, entry.manager) for entry in managed(document) or () if owns(entry.fields) is not None
        ]
        since, manager = max(writers, default=("", ""))
        return ObservedScale(
            sys.intern(namespace(document) or ""),
            name(document) or "",
            _count(replicas(document)),
            _count(status_replicas(document)) or 0,
            "" if written is None else text_of(written),
            version(document) or "",
            manager,
            uid(document) or "",
            since,
        )

    return ObjectCodec(_struct(tree), keep, version_of=lambda document: version(document) or "")


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
