"""Scale targets from caches.

What a GET of the scale would say, without one, and what stands in where watching is not possible.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import aiohttp
import msgspec
import pytest

from adapter.autoscaler.decide import decision
from adapter.kubernetes.cache import scale_codec, scale_targets
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.cache.scale_codec import ObservedScale, ReplicaPaths
from adapter.kubernetes.cache.scale_targets import (
    PollTurns,
    ScaleTarget,
    ScaleTargets,
    TargetSubscription,
    Unfound,
)
from adapter.kubernetes.client import KubernetesClient, ResponseBody
from adapter.kubernetes.codec import ObjectCodec
from adapter.kubernetes.discovery import CatalogueSource
from adapter.model.autoscaling.hpa import CrossVersionObjectReference
from adapter.model.label_selectors import LabelSelector
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from fastpath_sandbox.apiserver import kinds
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.workloads import deployment
from tests.kubernetes.apiclient import QUICK, connected, unconnected
from tests.support.answers import answers
from tests.support.clock import ShiftedClock
from tests.support.waiting import Pauses, running, until

JSON = dict[str, Any]
WEB = CrossVersionObjectReference("Deployment", "web", "apps/v1")
WIDGET = CrossVersionObjectReference("Widget", "w", "example.com/v1")
NOT_YET = Unfound("the scale is not yet known", known=False)


class WatchedTargets:
    """ScaleTargets on a cluster."""

    def __init__(self, client: KubernetesClient) -> None:
        self.client = client
        self.clock = ShiftedClock()
        self.pauses = Pauses(longest=0.05)
        monitoring = Monitoring()
        self.faults = ProblemLog(monitoring, self.clock)
        around = ReflectorContext(
            client, self.clock, monitoring, self.faults, lambda: 0.5, self.pauses, QUICK
        )
        self.catalogue = CatalogueSource(client, self.clock, self.faults)
        self.targets = ScaleTargets(around, self.catalogue)
        self._followed: dict[CrossVersionObjectReference, TargetSubscription] = {}

    def subscribe(
        self, reference: CrossVersionObjectReference, changed: Callable[[], None] = lambda: None
    ) -> TargetSubscription:
        return self.targets.follow("default", reference, changed)

    def follow(
        self, reference: CrossVersionObjectReference, changed: Callable[[], None] = lambda: None
    ) -> TargetSubscription:
        followed = self._followed[reference] = self.subscribe(reference, changed)
        return followed

    def find(self, reference: CrossVersionObjectReference) -> ScaleTarget | Unfound:
        """Return a target, which is followed from now on."""
        return (self._followed.get(reference) or self.follow(reference)).find()

    def web(self, reference: CrossVersionObjectReference = WEB) -> ScaleTarget:
        found = self.find(reference)
        assert isinstance(found, ScaleTarget), found
        return found

    async def until_found(self, reference: CrossVersionObjectReference = WEB) -> ScaleTarget:
        await until(lambda: isinstance(self.find(reference), ScaleTarget))
        return self.web(reference)

    async def until_refused(self, reference: CrossVersionObjectReference = WEB) -> str:
        await until(lambda: getattr(self.find(reference), "known", False))
        found = self.find(reference)
        assert isinstance(found, Unfound)
        return found.message


@pytest.fixture
async def watched(cluster: Cluster) -> AsyncIterator[WatchedTargets]:
    async with connected(cluster.url) as client:
        watched = WatchedTargets(client)
        async with running(watched.targets.run()):
            yield watched


def asked(cluster: Cluster) -> list[str]:
    return [f"{request.verb} {request.resource}" for request in cluster.requests]


async def read_scale(cluster: Cluster, target: ScaleTarget) -> JSON:
    async with aiohttp.ClientSession(cluster.url) as http, http.get(target.path) as response:
        scale: JSON = await response.json()
        return scale


def put_widgets(cluster: Cluster, **paths: str) -> None:
    places = kinds.ScalePaths(**paths) if paths else kinds.ScalePaths(selector=".status.selector")
    cluster.create(kinds.definition("example.com", "v1", "widgets", "Widget", scale=places))


def widget(spec: JSON, status: JSON | None = None) -> JSON:
    body = {"kind": "Widget", "apiVersion": "example.com/v1", "metadata": {"name": "w"}, "spec": spec}
    return body | ({"status": status} if status is not None else {})


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
    found = await watched.until_found(CrossVersionObjectReference(kind, "web", api_version))
    scale = await read_scale(cluster, found)
    version, uid = scale["metadata"]["resourceVersion"], scale["metadata"]["uid"]
    assert found == (3, 2, scale["status"]["selector"], version, "helm", found.path, uid, found.since)
    await until(lambda: cluster.open_watches)
    assert sorted(asked(cluster)) == [f"get {plural}/scale", f"list {plural}", f"watch {plural}"]


async def test_changes_are_delivered(cluster: Cluster, watched: WatchedTargets) -> None:
    cluster.create(deployment("web", replicas=2), manager="helm")
    cluster.create(deployment("other", replicas=2))
    told: list[ScaleTarget | Unfound] = []
    followed = watched.follow(WEB, lambda: told.append(followed.find()))
    assert followed.find() == NOT_YET
    await until(lambda: told)
    assert watched.web() == told[0]
    cluster.scale("deployments", "web", 5, manager="kubectl")
    await until(lambda: len(told) == 2)
    assert (watched.web().replicas, watched.web().manager) == (5, "kubectl")
    cluster.patch("deployments", "web", {"status": {"replicas": 4}})
    await until(lambda: len(told) == 3)
    assert watched.web().status_replicas == 4
    version = watched.web().resource_version
    cluster.patch("deployments", "web", {"metadata": {"annotations": {"a": "b"}}})
    cluster.scale("deployments", "other", 7, manager="kubectl")
    await until(lambda: watched.web().resource_version != version)
    cluster.delete("deployments", "web")
    await until(lambda: len(told) == 4)
    assert told[3] == Unfound('deployments.apps "web" not found')
    cluster.create(deployment("web", replicas=1))
    await until(lambda: len(told) == 5)
    followed.close()
    followed.close()
    await until(lambda: not cluster.open_watches)
    assert asked(cluster).count("list deployments") == 1


async def test_only_kinds_that_are_targets_are_watched(cluster: Cluster, watched: WatchedTargets) -> None:
    cluster.create(deployment("web"))
    first = watched.subscribe(WEB)
    second = watched.subscribe(CrossVersionObjectReference("deployment", "x", "apps/v1beta1"))
    await until(lambda: cluster.open_watches)
    assert second.find() == Unfound('deployments.apps "x" not found')
    third = watched.subscribe(CrossVersionObjectReference("StatefulSet", "x", "apps/v1"))
    await until(lambda: cluster.open_watches == 2)
    first.close()
    assert second.find() == Unfound('deployments.apps "x" not found')
    second.close()
    await until(lambda: cluster.open_watches == 1)
    third.close()
    await until(lambda: cluster.open_watches == 0)


# -- custom kinds --------------------------------------------------------------------------------------------


async def test_a_custom_kind_is_watched_by_its_paths(cluster: Cluster, watched: WatchedTargets) -> None:
    paths = {"spec_replicas": ".spec.size.wanted", "status_replicas": ".status.size"}
    put_widgets(cluster, **paths, selector=".status.labels")
    cluster.create(widget({"size": {"wanted": 4, "other": []}}, {"size": 3, "labels": "app=w"}), manager="me")
    found = await watched.until_found(WIDGET)
    scale = await read_scale(cluster, found)
    version, uid = scale["metadata"]["resourceVersion"], scale["metadata"]["uid"]
    assert found == (4, 3, "app=w", version, "me", found.path, uid, found.since)
    cluster.scale("widgets", "w", 0, manager="kubectl")
    await until(lambda: watched.web(WIDGET)[:2] == (0, 3))
    assert "get widgets/scale" not in asked(cluster)[:-2]
    cluster.patch("widgets", "w", {"spec": {"size": {"wanted": None}}})
    text = "Internal error occurred: the spec replicas field does not exist"
    assert await watched.until_refused(WIDGET) == text


@pytest.mark.parametrize("name", ["../../other/widgets/w", "w?x=", "w%2fstatus", "..", ""])
async def test_a_name_leads_nowhere_else(name: str, cluster: Cluster, watched: WatchedTargets) -> None:
    put_widgets(cluster)
    cluster.forbid("get", "customresourcedefinitions")
    cluster.create(
        widget({"replicas": 2}, {"replicas": 1, "selector": "app=w"})
        | {"metadata": {"name": "w", "namespace": "other"}}
    )
    reference = CrossVersionObjectReference("Widget", name, "example.com/v1")
    assert "invalid resource name" in await watched.until_refused(reference)
    await asyncio.sleep(0.05)
    assert "get widgets/scale" not in asked(cluster)


async def test_a_custom_kind_whose_definition_may_not_be_read_is_polled(
    cluster: Cluster, watched: WatchedTargets
) -> None:
    put_widgets(cluster)
    cluster.forbid("get", "customresourcedefinitions")
    cluster.create(widget({"replicas": 2}, {"replicas": 1, "selector": "app=w"}))
    told: list[int] = []
    followed = watched.follow(WIDGET, lambda: told.append(1))
    found = await watched.until_found(WIDGET)
    assert found[:3] == (2, 1, "app=w")
    count = len(told)
    cluster.scale("widgets", "w", 3, manager="me")
    await until(lambda: len(told) == count + 1)
    assert watched.web(WIDGET).replicas == 3
    assert {scale_targets.POLL_SECONDS, scale_targets.DEFINITION_SECONDS} <= set(watched.pauses.taken)
    assert "watch widgets" not in asked(cluster)
    cluster.fail(503, "get", "widgets/scale", times=6)
    for _ in range(20):
        await asyncio.sleep(0.005)
        assert watched.web(WIDGET).replicas == 3, "what was read stays"
    cluster.delete("widgets", "w")
    assert await watched.until_refused(WIDGET) == 'widgets.example.com "w" not found'
    followed.close()


@pytest.mark.looptime
async def test_scales_that_are_read_share_a_rate_and_namespaces_take_turns() -> None:
    turns = PollTurns(unconnected())
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
    await watched.until_refused(WIDGET)
    pauses = [5 * 2**doubled for doubled in range(6)] + [scale_targets.REFUSED_SECONDS] * 2
    # with half of a random number a pause is as long as its interval
    await until(lambda: [pause for pause in watched.pauses.taken if pause in pauses][: len(pauses)] == pauses)


async def test_a_target_that_is_made_later_is_found_in_half_a_minute(
    cluster: Cluster, watched: WatchedTargets
) -> None:
    put_widgets(cluster)
    cluster.forbid("get", "customresourcedefinitions")
    assert await watched.until_refused(WIDGET) == 'widgets.example.com "w" not found'
    await until(lambda: watched.pauses.taken.count(scale_targets.RETRY_SECONDS) > 2)
    assert max(set(watched.pauses.taken) - {scale_targets.DEFINITION_SECONDS}) == scale_targets.RETRY_SECONDS


@pytest.mark.parametrize(("written", "paths"), answers("kubernetes/scale_targets", "paths of definitions"))
def test_paths_of_definitions(written: list[str], paths: list[list[str]] | None) -> None:
    found = scale_codec.parse_paths(*written)
    assert found == (None if paths is None else ReplicaPaths(*map(tuple, paths)))


async def test_paths_that_cannot_be_read_make_it_polled(cluster: Cluster, watched: WatchedTargets) -> None:
    put_widgets(cluster)
    made = cluster.get("crd", "widgets.example.com")
    made["spec"]["versions"][0]["subresources"]["scale"]["labelSelectorPath"] = ".status['selector']"
    cluster.update(made)
    cluster.create(widget({"replicas": 2}))
    assert (await watched.until_found(WIDGET)).replicas == 2
    assert "get widgets/scale" in asked(cluster)


async def test_a_definition_that_could_not_be_read_is_read_again(
    cluster: Cluster, watched: WatchedTargets
) -> None:
    put_widgets(cluster)
    cluster.create(widget({"replicas": 2}))
    cluster.fail(503, "get", "customresourcedefinitions", times=3)
    cluster.fail(503, "list", "widgets", times=2)  # meanwhile what was polled still counts
    assert (await watched.until_found(WIDGET)).manager == "", "a scale does not tell"
    await until(lambda: watched.web(WIDGET).manager == "sandbox")
    assert scale_targets.RETRY_SECONDS in watched.pauses.taken


async def test_a_kind_that_is_served_in_another_version(cluster: Cluster, watched: WatchedTargets) -> None:
    put_widgets(cluster)
    made = cluster.get("crd", "widgets.example.com")
    cluster.create(widget({"replicas": 2}))
    assert (await watched.until_found(WIDGET)).path.startswith("/apis/example.com/v1/")
    made["spec"]["versions"][0]["name"] = "v2"
    cluster.update(made)
    cluster.cut_watches()
    await watched.catalogue.refresh(force=True)
    await until(lambda: isinstance(watched.find(WIDGET), ScaleTarget))
    assert watched.web(WIDGET).path.startswith("/apis/example.com/v2/")


# -- references that lead nowhere ----------------------------------------------------------------------------


async def test_a_kind_that_is_not_served_at_first(cluster: Cluster, watched: WatchedTargets) -> None:
    told: list[int] = []
    watched.follow(WIDGET, lambda: told.append(1))
    gadget = CrossVersionObjectReference("Gadget", "g", "example.com/v1")
    assert await watched.until_refused(gadget) == 'no matches for kind "Gadget" in group "example.com"'
    assert await watched.until_refused(WIDGET) == 'no matches for kind "Widget" in group "example.com"'
    assert told
    watched.follow(gadget).close()
    put_widgets(cluster)
    cluster.create(widget({"replicas": 2}))
    assert watched.find(WIDGET).__class__ is Unfound
    watched.clock.advance(scale_targets.RETRY_SECONDS)
    assert (await watched.until_found(WIDGET)).replicas == 2


async def test_while_kinds_cannot_be_read_nothing_is_known(cluster: Cluster, watched: WatchedTargets) -> None:
    await cluster.down()
    assert watched.find(WIDGET) == NOT_YET
    await until(lambda: scale_targets.RETRY_SECONDS in watched.pauses.taken)
    assert watched.find(WIDGET) == NOT_YET
    await cluster.up()
    put_widgets(cluster)
    cluster.create(widget({"replicas": 2}))
    watched.clock.advance(60)
    assert (await watched.until_found(WIDGET)).replicas == 2


@pytest.mark.parametrize(
    ("kind", "name", "version", "message"), answers("kubernetes/scale_targets", "errors in upstreams words")
)
async def test_errors_in_upstreams_words(
    kind: str, name: str, version: str, message: str, cluster: Cluster, watched: WatchedTargets
) -> None:
    cluster.create(deployment("web"))
    assert await watched.until_refused(CrossVersionObjectReference(kind, name, version)) == message


# -- what goes wrong -----------------------------------------------------------------------------------------


async def test_what_was_wrong_with_a_kind_is_over_with_its_last_target(
    cluster: Cluster, watched: WatchedTargets
) -> None:
    cluster.forbid("watch", "deployments")
    cluster.forbid("list", "statefulsets")
    stateful = CrossVersionObjectReference("StatefulSet", "web", "apps/v1")
    followed = [watched.subscribe(each) for each in (WEB, stateful)]
    await until(lambda: {fault for fault, _ in watched.faults.active()} == {"watch", "informer"})
    for each in followed:
        each.close()
    await asyncio.sleep(0.05)
    assert not watched.faults.active()


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
    followed = [watched.subscribe(each) for each in (WEB, bad)]
    assert (await watched.until_found()).replicas == 3
    assert (await watched.until_found(bad)).replicas == 2
    assert list(watched.faults.active()) == [("object", "deployments.apps (scaler) default/bad")]
    cluster.scale("deployments", "web", 4, manager="me")
    await until(lambda: watched.web().replicas == 4)
    broken.clear()
    cluster.scale("deployments", "bad", 5, manager="me")
    await until(lambda: watched.web(bad).replicas == 5)
    assert not watched.faults.active()
    await until(lambda: not [task for task in asyncio.all_tasks() if "scale of" in task.get_name()])
    for each in followed:
        each.close()


async def test_a_scale_is_read_once_for_all_its_subscriptions(
    cluster: Cluster, watched: WatchedTargets
) -> None:
    def readers() -> int:
        return sum("scale of" in task.get_name() for task in asyncio.all_tasks())

    cluster.forbid("list", "deployments")
    cluster.create(deployment("web", replicas=2))
    first = watched.follow(WEB)
    await watched.until_found()
    told: list[int] = []
    others = [watched.subscribe(WEB, partial(told.append, n)) for n in range(3)]
    assert [other.find() for other in others] == [first.find()] * 3, "it is known at once"
    first.close()
    cluster.scale("deployments", "web", 6, manager="me")
    await until(lambda: told)
    assert told == [0, 1, 2]
    assert readers() == 1
    for other in others:
        other.close()
    await until(lambda: readers() == 0)


async def test_rights_that_come_later(cluster: Cluster, watched: WatchedTargets) -> None:
    cluster.forbid("*", "deployments")
    cluster.create(deployment("web", replicas=2))
    await watched.until_found()
    cluster.allow("*", "deployments")
    await until(lambda: watched.web().manager == "sandbox")
    assert cluster.open_watches
    await until(lambda: not [task for task in asyncio.all_tasks() if "scale of" in task.get_name()])


async def test_a_scale_that_may_not_be_read_either(cluster: Cluster, watched: WatchedTargets) -> None:
    cluster.forbid("*", "deployments")
    cluster.forbid("*", "deployments/scale")
    cluster.create(deployment("web"))
    assert await watched.until_refused() == (
        'deployments.apps "web" is forbidden: User "system:anonymous" cannot get resource '
        '"deployments/scale" in API group '
        '"apps" in the namespace "default"'
    )


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


async def test_two_references_to_one_target(cluster: Cluster, watched: WatchedTargets) -> None:
    cluster.create(deployment("web", replicas=2))
    told: list[str] = []
    first = watched.subscribe(WEB, lambda: told.append("first"))
    other = watched.subscribe(WEB, lambda: told.append("other"))
    older = CrossVersionObjectReference("deployment", "web", "apps/v1beta2")
    second = watched.subscribe(older, lambda: told.append("second"))
    await until(lambda: sorted(told) == ["first", "other", "second"])
    assert first.find() == second.find()
    other.close()
    second.close()
    told.clear()
    cluster.scale("deployments", "web", 3, manager="me")
    await until(lambda: told == ["first"])
    first.close()


async def test_answers_that_are_none(cluster: Cluster, watched: WatchedTargets) -> None:
    async def garbage(path: str) -> ResponseBody:
        return ResponseBody("application/json", b"[]")

    put_widgets(cluster)
    await watched.catalogue.refresh()
    watched.client.get = garbage  # type: ignore[method-assign, assignment]  # a proxy's idea of an answer
    await until(lambda: "is not a Scale object" in getattr(watched.find(WIDGET), "message", ""))
    assert not getattr(watched.find(WIDGET), "known", True)


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
