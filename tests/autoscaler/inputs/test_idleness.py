"""The values by which pods are ranked: means of the last samples, and none where the metric has none."""

import pytest

from adapter.autoscaler.decide.observation import PodsReading, Unavailable, Ways
from adapter.autoscaler.inputs.idleness import Idleness


@pytest.mark.parametrize(
    ("samples", "value"),
    [
        pytest.param([(0, 90), (1, 60), (2, 30), (3, 0)], 30, id="the last three count"),
        pytest.param([(1, 90), (1, 90), (1, 90), (2, 30)], 60, id="a sample counts once"),
        # such as where another pod is not scraped, whose sample in Prometheus stays for minutes
        pytest.param([(1, 90), (1, 60), (1, 30), (1, 0)], 30, id="new values count while the oldest stays"),
    ],
)
def test_a_value_is_the_mean_of_the_last_three_samples(samples: list[tuple[int, int]], value: int) -> None:
    idleness = Idleness()
    for sampled, shown in samples:
        idleness.note(PodsReading({"a": shown, "late": 10}), sampled)
    assert idleness.values == {"a": value, "late": 10}


def test_without_a_value_nothing_is_ranked_and_nothing_is_remembered() -> None:
    idleness = Idleness()
    idleness.note(PodsReading({"a": 90}), 1)
    idleness.note(Unavailable("NoMetrics", "none"), 1)
    assert idleness.values == {}
    idleness.note(PodsReading({"a": 10}), 1)
    assert idleness.values == {"a": 10}


def test_all_values_of_a_reading_count_but_for_those_out_of_date() -> None:
    idleness = Idleness()
    faster = PodsReading({"a": 1}, overdue="late", overdue_pods=("b",))
    usual = PodsReading({"a": 9, "b": 9}, left_out={"c": 5})
    idleness.note(Ways((usual, faster)), 1)
    assert idleness.values == {"a": 1, "b": 9, "c": 5}
    idleness = Idleness()
    idleness.note(PodsReading({"a": 9, "b": 9}, overdue="late", overdue_pods=("b",)), 1)
    assert idleness.values == {"a": 9}
    idleness.note(PodsReading({"a": 9, "b": 9}, overdue="late"), 2)
    assert idleness.values == {}


def test_samples_that_were_out_of_date_count_once_they_are_not() -> None:
    idleness = Idleness()
    idleness.note(PodsReading({"a": 9}), 1)
    idleness.note(PodsReading({"a": 3}, overdue="fewer pods are known"), 2)
    assert idleness.values == {}
    idleness.note(PodsReading({"a": 3}), 2)
    assert idleness.values == {"a": 6}
    idleness.note(PodsReading({"a": 3}, overdue="fewer pods are known"), 2)
    assert idleness.values == {}
    idleness.note(PodsReading({"a": 3}), 2)
    assert idleness.values == {"a": 6}
