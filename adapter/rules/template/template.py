"""Query and label templates: a part of Go's ``text/template`` with the delimiters ``<<`` and ``>>``.

A template is parsed once, by `syntax`, and rendered here to the same text as in Go: a missing map entry is
nil and prints as ``<no value>``, and an unknown field of the template's variables is an error.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NoReturn

from adapter import errors
from adapter.model.go_text import quote
from adapter.rules.template import functions, syntax
from adapter.rules.template.functions import TemplateStruct, Value
from adapter.rules.template.syntax import Block, Body, Call, Literal, Operand, Path, Pipeline

__all__ = ["LabelTemplate", "Template", "Value", "parse"]


class Template:
    """A parsed template. A plain one, as nearly all are, is rendered without the evaluator."""

    def __init__(self, text: str, body: Body) -> None:
        self.text = text
        self._body = body
        self.fields = tuple(dict.fromkeys(_root_fields(body, dot=True)))
        """The variables that are used, in order of first use."""
        self._pieces = [(node if isinstance(node, str) else "", _bare_variable(node)) for node in body]
        self.is_plain = all(isinstance(node, str) or _bare_variable(node) for node in body)
        """Whether the template is only text and bare ``<<.Variable>>``."""

    def render(self, variables: Mapping[str, Value]) -> str:
        """Return the text, which may be empty. Raise `errors.TemplateError` for what cannot be evaluated."""
        if self.is_plain and all(map(variables.__contains__, self.fields)):
            values = [variables[name] if name else text for text, name in self._pieces]
            return "".join([value if type(value) is str else functions.show(value) for value in values])
        return _Evaluator(self.text).render(self._body, TemplateStruct(variables))


def parse(text: str) -> Template:
    """Return the template. Raise `errors.TemplateError`, which begins with ``line:column``."""
    return Template(text, syntax.parse(text))


class LabelTemplate:
    """The template of ``resources.template``: from a resource to its label, and back."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._body = syntax.parse(text)

    def render(self, group: str, resource: str) -> str:
        """Return the label for a group and a singular name. ``.`` and ``-`` of the group become ``_``."""
        return self._execute(group.replace(".", "_").replace("-", "_"), resource)

    def pattern(self) -> str:
        """Return the regular expression (RE2) of the labels, with groups ``group`` and ``resource``.

        Literal text of the template is not escaped. The caller refuses an expression without ``resource``.
        """
        return f"^{self._execute('(?P<group>.+?)', '(?P<resource>.+?)')}$"

    def _execute(self, group: str, resource: str) -> str:
        whole = f"{resource}.{group}" if group else resource
        variables = TemplateStruct({"Group": group, "Resource": resource}, text=whole)
        label = _Evaluator(self.text).render(self._body, variables)
        if not label:
            raise errors.TemplateError(f"empty label produced by label template {quote(self.text)}")
        return label


def _bare_variable(node: str | Pipeline | Block) -> str | None:
    match node:
        case Pipeline(commands=(Path(".", (name,)),)):
            return name
        case _:
            return None


def _root_fields(nodes: Iterable[str | Pipeline | Block | Operand], *, dot: bool) -> Iterator[str]:
    """Yield the template's variables that are used. `dot` says whether ``.`` is all of them, as ``$`` is."""
    for node in nodes:
        match node:
            case Pipeline(commands=operands) | Path(Pipeline(commands=operands)) | Call(arguments=operands):
                yield from _root_fields(operands, dot=dot)
            case Block():
                yield from _root_fields((node.pipeline,), dot=dot)
                yield from _root_fields(node.body, dot=dot and node.keyword == "if")
                yield from _root_fields(node.otherwise, dot=dot)
            case Path(start, (name, *_)) if start == "$" or (start == "." and dot):
                yield name


_Scope = Mapping[str, Value]  # the values of ``.``, of ``$`` and of declared variables


class _Evaluator:
    def __init__(self, text: str) -> None:
        self._text = text

    def render(self, body: Body, variables: TemplateStruct) -> str:
        return "".join(self._render(body, {".": variables, "$": variables}))

    def _render(self, body: Body, scope: _Scope) -> Iterator[str]:
        for node in body:
            match node:
                case str():
                    yield node
                case Block():
                    yield from self._block(node, scope)
                case _:
                    value = self._pipeline(node, scope)
                    yield "<no value>" if value is None else functions.show(value)

    def _block(self, block: Block, scope: _Scope) -> Iterator[str]:
        value = self._pipeline(block.pipeline, scope)
        variables = block.pipeline.variables
        scope = {**scope, **dict.fromkeys(variables, value)}
        scopes: list[_Scope] = [scope] if functions.truth(value) else []
        if block.keyword == "with":
            scopes = [{**scope, ".": value} for scope in scopes]
        elif block.keyword == "range":  # one variable takes the element, two take index and element
            scopes = [
                {**scope, ".": entry[1], **dict(zip(variables, entry[-len(variables) :], strict=False))}
                for entry in self._entries(value, block.pipeline.at)
            ]
        for inner in scopes:
            yield from self._render(block.body, inner)
        if not scopes:
            yield from self._render(block.otherwise, scope)

    def _entries(self, value: Value, at: int) -> Sequence[tuple[Value, Value]]:
        """Return what ``range`` goes over: index and element, or key and value in the order of the keys."""
        if isinstance(value, TemplateStruct | str | int):
            self._refuse(at, f'"range" goes over a list or a map, not {functions.describe_type(value)}')
        if isinstance(value, Mapping):
            return sorted(value.items())
        return list(enumerate(value or ()))

    def _pipeline(self, pipeline: Pipeline, scope: _Scope) -> Value:
        first, *calls = pipeline.commands
        value = self._operand(first, scope)
        for call in calls:
            value = self._operand(call, scope, value)
        return value

    def _operand(self, operand: Operand, scope: _Scope, *piped: Value) -> Value:
        if isinstance(operand, Literal):
            return operand.value
        if isinstance(operand, Call):
            return self._call(operand, scope, piped)
        start = operand.start
        value = self._pipeline(start, scope) if isinstance(start, Pipeline) else scope[start]
        for name in operand.names:
            value = self._field(value, name, operand.at)
        return value

    def _field(self, value: Value, name: str, at: int) -> Value:
        if isinstance(value, TemplateStruct):
            if name not in value.fields:
                known = ", ".join(f".{field}" for field in value.fields)
                self._refuse(at, f"unknown variable .{name}, expected one of {known}")
            return value.fields[name]
        if value is not None and not isinstance(value, Mapping):
            self._refuse(at, f"{functions.describe_type(value)} has no field .{name}")
        return value.get(name) if value else None

    def _call(self, call: Call, scope: _Scope, piped: Sequence[Value]) -> Value:
        name, values = call.function, list[Value]()
        _, _, function = functions.FUNCTIONS[name]
        for argument in call.arguments:
            value = self._operand(argument, scope)
            if name in {"and", "or"} and functions.truth(value) is (name == "or"):
                return value
            values.append(value)
        try:
            return function(*values, *piped)
        except errors.TemplateError as error:
            self._refuse(call.at, f"{name}: {error}")

    def _refuse(self, at: int, sentence: str) -> NoReturn:
        raise syntax.fault(self._text, at, sentence) from None
