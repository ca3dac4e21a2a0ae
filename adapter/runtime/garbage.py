"""Garbage collections that stop the event loop for milliseconds.

A full collection looks at every object that can be part of a cycle. With 10,000 autoscalers of 5 pods these
are 250,000, which takes 0.2 s, every few seconds. Nearly all live as long as the process or its caches, which
free them without the collector. So what survives a full collection is frozen, and the next one looks only at
what came after. Cycles of frozen objects that end later are not found, so once memory has grown, everything
is collected again. Then glibc is told to give freed memory back to the system: buffers of large lists leave
gaps between objects that stay, which it would keep.
"""

import ctypes
import gc
import os
from pathlib import Path
from typing import Literal

GROWTH = 32 * 1024 * 1024
"""Bytes by which memory grows between two collections of everything."""

_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""What gives freed memory back, None where the C library has no such function."""

STATM = Path("/proc/self/statm")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int | None:
    """Return the resident memory of this process, None where the system does not say."""
    try:
        return int(STATM.read_bytes().split()[1]) * _PAGE
    except OSError:
        return None


class ShortCollections:
    """A callback of the collector within a ``with`` block, which begins by freezing what exists."""

    def __init__(self) -> None:
        self._most = 0
        self._is_whole = False

    def __enter__(self) -> None:
        gc.freeze()
        self._most = (resident_bytes() or 0) + GROWTH
        gc.callbacks.append(self.follow)

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self.follow)

    def follow(self, phase: Literal["start", "stop"], info: dict[str, int]) -> None:
        if info["generation"] < 2:
            return
        if phase == "stop":
            gc.freeze()
            if self._is_whole and _trim is not None:
                _trim(0)
            self._is_whole = False
            return
        resident = resident_bytes()
        if resident is None or resident > self._most:
            gc.unfreeze()
            self._is_whole = True
            self._most = (resident or 0) + GROWTH
