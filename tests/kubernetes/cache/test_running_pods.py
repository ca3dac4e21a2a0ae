"""The cache of pods in the place of an object lister: all pods by label, and the running ones."""

import msgspec
import pytest

from adapter.errors import KubernetesError, NotSyncedError
from adapter.kubernetes.cache import lister, pod_codec
from adapter.kubernetes.cache.lister import LabeledObject, ObjectLister, RunningPods
from adapter.kubernetes.cache.pods import PODS, PodCache
from adapter.kubernetes.cache.reflector import ReflectorContext, ReflectorPeriods
from adapter.model.label_selectors import EVERYTHING, parse_selector
from tests.support.apiclient import unconnected
from tests.support.waiting import other_work


@pytest.fixture
def context() -> ReflectorContext:
    return unconnected(periods=ReflectorPeriods(first_list=0.01))


@pytest.fixture
def cache(context: ReflectorContext) -> PodCache:
    return PodCache(context)


def put(cache: PodCache, namespace: str, name: str, phase: str, **labels: str) -> None:
    metadata = {"namespace": namespace, "name": name, "labels": labels}
    document = {"metadata": metadata, "spec": {"containers": []}, "status": {"phase": phase}}
    cache.put(pod_codec.POD_CODEC.decode(msgspec.json.encode(document)))


def sync(cache: PodCache) -> None:
    for reflector in cache.reflectors:
        reflector.synced = True
        reflector.attempted.set()


async def test_running_pods_alone(cache: PodCache) -> None:
    put(cache, "shop", "a", "Running", app="web")
    put(cache, "shop", "b", "Pending", app="web")
    put(cache, "shop", "c", "Succeeded")
    put(cache, "bank", "a", "Running", app="db")
    sync(cache)
    running = RunningPods(cache)

    web, db = LabeledObject("shop", "a", {"app": "web"}), LabeledObject("bank", "a", {"app": "db"})
    assert await running.select(PODS, "shop", EVERYTHING) == (web,)
    assert await running.select(PODS, None, EVERYTHING) == (db, web)
    assert await running.select(PODS, None, parse_selector("app=db")) == (db,)
    assert await running.select(PODS, "nowhere", EVERYTHING) == ()
    assert await running.find(PODS, "shop", "a") == web
    assert await running.find(PODS, "shop", "b") is None
    assert await running.find(PODS, "shop", "z") is None
    assert running.count(PODS) == 2


async def test_the_number_of_running_pods_is_kept_up_to_date(cache: PodCache) -> None:
    sync(cache)
    counts: list[int] = []
    for phase in ("Pending", "Running", "Running", "Succeeded", "Running"):
        put(cache, "shop", "a", phase, version=str(len(counts)))
        counts.append(cache.running)
    put(cache, "shop", "b", "Failed")
    cache.remove("shop", "b")
    assert cache.running == 1
    cache.remove("shop", "a")
    cache.remove("shop", "a")
    assert (counts, cache.running) == ([0, 1, 1, 0, 1], 0)


async def test_before_the_first_list_nothing_is_absent(cache: PodCache, context: ReflectorContext) -> None:
    running, objects = RunningPods(cache), ObjectLister(context, pods=cache)
    objects.start([PODS])
    assert objects.unsynced() == (PODS.group_resource,)
    with pytest.raises(NotSyncedError):
        await running.select(PODS, "shop", EVERYTHING)
    with pytest.raises(NotSyncedError):
        await running.find(PODS, "shop", "a")
    with pytest.raises(NotSyncedError):
        await objects.names(PODS, "shop", EVERYTHING)
    sync(cache)
    assert objects.unsynced() == ()
    assert await objects.names(PODS, "shop", EVERYTHING) == ()


async def test_a_refused_list_fails_its_questions_and_keeps_nothing_else_waiting(
    cache: PodCache, context: ReflectorContext
) -> None:
    objects = ObjectLister(context, pods=cache)
    objects.start([PODS])
    reflector = cache.reflectors[0]
    reflector.error = KubernetesError(403, "Forbidden", "cannot list pods: 403 Forbidden")
    reflector.attempted.set()
    assert objects.unsynced() == ()
    with pytest.raises(KubernetesError, match="cannot list pods: 403 Forbidden"):
        await objects.names(PODS, "shop", EVERYTHING)
    with pytest.raises(KubernetesError, match="cannot list pods: 403 Forbidden"):
        await RunningPods(cache).select(PODS, "shop", EVERYTHING)


async def test_all_pods_by_label(cache: PodCache, context: ReflectorContext) -> None:
    put(cache, "shop", "a", "Running", app="web")
    put(cache, "shop", "b", "Succeeded", app="web")
    sync(cache)
    objects = ObjectLister(context, pods=cache)
    assert await objects.names(PODS, "shop", parse_selector("app=web")) == ("a", "b")
    assert await objects.find(PODS, "shop", "b") == LabeledObject("shop", "b", {"app": "web"})
    assert await objects.select(PODS, None, parse_selector("app=db")) == ()
    assert objects.count(PODS) == 2


async def test_other_work_goes_on_while_many_are_selected(
    cache: PodCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lister, "_STEP", 10)
    for number in range(500):
        put(cache, "shop", f"p{number:03}", "Running" if number % 2 else "Pending")
    sync(cache)
    async with other_work() as turns:
        found = await RunningPods(cache).select(PODS, None, EVERYTHING)
    assert len(found) == 250
    assert turns.count >= 40
