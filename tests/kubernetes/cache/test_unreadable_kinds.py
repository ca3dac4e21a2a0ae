"""What an object that cannot be read means, kind by kind. The others of its kind are always seen."""

import json
from typing import Any

import pytest

from adapter.kubernetes.cache import autoscalers, pod_codec, schedules
from adapter.kubernetes.cache.autoscalers import HPACache
from adapter.kubernetes.cache.endpoint_slices import ServiceEndpoints, WatchedSlice
from adapter.kubernetes.cache.filling import MOST_NAMED, ReflectorReports
from adapter.kubernetes.cache.pods import PodCache
from adapter.kubernetes.cache.schedules import ScheduleCache
from adapter.kubernetes.codec import Unreadable
from adapter.model.autoscaling import boost, documents
from adapter.model.objects.label_selectors import parse_selector
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from fastpath_sandbox.apiserver.kinds import FASTPATH_AUTOSCALERS
from fastpath_sandbox.apiserver.server import Cluster
from tests.kubernetes.apiclient import unconnected
from tests.kubernetes.cache.test_autoscalers import document, hpa, opposing, ours, watching
from tests.support.clock import FakeClock
from tests.support.waiting import until

JSON = dict[str, Any]


def lost(item: JSON | None = None, name: str = "bad") -> Unreadable:
    return Unreadable("default", name, "7", json.dumps(item or {}).encode(), "ValueError: no")


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of HPAs and FastPathAutoscalers that raise an exception when they are read."""
    names: set[str] = set()
    read_boosted, decode_object = boost.read_boosted, documents.decode_object

    def boosted(found: Any) -> Any:
        if found.metadata.name in names:
            raise RecursionError
        return read_boosted(found)

    def decoded(raw: Any) -> Any:
        found = decode_object(raw)
        if found.metadata.name in names:
            raise ZeroDivisionError
        return found

    monkeypatch.setattr(boost, "read_boosted", boosted)
    monkeypatch.setattr(documents, "decode_object", decoded)
    return names


def boosted_hpa(name: str, target: str = "web") -> JSON:
    made = hpa(name, target=target)
    made["metadata"]["annotations"] = {"fastpath.io/mode": "boost"}
    return made


async def test_an_hpa_that_cannot_be_read_is_known_by_its_target(broken: set[str], cluster: Cluster) -> None:
    broken.add("bad")
    async with opposing(cluster) as rivals:
        cluster.create(boosted_hpa("bad"))
        cluster.create(hpa("good", target="api"))
        await until(lambda: rivals.of(ours("a")) == ("HorizontalPodAutoscaler/bad",))
        assert rivals.of(ours("b", target="api")) == ("HorizontalPodAutoscaler/good",)
        found = rivals.hpas.find("default", "bad")
        assert found is not None
        assert (found.unreadable, found.asked) == (True, None)
        assert found.faults[0].startswith("cannot be read: RecursionError")
        cluster.create(hpa("later", target="api"))
        cluster.patch("hpa", "bad", {"spec": {"scaleTargetRef": {"name": "api"}}})
        await until(lambda: len(rivals.of(ours("b", target="api")) or ()) == 3)
        assert rivals.of(ours("a")) == ()
        cluster.delete("hpa", "bad")
        await until(lambda: len(rivals.of(ours("b", target="api")) or ()) == 2)


async def test_an_autoscaler_that_cannot_be_read_is_kept_with_its_fault(
    broken: set[str], cluster: Cluster
) -> None:
    broken.add("bad")
    cluster.create(FASTPATH_AUTOSCALERS)
    cluster.create(document("bad"))
    cluster.create(document("good"))
    async with watching(cluster) as found:
        await until(lambda: found.synced)
        bad, good = found.find("default", "bad"), found.find("default", "good")
        assert bad is not None
        assert good is not None
        assert (bad.autoscaler, good.autoscaler is None) == (None, False)
        assert "ZeroDivisionError" in str(bad.faults[0])
        cluster.create(document("later"))
        await until(lambda: found.find("default", "later") is not None)
        broken.clear()
        cluster.patch("fpa", "bad", {"spec": {"maxReplicas": 5}})
        await until(lambda: getattr(found.find("default", "bad"), "autoscaler", None) is not None)


def test_of_an_hpa_without_a_target_the_last_state_counts() -> None:
    last = autoscalers.WatchedHPA("default", "bad", "u", "6", ours("a").spec.scale_target_ref)
    wrong = lost({"metadata": {"name": "bad"}, "spec": {"scaleTargetRef": 5}})
    cache = HPACache(unconnected())
    cache.lose(wrong)
    assert cache.find("default", "bad") is None
    cache.put(last)
    cache.lose(wrong)
    assert cache.find("default", "bad") is last


def test_a_schedule_that_cannot_be_read_has_a_fault_and_no_windows() -> None:
    cache = ScheduleCache(unconnected(), lambda *_: None)
    cache.lose(lost())
    (kept,) = cache
    assert (kept.namespace, kept.name, kept.schedule) == ("default", "bad", None)
    assert str(kept.faults[0]).endswith("cannot be read: ValueError: no")
    cache.put(schedules.WatchedSchedule("default", "bad", "uid", 3, None))
    cache.lose(lost())
    (again,) = cache
    assert (again.uid, again.generation) == ("uid", 3)


def test_a_slice_that_cannot_be_read_has_endpoints_that_are_unknown() -> None:
    cache = ServiceEndpoints(unconnected(), "default", "gateway", lambda: None)
    cache.lose(lost())
    assert cache.slices == (WatchedSlice("default", "bad", (), (), cut=True),)


def pods() -> PodCache:
    cache = PodCache(unconnected())
    cache.synced = True
    return cache


def pod(phase: str = "Pending") -> JSON:
    labels = {"app": "web"}
    return {"metadata": {"name": "bad", "namespace": "default", "labels": labels}, "status": {"phase": phase}}


def test_a_pod_that_cannot_be_read_counts_as_one_without_a_value() -> None:
    cache = pods()
    cache.lose(lost(pod()))
    (found,) = cache.select("default", parse_selector("app=web"))
    assert (found.name, found.phase, found.running_and_ready, found.deleting) == (
        "bad",
        "Running",
        True,
        False,
    )
    assert found.started == 0
    assert [each.resources for each in found.containers] == [None]


def test_of_a_pod_that_was_read_before_the_last_state_counts() -> None:
    cache = pods()
    cache.put(pod_codec.POD_CODEC.decode(json.dumps(pod()).encode()))
    cache.lose(lost(pod("Running")))
    (found,) = cache.select("default", parse_selector("app=web"))
    assert found.phase == "Pending"


def test_a_pod_without_readable_labels_is_there() -> None:
    cache = pods()
    cache.lose(lost({"metadata": {"name": "bad", "labels": 5}}))
    assert cache.find("default", "bad") is not None


def test_each_object_is_reported_once_and_some_by_name() -> None:
    monitoring = Monitoring()
    problems = ProblemLog(monitoring, FakeClock())
    reports = ReflectorReports(monitoring, problems, "things")
    for number in range(MOST_NAMED + 5):
        first = reports.report_unreadable("default", f"t{number}", "ValueError: no")
        assert (first, reports.report_unreadable("default", f"t{number}", "ValueError: no")) == (
            number < MOST_NAMED,
            False,
        )
    labels = {"resource": "things", "reason": "Unreadable"}
    count = monitoring.registry.get_sample_value("fastpath_informer_errors_total", labels)
    assert count == 2 * (MOST_NAMED + 5)
    assert len(problems.active()) == MOST_NAMED + 1
    assert problems.active()["object", "things default/t0"] == "ValueError: no"
    assert problems.active()["object", "things"] == f"more than {MOST_NAMED} objects cannot be read"
    reports.resolve_unreadable("default", "unknown")
    reports.resolve_unreadable("default", "t0")
    assert len(problems.active()) == MOST_NAMED
    reports.close()
    assert not problems.active()
    reports.report_unreadable("", "n1", "no")
    assert list(problems.active()) == [("object", "things n1")], "a cluster-scoped object has no namespace"
