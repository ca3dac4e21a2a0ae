"""Changes of a YAML document that keep its comments: ruamel.yaml's round trip.

ruamel.yaml keeps comments, quotes, key order and flow style, and normalizes the rest
(docs/decisions/yaml-round-trip.md). Every scalar of the document stays the text that it is: no type is
resolved, so that `017`, `yes` or a time cannot come out as something else.

The result is read again. If it does not have the value that the operations ask for, which happens when an
operation reaches into an alias or a merge key, the document is written as a whole, without its comments.
"""

import io
import json
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import CommentMark, YAMLError
from ruamel.yaml.resolver import VersionedResolver
from ruamel.yaml.scalarstring import DoubleQuotedScalarString
from ruamel.yaml.tokens import CommentToken

from fastpath_tools import yaml_documents
from fastpath_tools.boost import boost_patch
from fastpath_tools.boost.boost_patch import ADD, END, REMOVE, TEST, PatchOperation
from fastpath_tools.yaml_documents import YAMLDocument

# What stands before the content: blank lines, comments, directives and the marker.
_HEAD = re.compile(r"(?:(?:[ \t]*(?:#[^\n]*)?|%[^\n]*|---[ \t]*(?:#[^\n]*)?)\r?\n)*")
# What stands after the end of the document.
_TAIL = re.compile(r"(?<=\n)\.\.\.[ \t]*(?:#[^\n]*)?(?:\r?\n[ \t]*(?:#[^\n]*)?)*\Z")
_ITEM = re.compile(
    r"^([ ]*)(?:- +)*[^\s#-][^\n]*:[ \t]*(?:#[^\n]*)?\n(?:[ \t]*(?:#[^\n]*)?\n)*([ ]*)- ", re.MULTILINE
)
_KEY = re.compile(r"^([ ]*)[^\s#-][^\n]*:[ \t]*(?:#[^\n]*)?\n([ ]+)[^\s#-]", re.MULTILINE)

# Text that a reader of YAML may take for a number, a boolean or null: 1e3, 0o7, y.
_NOT_TEXT = re.compile(r"[-+.]?[0-9].*|[yYnN]|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)|~|", re.DOTALL)


class Edited(NamedTuple):
    """A text after operations; `is_rewritten` tells that it was written as a whole, without its comments."""

    text: str
    is_rewritten: bool


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the signature is PyYAML's
        return True


class _TextResolver(VersionedResolver):
    """Takes every plain scalar for text; an empty one is null."""

    @property
    def versioned_resolver(self) -> Any:
        return {"": [("tag:yaml.org,2002:null", re.compile(""))]}


def edit(part: str, document: YAMLDocument, operations: Sequence[PatchOperation]) -> Edited:
    """Return the text of a document after operations; their indexes are those of the document as given."""
    if not operations:
        return Edited(part, is_rewritten=False)
    wanted = boost_patch.apply(document.value, operations)
    start = _HEAD.match(part)
    head = start[0] if start else ""
    end = _TAIL.search(part, len(head))
    tail = end[0] if end else ""
    body = part[len(head) : len(part) - len(tail)]
    for edited in (_as_json(body, wanted), _edited(body, operations)):
        again = yaml_documents.read_part(0, f"{head}{edited}{tail}", "") if edited else None
        if isinstance(again, YAMLDocument) and again.value == wanted:
            return Edited(head + edited + tail, is_rewritten=False)
    whole: str = yaml.dump(
        wanted, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=math.inf, default_flow_style=False
    )
    marker = "---\n" if body.startswith("---") else ""
    line_break = "\r\n" if "\r\n" in part else "\n"
    return Edited(head + (marker + whole).replace("\n", line_break) + tail, is_rewritten=True)


def _as_json(part: str, wanted: object) -> str:
    """Return the text of a JSON document, which has no comments, "" if the part is not JSON."""
    try:
        json.loads(part)
    except ValueError:
        return ""
    indent = re.match(r"\s*\{\s*?\n([ ]+)", part)
    text = json.dumps(wanted, indent=len(indent[1]) if indent else None, ensure_ascii=False)
    return text + part[len(part.rstrip()) :]


def _edited(text: str, operations: Sequence[PatchOperation]) -> str:
    """Return a text after operations, "" if one of them has no place of its own in it.

    That is so inside an alias or a merge key.
    """
    round_trip = YAML(typ="rt", pure=True)
    round_trip.Resolver = _TextResolver
    round_trip.preserve_quotes = True
    round_trip.width = 2**31
    round_trip.brace_single_entry_mapping_in_flow_sequence = True
    round_trip.explicit_start = text.startswith("---")  # with content on its line
    plain = text.replace("\r\n", "\n")  # ruamel.yaml keeps the first of the two as a part of a comment
    mapping, offset = _indentation(plain)
    round_trip.indent(mapping=mapping, sequence=offset + 2, offset=offset)
    stream = io.StringIO()
    try:
        tree = round_trip.load(plain)
        for operation in operations:
            _apply(tree, operation)
        round_trip.dump(tree, stream)
    except (YAMLError, LookupError, TypeError, ValueError, AttributeError):
        return ""
    dumped = stream.getvalue() if text.endswith("\n") else stream.getvalue().rstrip("\n")
    return dumped if plain == text else dumped.replace("\n", "\r\n")


def _apply(tree: Any, operation: PatchOperation) -> None:
    """Apply an operation.

    Comments below an entry that is added to, replaced or removed stay where they are.
    """
    *above, name = operation.path
    place = tree
    for step in above:
        key = int(step) if isinstance(place, list) else step
        if place[key].fa.flow_style() and (token := _comment(place, key)):
            token.start_mark = CommentMark(0)  # behind a line whose length changes: one blank before it
        place = place[key]
    keys = list(place) if isinstance(place, dict) else list(range(len(place)))
    known = name if isinstance(place, dict) else len(keys) if name == END else int(name)
    index = keys.index(known) if known in keys else len(keys)
    is_inserted = index == len(keys) or (operation.op == ADD and isinstance(place, list))
    before = keys[index - 1] if index else None
    cut = before if is_inserted else known
    below = "" if cut is None or operation.op == TEST else _cut_comments(place, cut)
    boost_patch.apply_to(tree, [operation._replace(value=_node(operation.value))])
    after = before if operation.op == REMOVE else known
    if below and after is not None:
        _put_comments(place, after, below)


def _last(place: Any, key: Any) -> tuple[Any, Any]:
    """Return the collection and the key of the last line of an entry."""
    below = place[key]
    while isinstance(below, CommentedMap | CommentedSeq) and below and not below.fa.flow_style():
        place, key = below, next(reversed(below)) if isinstance(below, dict) else len(below) - 1
        below = place[key]
    return place, key


def _comment(place: Any, key: Any) -> Any:
    """Return the comment behind an entry and on the lines below it, None without any."""
    tokens = place.ca.items.get(key)
    return tokens[2 if isinstance(place, dict) else 0] if tokens else None


def _cut_comments(place: Any, key: Any) -> str:
    """Remove the comments below the last line of an entry, and return them."""
    place, key = _last(place, key)
    token = _comment(place, key)
    on_the_line, _, below = token.value.partition("\n") if token else ("", "", "")
    if below and on_the_line:
        token.value = f"{on_the_line}\n"
    elif below:
        del place.ca.items[key]
    return str(below)


def _put_comments(place: Any, key: Any, below: str) -> None:
    place, key = _last(place, key)
    if token := _comment(place, key):
        token.value += below
        return
    token = CommentToken(f"\n{below}", CommentMark(0), None)
    place.ca.items[key] = [None, None, token, None] if isinstance(place, dict) else [token, None]


def _indentation(text: str) -> tuple[int, int]:
    """Return the indentation of the first mapping in a mapping, and of the first list in one."""
    key, item = _KEY.search(text), _ITEM.search(text)
    mapping = len(key[2]) - len(key[1]) if key else 2
    offset = len(item[2]) - len(item[1]) if item else 0
    return max(mapping, 2), max(offset, 0)


def _node(value: Any) -> Any:
    """Return a value as ruamel.yaml writes it: ambiguous text, such as `1` or `yes`, in quotes."""
    if isinstance(value, dict):
        return CommentedMap((name, _node(below)) for name, below in value.items())
    if isinstance(value, list):
        return CommentedSeq(map(_node, value))
    if not isinstance(value, str):
        return yaml.safe_dump(value).partition("\n")[0]
    implicit = yaml.resolver.Resolver.yaml_implicit_resolvers.get(value[:1], [])
    is_other = _NOT_TEXT.fullmatch(value) or any(pattern.match(value) for _, pattern in implicit)
    return DoubleQuotedScalarString(value) if is_other else value
