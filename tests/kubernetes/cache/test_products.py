"""No step costs the product of the pods and the autoscalers of a tenant, who chooses both numbers.

Counted are the selectors that are matched with the labels of a pod, in the longest step.
"""

from collections.abc import Callable, Iterator

import pytest

from adapter.kubernetes.cache import pod_selections
from adapter.kubernetes.cache.pod_selections import MOST_NAMED
from adapter.kubernetes.cache.pods import PodCache
from adapter.model.objects.label_selectors import LabelSelector, parse_selector
from tests.kubernetes.cache.test_pods import Following, alone, pod, put
from tests.support.clock import FakeClock

NAMESPACE = "default"
LARGE, AT_ONCE = 60, 200


class Matches:
    """Counts what is matched in each step."""

    def __init__(self) -> None:
        self.now = self.longest = 0

    def end(self) -> None:
        self.longest, self.now = max(self.longest, self.now), 0


@pytest.fixture
def matches(monkeypatch: pytest.MonkeyPatch) -> Iterator[Matches]:
    counted = Matches()
    plain = LabelSelector.matches

    def match(self: LabelSelector, labels: dict[str, str]) -> bool:
        counted.now += 1
        return plain(self, labels)

    monkeypatch.setattr(pod_selections, "MOST_MATCHED", AT_ONCE)
    monkeypatch.setattr(LabelSelector, "matches", match)
    yield counted
    monkeypatch.undo()


SHAPES: dict[str, Callable[[int], str]] = {
    "each matches all pods": lambda number: f"app,!z{number}",
    "each matches all pods but one": lambda number: f"app,z!={number}",
    "one matches all pods, and the others none": lambda number: f"app,z{number}" if number else "app",
    "each matches its own": lambda number: f"app,z in ({number})",
}


class Tenant:
    """Autoscalers with selectors of their own, and pods with labels of their own."""

    def __init__(self, count: int, shape: str, matches: Matches) -> None:
        self.matches = matches
        self.cache: PodCache = alone(FakeClock())
        self.count = count
        self.selectors = [parse_selector(SHAPES[shape](number)) for number in range(count)]
        self.following: list[Following] = []
        for number in range(count):
            self.put(number)
        for number in range(count):
            self.follow(number)

    def put(self, number: int, more: str = "") -> None:
        put(self.cache, pod(f"web-{number}", app="web", z=str(number), more=more))
        self.matches.end()

    def follow(self, number: int) -> None:
        name = f"{NAMESPACE}/web-{number:05}"
        self.following.append(Following(self.cache, NAMESPACE, self.selectors[number], name))
        self.matches.end()

    def decide(self) -> list[tuple[str, ...]]:
        """Ask for each autoscaler which others follow its pods, until that is known of all."""
        found: dict[int, tuple[str, ...]] = {}
        for _ in range(self.count + 1):
            for place, following in enumerate(self.following):
                if place not in found:
                    names = following.selected_by
                    self.matches.end()
                    if names is not None:
                        found[place] = names
            if len(found) == self.count:
                return [found[place] for place in range(self.count)]
        raise AssertionError("it is never known")

    def live(self) -> None:
        """Decide, change the labels of pods, let autoscalers come and go, and decide after each."""
        self.decide()
        for number in (0, self.count // 2):
            self.put(number, "x")
            self.following.pop(0).close()
            self.matches.end()
            self.follow(number)
            self.decide()


@pytest.mark.parametrize("shape", SHAPES)
def test_twice_as_many_of_both_make_no_step_four_times_as_long(shape: str, matches: Matches) -> None:
    longest = []
    for count in (LARGE, 2 * LARGE):
        tenant = Tenant(count, shape, matches)
        matches.longest = 0
        tenant.live()
        longest.append(matches.longest)
        assert matches.longest <= AT_ONCE + 4 * count
    assert longest[1] < 3 * longest[0]


def test_of_equal_selectors_the_others_are_counted(matches: Matches) -> None:
    cache = alone(FakeClock())
    put(cache, pod("web-0", app="web"))
    followed = [
        Following(cache, NAMESPACE, parse_selector("app=web"), f"{NAMESPACE}/{number:05}")
        for number in range(1000)
    ]
    names = followed[-1].selected_by
    assert names is not None
    assert names[:2] == ("default/00000", "default/00001")
    assert names[MOST_NAMED:] == ("and at least 990 more",)
    for following in followed[2:]:
        following.close()
    assert followed[0].selected_by == ("default/00000", "default/00001")
