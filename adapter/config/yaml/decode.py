"""Strict decoding of a node tree into fields, with the rules of upstream's parser (yaml.v2, strict mode).

Shapes are values, and the decoder walks a tree by them. Unknown keys, duplicate keys and wrong types are
faults, and all of them are collected; null is the zero value.

Merge keys are applied in their position: they overwrite earlier keys, later keys overwrite them, nested
mappings are filled further and not replaced, and a label that a mapping of labels already has is a duplicate.
yaml.v2 does all of this.
"""

import difflib
import enum
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import yaml

from adapter import errors
from adapter.config.yaml import reader


class Scalar(NamedTuple):
    """A text or boolean field: its text (booleans as ``true`` or ``false``) and line."""

    text: str
    line: int


class Leaf(enum.Enum):
    """What a field without keys of its own holds."""

    TEXT = "text"
    BOOLEAN = "true or false"
    NODE = "a node that the caller decodes"


@dataclass(frozen=True)
class Shape:
    """A mapping with fixed keys.

    `what` names it in messages. `notes` has a sentence for keys that are often written here by mistake.
    `instead` makes a sentence for a scalar in place of the mapping, from its key and its text.
    """

    what: str
    fields: Mapping[str, "Leaf | Shape | ListOf | MapOf"]
    notes: Mapping[str, str] = field(default_factory=dict)
    instead: Callable[[str, str], str] | None = None


@dataclass(frozen=True)
class ListOf:
    item: Shape


@dataclass(frozen=True)
class MapOf:
    """A mapping with free keys whose values have one shape."""

    item: Shape


@dataclass
class Fields:
    """The fields of one mapping, without absent and null keys. `broken`: the node was no mapping."""

    decoder: "Decoder" = field(repr=False, compare=False)
    path: str
    line: int = 0
    broken: bool = False
    scalars: dict[str, Scalar] = field(default_factory=dict)
    structs: dict[str, "Fields"] = field(default_factory=dict)
    lists: dict[str, list["Fields"]] = field(default_factory=dict)
    maps: dict[str, dict[str, "Fields"]] = field(default_factory=dict)
    nodes: dict[str, yaml.Node] = field(default_factory=dict)

    def text(self, key: str) -> str:
        """Return a text field, "" when absent."""
        scalar = self.scalars.get(key)
        return scalar.text if scalar else ""

    def struct(self, key: str) -> "Fields":
        """Return a nested mapping, an empty one when absent."""
        return self.structs.get(key) or Fields(self.decoder, reader.join(self.path, key), self.line)

    def lines(self) -> dict[str, int]:
        """Return the line of the mapping and of all below it, by path."""
        lines = {reader.join(self.path, key): scalar.line for key, scalar in self.scalars.items()}
        values = (*self.lists.values(), *(entries.values() for entries in self.maps.values()))
        for fields in (*self.structs.values(), *itertools.chain.from_iterable(values)):
            lines |= fields.lines()
        return {self.path: self.line} | lines

    def refuse(self, key: str, expected: str) -> None:
        """Report a fault of a text field, or that it is missing."""
        place = reader.join(self.path, key)
        if key in self.scalars:
            text, line = self.scalars[key]
            self.decoder.fault(place, reader.shown_text(text), expected, line)
        else:
            self.decoder.fault(place, "", f"missing: {expected}", self.line)

    def fault(self, value: str, expected: str) -> None:
        self.decoder.fault(self.path, value, expected, self.line)

    def clear(self, key: str) -> None:
        """Give a field its zero value."""
        for values in (self.scalars, self.structs, self.lists, self.maps, self.nodes):
            values.pop(key, None)


class Decoder:
    """Decodes nodes of one source and collects `faults`.

    `vocabulary` says for keys of the whole document where they belong, to recognise a key under the wrong
    parent.
    """

    def __init__(self, source: str, vocabulary: Mapping[str, str]) -> None:
        self.source = source
        self.faults: list[errors.Fault] = []
        self._vocabulary = vocabulary

    def fault(self, path: str, value: str, expected: str, line: int) -> None:
        self.faults.append(errors.Fault(path, value, expected, self.source, line))

    def decode(self, node: yaml.Node, shape: Shape, path: str, key: str = "") -> Fields:
        """Return the fields of a mapping; no fields for null, and a fault for anything else."""
        fields = Fields(self, path, reader.line_of(node))
        self._fill(node, shape, fields, key)
        return fields

    def _fill(self, node: yaml.Node, shape: Shape, fields: Fields, key: str) -> None:
        if reader.is_null(node):
            return
        if not isinstance(node, yaml.MappingNode):
            expected = f"expected a mapping: {shape.what} has {', '.join(shape.fields)}"
            if shape.instead and isinstance(node, yaml.ScalarNode):
                expected = shape.instead(key, str(node.value))
            fields.broken = True
            self.fault(fields.path, reader.shown(node), expected, reader.line_of(node))
            return
        seen: set[str] = set()
        for name, key_node, value in self._pairs(node, fields.path):
            if name is None:
                for merged in self._merge_sources(value, fields.path):
                    self._fill(merged, shape, fields, key)
                continue
            place, line = reader.join(fields.path, name), reader.line_of(key_node)
            kind = shape.fields.get(name)
            if name in seen:
                self.fault(place, reader.shown(value), "this key is given twice", line)
            elif kind is None:
                self.fault(place, reader.shown(value), self._unknown(name, shape), line)
            else:
                self._field(value, kind, name, place, fields)
            seen.add(name)

    def _field(
        self, node: yaml.Node, kind: "Leaf | Shape | ListOf | MapOf", key: str, path: str, into: Fields
    ) -> None:
        if reader.is_null(node):
            into.clear(key)
        elif isinstance(kind, Shape):
            nested = into.structs.setdefault(key, Fields(self, path, reader.line_of(node)))
            self._fill(node, kind, nested, key)
        elif isinstance(kind, ListOf):
            entries = node.value if isinstance(node, yaml.SequenceNode) else []
            if not isinstance(node, yaml.SequenceNode):
                expected = f"expected a list, each entry {kind.item.what}"
                self.fault(path, reader.shown(node), expected, reader.line_of(node))
            into.lists[key] = [
                self.decode(entry, kind.item, reader.join(path, index)) for index, entry in enumerate(entries)
            ]
        elif isinstance(kind, MapOf):
            self._map(node, kind.item, path, into.maps.setdefault(key, {}))
        elif kind is Leaf.NODE:
            into.nodes[key] = node
        else:
            self._leaf(node, kind, key, path, into)

    def _leaf(self, node: yaml.Node, kind: Leaf, key: str, path: str, into: Fields) -> None:
        text = None
        if kind is Leaf.BOOLEAN:
            value = reader.boolean_of(node)
            text = None if value is None else str(value).lower()
        elif isinstance(node, yaml.ScalarNode):
            text = reader.text_of(node)
        line = reader.line_of(node)
        if text is None:
            self.fault(path, reader.shown(node), f"expected {kind.value}", line)
            return
        into.scalars[key] = Scalar(text, line)

    def _map(self, node: yaml.Node, item: Shape, path: str, into: dict[str, Fields]) -> None:
        if not isinstance(node, yaml.MappingNode):
            self.fault(
                path, reader.shown(node), f"expected a mapping, each value {item.what}", reader.line_of(node)
            )
            return
        for name, key_node, value in self._pairs(node, path):
            if name is None:
                for merged in self._merge_sources(value, path):
                    self._map(merged, item, path, into)
                continue
            place = reader.join(path, name)
            if name in into:
                line = reader.line_of(key_node)
                self.fault(
                    place, reader.shown(value), "this key is given twice, here or through a merge key", line
                )
                continue
            into[name] = self.decode(value, item, place, name)

    def _pairs(self, node: yaml.MappingNode, path: str) -> Iterator[tuple[str | None, yaml.Node, yaml.Node]]:
        """Yield key text (None for a merge key), key node and value; a key that is not text is a fault."""
        for key, value in node.value:
            if reader.is_merge(key):
                yield None, key, value
                continue
            text = reader.text_of(key) if isinstance(key, yaml.ScalarNode) else None
            if text is None:
                self.fault(path, reader.shown(key), "expected text as the key", reader.line_of(key))
                continue
            yield ("" if reader.is_null(key) else text), key, value

    def _merge_sources(self, node: yaml.Node, path: str) -> list[yaml.MappingNode]:
        """Return the mappings of a merge key, last first: earlier entries of a list win."""
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        mappings = [source for source in sources if isinstance(source, yaml.MappingNode)]
        if len(mappings) != len(sources):
            expected = "expected a mapping or a list of mappings to merge"
            self.fault(reader.join(path, "<<"), reader.shown(node), expected, reader.line_of(node))
        return mappings[::-1]

    def _unknown(self, key: str, shape: Shape) -> str:
        note = shape.notes.get(key)
        if note:
            return note
        allowed = f"{shape.what} has {', '.join(shape.fields)}"
        for known in shape.fields:
            if known.lower() == key.lower():
                return f"unknown key, did you mean {known}? Keys are case-sensitive"
        home = self._vocabulary.get(key)
        if home:
            return f"unknown key here: {key} belongs {home}, check the indentation; {allowed}"
        near = difflib.get_close_matches(key, shape.fields, n=1)
        return f"unknown key, did you mean {near[0]}? {allowed}" if near else f"unknown key; {allowed}"
