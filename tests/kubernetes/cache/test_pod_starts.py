"""The starts of pods as data: recorded lists of pods, with figures computed by hand, and what no list may do.

A line of a file in ``tests/data/ready-times`` is a PodList, as ``kubectl get pods -o json`` gives it.
`scripts/pod-starts` has stories. After `> ` something happens:

- `take NAME COUNT`: the first lists of a recording, by default all. `begin` is another cache.
- `list POD ...` and `put POD ...`: a POD is RECORDING/LINE/NUMBER, `*` for all of that line, and `{` begins
  what is changed of it, conditions by their type.
- `look` says the times of the pods ``app=web`` of the namespace shop, each part by its median and its 95th
  percentile, what is only counted, and the flags of pods that have never been Ready. `starting` says how
  many of these there are, and `told` how often the subscription was told.

`scripts/test tests/kubernetes/cache --update` writes what is known then.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.kubernetes.cache import pod_codec, pod_starts
from adapter.kubernetes.cache.pods import PodCache
from adapter.model.objects.label_selectors import parse_selector
from adapter.model.ready_times import Percentiles, ReadyLedger
from tests.kubernetes.apiclient import unconnected
from tests.kubernetes.cache.test_pods import Following
from tests.support.scripts import Scripts

JSON = dict[str, Any]
SCRIPTS = Scripts(Path(__file__).parent / "scripts" / "pod-starts")
DATA = Path(__file__).parents[2] / "data" / "ready-times"
WEB = parse_selector("app=web")
FLAGS = ("STARTING", "NO_NODE", "UNSCHEDULABLE", "PULLING", "PULL_FAILED", "CRASHING")


def recorded(name: str) -> list[list[JSON]]:
    lines = (DATA / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line)["items"] for line in lines]


def pods_of(words: Iterable[str]) -> list[JSON]:
    """Return the pods that a line of a script names, with what is changed of them."""
    names, brace, more = " ".join(words).partition(" {")
    found: list[JSON] = []
    for name in names.split():
        recording, line, number = name.split("/")
        pods = recorded(recording)[int(line)]
        found += pods if number == "*" else [pods[int(number)]]
    change = json.loads(brace + more or "{}")
    conditions = change.get("status", {}).pop("conditions", {})
    for pod in found:
        for part, fields in change.items():
            pod[part] |= fields
        for condition in pod["status"].get("conditions", ()):
            condition.update(conditions.get(condition["type"], {}))
    return found


class StartsScript:
    """A cache that is fed by hand, and the ledger of some of its pods."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.cache = PodCache(unconnected())
        self._ledger = ReadyLedger()
        self._told = 0
        self._followed = Following(self.cache, "shop", WEB, "shop/web", self._note, self._ledger.note)

    def _note(self) -> None:
        self._told += 1

    def take(self, name: str, count: str = "") -> None:
        for pods in recorded(name)[: int(count) if count else None]:
            self.list_pods(pods)

    def list(self, *words: str) -> None:
        self.list_pods(pods_of(words))

    def list_pods(self, pods: Sequence[JSON]) -> None:
        """Take a list: pods that are not in it are gone."""
        listed = {pod["metadata"]["name"] for pod in pods}
        for namespace, names in [*self.cache.listing("")]:
            for name in set(names) - listed:
                self.cache.remove(namespace, name)
        self.put_pods(pods)
        if not self.cache.synced:
            self.cache.synced = True
            for _ in self.cache.listed(""):
                pass

    def put(self, *words: str) -> None:
        self.put_pods(pods_of(words))

    def put_pods(self, pods: Sequence[JSON]) -> None:
        for pod in pods:
            self.cache.put(pod_codec.POD_CODEC.decode(msgspec.json.encode(pod)))
        self.cache.end_batch()

    def starting(self) -> str:
        return str(self._followed.starting)

    def told(self) -> str:
        return f"{self._told} times"

    def look(self) -> Sequence[str]:
        said = ["no starts"]
        if (times := self._ledger.times()) is not None:
            parts = {
                name: getattr(times, name)
                for name in ("total", "scheduled", "initialized", "started", "ready")
            }
            texts = [f"{name} {self._seconds(part)}" for name, part in parts.items()]
            waits = f"{times.unschedulable} unschedulable, {times.pull_failed} with a failed pull"
            said = [f"{times.count} starts: {', '.join(texts)}; {waits}"]
        left = {name: count for name, count in self._ledger.left_out()._asdict().items() if count}
        said += [f"left out: {', '.join(f'{count} {name}' for name, count in left.items())}"] * bool(left)
        for pod in self.cache.select("shop", WEB):
            flags = [name.lower() for name in FLAGS if pod.starting & getattr(pod_starts, name)]
            said += [f"{pod.name}: {' '.join(flags)}"] * bool(flags)
        return said

    @staticmethod
    def _seconds(part: Percentiles | None) -> str:
        return "unknown" if part is None else f"{part.p50:g} {part.p95:g}"


@pytest.mark.parametrize("title", SCRIPTS.titles)
async def test_script(title: str, pytestconfig: pytest.Config) -> None:
    await SCRIPTS.play(title, StartsScript(), pytestconfig)


@given(
    st.dictionaries(
        st.sampled_from(["conditions", "containerStatuses", "initContainerStatuses", "phase", "startTime"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=8),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["type", "status", "state", "waiting", "reason", "restartCount"]), inner
                )
            ),
            max_leaves=6,
        ),
    )
)
def test_no_status_of_containers_spoils_a_pod(status: JSON) -> None:
    """A pod is decoded whenever it was before its container statuses were read."""
    known = {key: status[key] for key in status if "Statuses" in key}
    watched = StartsScript()
    watched.list_pods([])
    watched.put_pods(
        [{"metadata": {"name": "p", "namespace": "shop", "labels": {"app": "web"}}, "status": known}]
    )

    assert [pod.name for pod in watched.cache.select("shop", WEB)] == ["p"]
