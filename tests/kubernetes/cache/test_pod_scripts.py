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
        self.said: list[str] = []
        self.told: list[str] = []
        self.followed: dict[str, Following] = {}
        self.begin("0")

    def begin(self, seconds: str) -> None:
        self.clock = FakeClock(JANUARY + float(seconds))
        self.watch = PodCache(unconnected(self.clock))
        self.watch.synced = True
        list(self.watch.listed(""))

    def put(self, text: str) -> None:
        words, brace, more = text.partition(" {")
        name, *described = words.split(" ")
        pod = document(name, described, brace.strip() + more)
        self.watch.put(pod_codec.POD_CODEC.decode(msgspec.json.encode(pod)))
        self.watch.end_batch()
        self.said += [f"told: {' '.join(sorted(self.told))}"] * bool(self.told)
        self.told.clear()

    def follow(self, text: str) -> None:
        name, selector = text.split(" ", 1)
        self.followed[name] = Following(
            self.watch, "default", parse_selector(selector), f"default/{name}", lambda: self.told.append(name)
        )

    def look(self, name: str) -> None:
        found = self.watch.find("default", name)
        assert found is not None
        requests = {
            container.name: {
                resource: str(quantity)
                for resource, quantity in (
                    (container.resources and container.resources.requests) or {}
                ).items()
            }
            for container in found.containers
        }
        facts = {
            "started": found.started,
            "cost": found.cost,
            "ports": found.spec.ports,
            "owners": found.port_owners,
            "requests": requests,
        }
        self.said.append(json.dumps(facts, sort_keys=True))

    def ready(self, namespace: str) -> None:
        web = Following(self.watch, "default", parse_selector("app=web"), "default/web")
        now = self.clock.monotonic()
        for whose, times in (("app=web", web.became_ready), ("all", self.watch.became_ready(namespace))):
            self.said.append(f"{whose}: {json.dumps({name: now - time for name, time in times.items()})}")
        web.close()

    def happen(self, verb: str, rest: str) -> None:
        match verb:
            case "at":
                self.begin(rest)
            case "put":
                self.put(rest)
            case "remove":
                self.watch.remove("default", rest)
            case "wait":
                self.clock.advance(float(rest))
            case "follow":
                self.follow(rest)
            case "close":
                self.followed.pop(rest).close()
            case "look":
                self.look(rest)
            case "who":
                self.said += [
                    f"{name}: {' '.join(each.selected_by or ())}" for name, each in self.followed.items()
                ]
            case _:
                self.ready(rest or "default")


@pytest.mark.parametrize("title", SCRIPTS.titles)
def test_script(title: str, pytestconfig: pytest.Config) -> None:
    script = PodScript()
    for line in SCRIPTS.lines(title):
        script.said.append(f"> {line}")
        verb, _, rest = line.partition(" ")
        script.happen(verb, rest)
    SCRIPTS.check(title, script.said, pytestconfig)
