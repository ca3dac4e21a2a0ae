"""Floors as they are published: one entry for each boosted autoscaler whose raise is held, or that was demoted, in a ConfigMap.

Here: an entry, its text, and the number that is served of it. Not here: when a floor begins and ends (`autoscaler.decide.boost`), reading and
writing the ConfigMap (`boost.view`). Law: the number is that of an entry, or 0 where there is none; who cannot tell says so.
"""

from collections.abc import Mapping

import msgspec

from adapter.model.autoscaling.hpa import Int32, Struct, decode_scalar, encode_scalar
from adapter.model.shards import Shard, parse_shard
from adapter.model.timestamps import SECOND, FineInstant, Span

LABEL = "fastpath.io/floors"
"""On every ConfigMap with floors, with the value ``true``: readers find those of all shards by it."""

LONGEST = 600 * SECOND
"""How long a floor holds at most, shown or not."""

_NAME = "fastpath-floors"


class Demotion(Struct, frozen=True):
    """Boosting was ended because of another writer: who, until when at most, and the state (`Boosted.digest`) whose change ends it."""

    until: FineInstant = FineInstant(0)
    by: str = ""
    digest: str = ""


class FloorEntry(Struct, frozen=True):
    """What is published of one autoscaler.

    `replicas` holds until `until`; 0 is no floor. `raised_from` and `raised_at` are the last raise. `shown` is when the autoscaler was
    seen to know of it, `hold` how long it is held from then on, `stands` that the raise is known to have
    been made and was not taken back since. By `added` the count had grown lately before that raise: policies count it too. `seen` is
    the autoscaler's resource version that the writer had. `reversals` are when raises were taken back lately. `target` is
    the uid of what was raised, "" where it is not known. `excused` says that the native controller has once written what it had decided
    before the raise.
    """

    namespace: str = ""
    name: str = ""
    uid: str = ""
    replicas: Int32 = 0
    until: FineInstant = FineInstant(0)
    raised_from: Int32 = 0
    raised_at: FineInstant = FineInstant(0)
    shown: FineInstant | None = None
    seen: str = ""
    demoted: Demotion | None = None
    hold: Span = Span(0)
    reversals: tuple[FineInstant, ...] = ()
    stands: bool = False
    added: Int32 = 0
    target: str = ""
    excused: bool = False


def floor_of(entry: FloorEntry | None, now: int, most: int) -> int:
    """Return the floor at `now`, never more than the `most` replicas that the autoscaler allows today; 0 for none."""
    if entry is None or now >= entry.until:
        return 0
    return min(entry.replicas, most)


def as_known_for(entry: FloorEntry, known: int) -> FloorEntry:
    """Return an entry as it counts for a reader that has known it unchanged for so many nanoseconds.

    Its floor has ended after `LONGEST`. `until` is a time of day by the clock of the process that wrote it. If that was hours ahead and no
    scaler runs any more, nothing else would end the floor. No floor of a right clock is cut by this,
    because it is read after it was written.
    """
    return entry if known < LONGEST else msgspec.structs.replace(entry, replicas=0)


def encode_entry(entry: FloorEntry) -> str:
    """Return an entry as text."""
    return msgspec.json.encode(entry, enc_hook=encode_scalar).decode()


def decode_entry(text: str) -> FloorEntry:
    """Return the entry of a text; ValueError where it is none."""
    try:
        return msgspec.json.decode(text, type=FloorEntry, dec_hook=decode_scalar)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not a floor: {error}") from error


def decode_entries(data: Mapping[str, str] | None) -> dict[str, FloorEntry]:
    """Return the entries of a ConfigMap by uid; ValueError where one cannot be read."""
    return {uid: decode_entry(text) for uid, text in (data or {}).items()}


def config_map_name(shard: Shard) -> str:
    """Return the name of the ConfigMap of a shard."""
    return _NAME if shard.total == 1 else f"{_NAME}-{shard.number}-of-{shard.total}"


def shard_of(name: str) -> Shard | None:
    """Return the shard whose ConfigMap has that name, None for any other name."""
    if name == _NAME:
        return Shard()
    try:
        shard = parse_shard(name.removeprefix(f"{_NAME}-").replace("-of-", "/"))
    except ValueError:
        return None
    return shard if config_map_name(shard) == name else None
