"""The page of all autoscalers: its form, and that what others chose is text. Its HTML: `pages`."""

import json
import re
from html.parser import HTMLParser

import jinja2
import pytest

from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND
from fastpath_tools.ui import fleet_page
from fastpath_tools.ui.fleet import FleetFilter, FleetRow
from fastpath_tools.ui.fleet_page import elapsed
from fastpath_tools.ui.fleet_reading import Fleet
from fastpath_tools.ui.pages import Templates
from tests.tools.hostile_text import HOSTILE, acting

NOW = 1_000_000.0
PLAIN = FleetRow(HPA_KIND, "shop", "web", "", 4, 7, 2, 20, last_scale=NOW - 125, age=0.8)


class Elements(HTMLParser):
    """The elements of a page, their attributes and their texts; every element is closed in order."""

    _VOID = frozenset({"meta", "link", "input"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag in {"td", "tr", "tbody"} and self.open[-1] == "td":
            self.open.pop()
        if tag not in self._VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open[-1] == "td" != tag:
            self.open.pop()
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def words(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))


def render(*rows: FleetRow, notes: tuple[str, ...] = (), **query: str) -> str:
    templates = Templates("/token/", "prod")
    content = fleet_page.render(Fleet(rows, notes), FleetFilter.of_query(query), NOW, templates)
    return templates.layout(content, "/token/events?page=")


def test_what_an_assistive_program_reads() -> None:
    page = Elements(render(PLAIN))
    assert page.open == []
    assert ("href", "/token/autoscalers/shop/web") in page.attributes
    assert {"header", "nav", "main", "h1", "form", "table", "caption", "thead", "tbody"} <= set(page.names)
    assert page.names.count("h1") == page.names.count("main") == 1
    assert page.attributes.count(("scope", "col")) == 7
    assert page.attributes.count(("scope", "row")) == 1
    assert ("lang", "en") in page.attributes
    assert not [name for name, _ in page.attributes if name.startswith("on") or name == "style"]


HOSTILE_NAMES = [
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt;",
    "evil\u202egpj.exe\u2066",
    "a" * 253,
    HOSTILE,
    "../../style.css?x#y",
    "javascript:alert(1)",
]


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=lambda name: ascii(name)[:20])
def test_what_others_chose_is_text(name: str) -> None:
    harmless = Elements(render(PLAIN._replace(fault="x"), notes=("x",)))
    row = PLAIN._replace(namespace=name, name=name, fault=name)
    text = render(row, notes=(name,), namespace=name[:0], name="")
    page = Elements(text)
    assert page.names == harmless.names
    assert [name for name, _ in page.attributes] == [name for name, _ in harmless.attributes]
    assert not acting(text)
    links = [value for attribute, value in page.attributes if attribute in {"href", "src", "action"}]
    assert all(link.startswith(("/token/", "data:,")) for link in links)
    if name.isprintable():
        assert page.texts.count(name) == 2 + (len(name) < 500), "name, note, and a fault that is not too long"


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=lambda name: ascii(name)[:20])
def test_what_a_form_sent_is_text(name: str) -> None:
    text = render(PLAIN, namespace=name, name=name, problem=name)
    assert not acting(text)
    assert Elements(text).names == Elements(render(PLAIN, namespace="none")).names


def test_a_line_that_becomes_the_worst_is_sent_and_the_order_of_all() -> None:
    rows = [PLAIN._replace(name=f"web-{number:03}") for number in range(1000)]
    worse = [rows[500]._replace(fault="gone"), *rows[:500], *rows[501:]]
    templates = Templates("/token/", "prod")
    before, after = (
        fleet_page.render(Fleet(shown), FleetFilter(), NOW, templates).sections[-1] for shown in (rows, worse)
    )
    changes = after.changes(before.lines)
    [line] = [change for change in changes if isinstance(change, str)]
    assert "web-500" in line
    places = [change for change in changes if isinstance(change, int)]
    assert len(changes) == len(before.lines)
    assert [before.lines[place] for place in places if "web-" in before.lines[place]] == [
        line for line in before.lines if "web-" in line and "web-500" not in line
    ]
    assert len(after.html) > 100_000
    assert len(json.dumps(changes)) < 10_000


@pytest.mark.parametrize(
    ("length", "text"),
    [(-3, "0 s"), (0.4, "0 s"), (59.4, "59 s"), (60, "1 m"), (3599, "60 m"), (7200, "2 h"), (200_000, "2 d")],
)
def test_a_time_that_has_passed(length: float, text: str) -> None:
    assert elapsed(length) == text


def test_a_template_that_names_what_it_was_not_given_fails() -> None:
    with pytest.raises(jinja2.UndefinedError):
        Templates("/token/").render("fleet.html", rows=[])


def test_colors_of_pages_are_those_of_charts() -> None:
    style = Templates("/token/").render("style.css")
    assert "--red: #d1242f;" in style
    assert "--red: #f85149;" in style


def test_the_address_of_an_autoscaler() -> None:
    assert fleet_page.of_autoscaler("shop", "a/b?c") == "autoscalers/shop/a%2Fb%3Fc"
    assert fleet_page.parse_autoscaler("autoscalers/shop/web") == ("shop", "web")
    for path in (
        "",
        "autoscalers",
        "autoscalers/shop",
        "autoscalers/shop/",
        "autoscalers/a/b/c",
        "x/shop/web",
    ):
        assert fleet_page.parse_autoscaler(path) is None
