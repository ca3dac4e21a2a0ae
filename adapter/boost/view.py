"""Reads the published floors: one shared list of ConfigMaps, requested when an answer needs it.

An HPA that reads an old 0 reverts a raise. A cache that a watch fills cannot tell whether it is behind, so
it could not answer a 0. Therefore nothing is watched: each answer waits for a list that is sent after its
request has come in. Requests that come in while a list is under way share the next one. If a list fails,
`recent` still has the floors of the last one for `STALE` seconds; `adapter.boost.provider` says what for.
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from adapter import errors
from adapter.kubernetes.client import KubernetesClient, ListWatch
from adapter.kubernetes.write.config_map import CODEC, StoredFloors
from adapter.model.autoscaling import floor as floors
from adapter.model.autoscaling.floor import LABEL, Floor
from adapter.model.clock import Clock
from adapter.model.objects.label_selectors import parse_selector
from adapter.model.objects.resources import APIResource
from adapter.model.timestamps import SECOND
from adapter.telemetry.problems import ProblemLog

STALE = 10.0
"""For how many seconds after it was sent a list is used in place of one that failed."""

CONFIRM = 2.0
"""The longest time, in seconds, that an answer waits for its list."""

LIST_SECONDS = 3.0
"""The time limit of a list."""

OVERLAP = 0.25
"""For how many seconds the next list waits for one under way. After that both are under way: a stuck list
must not delay the answers behind it.
"""

PROBLEM = "floor-read"

CONFIG_MAPS = APIResource("", "v1", "configmaps", "configmap", "ConfigMap", True, frozenset(), preferred=True)
SELECTOR = parse_selector(f"{LABEL}=true")

_STEP = 500  # floors decoded before other tasks may run, a few ms


class KnownFloor(NamedTuple):
    """A floor, its text, and when this process first read it as it is, in monotonic seconds."""

    uid: str
    text: str
    floor: Floor
    since: float


class PublishedFloors:
    """The floors of all slices as one list found them. `sent` and `now` are monotonic seconds."""

    def __init__(self, sent: float, config_maps: Mapping[str, tuple[str, Mapping[str, KnownFloor]]]) -> None:
        self.sent = sent
        self.config_maps = config_maps
        """By name: the resource version of each ConfigMap and its floors by uid."""
        self._by_hpa: dict[tuple[str, str], list[KnownFloor]] = {}
        for _, known in config_maps.values():
            for entry in known.values():
                self._by_hpa.setdefault((entry.floor.namespace, entry.floor.name), []).append(entry)

    def find(self, namespace: str, name: str, now: float) -> Iterator[tuple[str, Floor]]:
        """Iterate over the floors of the HPAs that have, or had, this name, each with the uid of its HPA.

        There may be several: of an HPA that was created again.
        """
        for known in self._by_hpa.get((namespace, name), ()):
            yield known.uid, floors.as_known_for(known.floor, round((now - known.since) * SECOND))


class FloorView:
    """The floors that are published in `namespace`. Lists are sent while `run` runs."""

    def __init__(self, client: KubernetesClient, clock: Clock, namespace: str, problems: ProblemLog) -> None:
        self.namespace = namespace
        self._client = client
        self._clock = clock
        self._problems = problems
        self._last = PublishedFloors(float("-inf"), {})
        self._lists: asyncio.TaskGroup | None = None
        self._next: asyncio.Task[PublishedFloors | str] | None = None
        self._under_way: set[asyncio.Task[PublishedFloors | str]] = set()

    async def run(self) -> None:
        """Run the lists that `current` starts, until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._lists:
                await asyncio.get_running_loop().create_future()
        finally:
            self._lists = self._next = None

    async def current(self) -> PublishedFloors:
        """Return the floors from a list that is sent after this call.

        `errors.NotSyncedError` if the list fails or takes longer than `CONFIRM`. A caller that is cancelled
        does not cancel the list, because others wait for it.
        """
        if self._lists is None:
            raise errors.NotSyncedError("this process does not read floors now")
        if self._next is None:
            self._next = self._lists.create_task(self._list(), name="list floors")
        listing = self._next
        await asyncio.wait({listing}, timeout=CONFIRM)
        if not listing.done():
            raise errors.NotSyncedError(f"cannot read the floors: no answer within {CONFIRM:g} s")
        if listing.cancelled():
            raise errors.NotSyncedError("the process is shutting down")
        result = listing.result()
        if isinstance(result, str):
            raise errors.NotSyncedError(f"the floors cannot be read: {result}")
        return result

    def recent(self) -> PublishedFloors | None:
        """Return the floors of the last list that succeeded, None if it is older than `STALE`."""
        return self._last if self._clock.monotonic() - self._last.sent <= STALE else None

    async def _list(self) -> PublishedFloors | str:
        """Return what a list found, or why it failed. Callers share this task until it sends its request."""
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=OVERLAP)
        task = asyncio.current_task()
        assert task is not None
        self._next = None
        self._under_way.add(task)
        sent = self._clock.monotonic()
        stored: list[StoredFloors] = []
        try:
            async with asyncio.timeout(LIST_SECONDS):
                await self._client.list_objects(
                    ListWatch(CODEC, CONFIG_MAPS, self.namespace, SELECTOR),
                    stored.extend,
                    resource_version="",  # consistent: not from a cache of the API server that may be behind
                )
            maps = {every.name: (every.version, await self._decode(every)) for every in stored}
        except TimeoutError:
            return self._failed(f"no answer within {LIST_SECONDS:g} s")
        except (errors.KubernetesError, ValueError) as error:
            return self._failed(str(error))
        finally:
            self._under_way.discard(task)
        published = PublishedFloors(sent, maps)
        if sent > self._last.sent:
            self._last = published
        self._problems.resolve(PROBLEM)
        return published

    async def _decode(self, stored: StoredFloors) -> dict[str, KnownFloor]:
        """Decode the floors of a ConfigMap; ValueError if one cannot be read.

        One that has not changed since the last list keeps the time since when it is known.
        """
        _, before = self._last.config_maps.get(stored.name, ("", {}))
        known: dict[str, KnownFloor] = {}
        now = self._clock.monotonic()
        for count, (uid, text) in enumerate(stored.texts.items(), 1):
            entry = before.get(uid)
            if entry is None or entry.text != text:
                try:
                    entry = KnownFloor(uid, text, floors.decode_floor(text), now)
                except ValueError as error:
                    where = f"the entry {uid} of the ConfigMap {self.namespace}/{stored.name}"
                    raise ValueError(f"{where} cannot be read: {error}") from error
            known[uid] = entry
            if count % _STEP == 0:
                await asyncio.sleep(0)
        return known

    def _failed(self, why: str) -> str:
        self._problems.report(PROBLEM, "the floors cannot be read; boosted HPAs do not scale down", why)
        return why
