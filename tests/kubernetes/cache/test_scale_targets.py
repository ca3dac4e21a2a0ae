"""Scale targets from caches.

What a GET of the scale would say, without one, and what stands in where watching is not possible.
`scripts/targets` has stories of subscriptions on a cluster. After `> ` something happens:

- `deployment NAME REPLICAS MANAGER`, `widgets PATHS` of their definition, `widget SPEC STATUS MANAGER`,
  `scale`, `patch` and `delete`; `forbid`, `allow`, `fail`, `down` and `up` are the API server.
- `follow NAME KIND NAME VERSION`, `close NAME`; `wait` moves the clock, `pause` lets real time pass.
- `found` and `refused` wait for a verdict, `until NAME REPLICAS STATUS MANAGER` for these, `current` for the
  object of now, `told` for calls of a subscription, `watches`, `readers`, `problems` and `paused SECONDS` for
  their number. `now`, `asked` and `longest-pause-but SECONDS` say what is so at once.

`scripts/test tests/kubernetes/cache --update` writes what is known then.
"""

import asyncio
import json
import shlex
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from adapter.autoscaler.decide import decision
from adapter.kubernetes.cache import scale_codec, scale_targets
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.cache.scale_codec import ObservedScale, ReplicaPaths
from adapter.kubernetes.client import KubernetesClient, ResponseBody
from adapter.kubernetes.codec import ObjectCodec
from adapter.kubernetes.discovery import CatalogueSource
from adapter.model.autoscaling.hpa import CrossVersionObjectReference
from adapter.model.objects.label_selectors import LabelSelector
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from fastpath_sandbox.apiserver import kinds
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.workloads import deployment
from tests.kubernetes.apiclient import QUICK, connected, unconnected
from tests.support.answers import answers
from tests.support.clock import ShiftedClock
from tests.support.scripts import Scripts
from tests.support.waiting import Pauses, running, until

JSON = dict[str, Any]
SCRIPTS = Scripts(Path(__file__).parent / "scripts" / "targets")
WEB = CrossVersionObjectReference("Deployment", "web", "apps/v1")
WIDGET = CrossVersionObjectReference("Widget", "w", "example.com/v1")


class WatchedTargets:
    """ScaleTargets on a cluster, subscriptions by their names, and what is said of them."""

    def __init__(self, cluster: Cluster, client: KubernetesClient) -> None:
        self.cluster = cluster
        self.client = client
        self.clock = ShiftedClock()
        self.pauses = Pauses(longest=0.05)
        monitoring = Monitoring()
        self.faults = ProblemLog(monitoring, self.clock)
        around = ReflectorContext(
            client, self.clock, monitoring, self.faults, lambda: 0.5, self.pauses, QUICK
        )
        self.catalogue = CatalogueSource(client, self.clock, self.faults)
        self.targets = scale_targets.ScaleTargets(around, self.catalogue)
        self._followed: dict[str, scale_targets.TargetSubscription] = {}
        self._told: Counter[str] = Counter()

    def follow(self, name: str, reference: CrossVersionObjectReference) -> None:
        self._followed[name] = self.targets.follow("default", reference, lambda: self._told.update([name]))

    def find(self, name: str) -> scale_targets.ScaleTarget | scale_targets.Unfound:
        return self._followed[name].find()

    def target(self, name: str) -> scale_targets.ScaleTarget:
        found = self.find(name)
        assert isinstance(found, scale_targets.ScaleTarget), found
        return found

    async def until_found(self, name: str) -> scale_targets.ScaleTarget:
        await until(lambda: isinstance(self.find(name), scale_targets.ScaleTarget))
        return self.target(name)

    async def until_refused(self, name: str) -> str:
        await until(lambda: getattr(self.find(name), "known", False))
        found = self.find(name)
        assert isinstance(found, scale_targets.Unfound)
        return found.message

    # -- as data -------------------------------------------------------------------------------------------

    async def happen(self, verb: str, *words: str) -> str:
        """Do what a line of a script says; return what is known then."""
        cluster = self.cluster
        acts: dict[str, Callable[..., object]] = {
            "deployment": lambda name, count, by: cluster.create(
                deployment(name, replicas=int(count)), manager=by
            ),
            "widgets": lambda *paths: put_widgets(cluster, *paths),
            "widget": lambda spec, status, by: cluster.create(
                widget(json.loads(spec), json.loads(status)), manager=by
            ),
            "scale": lambda plural, name, count, by: cluster.scale(plural, name, int(count), manager=by),
            "patch": lambda plural, name, change: cluster.patch(plural, name, json.loads(change)),
            "delete": cluster.delete,
            "forbid": cluster.forbid,
            "allow": cluster.allow,
            "fail": lambda code, verb, resource, times: cluster.fail(int(code), verb, resource, int(times)),
            "down": cluster.down,
            "up": cluster.up,
            "follow": lambda name, *words: self.follow(name, CrossVersionObjectReference(*words)),
            "close": lambda name: self._followed[name].close(),
            "wait": lambda seconds: self.clock.advance(float(seconds)),
            "pause": lambda seconds: asyncio.sleep(float(seconds)),
        }
        waits: dict[str, Callable[..., object]] = {
            "until": lambda name, count, status, *by: (
                self.find(name)[:2] == (int(count), int(status)) and by in {(), (self.target(name).manager,)}
            ),
            "current": lambda name, plural: (
                self.target(name).resource_version
                == cluster.get(plural, "web")["metadata"]["resourceVersion"]
            ),
            "told": lambda name, count: self._told[name] == int(count),
            "watches": lambda count: cluster.open_watches == int(count),
            "problems": lambda count: len(self.faults.active()) == int(count),
            "readers": lambda count: readers() == int(count),
            "paused": lambda seconds, count: self.pauses.taken.count(float(seconds)) >= int(count),
            "found": lambda name: isinstance(self.find(name), scale_targets.ScaleTarget),
            "refused": lambda name: getattr(self.find(name), "known", False),
        }
        if verb in acts:
            done = acts[verb](*words)
            if isinstance(done, Awaitable):
                await done
        if verb in waits:
            await until(partial(waits[verb], *words))
        return self.look(verb, *words)

    def look(self, verb: str, *words: str) -> str:
        match verb:
            case "problems":
                return " ".join(sorted(fault for fault, _ in self.faults.active()))
            case "longest-pause-but":
                return f"{max(set(self.pauses.taken) - {float(words[0])}):g} s"
            case "asked":
                told = Counter(each for each in asked(self.cluster) if each.strip())
                return ", ".join(
                    f"{each} ({times})" if "list" in each else each for each, times in sorted(told.items())
                )
            case "found" | "refused" | "now" | "until":
                return self.text(self.find(words[0]))
        return ""

    @staticmethod
    def text(found: scale_targets.ScaleTarget | scale_targets.Unfound) -> str:
        if isinstance(found, scale_targets.Unfound):
            return found.message
        counts = f"{found.replicas} replicas, {found.status_replicas} in the status"
        return ", ".join(filter(None, (counts, found.selector, found.manager, found.path)))


def readers() -> int:
    """Return how many scales are read one by one."""
    return sum("scale of" in task.get_name() for task in asyncio.all_tasks())


@pytest.fixture
async def watched(cluster: Cluster) -> AsyncIterator[WatchedTargets]:
    async with connected(cluster.url) as client:
        watched = WatchedTargets(cluster, client)
        async with running(watched.targets.run()):
            yield watched


def asked(cluster: Cluster) -> list[str]:
    return [f"{request.verb} {request.resource}" for request in cluster.requests]


async def read_scale(cluster: Cluster, target: scale_targets.ScaleTarget) -> JSON:
    async with aiohttp.ClientSession(cluster.url) as http, http.get(target.path) as response:
        scale: JSON = await response.json()
        return scale


def put_widgets(cluster: Cluster, *paths: str) -> None:
    places = kinds.ScalePaths(*paths) if paths else kinds.ScalePaths(selector=".status.selector")
    cluster.create(kinds.definition("example.com", "v1", "widgets", "Widget", scale=places))


def widget(spec: JSON, status: JSON | None = None) -> JSON:
    body = {"kind": "Widget", "apiVersion": "example.com/v1", "metadata": {"name": "w"}, "spec": spec}
    return body | ({"status": status} if status is not None else {})


@pytest.mark.parametrize("title", SCRIPTS.titles)
async def test_script(title: str, watched: WatchedTargets, pytestconfig: pytest.Config) -> None:
    said: list[str] = []
    for line in SCRIPTS.lines(title):
        answer = await watched.happen(*shlex.split(line))
        said += [f"> {line}", *([answer] if answer else [])]
    SCRIPTS.check(title, said, pytestconfig)


# -- kinds that everybody has --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("api_version", "kind", "plural", "selector"),
    answers("kubernetes/scale_targets", "what is kept is what the scale says"),
)
async def test_what_is_kept_is_what_the_scale_says(
    api_version: str, kind: str, plural: str, selector: JSON, cluster: Cluster, watched: WatchedTargets
) -> None:
    body = {"kind": kind, "apiVersion": api_version, "metadata": {"name": "web"}}
    spec = {"replicas": 3, "selector": selector}
    cluster.create(body | {"spec": spec, "status": {"replicas": 2}}, manager="helm")
    watched.follow("web", CrossVersionObjectReference(kind, "web", api_version))
    found = await watched.until_found("web")
    scale = await read_scale(cluster, found)
    version, uid = scale["metadata"]["resourceVersion"], scale["metadata"]["uid"]
    assert found == (3, 2, scale["status"]["selector"], version, "helm", found.path, uid, found.since)
    await until(lambda: cluster.open_watches)
    assert sorted(asked(cluster)) == [f"get {plural}/scale", f"list {plural}", f"watch {plural}"]


# -- custom kinds --------------------------------------------------------------------------------------------


@pytest.mark.looptime
async def test_scales_that_are_read_share_a_rate_and_namespaces_take_turns() -> None:
    turns = scale_targets.PollTurns(unconnected())
    read: list[str] = []

    async def poll(namespace: str, name: str) -> None:
        await turns.wait((namespace, name))
        read.append(namespace)

    polls = [asyncio.create_task(poll("greedy", f"w{number}")) for number in range(1500)]
    async with running(turns.run()):
        await asyncio.sleep(10.05)
        assert read == ["greedy"] * 101
        polls.append(asyncio.create_task(poll("victim", "w")))
        await asyncio.sleep(0.25)
        assert "victim" in read
    for task in polls:
        task.cancel()
    await asyncio.gather(*polls, return_exceptions=True)


async def test_a_scale_that_is_refused_is_read_less_often(cluster: Cluster, watched: WatchedTargets) -> None:
    cluster.create(kinds.definition("example.com", "v1", "widgets", "Widget"))  # it has no scale
    watched.follow("w", WIDGET)
    await watched.until_refused("w")
    pauses = [5 * 2**doubled for doubled in range(6)] + [scale_targets.REFUSED_SECONDS] * 2
    # with half of a random number a pause is as long as its interval
    await until(lambda: [pause for pause in watched.pauses.taken if pause in pauses][: len(pauses)] == pauses)


@pytest.mark.parametrize(("written", "paths"), answers("kubernetes/scale_targets", "paths of definitions"))
def test_paths_of_definitions(written: list[str], paths: list[list[str]] | None) -> None:
    found = scale_codec.parse_paths(*written)
    assert found == (None if paths is None else ReplicaPaths(*map(tuple, paths)))


async def test_a_kind_that_is_served_in_another_version(cluster: Cluster, watched: WatchedTargets) -> None:
    put_widgets(cluster)
    made = cluster.get("crd", "widgets.example.com")
    cluster.create(widget({"replicas": 2}))
    watched.follow("w", WIDGET)
    assert (await watched.until_found("w")).path.startswith("/apis/example.com/v1/")
    made["spec"]["versions"][0]["name"] = "v2"
    cluster.update(made)
    cluster.cut_watches()
    await watched.catalogue.refresh(force=True)
    await until(lambda: isinstance(watched.find("w"), scale_targets.ScaleTarget))
    assert watched.target("w").path.startswith("/apis/example.com/v2/")


# -- references that lead nowhere ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name", "version", "message"), answers("kubernetes/scale_targets", "errors in upstreams words")
)
async def test_errors_in_upstreams_words(
    kind: str, name: str, version: str, message: str, cluster: Cluster, watched: WatchedTargets
) -> None:
    cluster.create(deployment("web"))
    watched.follow("x", CrossVersionObjectReference(kind, name, version))
    assert await watched.until_refused("x") == message


# -- what goes wrong -----------------------------------------------------------------------------------------


async def test_a_target_that_cannot_be_read_has_its_scale_read(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, watched: WatchedTargets
) -> None:
    broken = {"bad"}
    form = scale_codec.built_in()

    def keep(raw: msgspec.Raw) -> ObservedScale:
        kept = form.decode(raw)
        if kept.name in broken:
            raise ZeroDivisionError
        return kept

    monkeypatch.setitem(scale_targets.BUILT_IN, ("apps", "deployments"), ObjectCodec(msgspec.Raw, keep))
    bad = CrossVersionObjectReference("Deployment", "bad", "apps/v1")
    cluster.create(deployment("bad", replicas=2))
    cluster.create(deployment("web", replicas=3))
    watched.follow("web", WEB)
    watched.follow("bad", bad)
    assert (await watched.until_found("web")).replicas == 3
    assert (await watched.until_found("bad")).replicas == 2
    assert list(watched.faults.active()) == [("object", "deployments.apps (scaler) default/bad")]
    cluster.scale("deployments", "web", 4, manager="me")
    await until(lambda: watched.target("web").replicas == 4)
    broken.clear()
    cluster.scale("deployments", "bad", 5, manager="me")
    await until(lambda: watched.target("bad").replicas == 5)
    assert not watched.faults.active()
    await until(lambda: not readers())


# -- the writer of the count --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("managed", "manager", "since"), answers("kubernetes/scale_targets", "writers of the count")
)
def test_who_wrote_the_count(managed: list[JSON] | None, manager: str, since: str) -> None:
    named = {"name": "web", "namespace": "x", "managedFields": managed}
    found = scale_codec.built_in().decode(json.dumps({"metadata": named, "spec": {"replicas": 1}}).encode())
    assert found == scale_codec.ObservedScale("x", "web", 1, 0, "", "", manager, since=since)


def test_what_is_no_count_is_none() -> None:
    form = scale_codec.custom(ReplicaPaths(("spec", "n"), ("status", "n"), ("status", "s")))
    document = {"metadata": {"name": "w"}, "spec": {"n": "3"}, "status": {"n": True, "s": 7}}
    assert form.decode(json.dumps(document).encode()) == scale_codec.ObservedScale(
        "", "w", None, 0, "", "", ""
    )


async def test_answers_that_are_none(cluster: Cluster, watched: WatchedTargets) -> None:
    async def garbage(path: str) -> ResponseBody:
        return ResponseBody("application/json", b"[]")

    put_widgets(cluster)
    await watched.catalogue.refresh()
    watched.client.get = garbage  # type: ignore[method-assign, assignment]  # a proxy's idea of an answer
    watched.follow("w", WIDGET)
    await until(lambda: "is not a Scale object" in getattr(watched.find("w"), "message", ""))
    assert not getattr(watched.find("w"), "known", True)


# --- large selectors ----------------------------------------------------------------------------------------


def _deployment(labels: int, version: int = 0, *, plain: bool = False) -> bytes:
    named = {f"label-{number:05d}": "x" for number in range(labels)}
    selector: JSON = named if plain else {"matchLabels": named}
    spec = {"replicas": version, "selector": selector}
    return msgspec.json.encode({"metadata": {"name": "web", "namespace": "default"}, "spec": spec})


@pytest.mark.parametrize("plain", [False, True], ids=["Deployment", "ReplicationController"])
def test_the_text_of_a_selector_is_made_once_for_all_events(
    monkeypatch: pytest.MonkeyPatch, *, plain: bool
) -> None:
    made: list[str] = []
    text_of = LabelSelector.__str__

    def render(selector: LabelSelector) -> str:
        made.append(text_of(selector))
        return made[-1]

    monkeypatch.setattr(LabelSelector, "__str__", render)
    form = scale_codec.built_in(plain_selector=plain)
    seen = [form.decode(_deployment(77, version, plain=plain)) for version in range(5)]

    assert [each.replicas for each in seen] == [0, 1, 2, 3, 4]
    assert {each.selector.count(",") for each in seen} == {76}
    assert len(made) == 1


def test_the_longest_selector_that_is_decided_on_is_read_and_a_longer_one_is_refused() -> None:
    longest = scale_codec.built_in().decode(_deployment(decision.MOST_COMMAS + 1)).selector
    assert decision.read_selector(longest) is not None
    assert decision.read_selector(f"{longest},a=b") is None

    cut = scale_codec.built_in().decode(_deployment(15_000)).selector
    assert len(cut) <= scale_codec.LONGEST_TEXT
    assert decision.read_selector(cut) is None


def test_a_selector_of_a_custom_kind_is_cut_too() -> None:
    paths = ReplicaPaths(("spec", "replicas"), ("status", "replicas"), ("status", "selector"))
    text = msgspec.json.encode({"metadata": {"name": "w"}, "status": {"selector": "a=b," * 100_000}})

    assert len(scale_codec.custom(paths).decode(text).selector) == scale_codec.LONGEST_TEXT


NEAR = b'{"matchExpressions": [{"key": "a", "operator": "Near"}]}'


@pytest.mark.parametrize("selector", [b"null", b"[]", b"5", b'{"matchLabels": 5}', b"{}", NEAR])
@pytest.mark.parametrize("plain", [False, True])
def test_an_invalid_selector_is_no_text(selector: bytes, *, plain: bool) -> None:
    text = b'{"metadata": {"name": "w"}, "spec": {"replicas": 3, "selector": ' + selector + b"}}"

    seen = scale_codec.built_in(plain_selector=plain).decode(text)
    assert (seen.replicas, seen.selector) == (3, "")
