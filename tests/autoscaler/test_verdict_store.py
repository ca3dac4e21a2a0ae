"""Verdicts for the next owner: what it goes on with, what must not act, what is stored and when."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from adapter.autoscaler.controller import term_store
from adapter.autoscaler.decide.observation import ExternalReading
from adapter.autoscaler.forecasts.forecast import PAUSE
from adapter.autoscaler.forecasts.verdict_store import VerdictStore
from adapter.autoscaler.interfaces import Key
from adapter.bounds.forecast.job import STEP
from adapter.bounds.forecast.plan import HOUR
from adapter.bounds.forecast.stored import StoredVerdict, decode_verdict
from adapter.errors import Fault, InputError, NotSyncedError
from adapter.kubernetes.write.outbox import IDLE
from adapter.kubernetes.write.writer import WriteKind
from adapter.model.autoscaling import slices
from tests.autoscaler.test_forecast_book import BAD, FLOOR, LIMITS, PAUSED, START, JudgedBench, verdict_of
from tests.boost.configmaps import Store
from tests.boost.floorterms import StoringProcess
from tests.forecast.live_forecasts import METRIC, queue_metric
from tests.support.controller import fpa
from tests.support.waiting import running, until

NAME = "fastpath-forecasts-slice-00"
TOLD = "candidate day: -70 % shortage, +5 % pods in a replay of 7 days"


class Term(JudgedBench):
    """A leader whose verdicts are stored; it begins `minute` minutes after START."""

    def __init__(self, store: Store, minute: int = 30, number: int = 0, **forecast: Any) -> None:
        super().__init__(**forecast)
        self.clock.seconds += (minute - 30) * STEP
        process = StoringProcess(store, self.clock)
        self.line, self.problems = process.line, process.problems
        self.term = process.open_term(WriteKind.STATUS, number=number)
        self.verdicts = self.book.begin(slices.slice_of("default"), self.term.slot)

    async def open(self, uid: str = "uid-1", **spec: Any) -> None:
        """Put the autoscaler, and decide it once before the minute is over."""
        given = {"minReplicas": 2, "maxReplicas": 60, "forecast": self.forecast, **spec}
        self.begin(fpa([queue_metric()], uid=uid, **given), 10)
        await self.book.look()
        for source in self.sources.opened:
            source.reading = ExternalReading([10_000])
        await self.step(15)

    async def save(self) -> None:
        if self.verdicts.due(0) is not IDLE:
            await self.verdicts.write()

    def reported(self) -> str:
        return "; ".join(self.problems.active().values())


async def stored_by(store: Store, minutes: int = 10, **forecast: Any) -> Term:
    """Return a leader that has led for some minutes and has stored its verdict."""
    term = Term(store, **forecast)
    await term.open()
    await term.run_for(minutes)
    await term.save()
    assert store.texts(NAME).keys() == {"uid-1"}
    return term


def content(store: Store, minute: int = 40) -> StoredVerdict:
    return decode_verdict(store.texts(NAME)["uid-1"], START + minute * STEP)


async def test_the_next_leader_has_the_floor_within_a_minute(store: Store) -> None:
    await stored_by(store)
    term = Term(store, 42)
    await term.open()
    assert await term.run_for(60 - 42) == [FLOOR] * 18
    assert term.server.scales["web"].replicas == FLOOR
    assert term.asked == []
    assert term.condition() == ("True", "Acting", TOLD)
    assert term.events() == []
    assert term.explained() == [f"forecast: floor {FLOOR}, by candidate day"]

    # The plan of the next hour is stored too. The job of that hour is when it always is.
    assert set(await term.run_for(60)) == {FLOOR}
    (job,) = term.asked
    assert (job.judges, job.with_this_hour) == (False, False)
    assert job.verdict == content(store).verdict


async def test_a_leader_that_comes_when_the_plan_has_ended_asks_for_one_at_once(store: Store) -> None:
    await stored_by(store)
    term = Term(store, 30 + 3 * 60)
    await term.open()
    assert await term.run_for(2) == [0, FLOOR]
    (job,) = term.asked
    assert (job.judges, job.with_this_hour) == (False, True)
    account = term.forecast_of.planned.account
    assert account is not None
    assert START // HOUR in [hour.number for hour in account.hours], "the account goes on"


async def test_what_withholds_a_floor_still_does(store: Store) -> None:
    first = Term(store)
    first.limits = LIMITS._replace(max_extra=0.01)
    await first.open()
    assert (await first.run_for(60))[-1] == 0
    await first.save()
    term = Term(store, 92)
    await term.open()
    assert set(await term.run_for(10)) == {0}
    assert term.condition()[:2] == ("True", "Withheld")
    assert term.asked == []


async def test_the_mode_is_that_of_the_spec(store: Store) -> None:
    await stored_by(store)
    term = Term(store, 42, mode="Advise")
    await term.open()
    assert set(await term.run_for(5)) == {0}
    assert term.asked == []
    assert term.condition()[:2] == ("True", "Advising")


async def test_a_verdict_on_another_spec_never_acts(store: Store) -> None:
    await stored_by(store)
    term = Term(store, 42)
    await term.open(maxReplicas=50)
    minutes = 31 + PAUSE // STEP - 42
    assert set(await term.run_for(minutes - 1)) == {0}
    assert term.condition() == PAUSED
    assert term.asked == []
    await term.run_for(3)
    assert [job.judges for job in term.asked] == [True]


async def test_an_object_of_the_same_name_begins_without_a_verdict(store: Store) -> None:
    await stored_by(store)
    term = Term(store, 42)
    await term.open(uid="uid-2")
    assert await term.run_for(1) == [0]
    assert [job.judges for job in term.asked] == [True]


async def test_a_corrupt_entry_is_reported_and_a_verdict_made(store: Store) -> None:
    await stored_by(store)
    store.edit(NAME, lambda document: document["data"].update({"uid-1": "{"}))
    term = Term(store, 42)
    await term.open()
    assert await term.run_for(2) == [0, FLOOR]
    assert [job.judges for job in term.asked] == [True]
    assert f"ConfigMap fastpath/{NAME}, uid-1: not a verdict: " in term.reported()


@pytest.mark.looptime
async def test_a_verdict_of_this_term_stays(store: Store) -> None:
    """The ConfigMap could not be read in the beginning."""
    await stored_by(store)
    term = Term(store, 42)
    term.line.cut = True
    await term.open()
    term.line.cut = False
    term.verdict = verdict_of(START, BAD)
    await term.run_for(1)
    await term.save()
    assert set(await term.run_for(5)) == {0}
    assert not term.verdicts.unclaimed


async def test_queries_that_are_not_known_yet_are_waited_for(store: Store) -> None:
    await stored_by(store)
    term = Term(store, 42)
    term.unknown = NotSyncedError("not listed yet")
    await term.open()
    now = term.seconds()
    assert await term.book.look() == now + 5
    term.unknown = None
    assert await term.run_for(1) == [FLOOR]
    assert term.asked == []


async def test_a_metric_that_is_known_later_has_its_verdict_then(store: Store) -> None:
    await stored_by(store)
    term = Term(store, 42)
    term.unknown = InputError([Fault("spec.metrics[0]", METRIC, "no rule makes it")])
    await term.open()
    assert await term.run_for(2) == [0, 0]
    assert term.condition()[1] == "NoQuery"
    term.unknown = None
    assert (await term.run_for(2))[-1] == FLOOR
    assert term.asked == []
    assert term.condition()[1] == "Acting"


async def test_without_a_verdict_nothing_is_stored(store: Store) -> None:
    term = Term(store)
    term.verdict = verdict_of(START, missing="3 of 7 days of history")
    await term.save()
    assert term.line.gets == 0, "there is no forecast yet"
    await term.open()
    await term.run_for(5)
    await term.save()
    assert store.objects == {}


async def test_a_term_that_ends_in_order_stores_its_verdicts(store: Store) -> None:
    term = Term(store, number=7)
    await term.open()
    async with term.term.running(), running(term.book.run()):
        await until(lambda: term.asked != [])
    assert store.texts("fastpath-forecasts-slice-07").keys() == {"uid-1"}


async def test_a_slice_that_is_given_up_has_no_turns(store: Store) -> None:
    term = Term(store)
    await term.open()
    term.clock.seconds += 2 * STEP
    await term.book.look()
    term.controller.drop(slices.slice_of("default"))
    assert not await term.book.work()
    assert term.asked == []


def forecasts(store: Store) -> Iterator[tuple[str, Any]]:
    """Yield names, and forecasts of two namespaces: some that act, some in mode Advise, some refused."""
    verdict = content(store)
    refusal = verdict_of(START, BAD)
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
                        verdict=refusal if kind == "refused" else verdict.verdict,
                        settings=SimpleNamespace(mode=mode),
                        version=name,
                        to_store=lambda: verdict,
                    ),
                )


async def test_floors_have_room_first_and_namespaces_take_turns(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stored_by(store)
    term, listed = Term(store), dict(forecasts(store))
    verdicts: Any = VerdictStore(listed.values, lambda: None, term.term.slot)
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
    assert set(store.texts(NAME)) == set(order[:5])
