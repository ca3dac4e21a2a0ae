"""A page as sections of HTML, and the templates that render them.

What a page shows is read in `Page.read`; all else is pure. Every value that a template inserts is text:
escaped for HTML, and with escapes for characters that hide or turn around what is near them.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jinja2
from markupsafe import Markup, escape

from adapter.model import visible
from fastpath_tools import charts
from fastpath_tools.doctor.hops import seconds
from fastpath_tools.ui import axis


class Section(NamedTuple):
    """A part of a page, of whose HTML the lines that change are sent; `name` is the id of its element."""

    name: str
    html: Markup

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.html.encode()).hexdigest()[:12]

    @property
    def lines(self) -> list[str]:
        return str(self.html).split("\n")

    def changes(self, before: Sequence[str]) -> list[str | int]:
        """Return the lines; one that was there `before`, maybe elsewhere, is its place there."""
        places = {line: place for place, line in enumerate(before)}
        return [places.get(line, line) for line in self.lines]


class Content(NamedTuple):
    """What a page shows at one moment, from the top down, and with which status."""

    title: str
    sections: Sequence[Section]
    status: int = 200


Query = Mapping[str, str]
"""The fields of a form in an address."""


class Page(Protocol):
    """One page. It may be read every second, and by several requests one after the other."""

    async def read(self, query: Query) -> Content:
        """Return what the page shows now. FastpathError for what cannot be read."""


class Templates:
    """Renders the templates of this package. `root` is the path that all addresses begin with."""

    def __init__(self, root: str, cluster: str = "") -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.PackageLoader(__package__),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            finalize=_shown,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        colors = {
            name.lower(): color for name, color in vars(charts).items() if isinstance(color, charts.Color)
        }
        style = Markup(axis.STYLE)  # noqa: S704 - constant
        self._environment.filters["unbroken"] = _unbroken
        self._environment.globals |= {"root": root, "cluster": cluster, "colors": colors, "axis_style": style}
        self._environment.globals |= {"seconds": seconds, "axes": axis}

    def render(self, name: str, **facts: Any) -> Markup:
        """Return a template with some facts filled in."""
        return Markup(self._environment.get_template(name).render(facts))  # noqa: S704 - it escaped them

    def section(self, name: str, template: str, **facts: Any) -> Section:
        return Section(name, self.render(template, **facts))

    def layout(self, content: Content, events: str, problem: str = "") -> Markup:
        """Return a whole page; `events` is the address of its changes, `problem` why it is not up to date."""
        return self.render("layout.html", content=content, events=events, problem=problem)


_TIME = re.compile(r"(\d) (ms|s|m|h)\b")


def _unbroken(text: str) -> Markup:
    """Return a text in which no line breaks between a number and its unit of time."""
    return Markup(_TIME.sub(r"\1&nbsp;\2", escape(visible.escape(text))))  # noqa: S704 - it is escaped


def _shown(value: object) -> object:
    return value if isinstance(value, Markup) else visible.escape(str(value))
