"""Query and label templates: Go's ``text/template`` with the delimiters ``<<`` and ``>>``.

This is the public face: parse, render, and what the registry and the query plan want to know of a template. Lexer, parser,
evaluator, functions and printing have a module each. The law: what Go 1.22 renders, we render to the same text, and what Go
refuses we refuse, with sentences of our own. Not offered: complex numbers, pointers, floats in base 2 or 16.
"""

from collections.abc import Iterator, Mapping

from adapter import errors
from adapter.model.go_text import quote
from adapter.rules import template_eval, template_format, template_parse
from adapter.rules import template_nodes as nodes
from adapter.rules.template_format import Struct, Value

__all__ = [
    "LabelTemplate",
    "Template",
    "Value",
    "empty_label",
    "empty_query",
    "label_without_resource",
    "parse",
]


class Template:
    """A parsed template. It never changes and may be rendered any number of times.

    A plain template, text and bare ``<<.Variable>>`` only, is rendered by joining its pieces: that is the path of nearly every
    question that goes to Prometheus.
    """

    def __init__(self, tree: nodes.Tree) -> None:
        self.text = tree.text
        self._tree = tree
        self._fields = tuple(dict.fromkeys(_root_fields(tree.nodes, tree, dot=True, seen=set())))
        self._pieces = _plain_pieces(tree)

    def render(self, variables: Mapping[str, Value]) -> str:
        """Return the template's text with the variables put in; it may be empty.

        Raise `errors.TemplateError` for an unknown variable and for a function that fails.
        """
        if self._pieces is not None:
            show = template_format.show
            try:
                return "".join(
                    [text if field is None else show(variables[field]) for text, field in self._pieces]
                )
            except KeyError:  # said by the evaluator, with the place
                pass
        return template_eval.render(self._tree, Struct(variables))

    def fields(self) -> tuple[str, ...]:
        """Return the names of the variables that the template uses, in order of first use.

        Not counted: fields of other values (inside ``with`` and ``range``), and the variables as a whole (``<<.>>``).
        """
        return self._fields

    def is_plain(self) -> bool:
        """Tell whether the template is only text and bare ``<<.Variable>>``: no function, no condition, no field of a field."""
        return self._pieces is not None

    def __repr__(self) -> str:
        return f"Template({self.text!r})"


def parse(text: str) -> Template:
    """Return the template. Raise `errors.TemplateError`, which says line and column, for what Go would refuse."""
    return Template(template_parse.parse(text))


class LabelTemplate:
    """The template of ``resources.template``: from a resource to its label, and back by a regular expression."""

    def __init__(self, text: str) -> None:
        """Parse `text`. Raise `errors.TemplateError` for bad syntax only; `pattern` finds the rest."""
        self.text = text
        self._tree = template_parse.parse(text)

    def render(self, group: str, resource: str) -> str:
        """Return the label of a resource, given its group as the API names it and its singular name.

        ``.`` and ``-`` of the group become ``_``, as upstream does. Raise `errors.TemplateError` when nothing is rendered.
        """
        label = self._execute(group.replace(".", "_").replace("-", "_"), resource)
        if not label:
            raise errors.TemplateError(empty_label(self.text))
        return label

    def pattern(self) -> str:
        """Return the regular expression (RE2) that recognizes the labels, with groups named ``group`` and ``resource``.

        Literal text of the template is part of the expression as it is, not escaped. The caller compiles it and must refuse the
        template, with `label_without_resource`, if the result has no group named ``resource``. Raise `errors.TemplateError`
        when the template renders to nothing or fails.
        """
        rendered = self._execute("(?P<group>.+?)", "(?P<resource>.+?)")
        if not rendered:
            raise errors.TemplateError(empty_label(self.text))
        return f"^{rendered}$"

    def _execute(self, group: str, resource: str) -> str:
        whole = f"{resource}.{group}" if group else resource
        return template_eval.render(self._tree, Struct({"Group": group, "Resource": resource}, text=whole))


def empty_query(text: str) -> str:
    """Return the sentence about a query template that rendered to nothing."""
    return f"empty query produced by metrics query template {quote(text)}"


def empty_label(text: str) -> str:
    """Return the sentence about a label template that renders to nothing."""
    return f"empty label produced by label template {quote(text)}"


def label_without_resource(text: str) -> str:
    """Return the sentence about a label template from which no resource can be read back."""
    return f"label template {quote(text)} must include at least <<.Resource>>"


# --- analysis --------------------------------------------------------------------------------------------------------


def _plain_pieces(tree: nodes.Tree) -> tuple[tuple[str, str | None], ...] | None:
    """Return the pieces of a plain template, each a text or (second) the name of a variable; None if it is not plain."""
    pieces: list[tuple[str, str | None]] = []
    for node in tree.nodes:
        match node:
            case nodes.Text():
                pieces.append((node.text, None))
            case nodes.Action(nodes.Pipeline((), _, (nodes.Command((nodes.Field((name,), _),), _),), _)):
                pieces.append(("", name))
            case _:
                return None
    return tuple(pieces)


def _root_fields(
    body: tuple[nodes.Node, ...], tree: nodes.Tree, *, dot: bool, seen: set[str]
) -> Iterator[str]:
    """Yield the template's variables that a body uses; `dot` tells whether ``.`` is all of them there, as ``$`` always is.

    `seen` holds the defined templates already looked into.
    """
    for node in body:
        match node:
            case nodes.Action():
                yield from _used(node.pipeline, dot=dot)
            case nodes.If() | nodes.With() | nodes.Range():
                yield from _used(node.pipeline, dot=dot)
                yield from _root_fields(node.body, tree, dot=dot and isinstance(node, nodes.If), seen=seen)
                yield from _root_fields(node.otherwise, tree, dot=dot, seen=seen)
            case nodes.Call(name, nodes.Pipeline() as pipeline):
                yield from _used(pipeline, dot=dot)
                if _is_root(pipeline, dot=dot) and name not in seen:
                    seen.add(name)
                    yield from _root_fields(tree.defined.get(name, ()), tree, dot=True, seen=seen)


def _used(pipeline: nodes.Pipeline, *, dot: bool) -> Iterator[str]:
    for command in pipeline.commands:
        for operand in command.operands:
            while isinstance(operand, nodes.Chain):
                operand = operand.operand  # noqa: PLW2901 - the fields of a computed value are not ours, what it is made of is
            match operand:
                case nodes.Field(names) if dot:
                    yield names[0]
                case nodes.Variable("$", (name, *_)):
                    yield name
                case nodes.Pipeline():
                    yield from _used(operand, dot=dot)


def _is_root(pipeline: nodes.Pipeline, *, dot: bool) -> bool:
    """Tell whether a pipeline's value is all the variables: ``.`` or ``$`` alone."""
    match pipeline.commands:
        case (nodes.Command((nodes.Dot(),)),):
            return dot
        case (nodes.Command((nodes.Variable("$", ()),)),):
            return True
        case _:
            return False
