"""The ConfigMaps with published floors as they are known: which floors stand in them, and which version of two is the newer.

What lives here: `FloorMaps`, and the form in which such a ConfigMap is read. Not here: reading them, and how old what is known may be
(`floors`). The law: what is known only goes forward, whatever comes late: a list, an event, an answer. Resource versions are compared as
the numbers that they are. An entry that cannot be read is a fault, and never no entry.

A floor that has not changed for as long as any floor may hold has ended, whatever time of day it says,
counted from when this process first saw it.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from adapter import errors
from adapter.autoscaler.decide import boost as boosting
from adapter.boost.floor import LONGEST, FloorEntry, as_known_for, decode_entry, floor_of, shard_of
from adapter.kubernetes.codec import ObjectCodec
from adapter.model.clock import Clock
from adapter.model.timestamps import SECOND

_STEP = 500  # entries decoded at once, a few ms
_NO_TEXTS: Mapping[str, str] = MappingProxyType({})
_NO_ENTRIES: Mapping[str, FloorEntry] = MappingProxyType({})
_NO_TIMES: Mapping[str, float] = MappingProxyType({})


class ReadMap(NamedTuple):
    """A ConfigMap as it was read: `texts` are what stands in it."""

    name: str
    version: str
    texts: Mapping[str, str]


class _Metadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    name: str = ""
    resource_version: str = ""


class _ConfigMap(msgspec.Struct, frozen=True, gc=False):
    metadata: _Metadata = _Metadata()
    data: dict[str, str] | None = None


def _keep(document: _ConfigMap) -> ReadMap:
    return ReadMap(document.metadata.name, document.metadata.resource_version, document.data or {})


FORM = ObjectCodec(_ConfigMap, _keep)


class _Known(NamedTuple):
    """What is known of a ConfigMap as of a version; one that is gone has no texts.

    `fault` says which entry cannot be read, `since` is when each entry was first seen as it is, in monotonic seconds, and `expires` when the first
    floor has held for `LONGEST`.
    """

    version: int
    texts: Mapping[str, str] = _NO_TEXTS
    entries: Mapping[str, FloorEntry] = _NO_ENTRIES
    fault: str = ""
    since: Mapping[str, float] = _NO_TIMES
    expires: float = math.inf
    is_stored: bool = False


_NOTHING = _Known(0)


class FloorMaps:
    """What is known of the ConfigMaps with floors in `namespace`."""

    def __init__(self, clock: Clock, namespace: str) -> None:
        self.newest = 0
        """The newest version that was seen of anything."""
        self._clock = clock
        self._namespace = namespace
        self._maps: dict[str, _Known] = {}
        self._listed = 0
        self._subscribers: dict[object, Callable[[str], None]] = {}

    # -- what is known ---------------------------------------------------------------------------------------------------

    def find(self, uid: str) -> FloorEntry | None:
        """Return what is published of the autoscaler of a uid; of several entries the one with the greatest floor now."""
        self._expire()
        found = [entry for each in self._maps.values() if (entry := each.entries.get(uid)) is not None]
        return max(found, key=self._rank, default=None)

    def entries(self) -> Mapping[str, FloorEntry]:
        """Return all that is published, by uid; otherwise as `find`."""
        self._expire()
        held = [each.entries for each in self._maps.values() if each.entries]
        if len(held) == 1:
            return MappingProxyType(held[0])
        found: dict[str, FloorEntry] = {}
        for each in held:
            for uid, entry in each.items():
                other = found.get(uid)
                found[uid] = entry if other is None else max(other, entry, key=self._rank)
        return found

    def leftovers(self, total: int) -> list[tuple[str, str]]:
        """Return names and versions of the ConfigMaps of shards of another total in which nothing counts any more."""
        self._expire()
        now = int(self._clock.wall() * SECOND)
        return [
            (name, str(known.version))
            for name, known in self._maps.items()
            if known.is_stored
            and not known.fault
            and (shard := shard_of(name)) is not None
            and shard.total != total
            if all(boosting.is_over(entry, now) for entry in known.entries.values())
        ]

    def fault(self) -> str:
        """Return which entry cannot be read, a sentence; "" for none."""
        return next((each.fault for each in self._maps.values() if each.fault), "")

    def stored(self, name: str) -> tuple[int, Mapping[str, str]]:
        """Return what is known of a ConfigMap: the version in which it was, or was gone, and its texts."""
        known = self._maps.get(name, _NOTHING)
        return known.version, known.texts

    def subscribe(self, changed: Callable[[str], None]) -> Callable[[], None]:
        """Have `changed` called with the uid of each entry that came, went or changed; return what ends that."""
        key = object()
        self._subscribers[key] = changed

        def end() -> None:
            self._subscribers.pop(key, None)

        return end

    def _rank(self, entry: FloorEntry) -> tuple[int, int]:
        return floor_of(entry, int(self._clock.wall() * SECOND), entry.replicas), entry.until

    # -- taking over -----------------------------------------------------------------------------------------------------

    def put(self, read: ReadMap) -> Iterator[None]:
        """Take over a ConfigMap unless what is known of it is newer; yield wherever other work may run."""
        version = number(read.version)
        if not self._is_news(read.name, version):
            return
        old = self._maps.get(read.name, _NOTHING)
        entries: dict[str, FloorEntry] = {}
        fault, now, since = "", self._clock.monotonic(), dict[str, float]()
        for count, (uid, text) in enumerate(read.texts.items(), 1):
            since[uid] = old.since.get(uid, now) if old.texts.get(uid) == text else now
            try:
                entries[uid] = (
                    old.entries[uid] if old.texts.get(uid) == text and not old.fault else decode_entry(text)
                )
            except ValueError as error:
                fault = (
                    f"the entry {uid} of the ConfigMap {self._namespace}/{read.name} cannot be read: {error}"
                )
                entries = {}
                break
            if count % _STEP == 0:
                yield
        expires = _first_end(entries, since)
        self._replace(read.name, _Known(version, read.texts, entries, fault, since, expires, is_stored=True))

    def put_all(self, listed: int, found: list[ReadMap]) -> Iterator[None]:
        """Take over a list of that version: what is not in it is gone. Otherwise as `put`."""
        for each in found:
            yield from self.put(each)
        for name in self._maps.keys() - {each.name for each in found}:
            self.gone(name, listed)
        self._listed = max(self._listed, listed)
        self.newest = max(self.newest, listed)

    def gone(self, name: str, version: int) -> None:
        """Note that a ConfigMap was not there any more in that version."""
        self._replace(name, _Known(version))

    def _is_news(self, name: str, version: int) -> bool:
        """Tell whether a version of a ConfigMap is newer than what is known of it; where it is not known, a list said so."""
        known = self._maps.get(name)
        return version > (self._listed if known is None else known.version)

    def _replace(self, name: str, new: _Known) -> None:
        if not self._is_news(name, new.version):
            return
        old = self._maps.get(name, _NOTHING)
        self._maps[name] = new
        self.newest = max(self.newest, new.version)
        self._tell(old.entries, new.entries)

    def _expire(self) -> None:
        """End the floors that have been known for too long."""
        now = self._clock.monotonic()
        for name, known in self._maps.items():
            if now >= known.expires:
                entries = {
                    uid: as_known_for(entry, round((now - known.since[uid]) * SECOND))
                    for uid, entry in known.entries.items()
                }
                self._maps[name] = known._replace(entries=entries, expires=_first_end(entries, known.since))

    def forget(self) -> None:
        """Know nothing any more."""
        maps, self._maps = self._maps, {}
        self._listed = self.newest = 0
        for each in maps.values():
            self._tell(each.entries, _NO_ENTRIES)

    def _tell(self, old: Mapping[str, FloorEntry], new: Mapping[str, FloorEntry]) -> None:
        changed = [uid for uid in old.keys() | new.keys() if old.get(uid) != new.get(uid)]
        for each in list(self._subscribers.values()):
            for uid in changed:
                each(uid)


def _first_end(entries: Mapping[str, FloorEntry], since: Mapping[str, float]) -> float:
    return (
        min((since[uid] for uid, entry in entries.items() if entry.replicas), default=math.inf)
        + LONGEST / SECOND
    )


def number(version: str) -> int:
    """Return a resource version as what it is compared as; KubernetesError for one that is no number."""
    if not (version.isascii() and version.isdigit()):
        raise errors.KubernetesError(0, "Decode", f"the resource version {version[:50]!r} is no number")
    return int(version)
