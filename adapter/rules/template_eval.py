"""Rendering: a walk over a template's tree with the values of one rendering.

The law is the execution of Go's ``text/template``: variables live until the ``end`` of what declares them, a defined template
sees only its own, a missing map entry is nil and prints as ``<no value>``, an unknown field of the variables is an error. Plain
templates never come here: `template` joins their pieces itself.
"""

import enum
from collections.abc import Mapping, Sequence
from typing import NoReturn

from adapter import errors
from adapter.rules import template_format, template_functions
from adapter.rules import template_lex as lex
from adapter.rules import template_nodes as nodes
from adapter.rules.template_format import Struct, Value


def render(tree: nodes.Tree, values: Struct) -> str:
    """Return the text that the template makes of the values. Raise `errors.TemplateError`, which begins with ``line:column``."""
    rendering = _Rendering(tree, values)
    try:
        return rendering.text()
    except RecursionError:
        raise errors.TemplateError("templates or parentheses are nested too deeply") from None


class _Jump(enum.Enum):
    """How a body ended: NEXT in the usual way, BREAK and CONTINUE by a word that its ``range`` looks at."""

    NEXT = 0
    BREAK = 1
    CONTINUE = 2


class _Absent(enum.Enum):
    """Stands where a command has no value from the command before it."""

    ABSENT = 0


_ABSENT = _Absent.ABSENT


class _Rendering:
    """One run: the output so far, and the variables of the template that is running, innermost last."""

    def __init__(self, tree: nodes.Tree, values: Struct) -> None:
        self._tree = tree
        self._values = values
        self._variables: list[tuple[str, Value]] = [("$", values)]
        self._output: list[str] = []

    def text(self) -> str:
        self._body(self._tree.nodes, self._values)
        return "".join(self._output)

    # --- nodes ---

    def _body(self, body: tuple[nodes.Node, ...], dot: Value) -> _Jump:
        for node in body:
            jump = self._node(node, dot)
            if jump is not _Jump.NEXT:
                return jump
        return _Jump.NEXT

    def _node(self, node: nodes.Node, dot: Value) -> _Jump:
        match node:
            case nodes.Text():
                self._output.append(node.text)
            case nodes.Action():
                value = self._pipeline(node.pipeline, dot)
                if not node.pipeline.variables:
                    self._output.append("<no value>" if value is None else template_format.show(value))
            case nodes.Call():
                self._call_template(node, dot)
            case nodes.Break():
                return _Jump.BREAK
            case nodes.Continue():
                return _Jump.CONTINUE
            case _:
                declared = len(self._variables)
                jump = (
                    self._range(node, dot) if isinstance(node, nodes.Range) else self._conditional(node, dot)
                )
                del self._variables[declared:]
                return jump
        return _Jump.NEXT

    def _conditional(self, node: nodes.If | nodes.With, dot: Value) -> _Jump:
        value = self._pipeline(node.pipeline, dot)
        if template_functions.truth(value):
            return self._body(node.body, value if isinstance(node, nodes.With) else dot)
        return self._body(node.otherwise, dot)

    def _range(self, node: nodes.Range, dot: Value) -> _Jump:
        value = self._pipeline(node.pipeline, dot)
        entries: list[tuple[Value, Value]]
        match value:
            case None:
                entries = []
            case Struct() | str() | bool() | int() | float():
                self._refuse(
                    node.pipeline.at,
                    f'"range" goes over a list or a map, not {template_functions.kind(value)}',
                )
            case Mapping():
                entries = [(key, value[key]) for key in sorted(value)]
            case _:
                entries = list(enumerate(value))
        if not entries:
            return self._body(node.otherwise, dot)
        declared = len(self._variables)
        for index, element in entries:
            self._bind(node.pipeline, declared, index, element)
            jump = self._body(node.body, element)
            del self._variables[declared:]
            if jump is _Jump.BREAK:
                break
        return _Jump.NEXT

    def _bind(self, pipeline: nodes.Pipeline, declared: int, index: Value, element: Value) -> None:
        """Give the variables of a ``range`` their values: one takes the element, two take index and element."""
        values = (element,) if len(pipeline.variables) == 1 else (index, element)
        for position, (name, value) in enumerate(zip(pipeline.variables, values, strict=False)):
            if pipeline.assigns:
                self._assign(name, value, pipeline.at)
            else:
                self._variables[declared - len(pipeline.variables) + position] = (name, value)

    def _call_template(self, node: nodes.Call, dot: Value) -> None:
        body = self._tree.defined.get(node.name)
        if body is None:
            self._refuse(node.at, f'template "{node.name}" is not defined')
        argument = None if node.pipeline is None else self._pipeline(node.pipeline, dot)
        outer, self._variables = self._variables, [("$", argument)]
        self._body(body, argument)
        self._variables = outer

    # --- pipelines ---

    def _pipeline(self, pipeline: nodes.Pipeline, dot: Value) -> Value:
        value: Value | _Absent = _ABSENT
        for command in pipeline.commands:
            value = self._command(command, dot, value)
        assert not isinstance(value, _Absent)  # the parser refuses a pipeline without commands
        for name in pipeline.variables:
            if pipeline.assigns:
                self._assign(name, value, pipeline.at)
            else:
                self._variables.append((name, value))
        return value

    def _assign(self, name: str, value: Value, at: int) -> None:
        for position in reversed(range(len(self._variables))):
            if self._variables[position][0] == name:
                self._variables[position] = (name, value)
                return
        self._refuse(at, f"undefined variable {name}, expected {name} := before it is changed")

    def _command(self, command: nodes.Command, dot: Value, final: Value | _Absent) -> Value:
        """Return the value of a command; `final`, the value of the command before it, is its last argument."""
        first, *arguments = command.operands
        if isinstance(first, nodes.Function):
            return self._function(first, arguments, dot, final)
        if isinstance(first, nodes.Nil):
            self._refuse(first.at, "nil alone is not a command")
        if not arguments and final is _ABSENT:
            return self._operand(first, dot)
        if isinstance(first, nodes.Field | nodes.Variable | nodes.Chain) and first.names:
            holder = self._fields(self._holder(first, dot), first.names[:-1], first.at)
            if holder is None:  # a field of nil is nil before Go looks at the arguments
                return None
        raise lex.fault(self._tree.text, first.at, "a value cannot be given an argument, only a function can")

    def _operand(self, operand: nodes.Operand, dot: Value) -> Value:
        match operand:
            case nodes.Literal():
                return operand.value
            case nodes.Nil():
                return None
            case nodes.Dot():
                return dot
            case nodes.Field() | nodes.Variable() | nodes.Chain():
                return self._fields(self._holder(operand, dot), operand.names, operand.at)
            case nodes.Function():
                return self._function(operand, (), dot, _ABSENT)
            case _:
                return self._pipeline(operand, dot)

    def _holder(self, operand: nodes.Field | nodes.Variable | nodes.Chain, dot: Value) -> Value:
        """Return the value whose fields an operand asks for."""
        if isinstance(operand, nodes.Field):
            return dot
        if isinstance(operand, nodes.Chain):
            return self._operand(operand.operand, dot)
        for name, value in reversed(self._variables):
            if name == operand.name:
                return value
        raise lex.fault(
            self._tree.text,
            operand.at,
            f"undefined variable {operand.name}, expected {operand.name} := before it is used",
        )

    def _fields(self, value: Value, names: tuple[str, ...], at: int) -> Value:
        for name in names:
            match value:
                case None:
                    return None
                case Struct():
                    if name not in value.fields:
                        known = ", ".join(f".{field}" for field in value.fields)
                        self._refuse(at, f"unknown variable .{name}, expected one of {known}")
                    value = value.fields[name]
                case Mapping():
                    value = value.get(name)
                case _:
                    self._refuse(at, f"{template_functions.kind(value)} has no field .{name}")
        return value

    def _function(
        self, function: nodes.Function, arguments: Sequence[nodes.Operand], dot: Value, final: Value | _Absent
    ) -> Value:
        name = function.name
        signature = template_functions.signature(name)
        count = len(arguments) + (final is not _ABSENT)
        if count < signature.least or (signature.most is not None and count > signature.most):
            wanted = f"{'at least ' if signature.most is None else ''}{signature.least}"
            plural = "" if signature.least == 1 else "s"
            self._refuse(function.at, f"{name} takes {wanted} argument{plural}, not {count}")
        values: list[Value] = []
        for argument in arguments:
            value = self._operand(argument, dot)
            if name in {"and", "or"} and template_functions.truth(value) is (name == "or"):
                return value
            values.append(value)
        if not isinstance(final, _Absent):
            values.append(final)
        try:
            return signature.call(values)
        except errors.TemplateError as error:
            raise lex.fault(self._tree.text, function.at, f"{name}: {error}") from None

    def _refuse(self, at: int, sentence: str) -> NoReturn:
        raise lex.fault(self._tree.text, at, sentence)
