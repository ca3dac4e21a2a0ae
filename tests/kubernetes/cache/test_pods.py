"""Pods as decisions need them.

What is kept of each, what selectors find, how few were ready, and what it costs.
"""

import contextlib
import gc
import itertools
import tracemalloc
from collections.abc import AsyncIterator, Sequence
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
from adapter.kubernetes.cache.pods import PodCache, PodSubscription
from adapter.kubernetes.cache.reflector import ReflectorPeriods
from adapter.model import pods as models
from adapter.model.autoscaling.hpa import decode_scalar
from adapter.model.autoscaling.scale_down import COST_ANNOTATION
from adapter.model.label_selectors import EVERYTHING, LabelSelector, parse_selector
from adapter.model.timestamps import SECOND
from fastpath_sandbox.apiserver.server import Cluster
from tests.kubernetes.apiclient import QUICK, reflecting, unconnected
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
    watch.reflectors[0].synced = True
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
        assert watch.count("") == 4
        found = watch.find("other", "a")
        assert found is not None
        assert (found.namespace, found.ip, found.host_network) == ("other", "10.1.2.3", False)
        assert found.ports == {"http": 8080, "metrics": 9090}
        assert watch.find("other", "b") is None
        assert watch.find("nowhere", "b") is None
        cluster.create(pod("d", app="web"))
        cluster.delete("pods", "a")
        await until(lambda: names(watch.select("default", WEB)) == ["b", "d"])
        cluster.patch("pods", "b", {"status": {"phase": "Succeeded"}})
        await until(lambda: (watch.find("default", "b") or found).phase == "Succeeded")
        assert [request.verb for request in cluster.requests] == ["list", "watch"]
        assert watch.count("") == 4
        assert watch.stale() == ""


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"status": {"phase": "Pending", "conditions": None, "startTime": None, "podIP": None}},
        {"status": {}},
        {"metadata": {"name": "p", "namespace": "default", "deletionTimestamp": "2026-01-01T00:01:00Z"}},
        {
            "spec": {
                "containers": [{"name": "m", "resources": {"requests": {"cpu": 1, "memory": 0.5}}}],
                "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": {}}],
                "resources": {"requests": {"cpu": "2"}},
                "overhead": {"cpu": "10m"},
                "hostNetwork": True,
            }
        },
        {"spec": {"containers": None}},
        {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "Unknown"}]}},
    ],
    ids=["whole", "pending", "nothing known", "terminating", "requests", "no containers", "no transition"],
)
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
    assert found.host_network is bool(document["spec"].get("hostNetwork"))


def test_what_cannot_be_read_is_absent(watch: PodCache) -> None:
    document = pod("p")
    document["spec"] = {
        "containers": [{"name": "m", "resources": {"requests": {"cpu": "much", "memory": "1Gi"}}}]
    }
    document["status"]["startTime"] = "yesterday"
    put(watch, document)
    (found,) = watch.select("default", EVERYTHING)
    assert found.started is None
    (container,) = found.containers
    assert container.resources is not None
    assert {name: str(value) for name, value in (container.resources.requests or {}).items()} == {
        "memory": "1Gi"
    }


def test_the_first_port_of_a_name_counts_and_none_of_those_who_have_ended(watch: PodCache) -> None:
    document = pod("a")
    document["spec"] = {
        "containers": [
            {"name": "main", "ports": [{"name": "metrics", "containerPort": 8080}]},
            {"name": "side", "ports": [{"name": "metrics", "containerPort": 9090}]},
        ],
        "initContainers": [
            {
                "name": "init",
                "ports": [{"name": "metrics", "containerPort": 1}, {"name": "gone", "containerPort": 2}],
            },
            {
                "name": "mesh",
                "restartPolicy": "Always",
                "ports": [
                    {"name": "mesh", "containerPort": 15020},
                    {"name": "metrics", "containerPort": 15090},
                ],
            },
        ],
    }
    put(watch, document)
    (found,) = watch.select("default", EVERYTHING)
    assert found.ports == {"metrics": 8080, "mesh": 15020}
    assert found.port_owners == {
        "metrics": "main",
        "8080": "main",
        "9090": "side",
        "mesh": "mesh",
        "15020": "mesh",
        "15090": "mesh",
    }


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
    assert [found.ports.keys() for found in watch.select("default", WEB)] == [{"http", "metrics"}, {"http"}]


def test_pods_and_selectors_that_are_gone_leave_nothing(watch: PodCache) -> None:
    selectors = [parse_selector(text) for text in ("app=web", "app!=web", "app")]
    kept = watch.follow("default", WEB, "default/web", ignored)

    def come_and_go(number: int) -> None:
        name, spec = f"web-{number}", {"containers": [{"name": f"container-{number}"}]}
        for namespace in ("default", f"tenant-{number}"):
            put(watch, pod(name, namespace, app="web", z=str(number)) | {"spec": spec})
            followed = [watch.follow(namespace, selector, name, ignored) for selector in selectors]
            assert followed[0].selected_by
            for following in followed:
                following.close()
            assert kept.selected_by == (("default/web",) if namespace == "default" else ())
            watch.remove(namespace, name)

    come_and_go(0)
    tracemalloc.start()
    try:
        for number in range(1, 201):
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
        web = watch.follow("default", WEB, "default/web", lambda: told.append("web"))
        watch.follow("default", parse_selector("app=db"), "default/db", lambda: told.append("db"))
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


@pytest.mark.parametrize(
    ("annotations", "cost"),
    [
        (None, None),
        ({"x": "y"}, None),
        ({COST_ANNOTATION: "-7", "x": "y"}, -7),
        ({COST_ANNOTATION: "2147483647"}, 2**31 - 1),
        ({COST_ANNOTATION: "many"}, None),
        ({COST_ANNOTATION: ""}, None),
    ],
)
def test_the_deletion_cost_of_a_pod(
    watch: PodCache, annotations: dict[str, str] | None, cost: int | None
) -> None:
    document = pod("a", app="web")
    put(watch, document)
    document["metadata"]["annotations"] = annotations
    put(watch, document)
    found = watch.find("default", "a")
    assert found is not None
    assert found.deletion_cost == cost


def test_who_selects_the_same_pods(watch: PodCache) -> None:
    web = watch.follow("default", WEB, "default/web", ignored)
    tier = watch.follow("default", parse_selector("tier in (front,back)"), "default/tier", ignored)
    again = watch.follow("default", WEB, "default/again", ignored)
    assert (web.selected_by, tier.selected_by) == ((), ())
    put(watch, pod("a", app="web"), pod("b", "other", app="web", tier="front"))
    expected: tuple[str, ...] = ("default/again", "default/web")
    assert (web.selected_by, again.selected_by, tier.selected_by) == (expected, expected, ())
    put(watch, pod("c", app="web", tier="front"))
    assert (web.selected_by, tier.selected_by) == (("default/again", "default/tier", "default/web"),) * 2
    again.close()
    assert (web.selected_by, tier.selected_by) == (("default/tier", "default/web"),) * 2
    put(watch, pod("c", app="web"))
    assert (web.selected_by, tier.selected_by) == (("default/web",), ())
    late = watch.follow("default", parse_selector("app"), "default/late", ignored)
    assert (web.selected_by, tier.selected_by) == (("default/late", "default/web"), ())
    late.close()
    assert (web.selected_by, tier.selected_by) == (("default/web",), ())


def test_a_callback_may_close_what_it_likes(watch: PodCache) -> None:
    kept: list[PodSubscription] = []

    def close() -> None:
        for following in kept:
            following.close()

    kept += [watch.follow("default", WEB, f"default/{number}", close) for number in range(3)]
    put(watch, pod("a", app="web"))
    late = watch.follow("default", WEB, "default/late", ignored)
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
        self.followed: dict[tuple[str, str], PodSubscription] = {}
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
        self.followed[namespace, text] = self.watch.follow(
            namespace, selector, f"{namespace}/{text}", ignored
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
    if age <= pod_selections.KEPT_SECONDS:
        ends = [at for at, _ in segments[1:]] + [now]
        assert history.largest(start) == max(
            count for end, (_, count) in zip(ends, segments, strict=True) if end >= start
        )
    if start < 1000.0 or age > pod_selections.KEPT_SECONDS:
        assert history.smallest(start, now) is None
        return
    ends = [at for at, _ in segments[1:]] + [now]
    assert history.smallest(start, now) == min(
        count for end, (_, count) in zip(ends, segments, strict=True) if end >= start
    )


def test_a_history_forgets() -> None:
    history = ReadyHistory(0, 0.0)
    for second in range(5000):
        history.record(second, float(second))
    assert len(history.past or ()) <= pod_selections.KEPT_SECONDS + 1
    assert history.peaks is None
    history.record(0, 5000.0)
    assert history.past is None
    assert history.largest(4000.0) == 4999


# -- when they became ready ----------------------------------------------------------------------------------


def started(name: str, *, ready: bool = True, at: str = "00:00:10", since: str = "00:00:20") -> JSON:
    """Return a pod that its kubelet started `at` a time of the first of January 2026."""
    document = pod(name, ready=ready, app="web")
    document["status"]["startTime"] = f"2026-01-01T{at}Z"
    document["status"]["conditions"][1]["lastTransitionTime"] = f"2026-01-01T{since}Z"
    return document


JANUARY = 1_767_225_600.0
"""The first of January 2026."""


def became_ready(watch: PodCache) -> dict[str, float]:
    """Return how many seconds ago pods became ready."""
    web = watch.follow("default", WEB, "default/web", ignored)
    return {name: watch.clock.monotonic() - time for name, time in web.became_ready.items()}


def test_a_pod_became_ready_when_the_watch_showed_it() -> None:
    clock = FakeClock(JANUARY + 1000)
    watch = alone(clock)
    put(watch, started("a", ready=False), started("b", ready=False))
    clock.advance(5)
    put(watch, started("a", since="00:00:00"))  # by the clock of its node
    clock.advance(2)
    put(watch, started("a") | {"metadata": started("a")["metadata"] | {"labels": {"app": "db"}}})
    assert became_ready(watch) == {"a": 2.0}
    assert watch.became_ready("default") == {"a": clock.monotonic() - 2}
    assert watch.became_ready("elsewhere") == {}


def test_a_pod_that_becomes_ready_again_is_not_new() -> None:
    clock = FakeClock(JANUARY + 1000)
    watch = alone(clock)
    put(watch, started("a"), started("b", ready=False))
    clock.advance(5)
    put(watch, started("b"))
    for ready in (False, True, False, True):
        clock.advance(1)
        put(watch, started("a", ready=ready), started("b", ready=ready))
    assert became_ready(watch) == {"b": 4.0}


def test_another_pod_of_the_same_name_is_new() -> None:
    clock = FakeClock(JANUARY + 1000)
    watch = alone(clock)
    put(watch, started("a"), started("b"), started("c"))
    watch.remove("default", "a")
    put(watch, started("a", ready=False, at="00:10:00"), started("a", at="00:10:00"))
    assert became_ready(watch) == {"a": 0.0}

    clock.advance(1)
    pending = started("b", ready=False)
    del pending["status"]["startTime"]
    put(watch, pending, started("b", ready=False, at="00:11:00"), started("b", at="00:11:00"))
    put(watch, started("c", at="00:16:00", since="00:16:30"))  # only the next list shows it
    assert became_ready(watch) == {"a": 1.0, "b": 0.0, "c": 10.0}


def test_a_pod_that_ends_is_forgotten() -> None:
    watch = alone(FakeClock(JANUARY + 30))
    put(watch, started("a", ready=False), started("a"))
    watch.remove("default", "a")
    assert became_ready(watch) == {}


@pytest.mark.parametrize(
    ("wall", "ago"),
    [
        pytest.param(20, 0.0, id="in this second"),
        pytest.param(30, 9.0, id="before the start"),
        pytest.param(10, 0.0, id="the clock of the node is ahead"),
        pytest.param(21 + pod_selections.RECENT_SECONDS, None, id="not lately"),
    ],
)
def test_pods_that_are_listed_ready_have_the_time_of_their_condition(wall: float, ago: float | None) -> None:
    watch = alone(FakeClock(JANUARY + wall))
    put(watch, started("a"))
    assert became_ready(watch) == ({} if ago is None else {"a": ago})


def test_what_is_not_recent_is_forgotten() -> None:
    clock = FakeClock(JANUARY + 5000)
    watch = alone(clock)
    for name in "abc":
        put(watch, started(name, ready=False), started(name))
        clock.advance(pod_selections.RECENT_SECONDS / 2)
    assert became_ready(watch).keys() == set("bc")
    clock.advance(pod_selections.RECENT_SECONDS)
    assert became_ready(watch) == {}


async def test_after_a_new_list_the_past_is_unknown(cluster: Cluster) -> None:
    clock = ShiftedClock()
    cluster.create(pod("a", app="web"))
    async with watching(cluster, clock=clock) as watch:
        web = watch.follow("default", WEB, "default/web", ignored)
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


def test_a_pod_that_says_nothing_new_changes_nothing(watch: PodCache) -> None:
    put(watch, pod("a", app="web"))
    told: list[int] = []
    web = watch.follow("default", WEB, "default/web", lambda: told.append(1))
    before = web.pods
    put(watch, pod("a", app="web") | {"status": pod("a")["status"] | {"message": "still here"}})
    assert web.pods is before
    assert told == []


def test_many_are_notified_in_steps() -> None:
    watch = PodCache(unconnected())
    watch.reflectors[0].synced = True
    told: list[int] = []
    for number in range(1200):
        watch.follow(
            "default", parse_selector(f"app=web-{number}"), f"default/{number}", lambda: told.append(1)
        )
    pauses = [len(told) for _ in watch.listed("")]
    assert len(told) == 1200
    assert max(after - before for before, after in itertools.pairwise([0, *pauses, 1200])) <= 50
    assert sum(1 for _ in watch.listed("elsewhere")) == 0
    assert len(told) == 1200, "the next list reports only the changes"


# --- requests of many resources -----------------------------------------------------------------------------


def _greedy(number: int, resources: int) -> bytes:
    requests = {f"example.com/resource-{number}-{each:05d}": "1" for each in range(resources)}
    spec = {
        "containers": [{"name": "main", "resources": {"requests": {**requests, "cpu": "2", "memory": "1Gi"}}}]
    }
    return msgspec.json.encode({"metadata": {"name": f"p{number}", "namespace": "hostile"}, "spec": spec})


def _read_spec(text: bytes) -> pod_codec.SharedSpec:
    written = pod_codec.POD_CODEC.decode(text).spec
    return pod_codec.share(written, pod_codec.build_key(written))


def test_of_a_container_that_requests_very_many_resources_cpu_and_memory_are_kept() -> None:
    (container,) = _read_spec(_greedy(0, 15_000)).containers
    assert container.resources is not None
    assert container.resources.requests is not None
    assert {name: quantity.milli for name, quantity in container.resources.requests.items()} == {
        "cpu": 2000,
        "memory": 2**30 * 1000,
    }
    (usual,) = _read_spec(_greedy(0, pod_codec.MOST_RESOURCES - 2)).containers
    assert usual.resources is not None
    assert usual.resources.requests is not None
    assert len(usual.resources.requests) == pod_codec.MOST_RESOURCES


def test_pods_that_are_gone_leave_no_more_than_the_room_for_requests() -> None:
    tracemalloc.start()
    try:
        _read_spec(_greedy(0, 15_000))
        before = tracemalloc.get_traced_memory()[0]
        for number in range(1, 4):
            _read_spec(_greedy(number, 15_000))
        for number in range(300):
            _read_spec(_greedy(number, pod_codec.MOST_RESOURCES - 2))
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert taken < 1.5 * pod_codec.REQUESTS_BYTES


def test_specs_are_the_same_by_their_text_however_long_it_is() -> None:
    one, same, other = (pod_codec.POD_CODEC.decode(_greedy(number, 500)).spec for number in (1, 1, 2))

    assert pod_codec.build_key(one) == pod_codec.build_key(same)
    assert pod_codec.build_key(one) != pod_codec.build_key(other)
    assert len(pod_codec.build_key(one)) == 32
