"""What is published of a raise."""

import pytest

from adapter.model import floors
from adapter.model.floors import Demotion, FloorEntry
from adapter.model.instants import SECOND, FineInstant, Span
from adapter.model.shards import Shard

ENTRY = FloorEntry(
    "shop", "web", "uid-1", 8, FineInstant(100 * SECOND), 4, FineInstant(7), seen="12", hold=Span(SECOND)
)


@pytest.mark.parametrize(
    ("entry", "now", "most", "floor"),
    [
        (None, 0, 10, 0),
        (ENTRY, 99 * SECOND, 10, 8),
        (ENTRY, 100 * SECOND, 10, 0),
        (ENTRY, 99 * SECOND, 5, 5),
        (FloorEntry(demoted=Demotion()), 0, 10, 0),
    ],
    ids=["none", "held", "over", "no more than may be", "demoted"],
)
def test_the_number(entry: FloorEntry | None, now: int, most: int, floor: int) -> None:
    assert floors.floor_of(entry, now, most) == floor


@pytest.mark.parametrize(
    "entry",
    [
        ENTRY,
        FloorEntry("a", "b", "c", shown=FineInstant(5), reversals=(FineInstant(3),)),
        FloorEntry("a", "b", "c", demoted=Demotion(FineInstant(1), "argocd", "abc")),
    ],
)
def test_there_and_back(entry: FloorEntry) -> None:
    assert floors.decode_entries({"c": floors.encode_entry(entry)}) == {"c": entry}


@pytest.mark.parametrize("text", ["", "{", "8", '{"replicas": "many"}', '{"until": "soon"}'])
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="not a floor"):
        floors.decode_entry(text)


def test_no_data() -> None:
    assert floors.decode_entries(None) == {}


def test_names() -> None:
    assert floors.config_map_name(Shard()) == "fastpath-floors"
    assert floors.config_map_name(Shard(2, 3)) == "fastpath-floors-2-of-3"
