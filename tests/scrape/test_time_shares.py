"""Time that is divided between namespaces and pods."""

from hypothesis import given
from hypothesis import strategies as st

from adapter.scrape.schedule import LONGEST_STRETCH, TIME_SHARE, TimeShares

COSTS = st.lists(
    st.tuples(st.sampled_from("abc"), st.floats(0, 1), st.sampled_from([0.1, 1.0, 30.0])), max_size=30
)


def shares(*costs: tuple[str, str, float]) -> TimeShares[str]:
    made: TimeShares[str] = TimeShares()
    for namespace, pod, seconds in costs:
        made.note(namespace, pod, seconds)
    return made


def test_as_long_as_all_fits_no_pod_is_scraped_less_often() -> None:
    assert shares(("a", "costly", 0.2), ("b", "cheap", 0.05)).stretches() == {}


def test_only_the_costly_pods_of_a_costly_namespace_are_scraped_less_often() -> None:
    found = shares(
        ("good", "g1", 0.01),
        ("good", "g2", 0.01),
        ("hostile", "h1", 2.0),
        ("hostile", "h2", 1.0),
        ("hostile", "cheap", 0.001),
    ).stretches()

    assert found.keys() == {"hostile"}
    assert found["hostile"].keys() == {"h1", "h2"}
    level = (TIME_SHARE - 0.02 - 0.001) / 2
    assert 2.0 / level <= found["hostile"]["h1"] <= 1.25 * 2.0 / level
    assert found["hostile"]["h1"] > found["hostile"]["h2"]


def test_the_longest_stretch() -> None:
    assert shares(("hostile", "h", 1000.0)).stretches() == {"hostile": {"h": LONGEST_STRETCH}}


def test_a_pod_that_costs_less_again_is_scraped_as_before() -> None:
    made = shares(("a", "h", 1.0))
    assert made.stretches()
    for _ in range(20):
        made.note("a", "h", 0.001)
    assert made.stretches() == {}


def test_a_pod_that_is_gone_demands_nothing() -> None:
    made = shares(("a", "h", 1.0), ("b", "g", 0.2))
    made.drop("a", "h")
    made.drop("a", "h")

    assert made.stretches() == {}
    assert made.demands.keys() == {"b"}


@given(COSTS)
def test_stretched_demands_fit_the_share(costs: list[tuple[str, float, float]]) -> None:
    made: TimeShares[int] = TimeShares()
    for number, (namespace, seconds, interval) in enumerate(costs):
        made.note(namespace, number, seconds / interval)
    found = made.stretches()
    total = 0.0
    for number, (namespace, seconds, interval) in enumerate(costs):
        stretch = found.get(namespace, {}).get(number, 1.0)
        assert 1 <= stretch <= LONGEST_STRETCH
        if stretch < LONGEST_STRETCH:
            total += seconds / interval / stretch

    assert total <= TIME_SHARE * (1 + 1e-9)
