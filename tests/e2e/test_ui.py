"""The pages of `fastpath ui` in a browser, read as assistive technology reads them.

They show the demo, and a cluster with a scaler: the sandbox and, where KUBEBUILDER_ASSETS names one, a real
control plane.
"""

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from rich.console import Console

from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler, FastPathAutoscalerSpec
from adapter.model.objects.api_objects import Metadata
from fastpath_sandbox.demo import pages, run
from fastpath_tools.doctor.diagnosis import Examination
from fastpath_tools.doctor.hops import Hop, State
from fastpath_tools.live.facts import Leaders
from fastpath_tools.ui import autoscaler_page
from fastpath_tools.ui.autoscaler_reading import AutoscalerReading
from fastpath_tools.ui.pages import Content, Query, Templates
from fastpath_tools.ui.server import PageServer
from tests.e2e import chromium
from tests.e2e.chromium import Browser, Node, Tab
from tests.support import doctor, tools, waiting
from tests.support.processor import limited
from tests.tools.ui import autoscaler_views
from tests.tools.ui.autoscaler_views import point
from tests.world.workloads import level
from tests.world.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(240)]

SECTIONS = (
    "Over time",
    "From load to Ready pods",
    "The last decision",
    "Metrics",
    "Other writers",
    "Schedule and forecast",
    "Try",
)
"""The headings of the page of an autoscaler, in their order."""

MARKUP = "<img src=x onerror=alert(1)>"
HOSTILE = f"{MARKUP}\u202egpj"
SHOWN = f"{MARKUP}\\u202egpj"
CONTEXT = f"<script>alert(2)<\\script>{HOSTILE}"
LONG = "a" * 253


@pytest.fixture
async def browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Browser]:
    tools.require(chromium.PROGRAM, chromium.PACKAGE)
    monkeypatch.setenv("BROWSER", "true")  # `fastpath ui` opens no other one
    async with chromium.running(tmp_path / "profile") as browser:
        yield browser


async def wait_tree(tab: Tab, accept: Callable[[list[Node]], object], seconds: float = 30.0) -> list[Node]:
    """Wait until the tree of a page is as expected, and return it; fails with the last one."""
    tree: list[Node] = []
    try:
        async with limited(seconds):
            while not accept(tree := await tab.tree()):  # noqa: ASYNC110 - a page announces nothing
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError("\n".join(map(str, tree))) from None
    return tree


def headings(tree: Sequence[Node], level: int) -> list[str]:
    return [node.name for node in tree if (node.role, node.level) == ("heading", level)]


def names(tree: Sequence[Node], role: str) -> list[str]:
    return [node.name for node in tree if node.role == role]


def texts(tree: Sequence[Node]) -> str:
    return "\n".join(names(tree, "StaticText"))


def lines(tree: Sequence[Node]) -> list[str]:
    """Return the autoscalers of the fleet in their order."""
    return [name for name in names(tree, "link") if "/" in name]


def check_quiet(tab: Tab, address: str) -> None:
    """Check that a page loaded nothing from elsewhere, and that the browser has nothing to report."""
    origin = re.match(r"http://127\.0\.0\.1:\d+/", address)
    assert origin is not None
    foreign = [url for url in tab.requests if not url.startswith((origin[0], "data:"))]
    assert tab.requests
    assert foreign == []
    assert tab.problems == []


@pytest.fixture
async def demo(browser: Browser) -> AsyncIterator[str]:
    """Return the address of the pages of the demo."""
    tools.require("prometheus", "prometheus")
    screen = io.StringIO()
    running = run.run("test", seconds=None, port=0, console=Console(file=screen, width=80), ui=True)
    async with waiting.running(running):
        await waiting.until(lambda: re.search(r"^pages .*\n", screen.getvalue(), re.MULTILINE), 60.0)
        yield dict(re.findall(r"^(\w+) +(\S+)", screen.getvalue(), re.MULTILINE))["pages"]


async def test_the_demo_is_complete_in_each_view(browser: Browser, demo: str) -> None:
    fleet = await browser.tab()
    await fleet.open(demo)
    tree = await wait_tree(fleet, lambda tree: {"shop/web-fast", "shop/web-native"} <= {*names(tree, "link")})
    assert headings(tree, 1) == ["Autoscalers"]
    assert names(tree, "columnheader")[:3] == ["Autoscaler", "Replicas", "Limits"]
    assert names(tree, "cell").count("2\u20138") == 2
    for name in ("web-fast", "web-native"):
        tab = await browser.tab(width=390)
        await tab.open(f"{demo}autoscalers/shop/{name}")
        tree = await wait_tree(tab, lambda tree: "requests_in_flight" in texts(tree))
        assert headings(tree, 1) == [f"shop/{name}"]
        assert tuple(headings(tree, 2)) == SECTIONS
        assert any("requests_in_flight" in header for header in names(tree, "rowheader"))
        assert "no scaler runs for it" not in texts(tree)
        assert "10" in names(tree, "cell"), "the target"
        width = (await tab.call("Page.getLayoutMetrics"))["cssContentSize"]["width"]
        assert width == 390, "nothing is wider than the screen of a telephone"
        check_quiet(tab, demo)
    check_quiet(fleet, demo)


SLIDE = """
const input = document.getElementById(%r);
input.%s;
input.dispatchEvent(new Event("input", {bubbles: true}));
"""
READ = "document.querySelector('output[for=%s]').textContent"


FAINT = """
(() => {
  const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (color) => {
    const [r, g, b] = numbers(color).map((c) => (c <= 10 ? c / 3294.6 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = (node) => {
    const color = getComputedStyle(node).backgroundColor;
    return numbers(color)[3] === 0 && node.parentElement ? paper(node.parentElement) : color;
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const found = [];
  for (let node; (node = walker.nextNode()); ) {
    const parent = node.parentElement;
    if (!node.data.trim() || !parent.checkVisibility() || !parent.getClientRects().length) continue;
    const style = getComputedStyle(parent);
    const two = [light(parent.closest("svg") ? style.fill : style.color), light(paper(parent))];
    const ratio = (Math.max(...two) + 0.05) / (Math.min(...two) + 0.05);
    if (ratio < 4.5) found.push(`${node.data.trim()}: ${ratio.toFixed(2)}`);
  }
  return found;
})()
"""
"""The texts whose contrast is below that of WCAG 2, level AA."""


class PastPage(NamedTuple):
    """An HPA with an hour of history, so that other settings can be tried."""

    templates: Templates

    async def read(self, query: Query) -> Content:
        spec = FastPathAutoscalerSpec(min_replicas=2, max_replicas=10)
        autoscaler = FastPathAutoscaler(metadata=Metadata("web", "shop"), spec=spec)
        hops = (Hop("autoscaler", State.OK, "its conditions report no problem", timed=False),)
        examined = Examination(doctor.fast_facts(autoscaler, Leaders(())), hops, fpa=autoscaler)
        past = autoscaler_views.history(point(-3600, 4), point(-2400, 12, 4), point(-2100, 4))
        reading = AutoscalerReading(autoscaler_views.view(history=past), examined)
        return autoscaler_page.render(self.templates, reading, query)


async def test_each_text_is_readable_on_screens_and_paper(browser: Browser) -> None:
    templates = Templates("/token/")
    server = PageServer("token", templates, lambda _: PastPage(templates))
    async with server.listening(0) as port:
        for media, width, dark in (("screen", 1280, False), ("screen", 390, True), ("print", 700, True)):
            tab = await browser.tab(width=width)
            scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
            await tab.call("Emulation.setEmulatedMedia", media=media, features=[scheme])
            await tab.open(f"http://127.0.0.1:{port}/token/?target=65")
            await wait_tree(tab, lambda tree: "Other writers" in headings(tree, 2))
            assert await tab.evaluate(FAINT) == []
            size = (await tab.call("Page.getLayoutMetrics"))["cssContentSize"]["width"]
            assert size == width, "nothing is wider than the page"


async def test_what_stands_beside_an_input_follows_it(browser: Browser) -> None:
    templates = Templates("/token/")
    server, tab = PageServer("token", templates, lambda _: PastPage(templates)), await browser.tab()
    async with server.listening(0) as port:
        address = f"http://127.0.0.1:{port}/token/"
        await tab.open(address)
        await wait_tree(tab, lambda tree: "Replay" in names(tree, "button"))
        for name, change, text in (
            ("try-target", "value = 65", "65 %"),
            ("try-window", "value = 90", "90 s"),
            ("try-boost", "checked = true", "on"),
        ):
            await tab.evaluate(f"(() => {{{SLIDE % (name, change)}}})()")
            assert await tab.evaluate(READ % name) == text
        html = await tab.evaluate("document.getElementById('try').innerHTML")
        section = {"name": "try", "lines": html.replace("65 %", "100 %").split("\n")}
        await tab.evaluate(f"show({json.dumps(section)})")
        assert await tab.evaluate(READ % "try-target") == "65 %", "a section that comes does not turn it back"
        check_quiet(tab, address)


@pytest.fixture
async def address(browser: Browser, world: World) -> AsyncIterator[str]:
    """Return the address of the pages about a world whose autoscaler `web` follows a queue."""
    world.fpa("web", load=level(2))
    await world.serve()
    await world.create(_hostile(world.namespace))
    flags = await asyncio.to_thread(_flags, world)
    async with pages.served([*flags, world.namespace]) as address:
        yield address


def _flags(world: World) -> list[str]:
    """Return the flags of `fastpath ui`; its context has a hostile name."""
    kubeconfig, token = world.directory / "pages.kubeconfig", world.directory / "pages.token"
    document = yaml.safe_load(world.cluster.admin.kubeconfig(kubeconfig).read_text())
    document["contexts"] = [{**document["contexts"][0], "name": CONTEXT}]
    kubeconfig.write_text(json.dumps({**document, "current-context": CONTEXT}))
    token.write_text(world.cluster.token)
    (fastpath,) = world.processes
    authority = world.directory / fastpath.pod / "apiserver.crt"
    server = (
        f"--server=https://127.0.0.1:{fastpath.port}",
        f"--token-file={token}",
        f"--ca-file={authority}",
    )
    return [f"--kubeconfig={kubeconfig}", f"--config={world.directory / 'rules.yaml'}", *server]


def _hostile(namespace: str, name: str = LONG) -> dict[str, object]:
    """Return an HPA with the longest name, and a metric whose name is markup that turns text around."""
    target = {"type": "AverageValue", "averageValue": "10"}
    metric = {"type": "External", "external": {"metric": {"name": HOSTILE}, "target": target}}
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"scaleTargetRef": reference, "minReplicas": 1, "maxReplicas": 5, "metrics": [metric]},
    }


async def test_an_autoscaler_follows_its_values_and_is_complete_without_scripts(
    world: World, address: str, browser: Browser
) -> None:
    page = f"{address}autoscalers/{world.namespace}/web"
    live, plain = await browser.tab(), await browser.tab(scripts=False)
    await live.open(page)
    tree = await wait_tree(live, lambda tree: "2 replicas" in texts(tree))
    assert headings(tree, 1) == [f"{world.namespace}/web"]
    await plain.open(page)
    for shown in (tree, await plain.tree()):
        assert tuple(headings(shown, 2)) == SECTIONS
    world.load("web", level(5))
    await wait_tree(live, lambda tree: "5 replicas" in texts(tree))
    await plain.open(f"{address}?name=web")
    assert lines(await plain.tree()) == [f"{world.namespace}/web"], "the filter is a form"
    for tab in (live, plain):
        check_quiet(tab, address)


async def wait_lines(live: Tab, plain: Tab, address: str, shown: set[str]) -> None:
    """Wait for some lines, in the order of the page as it is loaded then; an examination may move them."""
    seen: list[list[str]] = []
    async with limited(30):
        while len(seen) < 2 or seen[0] != seen[1] or set(seen[0]) != shown:
            await plain.open(address)
            seen = [lines(await tab.tree()) for tab in (live, plain)]


async def test_the_fleet_has_its_order_and_hostile_names_are_text(
    world: World, address: str, browser: Browser
) -> None:
    live, plain = await browser.tab(width=390), await browser.tab(scripts=False)
    namespace = world.namespace
    for path in (f"autoscalers/{namespace}/{LONG}", ""):
        await live.open(f"{address}{path}")
        tree = await wait_tree(live, lambda tree: LONG in texts(tree))
        assert MARKUP in texts(tree)
        assert "\u202e" not in texts(tree)
        counted = "[document.images.length, document.scripts.length, document.documentElement.scrollWidth]"
        assert await live.evaluate(counted) == [0, 1, 390]
        assert path == "" or SHOWN in texts(tree)

    shown = {f"{namespace}/web", f"{namespace}/{LONG}"}
    await wait_lines(live, plain, address, shown)
    for name in ("0-first", "b-second", "a-between"):
        await world.create(_hostile(namespace, name))
        shown |= {f"{namespace}/{name}"}
        await wait_lines(live, plain, address, shown)
    await world.cluster.kubectl("delete", "hpa", "0-first", f"--namespace={namespace}")
    await wait_lines(live, plain, address, shown - {f"{namespace}/0-first"})
    check_quiet(live, address)
