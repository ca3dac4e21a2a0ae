"""The documents of autoscalers: what was, what is, and what comes next, within the published schema."""

import json
from pathlib import Path

import jsonschema
import msgspec
import pytest

from adapter.autoscaler.decide.observation import ExternalReading
from adapter.autoscaler.decide.restraint import Restraint
from adapter.autoscaler.explain import debug
from adapter.model import steps
from adapter.model.autoscaling.fastpath_autoscaler import ADVISE, BOOST
from adapter.model.autoscaling.view import AutoscalerView, FleetView
from adapter.model.timestamps import SECOND
from tests.autoscaler.looped import ON, OWN, LoopBench, window
from tests.support.controller import QUEUE, Bench, fpa, shown_document
from tests.support.scaling import NOW

SCHEMA = json.loads(Path("docs/reference/debug.schema.json").read_text())
IMMEDIATE = {"scaleDown": {"stabilizationWindowSeconds": 0}}


def view(bench: Bench) -> AutoscalerView:
    document = shown_document(bench.controller)
    jsonschema.validate(document, SCHEMA)
    return msgspec.convert(document, AutoscalerView)


def fleet(bench: Bench) -> FleetView:
    answer = steps.run(debug.show_fleet(bench.controller, NOW / SECOND))
    jsonschema.validate(json.loads(answer.body), SCHEMA)
    return msgspec.json.decode(answer.body, type=FleetView)


async def test_the_history_has_the_peak_and_what_limited_it(bench: Bench) -> None:
    await bench.begin_with(4, maxReplicas=6)
    bench.want(9)
    await bench.steps(30)
    bench.want(4)
    await bench.step(1)

    shown = view(bench)

    assert shown.history is not None
    assert shown.history.resolution == 30
    *_, before, last = shown.history.points
    assert (before.demand, before.desired, before.min, before.max) == (9, 6, 1, 6)
    assert before.limited_by == Restraint.HIGHEST.value
    assert last.limited_by == Restraint.HELD.value
    assert shown.last is not None
    assert shown.last.demand == 4
    assert shown.last.limited_by == shown.status["limitedBy"] == Restraint.HELD.value


async def test_a_scaler_that_keeps_no_history(bench: Bench) -> None:
    bench.controller.context = bench.controller.context._replace(keeps_history=False)
    await bench.begin_with(4)

    assert view(bench).history is None
    assert fleet(bench).autoscalers[0].reversals == 0


async def test_the_history_stays_with_a_clock_that_is_set(bench: Bench) -> None:
    await bench.begin_with(4)
    bench.clock.skew += 3600
    await bench.step(1)

    history = view(bench).history
    assert history is not None
    assert [(point.demand, point.at) for point in history.points] == [(4, debug.moment(NOW + 3600 * SECOND))]


async def test_what_comes_next_is_the_end_of_the_window(bench: Bench) -> None:
    await bench.begin_with(4)
    bench.want(2)
    await bench.step(10)

    following = view(bench).next

    assert following is not None
    assert (following.replicas, following.released) == (2, Restraint.HELD.value)
    assert following.at == debug.moment(bench.controller.loop.clock.time_of_day() + 290 * SECOND)


async def test_nothing_comes_next_where_nothing_is_known(bench: Bench) -> None:
    await bench.begin_with(4)
    assert view(bench).next is None

    bench.server.cached.clear()
    assert view(bench).next is None


async def test_values_are_shown_with_their_targets_and_ages(bench: Bench) -> None:
    await bench.begin_with(4)
    bench.sources.opened[0].sampled = bench.controller.loop.clock.time_of_day() - 5 * SECOND
    await bench.step(1)

    (metric,) = view(bench).metrics
    assert (metric.name, metric.current, metric.target) == ("external metric queue(nil)", "1", "1")
    assert (metric.ratio, metric.age, metric.overdue, metric.fault) == (1.0, 6.0, "", "")

    bench.want(None)
    await bench.step(1)
    (metric,) = view(bench).metrics
    assert (metric.current, metric.ratio, metric.fault) == ("<unknown>", None, "none")

    bench.sources.opened[0].reading = ExternalReading([4000], overdue="it is old")
    await bench.step(1)
    assert view(bench).metrics[0].overdue == "it is old"


async def test_the_journal_is_left_out_where_it_is_not_asked_for(bench: Bench) -> None:
    await bench.begin_with(6)

    short = debug.show(bench.controller, "default", "web", "", with_journal=False)

    assert msgspec.json.decode(short.body, type=AutoscalerView).journal is msgspec.UNSET
    assert view(bench).journal


async def test_an_invalid_spec_has_no_metrics(bench: Bench) -> None:
    bench.put(fpa(QUEUE, minReplicas=30), replicas=4)
    await bench.step()

    assert list(view(bench).metrics) == []


async def test_windows_of_schedules_are_ahead() -> None:
    bench = LoopBench()
    bench.schedules.by_key = {OWN: (window("13:10", "13:30"),)}
    await bench.begin_with(4)

    shown = view(bench)

    (ahead,) = shown.ahead
    assert (ahead.min, ahead.max, ahead.start[11:16], ahead.end[11:16]) == (12, None, "12:10", "12:30")
    assert "lunch" in ahead.source
    assert shown.next is not None
    assert (shown.next.replicas, shown.next.at[11:16]) == (12, "12:10")
    bench.close()


async def test_a_line_of_the_fleet(bench: Bench) -> None:
    await bench.begin_with(4, behavior=IMMEDIATE)
    (source,) = bench.sources.opened
    source.sampled, source.span = bench.controller.loop.clock.time_of_day(), SECOND
    for wish in (6, 3, 8):
        bench.want(wish)
        await bench.steps(31)

    (line,) = fleet(bench).autoscalers

    assert (line.namespace, line.name, line.target) == ("default", "web", "Deployment/web")
    assert (line.replicas, line.desired, line.min, line.max) == (8, 8, 1, 20)
    assert (line.limited_by, line.reversals, line.overdue) == (Restraint.FOLLOWS.value, 1, 0)
    assert (line.sample_age, line.chain) == (93.0, 79.0)  # a policy delayed the last change
    assert line.chain is not None
    assert not line.boosted

    bench.want(None)
    await bench.step(1)
    (line,) = fleet(bench).autoscalers
    assert (line.overdue, line.limited_by) == (1, Restraint.ABSENT.value)
    assert "no metric" not in line.fault
    assert "unable to" in line.fault or "invalid metrics" in line.fault


@pytest.mark.parametrize(("mode", "floor"), [(BOOST, 8), (ADVISE, 0)])
async def test_a_boosted_hpa_shows_its_floor(mode: str, floor: int) -> None:
    bench = LoopBench()
    await bench.begin_boosted(9, ON._replace(mode=mode))

    (line,), shown = fleet(bench).autoscalers, view(bench)

    assert line.boosted is (mode == BOOST)
    assert line.floor == shown.limits.floor == floor
    assert shown.boost is not msgspec.UNSET
    bench.close()


async def test_what_comes_after_a_window_waits_for_the_window_and_then_for_the_stabilization() -> None:
    bench = LoopBench()
    bench.schedules.by_key = {OWN: (window("12:50", "13:10"),)}
    await bench.begin_with(4, replicas=12)
    await bench.steps(310)

    shown = view(bench)

    assert shown.next is not None
    assert (shown.next.replicas, shown.next.at[11:16]) == (4, "12:15")
    assert shown.next.released == "held by a schedule until 2026-11-20T12:10:00.000Z, then by stabilization"
    bench.close()
