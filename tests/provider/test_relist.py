"""Discovery over time, on a lister whose answers a test changes."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from adapter.errors import PrometheusError
from adapter.model.metrics import SeriesInfo
from adapter.provider.relist import Relister
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.support.clock import WALL, FakeClock
from tests.support.world import FakeLister, compile_text

pytestmark = pytest.mark.looptime

TEMPLATE = "resources: {template: <<.Resource>>}"
RULES = (
    f"rules: [{{seriesQuery: s, {TEMPLATE}}}, {{seriesQuery: t, {TEMPLATE}}}]\nexternalRules: "
    f"[{{seriesQuery: s}}]"
)
FAILED = PrometheusError("timeout", "no answer in time")
INTERVAL = 60.0


def info(*names: str, count: int = 1) -> tuple[SeriesInfo, ...]:
    return tuple(SeriesInfo(name, frozenset({"pod"}), count) for name in names)


class Discovery:
    """A relister and what surrounds it."""

    def __init__(self, reserved: frozenset[str] = frozenset()) -> None:
        self.lister = FakeLister({"s": info("a"), "t": info("b")})
        self.clock = FakeClock()
        self.monitoring = Monitoring()
        self.faults = ProblemLog(self.monitoring, self.clock)
        self.relister = Relister(
            self.lister,
            self.clock,
            self.monitoring,
            self.faults,
            interval=INTERVAL,
            max_age=600.0,
            reserved=reserved,
        )

    def custom(self) -> list[str]:
        return sorted(key.metric for key in self.relister.registry.custom)

    def asked(self) -> list[tuple[str, ...]]:
        return [selectors for selectors, _ in self.lister.asked]

    def metric(self, name: str, **labels: str) -> float | None:
        return self.monitoring.registry.get_sample_value(f"fastpath_discovery_{name}", labels)

    async def relist(self) -> None:
        """Let the next relist come and end."""
        self.clock.advance(INTERVAL)
        await asyncio.sleep(INTERVAL + 0.001)

    async def look_up(self, name: str) -> bool:
        return await self.relister.look_up(name, self.relister.ruleset.custom)


@asynccontextmanager
async def running(text: str = RULES, reserved: frozenset[str] = frozenset()) -> AsyncIterator[Discovery]:
    """Run discovery until the end of the block; the first relist has ended."""
    made = Discovery(reserved)
    await made.relister.adopt(compile_text(text))
    task = asyncio.create_task(made.relister.run())
    try:
        await made.relister.attempted.wait()
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_each_selector_is_asked_once_for_the_time_of_max_age() -> None:
    async with running() as discovery:
        assert discovery.lister.asked == [(("s", "t"), WALL - 600.0)]
        assert discovery.custom() == ["a", "b"]
        assert set(discovery.relister.registry.external) == {"a"}


async def test_the_next_relist_comes_an_interval_after_the_end_of_the_last() -> None:
    async with running() as discovery:
        discovery.lister.gate.clear()
        await asyncio.sleep(INTERVAL + 1)
        assert len(discovery.asked()) == 2
        await asyncio.sleep(10)
        discovery.lister.gate.set()
        await asyncio.sleep(INTERVAL - 1)
        assert len(discovery.asked()) == 2
        await asyncio.sleep(2)
        assert len(discovery.asked()) == 3


async def test_no_rules_ask_nothing_and_are_ready() -> None:
    async with running("") as discovery:
        assert discovery.asked() == []
        assert discovery.relister.registry.generation == 1


async def test_a_metric_that_blinks_survives_one_relist() -> None:
    async with running() as discovery:
        discovery.lister.lists["s"] = ()
        await discovery.relist()
        assert discovery.custom() == ["a", "b"]
        await discovery.relist()
        assert discovery.custom() == ["b"]
        assert discovery.relister.registry.external == {}
        discovery.lister.lists["s"] = info("a")
        await discovery.relist()
        assert discovery.custom() == ["a", "b"]


async def test_a_failed_list_voids_only_the_refresh_of_its_own_rules() -> None:
    async with running() as discovery:
        discovery.lister.lists = {"s": FAILED, "t": info("c")}
        for _ in range(5):
            await discovery.relist()
        assert discovery.custom() == ["a", "c"]


async def test_a_failed_first_attempt_is_an_attempt() -> None:
    discovery = Discovery()
    discovery.lister.lists = {"s": FAILED, "t": FAILED}
    await discovery.relister.adopt(compile_text(RULES))
    task = asyncio.create_task(discovery.relister.run())
    await discovery.relister.attempted.wait()
    assert discovery.custom() == []
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_failures_are_counted_each_time_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with running() as discovery:
        assert discovery.metric("last_success_timestamp_seconds") == WALL
        discovery.lister.lists["s"] = FAILED
        for _ in range(3):
            await discovery.relist()
        assert discovery.metric("failures_total", reason="timeout") == 3 + 2 * 4, (
            "each relist, and the retries between them"
        )
        assert discovery.metric("rules_stale") == 2
        assert discovery.metric("series") == 1
        assert discovery.metric("last_attempt_timestamp_seconds") == WALL + 3 * INTERVAL
        assert discovery.metric("last_success_timestamp_seconds") == WALL
        assert [record.message for record in caplog.records].count("series list failed") == 1
        assert "rules[0], externalRules[0]" in str(vars(caplog.records[-1]))
        assert discovery.faults.active() == {("discovery", "s"): "no answer in time"}
        discovery.lister.lists["s"] = info("a", count=7)
        await discovery.relist()
        assert discovery.faults.active() == {}
        assert discovery.metric("rules_stale") == 0
        assert discovery.metric("series") == 8
        assert discovery.metric("last_success_timestamp_seconds") == WALL + 4 * INTERVAL


@pytest.mark.looptime
async def test_a_prometheus_that_never_answered_does_not_answer() -> None:
    """Without a list there is no query that could report it."""
    silent = ("prometheus", "")
    async with running() as discovery:
        lists = discovery.lister.lists
        lists |= dict.fromkeys("st", PrometheusError("unreachable", "Connection refused"))
        await discovery.relist()
        assert discovery.faults.active()[silent] == "Connection refused"
        lists |= {"s": info("a"), "t": PrometheusError("query", "bad")}
        await discovery.relist()
        assert silent in discovery.faults.active(), "a part of the lists is no proof"
        lists |= {"t": info("b")}
        await discovery.relist()
        assert silent not in discovery.faults.active()


@pytest.mark.looptime
async def test_only_what_failed_is_asked_again_soon_and_ever_less_often() -> None:
    async with running() as discovery:
        discovery.lister.lists["s"] = FAILED
        await discovery.relist()
        begun, asked = asyncio.get_running_loop().time(), len(discovery.asked())
        await asyncio.sleep(1.9)
        assert discovery.asked()[asked:] == []
        await asyncio.sleep(0.2)
        assert discovery.asked()[asked:] == [("s",)]
        await asyncio.sleep(4)
        assert discovery.asked()[asked:] == [("s",)] * 2
        discovery.lister.lists["s"] = info("new", count=7)
        await asyncio.sleep(8)
        assert discovery.asked()[asked:] == [("s",)] * 3
        assert discovery.custom() == ["a", "b", "new"]
        assert discovery.metric("series") == 8, "those of the other list are counted still"
        await asyncio.sleep(begun + INTERVAL - 1 - asyncio.get_running_loop().time())
        assert len(discovery.asked()) == asked + 3


async def test_rules_that_come_end_the_pause_before_a_retry() -> None:
    async with running() as discovery:
        discovery.lister.lists["s"] = FAILED
        await discovery.relist()
        asked = len(discovery.asked())
        await discovery.relister.adopt(compile_text(RULES))
        await asyncio.sleep(0.001)
        assert discovery.asked()[asked:] == [("s", "t")]


async def test_a_list_without_series_is_fetched_again_soon_and_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A metric whose series appear after a relist is served within half a minute, in one pass for all."""
    caplog.set_level(logging.INFO)
    async with running() as discovery:
        relister = discovery.relister
        assert relister.find_rules_without_series() is None
        discovery.lister.lists |= {"u": (), "v": ()}
        late = f"{{seriesQuery: u, {TEMPLATE}, name: {{as: late}}}}"
        other = f"{{seriesQuery: v, {TEMPLATE}}}"
        await relister.adopt(compile_text(f"rules: [{late}, {other}]\nexternalRules: [{{seriesQuery: v}}]"))
        assert relister.find_rules_without_series() is None, "they are not listed yet"
        await asyncio.sleep(1)
        assert not relister.registry.custom
        assert relister.find_rules_without_series() == (
            "3 rules have no series yet: rules[0], rules[1], externalRules[0]; "
            "series are listed again in 29 s"
        )
        asked = len(discovery.asked())
        discovery.lister.lists["u"] = info("late")
        discovery.lister.gate.clear()
        await asyncio.sleep(30)
        assert str(relister.find_rules_without_series()).endswith("; series are being listed")
        discovery.lister.gate.set()
        await asyncio.sleep(1)
        assert discovery.asked()[asked:] == [("u", "v")]
        assert relister.registry.custom
        assert relister.find_rules_without_series() == (
            "2 rules have no series yet: rules[1], externalRules[0]; series are listed again in 28 s"
        ), "the interval ends before the next 30 s"
        await asyncio.sleep(20)
        assert discovery.asked()[asked:] == [("u", "v")], "a list with series waits for the interval"
        await discovery.relist()
        discovery.lister.lists["v"] = info("new")
        assert await discovery.relister.look_up("new", relister.ruleset.custom)
        assert relister.find_rules_without_series() is None
    facts = [
        {"message": record.message, **vars(record)["facts"]}
        for record in caplog.records
        if record.name == "adapter.faults"
    ]
    text = "Prometheus has none that match it yet; they are listed again within 30 s"
    begun = {"message": "rule has no series", "fault": "no-series", "error": text}
    assert facts[:2] == [
        {**begun, "subject": "u", "rules": "rules[0]"},
        {**begun, "subject": "v", "rules": "rules[1], externalRules[0]"},
    ]
    assert [(each["message"], each["subject"]) for each in facts[2:]] == [
        ("fault ended", "u"),
        ("fault ended", "v"),
    ]


async def test_lists_without_series_keep_their_pace_while_others_fail() -> None:
    """In one pass with them where both are due; a list that fails does not end what is known of it."""
    async with running() as discovery:
        discovery.lister.lists = {"s": FAILED, "t": (), "u": ()}
        text = f"rules: [{{seriesQuery: s, {TEMPLATE}}}, {{seriesQuery: u, {TEMPLATE}}}]"
        await discovery.relister.adopt(compile_text(text))
        await asyncio.sleep(29)
        asked = len(discovery.asked())
        discovery.lister.lists["u"] = FAILED
        await asyncio.sleep(2)
        assert discovery.asked()[asked:] == [("s", "u")]
        assert str(discovery.relister.find_rules_without_series()).startswith(
            "1 rule has no series yet: rules[1];"
        )
        assert {subject for fault, subject in discovery.faults.active() if fault == "no-series"} == {"u"}


async def test_the_duration_is_that_of_the_listing() -> None:
    async with running() as discovery:
        discovery.lister.gate.clear()
        await asyncio.sleep(INTERVAL + 1)
        discovery.clock.advance(2.5)
        discovery.lister.gate.set()
        await asyncio.sleep(1)
        assert discovery.metric("duration_seconds") == 2.5


async def test_the_snapshot_stays_while_nothing_changes() -> None:
    async with running() as discovery:
        before = discovery.relister.registry
        await discovery.relist()
        assert discovery.relister.registry is before
        discovery.lister.lists["t"] = info("b", "c")
        await discovery.relist()
        assert discovery.relister.registry.generation == before.generation + 1


async def test_collisions_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    rule = f"{{seriesQuery: s, {TEMPLATE}, name: {{as: fixed}}}}"
    async with running(f"rules: [{rule}]") as discovery:
        for names in (("a", "b"), ("a", "b"), ("b", "a", "b2"), ("x", "b2")):
            discovery.lister.lists["s"] = info(*names)
            await discovery.relist()
        said = [record for record in caplog.records if record.message == "two sources for one metric"]
        assert len(said) == len({str(vars(record)["facts"]) for record in said})


# --- other rules


async def test_what_is_known_serves_new_rules_at_once_and_the_rest_is_asked_for_now() -> None:
    async with running() as discovery:
        discovery.lister.lists["u"] = info("c")
        new = f"rules: [{{seriesQuery: t, {TEMPLATE}}}, {{seriesQuery: u, {TEMPLATE}}}]"
        await discovery.relister.adopt(compile_text(new))
        assert discovery.custom() == ["b"]
        await asyncio.sleep(0.001)
        assert discovery.asked()[1:] == [("t", "u")]
        assert discovery.custom() == ["b", "c"]


async def test_rules_adopted_while_a_relist_is_on_its_way() -> None:
    async with running() as discovery:
        discovery.lister.gate.clear()
        await asyncio.sleep(INTERVAL + 1)
        discovery.lister.lists["u"] = info("c")
        await discovery.relister.adopt(compile_text(f"rules: [{{seriesQuery: u, {TEMPLATE}}}]"))
        discovery.lister.gate.set()
        await asyncio.sleep(0.001)
        assert discovery.asked()[2:] == [("u",)]
        assert discovery.custom() == ["c"]


async def test_a_selector_that_no_rule_has_any_more_does_not_fail_for_ever() -> None:
    async with running() as discovery:
        discovery.lister.lists["s"] = FAILED
        await discovery.relist()
        await discovery.relister.adopt(compile_text(f"rules: [{{seriesQuery: t, {TEMPLATE}}}]"))
        await asyncio.sleep(0.001)
        assert discovery.faults.active() == {}


# --- look-ups


async def test_a_look_up_asks_for_the_last_five_minutes_of_the_rules_that_could_give_the_name() -> None:
    text = f"rules: [{{seriesQuery: s, {TEMPLATE}}}, {{seriesQuery: t, {TEMPLATE}, name: {{as: fixed}}}}]"
    async with running(text) as discovery:
        discovery.lister.lists["s"] = info("new")
        assert await discovery.look_up("new")
        assert discovery.lister.asked[1:] == [(("s",), WALL - 300.0)]
        assert discovery.custom() == ["a", "fixed", "new"]


async def test_a_look_up_takes_nothing_away() -> None:
    async with running() as discovery:
        discovery.lister.lists = {"s": (), "t": FAILED}
        for _ in range(3):
            discovery.clock.advance(100.0)
            await discovery.look_up("new")
        assert discovery.custom() == ["a", "b"]
        assert discovery.faults.active() == {}


async def test_look_ups_are_rate_limited() -> None:
    async with running() as discovery:
        assert await discovery.look_up("one")
        assert not await discovery.look_up("two")  # too soon after another
        discovery.clock.advance(15.0)
        assert not await discovery.look_up("one")  # too soon after the same
        assert await discovery.look_up("two")
        discovery.clock.advance(45.0)
        assert await discovery.look_up("one")
        assert len(discovery.asked()) == 4


async def test_endless_unknown_names_ask_prometheus_no_more_often() -> None:
    """And take no memory: only a name that was looked up is remembered, for a minute."""
    async with running() as discovery:
        for number in range(600):
            await discovery.look_up(f"n{number}")
            discovery.clock.advance(0.1)
        assert len(discovery.asked()) == 1 + 4
        assert len(discovery.relister._asked_names) <= 4
        exposition = discovery.monitoring.exposition()
        assert 'fastpath_discovery_lookups_total{outcome="sent"} 4.0' in exposition
        assert 'fastpath_discovery_lookups_total{outcome="limited"} 596.0' in exposition


async def test_new_rules_forget_which_names_were_looked_up() -> None:
    async with running() as discovery:
        assert await discovery.look_up("one")
        await discovery.relister.adopt(compile_text(RULES))
        discovery.clock.advance(15.0)
        assert await discovery.look_up("one")


async def test_those_who_look_for_the_same_wait_together() -> None:
    async with running() as discovery:
        discovery.lister.lists["s"] = info("new")
        discovery.lister.gate.clear()
        asked = [asyncio.create_task(discovery.look_up("new")) for _ in range(3)]
        await asyncio.sleep(1)
        asked[1].cancel()
        discovery.lister.gate.set()
        await asyncio.gather(*asked, return_exceptions=True)
        assert [asked[0].result(), asked[2].result()] == [True, True]
        assert len(discovery.asked()) == 2


async def test_a_look_up_that_was_broken_off_may_be_tried_again_after_the_gap() -> None:
    async with running() as discovery:
        discovery.lister.gate.clear()
        asked = [asyncio.create_task(discovery.look_up("new")) for _ in range(2)]
        await asyncio.sleep(1)
        asked[0].cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        discovery.lister.gate.set()
        assert not await discovery.look_up("new")
        discovery.clock.advance(15.0)
        assert await discovery.look_up("new")


async def test_a_look_up_waits_no_longer_than_eight_seconds() -> None:
    async with running() as discovery:
        discovery.lister.gate.clear()
        begun = asyncio.get_running_loop().time()
        assert not await discovery.look_up("new")
        assert asyncio.get_running_loop().time() - begun == pytest.approx(8)
        discovery.lister.gate.set()


async def test_before_the_first_relist_a_look_up_waits_for_it() -> None:
    discovery = Discovery()
    discovery.lister.gate.clear()
    await discovery.relister.adopt(compile_text(RULES))
    task = asyncio.create_task(discovery.relister.run())
    asked = asyncio.create_task(discovery.look_up("a"))
    await asyncio.sleep(1)
    assert not asked.done()
    discovery.lister.gate.set()
    assert await asked
    assert discovery.asked() == [("s", "t")]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_rule_that_gives_a_reserved_name_is_reported_once_and_loses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running(reserved=frozenset({"a", "x"})) as discovery:
        assert discovery.custom() == ["b"]
        assert discovery.relister.registry.external == {}
        active = discovery.faults.active()
        assert active == {
            (
                "metric-name",
                path,
            ): f"{path} gives the name a, which is Fastpath's own: its values are not served"
            for path in ("rules[0]", "externalRules[0]")
        }
        await discovery.relist()
        assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
            "metric left out",
            "metric left out",
        ]
        await discovery.relister.adopt(
            compile_text(f"rules: [{{seriesQuery: s, {TEMPLATE}, name: {{as: 'c'}}}}]")
        )
        assert discovery.custom() == ["c"]
        assert discovery.faults.active() == {}


async def test_series_that_promql_cannot_write_are_left_out_and_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hostile = 'stolen{namespace="victim"} or x\x1b['
    async with running() as discovery:
        discovery.lister.lists = {"s": info("a", hostile, "c.d"), "t": info("b")}
        await discovery.relist()
        assert discovery.custom() == ["a", "b"]
        assert list(discovery.relister.registry.external) == ["a"]
        text = (
            "rules[0] leaves out 2 series names that PromQL cannot write without quotes, such as "
            r'"stolen{namespace=\"victim\"} or x\x1b["'
        )
        assert discovery.faults.active() == {
            ("series-name", "rules[0]"): text,
            ("series-name", "externalRules[0]"): text.replace("rules", "externalRules"),
        }
        discovery.lister.lists = {"s": info("a", "e.f", hostile), "t": info("b")}
        await discovery.relist()
        told = [record.message for record in caplog.records if record.levelno == logging.WARNING]
        assert told == ["series left out", "series left out"]
        discovery.lister.lists = {"s": info("a"), "t": info("b")}
        await discovery.relist()
        await discovery.relist()  # a name is forgotten when it was missing twice
        assert discovery.faults.active() == {}
