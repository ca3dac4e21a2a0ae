"""What is kept of a scale target, whatever its kind, and how it is found in the objects of that kind.

What lives here: where a kind keeps its replicas, the small decoder made for those places, the record, and who wrote the count last. Not
here: which kinds are watched (`targetkinds`). The law: the record says what a GET of the scale would have said, so a write against its version
needs none.
"""

import itertools
import re
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from adapter.kubernetes.codec import Form
from adapter.model import memo
from adapter.model.selectors import api_selectors
from adapter.model.selectors.api_selectors import APISelector
from adapter.model.selectors.label_selectors import LabelSelector, Operator, Requirement


class ScalePaths(NamedTuple):
    """Where objects keep their replicas and selector: field names from the top. `selector` may be nowhere."""

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
_APPS = ScalePaths(("spec", "replicas"), ("status", "replicas"), ("spec", "selector"))


class Seen(msgspec.Struct, frozen=True, gc=False):
    """A scale as its object says it. `replicas` is None where the object does not have the field.

    `selector` is text, `manager` the field manager that wrote the count last as far as the object tells, "" where it does not; `since` is
    when that was, as the API server writes times.
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


def same_scale(one: Seen, other: Seen) -> bool:
    """Tell whether two states of an object differ in nothing that a decision is made from."""
    return (one.replicas, one.status_replicas, one.selector, one.uid) == (
        other.replicas,
        other.status_replicas,
        other.selector,
        other.uid,
    )


def built_in(*, plain_selector: bool = False) -> Form[Seen]:
    """Return the form of a built-in kind; a ReplicationController's selector is labels alone."""
    return _build(_APPS, msgspec.Raw, _bounded(_text_of_labels if plain_selector else _text_of))


def custom(paths: ScalePaths) -> Form[Seen]:
    """Return the form of a custom kind; its selector is text already."""
    return _build(paths, Any, _plain_text)


def parse_paths(spec_replicas: str, status_replicas: str, selector: str) -> ScalePaths | None:
    """Return the paths of a CustomResourceDefinition, None for such as are not plain field names, or lie within one another."""
    written = (spec_replicas, status_replicas, selector) if selector else (spec_replicas, status_replicas)
    if not all(map(_PATH.fullmatch, written)):
        return None
    if any(
        f"{one}.".startswith(f"{other}.") for one, other in itertools.permutations((*written, *_OWN_PATHS), 2)
    ):
        return None
    steps = [tuple(path.split(".")[1:]) for path in written]
    return ScalePaths(steps[0], steps[1], steps[2] if selector else ())


# -- selectors ---------------------------------------------------------------------------------------------------------------


LONGEST_TEXT = 32 * 1024
"""Bytes of a selector that are read: of a longer one the beginning is kept, which `decide` refuses."""

TEXTS_BYTES = 8 * 1024 * 1024
"""Room for the texts of selectors, which outlive the objects that they come from."""

_LABELS = msgspec.json.Decoder(dict[str, str])
_SELECTOR = msgspec.json.Decoder(APISelector)


def _weigh_text(written: bytes) -> int:
    return 500 + 3 * len(written)


@memo.remember(TEXTS_BYTES, _weigh_text)
def _text_of(written: bytes) -> str:
    """Return the text that status.selector of a Scale carries; "" for one that is wrong, which the API server would not store."""
    try:
        return str(api_selectors.compile_selector(_SELECTOR.decode(written)))
    except (ValueError, msgspec.MsgspecError):
        return ""


@memo.remember(TEXTS_BYTES, _weigh_text)
def _text_of_labels(written: bytes) -> str:
    try:
        labels = _LABELS.decode(written)
    except msgspec.MsgspecError:
        return ""
    requirements = (Requirement(key, Operator.EQUALS, (labels[key],)) for key in sorted(labels))
    return str(LabelSelector(tuple(requirements)))


def _bounded(text_of: Callable[[bytes], str]) -> Callable[[Any], str]:
    """Return the function for a selector that is still JSON, so that an event costs no more than its bytes."""

    def text(found: Any) -> str:
        written = bytes(found)
        return (
            text_of(written)
            if len(written) <= LONGEST_TEXT
            else written[:LONGEST_TEXT].decode("utf-8", "replace")
        )

    return text


def _plain_text(found: Any) -> str:
    return found[:LONGEST_TEXT] if isinstance(found, str) else ""


# -- a decoder for a few places in an object ----------------------------------------------------------------------------------

Tree = dict[str, Any]
"""Field names to what is below them: a tree again, or the type of a leaf."""


def _plant(tree: Tree, path: tuple[str, ...], leaf: Any) -> None:
    for step in path[:-1]:
        tree = tree.setdefault(step, {})
    tree[path[-1]] = leaf


def _struct(tree: Tree) -> Any:
    """Return a struct that decodes the leaves of a tree and skips all else; what is not there is None."""
    fields = []
    names = {}
    for number, (name, below) in enumerate(tree.items()):
        field = f"f{number}"
        names[field] = name
        shape = _struct(below) if isinstance(below, dict) else below
        fields.append((field, shape if shape is msgspec.Raw else shape | None, None))  # Raw takes null too
    return msgspec.defstruct("_Part", fields, rename=names, frozen=True, gc=False)


def _reader(tree: Tree, path: tuple[str, ...]) -> Callable[[Any], Any]:
    """Return the function that finds a leaf in the struct of a tree."""
    fields = []
    for step in path:
        fields.append(f"f{list(tree).index(step)}")
        tree = tree[step]

    def read(found: Any) -> Any:
        for field in fields:
            if found is None:
                return None
            found = getattr(found, field)
        return found

    return read


_MANAGED = ("metadata", "managedFields")


def _build(paths: ScalePaths, selector_type: Any, text_of: Callable[[Any], str]) -> Form[Seen]:
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
        _MANAGED: list[owner],  # type: ignore[valid-type]  # made at run time
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

    def keep(found: Any) -> Seen:
        written = selector(found)
        writers = [
            (each.time, each.manager) for each in managed(found) or () if owns(each.fields) is not None
        ]
        since, manager = max(writers, default=("", ""))
        return Seen(
            namespace(found) or "",
            name(found) or "",
            _count(replicas(found)),
            _count(status_replicas(found)) or 0,
            "" if written is None else text_of(written),
            version(found) or "",
            manager,
            uid(found) or "",
            since,
        )

    return Form(_struct(tree), keep)


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
