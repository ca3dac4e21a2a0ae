"""Shards: every autoscaler has exactly one, and the same everywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.model.autoscaling import shards
from adapter.model.autoscaling.shards import Shard


@given(st.text(), st.text(), st.integers(1, 50))
def test_every_autoscaler_belongs_to_exactly_one_shard(namespace: str, name: str, total: int) -> None:
    owners = [number for number in range(1, total + 1) if Shard(number, total).owns(namespace, name)]
    assert len(owners) == 1


def test_the_owner_never_changes_with_a_version() -> None:
    owners = [next(n for n in (1, 2, 3) if Shard(n, 3).owns("shop", f"web-{i}")) for i in range(12)]
    assert owners == [2, 2, 1, 1, 3, 1, 2, 1, 2, 1, 2, 2]


def test_shards_are_of_about_the_same_size() -> None:
    sizes = [sum(Shard(n, 4).owns("shop", f"web-{i}") for i in range(4000)) for n in (1, 2, 3, 4)]
    assert min(sizes) > 900


@pytest.mark.parametrize(
    ("text", "shard"), [("1/1", shards.WHOLE), ("2/3", Shard(2, 3)), ("1000/1000", Shard(1000, 1000))]
)
def test_a_shard_is_read_as_it_is_written(text: str, shard: Shard) -> None:
    assert shards.parse_shard(text) == shard
    assert str(shard) == text


@pytest.mark.parametrize(
    "text",
    ["", "1", "0/3", "4/3", "1/0", "-1/3", "1/3/", "a/b", "1 /3", "1/1001", "00001/3", "\u0661/3", "/", "1/"],
)
def test_an_invalid_shard_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="i/n with 1 <= i <= n <= 1000"):
        shards.parse_shard(text)


def test_the_lease_of_the_only_shard_has_the_plain_name() -> None:
    assert shards.WHOLE.lease_name("fastpath-scaler") == "fastpath-scaler"
    assert Shard(2, 3).lease_name("fastpath-scaler") == "fastpath-scaler-2-of-3"
