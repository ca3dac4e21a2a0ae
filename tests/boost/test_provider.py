"""The floors as metrics: which requests have an answer, with which number, and never with an old 0."""

from typing import Any

import pytest

from adapter.boost.provider import FLOOR_METRIC, FloorProvider, ObservedHPA
from adapter.errors import BadRequestError, InternalError, NotFoundError, NotSyncedError
from adapter.model.autoscaling.boost import METRIC
from adapter.model.autoscaling.floor import Floor
from adapter.model.metrics import CustomQuestion, ExternalQuestion, SeriesInfo
from adapter.model.objects import label_selectors
from tests.boost.floors import FakeAutoscalers, FakeFloors, entry
from tests.support.clock import WALL, FakeClock
from tests.support.world import vector, world

PATH = "horizontalpodautoscalers.autoscaling"


class FloorBench:
    """A provider of floors, and a boosted HPA ``shop/web`` (uid 1, version 100, at most 50 replicas)."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.autoscalers = FakeAutoscalers({("shop", "web"): ObservedHPA("1", "100", 50, boosts=True)})
        self.floors = FakeFloors()
        self.provider = FloorProvider(self.autoscalers, self.floors, self.clock)  # type: ignore[arg-type]  # all it calls

    def change(self, uid: str = "1", version: str = "100", most: int = 50, *, boosts: bool = True) -> None:
        self.autoscalers.known["shop", "web"] = ObservedHPA(uid, version, most, boosts)

    def publish(self, *entries: Floor) -> None:
        self.floors.publish(*entries)
        self.floors.arrive()

    async def ask(self, selector: str = "autoscaler=web", namespace: str = "shop") -> int:
        """Return the external value; the custom one has to be the same if there is one to compare."""
        answer = await self.provider.external(external(selector, namespace))
        (item,) = answer.items
        assert item.milli % 1000 == 0
        assert not self.clock.monotonic() < answer.fresh_until, "a floor is never cached"
        if selector == "autoscaler=web":
            (value,) = (await self.provider.custom(custom("web", namespace))).items
            assert value.milli == item.milli
        return item.milli // 1000


def external(selector: str, namespace: str = "shop") -> ExternalQuestion:
    return ExternalQuestion(namespace, METRIC, label_selectors.parse_selector(selector))


def custom(
    name: str | None,
    namespace: str | None = "shop",
    resource: str = PATH,
    objects: str = "",
    selector: str = "",
) -> CustomQuestion:
    return CustomQuestion(
        resource,
        namespace,
        name,
        METRIC,
        label_selectors.parse_selector(objects),
        label_selectors.parse_selector(selector),
    )


@pytest.fixture
def case() -> FloorBench:
    return FloorBench()


# Which questions have an answer.


@pytest.mark.parametrize("selector", ["autoscaler=web", "autoscaler==web"])
async def test_one_equality_is_answered_with_one_item(case: FloorBench, selector: str) -> None:
    case.publish(entry(7))
    answer = await case.provider.external(external(selector))
    (item,) = answer.items
    assert (item.metric, item.labels, item.milli, item.time) == (METRIC, {"autoscaler": "web"}, 7000, WALL)


@pytest.mark.parametrize(
    "selector", ["", "autoscaler=", "!autoscaler", "autoscaler in (web)", "app=web", "autoscaler=web,app=web"]
)
async def test_any_other_selector_is_refused(case: FloorBench, selector: str) -> None:
    with pytest.raises(BadRequestError, match=r"labelSelector=autoscaler=NAME and no other selector$"):
        await case.provider.external(external(selector))
    assert case.floors.reads == 0


@pytest.mark.parametrize("resource", [PATH, "horizontalpodautoscalers"])
async def test_the_floor_describes_the_autoscaler(case: FloorBench, resource: str) -> None:
    case.publish(entry(7))
    (item,) = (await case.provider.custom(custom("web", resource=resource))).items
    described = item.described
    assert (described.kind, described.namespace, described.name) == ("HorizontalPodAutoscaler", "shop", "web")
    assert (described.api_version, item.metric, item.milli, item.time) == (
        "autoscaling/v2",
        METRIC,
        7000,
        WALL,
    )


@pytest.mark.parametrize(
    "question",
    [custom(None), custom(None, objects="app=web"), custom("web", selector="autoscaler=web")],
    ids=["all of them", "those that match", "a metric selector"],
)
async def test_a_custom_floor_is_of_one_name(case: FloorBench, question: CustomQuestion) -> None:
    with pytest.raises(BadRequestError, match=r"read for one HPA by its name, without a selector$"):
        await case.provider.custom(question)


@pytest.mark.parametrize(
    ("resource", "namespace"),
    [("pods", "shop"), ("horizontalpodautoscalers.example.com", "shop"), ("namespaces", None), (PATH, None)],
)
async def test_other_objects_have_no_floor(case: FloorBench, resource: str, namespace: str | None) -> None:
    with pytest.raises(NotFoundError, match=f"could not find the metric fastpath_replicas for {resource}$"):
        await case.provider.custom(custom("web", namespace, resource))


@pytest.mark.parametrize(("namespace", "name"), [("shop", "api"), ("other", "web")])
async def test_an_unknown_autoscaler_is_named(case: FloorBench, namespace: str, name: str) -> None:
    case.publish(entry(7))
    message = f'^{PATH} "{name}" not found in the namespace "{namespace}"$'
    with pytest.raises(NotFoundError, match=message):
        await case.provider.external(external(f"autoscaler={name}", namespace))
    with pytest.raises(NotFoundError, match=message):
        await case.provider.custom(custom(name, namespace))


# Which number.


async def test_a_floor_ends_by_itself(case: FloorBench) -> None:
    case.publish(entry(7, until=WALL + 30))
    case.clock.advance(29.5)
    assert await case.ask() == 7
    case.clock.advance(0.5)
    assert await case.ask() == 0


async def test_a_floor_of_another_hpa_does_not_count(case: FloorBench) -> None:
    case.publish(
        entry(7, uid="2", name="api"), entry(8, uid="3", namespace="other"), entry(9, uid="0", seen="50")
    )
    assert await case.ask() == 0, "not another autoscaler's, and not one's of the same name that is gone"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"boosts": False}, 40),
        ({"most": 10}, 40),
        ({"uid": "0", "version": "90"}, 40),
        ({"version": "99", "boosts": False}, 40),
        ({"version": "101", "boosts": False}, 0),
        ({"version": "102", "most": 10}, 10),
        ({"version": "1000", "boosts": False}, 0),
        ({"uid": "4", "version": "200"}, 0),
    ],
    ids=str,
)
async def test_a_floor_counts_where_the_cache_is_behind(
    case: FloorBench, change: dict[str, Any], expected: int
) -> None:
    """The floor was published by an owner that had seen version 101."""
    case.publish(entry(40, seen="101"))
    case.change(**change)
    assert await case.ask() == expected


async def test_one_that_cannot_be_compared_counts_unless_it_is_the_same(case: FloorBench) -> None:
    case.change(version="abc", boosts=False)
    case.publish(entry(7, seen="abc"))
    assert await case.ask() == 0
    case.publish(entry(7, seen="abd"))
    assert await case.ask() == 7
    case.publish(entry(7, seen=""))
    assert await case.ask() == 0


# No old 0.


async def test_a_higher_floor_that_has_not_come_yet_is_found(case: FloorBench) -> None:
    case.publish(entry(5))
    case.floors.publish(entry(7))
    assert await case.ask() == 7


async def test_while_the_clock_is_in_doubt_no_floor_is_answered_lower(case: FloorBench) -> None:
    """By a clock that is ahead it has ended; while its metric fails an HPA does not scale down."""
    case.publish(entry(8))
    case.provider.doubt = lambda: "the clock differs"
    case.clock.set_wall(WALL + 3600)
    with pytest.raises(InternalError, match="clock may differ"):
        await case.ask()


async def test_a_0_that_cannot_be_confirmed_is_an_error(case: FloorBench) -> None:
    case.floors.unread = NotSyncedError("10.0.0.1 refuses")
    with pytest.raises(InternalError, match=r"the published floors cannot be read now$"):
        await case.ask()
    case.publish(entry(7))
    assert await case.ask() == 7, "what is known to be a floor needs no read"


async def test_autoscalers_that_are_not_listed_yet_are_an_error(case: FloorBench) -> None:
    case.publish(entry(7))
    case.autoscalers.error = NotSyncedError("10.0.0.1 refuses")
    with pytest.raises(InternalError, match=r"the HPAs are not listed yet$"):
        await case.ask()


RULES = """
rules:
- seriesQuery: s
  resources: {overrides: {namespace: {resource: namespace}, hpa: {resource: horizontalpodautoscalers}}}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
externalRules:
- seriesQuery: s
  resources: {namespaced: false}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>})
"""
SERIES = {
    "s": (
        SeriesInfo("a", frozenset({"namespace", "hpa"}), 1),
        SeriesInfo("hits", frozenset({"namespace", "hpa"}), 1),
    )
}


async def test_the_floors_stand_beside_the_metrics_of_rules(case: FloorBench) -> None:
    case.publish(entry(7))
    values = vector(({"hpa": "web"}, 1.0))
    async with world(RULES, answer=lambda _: values, lists=SERIES) as here:
        here.provider.register(FLOOR_METRIC, case.provider)
        (floor,) = (await here.provider.external(external("autoscaler=web"))).items
        (same,) = (await here.provider.custom(custom("web"))).items
        assert (floor.milli, same.milli) == (7000, 7000)
        assert here.querier.asked == []
        (queue,) = (await here.provider.external(external("a=b")._replace(metric="hits"))).items
        (hits,) = (await here.provider.custom(custom("web")._replace(metric="hits"))).items
        assert (queue.milli, hits.milli) == (1000, 1000)
        assert here.querier.asked == ['sum(hits{a="b"})', 'sum(hits{namespace="shop",hpa="web"}) by (hpa)']
