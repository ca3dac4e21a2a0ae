"""What a full collection looks at: what came since the last, and everything once memory has grown."""

import contextlib
import gc
import os
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapter.runtime import garbage
from adapter.runtime.garbage import GROWTH, ShortCollections

PAGE = os.sysconf("SC_PAGE_SIZE")


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


class Resident:
    """What the system says of the memory of the process."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(100 * 1024 * 1024)

    def set(self, used: int) -> None:
        self._file.write_text(f"0 {used // PAGE} 0")

    def hide(self) -> None:
        self._file.unlink()


@pytest.fixture
def resident(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Resident:
    monkeypatch.setattr(garbage, "STATM", tmp_path / "statm")
    return Resident(garbage.STATM)


def test_the_memory_of_the_process_is_known() -> None:
    used = garbage.resident_bytes()
    assert used is not None
    assert used > 1024 * 1024


def test_where_the_system_does_not_say_memory_is_unknown(resident: Resident) -> None:
    resident.hide()
    assert garbage.resident_bytes() is None


def test_a_cycle_that_came_since_the_last_full_collection_is_collected(resident: Resident) -> None:
    with short_collections():
        exists = weakref.ref(SelfCycle())
        gc.collect()
        assert exists() is None


def test_what_survives_is_looked_at_again_only_once_memory_has_grown(resident: Resident) -> None:
    with short_collections():
        node = SelfCycle()
        exists = weakref.ref(node)
        gc.collect()
        del node
        resident.set(100 * 1024 * 1024 + GROWTH)
        gc.collect()
        assert exists() is not None
        gc.collect(1)  # not a full one
        resident.set(100 * 1024 * 1024 + GROWTH + PAGE)
        gc.collect(1)
        assert exists() is not None
        gc.collect()
        assert exists() is None


def test_after_a_collection_of_everything_memory_may_grow_again(resident: Resident) -> None:
    with short_collections():
        resident.set(200 * 1024 * 1024)
        gc.collect()
        node = SelfCycle()
        exists = weakref.ref(node)
        gc.collect()
        del node
        gc.collect()
        assert exists() is not None
        resident.set(200 * 1024 * 1024 + GROWTH + PAGE)
        gc.collect()
        assert exists() is None


def test_freed_memory_goes_back_after_a_collection_of_everything(
    resident: Resident, monkeypatch: pytest.MonkeyPatch
) -> None:
    trimmed: list[int] = []
    monkeypatch.setattr(garbage, "_trim", trimmed.append)
    with short_collections():
        gc.collect()
        assert trimmed == []
        resident.set(200 * 1024 * 1024)
        gc.collect()
        gc.collect()
        assert trimmed == [0]
        monkeypatch.setattr(garbage, "_trim", None)
        resident.set(300 * 1024 * 1024)
        gc.collect()
    assert trimmed == [0]


def test_everything_is_collected_where_memory_is_unknown(resident: Resident) -> None:
    with short_collections():
        node = SelfCycle()
        exists = weakref.ref(node)
        gc.collect()
        del node
        resident.hide()
        gc.collect()
        assert exists() is None
