"""The lexer of query and label templates: text and the tokens between ``<<`` and ``>>``.

Here text is cut into tokens, white space is trimmed at ``<<- `` and `` ->>``, and comments vanish. What a literal stands for is
`template_literals`' business, what a sequence of tokens means `template_parse`'s. The law is the lexer of Go's ``text/template``,
including that a space is a token; complex numbers, which no template needs, are refused with a sentence.
"""

import enum
import re
from collections.abc import Generator, Iterator
from typing import NamedTuple

from adapter import errors
from adapter.model.go_text import quote

LEFT = "<<"
RIGHT = ">>"
SPACES = " \t\r\n"
KEYWORDS = frozenset(
    {"block", "break", "continue", "define", "else", "end", "if", "nil", "range", "template", "with"}
)


class Kind(enum.Enum):
    """What a token is; the texts name it in messages."""

    TEXT = "text"
    OPEN_ACTION = "<<"
    CLOSE_ACTION = ">>"
    SPACE = "a blank"
    PIPE = "|"
    ASSIGN = "="
    DECLARE = ":="
    COMMA = ","
    OPEN = "("
    CLOSE = ")"
    STRING = "quoted text"
    NUMBER = "a number"
    BOOL = "true or false"
    DOT = "."
    FIELD = "a field"
    VARIABLE = "a variable"
    IDENTIFIER = "a function"
    KEYWORD = "a keyword"
    OTHER = "a character"
    END = "the end of the template"


class Token(NamedTuple):
    """A token, its text as written and the offset of its first character."""

    kind: Kind
    text: str
    offset: int


def place(text: str, offset: int) -> str:
    """Return ``line:column`` of an offset, both counted from 1."""
    start = text.rfind("\n", 0, offset) + 1
    return f"{text.count(chr(10), 0, offset) + 1}:{offset - start + 1}"


def fault(text: str, offset: int, sentence: str) -> errors.TemplateError:
    """Return the error that says where in the template something is wrong, and what."""
    return errors.TemplateError(f"{place(text, offset)}: {sentence}")


def tokens(text: str) -> Iterator[Token]:
    """Yield the tokens of a template, last `Kind.END`. Raise `errors.TemplateError` at what is no token."""
    position = 0
    trim = False
    while (opening := text.find(LEFT, position)) >= 0:
        inner = opening + len(LEFT)
        trim_before = text[inner : inner + 1] == "-" and text[inner + 1 : inner + 2] in _SPACE
        yield from _text(text, position, opening, trim=(trim, trim_before))
        inner += 2 * trim_before
        if text.startswith("/*", inner):
            position, trim = _comment(text, inner)
            continue
        yield Token(Kind.OPEN_ACTION, LEFT, opening)
        closing = yield from _action(text, inner)
        yield Token(Kind.CLOSE_ACTION, RIGHT, closing.offset)
        position, trim = closing.end, closing.trim
    yield from _text(text, position, len(text), trim=(trim, False))
    yield Token(Kind.END, "", len(text))


class _Closing(NamedTuple):
    """The end of an action: where it stands, the offset after it, whether the following space is trimmed."""

    offset: int
    end: int
    trim: bool


_SPACE = frozenset(SPACES)
_DIGITS = frozenset("0123456789")
_CLOSING = re.compile(r"(?P<trim>[ \t\r\n]-)?>>")
_BLANK = re.compile(r"[ \t\r\n]+?(?=[ \t\r\n]->>)|[ \t\r\n]+")
_QUOTED = {
    '"': (re.compile(r'"(?:[^"\\\n]|\\[^\n])*"'), Kind.STRING, "quoted text"),
    "`": (re.compile("`[^`]*`"), Kind.STRING, "raw quoted text"),
    "'": (re.compile(r"'(?:[^'\\\n]|\\[^\n])*'"), Kind.NUMBER, "character"),
}
_NUMBER = re.compile(
    r"[+-]?(?:0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?(?:[pP][+-]?[0-9_]*)?|0[oO][0-7_]*(?:\.[0-7_]*)?|0[bB][01_]*(?:\.[01_]*)?"
    r"|[0-9_]*(?:\.[0-9_]*)?(?:[eE][+-]?[0-9_]*)?)i?"
)
_PUNCTUATION = {
    "=": Kind.ASSIGN,
    "|": Kind.PIPE,
    ",": Kind.COMMA,
    "(": Kind.OPEN,
    ")": Kind.CLOSE,
}
_SIGN_OR_DIGIT = _DIGITS | {"+", "-"}
_TERMINATORS = frozenset(" \t\r\n.,|:)(")


def _text(text: str, start: int, end: int, trim: tuple[bool, bool]) -> Iterator[Token]:
    """Yield the text between two actions, unless nothing is left of it; `trim` tells at which ends space is dropped."""
    piece = text[start:end]
    if trim[0]:
        piece = piece.lstrip(SPACES)
        start = end - len(piece)
    if trim[1]:
        piece = piece.rstrip(SPACES)
    if piece:
        yield Token(Kind.TEXT, piece, start)


def _comment(text: str, start: int) -> tuple[int, bool]:
    """Return the offset after the comment that begins at `start` and whether the following space is trimmed."""
    end = text.find("*/", start + 2)
    if end < 0:
        raise fault(text, start, 'comment without its end, expected "*/>>"')
    closing = _CLOSING.match(text, end + 2)
    if closing is None:
        raise fault(text, end, 'the comment ends before the action does, expected ">>" right after "*/"')
    return closing.end(), closing["trim"] is not None


def _action(text: str, position: int) -> Generator[Token, None, _Closing]:
    """Yield the tokens up to the closing delimiter and return that."""
    depth = 0
    while True:
        if closing := _CLOSING.match(text, position):
            if depth:
                raise fault(text, position, 'parenthesis without its end, expected ")"')
            return _Closing(closing.end() - len(RIGHT), closing.end(), closing["trim"] is not None)
        if position == len(text):
            raise fault(text, position, 'the template ends within an action, expected ">>"')
        token = _token(text, position)
        if token.kind is Kind.OPEN:
            depth += 1
        elif token.kind is Kind.CLOSE:
            depth -= 1
            if depth < 0:
                raise fault(text, position, 'unexpected ")", no "(" stands before it')
        yield token
        position += len(token.text)


def _token(text: str, position: int) -> Token:
    character = text[position]
    if blank := _BLANK.match(text, position):
        return Token(Kind.SPACE, blank[0], position)
    if kind := _PUNCTUATION.get(character):
        return Token(kind, character, position)
    if character in _QUOTED:
        return _quoted(text, position)
    if character in _SIGN_OR_DIGIT or (character == "." and text[position + 1 : position + 2] in _DIGITS):
        return _number(text, position)
    if character in {".", "$"} or _is_alphanumeric(character):
        return _word(text, position)
    if character == ":":
        if not text.startswith(":=", position):
            raise fault(text, position, 'unexpected ":", expected ":="')
        return Token(Kind.DECLARE, ":=", position)
    if " " < character <= "~":
        return Token(Kind.OTHER, character, position)
    raise fault(text, position, f"unexpected character {quote(character)}")


def _quoted(text: str, position: int) -> Token:
    pattern, kind, name = _QUOTED[text[position]]
    match = pattern.match(text, position)
    if match is None:
        raise fault(text, position, f"{name} without its end, expected {text[position]}")
    return Token(kind, match[0], position)


def _number(text: str, position: int) -> Token:
    match = _NUMBER.match(text, position)
    assert match is not None  # every part of the pattern may be empty
    following = text[match.end() : match.end() + 1]
    if match[0].endswith("i") or following in {"+", "-"}:
        raise fault(text, position, f"complex numbers are not supported, found {quote(match[0])}")
    if _is_alphanumeric(following):
        raise fault(text, position, f"{quote(match[0] + following)} does not begin a number")
    return Token(Kind.NUMBER, match[0], position)


def _word(text: str, position: int) -> Token:
    """Return a field, variable, keyword or function name, or the dot alone."""
    sigil = text[position] if text[position] in {".", "$"} else ""
    end = position + len(sigil)
    while end < len(text) and _is_alphanumeric(text[end]):
        end += 1
    if end < len(text) and text[end] not in _TERMINATORS and not text.startswith(RIGHT, end):
        raise fault(
            text,
            end,
            f"unexpected {quote(text[end])} right after {quote(text[position:end])}, expected a blank",
        )
    word = text[position:end]
    if sigil == ".":
        return Token(Kind.FIELD if len(word) > 1 else Kind.DOT, word, position)
    if sigil == "$":
        return Token(Kind.VARIABLE, word, position)
    if word in KEYWORDS:
        return Token(Kind.KEYWORD, word, position)
    return Token(Kind.BOOL if word in {"true", "false"} else Kind.IDENTIFIER, word, position)


def _is_alphanumeric(character: str) -> bool:
    """Tell whether a name may hold the character: letters and decimal digits of any script, and the underscore."""
    return character == "_" or character.isalpha() or character.isdecimal()
