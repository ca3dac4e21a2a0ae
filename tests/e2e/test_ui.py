"""The pages of `fastpath ui` in a browser, read as assistive technology reads them.

They show the demo, and a cluster with a scaler: the sandbox and, where KUBEBUILDER_ASSETS names one, a real
control plane.
"""

import asyncio
import contextlib
import io
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from rich.console import Console

from adapter.model.autoscaling import fastpath_autoscaler
from fastpath_sandbox.demo import pages, run
from scripts.generate import crd
from tests.e2e.clusters import ClusterUnderTest
from tests.e2e.test_aggregation import deployment, write
from tests.e2e.test_scaler import BACKLOG, RULES, autoscaler
from tests.support import chromium, tools, waiting
from tests.support.adapter import RunningAdapter
from tests.support.chromium import Browser, Node, Tab
from tests.support.processor import limited
from tests.support.prometheus import PrometheusFactory, PrometheusServer

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(240)]

KIND = f"{fastpath_autoscaler.PLURAL}.{fastpath_autoscaler.GROUP}"
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


# -- the demo ------------------------------------------------------------------------------------------------


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


async def test_what_stands_beside_an_input_follows_it(browser: Browser, demo: str) -> None:
    tab = await browser.tab()
    await tab.open(f"{demo}autoscalers/shop/web-native")
    await wait_tree(tab, lambda tree: "Replay" in names(tree, "button"), 100.0)  # it has figures of a minute
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
    check_quiet(tab, demo)


# -- a cluster with a scaler ---------------------------------------------------------------------------------


class Scene(NamedTuple):
    """A cluster whose autoscaler `web` follows a queue, and the address of the pages about it."""

    cluster: ClusterUnderTest
    prometheus: PrometheusServer
    address: str

    async def queue(self, length: float) -> None:
        namespace = self.cluster.namespace
        await write(self.prometheus, "backlog", length, namespace=namespace, queue="orders")

    @property
    def page(self) -> str:
        return f"{self.address}autoscalers/{self.cluster.namespace}/web"


@pytest.fixture
async def scene(
    browser: Browser, cluster: ClusterUnderTest, prometheus_server: PrometheusFactory, tmp_path: Path
) -> AsyncIterator[Scene]:
    prometheus = await asyncio.to_thread(prometheus_server)
    await cluster.kubectl("apply", "--validate=false", "-f", str(crd.PATH))
    await cluster.kubectl("wait", "--for=condition=Established", f"crd/{KIND}", "--timeout=30s")
    await asyncio.to_thread((tmp_path / "rules.yaml").write_text, RULES)
    arguments = ("--scaler", "--local-address=", "--metrics-relist-interval=1s", "--metrics-max-age=5m")
    async with contextlib.AsyncExitStack() as stack:
        adapter = await stack.enter_async_context(cluster.adapter(prometheus.url, *arguments))
        flags = await asyncio.to_thread(_flags, cluster, adapter, tmp_path)
        address = await stack.enter_async_context(pages.served([*flags, cluster.namespace]))
        scene = Scene(cluster, prometheus, address)
        await scene.queue(20)
        await cluster.create(deployment(cluster), autoscaler(cluster, BACKLOG), *_hostile(cluster))
        yield scene


def _flags(cluster: ClusterUnderTest, adapter: RunningAdapter, directory: Path) -> list[str]:
    """Return the flags of `fastpath ui`; its context has a hostile name."""
    kubeconfig, token = directory / "pages.kubeconfig", directory / "pages.token"
    document = yaml.safe_load(cluster.admin.kubeconfig(kubeconfig).read_text())
    document["contexts"] = [{**document["contexts"][0], "name": CONTEXT}]
    kubeconfig.write_text(json.dumps({**document, "current-context": CONTEXT}))
    token.write_text(cluster.token)
    authority = directory / "certificates" / "apiserver.crt"
    server = (f"--server={adapter.url}", f"--token-file={token}", f"--ca-file={authority}")
    return [f"--kubeconfig={kubeconfig}", f"--config={directory / 'rules.yaml'}", *server]


def _hostile(cluster: ClusterUnderTest) -> list[dict[str, object]]:
    """Return an HPA with the longest name, and a metric whose name is markup that turns text around."""
    target = {"type": "AverageValue", "averageValue": "10"}
    metric = {"type": "External", "external": {"metric": {"name": HOSTILE}, "target": target}}
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"}
    spec = {"scaleTargetRef": reference, "minReplicas": 1, "maxReplicas": 5, "metrics": [metric]}
    metadata = {"name": LONG, "namespace": cluster.namespace}
    kind = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
    return [{**kind, "metadata": metadata, "spec": spec}]


async def test_an_autoscaler_is_complete_and_follows_its_values(scene: Scene, browser: Browser) -> None:
    tab = await browser.tab()
    await tab.open(scene.page)
    tree = await wait_tree(tab, lambda tree: "2 replicas" in texts(tree))
    assert headings(tree, 1) == [f"{scene.cluster.namespace}/web"]
    assert tuple(headings(tree, 2)) == SECTIONS
    await scene.queue(50)
    await wait_tree(tab, lambda tree: "5 replicas" in texts(tree))
    check_quiet(tab, scene.address)


async def wait_lines(live: Tab, plain: Tab, address: str, shown: set[str]) -> None:
    """Wait for some lines, in the order of the page as it is loaded then; an examination may move them."""
    seen: list[list[str]] = []
    async with limited(30):
        while len(seen) < 2 or seen[0] != seen[1] or set(seen[0]) != shown:
            await plain.open(address)
            seen = [lines(await tab.tree()) for tab in (live, plain)]


async def test_the_fleet_has_its_order_while_lines_come_and_go(scene: Scene, browser: Browser) -> None:
    live, plain = await browser.tab(), await browser.tab(scripts=False)
    await live.open(scene.address)
    namespace = scene.cluster.namespace
    shown = {f"{namespace}/web", f"{namespace}/{LONG}"}
    await wait_lines(live, plain, scene.address, shown)
    [hpa] = _hostile(scene.cluster)
    for name in ("0-first", "b-second", "a-between"):
        await scene.cluster.create({**hpa, "metadata": {"name": name, "namespace": namespace}})
        shown |= {f"{namespace}/{name}"}
        await wait_lines(live, plain, scene.address, shown)
    await scene.cluster.kubectl("delete", "hpa", "0-first", f"--namespace={namespace}")
    await wait_lines(live, plain, scene.address, shown - {f"{namespace}/0-first"})
    check_quiet(live, scene.address)


async def test_without_scripts_the_page_is_the_same(scene: Scene, browser: Browser) -> None:
    plain, live = await browser.tab(scripts=False), await browser.tab()
    for tab in (plain, live):
        await tab.open(scene.page)
    shown = (await plain.tree(), await live.tree())
    assert headings(shown[0], 2) == headings(shown[1], 2) == list(SECTIONS)
    await plain.open(f"{scene.address}?name=web")
    tree = await plain.tree()
    assert lines(tree) == [f"{scene.cluster.namespace}/web"], "the filter is a form"
    check_quiet(plain, scene.address)


async def test_hostile_names_are_text(scene: Scene, browser: Browser) -> None:
    tab = await browser.tab(width=390)
    for path in ("", f"autoscalers/{scene.cluster.namespace}/{LONG}"):
        await tab.open(f"{scene.address}{path}")
        tree = await wait_tree(tab, lambda tree: LONG in texts(tree))
        assert MARKUP in texts(tree)
        assert "\u202e" not in texts(tree)
        counted = "[document.images.length, document.scripts.length, document.documentElement.scrollWidth]"
        assert await tab.evaluate(counted) == [0, 1, 390]
    assert SHOWN in texts(tree)
    check_quiet(tab, scene.address)
