"""What a reflector keeps while slices come and go: histories of all kinds, with an API server in memory."""

import asyncio
import contextlib
import itertools
import random
import re
from collections.abc import AsyncIterator, Callable, Collection
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adapter import errors
from adapter.kubernetes.cache import scope as scopes
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.cache.scope import Coverage, SliceScope
from adapter.kubernetes.cache.store import ObjectCache
from adapter.kubernetes.client import ListWatch
from adapter.kubernetes.codec import PARTIAL_METADATA, PartialMetadata, Unreadable, WatchEvent
from adapter.model.autoscaling import slices
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.kubernetes.apiclient import PODS
from tests.support.clock import FakeClock
from tests.support.waiting import running

NAMESPACES = [f"tenant-{number}" for number in range(8)]
SLICES = sorted({slices.slice_of(namespace) for namespace in NAMESPACES})
STABLE = "stable"
"""The object of each namespace that is there from the beginning and never deleted."""


class ShardedServer:
    """Answers lists and watches; lists take turns of the loop, and may break off or be older than what is."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.version = 1
        self.objects = {(namespace, STABLE): 1 for namespace in NAMESPACES}
        self.log: list[WatchEvent[PartialMetadata]] = []
        self.is_sharded = self.refuses = False
        self.sent = 0
        """The number of objects that were sent."""
        self.failures = 0.0
        self.breaks_off = False
        self.lists: list[str] = []
        self.versions: list[str] = []
        """Those that lists named."""
        self.is_expired = False
        """Whether the next watch names a version that is too old."""
        self.watches = 0
        self._changed = asyncio.Event()

    def change(self, namespace: str, name: str, *, delete: bool = False) -> None:
        if delete and self.objects.pop((namespace, name), None) is None:
            return
        self.version += 1
        if not delete:
            self.objects[namespace, name] = self.version
        changed = PartialMetadata(name, namespace, None, str(self.version))
        self.log.append(WatchEvent("DELETED" if delete else "MODIFIED", changed, str(self.version)))
        self._changed.set()

    async def turns(self) -> None:
        for _ in range(self.dice.randrange(4)):
            await asyncio.sleep(0)

    def refuse(self, source: ListWatch[Any]) -> None:
        if self.refuses and source.shard_selector:
            raise errors.KubernetesError(414, "URITooLong", "cannot")

    def selects(self, source: ListWatch[Any], namespace: str) -> bool:
        """Tell whether an object is sent; hashes are compared as the API server does."""
        if not self.is_sharded or not source.shard_selector:
            return source.namespace in {"", namespace}
        ranges = re.findall(
            r"\(object\.metadata\.namespace, '(0x\w{16})', '(0x\w{16})'\)", source.shard_selector
        )
        assert len(ranges) == source.shard_selector.count("||") + 1
        digest = slices.fnv1a(namespace)
        return any(int(begin, 16) <= digest < int(end, 16) for begin, end in ranges)

    def fail(self) -> None:
        if self.dice.random() < self.failures:
            raise errors.KubernetesError(self.dice.choice([0, 410, 429, 500, 503]), "reason", "cannot")

    async def list_objects(
        self,
        source: ListWatch[Any],
        deliver: Callable[[list[Any]], None],
        *,
        resource_version: str,
        lose: Callable[[Unreadable], None],
    ) -> str:
        self.lists.append(source.namespace)
        self.versions.append(resource_version)
        await self.turns()
        self.refuse(source)
        self.fail()
        state, version = dict(self.objects), self.version
        for (namespace, name), seen in state.items():
            if not self.selects(source, namespace):
                continue
            self.sent += 1
            await self.turns()
            keeps = source.codec.keeps
            if source.namespace in {"", namespace} and (keeps is None or keeps(namespace)):
                deliver([PartialMetadata(name, namespace, None, str(seen))])
        if self.breaks_off:
            raise errors.KubernetesError(0, "reset", "cannot")
        self.fail()
        assert version >= int(resource_version or 0)
        return str(version)

    @contextlib.asynccontextmanager
    async def watch_objects(
        self, source: ListWatch[Any], *, resource_version: str, **_: float
    ) -> AsyncIterator[AsyncIterator[list[WatchEvent[PartialMetadata]]]]:
        await self.turns()
        self.refuse(source)
        self.fail()
        if self.is_expired:
            self.is_expired = False
            raise errors.KubernetesError(410, "Expired", "cannot")
        self.watches += 1

        async def events() -> AsyncIterator[list[WatchEvent[PartialMetadata]]]:
            sent = int(resource_version)
            while True:
                self._changed.clear()
                for event in [event for event in self.log if int(event.version) > sent]:
                    await self.turns()
                    self.fail()
                    assert event.object is not None
                    if not self.selects(source, event.object.namespace):
                        sent = int(event.version)
                        continue
                    self.sent += 1
                    kept = source.codec.keeps is None or source.codec.keeps(event.object.namespace)
                    sent = int(event.version)
                    yield [event if kept else WatchEvent("BOOKMARK", None, event.version)]
                if self.version == sent or not self.log:
                    await self._changed.wait()

        yield events()


class ScopedReflector:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.server = ShardedServer(self.dice)
        self.scope = SliceScope()
        clock, monitoring = FakeClock(), Monitoring()
        problems = ProblemLog(monitoring, clock)

        async def sleep(_: float) -> None:
            await asyncio.sleep(0)

        client: Any = self.server  # has all that a reflector calls
        context = ReflectorContext(client, clock, monitoring, problems, lambda: 0.0, sleep, scope=self.scope)
        source, listed = ListWatch(PARTIAL_METADATA, PODS), lambda: iter([None] * self.dice.randrange(4))
        self.cache = ObjectCache(source, context, lambda *_: None, "pods", listed=listed)
        self._required: set[str] = set()
        """The namespaces that were complete, and are in the scope since."""
        self._seen: dict[tuple[str, str], int] = {}
        self._deleted: dict[tuple[str, str], int] = {}

    def expected(self) -> dict[tuple[str, str], str]:
        objects = self.server.objects.items()
        return {key: str(seen) for key, seen in objects if slices.slice_of(key[0]) in self.scope.slices}

    def stored(self) -> dict[tuple[str, str], str]:
        return {(obj.namespace, obj.name): obj.resource_version for obj in self.cache}

    def is_complete(self, number: int) -> bool:
        coverages = self.scope.coverages
        return bool(coverages) and all(number in one.complete for one in coverages)

    def is_ready(self, number: int) -> bool:
        """Tell whether a slice is complete, and all known namespaces with it."""
        coverages = self.scope.coverages
        is_current = all(not one.differs for one in coverages)
        return number in self.scope.slices and self.is_complete(number) and is_current

    def set_scope(self, numbers: Collection[int]) -> None:
        self._required -= {name for name in NAMESPACES if slices.slice_of(name) not in numbers}
        self.scope.set(numbers)

    def check(self) -> None:
        """A slice that was complete lacks nothing, no object becomes older, and no deleted one is back."""
        stored = {key: int(version) for key, version in self.stored().items()}
        names = self.scope.own_names()
        unsent = set() if names is None or not self.server.is_sharded else {*NAMESPACES} - names
        for namespace in NAMESPACES:
            if namespace not in unsent and self.is_ready(slices.slice_of(namespace)):
                self._required.add(namespace)
            assert namespace not in self._required or (namespace, STABLE) in stored
        for key, version in stored.items():
            assert version >= self._seen.get(key, 0), f"{key} went back to {version}"
            assert version > self._deleted.get(key, 0), f"{key} is back"
        for key, version in self._seen.items():
            is_sent = key[0] not in unsent
            if key not in stored and is_sent and self.is_complete(slices.slice_of(key[0])):
                self._deleted[key] = version
        self._seen = stored

    def know(self, names: Collection[str]) -> None:
        """Have these namespaces known."""
        for name in names:
            self.scope.note_namespace(name, exists=True)
        self.scope.know_namespaces()

    async def turn(self, times: int = 1) -> None:
        for _ in range(times):
            await asyncio.sleep(0)
            self.check()

    async def settle(self) -> None:
        for _ in range(3_000):
            is_complete = self.cache.synced and all(map(self.is_complete, self.scope.slices))
            if is_complete and self.stored() == self.expected():
                return
            await self.turn()
        raise AssertionError(f"{self.stored()} after all, and not {self.expected()}")


@settings(max_examples=50)
@given(
    st.integers(0, 1 << 32),
    st.sampled_from([0.0, 0.05, 0.3]),
    st.sampled_from(["unknown", "known", "sharded", "refused"]),
)
@example(4789972, 0.3, "sharded")  # a slice goes and comes while the watch of namespaces is late
async def test_what_is_kept_is_what_there_is_of_the_slices(seed: int, failures: float, names: str) -> None:
    """Whether namespaces are known or not, and the API server selects by them, ignores or refuses that."""
    world = ScopedReflector(seed)
    dice, server = world.dice, world.server
    server.is_sharded, server.refuses = names == "sharded", names == "refused"
    if names != "unknown":
        world.know(NAMESPACES[: dice.randrange(len(NAMESPACES) + 1)])
    async with running(world.cache.run()):
        server.failures = failures
        for _ in range(60):
            if dice.random() < 0.25:
                world.set_scope(set(dice.sample(SLICES, dice.randrange(len(SLICES) + 1))))
                if dice.random() < 0.1:
                    world.set_scope(range(slices.COUNT))
            if names != "unknown" and dice.random() < 0.2:
                world.know(NAMESPACES)
            name = dice.choice([STABLE, "one", "two"])
            server.change(dice.choice(NAMESPACES), name, delete=name != STABLE and dice.random() < 0.5)
            await world.turn(dice.randrange(30))
        server.failures = 0.0
        if names != "unknown":
            world.know(NAMESPACES)
        await world.settle()


async def test_only_objects_of_the_slices_are_sent() -> None:
    world, numbers = ScopedReflector(0), SLICES[:2]
    world.server.is_sharded = True
    world.know(NAMESPACES[:-1])
    world.set_scope(numbers)
    async with running(world.cache.run()):
        await world.settle()
        assert world.server.sent == 2
        for namespace in NAMESPACES:
            world.server.change(namespace, "one")
        await world.settle()
        assert world.server.sent == 4
        world.set_scope(())
        await world.settle()
        for namespace in NAMESPACES:
            world.server.change(namespace, "two")
        await world.turn(50)
        assert world.server.sent == 4


async def test_a_slice_that_comes_is_not_listed_at_a_version_that_the_server_may_not_have() -> None:
    """Its cache of a kind begins again when the definition is changed, and may be behind for long then."""
    world = ScopedReflector(0)
    world.know(NAMESPACES)
    world.set_scope(SLICES[:1])
    async with running(world.cache.run()):
        await world.settle()
        world.server.is_expired = True
        world.set_scope(SLICES[:2])
        await world.settle()
        await world.turn(50)
        world.set_scope(SLICES[:3])
        await world.settle()
        assert world.server.versions == ["0", "1", "", ""]
        for namespace in NAMESPACES:
            world.server.change(namespace, "one")
        await world.settle()
        world.set_scope(SLICES[:4])
        await world.settle()
        assert world.server.versions[-1] != "", "the cache has what the watch has shown"


async def test_a_namespace_that_is_known_late_is_listed_once_no_selector_is_left() -> None:
    """The selector hid it, and goes when the scaler has all slices; the watch goes on from where it was."""
    world = ScopedReflector(0)
    world.server.is_sharded = True
    world.know(NAMESPACES[1:])
    world.set_scope(SLICES)
    async with running(world.cache.run()):
        await world.turn(200)
        assert ("tenant-0", STABLE) not in world.stored()
        world.set_scope(range(slices.COUNT))
        await world.settle()


def test_a_list_names_the_namespaces_of_objects_that_are_stored() -> None:
    """The watch of namespaces may be late, and what a list lacks is removed."""
    scope = SliceScope()
    scope.know_namespaces()
    scope.note_namespace("tenant-1", exists=True)
    scope.set({slices.slice_of(name) for name in NAMESPACES[:2]})
    coverage = Coverage(scope)
    coverage.begin(NAMESPACES)
    assert coverage.selector.count("shardRange") == 2
    coverage.end()
    assert not coverage.differs


def test_too_many_namespaces_are_not_named() -> None:
    scope = SliceScope()
    coverage = Coverage(scope)
    scope.know_namespaces()
    names = (f"tenant-{number}" for number in itertools.count())
    ours = (name for name in names if slices.slice_of(name))  # those of one slice are others'
    for name in itertools.islice(ours, scopes.MOST_SELECTED):
        scope.note_namespace(name, exists=True)
    scope.set(range(1, slices.COUNT))
    coverage.begin(())
    assert coverage.selector.count("shardRange") == scopes.MOST_SELECTED
    scope.note_namespace(next(ours), exists=True)
    coverage.begin(())
    assert coverage.selector == ""


@pytest.mark.parametrize(
    ("most", "before", "are_many"),
    [
        pytest.param(len(NAMESPACES) - 1, [], True, id="many"),
        pytest.param(len(NAMESPACES), [], False, id="not many"),
        pytest.param(0, SLICES[2:], False, id="a quarter of all"),
        pytest.param(0, SLICES[3:], True, id="more than a quarter"),
    ],
)
async def test_many_namespaces_at_once_are_one_list(
    monkeypatch: pytest.MonkeyPatch,
    most: int,
    before: Collection[int],
    are_many: bool,  # noqa: FBT001 - a parameter
) -> None:
    monkeypatch.setattr(scopes, "MOST_NAMESPACES", most)
    world = ScopedReflector(0)
    world.set_scope(before)
    async with running(world.cache.run()):
        await world.settle()
        world.set_scope(range(slices.COUNT))
        await world.settle()
    new = [name for name in NAMESPACES if slices.slice_of(name) not in before]
    assert world.server.lists == ["", *([""] if are_many else new)]


async def test_a_scaler_waits_for_the_objects_of_a_slice_in_all_caches() -> None:
    world, number = ScopedReflector(0), slices.slice_of("tenant-0")
    world.set_scope(())
    async with running(world.cache.run()):
        await world.settle()
        world.set_scope({number})
        waiting = asyncio.create_task(world.scope.wait_for(number))
        await asyncio.sleep(0)
        assert not waiting.done()
        await waiting
        assert ("tenant-0", STABLE) in world.stored()
    # one that has ended is not waited for
    await world.scope.wait_for(SLICES[-1])


async def test_a_scaler_waits_until_what_is_wanted_is_there_and_nothing_else() -> None:
    world = ScopedReflector(0)
    world.set_scope(SLICES)
    async with running(world.cache.run()):
        await world.scope.wait_complete()  # before its first list a reflector has no answers
        await world.settle()
        await world.scope.wait_complete()
        for wanted in (set(), {SLICES[0]}, {SLICES[1], SLICES[2]}):
            world.set_scope(wanted)
            await world.scope.wait_complete()
            assert {slices.slice_of(namespace) for namespace, _ in world.stored()} == wanted


@pytest.mark.looptime
async def test_a_first_list_waits_for_the_plan_and_not_for_ever() -> None:
    world = ScopedReflector(0)
    async with running(world.cache.run()):
        await asyncio.sleep(0)
        assert world.server.lists == []
        await world.cache.attempted.wait()
        assert world.cache.synced
        assert world.stored() == {}


def test_a_scaler_with_all_slices_looks_at_no_namespace() -> None:
    coverage = Coverage(SliceScope.of_everything())
    coverage.begin(())
    assert coverage.is_whole


def test_cluster_scoped_objects_are_kept() -> None:
    assert Coverage(SliceScope()).keeps("")


def test_events_from_before_a_list_are_skipped_until_the_watch_is_there() -> None:
    coverage = Coverage(SliceScope())
    coverage._listed = {"a": 20, "b": 30}
    seen = [("a", "20"), ("a", "21"), ("b", "30"), ("c", "1"), ("d", "1"), ("a", "opaque")]
    assert [coverage.is_listed(*each) for each in seen] == [True, False, True, False, False, False]
    assert [coverage.is_listed(*each) for each in itertools.product("ab", ["31", "1"])] == [False] * 4
