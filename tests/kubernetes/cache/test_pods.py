"""Pods as decisions need them.

What is kept of each, what selectors find, how few were ready, and what it costs.
"""

import contextlib
import gc
import itertools
import tracemalloc
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from adapter import errors
from adapter.kubernetes.cache import pod_codec, pod_selections
from adapter.kubernetes.cache.pod_codec import WatchedPod
from adapter.kubernetes.cache.pod_selections import ReadyHistory
from adapter.kubernetes.cache.pods import PodCache
from adapter.kubernetes.cache.reflector import ReflectorPeriods
from adapter.model.autoscaling.hpa import decode_scalar
from adapter.model.objects import pods as models
from adapter.model.objects.label_selectors import EVERYTHING, LabelSelector, parse_selector
from adapter.model.ready_times import Outcome, PodStart
from adapter.model.timestamps import SECOND
from fastpath_sandbox.apiserver.server import Cluster
from tests.kubernetes.apiclient import QUICK, reflecting, unconnected
from tests.support.answers import answers
from tests.support.clock import FakeClock, ShiftedClock
from tests.support.waiting import running, until

JSON = dict[str, Any]
WEB = parse_selector("app=web")
CONTAINERS = [
    {
        "name": "main",
        "image": "x",
        "ports": [
            {"name": "http", "containerPort": 8080},
            {"name": "dns", "containerPort": 53, "protocol": "UDP"},
            {"containerPort": 1},
        ],
        "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}},
    },
    {"name": "side", "ports": [{"name": "metrics", "containerPort": 9090, "protocol": "TCP"}]},
]


def pod(
    name: str, namespace: str = "default", *, ready: bool = True, phase: str = "Running", **labels: str
) -> JSON:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": CONTAINERS},
        "status": {
            "phase": phase,
            "podIP": "10.1.2.3",
            "startTime": "2026-01-01T00:00:10Z",
            "conditions": [
                {"type": "Initialized", "status": "True"},
                {"type": "Ready", "status": str(ready), "lastTransitionTime": "2026-01-01T00:00:20Z"},
            ],
        },
    }


@contextlib.asynccontextmanager
async def watching(
    cluster: Cluster,
    namespace: str = "",
    *,
    periods: ReflectorPeriods = QUICK,
    clock: ShiftedClock | None = None,
) -> AsyncIterator[PodCache]:
    async with reflecting(cluster.url, clock, periods) as context:
        watch = PodCache(context, namespace)
        async with running(watch.run()):
            yield watch


def names(pods: Sequence[WatchedPod]) -> list[str]:
    return [pod.name for pod in pods]


def alone(clock: FakeClock | None = None) -> PodCache:
    """Return a watch that a test feeds by hand."""
    watch = PodCache(unconnected(clock))
    watch.synced = True
    list(watch.listed(""))
    return watch


@pytest.fixture
def watch() -> PodCache:
    return alone()


def put(watch: PodCache, *documents: JSON) -> None:
    for document in documents:
        watch.put(pod_codec.POD_CODEC.decode(msgspec.json.encode(document)))
    watch.end_batch()


def ignored() -> None:
    """Do nothing about a change."""


@dataclass(eq=False)
class Following:
    """An autoscaler that follows pods, and what is known of these."""

    cache: PodCache
    namespace: str
    selector: LabelSelector
    autoscaler: str
    changed: Callable[[], None] = ignored
    started: Callable[[PodStart | Outcome], None] = lambda _: None

    def __post_init__(self) -> None:
        self._selection = self.cache.follow(self.namespace, self.selector, self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._selection, name)

    def close(self) -> None:
        self._selection.leave(self)


# -- what is kept --------------------------------------------------------------------------------------------


async def test_pods_of_a_cluster(cluster: Cluster) -> None:
    cluster.create(pod("b", app="web"))
    cluster.create(pod("a", app="web", ready=False))
    cluster.create(pod("c", app="db"))
    cluster.create(pod("a", "other", app="web"))
    async with watching(cluster) as watch:
        with pytest.raises(errors.NotSyncedError, match="pods: the first list has not arrived yet"):
            watch.select("default", WEB)
        await until(lambda: watch.synced)
        assert names(watch.select("default", WEB)) == ["a", "b"]
        assert names(watch.select("default", EVERYTHING)) == ["a", "b", "c"]
        assert watch.select("nowhere", EVERYTHING) == ()
        assert watch.count() == 4
        found = watch.find("other", "a")
        assert found is not None
        assert (found.namespace, found.ip, found.spec.host_network) == ("other", "10.1.2.3", False)
        assert found.spec.ports == {"http": 8080, "metrics": 9090}
        assert watch.find("other", "b") is None
        assert watch.find("nowhere", "b") is None
        cluster.create(pod("d", app="web"))
        cluster.delete("pods", "a")
        await until(lambda: names(watch.select("default", WEB)) == ["b", "d"])
        cluster.patch("pods", "b", {"status": {"phase": "Succeeded"}})
        await until(lambda: (watch.find("default", "b") or found).phase == "Succeeded")
        assert [request.verb for request in cluster.requests] == ["list", "watch"]
        assert watch.count() == 4
        assert watch.stale() == ""


@pytest.mark.parametrize("change", answers("kubernetes/pods", "the facts are those of the model"))
def test_the_facts_are_those_of_the_model(watch: PodCache, change: JSON) -> None:
    document = pod("p", app="web") | change
    if (status := document["status"]).get("podIP", "") is None:
        del status["podIP"]
    put(watch, document)
    (found,) = watch.select("default", EVERYTHING)
    decoded = msgspec.convert(document, models.Pod, dec_hook=decode_scalar)
    expected = models.facts_of(decoded)
    assert {field: getattr(found, field) for field in expected.__struct_fields__} == msgspec.structs.asdict(
        expected
    )
    assert found.spec.host_network is bool(document["spec"].get("hostNetwork"))


def test_the_container_is_known_of_a_bounded_number_of_ports(watch: PodCache) -> None:
    document = pod("a")
    ports = [{"containerPort": port} for port in range(1, 1001)]
    document["spec"] = {"containers": [{"name": "main", "ports": ports}, {"name": "side"}]}
    put(watch, document)
    (found,) = watch.select("default", EVERYTHING)
    assert found.port_owners == {str(port): "main" for port in range(1, pod_codec.MOST_OWNED_PORTS + 1)}


def test_alike_pods_share_what_is_alike(watch: PodCache) -> None:
    put(watch, pod("a", app="web"), pod("b", app="web"), pod("c", "other", app="web"))
    first, second = watch.select("default", WEB)
    assert first.spec is second.spec
    assert first.labels is second.labels
    put(watch, pod("a", app="web", ready=False))
    changed, _ = watch.select("default", WEB)
    assert (changed.ready, changed.name is first.name, changed.ip is first.ip) == ("False", True, True)
    put(watch, pod("b", app="web") | {"spec": {"containers": CONTAINERS[:1]}})
    assert [found.spec.ports.keys() for found in watch.select("default", WEB)] == [
        {"http", "metrics"},
        {"http"},
    ]


def test_pods_and_selectors_that_are_gone_leave_nothing(watch: PodCache) -> None:
    selectors = [parse_selector(text) for text in ("app=web", "app!=web", "app")]
    kept = Following(watch, "default", WEB, "default/web")

    def come_and_go(number: int) -> None:
        name, spec = f"web-{number}", {"containers": [{"name": f"container-{number}"}]}
        for namespace in ("default", f"tenant-{number}"):
            put(watch, pod(name, namespace, app="web", z=str(number)) | {"spec": spec})
            followed = [Following(watch, namespace, selector, name) for selector in selectors]
            assert followed[0].selected_by
            for following in followed:
                following.close()
            assert kept.selected_by == (("default/web",) if namespace == "default" else ())
            watch.remove(namespace, name)

    for number in range(100):  # what is built once is there then
        come_and_go(number)
    tracemalloc.start()
    try:
        for number in range(100, 300):
            come_and_go(number)
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 100 * 200


# -- what selectors find -------------------------------------------------------------------------------------


async def test_a_subscription_receives_its_pods_alone(cluster: Cluster) -> None:
    cluster.create(pod("a", app="web"))
    async with watching(cluster) as watch:
        told: list[str] = []
        web = Following(watch, "default", WEB, "default/web", lambda: told.append("web"))
        Following(watch, "default", parse_selector("app=db"), "default/db", lambda: told.append("db"))
        with pytest.raises(errors.NotSyncedError):
            _ = web.pods
        await until(lambda: told == ["web", "db"])
        assert (names(web.pods), web.min_ready(0)) == (["a"], 1)
        assert web.pods is web.pods
        cluster.create(pod("b", app="web", ready=False))
        await until(lambda: told == ["web", "db", "web"])
        assert (names(web.pods), web.min_ready(0)) == (["a", "b"], 1)
        cluster.patch("pods", "b", {"metadata": {"annotations": {"x": "y"}}})
        cluster.patch("pods", "b", {"metadata": {"labels": {"app": "db"}}})
        await until(lambda: len(told) == 5)
        assert sorted(told[3:]) == ["db", "web"]
        web.close()
        web.close()
        cluster.delete("pods", "a")
        cluster.create(pod("c", app="db"))
        await until(lambda: len(told) == 6)
        assert told[5] == "db"


def test_a_callback_may_close_what_it_likes(watch: PodCache) -> None:
    kept: list[Following] = []

    def close() -> None:
        for following in kept:
            following.close()

    kept += [Following(watch, "default", WEB, f"default/{number}", close) for number in range(3)]
    put(watch, pod("a", app="web"))
    late = Following(watch, "default", WEB, "default/late")
    assert late.selected_by == ("default/late",), "all were closed"


LABELS = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["a", "b"]), max_size=2)
SELECTORS = ["app=a", "app==b", "tier in (a,b)", "app", "!app", "app!=a", "app=a,tier=b", "tier=a,app", ""]


class SelectionMachine(RuleBasedStateMachine):
    """Any sequence of events: a following sees what a scan over all pods would."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.watch = alone(self.clock)
        self.pods: dict[tuple[str, str], JSON] = {}
        self.followed: dict[tuple[str, str], Following] = {}
        self.counts: dict[tuple[str, str], list[tuple[float, int]]] = {}

    @rule(
        namespace=st.sampled_from(["x", "y"]),
        name=st.sampled_from("pqr"),
        labels=LABELS,
        ready=st.booleans(),
        phase=st.sampled_from(["Running", "Pending"]),
    )
    def put(self, *, namespace: str, name: str, labels: dict[str, str], ready: bool, phase: str) -> None:
        self.pods[namespace, name] = pod(name, namespace, ready=ready, phase=phase, **labels)
        put(self.watch, self.pods[namespace, name])
        self.note()

    @rule(namespace=st.sampled_from(["x", "y"]), name=st.sampled_from("pqr"))
    def remove(self, namespace: str, name: str) -> None:
        self.pods.pop((namespace, name), None)
        self.watch.remove(namespace, name)
        self.note()

    @rule(namespace=st.sampled_from(["x", "y"]), text=st.sampled_from(SELECTORS))
    def follow(self, namespace: str, text: str) -> None:
        if (namespace, text) in self.followed:
            self.followed.pop((namespace, text)).close()
            del self.counts[namespace, text]
            return
        selector = parse_selector(text)
        self.followed[namespace, text] = Following(
            self.watch, namespace, selector, f"{namespace}/{text}", ignored
        )
        self.counts[namespace, text] = []
        self.note()

    @rule(seconds=st.floats(0.5, 100))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def expected(self, namespace: str, selector: LabelSelector) -> list[JSON]:
        return [
            document
            for key, document in sorted(self.pods.items())
            if key[0] == namespace and selector.matches(document["metadata"]["labels"])
        ]

    def note(self) -> None:
        for (namespace, text), counts in self.counts.items():
            found = self.expected(namespace, parse_selector(text))
            ready = sum(
                each["status"]["phase"] == "Running" and each["status"]["conditions"][1]["status"] == "True"
                for each in found
            )
            counts.append((self.clock.monotonic(), ready))

    @invariant()
    def followings_are_right(self) -> None:
        for (namespace, text), following in self.followed.items():
            selector = parse_selector(text)
            found = [each["metadata"]["name"] for each in self.expected(namespace, selector)]
            assert names(following.pods) == names(self.watch.select(namespace, selector)) == found
            now = self.clock.monotonic()
            counts = self.counts[namespace, text]
            for age in (0, 1, 30, 200):
                start = now - age
                known = counts[0][0] <= start
                seen = [count for at, count in counts if at >= start]
                before = [count for at, count in counts if at < start][-1:]
                assert following.min_ready(age * SECOND) == (min([*seen, *before]) if known else None)
                assert following.max_ready(age * SECOND) == max([*seen, *before])

    @invariant()
    def selected_by_is_right(self) -> None:
        for (namespace, text), following in self.followed.items():
            own = {each["metadata"]["name"] for each in self.expected(namespace, parse_selector(text))}
            others = [
                f"{namespace}/{other}"
                for space, other in self.followed
                if space == namespace
                and own
                & {each["metadata"]["name"] for each in self.expected(namespace, parse_selector(other))}
            ]
            assert following.selected_by == tuple(sorted(others))


SelectionMachine.TestCase.settings = settings(stateful_step_count=15, max_examples=60)
TestSelections = pytest.mark.timeout(60)(SelectionMachine.TestCase)  # thousands of steps, each of them quick


# -- how few were ready --------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.floats(0, 50), st.integers(0, 5)), max_size=30), st.floats(0, 2000))
def test_the_smallest_and_the_largest_count_of_any_window(
    changes: list[tuple[float, int]], age: float
) -> None:
    now = 1000.0
    history = ReadyHistory(3, now)
    segments = [(now, 3)]
    for pause, count in changes:
        now += pause
        history.record(count, now)
        segments.append((now, count))
    start = now - age
    assert len(history.past or ()) <= 6
    assert len(history.peaks or ()) <= 6
    ends = [at for at, _ in segments[1:]] + [now]
    within = [count for end, (_, count) in zip(ends, segments, strict=True) if end >= start]
    if age <= pod_selections.KEPT_SECONDS:
        assert history.largest(start) == max(within)
    if start < 1000.0 or age > pod_selections.KEPT_SECONDS:
        assert history.smallest(start, now) is None
        return
    assert history.smallest(start, now) == min(within)


def test_a_history_forgets() -> None:
    history = ReadyHistory(0, 0.0)
    for second in range(5000):
        history.record(second, float(second))
    assert len(history.past or ()) <= pod_selections.KEPT_SECONDS + 1
    assert history.peaks is None
    history.record(0, 5000.0)
    assert history.past is None
    assert history.largest(4000.0) == 4999


async def test_after_a_new_list_the_past_is_unknown(cluster: Cluster) -> None:
    clock = ShiftedClock()
    cluster.create(pod("a", app="web"))
    async with watching(cluster, clock=clock) as watch:
        web = Following(watch, "default", WEB, "default/web")
        await until(lambda: watch.synced and cluster.open_watches)
        assert web.min_ready(0) == 1
        assert web.min_ready(30 * SECOND) is None
        clock.advance(60)
        assert web.min_ready(30 * SECOND) == 1
        cluster.cut_watches()
        cluster.create(pod("b", app="web"))
        await until(lambda: len(web.pods) == 2)
        assert web.min_ready(30 * SECOND) == 1, "a watch that went on where it ended missed nothing"
        await until(lambda: cluster.open_watches)
        cluster.freeze_watches()
        cluster.create(pod("c", app="web"))
        cluster.compact()
        cluster.cut_watches()
        cluster.thaw_watches()
        await until(lambda: [request.verb for request in cluster.requests].count("list") == 2)
        await until(lambda: len(web.pods) == 3)
        assert web.min_ready(30 * SECOND) is None
        assert web.min_ready(0) == 3


# -- what goes wrong -----------------------------------------------------------------------------------------


async def test_a_watch_that_fails_is_out_of_date_at_once(cluster: Cluster) -> None:
    periods = ReflectorPeriods(backoff=0.01, backoff_limit=0.05, short_watch=0.02, stale=180)
    cluster.create(pod("a", app="web"))
    async with watching(cluster, periods=periods) as watch:
        assert watch.stale() == "no list of pods yet"
        await until(lambda: watch.synced and cluster.open_watches and not watch.stale())
        await cluster.down()
        await until(lambda: "cannot watch pods" in watch.stale())
        assert names(watch.select("default", WEB)) == ["a"], "pods stay while the API server is away"
        await cluster.up()
        await until(lambda: not watch.stale())


# -- what it costs -------------------------------------------------------------------------------------------


@pytest.mark.timeout(20)
def test_pods_are_out_of_the_garbage_collectors_sight(watch: PodCache) -> None:
    put(watch, pod("warm", app="web"))
    gc.collect()
    before = len(gc.get_objects())
    for number in range(2000):
        document = pod(f"web-{number:04}", app="web")
        document["status"]["startTime"] = (
            f"2026-01-01T{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}Z"
        )
        watch.put(pod_codec.POD_CODEC.decode(msgspec.json.encode(document)))
    gc.collect()
    assert len(gc.get_objects()) - before < 50


def test_many_are_notified_in_steps() -> None:
    watch = PodCache(unconnected())
    watch.synced = True
    told: list[int] = []
    for number in range(1200):
        Following(
            watch, "default", parse_selector(f"app=web-{number}"), f"default/{number}", lambda: told.append(1)
        )
    pauses = [len(told) for _ in watch.listed("")]
    assert len(told) == 1200
    assert max(after - before for before, after in itertools.pairwise([0, *pauses, 1200])) <= 50
    assert sum(1 for _ in watch.listed("elsewhere")) == 0
    assert len(told) == 1200, "the next list reports only the changes"


# --- requests of many resources -----------------------------------------------------------------------------


def _greedy(number: int, resources: int) -> bytes:
    requests = {f"example.com/resource-{number}-{each:05d}": "1" for each in range(resources)}
    container = {"name": "main", "resources": {"requests": {**requests, "cpu": "2", "memory": "1Gi"}}}
    named = {"name": f"p{number}", "namespace": "hostile"}
    return msgspec.json.encode({"metadata": named, "spec": {"containers": [container]}})


def _requests(number: int, resources: int) -> dict[str, int]:
    written = pod_codec.POD_CODEC.decode(_greedy(number, resources)).spec
    (container,) = pod_codec.share(written, pod_codec.build_key(written)).containers
    assert container.resources is not None
    return {name: quantity.milli for name, quantity in (container.resources.requests or {}).items()}


def test_of_a_container_that_requests_very_many_resources_cpu_and_memory_are_kept() -> None:
    assert _requests(0, 15_000) == {"cpu": 2000, "memory": 2**30 * 1000}
    assert len(_requests(0, pod_codec.MOST_RESOURCES - 2)) == pod_codec.MOST_RESOURCES


def test_pods_that_are_gone_leave_no_more_than_the_room_for_requests() -> None:
    tracemalloc.start()
    try:
        for number in range(3):
            _requests(number, 15_000)
        for number in range(600):
            _requests(number, pod_codec.MOST_RESOURCES - 2)
        gc.collect()
        taken = tracemalloc.take_snapshot().traces
    finally:
        tracemalloc.stop()

    # a larger block is the interpreter's table of interned names, which doubles at some point of a process
    assert sum(block.size for block in taken if block.size < 2**20) < pod_codec.REQUESTS_BYTES


def test_specs_are_the_same_by_their_text_however_long_it_is() -> None:
    one, same, other = (pod_codec.POD_CODEC.decode(_greedy(number, 500)).spec for number in (1, 1, 2))

    assert pod_codec.build_key(one) == pod_codec.build_key(same)
    assert pod_codec.build_key(one) != pod_codec.build_key(other)
    assert len(pod_codec.build_key(one)) == 32
