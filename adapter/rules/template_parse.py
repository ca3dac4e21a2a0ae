"""The parser of query and label templates: tokens to a syntax tree.

Everything that can be known without values is refused here, so that it is said when the file is read: bad syntax, unknown
functions, variables that nobody declared. The law is the grammar of Go's ``text/template`` as of Go 1.22 (``else with`` and
ranging over numbers came later); sentences are ours and say where, what, and what was expected.
"""

from typing import NoReturn

from adapter import errors
from adapter.model.go_text import quote
from adapter.rules import template_functions as functions
from adapter.rules import template_lex as lex
from adapter.rules import template_literals as literals
from adapter.rules import template_nodes as nodes
from adapter.rules.template_lex import Kind, Token

_OPERAND_KINDS = frozenset(
    {Kind.BOOL, Kind.NUMBER, Kind.DOT, Kind.FIELD, Kind.IDENTIFIER, Kind.STRING, Kind.VARIABLE, Kind.OPEN}
)


def parse(text: str) -> nodes.Tree:
    """Return the tree of a template. Raise `errors.TemplateError`, which begins with ``line:column``."""
    try:
        return _Parser(text).tree()
    except RecursionError:
        raise errors.TemplateError("actions or parentheses are nested too deeply") from None


class _Scope:
    """What a body may use: the variables declared so far, and whether it lies in a ``range``."""

    def __init__(self) -> None:
        self.variables = ["$"]
        self.range_depth = 0


class _Parser:
    """Recursive descent. A body is parsed up to the ``end`` or ``else`` that closes it, which its caller looks at."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = lex.tokens(text)
        self._ahead: list[Token] = []
        self._defined: dict[str, tuple[nodes.Node, ...]] = {}
        self._scope = _Scope()

    def tree(self) -> nodes.Tree:
        body, closing = self._body(top=True)
        if closing.kind is not Kind.END:
            self._refuse(closing, f'unexpected "{closing.text}", nothing is open that it could close')
        return nodes.Tree(self._text, body, self._defined)

    # --- bodies and actions ---

    def _body(self, *, top: bool = False) -> tuple[tuple[nodes.Node, ...], Token]:
        """Return nodes up to an ``end``, an ``else`` or the end of the template, and that token.

        The delimiter after ``end`` is consumed, what follows ``else`` is not.
        """
        body: list[nodes.Node] = []
        while True:
            token = self._next_solid()
            if token.kind is Kind.END:
                return tuple(body), token
            if token.kind is Kind.TEXT:
                body.append(nodes.Text(token.text))
                continue
            word = self._peek_solid()
            if word.kind is not Kind.KEYWORD or word.text == "nil":
                body.append(nodes.Action(self._pipeline("an action", Kind.CLOSE_ACTION)))
                continue
            self._next_solid()
            match word.text:
                case "end":
                    self._expect_close("end")
                    return tuple(body), word
                case "else":
                    return tuple(body), word
                case "define":
                    if not top:
                        self._refuse(word, '"define" is allowed only outside of other actions')
                    self._define(word)
                case _:
                    body.append(self._control(word))

    def _control(self, word: Token) -> nodes.Node:
        match word.text:
            case "if" | "with" | "range":
                return self._conditional(word)
            case "break" | "continue":
                self._expect_close(word.text)
                if not self._scope.range_depth:
                    self._refuse(word, f'"{word.text}" outside of a "range"')
                return nodes.Break() if word.text == "break" else nodes.Continue()
            case "block":
                name = self._template_name(word)
                pipeline = self._pipeline("the value of the block", Kind.CLOSE_ACTION)
                self._separate_body(word, name)
                return nodes.Call(name, pipeline, word.offset)
            case _:
                name = self._template_name(word)
                if self._peek_solid().kind is Kind.CLOSE_ACTION:
                    self._next_solid()
                    return nodes.Call(name, None, word.offset)
                return nodes.Call(
                    name, self._pipeline("the value of the template", Kind.CLOSE_ACTION), word.offset
                )

    def _conditional(self, word: Token) -> nodes.If | nodes.With | nodes.Range:
        declared = len(self._scope.variables)
        pipeline = self._pipeline(word.text, Kind.CLOSE_ACTION)
        in_range = word.text == "range"
        self._scope.range_depth += in_range
        body, closing = self._body()
        self._scope.range_depth -= in_range
        otherwise: tuple[nodes.Node, ...] = ()
        if closing.text == "else":
            following = self._next_solid()
            if word.text == "if" and following == (Kind.KEYWORD, "if", following.offset):
                otherwise = (self._conditional(following),)
            else:
                self._require(following, Kind.CLOSE_ACTION, 'after "else"')
                otherwise, closing = self._body()
                if closing.text == "else":
                    self._refuse(closing, f'a second "else" in one "{word.text}", expected "end"')
        self._require_end(closing, word)
        del self._scope.variables[declared:]
        match word.text:
            case "if":
                return nodes.If(pipeline, body, otherwise)
            case "with":
                return nodes.With(pipeline, body, otherwise)
            case _:
                return nodes.Range(pipeline, body, otherwise)

    def _define(self, word: Token) -> None:
        name = self._template_name(word)
        self._expect_close("the name of the template")
        self._separate_body(word, name)

    def _separate_body(self, word: Token, name: str) -> None:
        """Parse the body of a ``define`` or ``block``, which sees neither the variables nor the ``range`` around it."""
        outer, self._scope = self._scope, _Scope()
        body, closing = self._body()
        if closing.text == "else":
            self._refuse(closing, f'unexpected "else", expected the "end" of template {quote(name)}')
        self._require_end(closing, word)
        self._scope = outer
        if _is_blank(self._defined.get(name, ())):
            self._defined[name] = body
        elif not _is_blank(body):
            self._refuse(word, f"template {quote(name)} is defined twice")

    def _template_name(self, word: Token) -> str:
        token = self._next_solid()
        self._require(token, Kind.STRING, f'as the name after "{word.text}"')
        return str(self._literal(token).value)

    # --- pipelines ---

    def _pipeline(self, context: str, end: Kind) -> nodes.Pipeline:
        at = self._peek_solid().offset
        variables, assigns = self._declarations(context)
        commands: list[nodes.Command] = []
        while True:
            token = self._peek_solid()
            if token.kind is end:
                self._next_solid()
                break
            if token.kind not in _OPERAND_KINDS and token.text != "nil":
                self._unexpected(token, f"a value or a function in {context}")
            commands.append(self._command())
        if not commands:
            self._refuse(token, f"missing value in {context}")
        for command in commands[1:]:
            if isinstance(command.operands[0], nodes.Literal | nodes.Nil | nodes.Dot):
                at = command.operands[0].at
                raise lex.fault(
                    self._text, at, "a value cannot be given an argument, expected a function after |"
                )
        return nodes.Pipeline(tuple(variables), assigns, tuple(commands), at)

    def _declarations(self, context: str) -> tuple[list[str], bool]:
        """Return the variables before ``=`` or ``:=``, and whether it was ``=``; two only in a ``range``.

        As in Go a comma is taken before it is known whether the second variable is declared too.
        """
        variables: list[str] = []
        while self._peek_solid().kind is Kind.VARIABLE:
            variable = self._next_solid()
            spaces = self._peek().kind is Kind.SPACE
            following = self._peek_solid()
            if following.kind in {Kind.ASSIGN, Kind.DECLARE}:
                self._next_solid()
                variables.append(variable.text)
                self._scope.variables.append(variable.text)
                return variables, following.kind is Kind.ASSIGN
            if following.kind is not Kind.COMMA:
                self._ahead[:0] = (
                    [variable, Token(Kind.SPACE, " ", following.offset)] if spaces else [variable]
                )
                break
            self._next_solid()
            if context != "range" or variables:
                self._refuse(following, f"too many variables in {context}")
            variables.append(variable.text)
            self._scope.variables.append(variable.text)
            second = self._peek_solid()
            if second.kind not in {Kind.VARIABLE, Kind.CLOSE_ACTION}:
                self._unexpected(second, "a second variable")
        return variables, False

    def _command(self) -> nodes.Command:
        """Return operands, at least the one seen ahead, up to the pipe, which is taken, or the end of the pipeline, which is not."""
        at = self._peek_solid().offset
        operands: list[nodes.Operand] = []
        while True:
            if operand := self._operand():
                operands.append(operand)
            token = self._peek()
            if token.kind is Kind.SPACE:
                self._next()
                continue
            if token.kind in {Kind.CLOSE_ACTION, Kind.CLOSE}:
                break
            if token.kind is Kind.PIPE:
                self._next_solid()
                break
            self._unexpected(token, "a blank between operands")
        return nodes.Command(tuple(operands), at)

    def _operand(self) -> nodes.Operand | None:
        """Return a term and the fields right after it; None where no term begins."""
        term = self._term()
        if term is None or self._peek().kind is not Kind.FIELD:
            return term
        names: list[str] = []
        while self._peek().kind is Kind.FIELD:
            names.append(self._next_solid().text[1:])
        match term:
            case nodes.Field():
                return term._replace(names=(*term.names, *names))
            case nodes.Variable():
                return term._replace(names=(*term.names, *names))
            case nodes.Pipeline() | nodes.Function():
                return nodes.Chain(term, tuple(names), term.at)
            case _:
                raise lex.fault(self._text, term.at, f"a literal has no field .{names[0]}")

    def _term(self) -> nodes.Operand | None:
        token = self._peek_solid()
        if token.kind not in _OPERAND_KINDS and not (token.kind is Kind.KEYWORD and token.text == "nil"):
            return None
        self._next_solid()
        match token.kind:
            case Kind.KEYWORD:
                return nodes.Nil(token.offset)
            case Kind.DOT:
                return nodes.Dot(token.offset)
            case Kind.FIELD:
                return nodes.Field((token.text[1:],), token.offset)
            case Kind.VARIABLE:
                if token.text not in self._scope.variables:
                    self._refuse(
                        token, f"undefined variable {token.text}, expected {token.text} := before it is used"
                    )
                return nodes.Variable(token.text, (), token.offset)
            case Kind.IDENTIFIER:
                if token.text not in functions.NAMES:
                    self._refuse(
                        token,
                        f"unknown function {quote(token.text)}, expected one of {', '.join(functions.NAMES)}",
                    )
                return nodes.Function(token.text, token.offset)
            case Kind.OPEN:
                return self._pipeline("parentheses", Kind.CLOSE)._replace(at=token.offset)
            case _:
                return self._literal(token)

    def _literal(self, token: Token) -> nodes.Literal:
        try:
            match token.kind:
                case Kind.BOOL:
                    return nodes.Literal(token.text == "true", token.offset)
                case Kind.STRING:
                    return nodes.Literal(literals.text_value(token.text), token.offset)
                case _:
                    return nodes.Literal(literals.number_value(token.text), token.offset)
        except ValueError as error:
            raise lex.fault(self._text, token.offset, str(error)) from None

    # --- tokens ---

    def _peek(self) -> Token:
        if not self._ahead:
            self._ahead.append(next(self._tokens))
        return self._ahead[0]

    def _next(self) -> Token:
        token = self._peek()
        del self._ahead[0]
        return token

    def _peek_solid(self) -> Token:
        """Skip space and return the next token without taking it."""
        while self._peek().kind is Kind.SPACE:
            del self._ahead[0]
        return self._ahead[0]

    def _next_solid(self) -> Token:
        """Skip space and take the next token."""
        token = self._peek_solid()
        del self._ahead[0]
        return token

    def _expect_close(self, what: str) -> None:
        self._require(self._next_solid(), Kind.CLOSE_ACTION, f'after "{what}"')

    def _require(self, token: Token, kind: Kind, context: str) -> None:
        if token.kind is not kind:
            self._unexpected(token, f"{kind.value} {context}")

    def _require_end(self, closing: Token, word: Token) -> None:
        if closing.kind is Kind.END:
            self._refuse(word, f'"{word.text}" without its "end"')

    def _unexpected(self, token: Token, expected: str) -> NoReturn:
        found = quote(token.text) if token.text else token.kind.value
        self._refuse(token, f"unexpected {found}, expected {expected}")

    def _refuse(self, token: Token, sentence: str) -> NoReturn:
        raise lex.fault(self._text, token.offset, sentence)


def _is_blank(body: tuple[nodes.Node, ...]) -> bool:
    """Tell whether a body is nothing but white space, so that a later definition may replace it."""
    return all(isinstance(node, nodes.Text) and not node.text.strip() for node in body)
