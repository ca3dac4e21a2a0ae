"""YAML with several documents as plain values: mappings, lists, text, numbers, booleans and null, as in JSON.

For documents of Kubernetes objects. Unquoted times, and all else without a form in JSON, stay text. `reader`
reads the text within its limits against hostile input. Any text ends in values or in an `InputError`; a
duplicate key is a fault, and merge keys are applied without overwriting keys.

A text that is one JSON document is read as such, many times as fast. What YAML refuses is not read so: keys
given twice, halves of surrogate pairs, NaN. The YAML reader then says what is wrong, and where.
"""

import bisect
import itertools
import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import yaml

from adapter.config.yaml import reader
from adapter.errors import Fault, InputError

_MARKER = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_NO_CONTENT = re.compile(r"[ \t]*(?:#[^\n]*)?\r?\n?\Z")
_NOTHING_MORE = re.compile(r"(?:\s|#[^\n]*|\.\.\.)*")
_INT = "tag:yaml.org,2002:int"
_FLOAT = "tag:yaml.org,2002:float"
_DECIMAL = re.compile(r"[+-]?(?:0|[1-9][0-9_]{0,40})")
_BASED = re.compile(r"([+-]?)0(x[0-9a-fA-F_]{1,40}|o?[0-7_]{1,40}|b[01_]{1,200})")
_ENDLESS = {".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf, ".nan": math.nan}

MOST_DOCUMENTS = 10_000
"""Documents of a text, each of which takes a reader of its own."""


_BLANK = re.compile(r"[ \t\r\n]*")
_LONGEST_INTEGER = 40
_READER = json.JSONDecoder()


class JSONText:
    """The text of a JSON document. Positions are found by walking down from the root."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._breaks: list[int] | None = None
        self._below: dict[int, dict[str | int, int]] = {}

    @property
    def root(self) -> int:
        return self._skip(0)

    def line_at(self, position: int) -> int:
        if self._breaks is None:
            self._breaks = [match.start() for match in re.finditer("\n", self._text)]
        return bisect.bisect_left(self._breaks, position) + 1

    def child(self, position: int, step: str | int) -> int | None:
        """Return the position of a field or an item of the value at `position`, None without one."""
        if position not in self._below:
            self._below[position] = dict(self._children(position))
        return self._below[position].get(step)

    def _children(self, position: int) -> Iterator[tuple[str | int, int]]:
        opening = self._text[position]
        if opening not in "{[":
            return
        at, index = self._skip(position + 1), itertools.count()
        while self._text[at] not in "}]":
            step: str | int = next(index)
            if opening == "{":
                step, at = _READER.raw_decode(self._text, at)
                at = self._skip(self._skip(at) + 1)
            yield step, at
            at = self._skip(_READER.raw_decode(self._text, at)[1])
            at = self._skip(at + 1) if self._text[at] == "," else at

    def _skip(self, position: int) -> int:
        match = _BLANK.match(self._text, position)
        return match.end() if match else position


class YAMLDocument(NamedTuple):
    """One document of a text: its value, and where its parts are."""

    value: object
    places: yaml.Node | JSONText

    def line_of(self, path: str) -> int:
        """Return the line of a JSON path, or of its nearest parent that exists.

        A step is a key, an index, or a quoted key: ``pods[0].metadata.labels["app.kubernetes.io/name"]``.
        """
        steps = [
            json.loads(quoted) if quoted else name or int(index)
            for quoted, name, index in _STEP.findall(path)
        ]
        if isinstance(self.places, JSONText):
            position = self.places.root
            for step in steps:
                place = self.places.child(position, step)
                if place is None:
                    break
                position = place
            return self.places.line_at(position)
        node = self.places
        for step in steps:
            below = _child(node, step)
            if below is None:
                break
            node = below
        return reader.line_of(node)


_STEP = re.compile(r"""\[("(?:[^"\\]|\\.)*")\]|([^.\[\]]+)|\[(\d{1,9})\]""")


def _child(node: yaml.Node, step: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == step), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        item: yaml.Node = node.value[step]
        return item
    return None


def split_documents(text: str) -> Iterator[tuple[int, str]]:
    """Yield the text of each document and how many lines stand before it; joined they are the text.

    The ``---`` before a document and the directives before that (``%YAML 1.1``) belong to it.
    """
    starts = [0]
    for match in _MARKER.finditer(text):
        starts.append(_begin(text, match.start(), starts[-1]))
    lines = 0
    for start, end in itertools.pairwise([*starts, len(text)]):
        part = text[start:end]
        yield lines, part
        lines += part.count("\n")


def _begin(text: str, marker: int, after: int) -> int:
    """Return where the document of a ``---`` begins: at the first of the directives before it, else there.

    Comments and blank lines may stand between them. `after` is where the document before it begins.
    """
    begin = place = marker
    while place > after:
        line = text.rfind("\n", after, place - 1) + 1 or after
        if text.startswith("%", line):
            begin = line
        elif not _NO_CONTENT.match(text, line, place):
            break
        place = line
    return begin


def read_documents(text: str, source: str) -> Iterator[YAMLDocument | InputError]:
    """Yield each document of a text, or why it cannot be read; empty ones are left out.

    A document begins at a line with ``---``. A fault in one does not hide the others.
    """
    if (value := read_json(text)) is not None:
        yield YAMLDocument(value, JSONText(text))
        return
    try:
        refuse_large(text, source)
    except InputError as error:
        yield error
        return
    for lines, part in split_documents(text):
        document = read_part(lines, part, source)
        if document is not None:
            yield document


def refuse_large(text: str, source: str) -> None:
    """Raise InputError for a text that would take too long to read."""
    reader.refuse_long(text, source)
    count = sum(1 for _ in itertools.islice(_MARKER.finditer(text), MOST_DOCUMENTS + 1))
    if count > MOST_DOCUMENTS:
        raise InputError([Fault("", "", f"expected at most {MOST_DOCUMENTS:,} documents", source)])


def read_part(lines: int, part: str, source: str) -> YAMLDocument | InputError | None:
    """Return the document of one part of a text with `lines` before it, None for an empty one.

    Marks of its nodes count these lines, as blank ones: an index less `lines` is one in the part.
    """
    if not part.strip():
        return None
    try:
        root = reader.compose(part, source, lines)
        if root is None or reader.is_null(root):
            return None
        if not _NOTHING_MORE.fullmatch(part, root.end_mark.index - lines):  # it would not be read
            expected = "unexpected text after the document; another document begins with ---"
            return InputError([Fault("", "", expected, source, root.end_mark.line + 1)])
        return YAMLDocument(_plain(root, source, {}), root)
    except InputError as error:
        return error


def _plain(node: yaml.Node, source: str, known: dict[int, object]) -> object:
    """Return the value of a node; the value of an anchor is computed once."""
    if id(node) not in known:
        if isinstance(node, yaml.MappingNode):
            known[id(node)] = _mapping(node, source, known)
        elif isinstance(node, yaml.SequenceNode):
            known[id(node)] = [_plain(item, source, known) for item in node.value]
        else:
            assert isinstance(node, yaml.ScalarNode)
            known[id(node)] = _scalar(node)
    return known[id(node)]


def _mapping(node: yaml.MappingNode, source: str, known: dict[int, object]) -> dict[str, object]:
    merged: dict[str, object] = {}
    own: dict[str, object] = {}
    for key, value in node.value:
        if reader.is_merge(key):
            for source_node in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                below = _plain(source_node, source, known)
                if not isinstance(below, dict):
                    raise _fault(
                        "<<", reader.shown(source_node), "expected a mapping to merge", source, source_node
                    )
                merged = below | merged
            continue
        if not isinstance(key, yaml.ScalarNode):
            raise _fault("", reader.shown(key), "expected text as the key", source, key)
        name = str(key.value)
        if name in own:
            raise _fault(name, "", "the key is given twice", source, key)
        own[name] = _plain(value, source, known)
    return merged | own


def _fault(path: str, value: str, expected: str, source: str, node: yaml.Node) -> InputError:
    return InputError([Fault(path, value, expected, source, reader.line_of(node))])


def _scalar(node: yaml.ScalarNode) -> object:
    if reader.is_null(node):
        return None
    written = str(node.value)
    if node.tag == reader.BOOL:
        return reader.boolean_of(node)
    if node.tag == _INT:
        return _integer(written)
    if node.tag == _FLOAT:
        return _fraction(written)
    return written


def _integer(written: str) -> object:
    """Return an integer of any base of YAML; text if it is sexagesimal or very long."""
    if _DECIMAL.fullmatch(written):
        return int(written)
    if based := _BASED.fullmatch(written):
        digits = based[2].replace("_", "").lower()
        base = {"x": 16, "b": 2}.get(digits[:1], 8)
        value = int(digits.lstrip("xob") or "0", base)
        return -value if based[1] == "-" else value
    return written


def _fraction(written: str) -> object:
    if (endless := _ENDLESS.get(written.lower())) is not None:
        return endless
    try:
        return float(written.replace("_", ""))
    except ValueError:  # sexagesimal
        return written


def read_json(text: str) -> object | None:
    """Return the value of a JSON object or array; None for a text that the YAML reader has to read."""
    if text.lstrip(" \t\r\n")[:1] not in {"{", "["}:
        return None
    try:
        value: object = json.loads(
            text, object_pairs_hook=_unique, parse_int=_bounded_integer, parse_constant=_refuse
        )
    except (ValueError, RecursionError):
        return None
    return value if _is_sound(value) else None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) < len(pairs):
        raise ValueError("a key is given twice")
    return read


def _bounded_integer(written: str) -> int | str:
    return int(written) if len(written) <= _LONGEST_INTEGER else written


def _refuse(written: str) -> object:
    raise ValueError(written)


def _is_sound(value: object) -> bool:
    """Tell whether a value is within the depth of YAML documents, and its texts are Unicode."""
    pending = [(value, 0)]
    while pending:
        part, depth = pending.pop()
        if isinstance(part, str) and not part.isascii() and reader.SURROGATE.search(part):
            return False
        if depth > reader.DEPTH_LIMIT:
            return False
        if isinstance(part, dict):
            pending += ((below, depth + 1) for below in part.values())
            pending += ((key, depth + 1) for key in part if not key.isascii())
        elif isinstance(part, list):
            pending += ((below, depth + 1) for below in part)
    return True


def located(fault: Fault, place: str, document: YAMLDocument, source: str) -> Fault:
    """Return a fault of an object with file and line; `place` is its path with a final dot, or ""."""
    path = f"{place}{fault.path}"
    return replace(fault, path=path, source=source, line=document.line_of(path))
