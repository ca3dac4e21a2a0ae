"""From the time that a clock on the wall shows to instants, also where the clock is set.

A local time is a naive `datetime`. Where a clock is set forward, it skips local times; where it is set back,
it shows some twice. Two questions have one answer in all cases:

- `first_at`: the first instant at which the clock shows a local time or a later one. Of a time that the clock
  skips that is the first instant after the gap, of one that it shows twice the first.
- `end_of`: the instant right after the last one at which the clock shows an earlier time. Of a skipped time
  that is the end of the gap, of one that is shown twice the second.

Instants are whole seconds since 1970 in UTC.
"""

import bisect
import functools
import itertools
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

_EPOCH = datetime.fromtimestamp(0, UTC).replace(tzinfo=None)
_DAY = 86_400
_STEP = 3 * 3600
"""How often, in seconds, a day is searched for a change of the offset: no zone changes it and back within."""
_AROUND = 2
"""Days on each side of a local time, as if it were UTC, that are searched: no clock is off by that much."""


class _OffsetPiece(NamedTuple):
    """From `start` on, until `end`, local time is `offset` seconds ahead of UTC."""

    start: int
    end: int
    offset: int


def read_zone(name: str) -> ZoneInfo | None:
    """Return the zone of a name of the tz database, None for another name.

    Names are chosen by tenants. `ZoneInfo` imports a package for each part of an unknown name, which takes
    milliseconds and ends in RecursionError for hundreds of parts, so it is only given names that exist.
    """
    return ZoneInfo(name) if name in _zone_names() else None


@functools.cache
def _zone_names() -> frozenset[str]:
    return frozenset(available_timezones() - {"localtime"})


def read_date(text: str) -> date | None:
    """Return the date of a text such as ``2026-12-25``, None for another text."""
    try:
        return date.fromisoformat(text) if re.fullmatch("[0-9]{4}-[0-9]{2}-[0-9]{2}", text) else None
    except ValueError:
        return None


def first_at(local: datetime, zone: ZoneInfo) -> int:
    """Return the first instant at which the clock of a zone shows a local time or a later one."""
    seconds = _seconds(local)
    pieces = _pieces(seconds, zone)
    instants = ((max(piece.start, seconds - piece.offset), piece.end) for piece in pieces)
    return next(instant for instant, end in instants if instant < end)


def end_of(local: datetime, zone: ZoneInfo) -> int:
    """Return the instant right after the last one at which the clock shows a time before a local time."""
    seconds = _seconds(local)
    pieces = reversed(_pieces(seconds, zone))
    instants = ((min(piece.end, seconds - piece.offset), piece.start) for piece in pieces)
    return next(instant for instant, start in instants if instant > start)


def offset_at(instant: int, zone: ZoneInfo) -> int:
    """Return by how many seconds the clock is ahead of UTC at an instant."""
    offset = datetime.fromtimestamp(instant, UTC).astimezone(zone).utcoffset()
    assert offset is not None
    return round(offset.total_seconds())


def local_at(instant: int, zone: ZoneInfo) -> datetime:
    return _EPOCH + timedelta(seconds=instant + offset_at(instant, zone))


def transitions(start: int, end: int, zone: ZoneInfo) -> list[int]:
    """Return the instants from `start` to `end`, exclusive, at which the clock is set."""
    days = range(start // _DAY, (end - 1) // _DAY + 1) if end > start else ()
    return [instant for day in days for instant in _transitions(day, zone) if start <= instant < end]


@functools.lru_cache(maxsize=4096)
def steady_midnight(day: date, zone: ZoneInfo) -> int | None:
    """Return the instant of a day's midnight; None if the clock is set on the day or within a day of it.

    Each time of such a day is as many seconds later as it is since midnight.
    """
    seconds, pieces = pieces_of(day, zone)
    return seconds - pieces[0].offset if len(pieces) == 1 else None


@functools.lru_cache(maxsize=1024)
def pieces_of(day: date, zone: ZoneInfo) -> tuple[int, Sequence[_OffsetPiece]]:
    """Return the midnight of a day as if it were UTC, and the pieces of the time around the day.

    The first piece whose clock ends later than a local time of the day has the `first_at` of that time: the
    instant at which it shows the time, or its start if the clock skipped the time before it.
    """
    seconds = _seconds(datetime.combine(day, time()))
    return seconds, _pieces(seconds, zone, after=_AROUND + 1)


def _seconds(local: datetime) -> int:
    """Return a local time as if it were UTC."""
    return round((local - _EPOCH).total_seconds())


def _pieces(seconds: int, zone: ZoneInfo, after: int = _AROUND) -> Sequence[_OffsetPiece]:
    start, end = seconds - _AROUND * _DAY, seconds + after * _DAY
    edges = [start, *transitions(start + 1, end, zone), end]
    return [_OffsetPiece(one, other, offset_at(one, zone)) for one, other in itertools.pairwise(edges)]


@functools.lru_cache(maxsize=4096)
def _transitions(day: int, zone: ZoneInfo) -> tuple[int, ...]:
    """Return the instants of a day, counted from 1970 in UTC, at which the clock is set."""
    changes = []
    before = offset_at(day * _DAY - 1, zone)
    for low in range(day * _DAY, (day + 1) * _DAY, _STEP):
        high = low + _STEP - 1
        after = offset_at(high, zone)
        if after != before:
            changes.append(_first_change(low, high, before, zone))
            before = after
    return tuple(changes)


def _first_change(low: int, high: int, before: int, zone: ZoneInfo) -> int:
    """Return the first instant from `low` to `high` whose offset is not `before`; that of `high` is not."""
    return low + bisect.bisect_left(range(low, high), True, key=lambda at: offset_at(at, zone) != before)
