"""From samples to usages.

Which pods are left out is also shown through the real provider, in tests/provider/test_resource.py.
"""

import math
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.model.metrics import ContainerUsage, ObjectUsage, Sample, Usage
from adapter.rules import resource
from adapter.rules.query import INFINITE, NAN, OVERFLOW, Dropped
from adapter.rules.resource import INCOMPLETE, NEGATIVE, Absent, CpuAndMemory, UsageSamples

LABELS = {"app": "web"}


def samples(*given: tuple[str | None, float], time: float = 100.0) -> UsageSamples:
    """Return samples of containers (None: without the label) one second apart."""
    return UsageSamples(
        [
            Sample({} if container is None else {"c": container}, value, time + number)
            for number, (container, value) in enumerate(given)
        ],
        "c",
    )


def pod(cpu: UsageSamples, memory: UsageSamples) -> ObjectUsage | Absent | None:
    return resource.pod_usage("shop", "web-1", LABELS, cpu, memory)


def test_containers_are_sorted_and_added_up() -> None:
    found = pod(samples(("b", 0.5), ("a", 1.0015)), samples(("a", 10.0), ("b", 20.0), time=90.0))
    assert found == ObjectUsage(
        "shop",
        "web-1",
        LABELS,
        90.0,
        Usage(1501, 30_000),
        (ContainerUsage("a", Usage(1001, 10_000)), ContainerUsage("b", Usage(500, 20_000))),
    )


def test_a_missing_label_is_a_container_without_a_name_and_the_last_sample_counts() -> None:
    found = pod(samples((None, 1.0), ("", 2.0)), samples((None, 3.0)))
    assert isinstance(found, ObjectUsage)
    assert found.containers == (ContainerUsage("", Usage(2000, 3000)),)
    assert found.time == 100.0, "the earliest of all samples, the last one or not"


def test_a_rule_without_a_container_label_has_one_container() -> None:
    one = UsageSamples([Sample({"c": "a"}, 1.0, 0.0)], "")
    found = pod(one, one)
    assert isinstance(found, ObjectUsage)
    assert [each.name for each in found.containers] == [""]


@pytest.mark.parametrize(
    ("cpu", "memory", "text"),
    [
        ([("a", 1.0)], [("a", 1.0), ("b", 1.0)], "container 'b' has memory and no cpu"),
        ([("b", 1.0), ("c", 1.0)], [("c", 1.0)], "container 'b' has cpu and no memory"),
        ([("a", 1.0)], [("b", 1.0)], "container 'a' has cpu and no memory"),
    ],
)
def test_a_container_with_one_of_the_two(
    cpu: list[tuple[str | None, float]], memory: list[tuple[str | None, float]], text: str
) -> None:
    assert pod(samples(*cpu), samples(*memory)) == Absent(INCOMPLETE, text)


@pytest.mark.parametrize(
    ("value", "reason"),
    [(math.nan, NAN), (math.inf, INFINITE), (-math.inf, INFINITE), (-1e-9, NEGATIVE), (9.3e15, OVERFLOW)],
)
def test_an_unusable_value(value: float, reason: Dropped) -> None:
    text = f"container 'b' has an unusable value ({reason})"
    good = samples(("a", 1.0), ("b", 1.0))
    assert pod(samples(("a", 1.0), ("b", value)), good) == Absent(reason, text)
    assert pod(good, samples(("a", 1.0), ("b", value))) == Absent(reason, text)
    node = resource.node_usage("n", {}, samples((None, value)), good)
    assert node == Absent(reason, f"the node has an unusable value ({reason})")


@pytest.mark.parametrize(("cpu", "memory"), [([], [("a", 1.0)]), ([("a", 1.0)], []), ([], [])])
def test_nothing_to_say(cpu: list[tuple[str | None, float]], memory: list[tuple[str | None, float]]) -> None:
    assert pod(samples(*cpu), samples(*memory)) is None
    assert resource.node_usage("n", {}, samples(*cpu), samples(*memory)) is None


def test_a_node_uses_its_first_samples() -> None:
    found = resource.node_usage(
        "n", LABELS, samples((None, 1.0), (None, 9.0)), samples((None, 2.0), (None, 9.0), time=90.0)
    )
    assert found == ObjectUsage("", "n", LABELS, 90.0, Usage(1000, 2000))


@pytest.mark.parametrize(
    ("cpu", "memory", "tells"), [("a", "b", True), ("a", None, False), (None, "b", False)]
)
def test_ages_are_told_if_both_can_be_queried(cpu: str | None, memory: str | None, *, tells: bool) -> None:
    pair: Any = CpuAndMemory(*(SimpleNamespace(age=age) for age in (cpu, memory)))  # type: ignore[arg-type]
    assert pair.tells_ages is tells


values = st.floats(allow_nan=True, allow_infinity=True) | st.floats(0, 1e6)
parts = st.lists(st.tuples(st.sampled_from(["a", "b", None]), values), max_size=4)


@given(cpu=parts, memory=parts)
def test_a_pod_is_never_less_than_what_was_measured_of_it(
    cpu: list[tuple[str | None, float]], memory: list[tuple[str | None, float]]
) -> None:
    """The sum of what is listed is never less than the last good sample of each container."""
    found = pod(samples(*cpu), samples(*memory))
    if not isinstance(found, ObjectUsage):
        return
    seen = {name or "" for name, _ in (*cpu, *memory)}
    assert {each.name for each in found.containers} == seen
    for name in seen:
        usage = next(each.usage for each in found.containers if each.name == name)
        for of_kind, milli in ((cpu, usage.cpu), (memory, usage.memory)):
            last = [value for container, value in of_kind if (container or "") == name][-1]
            exact = Fraction(last) * 1000
            rounding = math.ulp(last * 1000) / 2  # of the product of floats
            assert exact - 1 - Fraction(rounding) < milli <= exact + Fraction(rounding)
