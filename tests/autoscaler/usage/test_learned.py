"""What was learned of own usage counts for the next source of a metric, at once and while it is true."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
import pytest

from adapter.autoscaler.decide.observation import Ways
from adapter.model import learned_usage
from adapter.model.ready_times import PodStart, ReadyLedger, decode_ledger, encode_ledger
from tests.autoscaler.inputs.sources_bench import CONTAINER
from tests.autoscaler.usage.test_source import CALM, STEEP, Servers, servers
from tests.support.scaling import cpu_metric

LEARNING = 180  # seconds after which own usage counts in these tests
SOON = 5
"""Seconds after the first value of own usage within which it has to count."""

Learned = dict[str, learned_usage.LearnedUsage]


class StoredLedger(NamedTuple):
    """What a scaler has stored of a workload, and when (epoch seconds)."""

    text: str
    at: float

    def usages(self) -> Learned:
        return decode_ledger(self.text).usages


async def learn() -> StoredLedger:
    async with servers() as before:
        await before.run(LEARNING)
        assert before.condition() == (True, "Agrees")
        ledger = ReadyLedger("uid")
        ledger.usages.update(before.here.learned)
        known = StoredLedger(encode_ledger(ledger), before.here.clock.wall())
        assert known.usages() == before.here.learned
        return known


@pytest.fixture(scope="module")
def known() -> StoredLedger:
    return asyncio.run(learn())


@asynccontextmanager
async def successor(
    learned: Learned,
    at: float,
    metric: Mapping[str, Any] | None = None,
    more: str = "",
    *,
    steep: bool = False,
) -> AsyncIterator[Servers]:
    """Yield a scaler that starts then, has scraped nothing, and has the last usages of the containers."""
    async with servers(metric, more) as after:
        after.here.clock.advance(at - after.here.clock.wall())
        after.here.learned = dict(learned)
        for used in after.used.values():
            used.extend([CALM] * 60)
        await after.measure()
        if steep:
            after.usage |= dict.fromkeys("abc", STEEP)
            after.measured = False
        yield after


async def seconds_to_count(after: Servers) -> int | None:
    """Return the seconds from the first value of own usage until it counts, None if it does not soon."""
    waited = 0
    for _ in range(20):
        await after.run(1)
        waited += after.source.verdict.reason != "NotExposed"
        if after.source.verdict.ratio is not None and isinstance(after.reading, Ways):
            return waited
    return None


async def test_after_a_hand_over_own_usage_counts_with_its_first_values(known: StoredLedger) -> None:
    async with successor(known.usages(), known.at + 20, steep=True) as after:
        seconds = await seconds_to_count(after)

        assert seconds is not None
        assert seconds <= SOON
        assert after.reading.ways[0].values == dict.fromkeys("abc", 200)
        assert after.reading.ways[1].values == pytest.approx(dict.fromkeys("abc", 800), rel=0.02)


async def test_without_it_the_comparison_begins_again(known: StoredLedger) -> None:
    async with successor({}, known.at + 20, steep=True) as after:
        assert await seconds_to_count(after) is None


async def test_after_a_change_of_the_spec_the_next_source_goes_on() -> None:
    async with servers() as before:
        await before.run(LEARNING)
        source: Any = before.here.open(cpu_metric())
        before.source = source
        reading = await before.step(seconds=SOON)

        assert before.condition() == (True, "Agrees")
        assert isinstance(reading, Ways)


async def test_it_is_of_the_pods_that_agreed(known: StoredLedger) -> None:
    others = {key: msgspec.structs.replace(each, pods={}) for key, each in known.usages().items()}
    async with successor(others, known.at + 20, steep=True) as after:
        assert await seconds_to_count(after) is None
        assert after.condition() == (False, "NotCompared")


@pytest.mark.parametrize(
    ("later", "metric", "more"),
    [
        pytest.param(learned_usage.OLDEST_SECONDS + 1, None, "", id="too old"),
        pytest.param(-60.0, None, "", id="of a later time"),
        pytest.param(20.0, None, ", window: 6s", id="of another rule"),
        pytest.param(20.0, CONTAINER, "", id="of another container"),
    ],
)
async def test_it_does_not_count_for_anything_else(
    known: StoredLedger, later: float, metric: Mapping[str, Any] | None, more: str
) -> None:
    async with successor(known.usages(), known.at + later, metric, more, steep=True) as after:
        assert await seconds_to_count(after) is None


async def test_the_first_comparison_has_to_confirm_it(known: StoredLedger) -> None:
    async with successor(known.usages(), known.at + 20) as after:
        after.shown = lambda _, cores: cores / 3  # the new version has three processes
        assert await seconds_to_count(after) is None  # a third of the usage raises nothing
        assert after.condition() == (True, "Agrees")
        while after.source.pods.calibration.ratios == known.usages()["cpu/"].ratios:
            await after.run(1)

        assert after.condition() == (False, "TooLittle"), "of what was before, nothing counts"
        assert min(after.here.learned["cpu/"].ratios) > 2


async def test_a_comparison_that_confirms_it_goes_on_with_it(known: StoredLedger) -> None:
    async with successor(known.usages(), known.at + 20) as after:
        await after.run(LEARNING)
        assert after.condition() == (True, "Agrees")
        assert after.source.pods.calibration.ratios[0] == known.usages()["cpu/"].ratios[0]


def test_what_is_stored_is_bounded() -> None:
    pods = {
        f"{number}{'x' * 252}": learned_usage.AgreeingPod(1_700_000_000_000_000_000, 1.7e9)
        for number in range(learned_usage.MOST_PODS)
    }
    known = learned_usage.LearnedUsage(
        "0123abcd", 1.7e9, (1.0123,) * learned_usage.MOST_RATIOS, 0.1234567890123, pods
    )
    ledger = ReadyLedger("uid", [PodStart(3, 2_000_123, 2_500_123, 3_000_123, True, True)] * 60)
    ledger.usages.update(
        {f"ephemeral-storage/{'x' * 60}{number}": known for number in range(learned_usage.MOST_LEARNED)}
    )
    assert decode_ledger(encode_ledger(ledger)).usages == ledger.usages


def test_a_ledger_that_inherits_can_be_stored() -> None:
    known = learned_usage.LearnedUsage("0123abcd", 1.7e9, (1.0,))
    older, own = ReadyLedger("uid"), ReadyLedger("uid")
    older.usages = {f"cpu/{number}": known for number in range(learned_usage.MOST_LEARNED)}
    own.usages = {"cpu/": known}
    own.inherit(older)
    assert list(decode_ledger(encode_ledger(own)).usages) == ["cpu/1", "cpu/2", "cpu/3", "cpu/"]


async def test_the_usages_of_a_few_metrics_are_kept() -> None:
    async with servers() as before:
        known = learned_usage.LearnedUsage("0123abcd", 1.7e9, (1.0,))
        before.here.learned |= {f"x/{number}": known for number in range(learned_usage.MOST_LEARNED)}
        await before.run(LEARNING)
        assert list(before.here.learned) == ["x/1", "x/2", "x/3", "cpu/"]


async def test_what_a_comparison_does_not_show_any_more_is_forgotten(known: StoredLedger) -> None:
    async with successor(known.usages(), known.at + 20) as after:
        after.shown = lambda _, cores: cores / 3
        await after.run(30)
        after.usage |= dict.fromkeys("abc", 0.001)  # too little for a ratio
        await after.run(LEARNING)
        assert after.condition() != (True, "Agrees")
        assert "cpu/" not in after.here.learned or min(after.here.learned["cpu/"].ratios) > 2


@pytest.mark.parametrize("unit", [1e9, 1e-9])
async def test_a_counter_of_another_unit_costs_no_ready_times(unit: float) -> None:
    """Such as nanoseconds: its ratio never counts, and must not make the ledger unreadable."""
    async with servers() as before:
        before.shown = lambda _, cores: cores * unit
        await before.run(LEARNING)
        assert before.source.pods.calibration.ratios
        ledger = ReadyLedger("uid", [PodStart(3, 2_000_123, 2_500_123, 3_000_123, True, True)])
        ledger.usages.update(before.here.learned)
    assert decode_ledger(encode_ledger(ledger)).starts() == ledger.starts()


@pytest.mark.parametrize("ratios", ["[]", "[0]", "[-1]", "[1e999]", "[null]"])
def test_a_stored_ratio_that_is_none_is_refused(ratios: str) -> None:
    usage = f'{{"rule":"0","at":1,"ratios":{ratios}}}'
    with pytest.raises(ValueError, match="not a ledger"):
        decode_ledger(f'{{"usages":{{"cpu/":{usage}}}}}')
