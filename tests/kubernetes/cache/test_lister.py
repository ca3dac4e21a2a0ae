"""The lister against a cluster: what it shows, what it costs, what it does when things fail.

`scripts/lister` has stories. After `> ` something happens:

- `pod NAME LABEL=VALUE ...`, `phase`, `delete`, `node`, `widget`, `define` and `undefine` change the cluster;
  `forbid VERB` and `allow VERB` are about pods, `server` is down or up, `pause` lets real time pass.
- `lister KIND ...` begins with these kinds, of the objects whose fields are as said; `start` adds some.
- `names`, `select`, `find`, `counted` and `measured` are questions. Other words wait until something is so:
  `asked KIND VERB ...` for requests, `until KIND NAME ...` for names, `unsynced KIND ...` for what readiness
  waits for, `until-synced`, `reported` and `calm`.

`scripts/lister-of-pods` has stories of pods that a `PodCache` has: `put`, `remove`, `listed` and `refused`
are what the API server does, `running` is how many run.

`scripts/test tests/kubernetes/cache/test_lister.py --update` writes the answers.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from adapter import errors
from adapter.compose.clock import SystemClock
from adapter.kubernetes.cache import label_index, lister, pod_codec
from adapter.kubernetes.cache.lister import RUNNING_PODS, LabeledObject, ObjectLister
from adapter.kubernetes.cache.pods import PodCache
from adapter.kubernetes.cache.reflector import ReflectorPeriods
from adapter.model.objects.label_selectors import EVERYTHING, parse_selector
from adapter.model.objects.resources import APIResource
from fastpath_sandbox.apiserver.kinds import Kind
from fastpath_sandbox.apiserver.server import Cluster
from tests.kubernetes.apiclient import PODS, QUICK, pod, reflecting, resource, unconnected
from tests.support.processor import limited
from tests.support.scripts import Scripts
from tests.support.waiting import other_work, running, until

FOLDER = Path(__file__).parent / "scripts"
SCRIPTS, OF_PODS = Scripts(FOLDER / "lister"), Scripts(FOLDER / "lister-of-pods")
NEW = APIResource("example.com", "v1", "widgets", "widget", "Widget", True, PODS.verbs, preferred=True)
KINDS = {
    "pods": PODS,
    "unwatched-pods": structs.replace(PODS, verbs=frozenset({"list"})),
    "nodes": resource("nodes"),
    "widgets": NEW,
    "old-widgets": structs.replace(NEW, version="v1beta1"),
}


class Questions:
    """What a lister is asked."""

    _lister: ObjectLister

    def start(self, *kinds: str) -> None:
        self._lister.start(KINDS[kind] for kind in kinds)

    async def names(self, kind: str, namespace: str = "everywhere", selector: str = "") -> str:
        try:
            found = await self._lister.names(KINDS[kind], place(namespace), parse_selector(selector))
        except errors.SourceError as error:
            return re.sub(r"127\.0\.0\.1:\d+", "SERVER", str(error))
        return " ".join(found) or "none"

    async def select(self, kind: str, namespace: str = "everywhere", selector: str = "") -> list[str]:
        try:
            found = await self._lister.select(KINDS[kind], place(namespace), parse_selector(selector))
        except errors.SourceError as error:
            return [str(error)]
        return [text(each) for each in found] or ["none"]

    async def find(self, kind: str, namespace: str, name: str) -> str:
        try:
            return text(await self._lister.find(KINDS[kind], namespace, name))
        except errors.SourceError as error:
            return str(error)

    def counted(self, kind: str) -> str:
        return str(self._lister.count(KINDS[kind]))

    async def unsynced(self, *kinds: str) -> None:
        """Wait until these kinds delay readiness."""
        await until(lambda: [each.resource for each in self._lister.unsynced()] == list(kinds))


class ListerScript(Questions):
    """A lister on a cluster, with its own self-metrics and faults."""

    def __init__(self, cluster: Cluster) -> None:
        self.running = contextlib.AsyncExitStack()
        self._cluster = cluster

    async def lister(self, *kinds: str) -> None:
        fields = " ".join(kind for kind in kinds if "=" in kind)
        reflecting_now = reflecting(self._cluster.url, SystemClock(), QUICK)
        self._context = await self.running.enter_async_context(reflecting_now)
        self._lister = ObjectLister(self._context, fields=fields)
        self.start(*(kind for kind in kinds if kind in KINDS))
        await self.running.enter_async_context(running(self._lister.run()))
        await asyncio.sleep(0)  # it runs

    # -- at the cluster --------------------------------------------------------------------------------------

    def pod(self, name: str, *labels: str) -> None:
        namespace, _, name = f"default/{name}".rpartition("/")
        found = dict(label.split("=") for label in labels)
        status = {"status": {"phase": found.pop("phase", "Running")}}
        self._cluster.create(pod(name, namespace.rpartition("/")[2], **found) | status)

    def phase(self, name: str, phase: str) -> None:
        self._cluster.patch("Pod", name, {"status": {"phase": phase}})

    def delete(self, kind: str, name: str) -> None:
        self._cluster.delete(kind, name)

    def node(self, name: str) -> None:
        self._cluster.create({"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}})

    def define(self, version: str) -> None:
        self._cluster.add_kind(Kind("example.com", version, "widgets", "Widget", True))

    def undefine(self, version: str) -> None:
        self._cluster.remove_kind(Kind("example.com", version, "widgets", "Widget", True))

    def widget(self, name: str, label: str, value: str) -> None:
        metadata = {"name": name, "labels": {label: value}}
        self._cluster.create({"kind": "Widget", "apiVersion": "example.com/v1", "metadata": metadata})

    def forbid(self, verb: str) -> None:
        self._cluster.forbid(verb, "pods")

    def allow(self, verb: str) -> None:
        self._cluster.allow(verb, "pods")

    async def server(self, state: str) -> None:
        await (self._cluster.up() if state == "up" else self._cluster.down())

    @staticmethod
    async def pause(seconds: str) -> None:
        await asyncio.sleep(float(seconds))

    # -- what is so ------------------------------------------------------------------------------------------

    async def until(self, kind: str, *names: str) -> None:
        async with limited(1.5):
            while await self.names(kind) != " ".join(names):  # noqa: ASYNC110 - a server in the same loop
                await asyncio.sleep(0.005)

    async def asked(self, kind: str, *verbs: str) -> str:
        """Wait until so much was asked for; return the fields by which it was."""
        found = self._cluster.requests
        await until(lambda: [each.verb for each in found if each.resource == kind] == list(verbs))
        fields = [each.query.get("fieldSelector", "") for each in found if each.resource == kind]
        return " ".join(filter(None, fields))

    async def until_synced(self, kind: str) -> None:
        await until(lambda: self._sample("fastpath_informer_synced", resource=kind))

    def measured(self, kind: str) -> str:
        synced = self._sample("fastpath_informer_synced", resource=kind)
        return f"synced {synced:g}, {self._sample('fastpath_informer_objects', resource=kind):g} objects"

    async def reported(self) -> list[str]:
        await until(self._context.problems.active)
        return [f"{verb} {of}: {why}" for (verb, of), why in self._context.problems.active().items()]

    async def calm(self) -> None:
        await until(lambda: not self._context.problems.active())

    def _sample(self, name: str, **labels: str) -> float:
        return self._context.monitoring.registry.get_sample_value(name, labels) or 0.0


def place(word: str) -> str | None:
    return {"everywhere": None, "nameless": ""}.get(word, word)


def text(found: LabeledObject | None) -> str:
    if found is None:
        return "none"
    labels = (f"{name}={value}" for name, value in found.labels.items())
    return " ".join([f"{found.namespace}/{found.name}", *labels])


@pytest.fixture
async def script(cluster: Cluster) -> AsyncIterator[ListerScript]:
    made = ListerScript(cluster)
    async with made.running:
        yield made


@pytest.mark.parametrize("title", SCRIPTS.titles)
async def test_script(title: str, script: ListerScript, pytestconfig: pytest.Config) -> None:
    await SCRIPTS.play(title, script, pytestconfig)


async def test_a_long_answer_leaves_room_for_other_work(
    monkeypatch: pytest.MonkeyPatch, script: ListerScript
) -> None:
    monkeypatch.setattr(label_index, "STEP", 10)
    names = [f"pod-{number:03}" for number in range(100)]
    for name in names:
        script.pod(name, "app=web", f"number={name}")
    await script.lister("pods")
    await script.names("pods", "nowhere")
    async with other_work() as turns:
        assert await script.names("pods", "default", "app=web") == " ".join(names)
    assert turns.count >= 10


async def test_first_callers_share_the_first_list_and_may_leave(
    script: ListerScript, cluster: Cluster
) -> None:
    await script.lister()
    script.pod("a")
    cluster.delay(0.05, "list", "pods")
    callers = [asyncio.create_task(script.names("pods"), name=f"caller {number}") for number in range(5)]
    await asyncio.sleep(0.01)
    callers[0].cancel()
    answers = await asyncio.gather(*callers, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert answers[1:] == ["a"] * 4
    await script.asked("pods", "list", "watch")


async def test_a_lister_that_does_not_run_knows_nothing() -> None:
    with pytest.raises(errors.NotSyncedError, match="not running"):
        await ObjectLister(unconnected()).names(PODS, None, EVERYTHING)


# -- the cache of pods in the place of a reflector -----------------------------------------------------------


class PodsScript(Questions):
    """A lister of which a cache of pods answers for pods."""

    def __init__(self) -> None:
        self._context = unconnected(periods=ReflectorPeriods(first_list=0.01))
        self.pods = PodCache(self._context)
        self.lister()

    def lister(self, fields: str = "") -> None:
        self._lister = ObjectLister(self._context, fields=fields, pods=self.pods)

    def put(self, name: str, phase: str, *labels: str) -> None:
        namespace, _, name = name.partition("/")
        found = dict(label.split("=") for label in labels)
        metadata = {"namespace": namespace, "name": name, "labels": found}
        document = {"metadata": metadata, "spec": {"containers": []}, "status": {"phase": phase}}
        self.pods.put(pod_codec.POD_CODEC.decode(msgspec.json.encode(document)))

    def remove(self, namespace: str, name: str) -> None:
        self.pods.remove(namespace, name)

    def running(self) -> str:
        return str(self.pods.running)

    def listed(self) -> None:
        self.pods.synced = True
        self.pods.attempted.set()

    def refused(self) -> None:
        self.pods.error = errors.KubernetesError(403, "Forbidden", "cannot list pods: 403 Forbidden")
        self.pods.attempted.set()


@pytest.mark.parametrize("title", OF_PODS.titles)
async def test_script_of_pods(title: str, pytestconfig: pytest.Config) -> None:
    await OF_PODS.play(title, PodsScript(), pytestconfig)


async def test_other_work_goes_on_while_many_are_selected() -> None:
    script = PodsScript()
    for number in range(5 * lister.STEP):
        script.put(f"shop/p{number:04}", "Running" if number % 2 else "Pending")
    script.listed()
    script.lister(RUNNING_PODS)
    async with other_work() as turns:
        found = await script.select("pods")
    assert len(found) == 5 * lister.STEP // 2
    assert turns.count >= 4
