"""The forecasts of a term, as data: when jobs are done, what becomes of them, what the next owner knows.

`scripts/forecasts` has stories of the autoscaler web, whose jobs are answered with a good verdict unless it
is said otherwise. The first leader begins in minute 30. Below a line is what was asked for, told and changed,
after its minutes. After `> ` something happens:

- `open FIELD=VALUE ...` puts the autoscaler, `run MINUTES` decides once a minute, and `change-for MINUTES`
  with another spec each time. `step SECONDS` decides alone, `only-look SECONDS` does all else.
- `save` stores verdicts, `lead MINUTE` is another process that leads from then on. `lead-before` is the first
  leader until minute 40.
- `verdict`, `fail`, `rules`, `demand` and `extra` say what jobs find; `overtake` changes the spec during one.
- Other words say what is known then.

`scripts/test tests/autoscaler/test_forecast_book.py --update` writes it.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from adapter.autoscaler.controller import term_store
from adapter.autoscaler.decide.observation import ExternalReading
from adapter.autoscaler.forecasts.book import ForecastBook
from adapter.autoscaler.forecasts.forecast import AutoscalerForecast
from adapter.autoscaler.forecasts.verdict_store import VerdictStore
from adapter.autoscaler.interfaces import Key
from adapter.bounds.forecast.job import STEP
from adapter.bounds.forecast.stored import StoredVerdict, decode_verdict
from tests.autoscaler.judged import FLOOR, NAME, REFUSAL, START, ForecastScript, JudgedBench
from tests.autoscaler.looped import HandLoopClock
from tests.boost.configmaps import Store
from tests.forecast.live_forecasts import METRIC, queue_metric
from tests.support.controller import fpa
from tests.support.scripts import Scripts
from tests.support.waiting import running, until

SCRIPTS = Scripts(Path(__file__).parent / "scripts" / "forecasts")


@pytest.fixture
def script(store: Store) -> ForecastScript:
    return ForecastScript(store)


@pytest.fixture
def bench(script: ForecastScript) -> JudgedBench:
    return script.bench


@pytest.mark.parametrize("title", SCRIPTS.titles)
async def test_script(title: str, script: ForecastScript, pytestconfig: pytest.Config) -> None:
    await SCRIPTS.play(title, script, pytestconfig, script.news)


@pytest.mark.looptime
async def test_a_step_is_exact_and_nothing_looks_between_two(
    bench: JudgedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decisions are a minute apart, half a minute beside the steps, and the clock is set on the way."""
    looked, look = list[float](), ForecastBook.look
    clock = bench.clock = HandLoopClock()
    bench.now = START + 30 * STEP + 30 + round(clock.seconds - clock.monotonic())
    bench.start()

    async def looks(book: ForecastBook) -> int:
        looked.append(round(clock.wall() - START, 2))
        return await look(book)

    monkeypatch.setattr(ForecastBook, "look", looks)
    bench.sources.readings[METRIC] = ExternalReading([10_000])
    bench.put(fpa([queue_metric()], minReplicas=2, syncPeriod="60s", forecast={"mode": "Floor"}), 10)
    async with running(bench.book.run(), bench.controller.loop.run()):
        await asyncio.sleep(29.9)
        assert bench.server.writes == []
        assert len(looked) < 5
        looked.clear()
        await asyncio.sleep(0.2)
        assert bench.server.writes == [("web", FLOOR)]
        await asyncio.sleep(10)
        assert looked == [31 * 60]
        clock.skew += 55
        await asyncio.sleep(1.1)
        assert len(looked) == 2


@pytest.mark.parametrize("broken", ["build_job", "take", "show", "step", "readiness"])
async def test_a_defect_in_one_forecast_keeps_no_other_from_its_floor(
    bench: JudgedBench, broken: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    works, bad = getattr(AutoscalerForecast, broken), Key("default", "api")
    await bench.open()

    def breaks(forecast: AutoscalerForecast, *given: Any, **named: Any) -> Any:
        if forecast.state.key == bad:
            raise ZeroDivisionError
        return works(forecast, *given, **named)

    monkeypatch.setattr(AutoscalerForecast, broken, breaks)
    bench.put(fpa([queue_metric()], name="api", uid="uid-2", **bench.spec), replicas=10)
    async with running(bench.book.run()):
        assert (await bench.run_for(6))[-1] == FLOOR
    assert [record.message for record in caplog.records] == ["unexpected error while making a forecast"]


@pytest.mark.looptime
async def test_a_verdict_of_this_term_stays(script: ForecastScript) -> None:
    """The ConfigMap could not be read in the beginning."""
    await script.lead_before()
    script.lead("42")
    bench = script.bench
    bench.line.cut = True
    await bench.open()
    bench.line.cut = False
    bench.verdict = REFUSAL
    await bench.run_for(1)
    await bench.save()
    assert set(await bench.run_for(5)) == {0}
    assert not bench.verdicts.unclaimed


async def test_a_term_that_ends_in_order_stores_its_verdicts(store: Store) -> None:
    bench = JudgedBench(store, number=7)
    await bench.open()
    async with bench.term.running(), running(bench.book.run()):
        await until(lambda: bench.asked != [])
    assert store.texts("fastpath-forecasts-slice-07").keys() == {"uid-1"}


def forecasts(verdict: StoredVerdict) -> Iterator[tuple[str, Any]]:
    """Yield names, and forecasts of two namespaces: some that act, some in mode Advise, some refused."""
    for namespace, count in (("small", 1), ("large", 3)):
        for kind, mode in (("refused", "Floor"), ("advises", "Advise"), ("floors", "Floor")):
            for number in range(count):
                key = Key(namespace, f"{kind}-{number}")
                name = str(key)
                named = SimpleNamespace(metadata=SimpleNamespace(uid=name))
                state = SimpleNamespace(key=key, spec=SimpleNamespace(object=named))
                yield (
                    name,
                    SimpleNamespace(
                        state=state,
                        verdict=REFUSAL if kind == "refused" else verdict.verdict,
                        settings=SimpleNamespace(mode=mode),
                        version=name,
                        to_store=lambda: verdict,
                    ),
                )


async def test_floors_have_room_first_and_namespaces_take_turns(
    script: ForecastScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    await script.lead_before()
    stored = decode_verdict(script.store.texts(NAME)["uid-1"], START + 40 * STEP)
    listed = dict(forecasts(stored))
    verdicts: Any = VerdictStore(listed.values, lambda: None, script.bench.term.slot)
    await verdicts.load()
    texts = await verdicts.encode()
    order = [
        f"{name}-{number}"
        for kind in ("floors", "advises", "refused")
        for name, number in (
            (f"large/{kind}", 0),
            (f"small/{kind}", 0),
            (f"large/{kind}", 1),
            (f"large/{kind}", 2),
        )
    ]
    assert list(texts) == order
    room = sum(len(uid) + len(texts[uid]) for uid in order[:5])
    monkeypatch.setattr(term_store, "LIMIT", room + 10)
    await verdicts.write()
    assert set(script.store.texts(NAME)) == set(order[:5])
