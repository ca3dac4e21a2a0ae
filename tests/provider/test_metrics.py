"""The provider over a fake Prometheus and cluster: ages, invalid values, errors, look-ups, reports."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from adapter.errors import (
    InternalError,
    KubernetesError,
    NotFoundError,
    NotSyncedError,
    PrometheusError,
    StatusError,
    TooManyRequestsError,
)
from adapter.model.metrics import ExternalAnswer, SeriesInfo
from adapter.model.resources import BUILTIN, APIResource, Catalogue
from adapter.prometheus import query_cache
from tests.support import waiting
from tests.support.clock import WALL
from tests.support.waiting import other_work, running
from tests.support.world import (
    FakeLister,
    FakeResources,
    Outcome,
    RulesWorld,
    custom_question,
    external_question,
    partial,
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
UNREACHABLE = PrometheusError("unreachable", "cannot connect")
UNFETCHED = "Internal error occurred: unable to fetch metrics"
SINCE = r": Prometheus does not answer since 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"
UNLISTED = "Internal error occurred: unable to list matching resources"
UNKNOWN = "the server could not find the metric hits for pods"
PODS, POD = "/namespaces/web/pods/*/hits", "/namespaces/web/pods/a/hits"
NOTHING = vector()


def serving(
    rules: str, answer: Outcome | Callable[[str], Outcome] = NOTHING, *names: str, **more: Any
) -> AbstractAsyncContextManager[RulesWorld]:
    """Return a provider of rules whose series are known, with what Prometheus answers."""
    known = answer if callable(answer) else lambda _: answer
    return world(rules, **{"answer": known, "lists": SERIES, "names": names, **more})


async def refused(
    asking: Awaitable[object], kind: type[StatusError] = InternalError, text: str = UNFETCHED
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


@pytest.mark.parametrize("ages_fail", [False, True])
async def test_new_ages_do_not_make_an_old_answer_fresh(*, ages_fail: bool) -> None:
    """The query fails while the lighter one for the times of samples is answered."""
    async with serving(AGED + AGED_EXTERNAL, vector(), "a") as here:
        works = True

        def answer(promql: str) -> Outcome:
            if "timestamp" in promql:
                return (
                    vector(({"q": "a", "pod": "a"}, here.clock.wall()))
                    if works or not ages_fail
                    else UNREACHABLE
                )
            return vector(({"q": "a", "pod": "a"}, 1.0)) if works else PrometheusError("timeout", "too slow")

        here.querier.answer = answer
        await external(here)
        await custom(here, POD)
        works = False
        here.clock.advance(10.0)
        for asked in (external(here), custom(here, POD)):
            if ages_fail:
                assert await asked, "both stand in, and show that the samples are young enough"
                continue
            await refused(asked)


@pytest.mark.parametrize("kind", ["custom", "external"])
async def test_an_answer_is_as_old_as_the_ages_that_were_there_before_it(kind: str) -> None:
    """Values and ages are asked again ahead, and only the values come."""
    ages: list[Outcome] = [vector(({"pod": "a"}, WALL)), PrometheusError("timeout", "too slow")]

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


# --- invalid values --


async def test_an_invalid_value_is_logged_once_with_its_query(caplog: pytest.LogCaptureFixture) -> None:
    values = vector(({"pod": "a"}, math.nan), ({"pod": "b"}, 2.0))
    async with serving(RULES, values, "a", "b") as here:
        for _ in range(3):
            assert await custom(here) == {"b": 2000}
        assert warnings_of(caplog) == ["value left out"]
        assert 'sum(hits{namespace="web",pod="a"}) by (pod)' in str(vars(caplog.records[-1]))


# --- answers with warnings

WHOLE = vector(({"q": "a", "pod": "a"}, 60.0), ({"q": "b", "pod": "b"}, 40.0))
PART = partial(({"q": "a", "pod": "a"}, 10.0))
ACCEPT = "  onWarnings: accept\n"


async def test_an_answer_with_a_warning_is_a_failed_query(caplog: pytest.LogCaptureFixture) -> None:
    """The last whole answer stands in while it is young enough; then the request fails."""
    async with serving(RULES + EXTERNAL, WHOLE, "a", "b") as here:
        assert [item.milli for item in (await external(here)).items] == [60_000, 40_000]
        assert await custom(here) == {"a": 60_000, "b": 40_000}
        here.querier.answer = lambda _: PART
        here.clock.advance(29.0)
        assert [item.milli for item in (await external(here)).items] == [60_000, 40_000]
        assert await custom(here) == {"a": 60_000, "b": 40_000}
        here.clock.advance(1.5)
        await refused(external(here))
        await refused(custom(here))
        assert here.metric("fastpath_prometheus_queries_total", type="alone", outcome="partial") > 0

        said = [str(record.__dict__) for record in caplog.records if record.message == "query failed"]
        assert "receive series from store-1: Unavailable" in said[0]
        assert "onWarnings: accept" in said[0]

        here.querier.answer = lambda _: WHOLE
        assert [item.milli for item in (await external(here)).items] == [60_000, 40_000]


async def test_a_rule_may_accept_warnings() -> None:
    """As prometheus-adapter, which knows none; such an answer is kept like any other."""
    async with serving(RULES + ACCEPT + EXTERNAL + ACCEPT, PART, "a", "b") as here:
        for _ in range(2):
            assert [item.milli for item in (await external(here)).items] == [10_000]
            assert await custom(here) == {"a": 10_000}
        assert len(here.querier.asked) == 2
        assert here.metric("fastpath_prometheus_queries_total", type="alone", outcome="success") == 2


async def test_two_rules_with_one_query_and_different_options() -> None:
    rules = (
        EXTERNAL
        + "  name: {as: strict}\n"
        + EXTERNAL.partition("externalRules:\n")[2]
        + "  name: {as: easy}\n"
        + ACCEPT
    )
    async with serving(rules, PART) as here:
        strict, easy = "/namespaces/web/strict", "/namespaces/web/easy"
        assert len((await external(here, easy)).items) == 1
        await refused(external(here, strict))
        assert len((await external(here, easy)).items) == 1


# --- failures


async def test_too_many_questions_are_no_failure_of_prometheus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers are told to come again; questions with a cached answer get that."""
    async with serving(RULES + EXTERNAL, vector(({"pod": "a"}, 1.0))) as here:
        assert await custom(here, POD) == {"a": 1000}
        here.clock.advance(2.0)
        monkeypatch.setattr(query_cache, "INFLIGHT_BYTES", 0)
        for asked in (custom(here, "/namespaces/web/pods/b/hits"), external(here)):
            with pytest.raises(TooManyRequestsError) as raised:
                await asked
            assert raised.value.limit == "queries"
        assert await custom(here, POD) == {"a": 1000}
        here.clock.advance(30.0)
        with pytest.raises(TooManyRequestsError):
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


@pytest.mark.parametrize(
    "failure", [NotSyncedError("pods"), KubernetesError(403, "Forbidden", "no")], ids=str
)
async def test_objects_that_cannot_be_listed(failure: Exception, caplog: pytest.LogCaptureFixture) -> None:
    async with world(RULES, lists=SERIES, names=failure) as here:
        for _ in range(2):
            await refused(custom(here), text=UNLISTED)
        assert warnings_of(caplog) == ["objects cannot be listed"]
        assert list(here.faults.active()) == [("list", "pods")]
        here.names.names_or_error = ("a",)
        here.clock.advance(61.0)
        await custom(here)
        assert here.faults.active() == {}


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
            NotFoundError, match=r"^the server could not find the metric hits for widgets.example.com$"
        ):
            await custom(here, "/namespaces/web/widgets.example.com/*/hits")
        assert kinds.refreshed == 1
        await refused(custom(here, "/namespaces/web/pods/a/nope"), NotFoundError, ".*")
        assert kinds.refreshed == 1


UNKNOWN_KIND = {
    "by name": (
        "/namespaces/web/gadgets/a/hits", None, NotFoundError,
        "the server could not find the metric hits for gadgets",
    ),
    "by selector": ("/namespaces/web/gadgets/*/hits", None, InternalError, UNLISTED),
    "by name, the cluster does not answer": (
        "/namespaces/web/gadgets/a/hits",
        KubernetesError(0, "", "down"),
        NotFoundError,
        "the server could not find the metric hits for gadgets",
    ),
    "by name, kinds never read": (
        POD, NotSyncedError("kinds"), InternalError, UNFETCHED,
    ),
    "by selector, kinds never read": (
        "/namespaces/web/pods/*/hits", NotSyncedError("kinds"), InternalError, UNLISTED,
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("request_path", "later", "kind", "message"), UNKNOWN_KIND.values(), ids=UNKNOWN_KIND
)
async def test_kinds_that_are_not_known(
    request_path: str, later: Exception | None, kind: type[StatusError], message: str
) -> None:
    kinds = FakeResources(later, later) if isinstance(later, NotSyncedError) else FakeResources(later=later)
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
        await refused(custom(here, POD), NotFoundError, ".*")
        await refused(external(here), NotFoundError, ".*")
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
    ("written", "name"),
    [
        ("pods", "pods"),
        ("pod", "pods"),
        ("Pods", "pods"),
        ("pods.", "pods"),
        ("deployments", "deployments.apps"),
        ("Deployment.apps", "deployments.apps"),
        ("deployments.app", "deployments.apps"),
        ("deployments.apps", "deployments.apps"),
        ("po", None),
        ("widgets.example.com", None),
        ("", None),
    ],
)
async def test_the_name_under_which_a_resource_is_authorized(written: str, name: str | None) -> None:
    async with serving(RULES) as here:
        assert here.provider.canonical_resource(written) == name


async def test_before_the_catalogue_is_read_no_resource_has_a_name() -> None:
    async with world(RULES, lists=SERIES, resources=FakeResources(NotSyncedError("kinds"), None)) as here:
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


# --- faults are said once


async def test_an_outage_is_said_once_and_ends_with_the_first_new_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    good = vector(({"pod": "a"}, 1.0))
    async with serving(RULES, good) as here:
        await custom(here, POD)
        here.querier.answer = lambda _: UNREACHABLE
        for _ in range(5):
            here.clock.advance(2.0)
            await custom(here, POD)  # an older answer stands in, and the fault is no secret
            await refused(custom(here, "/namespaces/web/pods/b/hits"))
        assert warnings_of(caplog) == ["Prometheus does not answer"]
        assert list(here.faults.active()) == [("prometheus", "")]
        here.querier.answer = lambda _: good
        here.clock.advance(2.0)
        await custom(here, POD)
        assert here.faults.active() == {}
        assert [record.message for record in caplog.records].count("fault ended") == 1


async def test_a_fault_of_one_question_does_not_flicker_with_the_successes_of_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    def answer(promql: str) -> Outcome:
        return PrometheusError("query", "bad_data") if "/" in promql else vector(({"pod": "a"}, 1.0))

    async with serving(RULES, answer) as here:
        for _ in range(4):
            here.clock.advance(15.0)
            await custom(here, POD)
            await refused(custom(here, "/namespaces/web/pods/a/hits?metricLabelSelector=a.io/b%3Dc"))
        assert warnings_of(caplog) == ["query failed"]
        assert list(here.faults.active()) == [("query", "rules[0]")]


@pytest.mark.looptime
async def test_a_fault_ends_when_it_no_longer_occurs() -> None:
    failure = PrometheusError("query", "bad_data")
    async with serving(RULES, failure) as here, running(here.provider.run()):
        await refused(custom(here, POD))
        here.querier.answer = lambda _: UNREACHABLE
        await refused(custom(here, "/namespaces/web/pods/b/hits"))
        await asyncio.sleep(600)  # of the loop; the clock of the faults stands still
        assert set(here.faults.active()) == {("query", "rules[0]"), ("prometheus", "")}
        here.clock.advance(61.0)
        await asyncio.sleep(600)
        assert set(here.faults.active()) == {("prometheus", "")}  # over when it answers


INSERTING = """
rules:
- seriesQuery: s
  resources: {template: <<.Resource>>}
  metricsQuery: sum(<<.Series>>{pod="<<.LabelValuesByName.pod>>"}) by (<<.GroupBy>>)
"""


async def test_the_name_of_an_object_in_a_path_cannot_change_a_query() -> None:
    hostile = "/namespaces/web/pods/a%22%7D%20or%20secret%7Bnamespace=%22bank/hits"
    async with serving(INSERTING, vector(({"pod": "a"}, 1.0))) as here:
        await refused(custom(here, hostile), NotFoundError, ".*")
        assert here.querier.asked == []
        assert await custom(here, POD) == {"a": 1000}
        assert here.querier.asked == ['sum(hits{pod="a"}) by (pod)']


async def test_a_series_whose_name_is_a_query_is_not_served() -> None:
    hostile = 'label_replace(balance{namespace="bank"},"pod","a","","") or app'
    rules = RULES + "  name: {as: hits}\n"
    lists = {"s": (SeriesInfo(hostile, frozenset({"namespace", "pod"}), 1),)}
    async with world(rules, answer=lambda _: vector(({"pod": "a"}, 1.0)), lists=lists) as here:
        await refused(custom(here, POD), NotFoundError, ".*")
        assert here.querier.asked == []


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
