"""What a full collection looks at: what came since the last, and everything once memory has grown."""

import contextlib
import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapter import garbage
from adapter.garbage import GROWTH, ShortCollections


class SelfCycle:
    """Part of a cycle with itself."""

    def __init__(self) -> None:
        self.itself = self


@contextlib.contextmanager
def short_collections() -> Iterator[None]:
    gc.disable()  # no collection comes in between
    try:
        with ShortCollections():
            yield
    finally:
        gc.enable()


@pytest.fixture
def resident(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """What the process says to use: the last one."""
    said: list[int | None] = [100 * 1024 * 1024]
    monkeypatch.setattr(garbage, "resident_bytes", lambda: said[-1])
    return said


def test_the_memory_of_the_process_is_known() -> None:
    used = garbage.resident_bytes()
    assert used is not None
    assert used > 1024 * 1024


def test_where_the_system_does_not_say_memory_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "STATM", Path("/proc/no-such-file"))
    assert garbage.resident_bytes() is None


def test_a_cycle_that_came_since_the_last_full_collection_is_collected(resident: list[int | None]) -> None:
    with short_collections():
        exists = weakref.ref(SelfCycle())
        gc.collect()
        assert exists() is None


def test_what_survives_is_looked_at_again_only_once_memory_has_grown(resident: list[int | None]) -> None:
    with short_collections():
        node = SelfCycle()
        exists = weakref.ref(node)
        gc.collect()
        del node
        resident.append(100 * 1024 * 1024 + GROWTH)
        gc.collect()
        assert exists() is not None
        gc.collect(1)  # not a full one
        resident.append(100 * 1024 * 1024 + GROWTH + 1)
        gc.collect(1)
        assert exists() is not None
        gc.collect()
        assert exists() is None


def test_after_a_collection_of_everything_memory_may_grow_again(resident: list[int | None]) -> None:
    with short_collections():
        resident.append(200 * 1024 * 1024)
        gc.collect()
        node = SelfCycle()
        exists = weakref.ref(node)
        gc.collect()
        del node
        gc.collect()
        assert exists() is not None
        resident.append(200 * 1024 * 1024 + GROWTH + 1)
        gc.collect()
        assert exists() is None


def test_freed_memory_goes_back_after_a_collection_of_everything(
    resident: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    trimmed: list[int] = []
    monkeypatch.setattr(garbage, "_trim", trimmed.append)
    with short_collections():
        gc.collect()
        assert trimmed == []
        resident.append(200 * 1024 * 1024)
        gc.collect()
        gc.collect()
        assert trimmed == [0]
        monkeypatch.setattr(garbage, "_trim", None)
        resident.append(300 * 1024 * 1024)
        gc.collect()
    assert trimmed == [0]


def test_everything_is_collected_where_memory_is_unknown(resident: list[int | None]) -> None:
    with short_collections():
        node = SelfCycle()
        exists = weakref.ref(node)
        gc.collect()
        del node
        resident.append(None)
        gc.collect()
        assert exists() is None
