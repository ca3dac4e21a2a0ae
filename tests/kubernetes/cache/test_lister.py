"""The lister against a cluster: what it shows, what it costs, what it does when things fail."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest
from msgspec import structs

from adapter import errors
from adapter.compose.clock import SystemClock
from adapter.kubernetes.cache import label_index, lister, pod_codec
from adapter.kubernetes.cache.lister import RUNNING_PODS, LabeledObject, ObjectLister
from adapter.kubernetes.cache.pods import PodCache
from adapter.kubernetes.cache.reflector import ReflectorContext, ReflectorPeriods
from adapter.model.metrics import GroupResource
from adapter.model.objects.label_selectors import EVERYTHING, parse_selector
from adapter.model.objects.resources import APIResource
from fastpath_sandbox.apiserver.kinds import Kind
from fastpath_sandbox.apiserver.server import Cluster
from tests.kubernetes.apiclient import PODS, QUICK, error_of, pod, reflecting, resource, unconnected
from tests.support.processor import limited
from tests.support.waiting import other_work, running, until

NODES = resource("nodes")
WEB = parse_selector("app=web")


class Cache:
    """A lister on a cluster, with its own self-metrics and faults."""

    def __init__(self, context: ReflectorContext, kinds: Sequence[APIResource], fields: str) -> None:
        self.monitoring = context.monitoring
        self.faults = context.problems
        self.lister = ObjectLister(context, fields=fields)
        self.lister.start(kinds)

    async def names(
        self, namespace: str | None = "default", selector: str = "", what: APIResource = PODS
    ) -> list[str]:
        return list(await self.lister.names(what, namespace, parse_selector(selector)))

    async def until_names(self, *expected: str, selector: str = "", what: APIResource = PODS) -> None:
        found: list[str] | None = None
        async with limited(1.5):
            while found != list(expected):
                await asyncio.sleep(0.005)
                with contextlib.suppress(errors.NotSyncedError):
                    found = await self.names(None, selector, what)

    def count(self, name: str, **labels: str) -> float:
        return self.monitoring.registry.get_sample_value(name, labels) or 0.0


@contextlib.asynccontextmanager
async def caching(
    cluster: Cluster, *kinds: APIResource, periods: ReflectorPeriods = QUICK, fields: str = ""
) -> AsyncIterator[Cache]:
    async with reflecting(cluster.url, SystemClock(), periods) as context:
        cache = Cache(context, kinds, fields)
        async with running(cache.lister.run()):
            await asyncio.sleep(0)  # it runs
            yield cache


@pytest.fixture
async def cache(cluster: Cluster) -> AsyncIterator[Cache]:
    """Return a lister of which no kind is started."""
    async with caching(cluster) as cache:
        yield cache


def verbs(cluster: Cluster, plural: str = "pods") -> list[str]:
    return [request.verb for request in cluster.requests if request.resource == plural]


# -- what it shows -------------------------------------------------------------------------------------------


async def test_names_come_from_the_cache(cluster: Cluster) -> None:
    cluster.create(pod("b", app="web"))
    cluster.create(pod("a", app="web", tier="x"))
    cluster.create(pod("c", app="db"))
    cluster.create(pod("a", "default-2", app="web"))
    cluster.create({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n1"}})
    async with caching(cluster, PODS) as cache:
        assert await cache.names("default", "app=web") == ["a", "b"]
        assert await cache.names("default", "app=web,!tier") == ["b"]
        assert await cache.names("default") == ["a", "b", "c"]
        assert await cache.names(None, "app=web") == ["a", "a", "b"]
        assert await cache.names("nowhere") == []
        await until(lambda: verbs(cluster) == ["list", "watch"])
        assert cache.lister.count(PODS) == 4
        assert cache.count("fastpath_informer_synced", resource="pods") == 1
        assert await cache.names(None, "", NODES) == ["n1"]
        assert await cache.names("", "", NODES) == ["n1"]
        assert verbs(cluster) == ["list", "watch"], "questions cost the API server nothing"


async def test_objects_with_their_labels(cluster: Cluster) -> None:
    for each in (pod("b", app="web"), pod("a", app="web", tier="x"), pod("a", "default-2")):
        cluster.create(each)
    first = LabeledObject("default", "a", {"app": "web", "tier": "x"})
    second = LabeledObject("default", "b", {"app": "web"})
    async with caching(cluster, PODS) as cache:
        assert cache.lister.count(NODES) == 0
        assert await cache.lister.select(PODS, "default", WEB) == (first, second)
        # by namespace and name, which is not the order of the API server's lists
        everywhere = await cache.lister.select(PODS, None, EVERYTHING)
        assert everywhere == (first, second, LabeledObject("default-2", "a", {}))
        assert await cache.lister.select(PODS, "nowhere", EVERYTHING) == ()
        assert await cache.lister.find(PODS, "default", "b") == second
        assert await cache.lister.find(PODS, "default", "d") is None
        assert await cache.lister.find(PODS, "nowhere", "b") is None
        assert cache.lister.count(PODS) == 3


async def test_only_objects_that_match_the_fields_are_mirrored(cluster: Cluster) -> None:
    running = {"status": {"phase": "Running"}}
    cluster.create(pod("a") | running)
    cluster.create(pod("b") | {"status": {"phase": "Pending"}})
    async with caching(cluster, PODS, fields="status.phase=Running") as cache:
        assert await cache.names() == ["a"]
        await until(lambda: verbs(cluster) == ["list", "watch"])
        cluster.patch("Pod", "b", running)
        await cache.until_names("a", "b")
        cluster.patch("Pod", "a", {"status": {"phase": "Succeeded"}})
        await cache.until_names("b")
        assert await cache.lister.find(PODS, "default", "a") is None
        assert [
            request.query["fieldSelector"] for request in cluster.requests if request.resource == "pods"
        ] == ["status.phase=Running", "status.phase=Running"]
        assert cache.count("fastpath_informer_objects", resource="pods[status.phase=Running]") == 1


async def test_a_long_answer_leaves_room_for_other_work(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster
) -> None:
    monkeypatch.setattr(label_index, "STEP", 10)
    for number in range(100):
        cluster.create(pod(f"pod-{number:03}", app="web", number=str(number)))
    async with caching(cluster, PODS) as cache:
        await cache.names("nowhere")
        async with other_work() as turns:
            assert await cache.names("default", "app=web") == [f"pod-{number:03}" for number in range(100)]
        assert turns.count >= 10


async def test_a_kind_that_appears_later(cache: Cache, cluster: Cluster) -> None:
    widgets = APIResource(
        "example.com", "v1", "widgets", "widget", "Widget", True, PODS.verbs, preferred=True
    )
    raised = await error_of(cache.names("default", "", widgets))
    assert raised.status == 404
    cluster.add_kind(Kind("example.com", "v1", "widgets", "Widget", True))
    cluster.create(
        {"kind": "Widget", "apiVersion": "example.com/v1", "metadata": {"name": "w", "labels": {"a": "b"}}}
    )
    await until(lambda: cache.count("fastpath_informer_synced", resource="widgets.example.com"))
    assert await cache.names("default", "a=b", widgets) == ["w"]


async def test_another_version_of_a_kind_starts_again(cluster: Cluster) -> None:
    old = APIResource(
        "example.com", "v1beta1", "widgets", "widget", "Widget", True, PODS.verbs, preferred=True
    )
    cluster.add_kind(Kind("example.com", "v1beta1", "widgets", "Widget", True))
    async with caching(cluster, old) as cache:
        assert await cache.names("default", "", old) == []
        cluster.remove_kind(Kind("example.com", "v1beta1", "widgets", "Widget", True))
        cluster.add_kind(Kind("example.com", "v1", "widgets", "Widget", True))
        cluster.create({"kind": "Widget", "apiVersion": "example.com/v1", "metadata": {"name": "w"}})
        assert await cache.names("default", "", structs.replace(old, version="v1")) == ["w"]
        assert cache.lister.count(old) == 1


# -- refusals ------------------------------------------------------------------------------------------------


async def test_where_watching_is_forbidden_lists_are_taken_while_asked_for(cluster: Cluster) -> None:
    cluster.forbid("watch", "pods")
    cluster.create(pod("a", app="web"))
    async with caching(cluster, PODS) as cache:
        await until(cache.faults.active)
        assert await cache.names("default", "app=web") == ["a"]
        assert cache.faults.active() == {("watch", "pods"): cache.faults.active()["watch", "pods"]}
        assert "cannot watch pods: 403 Forbidden" in cache.faults.active()["watch", "pods"]
        await until(lambda: verbs(cluster) == ["list", "watch", "list"])
        await asyncio.sleep(0.15)
        assert verbs(cluster) == ["list", "watch", "list"], "no request arrived"
        cluster.create(pod("b", app="web"))
        assert await cache.names("default", "app=web") == ["a", "b"], "an old list is not served"


async def test_a_kind_without_watch_is_listed(cache: Cache, cluster: Cluster) -> None:
    cluster.create(pod("a"))
    kind = structs.replace(PODS, verbs=frozenset({"list"}))
    assert await cache.names("default", "", kind) == ["a"]
    cluster.delete("Pod", "a")
    await cache.until_names(what=kind)
    assert "watch" not in verbs(cluster)
    assert cache.faults.active() == {}


async def test_a_forbidden_list_names_verb_and_resource(cluster: Cluster) -> None:
    cluster.forbid("list", "pods")
    async with caching(cluster, PODS, NODES) as cache:
        for _ in range(2):
            with pytest.raises(
                errors.KubernetesError, match="cannot list pods: 403 Forbidden: pods is forbidden"
            ):
                await cache.names()
        await until(lambda: cache.lister.unsynced() == ())
        assert await cache.names(None, "", NODES) == []
        cluster.create(pod("a"))
        cluster.allow("list", "pods")
        await until(lambda: cache.count("fastpath_informer_synced", resource="pods"))
        assert await cache.names() == ["a"]
        await until(lambda: not cache.faults.active())


# -- an API server that is away ------------------------------------------------------------------------------


async def test_down_at_the_start(cluster: Cluster) -> None:
    cluster.create(pod("a"))
    await cluster.down()
    async with caching(cluster, PODS) as cache:
        for _ in range(2):
            with pytest.raises(
                errors.NotSyncedError, match=r"pods: the first list has not arrived yet: .*Unreachable"
            ):
                await cache.names()
        assert cache.lister.unsynced() == (GroupResource("", "pods"),)
        assert cache.count("fastpath_informer_synced", resource="pods") == 0
        await cluster.up()
        await cache.until_names("a")
        assert cache.lister.unsynced() == ()
        assert cache.count("fastpath_informer_synced", resource="pods") == 1
        await until(lambda: not cache.faults.active())


async def test_a_kind_that_was_requested_delays_no_other(cluster: Cluster) -> None:
    """Readiness waits for the kinds of `start` alone, else one question could make the adapter unready."""
    async with caching(cluster, PODS) as cache:
        await cache.until_names()
        await cluster.down()
        with pytest.raises(errors.NotSyncedError):
            await cache.names(None, "", NODES)
        assert cache.lister.unsynced() == ()
        cache.lister.start([NODES])
        assert cache.lister.unsynced() == (GroupResource("", "nodes"),)


async def test_first_callers_share_the_first_list_and_may_leave(cache: Cache, cluster: Cluster) -> None:
    cluster.create(pod("a"))
    cluster.delay(0.05, "list", "pods")
    callers = [asyncio.create_task(cache.names(), name=f"caller {number}") for number in range(5)]
    await asyncio.sleep(0.01)
    callers[0].cancel()
    answers = await asyncio.gather(*callers, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert answers[1:] == [["a"]] * 4
    await until(lambda: cluster.open_watches)
    assert verbs(cluster) == ["list", "watch"]


# -- who owns what -------------------------------------------------------------------------------------------


async def test_a_lister_that_does_not_run_knows_nothing() -> None:
    with pytest.raises(errors.NotSyncedError, match="not running"):
        await ObjectLister(unconnected()).names(PODS, None, EVERYTHING)


# -- the cache of pods in the place of a reflector -----------------------------------------------------------


@pytest.fixture
def context() -> ReflectorContext:
    return unconnected(periods=ReflectorPeriods(first_list=0.01))


@pytest.fixture
def pods(context: ReflectorContext) -> PodCache:
    return PodCache(context)


def put_pod(cache: PodCache, namespace: str, name: str, phase: str, **labels: str) -> None:
    metadata = {"namespace": namespace, "name": name, "labels": labels}
    document = {"metadata": metadata, "spec": {"containers": []}, "status": {"phase": phase}}
    cache.put(pod_codec.POD_CODEC.decode(msgspec.json.encode(document)))


def sync(pods: PodCache) -> None:
    pods.synced = True
    pods.attempted.set()


def running_pods(context: ReflectorContext, pods: PodCache) -> ObjectLister:
    return ObjectLister(context, fields=RUNNING_PODS, pods=pods)


async def test_running_pods_alone(pods: PodCache, context: ReflectorContext) -> None:
    put_pod(pods, "shop", "a", "Running", app="web")
    put_pod(pods, "shop", "b", "Pending", app="web")
    put_pod(pods, "shop", "c", "Succeeded")
    put_pod(pods, "bank", "a", "Running", app="db")
    sync(pods)
    running = running_pods(context, pods)

    web, db = LabeledObject("shop", "a", {"app": "web"}), LabeledObject("bank", "a", {"app": "db"})
    assert await running.select(PODS, "shop", EVERYTHING) == (web,)
    assert await running.select(PODS, None, EVERYTHING) == (db, web)
    assert await running.select(PODS, None, parse_selector("app=db")) == (db,)
    assert await running.select(PODS, "nowhere", EVERYTHING) == ()
    assert await running.find(PODS, "shop", "a") == web
    assert await running.find(PODS, "shop", "b") is None
    assert await running.find(PODS, "shop", "z") is None
    assert running.count(PODS) == 2


async def test_the_number_of_running_pods_is_kept_up_to_date(pods: PodCache) -> None:
    sync(pods)
    counts: list[int] = []
    for phase in ("Pending", "Running", "Running", "Succeeded", "Running"):
        put_pod(pods, "shop", "a", phase, version=str(len(counts)))
        counts.append(pods.running)
    put_pod(pods, "shop", "b", "Failed")
    pods.remove("shop", "b")
    assert pods.running == 1
    pods.remove("shop", "a")
    pods.remove("shop", "a")
    assert (counts, pods.running) == ([0, 1, 1, 0, 1], 0)


async def test_before_the_first_list_nothing_is_absent(pods: PodCache, context: ReflectorContext) -> None:
    running, objects = running_pods(context, pods), ObjectLister(context, pods=pods)
    objects.start([PODS])
    assert objects.unsynced() == (PODS.group_resource,)
    with pytest.raises(errors.NotSyncedError):
        await running.select(PODS, "shop", EVERYTHING)
    with pytest.raises(errors.NotSyncedError):
        await running.find(PODS, "shop", "a")
    with pytest.raises(errors.NotSyncedError):
        await objects.names(PODS, "shop", EVERYTHING)
    sync(pods)
    assert objects.unsynced() == ()
    assert await objects.names(PODS, "shop", EVERYTHING) == ()


async def test_a_refused_list_fails_its_questions_and_keeps_nothing_else_waiting(
    pods: PodCache, context: ReflectorContext
) -> None:
    objects = ObjectLister(context, pods=pods)
    objects.start([PODS])
    pods.error = errors.KubernetesError(403, "Forbidden", "cannot list pods: 403 Forbidden")
    pods.attempted.set()
    assert objects.unsynced() == ()
    with pytest.raises(errors.KubernetesError, match="cannot list pods: 403 Forbidden"):
        await objects.names(PODS, "shop", EVERYTHING)
    with pytest.raises(errors.KubernetesError, match="cannot list pods: 403 Forbidden"):
        await running_pods(context, pods).select(PODS, "shop", EVERYTHING)


async def test_all_pods_by_label(pods: PodCache, context: ReflectorContext) -> None:
    put_pod(pods, "shop", "a", "Running", app="web")
    put_pod(pods, "shop", "b", "Succeeded", app="web")
    sync(pods)
    objects = ObjectLister(context, pods=pods)
    assert await objects.names(PODS, "shop", parse_selector("app=web")) == ("a", "b")
    assert await objects.find(PODS, "shop", "b") == LabeledObject("shop", "b", {"app": "web"})
    assert await objects.select(PODS, None, parse_selector("app=db")) == ()
    assert objects.count(PODS) == 2


async def test_other_work_goes_on_while_many_are_selected(pods: PodCache, context: ReflectorContext) -> None:
    for number in range(5 * lister.STEP):
        put_pod(pods, "shop", f"p{number:04}", "Running" if number % 2 else "Pending")
    sync(pods)
    async with other_work() as turns:
        found = await running_pods(context, pods).select(PODS, None, EVERYTHING)
    assert len(found) == 5 * lister.STEP // 2
    assert turns.count >= 4
