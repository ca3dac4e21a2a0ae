"""Scrapes over time: which pods are scraped, what their values are, and what happens when scrapes fail."""

import asyncio
import math
from collections.abc import Hashable

import pytest

from adapter.errors import ScrapeError
from adapter.model.label_selectors import EVERYTHING
from adapter.model.metrics import CustomAnswer, CustomMetricInfo, SeriesInfo
from adapter.model.timestamps import SECOND
from adapter.rules.resource import PODS
from adapter.scrape.targets import OwnUsage
from tests.scrape.scenes import GAUGE, LABELS, A, B, read, reason, rules, scrape_at_once, scraping, target
from tests.support.answers import answers
from tests.support.clock import WALL
from tests.support.waiting import running
from tests.support.world import (
    FakePod,
    Outcome,
    RulesWorld,
    compile_text,
    custom_question,
    read_scraped,
    vector,
)


async def step(here: RulesWorld, seconds: float = 1.0, body: str | ScrapeError = "") -> None:
    """Scrape a little later; `body` is what pod a shows then, "" for what it showed before."""
    if body:
        here.reader.bodies[A.ip] = body
    here.clock.advance(seconds)
    await here.scrape()


async def show(here: RulesWorld, *bodies: str, metric: str = "depth") -> None:
    """Scrape the pods a and b, or a alone, for a metric; they show these bodies."""
    pods = (A, B)[: len(bodies)]
    here.reader.bodies |= {pod.ip: body for pod, body in zip(pods, bodies, strict=True)}
    here.scraped.want("x", "shop", [metric], pods)
    await here.scrape()


# --- which pods -----------------------------------------------------------------------------------


def span_of(here: RulesWorld, metric: str) -> float:
    entry = here.scraped.entry_of(metric)
    assert entry is not None
    return here.scraped.span_of(entry) / SECOND


@pytest.mark.parametrize(
    ("pod", "more", "address"),
    [
        pytest.param(A, "", ("10.0.0.1", 8080), id="running"),
        pytest.param(A._replace(phase="Pending"), "", None, id="pending"),
        pytest.param(A._replace(phase="Succeeded"), "", None, id="ended"),
        pytest.param(A._replace(deleting=True), "", None, id="terminating"),
        pytest.param(A._replace(ip=""), "", None, id="without address"),
        pytest.param(A._replace(host_network=True), "", None, id="in the node's network"),
        pytest.param(A._replace(host_network=True), "hostNetwork: true", ("10.0.0.1", 8080), id="allowed"),
        pytest.param(A._replace(ports={"http": 80}), "", None, id="no such port"),
        pytest.param(A._replace(ports={}), "port: 9100", ("10.0.0.1", 9100), id="a port by number"),
    ],
)
async def test_which_pods_are_scraped(pod: FakePod, more: str, address: tuple[str, int] | None) -> None:
    text = rules().replace("port: metrics", more) if "port:" in more else rules(more)
    async with scraping(text) as here:
        here.scraped.want("x", "shop", ["depth"], [pod])
        await here.scrape()

        expected = [] if address is None else [address]
        assert [(endpoint.address, endpoint.port) for endpoint in here.reader.asked] == expected
        assert here.metric("fastpath_scrape_targets") == len(expected)


async def test_a_missing_port_is_said_with_the_rule(caplog: pytest.LogCaptureFixture) -> None:
    async with scraping() as here:
        here.scraped.want("x", "shop", ["depth"], [A._replace(ports={})])
        text = "shop/a: no port is named metrics"
        assert here.faults.active() == {("scrape", "rules[0]"): text}
        (record,) = caplog.records
        assert record.facts == {  # type: ignore[attr-defined]
            "fault": "scrape",
            "subject": "rules[0]",
            "error": text,
            "kind": "port",
        }
        here.scraped.want("x", "shop", ["depth"], [A._replace(ports={"http": 80, "https": 443})])
        here.clock.advance(61)
        entry = here.scraped.entry_of("depth")
        assert entry is not None
        assert here.scraped.read(entry, "shop", ["a"], ()).fault == (
            "a: no port is named metrics, only http, https"
        )
        here.problems.expire("scrape", "rules[0]")
        assert here.faults.active().keys() == {("scrape", "rules[0]")}, "as long as it lasts"


async def test_a_pod_that_cannot_be_asked_for_its_usage_is_no_fault() -> None:
    """Every autoscaler on cpu asks its pods."""
    async with scraping("resourceRules: {cpu: {scrape: {port: metrics}}}") as here:
        here.reader.bodies[B.ip] = ScrapeError("unreachable", "connection refused")
        here.scraped.want("x", "shop", [OwnUsage.CPU], [A._replace(ports={}), B])
        await here.scrape()

        assert [each.address for each in here.reader.asked] == [B.ip]
        assert here.faults.active() == {}


async def test_metrics_without_scraping_and_unknown_metrics_have_no_values() -> None:
    resources = "{template: <<.Resource>>}"
    text = f"rules:\n- {{seriesQuery: gauges, resources: {resources}, metricsQuery: '{GAUGE}'}}\n"
    async with scraping(text) as here:
        here.scraped.want("x", "shop", ["depth", "unknown"], [A])
        await here.scrape()

        assert here.reader.asked == []
        assert read_scraped(here.scraped, "shop", "depth", ["a"], EVERYTHING) is None
        assert read_scraped(here.scraped, "shop", "unknown", ["a"], EVERYTHING) is None
        assert here.scraped.entry_of("depth") is None


async def test_the_span_that_a_value_speaks_for() -> None:
    async with scraping() as here:
        assert (
            here.scraped.entry_of("hits")
            == here.relister.registry.custom[CustomMetricInfo(PODS, namespaced=True, metric="hits")]
        )
        assert (span_of(here, "depth"), span_of(here, "hits")) == (1, 6), "a window and an interval"


async def test_two_rules_with_the_same_access_share_the_scrapes_of_a_pod() -> None:
    async with scraping() as here:
        here.reader.bodies["10.0.0.1"] = "depth 3\nhits 1"
        here.scraped.want("x", "shop", ["depth"], [A])
        here.scraped.want("y", "shop", ["hits"], [A])
        for _ in range(6):
            await step(here)

        assert len(here.reader.asked) == 6
        assert read(here, "depth").values["a"].value == 3
        assert read(here, "hits").values["a"].value == 0


async def test_what_no_owner_wants_is_not_scraped() -> None:
    async with scraping() as here:
        here.scraped.want("x", "shop", ["depth", "hits"], [A, B])
        here.scraped.want("y", "shop", ["depth"], [B])
        here.scraped.want("x", "shop", ["depth"], [A])
        await here.scrape()
        assert [each.address for each in here.reader.asked] == ["10.0.0.1", "10.0.0.2"]

        here.scraped.forget("x")
        here.scraped.forget("x")
        here.scraped.forget("never known")
        here.reader.asked.clear()
        await here.scrape()
        assert [each.address for each in here.reader.asked] == ["10.0.0.2"]
        assert read(here).values == {}
        assert read(here).absent == {"b": -math.inf}


async def test_nothing_is_kept_of_owners_and_metrics_that_are_gone() -> None:
    async with scraping() as here:
        for number in range(50):
            here.scraped.want(f"x{number % 2}", "shop", ["depth", f"unknown{number}"], [A])
        assert sum(map(len, here.scraped._metrics.values())) == 4
        for number in range(2):
            here.scraped.forget(f"x{number}")

        kept = (here.scraped._metrics, here.scraped._wants, here.scraped._placed, here.scraped._targets)
        assert kept == ({}, {}, {}, {})


async def test_another_pod_under_the_same_name_starts_from_nothing() -> None:
    async with scraping() as here:
        here.reader.bodies |= {"10.0.0.1": "depth 3", "10.0.0.9": "depth 4"}
        here.scraped.want("x", "shop", ["depth"], [A])
        await here.scrape()
        here.scraped.want("x", "shop", ["depth"], [A._replace(ip="10.0.0.9")])
        assert read(here)[:3] == ({}, {"a": -math.inf}, {"a"})
        await step(here)
        assert read(here).values["a"].value == 4
        assert here.metric("fastpath_scrape_targets") == 1


async def test_a_pod_without_the_port_in_place_of_one_that_has_it_is_not_scraped() -> None:
    async with scraping() as here:
        here.scraped.want("x", "shop", ["depth"], [A])
        here.scraped.want("x", "shop", ["depth"], [A._replace(ip="10.0.0.9", ports={})])
        await here.scrape()

        assert here.reader.asked == []
        assert here.metric("fastpath_scrape_targets") == 0


async def test_other_rules_take_effect_with_the_next_scrape() -> None:
    async with scraping() as here:
        here.reader.bodies["10.0.0.1"] = "depth 3\ndepth2 4"
        here.scraped.want("x", "shop", ["depth"], [A])
        here.scraped.want("y", "shop", ["hits"], [A])
        await here.scrape()
        changed = (
            rules().replace("sum(<<.Series>>{", "sum(2 * <<.Series>>{").replace("port: metrics", "port: 1234")
        )
        await here.relister.adopt(compile_text(changed))
        await step(here)
        await step(here)

        assert [each.port for each in here.reader.asked] == [8080, 1234]
        assert read(here).values["a"].value == 6

        await here.relister.adopt(compile_text("rules: []"))
        await step(here)
        assert here.metric("fastpath_scrape_targets") == 0


async def test_a_relist_leaves_what_it_does_not_change() -> None:
    async with scraping() as here:
        here.reader.bodies |= {"10.0.0.1": "depth 3\nhits 1", "10.0.0.2": "depth 4\nhits 2"}
        here.scraped.want("x", "shop", ["depth"], [A])
        here.scraped.want("y", "shop", ["hits", "unknown"], [B])
        await here.scrape()
        here.lister.lists["counters"] = (SeriesInfo("unknown", LABELS, 1),)
        for _ in range(2):  # a name is forgotten when it is missing twice
            await here.relister._relist(["counters"], 600, whole=True)
        here.scraped.follow()

        assert read(here).values["a"].value == 3
        assert target(here, "shop", "a").wanted.keys() == {"depth"}
        assert target(here, "shop", "b").wanted.keys() == {"unknown"}
        assert read_scraped(here.scraped, "shop", "hits", ["b"], EVERYTHING) is None


# --- values ---------------------------------------------------------------------------------------


async def test_only_the_pods_asked_for() -> None:
    async with scraping() as here:
        await show(here, "depth 3", "depth 4")

        assert read(here, "depth", "b", "c").values.keys() == {"b"}
        other = read_scraped(here.scraped, "elsewhere", "depth", ["a", "b"], EVERYTHING)
        assert other is not None
        assert other[:3] == ({}, {}, set())


async def test_metric_selectors_are_told_apart_and_answers_are_worked_out_once() -> None:
    async with scraping() as here:
        here.reader.bodies["10.0.0.1"] = 'depth{q="1"} 3\ndepth{q="2"} 4'
        here.scraped.want("x", "shop", ["depth"], [A])
        await here.scrape()

        found = [read(here, selector=text).values["a"].value for text in ("", "q=1", "q=2", "q")]
        assert found == [7, 3, 4, 7]
        assert len(target(here, "shop", "a").answers) == 4
        for number in range(100):
            assert read(here, selector=f"q!={number}5").values["a"].value == 7
        assert len(target(here, "shop", "a").answers) <= 64


async def test_openmetrics() -> None:
    async with scraping() as here:
        here.reader.openmetrics = True
        await show(here, "depth 3 1e3\n# EOF\n")

        assert read(here)[:3] == ({}, {"a": 1000}, set()), "a sample from long ago is not a current one"


async def test_every_scrape_notifies_its_owners_good_or_bad() -> None:
    async with scraping() as here:
        owners: list[Hashable] = []
        here.scraped.subscribe(owners.append)
        here.scraped.want("x", "shop", ["depth", "hits"], [A])
        here.scraped.want("x", "shop", ["depth", "hits"], [A])
        here.scraped.want("y", "shop", ["depth"], [A])
        await here.scrape()
        assert sorted(map(str, owners)) == ["x", "y"]
        here.reader.bodies["10.0.0.1"] = "depth 3"
        await here.scrape()
        assert sorted(map(str, owners)) == ["x", "x", "y", "y"]


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (ScrapeError("timeout", "no answer in 1 s"), "timeout"),
        ("depth one", "decode"),
        ('depth{a="} 1', "decode"),
        ('depth{1="2"} 1', "decode"),
    ],
)
async def test_failures_are_counted_and_said_once_with_the_rule(
    body: str | ScrapeError, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with scraping() as here:
        here.scraped.want("x", "shop", ["depth"], [A, B])
        here.reader.bodies = {"10.0.0.1": body, "10.0.0.2": body}
        for _ in range(3):
            await step(here)
        assert here.metric("fastpath_scrapes_total", outcome=kind) == 6
        assert [record.message for record in caplog.records] == ["pods cannot be scraped"]
        assert here.faults.active().keys() == {("scrape", "rules[0]")}

        here.reader.bodies = {"10.0.0.1": "depth 1", "10.0.0.2": "depth 2"}
        await step(here, 61)
        assert here.faults.active() == {}
        assert here.metric("fastpath_scrapes_total", outcome="success") == 2


@pytest.mark.parametrize(
    ("ready", "ready_for", "is_fault"),
    [("False", 600.0, False), (None, 600.0, False), ("True", 4.0, False), ("True", 6.0, True)],
)
async def test_a_pod_that_starts_may_refuse(
    caplog: pytest.LogCaptureFixture, ready: str | None, ready_for: float, *, is_fault: bool
) -> None:
    async with scraping() as here:
        since = round((here.clock.wall() - ready_for) * SECOND)
        pod = A._replace(ready=ready, ready_since=since)
        here.reader.bodies["10.0.0.1"] = ScrapeError("unreachable", "Connection refused")
        here.scraped.want("x", "shop", ["depth"], [pod])
        await step(here, 0.9)

        entry = here.scraped.entry_of("depth")
        assert entry is not None
        answer = here.scraped.read(entry, "shop", ["a"], ())
        assert answer.fault == ("a: 10.0.0.1:8080: Connection refused" if is_fault else "")
        assert reason(here, "shop", "a") == "10.0.0.1:8080: Connection refused"
        assert [record.facts["error"] for record in caplog.records] == (  # type: ignore[attr-defined]
            ["shop/a: 10.0.0.1:8080: Connection refused"] if is_fault else []
        )
        assert here.faults.active() == (
            {("scrape", "rules[0]"): "shop/a: Connection refused"} if is_fault else {}
        )

        here.scraped.want("x", "shop", ["depth"], [A])
        await step(here, 1.0)
        assert here.scraped.read(entry, "shop", ["a"], ()).fault, "it is Ready now"


async def test_a_pod_that_starts_has_no_excuse_for_a_body_that_cannot_be_read() -> None:
    async with scraping() as here:
        here.reader.bodies["10.0.0.1"] = "depth one"
        here.scraped.want("x", "shop", ["depth"], [A._replace(ready="False")])
        await step(here)

        assert here.faults.active().keys() == {("scrape", "rules[0]")}


async def test_intervals_and_windows_are_stretched_together() -> None:
    async with scraping() as here:
        here.scraped._schedule._per_second = 1
        others = [FakePod("c", "10.0.0.3"), FakePod("d", "10.0.0.4")]
        here.scraped.want("x", "shop", ["hits", "depth"], [A, B, *others])
        assert here.metric("fastpath_scrape_interval_stretch_ratio") == 4
        for number in range(5):
            await step(here, 4, body=f"depth 1\nhits {number * 8}")

        assert read(here, "hits").values["a"] == (2, WALL + 20, False)
        assert span_of(here, "hits") == 21
        here.clock.advance(9)
        assert not math.isnan(read(here).values["a"].value)
        here.clock.advance(0.001)
        assert read(here).values == {}


# --- the API --------------------------------------------------------------------------------------


def answer(values: dict[str, float], ages: dict[str, float] | None = None) -> Outcome:
    given = values if ages is None else ages
    return vector(*(({"pod": name}, value) for name, value in given.items()))


async def ask(here: RulesWorld, request: str = "/namespaces/shop/pods/*/depth") -> CustomAnswer:
    return await here.provider.custom(custom_question(request))


def values_of(found: CustomAnswer) -> dict[str, int]:
    return {item.described.name: item.milli for item in found.items}


async def test_the_api_answers_from_the_same_snapshot_and_does_not_ask_prometheus() -> None:
    async with scraping(names=("a", "b")) as here:
        await show(here, "depth 3", "depth 4.5")
        here.clock.advance(0.5)
        found = await ask(here)

        assert values_of(found) == {"a": 3000, "b": 4500}
        assert found.fresh_until == here.clock.monotonic(), "the next scrape is not to be waited for"


@pytest.mark.parametrize(
    ("value", "became_ready", "served"),
    answers("scrape/cache", "the api leaves out a pod that took over load since"),
)
async def test_the_api_leaves_out_a_pod_that_took_over_load_since(
    value: int, became_ready: float | None, served: dict[str, int]
) -> None:
    """An HPA would add its value to an older one of the pod that it has relieved."""
    async with scraping(names=("a", "b")) as here:
        times = {} if became_ready is None else {"b": here.clock.monotonic() + became_ready}
        here.scraped.follow_readiness(lambda namespace: times if namespace == "shop" else {})
        here.reader.bodies |= {"10.0.0.1": "depth 40", "10.0.0.2": f"depth {value}"}
        here.scraped.want("x", "shop", ["depth"], [A])
        await here.scrape()
        here.clock.advance(0.8)
        here.scraped.want("x", "shop", ["depth"], [A, B])
        await scrape_at_once(here, "b")
        assert values_of(await ask(here)) == served
        assert here.querier.asked == []

        await step(here)
        assert values_of(await ask(here)) == {"a": 40_000, "b": value * 1000}


async def test_nothing_scraped_is_an_answer_as_ever() -> None:
    async with scraping(names=("a",), answer=lambda _: answer({"a": 7})) as here:
        found = await ask(here)

        assert values_of(found) == {"a": 7000}
        assert found.fresh_until == here.clock.monotonic() + 0.9


async def test_prometheus_that_is_slow_is_not_waited_for() -> None:
    async with scraping(names=("a", "b"), answer=lambda _: answer({"b": 7})) as here:
        here.scraped.want("x", "shop", ["depth"], [A, B])
        here.reader.bodies["10.0.0.1"] = "depth 3"
        await here.scrape()
        here.querier.gate.clear()
        assert values_of(await ask(here)) == {"a": 3000}
        here.querier.gate.set()
        await asyncio.sleep(0.01)
        assert values_of(await ask(here)) == {"a": 3000, "b": 7000}
        assert len(here.querier.asked) == 1, "the first query went on"


async def test_it_runs_and_ends() -> None:
    async with scraping(rules("interval: 100ms")) as here:
        here.reader.bodies["10.0.0.1"] = "depth 3"
        scraped = asyncio.Event()
        here.scraped.subscribe(lambda _: scraped.set())
        async with running(here.scraped.run()):
            here.scraped.want("x", "shop", ["depth"], [A])
            await scraped.wait()

        assert read(here).values["a"].value == 3
