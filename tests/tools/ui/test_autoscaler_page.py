"""The page of one autoscaler: its sections, a trial, and that names are text. Its HTML: `pages`."""

import asyncio
import collections
import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from msgspec.structs import replace

from adapter.autoscaler.decide.restraint import Restraint
from adapter.autoscaler.explain import debug
from adapter.model.autoscaling.fastpath_autoscaler import KIND
from adapter.model.autoscaling.view import AutoscalerView, BoundsAhead, TargetView, WritersView
from fastpath_sandbox.apiserver.objects import timestamp
from fastpath_sandbox.apiserver.server import EPOCH
from fastpath_sandbox.listener import Listener
from fastpath_tools.ui import autoscaler_page
from fastpath_tools.ui.autoscaler_reading import AutoscalerReading
from fastpath_tools.ui.pages import Templates
from scripts.generate import crd
from tests.support.answering import forward
from tests.support.doctor import CPU, HANDSHAKE
from tests.support.doctor import REQUESTS as REQUESTS_SPEC
from tests.support.tls import Authority
from tests.tools.hostile_text import HOSTILE, acting
from tests.tools.ownerleases import owner_leases
from tests.tools.ui import incidents
from tests.tools.ui.autoscaler_views import HEALTHY, REQUESTS, at, explain, history, point, view
from tests.tools.ui.incidents import Incident, incident, measured

TEMPLATES = Templates("/token/", "prod")
ORDER = ["sentence", "axis", "chain", "ladder", "metrics", "writers", "ahead", "try"]


class Outline(HTMLParser):
    """The elements of a page with their attributes, and all its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def words(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.texts))

    def fields(self) -> dict[str, dict[str, str]]:
        return {attributes["name"]: attributes for tag, attributes in self.elements if tag == "input"}


def render(document: AutoscalerView, **query: str) -> dict[str, Outline]:
    """Return the sections of a FastPathAutoscaler by name."""
    content = autoscaler_page.render(TEMPLATES, AutoscalerReading(document, HEALTHY), query)
    assert [section.name for section in content.sections] == ORDER
    return {section.name: Outline(section.html) for section in content.sections}


PAST = history(point(-3600, 4), point(-2400, 12, 4), point(-2100, 4))


def test_a_trial_is_replayed_when_it_is_asked_for() -> None:
    document = view(kind=KIND, history=PAST)
    sections = render(document)
    fields = sections["try"].fields()
    assert (fields["target"]["value"], fields["window"]["value"]) == ("100", "300")
    assert "boost" not in fields, "the scaler decides it already"
    assert "as it was 2,400" in sections["try"].words
    assert "replayed" not in sections["try"].words.partition("as it was")[2]
    tried = render(document, target="50", window="60")["try"]
    assert tried.fields()["target"]["value"] == "50"
    figures = re.findall(r"(today's|these) settings ([\d,]+) ([\d,]+) (\d+)", tried.words)
    assert len(figures) == 2
    today, these = (int(figure[2].replace(",", "")) for figure in figures)
    assert these > today


@pytest.mark.parametrize("hostile", [HOSTILE, "<script>alert(1)</script>", "w" * 253])
def test_what_others_chose_is_text_without_effect(hostile: str) -> None:
    """No element, attribute or sign of direction comes from a name or a message."""
    decided = view(history=PAST, metrics=(replace(REQUESTS, name=hostile, overdue=hostile),)).last
    assert decided is not None

    def elements(text: str) -> tuple[list[Any], str]:
        document = view(
            name=text,
            history=PAST,
            metrics=(replace(REQUESTS, name=text, overdue=text),),
            target=TargetView(kind=text, name=text, replicas=5, manager=text),
            ahead=(BoundsAhead(start=at(0), end=at(600), min=4, max=None, source=text),),
            writers=WritersView(paused_until=at(60), paused_by=text, reversals=()),
            last=replace(decided, trace=(text,), error=text),
        )
        content = autoscaler_page.render(TEMPLATES, AutoscalerReading(document, HEALTHY, (text,)), {})
        page = str(TEMPLATES.layout(content, "/token/events"))
        return Outline(page).elements, page

    (plain, _), (shown, page) = elements("web"), elements(hostile)
    assert shown == plain
    assert not acting(page)


def test_nothing_on_the_page_needs_a_style_or_a_script_of_its_own() -> None:
    """The content security policy forbids both, and would break what depends on them."""
    content = autoscaler_page.render(
        TEMPLATES, AutoscalerReading(view(history=PAST), HEALTHY), {"target": "90"}
    )
    for section in content.sections:
        assert not re.search(
            r"<(style|script|link|img|iframe)\b| (style|on\w+|src|href=\"[^?])", section.html
        )


# -- what is read of a cluster -------------------------------------------------------------------------------


@pytest.fixture
async def shop(tmp_path: Path, authority: Authority) -> AsyncIterator[Incident]:
    async with incident(tmp_path, authority) as shop:
        yield shop


@pytest.mark.timeout(60)
async def test_an_hpa_without_a_scaler_has_its_history_from_prometheus(shop: Incident) -> None:
    shop.create(REQUESTS_SPEC, current=measured("15"), status={"desiredReplicas": 6})
    shop.prometheus.ranges = {"status_(current|desired)_replicas": [4.0], "target_metric": [1.0, 1.5]}
    reading = await shop.read(prometheus=True)
    content = autoscaler_page.render(TEMPLATES, reading, {})
    sections = {section.name: Outline(section.html) for section in content.sections}
    assert "4 replicas: the count follows the metrics; http_requests_per_second asks for 6." in (
        sections["sentence"].words
    )
    assert re.search(r"6 replicas at \d\d:\d\d:\d\d UTC if the load stays", sections["sentence"].words)
    assert "15, target 10: ratio 1.5, asks for 6" in sections["ladder"].words
    assert {"autoscaler", "scrape", "window", "metrics API", "decision", "behavior", "pod start"} <= set(
        sections["chain"].texts
    )
    assert "boost" in sections["try"].fields()
    assert "limited by a policy" in sections["axis"].words


class Seconds:
    """Stops the time of the loop, and moves it on by whole seconds; a request that is retried would hang."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = asyncio.get_running_loop().time()
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self._now)

    def step(self) -> None:
        self._now += 1


@pytest.mark.parametrize(
    ("metric", "scaled", "a_second"),
    [(REQUESTS_SPEC, None, 3.3), (CPU, None, 3.3), (REQUESTS_SPEC, 30, 3.5)],
    ids=["a metric of pods", "a resource", "a count that changed lately"],
)
async def test_a_page_that_is_looked_at_costs_three_requests_a_second(
    shop: Incident,
    monkeypatch: pytest.MonkeyPatch,
    metric: dict[str, Any],
    scaled: float | None,
    a_second: float,
) -> None:
    """In a minute all is read again that several autoscalers share."""
    status = {} if scaled is None else {"lastScaleTime": timestamp(incidents.now() - scaled)}
    shop.create(metric, status=status)
    async with shop.reader() as reader:
        await reader.read()
        seconds = Seconds(monkeypatch)
        shop.cluster.requests.clear()
        for _ in range(61):
            seconds.step()
            await reader.read()
    paths = collections.Counter(request.path for request in shop.cluster.requests)
    assert paths["/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers"] == 61
    assert paths["/api/v1/namespaces/kube-system/pods"] == 1
    assert sum(paths.values()) <= a_second * 61, paths


async def test_what_is_read_less_often_is_not_old(shop: Incident, monkeypatch: pytest.MonkeyPatch) -> None:
    """Status, values and count are those of now; pods are read again when the target has changed."""
    seconds = Seconds(monkeypatch)
    shop.create(REQUESTS_SPEC, current=measured("10"))
    async with shop.reader() as reader:
        await reader.read()
        shop.cluster.patch("HorizontalPodAutoscaler", "web", {"status": {"desiredReplicas": 6}}, "shop")
        shop.cluster.patch("Deployment", "web", {"spec": {"replicas": 6}}, "shop")
        shop.workloads.step(EPOCH + 20)  # creates the pods
        shop.metrics.count = 0
        shown = []
        for _ in range(10):
            seconds.step()
            view = (await reader.read()).view
            shown.append((view.status["desiredReplicas"], view.metrics[0].fault != "", view.target.replicas))
            if len(shown) == 5:
                assert view.target.ready == 4
                shop.start_pods()
    assert shown == [(6, True, 6)] * 10
    assert view.target.ready == 6


async def test_what_cannot_be_read_is_said(shop: Incident) -> None:
    shop.create(REQUESTS_SPEC, current=measured("10"))
    [note] = (await shop.read()).notes
    assert note == "the history begins with this page: give --prometheus-url for the last hour"
    [note] = (await shop.read(prometheus=True)).notes
    assert note.endswith("Prometheus has no series of kube-state-metrics for the autoscaler")
    shop.prometheus.status = 500
    [note] = (await shop.read(prometheus=True)).notes
    assert note.startswith("the history begins with this page: http://127.0.0.1:")
    assert note.endswith("HTTP status 500")


async def test_what_was_seen_is_the_history_without_a_prometheus(shop: Incident) -> None:
    shop.create(REQUESTS_SPEC, current=measured("10"))
    async with shop.reader() as reader:
        first, same = await reader.read(), await reader.read()
        assert first.view.history is not None
        assert same.view.history is not None
        assert first.view.history.points == same.view.history.points
        shop.cluster.patch("HorizontalPodAutoscaler", "web", {"status": {"desiredReplicas": 6}}, "shop")
        changed = (await reader.read()).view.history
    assert changed is not None
    assert [one.desired for one in changed.points] == [4, 6]


async def test_a_history_is_read_again_after_a_while(shop: Incident) -> None:
    shop.create(REQUESTS_SPEC, current=measured("10"))
    shop.prometheus.ranges = {"_replicas": [4.0], "target_metric": [1.0]}
    async with shop.reader(prometheus=True) as reader:
        first = await reader.read()
        shop.prometheus.ranges = {}
        assert (await reader.read()).view.history is first.view.history


@pytest.mark.integration
async def test_the_document_of_a_scaler_is_shown_as_it_is(
    shop: Incident, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read through a port that kubectl forwards; one of another form is not shown."""
    decided = view(Restraint.HELD, mode="Boost", history=PAST)
    whole = debug.encode(decided)
    bodies = [whole, whole.replace(b'"exact":600.0,', b""), b'{"version": "v0"}']

    async def show(request: web.BaseRequest) -> web.Response:
        assert request.path == "/debug/fastpath/autoscalers/shop/web"
        return web.Response(body=bodies.pop(0), content_type="application/json")

    shop.create(REQUESTS_SPEC, HANDSHAKE, mode="boost")
    lease = {
        "holderIdentity": "scaler-0_1",
        "leaseDurationSeconds": 15,
        "renewTime": timestamp(incidents.now()),
    }
    for document in owner_leases("shop", lease):
        shop.cluster.create(document)
    async with Listener(show, "127.0.0.1", 0) as scaler:
        forward(tmp_path, monkeypatch, scaler)
        async with shop.reader() as reader:
            shown, older, other = [await reader.read() for _ in bodies[:]]
    assert (debug.encode(shown.view), shown.notes) == (whole, ())
    assert older.notes == ("the scaler is of an older version, which keeps its last hour in steps of 15 s",)
    assert older.view.history is not None
    assert explain(shown.view, None).startswith("5 replicas: the stabilization window holds")
    assert other.notes[0].startswith("the scaler cannot be read: its document is of another version: ")
    assert other.view.last is not None
    form = Outline(autoscaler_page.render(TEMPLATES, shown, {}).sections[-1].html).fields()
    assert "checked" in form["boost"]
    assert shown.start_up == other.start_up == 12.0, "of the pods that are there"


async def test_a_fast_autoscaler_is_shown_without_its_scaler(shop: Incident) -> None:
    shop.cluster.create(yaml.safe_load(crd.PATH.read_text()))
    conditions = [{"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale"}]
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 2,
        "maxReplicas": 8,
        "mode": "Auto",
        "metrics": [REQUESTS_SPEC],
    }
    shop.cluster.create(
        {
            "apiVersion": "fastpath.io/v1alpha1",
            "kind": KIND,
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": spec,
            "status": {"currentReplicas": 4, "conditions": conditions, "currentMetrics": measured("14")},
        }
    )
    reading = await shop.read()
    assert reading.notes == ("the scaler cannot be read: no scaler leads",)
    assert (reading.view.kind, reading.view.mode) == (KIND, "Auto")
    [metric] = reading.view.metrics
    assert (metric.name, metric.current, metric.target) == ("http_requests_per_second", "14", "10")
    words = Outline(autoscaler_page.render(TEMPLATES, reading, {}).sections[0].html).words
    assert "4 replicas: no scaler runs for it" in words
