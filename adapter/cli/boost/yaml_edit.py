"""Changes of a YAML document made in its text: what is not changed stays as somebody wrote it, comments and all.

Here: where in a text an operation of a JSON patch belongs, in block and in flow style, and how values are written. Not here: which
operations. Law: the text that comes out is read again and has to say what the operations say; where it does not (aliases, merge keys
and the like), the document is written anew as a whole.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import yaml

from adapter.cli.boost import json_patch
from adapter.cli.boost.json_patch import ADD, END, REMOVE, TEST, Operation
from adapter.config.yaml import documents, reader
from adapter.config.yaml.documents import YAMLDocument

_DASH = re.compile(r"([ ]*)-[ ]+")
_COMMENTS = re.compile(r"(?:\r?\n[ \t]*(?:#[^\n]*)?)*\Z")
_NOT_TEXT_IN_GO = re.compile(r"[-+.]?[0-9].*|[yYnN]|")
"""What other readers of YAML may take for a number or a boolean where PyYAML reads text: 1e3, 0o7, y."""


class Edited(NamedTuple):
    """A text after operations; `anew` tells that it was written as a whole, without its comments."""

    text: str
    anew: bool


class _Splice(NamedTuple):
    """What comes into a text in place of what stands from `start` to `end`."""

    start: int
    end: int
    text: str


class _Dumper(yaml.SafeDumper):
    """Writes every value out, and text so that no reader takes it for something else."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002  # the signature is PyYAML's
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(reader.TEXT, text, style='"' if _NOT_TEXT_IN_GO.fullmatch(text) else None)


_Dumper.add_representer(str, _represent_text)


def _dumped(value: object, *, flow: bool) -> str:
    """Return a mapping or a list as YAML, without the last line's break."""
    options: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": math.inf}
    dumped: str = yaml.dump(value, Dumper=_Dumper, default_flow_style=flow, **options)
    return dumped.removesuffix("\n")


def edit(part: str, lines: int, document: YAMLDocument, operations: Sequence[Operation]) -> Edited:
    """Return the text of a document after operations.

    `part`, `lines` and `document` are as `yamldocuments.split_documents` and `read_part` gave them. Of the operations each index is that
    of the document as it is given.
    """
    text = _Text(part, lines, document.root)
    wanted = json_patch.apply(document.value, operations)
    try:
        edited = _spliced(
            part, [splice for each in operations if each.op != TEST for splice in text.place(each)]
        )
    except LookupError:
        return Edited(text.written(wanted), anew=True)
    again = documents.read_part(0, edited, "")
    if isinstance(again, YAMLDocument) and again.value == wanted:
        return Edited(edited, anew=False)
    return Edited(text.written(wanted), anew=True)


def _spliced(text: str, splices: Iterable[_Splice]) -> str:
    pieces: list[str] = []
    place = 0
    for start, end, new in sorted(splices, key=lambda splice: splice[:2]):
        if start < place:
            raise LookupError("two changes of the same place")
        pieces += (text[place:start], new)
        place = end
    return "".join((*pieces, text[place:]))


class _Text:
    """The text of a document with the tree that was read from it. LookupError: a change has no place of its own in the text."""

    def __init__(self, text: str, lines: int, root: yaml.Node) -> None:
        self._text = text
        self._lines = lines
        self._root = root
        self._break = "\r\n" if "\r\n" in text else "\n"
        self._json = (
            isinstance(root, yaml.MappingNode) and bool(root.flow_style) and root.value[0][0].style == '"'
        )
        """Whether what is written in flow style is JSON."""

    def place(self, operation: Operation) -> Iterator[_Splice]:
        """Yield what an operation changes in the text."""
        *above, name = operation.path
        node = self._root
        for step in above:
            node = self._below(node, step)[1]
        if isinstance(node, yaml.SequenceNode):
            yield from self._in_list(node, name, operation)
            return
        assert isinstance(node, yaml.MappingNode)
        if not any(key.value == name for key, _ in node.value):
            yield self._added(node, {name: operation.value})
            return
        key, value = self._below(node, name)
        if operation.op == REMOVE:
            yield self._removed(node, [key for key, _ in node.value], key, value)
        elif isinstance(operation.value, str):
            yield self._replaced(value, operation.value)
        else:
            yield from self._filled(node, key, value, operation.value)

    def written(self, value: Any) -> str:
        """Return the text with another value in place of the root, in block style."""
        start, end = self._start(self._root), int(self._root.end_mark.index) - self._lines
        before = self._break if self._root.start_mark.column else ""
        # what looks like comments at the end stays, be it part of a text: it is a comment now
        comments = _COMMENTS.search(self._text, start, end)
        assert comments is not None  # it fits no text too
        end = comments.start()
        after = "" if self._text[end:].startswith(("\r", "\n")) else self._break
        return self._text[:start] + before + self._block(value, 0) + after + self._text[end:]

    # --- where a node is ---------------------------------------------------------------------------------------------

    def _below(self, node: yaml.Node, step: str) -> tuple[yaml.Node, yaml.Node]:
        """Return key and value of a mapping's entry, or an item of a list twice; not what an alias stands for."""
        found: tuple[yaml.Node, yaml.Node] | None = None
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == step), None)
        else:
            found = (node.value[int(step)],) * 2
        if found is None or self._start(found[1]) < max(self._start(node), self._start(found[0])):
            raise LookupError(f"{step} stands somewhere else")
        return found

    def _start(self, node: yaml.Node) -> int:
        return int(node.start_mark.index) - self._lines

    def _end(self, node: yaml.Node) -> int:
        """Return where the last character of a node has been; comments and blank lines after it do not belong to it."""
        end = int(node.end_mark.index) - self._lines
        if isinstance(node, yaml.ScalarNode) and node.style in {"|", ">"}:
            start = self._start(node)
            return start + len(self._text[start:end].rstrip())
        if not isinstance(node, yaml.CollectionNode) or node.flow_style:
            return end
        last = node.value[-1]
        return self._end(
            self._below(node, last[0].value if isinstance(last, tuple) else str(len(node.value) - 1))[1]
        )

    def _line_end(self, index: int) -> int:
        """Return the end of the line, before what breaks it."""
        end = self._text.find("\n", index)
        end = len(self._text) if end < 0 else end
        return end - 1 if self._text[index:end].endswith("\r") else end

    def _line_start(self, index: int) -> int:
        return self._text.rfind("\n", 0, index) + 1

    def _end_before(self, start: int) -> int:
        """Return the end of the line before the one that begins at `start`."""
        if not start:
            raise LookupError("there is no line before")
        return start - (2 if self._text.endswith("\r\n", 0, start) else 1)

    def _indent_of_items(self, node: yaml.SequenceNode) -> int:
        first = self._start(self._below(node, "0")[1])
        dash = _DASH.fullmatch(self._text, self._line_start(first), first)
        if dash is None:
            raise LookupError("the list does not begin on a line of its own")
        return len(dash[1])

    # --- what is done to it ------------------------------------------------------------------------------------------

    def _in_list(self, node: yaml.SequenceNode, name: str, operation: Operation) -> Iterator[_Splice]:
        value = operation.value
        if operation.op == REMOVE:
            item = self._below(node, name)[1]
            yield self._removed(node, node.value, item, item)
        elif operation.op != ADD:
            item = self._below(node, name)[1]
            text = self._flow([value]) if node.flow_style else self._block(value, item.start_mark.column)
            yield _Splice(self._start(item), self._end(item), text)
        elif name == END:
            yield self._added(node, [value])
        elif node.flow_style:
            start = self._start(self._below(node, name)[1])
            yield _Splice(start, start, f"{self._flow([value])}, ")
        else:
            indent = self._indent_of_items(node)
            end = self._end_before(self._line_start(self._start(self._below(node, name)[1])))
            yield _Splice(end, end, self._lines_of([value], indent))

    def _added(self, node: yaml.CollectionNode, new: Any) -> _Splice:
        """Return what adds the entries of `new` after the last one of a mapping or a list."""
        if not node.value:  # in flow style, for an empty one has no other
            end = self._end(node) - 1
            return _Splice(end, end, self._flow(new))
        if node.flow_style:
            last = node.value[-1]
            end = self._end(self._below(node, last[0].value)[1] if isinstance(last, tuple) else last)
            return _Splice(end, end, f", {self._flow(new)}")
        if isinstance(node, yaml.SequenceNode):
            indent = self._indent_of_items(node)
        else:
            indent = node.value[0][0].start_mark.column
        end = self._line_end(self._end(node))
        return _Splice(end, end, self._lines_of(new, indent))

    def _removed(
        self, node: yaml.CollectionNode, entries: list[yaml.Node], first: yaml.Node, last: yaml.Node
    ) -> _Splice:
        """Return what takes away the entry from node `first` to node `last`; `entries` are where each entry begins."""
        start, end = self._start(first), self._end(last)
        if not node.flow_style:
            line = self._line_start(start)
            before = self._text[line:start]
            if before.strip(" ") != ("-" if isinstance(node, yaml.SequenceNode) else ""):
                raise LookupError("the entry does not begin on a line of its own")
            return _Splice(self._end_before(line), self._line_end(end), "")
        index = entries.index(first)
        if index:
            previous = node.value[index - 1]
            return _Splice(self._end(previous[1] if isinstance(previous, tuple) else previous), end, "")
        return _Splice(start, self._start(entries[1]) if len(entries) > 1 else end, "")

    def _replaced(self, node: yaml.Node, text: str) -> _Splice:
        """Return what puts a text in place of a scalar, between its quotes if it has any; of what is not there, after the colon."""
        assert isinstance(node, yaml.ScalarNode)
        start, end = self._start(node), self._end(node)
        written = json.dumps(text, ensure_ascii=False) if node.style == '"' else self._flow([text])
        return _Splice(start, end, written if end > start else f" {written}")

    def _filled(
        self, mapping: yaml.MappingNode, key: yaml.Node, node: yaml.Node, value: object
    ) -> Iterator[_Splice]:
        """Yield what puts a mapping or a list in place of nothing: null, or what is empty."""
        start, end = self._start(node), self._end(node)
        if mapping.flow_style:
            flow = self._flow([value])
            yield _Splice(start, end, flow if end > start else f" {flow}")
            return
        colon = self._text.index(":", self._end(key)) + 1
        if node.value and not reader.is_null(node):
            raise LookupError("something is there already")
        yield _Splice(colon, end, "")
        line_end = self._line_end(end)
        indent = key.start_mark.column + (2 if isinstance(value, dict) else 0)
        yield _Splice(line_end, line_end, self._lines_of(value, indent))

    # --- how a value is written --------------------------------------------------------------------------------------

    def _block(self, value: object, indent: int) -> str:
        """Return a value in block style without the indentation of its first line, and without the last line's break."""
        dumped = _dumped(value, flow=False)
        pad = " " * indent
        first, *rest = dumped.split("\n")
        return self._break.join([first, *(pad + line if line else "" for line in rest)])

    def _lines_of(self, value: object, indent: int) -> str:
        """Return a mapping or a list as lines that follow one."""
        return f"{self._break}{' ' * indent}{self._block(value, indent)}"

    def _flow(self, value: object) -> str:
        """Return the entries of a mapping or a list in flow style, without its brackets."""
        if self._json:
            return json.dumps(value, ensure_ascii=False)[1:-1]
        return _dumped(value, flow=True)[1:-1]
