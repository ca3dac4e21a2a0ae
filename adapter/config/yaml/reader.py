"""YAML text as a node tree with line numbers, and the description of a node in messages.

Nodes and not Python values, because a text field takes a number or a boolean as its literal text (`as: 123`,
`as: yes`), and because every fault names its line.

The reader accepts YAML 1.1 as libyaml does (upstream's parser is a port of it), the first document only,
within limits against hostile input. Any text ends in a tree or in an `InputError`, never in another
exception.
"""

import base64
import binascii
import json
import re
from collections.abc import Hashable
from typing import ClassVar

import yaml

from adapter import errors
from adapter.model import visible

NULL = "tag:yaml.org,2002:null"
BOOL = "tag:yaml.org,2002:bool"
MERGE = "tag:yaml.org,2002:merge"
BINARY = "tag:yaml.org,2002:binary"
TEXT = "tag:yaml.org,2002:str"

_BOOLEANS = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}

ALIAS_LIMIT = 400_000
"""Nodes that aliases may add to a document; anchors of anchors grow exponentially."""

LONGEST = 2 * 1024 * 1024
"""Characters of a text. Reading it takes seconds, and some 100 bytes of memory for each."""

NODE_LIMIT = 200_000
"""Nodes of a document; two million characters may be half a million."""

SURROGATE = re.compile("[\ud800-\udfff]")

DEPTH_LIMIT = 100
"""Maximum depth, aliases included; a rules file needs seven levels, the chart's values a few more."""

_TOO_DEEP = f"nested more than {DEPTH_LIMIT} levels deep"

# Characters of a plain scalar up to the blank, break or indicator that may end it; a colon ends it only
# before a blank.
_BLANK_OR_END = r"\0 \t\r\n\x85\u2028\u2029"
_PLAIN_IN_BLOCK = re.compile(rf"(?:[^{_BLANK_OR_END}:]|:(?![{_BLANK_OR_END}]))*")
_PLAIN_IN_FLOW = re.compile(rf"(?:[^{_BLANK_OR_END}:,?\[\]{{}}]|:(?![{_BLANK_OR_END}]))*")

_SHOWN = 60
_SIMPLE_KEY = re.compile(r"[A-Za-z0-9_:-]+")
_WORDS = {"the node": "some", "'<stream end>'": "the end", "<block end>": "an end", "'<scalar>'": "text"}
_QUOTED_VALUE = re.compile(r'\s*(- )?[\w.-]+:\s+"')


class _Loader(yaml.SafeLoader):
    """PyYAML's loader, changed to read as Go's port of libyaml, with a limit to nesting."""

    # Go's port refuses an escaped slash and accepts an escaped single quote.
    ESCAPE_REPLACEMENTS: ClassVar = {  # type: ignore[misc]  # final in the stub only
        **{sign: text for sign, text in yaml.SafeLoader.ESCAPE_REPLACEMENTS.items() if sign != "/"},
        "'": "'",
    }

    _depth = 0
    _nodes = 0

    def scan_to_next_token(self) -> None:
        """Skip blanks and comments, and tabs that are no indentation (JSON indented with tabs)."""
        super().scan_to_next_token()
        while (self.flow_level or not self.allow_simple_key) and self.peek() == "\t":
            self.forward()
            super().scan_to_next_token()

    def scan_directive(self) -> yaml.DirectiveToken:
        """Scan a directive: only `%YAML 1.1` and `%TAG` are known."""
        token = super().scan_directive()
        if token.name == "YAML" and token.value != (1, 1):
            raise yaml.scanner.ScannerError(None, None, "only YAML 1.1 is read", token.start_mark)
        if token.name not in {"YAML", "TAG"}:
            raise yaml.scanner.ScannerError(None, None, "unknown directive", token.start_mark)
        return token

    def scan_plain(self) -> yaml.ScalarToken:
        """Scan an unquoted scalar: tabs are blanks, and a colon before a bracket or comma is no indicator."""
        run = _PLAIN_IN_FLOW if self.flow_level else _PLAIN_IN_BLOCK
        start = end = self.get_mark()
        pieces: list[str] = []
        between: list[str] = []
        while self.peek() != "#":
            match = run.match(self.buffer, self.pointer)
            length = len(match[0]) if match else 0
            if not length:
                break
            self.allow_simple_key = False
            pieces += (*between, self.prefix(length))
            self.forward(length)
            end = self.get_mark()
            between = self.scan_plain_spaces(self.indent + 1, start)
            if not between or not (self.flow_level or self.column > self.indent):
                break
        return yaml.ScalarToken("".join(pieces), True, start, end)

    def scan_plain_spaces(self, indent: int, start_mark: yaml.Mark) -> list[str]:
        """Return the blanks or folded line breaks between the parts of an unquoted scalar."""
        length = 0
        while self.peek(length) in " \t":
            length += 1
        blanks = self.prefix(length)
        self.forward(length)
        if self.peek() in "\r\n\x85\u2028\u2029":
            return super().scan_plain_spaces(indent, start_mark) or []
        return [blanks] if blanks else []

    def compose_node(self, parent: yaml.Node | None, index: object) -> yaml.Node | None:
        """Compose a node. An anchor may be redefined, and the depth is limited before it costs stack."""
        event = self.peek_event()  # type: ignore[no-untyped-call]  # the stub leaves it untyped
        if not isinstance(event, yaml.AliasEvent):
            self.anchors.pop(event.anchor, None)
        if self._depth > DEPTH_LIMIT:
            raise yaml.composer.ComposerError(None, None, _TOO_DEEP, event.start_mark)
        self._nodes += 1
        if self._nodes > NODE_LIMIT:
            many = f"more than {NODE_LIMIT:,} keys and values"
            raise yaml.composer.ComposerError(None, None, many, event.start_mark)
        self._depth += 1
        node = super().compose_node(parent, index)  # type: ignore[arg-type]  # mappings pass nodes, not int
        self._depth -= 1
        return node


def refuse_long(text: str, source: str) -> None:
    """Raise InputError for a text that would take too long to read."""
    if len(text) > LONGEST:
        size, most = (f"{count / 1024 / 1024:.3g} MiB" for count in (len(text), LONGEST))
        expected = f"expected at most {most} of YAML, it has {size}; one JSON document may be larger"
        raise _unreadable(source, 0, expected)


def compose(text: str, source: str, lines: int = 0) -> yaml.Node | None:
    """Return the root of the first document, None without one (an empty file, or comments only).

    Marks of nodes count `lines` that stand before the text, as blank ones. Raises InputError with one fault:
    too long, not YAML, nested too deeply, an anchor inside itself, too many aliases.
    """
    refuse_long(text, source)
    try:
        loader = _Loader(text)
        loader.line = loader.index = lines
        root = loader.get_node() if loader.check_node() else None
        if root is not None:
            _check(root, source)
    except yaml.reader.ReaderError as error:
        line = lines + text.count("\n", 0, error.position) + 1
        raise _unreadable(
            source, line, f"not YAML: the character U+{error.character:04X} is not allowed"
        ) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = min(mark.line + 1, lines + len(text.splitlines())) if mark else 0
        problem = error.problem or error.context or "not YAML"
        for word, plain in _WORDS.items():
            problem = problem.replace(word, plain)
        raise _unreadable(
            source, line, f"not YAML: {one_line(problem)}{_quoting_advice(text, line - lines, problem)}"
        ) from error
    except (ValueError, OverflowError) as error:  # an escape beyond Unicode, such as "\U00110000"
        raise _unreadable(source, 0, "not YAML: an escape sequence names no Unicode character") from error
    return root


def _unreadable(source: str, line: int, expected: str) -> errors.InputError:
    return errors.InputError([errors.Fault("", "", expected, source, line)])


def _quoting_advice(text: str, line: int, problem: str) -> str:
    """Return advice on the mistakes behind most unreadable rules files, "" if the line shows none."""
    lines = text.splitlines()
    written = lines[line - 1] if 0 < line <= len(lines) else ""
    if "'\\t'" in problem:
        return "; indent with spaces, not tabs"
    if _QUOTED_VALUE.match(written) and written.count('"') > 2:
        return "; put text that contains double quotes between single quotes"
    if "mapping values are not allowed" in problem:
        return "; quote text that contains a colon and a space"
    return ""


def _check(root: yaml.Node, source: str) -> None:
    """Refuse cycles, depth, exploding aliases and halves of surrogate pairs, which decoders do not handle."""
    measured: dict[int, tuple[int, int]] = {}
    open_nodes: set[int] = set()

    def measure(node: yaml.Node) -> tuple[int, int]:
        """Return the number and the depth of the nodes of a node, aliases included."""
        known = measured.get(id(node))
        if known is not None:
            return known
        if id(node) in open_nodes:
            raise _unreadable(source, line_of(node), "an anchor contains an alias of itself")
        if isinstance(node, yaml.ScalarNode) and SURROGATE.search(node.value):
            raise _unreadable(
                source, line_of(node), "not YAML: an escape sequence names no Unicode character"
            )
        open_nodes.add(id(node))
        size, depth = 1, 0
        for child in children(node):
            below = measure(child)
            size, depth = size + below[0], max(depth, below[1] + 1)
        open_nodes.discard(id(node))
        measured[id(node)] = size, depth
        return size, depth

    size, depth = measure(root)
    if depth > DEPTH_LIMIT:
        raise _unreadable(source, 0, _TOO_DEEP)
    if size - len(measured) > ALIAS_LIMIT:
        raise _unreadable(source, 0, f"its aliases repeat more than {ALIAS_LIMIT} nodes")


def children(node: yaml.Node) -> list[yaml.Node]:
    """Return the child nodes: entries of a list, keys and values of a mapping, nothing for a scalar."""
    if isinstance(node, yaml.SequenceNode):
        return list(node.value)
    if isinstance(node, yaml.MappingNode):
        return [side for pair in node.value for side in pair]
    return []


def line_of(node: yaml.Node) -> int:
    """Return the line where a node begins, counted from 1; 0 for a node that was not read from a text."""
    mark = node.start_mark
    return mark.line + 1 if mark else 0


def is_null(node: yaml.Node) -> bool:
    """Return whether a node is null, the zero value of any type."""
    return isinstance(node, yaml.ScalarNode) and node.tag == NULL


def is_merge(key: yaml.Node) -> bool:
    return key.tag == MERGE


def text_of(node: yaml.ScalarNode) -> str | None:
    """Return a scalar of any type literally as text; None for binary content that is not text."""
    if node.tag != BINARY:
        return str(node.value)
    try:
        return base64.b64decode("".join(node.value.split()), validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def boolean_of(node: yaml.Node) -> bool | None:
    """Return an unquoted boolean in any spelling of YAML 1.1, also `y` and `n`; None for anything else."""
    if not isinstance(node, yaml.ScalarNode) or not (
        node.tag == BOOL or (node.style is None and node.value in "yYnN")
    ):
        return None
    return _BOOLEANS.get(node.value)


def join(path: str, key: Hashable) -> str:
    """Return the path of a child: ``rules[3]``, ``rules[3].name``, ``overrides["odd label"]``."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if not _SIMPLE_KEY.fullmatch(str(key)):
        return f"{path}[{shown_text(str(key))}]"
    return f"{path}.{key}" if path else str(key)


def shown_text(text: str) -> str:
    """Return text for a message: quoted, on one line, about sixty characters, nothing invisible."""
    cut = text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
    return visible.escape(json.dumps(cut, ensure_ascii=False))


def one_line(text: str) -> str:
    """Return foreign text on one line, cut to a length that fits a message."""
    joined = visible.escape(" ".join(text.split()))
    return joined if len(joined) <= 160 else joined[:157] + "..."


def shown(node: yaml.Node) -> str:
    """Return a short description of a node for a message."""
    if is_null(node):
        return "null"
    if isinstance(node, yaml.ScalarNode):
        plain = node.style is None and node.tag != TEXT  # numbers and booleans stand without quotes
        return one_line(node.value) if plain else shown_text(node.value)
    if isinstance(node, yaml.SequenceNode):
        return f"a list of {len(node.value)}" if node.value else "an empty list"
    keys = [str(key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
    return f"a mapping of {one_line(', '.join(keys[:5]))}" if keys else "an empty mapping"
