"""The provider over a fake Prometheus and cluster: ages, invalid values, errors, look-ups, reports."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from adapter import errors
from adapter.model.metrics import ExternalAnswer, SeriesInfo
from adapter.model.objects.resources import BUILTIN, APIResource, Catalogue
from adapter.prometheus import query_cache
from tests.support import waiting
from tests.support.answers import answers
from tests.support.clock import WALL
from tests.support.waiting import other_work, running
from tests.support.world import (
    FakeLister,
    FakeResources,
    Outcome,
    RulesWorld,
    custom_question,
    external_question,
    vector,
    world,
)

RULES = """
rules:
- seriesQuery: s
  resources: {template: <<.Resource>>}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
EXTERNAL = """
externalRules:
- seriesQuery: s
  resources: {namespaced: false}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (q)
"""
SERIES = {"s": (SeriesInfo("hits", frozenset({"namespace", "pod", "node", "deployment"}), 3),)}
UNREACHABLE = errors.PrometheusError("unreachable", "cannot connect")
UNFETCHED = "Internal error occurred: unable to fetch metrics"
SINCE = r": Prometheus does not answer since 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"
UNLISTED = "Internal error occurred: unable to list matching resources"
PODS, POD = "/namespaces/web/pods/*/hits", "/namespaces/web/pods/a/hits"
NOTHING = vector()


def serving(
    rules: str, answer: Outcome | Callable[[str], Outcome] = NOTHING, *names: str, **more: Any
) -> AbstractAsyncContextManager[RulesWorld]:
    """Return a provider of rules whose series are known, with what Prometheus answers."""
    known = answer if callable(answer) else lambda _: answer
    return world(rules, **{"answer": known, "lists": SERIES, "names": names, **more})


async def refused(
    asking: Awaitable[object], kind: type[errors.StatusError] = errors.InternalError, text: str = UNFETCHED
) -> None:
    with pytest.raises(kind, match=rf"^{text}(?:{SINCE})?$"):
        await asking


async def custom(here: RulesWorld, request: str = PODS) -> dict[str, int]:
    """Return the answer's thousandths by object name."""
    answer = await here.provider.custom(custom_question(request))
    return {item.described.name: item.milli for item in answer.items}


async def external(here: RulesWorld, request: str = "/namespaces/web/hits") -> ExternalAnswer:
    return await here.provider.external(external_question(request))


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno == logging.WARNING]


# --- the age of samples

AGED = RULES + "  maxSampleAge: 15s\n"
AGED_EXTERNAL = EXTERNAL + "  maxSampleAge: 15s\n"


@pytest.mark.parametrize("kind", ["custom", "external"])
async def test_an_answer_is_as_old_as_the_ages_that_were_there_before_it(kind: str) -> None:
    """Values and ages are asked again ahead, and only the values come."""
    ages: list[Outcome] = [vector(({"pod": "a"}, WALL)), errors.PrometheusError("timeout", "too slow")]

    def answer(promql: str) -> Outcome:
        return ages.pop(0) if "timestamp" in promql else vector(({"pod": "a"}, 1.0))

    async with serving(AGED + AGED_EXTERNAL, answer) as here:

        async def fresh_until() -> float:
            if kind == "external":
                return (await external(here)).fresh_until
            return (await here.provider.custom(custom_question(POD))).fresh_until

        begun = here.clock.monotonic()
        assert await fresh_until() == begun + 0.9
        here.clock.advance(0.95)
        await fresh_until()
        await waiting.until(lambda: not ages)
        assert await fresh_until() == begun + 0.9


# --- failures


async def test_too_many_questions_are_no_failure_of_prometheus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers are told to come again; questions with a cached answer get that."""
    async with serving(RULES + EXTERNAL, vector(({"pod": "a"}, 1.0))) as here:
        assert await custom(here, POD) == {"a": 1000}
        here.clock.advance(2.0)
        monkeypatch.setattr(query_cache, "INFLIGHT_BYTES", 0)
        for asked in (custom(here, "/namespaces/web/pods/b/hits"), external(here)):
            with pytest.raises(errors.TooManyRequestsError) as raised:
                await asked
            assert raised.value.limit == "queries"
        assert await custom(here, POD) == {"a": 1000}
        here.clock.advance(30.0)
        with pytest.raises(errors.TooManyRequestsError):
            await custom(here, POD)
        assert here.metric("fastpath_faults_active", fault="prometheus") in {None, 0}


async def test_a_rule_says_how_long_answers_live() -> None:
    async with serving(RULES + "  ttl: 5s\n  maxAge: 10s\n", vector(({"pod": "a"}, 1.0))) as here:
        first = await here.provider.custom(custom_question(POD))
        assert first.fresh_until == here.clock.monotonic() + 4.75
        here.clock.advance(4.9)
        await custom(here, POD)
        assert len(here.querier.asked) == 1
        here.querier.answer = lambda _: UNREACHABLE
        here.clock.advance(5.1)
        await refused(custom(here, POD))


# --- objects and kinds


WIDGET = APIResource(
    "example.com",
    "v1",
    "widgets",
    "widget",
    "Widget",
    namespaced=True,
    verbs=frozenset({"list"}),
    preferred=True,
)


async def test_an_unknown_kind_has_the_catalogue_read_again() -> None:
    kinds = FakeResources(later=Catalogue([*BUILTIN, WIDGET]))
    async with world(RULES, lists=SERIES, names=("w",), resources=kinds) as here:
        with pytest.raises(
            errors.NotFoundError, match=r"^the server could not find the metric hits for widgets.example.com$"
        ):
            await custom(here, "/namespaces/web/widgets.example.com/*/hits")
        assert kinds.refreshed == 1
        await refused(custom(here, "/namespaces/web/pods/a/nope"), errors.NotFoundError, ".*")
        assert kinds.refreshed == 1


UNKNOWN_KIND = {
    "by name": (
        "/namespaces/web/gadgets/a/hits", None, errors.NotFoundError,
        "the server could not find the metric hits for gadgets",
    ),
    "by selector": ("/namespaces/web/gadgets/*/hits", None, errors.InternalError, UNLISTED),
    "by name, the cluster does not answer": (
        "/namespaces/web/gadgets/a/hits",
        errors.KubernetesError(0, "", "down"),
        errors.NotFoundError,
        "the server could not find the metric hits for gadgets",
    ),
    "by name, kinds never read": (
        POD, errors.NotSyncedError("kinds"), errors.InternalError, UNFETCHED,
    ),
    "by selector, kinds never read": (
        "/namespaces/web/pods/*/hits", errors.NotSyncedError("kinds"), errors.InternalError, UNLISTED,
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("request_path", "later", "kind", "message"), UNKNOWN_KIND.values(), ids=UNKNOWN_KIND
)
async def test_kinds_that_are_not_known(
    request_path: str, later: Exception | None, kind: type[errors.StatusError], message: str
) -> None:
    kinds = (
        FakeResources(later, later)
        if isinstance(later, errors.NotSyncedError)
        else FakeResources(later=later)
    )
    async with world(RULES, lists=SERIES, resources=kinds) as here:
        await refused(custom(here, request_path), kind, message)
        assert here.querier.asked == []


# --- metrics not yet known


async def test_a_metric_not_yet_known_is_looked_up() -> None:
    values = vector(({"pod": "a"}, 1.0))
    async with world(RULES + EXTERNAL, answer=lambda _: values, lists={}) as here:
        here.lister.lists = dict(SERIES)
        assert await custom(here, POD) == {"a": 1000}
        assert len((await external(here)).items) == 1
        assert [start for _, start in here.lister.asked] == [WALL - 600.0, WALL - 300.0]


async def test_what_no_rule_can_give_is_not_looked_up() -> None:
    async with world("rules: [{seriesQuery: s, name: {as: fixed}}]", lists={}) as here:
        await refused(custom(here, POD), errors.NotFoundError, ".*")
        await refused(external(here), errors.NotFoundError, ".*")
        assert len(here.lister.asked) == 1


@pytest.mark.looptime
async def test_before_the_first_discovery_nothing_is_said_to_be_unknown() -> None:
    lister = FakeLister({})
    lister.gate.clear()
    async with world(RULES + EXTERNAL, lister=lister, attempted=False) as here:
        for asked in (custom(here, POD), external(here)):
            await refused(asked)


# --- the names of resources


@pytest.mark.parametrize(
    ("written", "name"), answers("provider/metrics", "the_name_under_which_a_resource_is_authorized")
)
async def test_the_name_under_which_a_resource_is_authorized(written: str, name: str | None) -> None:
    async with serving(RULES) as here:
        assert here.provider.canonical_resource(written) == name


async def test_before_the_catalogue_is_read_no_resource_has_a_name() -> None:
    async with world(
        RULES, lists=SERIES, resources=FakeResources(errors.NotSyncedError("kinds"), None)
    ) as here:
        assert here.provider.canonical_resource("pods") is None


# --- what the discovery documents list


async def test_what_is_listed() -> None:
    async with serving(RULES + EXTERNAL) as here:
        assert [str(each.resource) for each in here.provider.custom_metrics()] == [
            "namespaces",
            "nodes",
            "pods",
            "deployments.apps",
        ]
        assert here.provider.external_metrics() == ["hits"]
        assert here.provider.generation == here.relister.registry.generation


@pytest.mark.looptime
async def test_a_fault_ends_when_it_no_longer_occurs() -> None:
    failure = errors.PrometheusError("query", "bad_data")
    async with serving(RULES, failure) as here, running(here.problems.run()):
        await refused(custom(here, POD))
        here.querier.answer = lambda _: UNREACHABLE
        await refused(custom(here, "/namespaces/web/pods/b/hits"))
        await asyncio.sleep(600)  # of the loop; the clock of the faults stands still
        assert set(here.faults.active()) == {("query", "rules[0]"), ("prometheus", "")}
        here.clock.advance(61.0)
        await asyncio.sleep(600)
        assert set(here.faults.active()) == {("prometheus", "")}  # over when it answers


async def test_many_values_leave_the_loop_alone() -> None:
    names = [f"pod{number}" for number in range(3_000)]
    samples = vector(*(({"namespace": "somens", "pod": name}, 1.0) for name in names))
    async with world(RULES, answer=lambda _: samples, lists=SERIES, names=names) as here:
        async with other_work() as turns:
            answer = await here.provider.custom(custom_question("/namespaces/somens/pods/*/hits"))
        assert len(answer.items) == 3_000
        assert turns.count >= 6
    async with serving(EXTERNAL, samples) as here:
        async with other_work() as turns:
            external = await here.provider.external(external_question("/namespaces/somens/hits"))
        assert len(external.items) == 3_000
        assert turns.count >= 6
