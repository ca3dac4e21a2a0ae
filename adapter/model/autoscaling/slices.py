"""Slices: which of several scalers decides which autoscalers.

A namespace belongs to one of `COUNT` slices, by a hash that is the same in every process and version. So an
autoscaler, its target and its pods are in one slice. A slice has one owner at a time, which holds its Lease
(`kubernetes.ownership.slice_keeper`), and each scaler owns a fair share of the slices.

The hash is FNV-1a, of which the lowest bits count. Its highest bits hardly depend on the last characters:
``tenant-00`` to ``tenant-99`` have the same six highest bits, and would all belong to one slice.
"""

import functools
from collections.abc import Collection, Sequence
from typing import NamedTuple

COUNT = 64

_OFFSET, _PRIME, _MASK = 0xCBF29CE484222325, 0x100000001B3, 0xFFFFFFFFFFFFFFFF


def fnv1a(namespace: str) -> int:
    """Return the 64-bit FNV-1a hash of a name."""
    digest = _OFFSET
    for byte in namespace.encode():
        digest = (digest ^ byte) * _PRIME & _MASK
    return digest


@functools.lru_cache(maxsize=1 << 16)
def slice_of(namespace: str) -> int:
    """Return the number of the slice that a namespace belongs to, from 0 on."""
    return fnv1a(namespace) % COUNT


@functools.lru_cache(maxsize=1 << 10)
def name_of(prefix: str, number: int) -> str:
    """Return the name of an object of a slice."""
    return f"{prefix}-slice-{number:02d}"


def parse_name(prefix: str, name: str) -> int | None:
    """Return the slice whose object has this name, None for any other name."""
    digits = name.removeprefix(f"{prefix}-slice-")
    number = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) == 2 else COUNT
    return number if number < COUNT and name == name_of(prefix, number) else None


class SlicePlan(NamedTuple):
    """The slices that a scaler takes and releases now, and those that it takes once they are free."""

    take: Sequence[int]
    release: Sequence[int]
    expect: Sequence[int]


def plan(me: str, members: Collection[str], owners: Sequence[str]) -> SlicePlan:
    """Return what a member does so that all own the same number of slices, within one.

    `owners` are those of all slices, "" for a free one. What is above the share of a member, and what has an
    owner that is no member, is dealt out before it is free. All members with the same view take different
    slices, and go on with the same deal while the view changes by what they do. Where the slices do not
    divide evenly, those that own more keep one more, so that the least number of slices moves.
    """
    owned: dict[str, list[int]] = {member: [] for member in members}
    for number, owner in enumerate(owners):
        if owner in owned:
            owned[owner].append(number)
    share, more = divmod(COUNT, len(owned))
    ordered = sorted(owned, key=lambda member: (len(owned[member]) <= share, member))
    kept = {member: owned[member][: share + (place < more)] for place, member in enumerate(ordered)}
    rest = sorted(set(range(COUNT)).difference(*kept.values()))
    for place, member in enumerate(ordered):
        room = share + (place < more) - len(kept[member])
        dealt, rest = rest[:room], rest[room:]
        if member == me:
            take, expect = (
                [number for number in dealt if bool(owners[number]) is has] for has in (False, True)
            )
            return SlicePlan(take, owned[me][len(kept[me]) :], expect)
    raise ValueError(f"{me} is not among the members")
