from collections.abc import Sequence

import pytest

from adapter.model import steps
from adapter.model.metrics import GroupResource, SeriesInfo
from adapter.rules import registry
from adapter.rules.registry import Registry, SeriesMemory
from tests.support.world import compile_text

PODS = GroupResource("", "pods")


def info(name: str, *labels: str, count: int = 1) -> SeriesInfo:
    return SeriesInfo(name, frozenset(labels), count)


def remembered(*answers: Sequence[SeriesInfo]) -> SeriesMemory:
    """Return what is known after these answers about one selector."""
    memory: SeriesMemory = {}
    for answer in answers:
        memory = steps.run(registry.remembering(memory, "s", answer))
    return memory


TEMPLATE = "resources: {template: <<.Resource>>}"


# What is remembered between answers.

SEEN = (info("a", "pod"), info("b", "pod"))


def names(memory: SeriesMemory) -> list[str]:
    return [known.series.name for known in memory["s"]]


def labels(memory: SeriesMemory, name: str) -> set[str]:
    return next(set(known.series.labels) for known in memory["s"] if known.series.name == name)


@pytest.mark.parametrize(
    ("answers", "known"),
    [
        ([SEEN, SEEN[1:]], ["a", "b"]),
        ([SEEN, SEEN[1:], SEEN], ["a", "b"]),
        ([SEEN, []], ["a", "b"]),
        ([SEEN, [], []], []),
        ([SEEN, SEEN[1:], SEEN, SEEN[1:]], ["a", "b"]),
        ([SEEN, SEEN[:1]], ["b", "a"]),
    ],
    ids=[
        "a name that blinks once stays",
        "and comes back in its place",
        "one gap of all",
        "a name missing twice is forgotten",
        "missing twice means twice in a row",
        "a missing name never wins over one that is there",
    ],
)
def test_names_are_remembered(answers: list[Sequence[SeriesInfo]], known: list[str]) -> None:
    assert names(remembered(*answers)) == known


def test_a_label_that_blinks_once_stays() -> None:
    answers = [info("a", "pod", "service")], [info("a", "pod")], [info("a", "pod")]
    assert labels(remembered(*answers[:2]), "a") == {"pod", "service"}
    assert labels(remembered(*answers), "a") == {"pod"}


def test_an_answer_about_a_shorter_time_adds_and_takes_nothing() -> None:
    memory = remembered([info("a", "pod", "service", count=5), info("b", "pod")])
    for _ in range(3):
        memory = steps.run(
            registry.remembering(
                memory, "s", [info("a", "pod", "node", count=2), info("c", "pod")], whole=False
            )
        )
    assert names(memory) == ["b", "a", "c"]
    assert labels(memory, "a") == {"pod", "service", "node"}
    assert memory["s"][1].series.count == 5


def test_very_many_metrics_are_put_together_in_steps() -> None:
    names = [f"metric_{number * 7919 % 2500}" for number in range(2500)]
    text = f"rules: [{{seriesQuery: s, {TEMPLATE}}}]\nexternalRules: [{{seriesQuery: s, {TEMPLATE}}}]"
    rules = compile_text(text)
    answer = [info(name, "namespace", "pod") for name in names]
    memory = remembered(answer)
    assert sum(1 for _ in registry.remembering(memory, "s", answer)) == 4
    assert sum(1 for _ in registry.building(rules, memory, 1)) > 10
    built = steps.run(registry.building(rules, memory, 1))
    assert list(built.listed) == sorted(built.listed)
    assert [each.metric for each in built.listed if each.resource == PODS] == sorted(names)
    assert len(built.custom) == 5000
    assert list(built.external) == names
    assert sum(1 for _ in registry.same(built, steps.run(registry.building(rules, memory, 2)))) == 7


@pytest.mark.parametrize(
    "reserved", [frozenset(), frozenset({"left_out_0", "left_out_1"})], ids=["filtered", "reserved"]
)
@pytest.mark.parametrize("kind", ["rules", "externalRules"])
def test_names_of_which_no_metric_is_made_are_steps_too(kind: str, reserved: frozenset[str]) -> None:
    """A rule may ask for all there is, and filter it by name."""
    kept = "^left_out_[01]$" if reserved else "^none$"
    rules = compile_text(f"{kind}: [{{seriesQuery: s, seriesFilters: [{{is: '{kept}'}}], {TEMPLATE}}}]")
    memory = remembered([info(f"left_out_{number}", "namespace", "pod") for number in range(1000)])
    assert sum(1 for _ in registry.building(rules, memory, 1, reserved)) == 10
    built = steps.run(registry.building(rules, memory, 1, reserved))
    assert not built.custom
    assert not built.external


@pytest.mark.parametrize(
    ("lists", "same"),
    [
        ({"s": [info("a", "pod")], "e": [info("b")]}, True),
        ({"s": [info("a", "pod", count=2)], "e": [info("b")]}, False),
        ({"s": [info("a", "pod"), info("c", "pod")], "e": [info("b")]}, False),
        ({"s": [info("a", "pod")], "e": [info("c")]}, False),
        ({"s": [info("a", "pod")], "e": []}, False),
    ],
    ids=["equal", "another entry", "one more", "another name", "one less"],
)
def test_snapshots_are_compared(lists: dict[str, list[SeriesInfo]], same: bool) -> None:  # noqa: FBT001 - a case of the table
    text = f"rules: [{{seriesQuery: s, {TEMPLATE}}}]\nexternalRules: [{{seriesQuery: e, {TEMPLATE}}}]"
    rules = compile_text(text)

    def built(lists: dict[str, list[SeriesInfo]]) -> Registry:
        memory: SeriesMemory = {}
        for selector, answer in lists.items():
            memory = steps.run(registry.remembering(memory, selector, answer))
        return steps.run(registry.building(rules, memory, 1))

    one = built({"s": [info("a", "pod")], "e": [info("b")]})
    assert steps.run(registry.same(one, built(lists))) is same


def test_another_rule_of_usages_is_another_snapshot() -> None:
    one, other = (
        steps.run(
            registry.building(compile_text(f"resourceRules: {{cpu: {{scrape: {{port: {port}}}}}}}"), {}, 1)
        )
        for port in (1, 2)
    )
    assert not steps.run(registry.same(one, other))
