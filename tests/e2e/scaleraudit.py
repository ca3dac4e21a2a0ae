"""An audit of several scalers: their writes of Scales, Leases and pods, from the audit log of the API server.

Resource versions order all writes, so who owned a slice when a Scale was stored does not depend on clocks.
The times are those at which the API server had answered. A scaler is known by its group: the audit log has
the groups of each client, and all scalers are one user.
"""

import datetime as dt
import json
import math
from bisect import bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from adapter.kubernetes.credentials import pod_of
from adapter.model.autoscaling import slices
from tests.world.scalewrites import Place

NAME = "fastpath-scaler"
"""What the Leases of the scalers have in common."""

GROUP = "scaler:"
"""What the group of a scaler begins with; its pod follows."""


IN_FLIGHT = 2.0
"""How many seconds a write may take."""


EARLY, LATE = 2.0, 5.0
"""For how long a scaler may not have looked at a load that falls, and how late it may see a raise."""


class LeaseWrite(NamedTuple):
    version: int
    time: float
    holder: str


class ScaleWrite(NamedTuple):
    """A Scale that was stored: `version` is the target's then, `decided_from` the one that the PUT named."""

    version: int
    time: float
    after: int
    by: str
    decided_from: int


class PodPatch(NamedTuple):
    """A patch of a pod, stored or refused with this HTTP status, by a field manager."""

    time: float
    pod: Place
    status: int
    by: str
    annotations: Mapping[str, str]


class Step(NamedTuple):
    """From a time on, the load of an autoscaler needs so many replicas."""

    time: float
    replicas: int


class Reaction(NamedTuple):
    """The seconds from a step upwards to a Scale for it; without one, to the next fall or the end."""

    target: Place
    step: Step
    seconds: float
    is_written: bool
    owner: str
    """The pod that owned the slice when the load stepped."""


class ScalerAudit:
    """The writes in a log so far; `read` adds what is new."""

    def __init__(self, log: Path, namespace: str) -> None:
        """The scalers have their Leases in `namespace`."""
        self._log = log
        self._namespace = namespace
        self._offset = 0
        self._leases: dict[str, list[LeaseWrite]] = defaultdict(list)
        self._scales: dict[Place, list[ScaleWrite]] = defaultdict(list)
        self._counts: dict[Place, list[tuple[int, int]]] = defaultdict(list)
        self._unsure: dict[Place, list[ScaleWrite]] = defaultdict(list)
        self.patches: list[PodPatch] = []
        self.conflicts = 0

    def read(self) -> None:
        with self._log.open("rb") as log:
            log.seek(self._offset)
            text = log.read()
        whole, _, _ = text.rpartition(b"\n")
        self._offset += len(whole) + bool(whole)
        for line in whole.splitlines():
            self.saw(json.loads(line))
        for target, writes in self._unsure.items():
            self._unsure[target] = [write for write in writes if not self._was_stored(target, write)]

    def saw(self, event: Mapping[str, Any]) -> None:
        """Take one event of the log."""
        reference, status = event["objectRef"], event["responseStatus"]["code"]
        time = dt.datetime.fromisoformat(event["stageTimestamp"]).timestamp()
        if reference["resource"] == "pods":
            pod = Place(reference["namespace"], reference["name"])
            request = event.get("requestObject")  # a list where a test patches a pod by JSON patch
            asked = (request.get("metadata") if isinstance(request, dict) else None) or {}
            managers = parse_qs(urlsplit(event["requestURI"]).query).get("fieldManager", [""])
            self.patches.append(PodPatch(time, pod, status, managers[0], asked.get("annotations") or {}))
            return
        is_stored = 200 <= status < 300
        version = int(event["responseObject"]["metadata"]["resourceVersion"]) if is_stored else 0
        if reference.get("subresource") == "scale":
            if not is_stored and "requestObject" not in event:
                return  # its client was gone before all of it had arrived
            asked, target = event["requestObject"], Place(reference["namespace"], reference["name"])
            groups = [each for each in event["user"].get("groups", ()) if each.startswith(GROUP)]
            # a patch of another client has no metadata
            decided_from = asked.get("metadata", {}).get("resourceVersion")
            by = "".join(groups).removeprefix(GROUP)
            write = ScaleWrite(version, time, asked["spec"].get("replicas", 0), by, int(decided_from or 0))
            if is_stored:
                self._add(target, write)
            elif status >= 500:  # its client was gone
                self._unsure[target].append(write)
            else:
                self.conflicts += 1
        elif is_stored and reference["namespace"] == self._namespace:
            holder = event["responseObject"]["spec"].get("holderIdentity") or ""
            # a name that the API server was to make is not in the reference
            writes = self._leases[event["responseObject"]["metadata"]["name"]]
            insort(writes, LeaseWrite(version, time, holder))

    def saw_target(self, document: Mapping[str, Any]) -> None:
        """Take a Deployment of a watch: the log does not tell whether a write without response was stored."""
        metadata = document["metadata"]
        counts = self._counts[Place(metadata["namespace"], metadata["name"])]
        counts.append((int(metadata["resourceVersion"]), document["spec"].get("replicas", 0)))

    def _add(self, target: Place, write: ScaleWrite) -> None:
        insort(self._scales[target], write)

    def _was_stored(self, target: Place, write: ScaleWrite) -> bool:
        """Add a write that got no response if it is what the target became after its version."""
        version, replicas = next(
            (
                (version, replicas)
                for version, replicas in self._counts[target]
                if version > write.decided_from
            ),
            (0, -1),
        )
        if replicas == write.after and all(version != each.version for each in self.of(target)):
            self._add(target, write._replace(version=version))
            return True
        return False

    # -- who owned what --------------------------------------------------------------------------------------

    def owner(self, namespace: str, *, version: int | None = None, time: float | None = None) -> str:
        """Return the identity of the owner of the slice of a namespace, now or then, "" for none."""
        holder = self._holder(slices.name_of(NAME, slices.slice_of(namespace)), version, time)
        member = self._holder(f"{NAME}-member-{holder.rpartition('_')[2]}", version, time)
        return holder if member == holder else ""

    def shares(self) -> Counter[str]:
        """Return how many slices each pod owns."""
        holders = (self._holder(slices.name_of(NAME, number)) for number in range(slices.COUNT))
        return Counter(map(pod_of, filter(None, holders)))

    def owners(self, namespace: str, begin: float, end: float) -> Sequence[LeaseWrite]:
        """Return the changes of the owner of the slice of a namespace in a time."""
        writes = self._leases[slices.name_of(NAME, slices.slice_of(namespace))]
        return [write for write in writes if begin <= write.time <= end]

    def _holder(self, name: str, version: int | None = None, time: float | None = None) -> str:
        writes = self._leases.get(name, [])
        if version is not None:
            place = bisect_right(writes, version, key=lambda each: each.version)
        elif time is not None:
            place = bisect_right(writes, time, key=lambda each: each.time)
        else:
            place = len(writes)
        return writes[place - 1].holder if place else ""

    def released(self, namespace: str, pod: str, decided: float) -> LeaseWrite | None:
        """Return when another pod released a slice that `pod` took then, and first `decided`; None for none.

        The `holder` is the owner of before.
        """
        writes = self.owners(namespace, 0.0, decided)
        held = [at for at, write in enumerate(writes) if pod_of(write.holder) == pod]
        owned = [at for at in range(held[-1] if held else 0) if writes[at].holder]
        if not owned or pod_of(writes[owned[-1]].holder) == pod:
            return None
        before, taken = writes[owned[-1]], writes[owned[-1] + 1 :]
        membership = self._leases.get(f"{NAME}-member-{before.holder.rpartition('_')[2]}", [])
        ends = [
            write.time for write in [*taken, *membership] if not write.holder and write.time > before.time
        ]
        return before._replace(time=min(ends)) if ends else None

    # -- what was written ------------------------------------------------------------------------------------

    def of(self, target: Place) -> Sequence[ScaleWrite]:
        return self._scales.get(target, ())

    @property
    def targets(self) -> Sequence[Place]:
        """The targets that were scaled."""
        return list(self._scales)

    def count(self, target: Place, initial: int) -> int:
        return self._scales[target][-1].after if self._scales.get(target) else initial

    def doubles(self, target: Place, initial: int) -> Iterator[str]:
        """Yield the writes that one scaler would not have sent, and why. The target began with `initial`."""
        before = ScaleWrite(0, 0.0, initial, "", 0)
        for write in self.of(target):
            owner = pod_of(self.owner(target.namespace, version=write.version))
            if write.by != owner:
                yield f"{target}: {write} by another than the owner, {owner or 'none'}"
            if not before.version <= write.decided_from < write.version:
                yield f"{target}: {write} was not decided from the version that it replaces"
            if write.after == before.after:
                yield f"{target}: {write} says what {before} has said"
            before = write

    def unjournalled(
        self,
        target: Place,
        pod: str,
        journal: Sequence[tuple[int, int]],
        since: float,
        initial: int,
        frozen: float = math.inf,
    ) -> Iterator[str]:
        """Yield how the journal of a pod differs from what it wrote.

        The journal has the count before and after of each write, all that were answered before `since`. It
        may lack one that was answered when the pod was `frozen`, or did not own the slice any more.
        """
        writes, rest = self.of(target), list(journal)
        before = initial
        for write in writes:
            change, before = (before, write.after), write.after
            if write.by != pod:
                continue
            owner = pod_of(self.owner(target.namespace, time=write.time + IN_FLIGHT))
            if rest and rest[0] == change:
                rest.pop(0)
            elif write.time < since and owner == pod and abs(write.time - frozen) > IN_FLIGHT:
                yield f"{target}: {pod} has {list(journal)} in its journal, without {change} of {[*writes]}"
        if rest:
            yield f"{target}: {pod} has {list(journal)} in its journal, and has written {[*writes]}"

    def wrong(self, target: Place, steps: Sequence[Step], initial: int, window: float) -> Iterator[str]:
        """Yield the writes that one scaler would not have decided from the steps of the load.

        That shrinks to no less than what was needed at any time of the stabilization `window`, and writes no
        count that was not needed then. A raise that it has not seen yet excuses it, and so does a last look
        at the load some time before the fall.
        """
        before = initial
        for write in self.of(target):
            recent = _needed(steps, write.time - window - LATE, write.time)
            held = _needed(steps, write.time - window + EARLY, write.time - LATE)
            if write.after < before and write.after < max(held, default=0):
                yield f"{target}: {write} shrinks {before} while {max(held)} was needed within {window:g} s"
            elif write.after not in recent:
                yield f"{target}: {write} when {sorted(recent)} were needed"
            before = write.after

    def reactions(self, target: Place, steps: Sequence[Step], initial: int, end: float) -> Iterator[Reaction]:
        """Yield the reaction to each step upwards that needs more than there was."""
        writes = self.of(target)
        for at, step in enumerate(steps):
            earlier = [write.after for write in writes if write.time < step.time]
            if (earlier[-1] if earlier else initial) >= step.replicas:
                continue
            until = next((later.time for later in steps[at:] if later.replicas < step.replicas), end)
            written = next(
                (each.time for each in writes if each.time >= step.time and each.after >= step.replicas), None
            )
            is_written = written is not None and written <= until
            last = written if written is not None and is_written else until
            owner = pod_of(self.owner(target.namespace, time=step.time))
            yield Reaction(target, step, last - step.time, is_written, owner)


def _needed(steps: Sequence[Step], begin: float, end: float) -> set[int]:
    """Return the counts that were needed at any time from `begin` to `end`."""
    first = bisect_right(steps, begin, key=lambda step: step.time)
    last = bisect_right(steps, end, key=lambda step: step.time)
    return {step.replicas for step in steps[max(0, first - 1) : last]}
