"""Which autoscalers a process answers for when several share them: the setting ``--shard i/n``, as a value.

The law: every autoscaler belongs to exactly one of the n shards, told by its namespace and name alone, the same in every process and
version. Who leads a shard is the Lease's affair (`kubernetes.leader.election`). Leases of different n know nothing of each other: a
change of n needs every process of the old n gone first.
"""

import hashlib
from typing import NamedTuple

LIMIT = 1000
"""The most shards that are believed; more would be a slip of the keyboard."""


class Shard(NamedTuple):
    """The shard `number` (counted from 1) of `total`."""

    number: int = 1
    total: int = 1

    def owns(self, namespace: str, name: str) -> bool:
        """Tell whether the autoscaler NAMESPACE/NAME belongs to this shard."""
        if self.total == 1:
            return True
        digest = hashlib.blake2b(f"{namespace}/{name}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) % self.total == self.number - 1

    def lease_name(self, name: str) -> str:
        """Return the name of the shard's Lease: `name` itself where there is only one shard."""
        return name if self.total == 1 else f"{name}-{self.number}-of-{self.total}"

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"


WHOLE = Shard()
"""All autoscalers."""


def parse_shard(text: str) -> Shard:
    """Return the shard that a text such as ``2/3`` names; ValueError with what was expected otherwise."""
    number, slash, count = text.partition("/")
    digits = all(part.isascii() and part.isdigit() and len(part) <= 4 for part in (number, count))
    if not slash or not digits or not 1 <= int(number) <= int(count) <= LIMIT:
        raise ValueError(f"i/n with 1 <= i <= n <= {LIMIT}, such as 1/3 for the first of three")
    return Shard(int(number), int(count))
