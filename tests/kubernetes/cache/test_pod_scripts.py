"""The cache of pods over time as data: `scripts/pods` has what a watch shows, and what is known then.

After `> ` something happens:

- `put POD` with labels, `-ready`, the time of day of its `start`, that of its condition as `since`, and JSON
  that is merged into the pod; `remove POD`. `at SECONDS` of the day the watch begins, `wait SECONDS`.
- `follow NAME SELECTOR`, `close NAME`. `look POD` says what is kept of a pod, `who` whose selectors find the
  same pods, and `ready NAMESPACE` how many seconds ago pods became ready.

Below it are the subscriptions that are told, and the answer. `scripts/test tests/kubernetes/cache --update`
writes what is known now.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adapter.kubernetes.cache import pod_codec
from adapter.kubernetes.cache.pods import PodCache
from adapter.model.objects.label_selectors import parse_selector
from tests.kubernetes.apiclient import unconnected
from tests.kubernetes.cache.test_pods import Following
from tests.support.clock import FakeClock
from tests.support.scripts import Scripts

SCRIPTS = Scripts(Path(__file__).parent / "scripts" / "pods")
JANUARY = 1_767_225_600.0
"""The first of January 2026."""


def merge(into: dict[str, Any], more: dict[str, Any]) -> None:
    for name, value in more.items():
        if isinstance(value, dict):
            merge(into.setdefault(name, {}), value)
        else:
            into[name] = value


def document(name: str, words: list[str], more: str) -> dict[str, Any]:
    """Return a pod as a line of a script describes it."""
    namespace, _, name = f"default/{name}".rpartition("/")
    labels = dict(word.split("=") for word in words if "=" in word)
    times = {at: labels.pop(at, at_first) for at, at_first in (("start", "00:00:10"), ("since", "00:00:20"))}
    since = f"2026-01-01T{times['since']}Z"
    status: dict[str, Any] = {
        "phase": "Running",
        "podIP": "10.1.2.3",
        "conditions": [{"type": "Ready", "status": str("-ready" not in words), "lastTransitionTime": since}],
    }
    if times["start"]:
        status["startTime"] = f"2026-01-01T{times['start']}Z"
    pod = {
        "metadata": {"name": name, "namespace": namespace.rpartition("/")[2], "labels": labels},
        "spec": {"containers": [{"name": "main"}]},
        "status": status,
    }
    merge(pod, json.loads(more or "{}"))
    return pod


class PodScript:
    """A watch that is fed by hand, its followers, and what is said of them."""

    def __init__(self) -> None:
        self._told: list[str] = []
        self._followed: dict[str, Following] = {}
        self.at("0")

    def at(self, seconds: str) -> None:
        self._clock = FakeClock(JANUARY + float(seconds))
        self._watch = PodCache(unconnected(self._clock))
        self._watch.synced = True
        list(self._watch.listed(""))

    def wait(self, seconds: str) -> None:
        self._clock.advance(float(seconds))

    def put(self, *words: str) -> list[str]:
        text, brace, more = " ".join(words).partition(" {")
        name, *described = text.split(" ")
        pod = document(name, described, brace.strip() + more)
        self._told.clear()
        self._watch.put(pod_codec.POD_CODEC.decode(msgspec.json.encode(pod)))
        self._watch.end_batch()
        return [f"told: {' '.join(sorted(self._told))}"] * bool(self._told)

    def remove(self, name: str) -> None:
        self._watch.remove("default", name)

    def follow(self, name: str, *words: str) -> None:
        selector = parse_selector(" ".join(words))
        self._followed[name] = Following(
            self._watch, "default", selector, f"default/{name}", lambda: self._told.append(name)
        )

    def close(self, name: str) -> None:
        self._followed.pop(name).close()

    def look(self, name: str) -> str:
        found = self._watch.find("default", name)
        assert found is not None
        asked = {each.name: (each.resources and each.resources.requests) or {} for each in found.containers}
        facts = {
            "started": found.started,
            "cost": found.cost,
            "ports": found.spec.ports,
            "owners": found.port_owners,
            "requests": {name: {of: str(each) for of, each in some.items()} for name, some in asked.items()},
        }
        return json.dumps(facts, sort_keys=True)

    def who(self) -> list[str]:
        return [f"{name}: {' '.join(each.selected_by or ())}" for name, each in self._followed.items()]

    def ready(self, namespace: str = "default") -> list[str]:
        web = Following(self._watch, "default", parse_selector("app=web"), "default/web")
        times = {"app=web": web.became_ready, "all": self._watch.became_ready(namespace)}
        web.close()
        now = self._clock.monotonic()
        return [
            f"{whose}: {json.dumps({name: now - time for name, time in since.items()})}"
            for whose, since in times.items()
        ]


@pytest.mark.parametrize("title", SCRIPTS.titles)
async def test_script(title: str, pytestconfig: pytest.Config) -> None:
    await SCRIPTS.play(title, PodScript(), pytestconfig)
