"""The syntax tree of a template, as `template_parse` builds it and `template_eval` walks it. Values only, no behaviour.

`at` is always the offset of the piece in the template's text, for messages.
"""

from typing import NamedTuple


class Literal(NamedTuple):
    """A text, number or truth value written out."""

    value: str | bool | int | float
    at: int


class Nil(NamedTuple):
    """The word ``nil``."""

    at: int


class Dot(NamedTuple):
    """The value in scope, ``.``."""

    at: int


class Field(NamedTuple):
    """``.A.B``: fields of the value in scope."""

    names: tuple[str, ...]
    at: int


class Variable(NamedTuple):
    """``$x.A.B``: a variable, then fields of its value. `name` has its dollar sign."""

    name: str
    names: tuple[str, ...]
    at: int


class Function(NamedTuple):
    """The name of a function; as an operand, a call without arguments."""

    name: str
    at: int


class Chain(NamedTuple):
    """``(pipeline).A.B``: fields of a computed value."""

    operand: "Pipeline | Function"
    names: tuple[str, ...]
    at: int


class Command(NamedTuple):
    """An operand, or something to call and its arguments."""

    operands: tuple["Operand", ...]
    at: int


class Pipeline(NamedTuple):
    """Commands, each given the value of the one before; its value goes to the variables, if any.

    `assigns` tells ``=`` from ``:=``.
    """

    variables: tuple[str, ...]
    assigns: bool
    commands: tuple[Command, ...]
    at: int


Operand = Literal | Nil | Dot | Field | Variable | Function | Chain | Pipeline


class Text(NamedTuple):
    """Text that is copied."""

    text: str


class Action(NamedTuple):
    """A pipeline whose value is printed, unless it goes to a variable."""

    pipeline: Pipeline


class If(NamedTuple):
    """``if``; an ``else if`` is an `If` alone in `otherwise`."""

    pipeline: Pipeline
    body: tuple["Node", ...]
    otherwise: tuple["Node", ...]


class With(NamedTuple):
    """``with``: the body sees the pipeline's value as the value in scope."""

    pipeline: Pipeline
    body: tuple["Node", ...]
    otherwise: tuple["Node", ...]


class Range(NamedTuple):
    """``range``: the body for each element, `otherwise` if there is none."""

    pipeline: Pipeline
    body: tuple["Node", ...]
    otherwise: tuple["Node", ...]


class Call(NamedTuple):
    """``template`` (or the call that a ``block`` is): a defined template with the pipeline's value, or nothing, in scope."""

    name: str
    pipeline: Pipeline | None
    at: int


class Break(NamedTuple):
    """``break``."""


class Continue(NamedTuple):
    """``continue``."""


Node = Text | Action | If | With | Range | Call | Break | Continue


class Tree(NamedTuple):
    """A parsed template: its text, its nodes, and the nodes of the templates it defines."""

    text: str
    nodes: tuple[Node, ...]
    defined: dict[str, tuple[Node, ...]]
