"""Sharding: which autoscalers a process scales if several processes share them, by the flag ``--shard i/n``.

Every autoscaler belongs to exactly one of the n shards, by a hash of its namespace and name that is the same
in every process and version. Each shard has a leader and a Lease of its own (`kubernetes.leader_election`).
Leases of different n do not exclude each other: a change of n needs every process of the old n stopped first.
"""

import hashlib
from typing import NamedTuple

LIMIT = 1000
"""Maximum shard count; larger values are rejected as typos."""


class Shard(NamedTuple):
    """The shard `number` (counted from 1) of `total`."""

    number: int = 1
    total: int = 1

    def owns(self, namespace: str, name: str) -> bool:
        if self.total == 1:
            return True
        digest = hashlib.blake2b(f"{namespace}/{name}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) % self.total == self.number - 1

    def lease_name(self, name: str) -> str:
        """Return the name of the shard's Lease: `name` itself if there is only one shard."""
        return name if self.total == 1 else f"{name}-{self.number}-of-{self.total}"

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"


WHOLE = Shard()
"""All autoscalers."""


def parse_shard(text: str) -> Shard:
    """Return the shard that a text such as ``2/3`` names; else ValueError with what was expected."""
    number, slash, count = text.partition("/")
    digits = all(part.isascii() and part.isdigit() and len(part) <= 4 for part in (number, count))
    if not slash or not digits or not 1 <= int(number) <= int(count) <= LIMIT:
        raise ValueError(f"i/n with 1 <= i <= n <= {LIMIT}, such as 1/3 for the first of three")
    return Shard(int(number), int(count))
