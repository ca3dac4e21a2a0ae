"""The autoscalers of a cluster: ours, invalid ones among them, and other scalers of the same targets."""

import contextlib
from collections.abc import AsyncIterator, Callable
from time import thread_time
from typing import Any

import pytest

from adapter.kubernetes.cache.autoscalers import AutoscalerCache, ScaleConflicts, TargetKey
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler, FastPathAutoscalerSpec
from adapter.model.autoscaling.hpa import CrossVersionObjectReference
from adapter.model.objects.api_objects import Metadata
from fastpath_sandbox.apiserver.kinds import FASTPATH_AUTOSCALERS
from fastpath_sandbox.apiserver.server import Cluster
from tests.kubernetes.apiclient import reflecting
from tests.support.waiting import running, until

JSON = dict[str, Any]


def document(name: str, namespace: str = "default", target: str = "web", **spec: Any) -> JSON:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}
    return {
        "kind": "FastPathAutoscaler",
        "apiVersion": "fastpath.io/v1alpha1",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"scaleTargetRef": reference, "maxReplicas": 9} | spec,
    }


def hpa(name: str, namespace: str = "default", target: str = "web", **more: Any) -> JSON:
    made = document(name, namespace, target) | {
        "kind": "HorizontalPodAutoscaler",
        "apiVersion": "autoscaling/v2",
    }
    made["spec"]["scaleTargetRef"] |= more
    return made


def ours(name: str, namespace: str = "default", target: str = "web") -> FastPathAutoscaler:
    reference = CrossVersionObjectReference("Deployment", target, "apps/v1")
    return FastPathAutoscaler(
        metadata=Metadata(name, namespace),
        spec=FastPathAutoscalerSpec(scale_target_ref=reference, max_replicas=9),
    )


@contextlib.asynccontextmanager
async def watching(
    cluster: Cluster, changed: Callable[[str, str], None] = lambda *_: None
) -> AsyncIterator[AutoscalerCache]:
    async with reflecting(cluster.url) as around:
        found = AutoscalerCache(around, changed)
        async with running(found.run()):
            yield found


@contextlib.asynccontextmanager
async def opposing(
    cluster: Cluster, changed: Callable[[TargetKey], None] = lambda _: None
) -> AsyncIterator[ScaleConflicts]:
    async with reflecting(cluster.url) as around:
        rivals = ScaleConflicts(around)
        rivals.changed = changed
        async with running(rivals.hpas.run()):
            yield rivals


# -- ours ---------------------------------------------------------------------------------------------------


async def test_autoscalers_come_change_and_go(cluster: Cluster) -> None:
    cluster.create(FASTPATH_AUTOSCALERS)
    cluster.create(document("b", syncPeriod="500ms"))
    cluster.create(document("a", "other"))
    told: list[str] = []
    async with watching(cluster, lambda namespace, name: told.append(f"{namespace}/{name}")) as found:
        await until(lambda: len(told) == 2)
        assert found.synced
        assert sorted(told) == ["default/b", "other/a"]
        assert found.count() == len(list(found)) == 2
        read = found.find("default", "b")
        assert read is not None
        assert read.autoscaler is not None
        assert read.autoscaler.spec.sync_period == 500_000_000
        assert read.autoscaler.metadata.resource_version == read.resource_version
        cluster.patch("fpa", "b", {"status": {"currentReplicas": 3}})
        await until(lambda: len(told) == 3)
        changed = found.find("default", "b")
        assert changed is not None
        assert changed.autoscaler is not None
        assert changed.autoscaler.status is not None
        assert changed.autoscaler.status.current_replicas == 3
        cluster.delete("fpa", "b")
        await until(lambda: len(told) == 4)
        assert found.find("default", "b") is None
        assert found.count() == 1


async def test_one_that_cannot_be_read_is_there_with_its_faults(cluster: Cluster) -> None:
    cluster.create(FASTPATH_AUTOSCALERS)
    cluster.create(document("good"))
    cluster.create(document("wrong", maxReplicas="many"))
    cluster.create(document("odd", metrics=[{"type": "Pods", "pods": {"target": {"averageValue": "a lot"}}}]))
    async with watching(cluster) as found:
        await until(lambda: found.synced)
        good, wrong, odd = (found.find("default", name) for name in ("good", "wrong", "odd"))
        assert good is not None and good.autoscaler is not None and good.faults == ()  # noqa: PT018 - narrows
        assert wrong is not None and wrong.autoscaler is None  # noqa: PT018 - narrows
        assert [fault.path for fault in wrong.faults] == ["spec.maxReplicas"]
        assert odd is not None and [fault.path for fault in odd.faults] == [  # noqa: PT018 - narrows
            "spec.metrics[0].pods.target.averageValue"
        ]
        cluster.patch("fpa", "wrong", {"spec": {"maxReplicas": 3}})
        await until(lambda: (fixed := found.find("default", "wrong")) and fixed.autoscaler)


# -- others -------------------------------------------------------------------------------------------------


async def test_who_else_scales_a_target(cluster: Cluster) -> None:
    cluster.create(hpa("a"))
    cluster.create(hpa("b", apiVersion="apps/v1beta1", kind="deployment"))
    cluster.create(hpa("c", target="other"))
    cluster.create(hpa("d", "elsewhere"))
    cluster.create(hpa("e", apiVersion="example.com/v1"))
    told: list[TargetKey] = []
    async with opposing(cluster, told.append) as rivals:
        rivals.put(ours("web"))
        assert rivals.of(ours("web")) is None, "not yet known is not an empty answer"
        await until(lambda: len(told) == 4)
        assert rivals.of(ours("web")) == ("HorizontalPodAutoscaler/a", "HorizontalPodAutoscaler/b")
        web = TargetKey("default", "apps", "deployment", "web")
        assert told.count(web) == 1
        told.clear()
        rivals.put(ours("again"))
        rivals.put(ours("again"))
        assert told == [web]
        assert rivals.of(ours("web")) == (
            "FastPathAutoscaler/again",
            "HorizontalPodAutoscaler/a",
            "HorizontalPodAutoscaler/b",
        )
        rivals.put(ours("again", target="other"))
        assert told[1:] == [web, web._replace(name="other")]
        assert rivals.of(ours("again", target="other")) == ("HorizontalPodAutoscaler/c",)
        told.clear()
        cluster.delete("hpa", "a")
        cluster.patch("hpa", "b", {"spec": {"scaleTargetRef": {"name": "moved"}}})
        await until(lambda: rivals.of(ours("web")) == ())
        assert told == [web, web, web._replace(name="moved")]
        cluster.create(hpa("f"))
        await until(lambda: rivals.of(ours("web")) == ("HorizontalPodAutoscaler/f",))
        rivals.remove("default", "web")
        rivals.remove("default", "again")
        rivals.remove("default", "again")
        assert rivals.of(ours("x", target="unscaled")) == ()


async def test_what_is_kept_of_an_hpa(cluster: Cluster) -> None:
    annotated = hpa("a")
    annotated["metadata"]["annotations"] = {"fastpath.io/mode": "boost", "other/x": "y"}
    cluster.create(annotated)
    cluster.create(hpa("b"))
    async with opposing(cluster) as rivals:
        await until(lambda: rivals.hpas.synced)
        (first, second) = rivals.hpas
        assert (first.namespace, first.name) == ("default", "a")
        assert first.target == CrossVersionObjectReference("Deployment", "web", "apps/v1")
        assert first.asked is not None
        assert first.asked.boosted.autoscaler.spec.mode == "Boost"
        assert "spec.metrics has no fastpath_replicas" in first.asked.fault
        assert second.asked is None
        assert rivals.hpas.find("default", "a") == first
        assert rivals.hpas.count() == 2


async def test_while_autoscalers_may_not_be_listed_the_answer_is_unknown(cluster: Cluster) -> None:
    cluster.create(hpa("a"))
    cluster.forbid("list", "horizontalpodautoscalers")
    async with opposing(cluster) as rivals:
        await until(lambda: "403" in rivals.hpas.failure)
        assert rivals.of(ours("web")) is None
        cluster.allow("list", "horizontalpodautoscalers")
        await until(lambda: rivals.of(ours("web")) == ("HorizontalPodAutoscaler/a",))


@pytest.mark.parametrize(
    ("reference", "key"),
    [
        (CrossVersionObjectReference("Deployment", "web", "apps/v1"), ("x", "apps", "deployment", "web")),
        (
            CrossVersionObjectReference("ReplicationController", "web", "v1"),
            ("x", "", "replicationcontroller", "web"),
        ),
        (CrossVersionObjectReference("Deployment", "web"), ("x", "", "deployment", "web")),
    ],
)
def test_the_key_of_a_target(reference: CrossVersionObjectReference, key: tuple[str, ...]) -> None:
    assert TargetKey.of("x", reference) == key


async def test_many_autoscalers_of_a_target_are_counted(cluster: Cluster) -> None:
    """Each of them asks at each decision, and its status names them: some, not thousands."""
    cluster.create(hpa("a"))
    async with opposing(cluster) as rivals:
        await until(lambda: rivals.of(ours("web")) == ("HorizontalPodAutoscaler/a",))
        for number in range(2000):
            rivals.put(ours(f"web-{number:04}"))
        named = tuple(f"FastPathAutoscaler/web-{number:04}" for number in range(11))
        assert rivals.of(ours("web-1999")) == (*named[:10], "1990 more")
        assert rivals.of(ours("web-0003")) == (*named[:3], *named[4:], "1990 more")
        begun = thread_time()
        for number in range(2000):
            rivals.of(ours(f"web-{number:04}"))
        assert thread_time() - begun < 0.5
        for number in range(11, 2000):
            rivals.remove("default", f"web-{number:04}")
        assert rivals.of(ours("web-0003")) == (*named[:3], *named[4:], "1 more")
        rivals.remove("default", "web-0000")
        assert rivals.of(ours("web-0003")) == (*named[1:3], *named[4:], "HorizontalPodAutoscaler/a")
