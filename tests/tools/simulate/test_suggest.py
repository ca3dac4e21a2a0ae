import json
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerBehavior, HPAScalingRules
from fastpath_forecast.simulate.policies import read_policy
from fastpath_tools.simulate import running, suggest
from fastpath_tools.simulate.inputs import SUGGESTED
from tests.support.simulation import HPA, PODS, autoscaler
from tests.support.verbs import Printed

Run = Callable[..., Printed]
PACES = {name: read_policy(name) for name in SUGGESTED}
CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
}
QUEUE = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": 30}},
}


def _targets(*metrics: Any, ratio: float = 1.0) -> list[str]:
    grid = suggest.grid(autoscaler(metrics or (PODS,)), PACES, ratio)
    return list(dict.fromkeys(str(each.target) for each in grid))


def test_the_grid_is_bounded_and_begins_with_what_is_given() -> None:
    grid = suggest.grid(autoscaler(), PACES, 1.0)
    assert len(grid) == len(set(grid)) == 3 * 4 * 3 * 2
    assert [each.policy.text for each in grid[:3]] == ["native", "boost", "fast"]
    assert {(each.target, each.behavior, each.window) for each in grid[:3]} == {(None, None, None)}
    assert {each.policy.text for each in grid} >= {"native:target=8", "fast:target=7"}


def test_targets_are_shares_of_the_given_one() -> None:
    assert _targets() == ["None", "9", "8", "7"]
    assert _targets(ratio=1.25) == ["None", "9", "8", "7", "11", "12500m"]
    assert _targets(CPU) == ["None", "45", "40", "35"]
    assert _targets(PODS, QUEUE) == ["None"]


def test_behaviors_change_one_thing_of_the_given_one() -> None:
    own = {"scaleDown": {"stabilizationWindowSeconds": 900, "selectPolicy": "Min"}}
    grid = suggest.grid(autoscaler(behavior=own), PACES, 1.0)
    windows = {each.window for each in grid}
    assert windows == {None, 60, 300}
    given_ = autoscaler(behavior=own).spec.behavior
    assert {each.behavior == given_ for each in grid if each.window is None and not each.is_unbounded} == {
        True
    }
    shorter = next(each.behavior for each in grid if each.window == 60 and each.is_unbounded)
    down = HPAScalingRules(stabilization_window_seconds=60, select_policy="Min")
    assert shorter == HorizontalPodAutoscalerBehavior(suggest.UNBOUNDED, down)


def test_the_paces_of_given_policies_apply() -> None:
    slow = read_policy("native:scrape=30s,target=3")
    grid = suggest.grid(autoscaler(), PACES | {"native": slow}, 1.0)
    natives = [each.policy for each in grid if each.policy.name == "native"]
    assert {policy.native for policy in natives} == {slow.native}
    assert natives[0].target is None


POINTS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=12)


@given(POINTS)
def test_no_point_beats_one_of_the_front(points: list[tuple[int, int]]) -> None:
    front = suggest.pareto(points, lambda point: point)
    assert front == sorted(set(front), key=lambda point: point[1])
    for point in front:
        assert not any(other != point and other[0] <= point[0] and other[1] <= point[1] for other in points)
    for point in points:
        assert any(other[0] <= point[0] and other[1] <= point[1] for other in front)


def test_of_equal_points_the_first_counts() -> None:
    assert suggest.pareto(["b", "a"], lambda _: (1.0, 1.0)) == ["b"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave a grid of a few points."""
    monkeypatch.setattr(suggest, "SHARES", (80, 100))
    monkeypatch.setattr(suggest, "WINDOWS", (60,))


@pytest.mark.usefixtures("small")
def test_suggestions_are_the_same_each_time_and_pay_off(simulated: Run) -> None:
    first, second = (simulated("--suggest", "-o", "json", "--phases", "3").out for _ in range(2))
    assert first == second
    document = json.loads(first)
    assert list(document) == ["load", "first", "tried", "front"]
    assert document["tried"] == 3 * 2 * 2 * 2
    costs = [(each["shortagePodSeconds"], each["podSeconds"]) for each in document["front"]]
    assert costs == sorted(costs, key=lambda cost: (-cost[0], cost[1]))
    assert document["first"]["policy"] == "native"
    assert costs[-1][0] < document["first"]["shortagePodSeconds"]
    assert all(set(each["spec"]) <= {"metrics", "behavior"} for each in document["front"])


@pytest.mark.usefixtures("small")
def test_what_is_suggested_can_be_simulated(simulated: Run, folder: Path) -> None:
    front = json.loads(simulated("--suggest", "-o", "json", "--phases", "2").out)["front"]
    best = front[-1]
    manifest = yaml.safe_load(HPA)
    manifest["spec"] |= best["spec"]
    capacity = 1.0
    if "metrics" in best["spec"]:
        target = best["spec"]["metrics"][0]["pods"]["target"]["averageValue"]
        capacity = 10 / float(target)
    (folder / "web.yaml").write_text(yaml.safe_dump(manifest))
    arguments = ("-o", "json", "--phases", "2", "--policy", best["mode"], "--capacity-ratio", str(capacity))
    (again,) = json.loads(simulated(*arguments).out)["policies"]
    for name in ("shortagePodSeconds", "podSeconds", "changes"):
        assert again[name] == pytest.approx(best[name])


@pytest.mark.usefixtures("small")
def test_text_and_markdown_name_the_best_within_bounds(simulated: Run) -> None:
    text = simulated("--suggest", "--phases", "1").out
    assert "24 autoscalers were tried" in text
    assert "\nMODE " in text
    assert "\nnative, given " in text
    assert "with no more pod seconds than native: " in text
    assert "with 110 % of its pod seconds: " in text
    markdown = simulated("--suggest", "-o", "markdown", "--phases", "1").out
    assert markdown.startswith("### Suggestions for `web`\n")
    assert "| mode | target |" in markdown
    change = yaml.safe_load(markdown.partition("```yaml\n")[2].partition("```")[0])
    assert set(change) == {"spec"}


@pytest.mark.usefixtures("small")
def test_nothing_is_suggested_where_nothing_is_missing(simulated: Run, folder: Path) -> None:
    (folder / "load.csv").write_text("seconds,load\n0,20\n600,20\n")
    text = simulated("--suggest").out
    assert "with no more pod seconds than native no autoscaler has less shortage" in text
    assert "spec:" not in text


class InterruptedPool(ThreadPoolExecutor):
    """A pool whose first result is Ctrl-C; the others are pending."""

    results: ClassVar[list[Future[Any]]] = []

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__(1)

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        result: Future[Any] = Future()
        if not self.results:
            result.set_exception(KeyboardInterrupt())
        self.results.append(result)
        return result


def test_ctrl_c_does_not_cancel_results(monkeypatch: pytest.MonkeyPatch, divide: Callable[[], None]) -> None:
    """A pool whose processes end fails its pending results, and prints a traceback for a cancelled one."""
    monkeypatch.setattr(running, "ProcessPoolExecutor", InterruptedPool)
    divide()
    scenario: Any = SimpleNamespace(loads={"web": SimpleNamespace(seconds=1)}, phases=1)
    variants: Any = ("first", "second", "third")
    with pytest.raises(KeyboardInterrupt):
        running.run_all(scenario, variants)
    assert [result.cancelled() for result in InterruptedPool.results] == [False] * 3
