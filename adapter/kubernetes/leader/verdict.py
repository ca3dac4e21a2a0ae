"""The decisions of a leader election, as pure functions: what a candidate may do, and the record it writes.

The rules are client-go's. A candidate never compares the times in a record with its own clock, because clocks
differ. It remembers when it first saw the present record, and takes the lease over once the record has stayed
the same for the lease duration.
"""

import enum
from dataclasses import dataclass
from typing import NamedTuple

from adapter.kubernetes.leader.lease import Lease, LeaseRecord, micro_time


@dataclass(frozen=True, slots=True)
class Election:
    """The settings of an election, with Kubernetes' names and defaults. All times are in seconds.

    `identity` is the Pod's name, an underscore and a UUID; `lease_name` is the name of the Lease in logs and
    metrics.
    """

    identity: str
    lease_name: str
    lease_duration: float = 15.0
    """Time after the last observed change at which others take over. The Lease contains it in whole
    seconds.
    """

    renew_deadline: float = 10.0
    """Time for which a leader goes on without a successful renewal."""

    retry_period: float = 2.0
    """Interval between attempts, and between renewals."""

    @property
    def attempt(self) -> float:
        """Timeout of one call: half the renew deadline, as in kube-controller-manager."""
        return self.renew_deadline / 2

    @property
    def tolerance(self) -> float:
        """How far monotonic and wall clock may diverge.

        Together with the renew deadline this stays below the lease duration.
        """
        return (self.lease_duration - self.renew_deadline) / 2


def pod_of(identity: str) -> str:
    """Return the name of the Pod in an identity."""
    return identity.rpartition("_")[0] or identity


# -- the verdict ---------------------------------------------------------------------------------------------


class Sighting(NamedTuple):
    """A record, and when it was first seen (monotonic seconds).

    `lease` is None after the Lease was deleted.
    """

    record: LeaseRecord
    since: float
    lease: Lease | None


def sight(before: Sighting | None, lease: Lease | None, now: float) -> Sighting | None:
    """Return the sighting after a Lease was read or written, None if there never was one.

    An unchanged record keeps the time at which it was first seen. A deleted Lease binds its followers for the
    rest of its duration, because its holder does not know yet.
    """
    if lease is None:
        return None if before is None else before._replace(lease=None)
    if before is not None and before.record == lease.record:
        return before._replace(lease=lease)
    return Sighting(lease.record, now, lease)


class Move(enum.Enum):
    """The next step of a candidate."""

    CREATE = "create"
    TAKE = "take"
    RENEW = "renew"
    WAIT = "wait"


class LeaseVerdict(NamedTuple):
    """A move; for WAIT with the seconds after which the lease expires if the record does not change."""

    move: Move
    wait: float = 0.0


def judge(seen: Sighting | None, identity: str, now: float) -> LeaseVerdict:
    """Judge a sighting at `now` in monotonic seconds; None means that no Lease was ever seen."""
    if seen is None:
        return LeaseVerdict(Move.CREATE)
    record = seen.record
    if record.holder != identity:
        left = seen.since + record.duration - now
        if record.holder and left > 0:
            return LeaseVerdict(Move.WAIT, left)
    if seen.lease is None:
        return LeaseVerdict(Move.CREATE)
    return LeaseVerdict(Move.RENEW if record.holder == identity else Move.TAKE)


def next_record(seen: Sighting | None, election: Election, wall: float) -> LeaseRecord:
    """Return the record to write. A renewal keeps acquireTime and leaseTransitions."""
    stamp = micro_time(wall)
    duration = int(election.lease_duration)
    if seen is None:
        return LeaseRecord(election.identity, duration, stamp, stamp, 0)
    before = seen.record
    if before.holder == election.identity:
        return LeaseRecord(election.identity, duration, before.acquired, stamp, before.transitions)
    return LeaseRecord(election.identity, duration, stamp, stamp, before.transitions + 1)


def released(record: LeaseRecord, wall: float) -> LeaseRecord:
    """Return the record of a released lease: no holder, and as in client-go a duration of one second."""
    stamp = micro_time(wall)
    return LeaseRecord("", 1, stamp, stamp, record.transitions)
