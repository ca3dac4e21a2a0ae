"""The parser of query and label templates: from text to a syntax tree, by recursive descent.

The language is a part of Go's ``text/template`` with the delimiters ``<<`` and ``>>``. What can be known
without values is refused here, so that a fault appears when the rules file is loaded: bad syntax, undeclared
variables, unknown functions, a wrong number of arguments, and what Go has beyond this language.

Blanks are no tokens, but a token knows whether one stands before it: ``.A .B`` is two operands, ``.A.B`` one.
"""

import re
from typing import NamedTuple, NoReturn

from adapter import errors
from adapter.model.go_text import quote
from adapter.rules.template import functions


class Literal(NamedTuple):
    """A text, integer or truth value that is written out, or ``nil``."""

    value: str | bool | int | None
    at: int


class Path(NamedTuple):
    """A value and fields of it. `start` is ``.``, a variable such as ``$x``, or a pipeline in parentheses."""

    start: "str | Pipeline"
    names: tuple[str, ...]
    at: int


class Call(NamedTuple):
    function: str
    arguments: tuple["Operand", ...]
    at: int


Operand = Literal | Path | Call


class Pipeline(NamedTuple):
    """Commands, each with the value of the one before as its last argument. All but the first are calls."""

    variables: tuple[str, ...]
    commands: tuple[Operand, ...]
    at: int


class Block(NamedTuple):
    """An ``if``, ``with`` or ``range``. An ``else if`` is an ``if`` alone in `otherwise`."""

    keyword: str
    pipeline: Pipeline
    body: "Body"
    otherwise: "Body"


# Text is copied, and the value of a pipeline is printed. `at` is an offset in the template, for messages.
Body = tuple[str | Pipeline | Block, ...]


def parse(text: str) -> Body:
    """Return the tree of a template. Raise `errors.TemplateError`, which begins with ``line:column``."""
    body, closing = _Parser(text).body()
    if closing.kind != "end":
        raise fault(text, closing.at, f'unexpected "{closing.text}", nothing is open that it could close')
    return body


def fault(text: str, at: int, sentence: str) -> errors.TemplateError:
    """Return the error for a place in a template: ``line:column``, both counted from 1, and the sentence."""
    line = text.count("\n", 0, at) + 1
    return errors.TemplateError(f"{line}:{at - text.rfind(chr(10), 0, at)}: {sentence}")


# Delimiters that trim take the space around the action with them.
_OPENING = re.compile(r"(?:[ \t\r\n]*<<-[ \t\r\n]|<<)(?P<comment>/\*.*?(?:\*/|\Z))?", re.DOTALL)
_CLOSING = re.compile(r"[ \t\r\n]->>[ \t\r\n]*|>>")
_BLANK = re.compile(r"[ \t\r\n](?!->>)")
_TOKEN = re.compile(
    r"""(?P<quoted> "(?:[^"\\\n]|\\[^\n])*" | `[^`]*` )
      | (?P<number> [-+][\w.+-]* | \.?[0-9][\w.+-]* )
      | (?P<field>  \.\w+ )
      | (?P<name>   \$?\w+ | [.$] )
      | (?P<mark>   := | (?!["'`:])[!-~] )""",
    re.VERBOSE | re.ASCII,
)
_NO_TOKEN = {
    "": 'the template ends within an action, expected ">>"',
    '"': 'quoted text without its end, expected "',
    "`": "raw quoted text without its end, expected `",
    "'": "a character in single quotes is not supported, expected text in double quotes or back quotes",
    ":": 'unexpected ":", expected ":="',
}
_AFTER_NAME = re.compile(r"[ \t\r\n.,|:)(]|>>|\Z")
_DECLARATION = re.compile(r"(?P<names>\$\w*(?:\s*,\s*\$\w*)*)\s*(?P<sign>:?=)", re.ASCII)
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,18})")
# Escapes that Go and Python read alike. Bytes are not supported, and surrogates are no characters.
_ESCAPE = re.compile(r'\\(?:[abfnrtv\\"]|(?:u|U000[01])(?![dD][89a-fA-F])[0-9a-fA-F]{4})')
_BLOCKS = ("if", "range", "with")
_CONSTANTS = {"true": True, "false": False, "nil": None}
_REFUSED = re.compile("block|break|continue|define|template|call|html|js|println|slice|urlquery")
# Parser and evaluator recurse. The limit keeps both far from Python's own.
_MAX_DEPTH = 50


class _Token(NamedTuple):
    kind: str  # a group of `_TOKEN`, "closing" at the end of an action, "end" at that of the template
    text: str
    at: int
    spaced: bool = False


class _Parser:
    _next: _Token  # the token ahead while an action is read; `_position` is the offset after it

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._variables = ["$"]
        self._depth = 0

    def body(self) -> tuple[Body, _Token]:
        """Return what stands before an ``end``, an ``else`` or the end of the template, and that token."""
        body: list[str | Pipeline | Block] = []
        while self._open_action(body):
            if self._next.text in _BLOCKS:
                body.append(self._block(self._take()))
            elif (word := self._next).text in {"else", "end"}:
                self._take()
                if word.text == "end":
                    self._expect_closing("end")
                return tuple(body), word
            else:
                body.append(self._pipeline("an action", ">>"))
        return tuple(body), _Token("end", "", len(self._text))

    def _block(self, word: _Token) -> Block:
        self._enter(word)
        declared = len(self._variables)
        pipeline = self._pipeline(word.text, ">>")
        self._variables += pipeline.variables
        body, closing = self.body()
        otherwise: Body = ()
        if closing.text == "else" and word.text == self._next.text == "if":
            otherwise = (self._block(self._take()),)
        elif closing.text == "else":
            self._expect_closing("else")
            otherwise, closing = self.body()
            if closing.text == "else":
                self._refuse(closing.at, f'a second "else" in one "{word.text}", expected "end"')
        if closing.kind == "end":
            self._refuse(word.at, f'"{word.text}" without its "end"')
        del self._variables[declared:]
        self._depth -= 1
        return Block(word.text, pipeline, body, otherwise)

    def _pipeline(self, context: str, end: str) -> Pipeline:
        at = self._next.at
        variables = self._declarations(context)
        commands: list[Operand] = []
        while (token := self._next).text != end:
            if token.text in {">>", ")"}:
                self._unexpected(token, f'"{end}"')
            commands.append(self._command(context, piped=bool(commands)))
            if self._next.text == "|":
                self._take()
        if not commands:
            self._refuse(token.at, f"missing value in {context}")
        self._take()
        return Pipeline(variables, tuple(commands), at)

    def _declarations(self, context: str) -> tuple[str, ...]:
        """Take the variables before ``:=``: one in a ``with``, one or two in a ``range``."""
        if not (declaration := _DECLARATION.match(self._text, self._next.at)):
            return ()
        names = tuple(name.strip() for name in declaration["names"].split(","))
        if declaration["sign"] == "=" or context not in {"range", "with"}:
            what = f"{declaration['sign']} in {context} is not supported, expected := in range or with"
            self._refuse(self._next.at, f"{names[-1]} {what}")
        if len(names) > (2 if context == "range" else 1):
            self._refuse(self._next.at, f"too many variables in {context}")
        self._position = declaration.end()
        self._next = self._token()
        return names

    def _command(self, context: str, *, piped: bool) -> Operand:
        """Take a command up to the pipe or the end of the pipeline. `piped` says that it is not the first."""
        first = self._operand(context)
        arguments: list[Operand] = []
        while (token := self._next).text not in {"|", ")", ">>"}:
            if not token.spaced:
                self._unexpected(token, "a space between operands")
            argument = self._operand(context)
            if isinstance(argument, Call):
                self._check_call(argument, count=0)
            arguments.append(argument)
        if isinstance(first, Call):
            call = first._replace(arguments=tuple(arguments))
            self._check_call(call, count=len(arguments) + piped)
            return call
        if arguments or piped:
            self._refuse(first.at, "a value cannot be given an argument, only a function can")
        if isinstance(first, Literal) and first.value is None:
            self._refuse(first.at, "nil alone is not a command")
        return first

    def _check_call(self, call: Call, count: int) -> None:
        least, most, _ = functions.FUNCTIONS[call.function]
        if not least <= count <= most:
            wanted = f"{'' if least == most else 'at least '}{least} argument{'' if least == 1 else 's'}"
            self._refuse(call.at, f"{call.function} takes {wanted}, not {count}")
        if call.function == "printf":
            pattern = call.arguments[0] if call.arguments else None
            if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
                self._refuse(
                    call.at, "printf: only quoted text is supported as the format, right after printf"
                )
            if problem := functions.find_format_fault(pattern.value, count - 1):
                self._refuse(call.at, f"printf: {problem}")

    def _operand(self, context: str) -> Operand:
        """Take a value and the fields right after it, or the name of a function."""
        token = self._take()
        operand = self._term(token, context)
        if isinstance(operand, Path) and token.text != ".":
            while self._next.kind == "field" and not self._next.spaced:
                operand = operand._replace(names=(*operand.names, self._take().text[1:]))
        return operand

    def _term(self, token: _Token, context: str) -> Operand:
        at, name = token.at, token.text
        if token.kind in {"quoted", "number"}:
            return self._literal(token)
        if token.kind == "field":
            return Path(".", (name[1:],), at)
        if name == "(":
            self._enter(token)
            pipeline = self._pipeline("parentheses", ")")
            self._depth -= 1
            return Path(pipeline, (), at)
        if token.kind != "name" or name in {*_BLOCKS, "else", "end"}:
            self._unexpected(token, f"a value or a function in {context}")
        if name in _CONSTANTS:
            return Literal(_CONSTANTS[name], at)
        if name in {".", *self._variables}:
            return Path(name, (), at)
        if name.startswith("$"):
            self._refuse(at, f"undefined variable {name}, expected {name} := before it is used")
        if name not in functions.FUNCTIONS:
            problem = (
                f'"{name}" is not supported' if _REFUSED.fullmatch(name) else f'unknown function "{name}"'
            )
            self._refuse(at, f"{problem}, expected one of {', '.join(functions.FUNCTIONS)}")
        return Call(name, (), at)

    def _literal(self, token: _Token) -> Literal:
        text, inner = token.text, token.text[1:-1]
        if token.kind == "number":
            if not _INTEGER.fullmatch(text) or not -(2**63) <= int(text) < 2**63:
                self._refuse(token.at, f"{quote(text)} is not supported, expected a 64-bit integer in digits")
            return Literal(int(text), token.at)
        if text[0] == "`":
            return Literal(inner.replace("\r", ""), token.at)
        if "\\" in _ESCAPE.sub("", inner):
            self._refuse(token.at, f"an escape in {text} is not supported, expected the character itself")
        inner = _ESCAPE.sub(lambda escape: escape[0].encode().decode("unicode_escape"), inner)
        return Literal(inner, token.at)

    def _enter(self, token: _Token) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            self._refuse(token.at, f"nested too deeply, expected at most {_MAX_DEPTH} blocks and parentheses")

    def _open_action(self, body: list[str | Pipeline | Block]) -> bool:
        """Append the text before the next action and begin that. Return False at the end of the template."""
        while True:
            opening = _OPENING.search(self._text, self._position)
            if text := self._text[self._position : opening.start() if opening else None]:
                body.append(text)
            if opening is None:
                return False
            self._position = opening.end()
            if opening["comment"] is None:
                self._next = self._token()
                return True
            if not (closing := _CLOSING.match(self._text, self._position)):
                self._refuse(opening.start("comment"), 'comment without its end, expected "*/>>"')
            self._position = closing.end()

    def _token(self) -> _Token:
        start = self._position
        while _BLANK.match(self._text, self._position):
            self._position += 1
        at = self._position
        if closing := _CLOSING.match(self._text, at):
            self._position = closing.end()
            return _Token("closing", ">>", self._text.index(">>", at))
        if not (match := _TOKEN.match(self._text, at)):
            character = self._text[at : at + 1]
            self._refuse(at, _NO_TOKEN.get(character, f"unexpected character {quote(character)}"))
        self._position = end = match.end()
        if match.lastgroup in {"field", "name"} and not _AFTER_NAME.match(self._text, end):
            found, name = quote(self._text[end]), quote(match[0])
            self._refuse(end, f"unexpected {found} right after {name}, expected a space")
        return _Token(match.lastgroup or "", match[0], at, spaced=at > start)

    def _take(self) -> _Token:
        token = self._next
        if token.kind != "closing":
            self._next = self._token()
        return token

    def _expect_closing(self, word: str) -> None:
        if self._next.kind != "closing":
            self._unexpected(self._next, f'>> after "{word}"')

    def _unexpected(self, token: _Token, expected: str) -> NoReturn:
        self._refuse(token.at, f"unexpected {quote(token.text)}, expected {expected}")

    def _refuse(self, at: int, sentence: str) -> NoReturn:
        raise fault(self._text, at, sentence)
