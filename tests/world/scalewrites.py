"""An audit of every change of a target's replicas: writer, counts, time, and whether a raise was reversed.

The audit reads the objects as a cluster stored them, those of one kind in their order. Of two kinds the
resource versions tell which was first: each kind has a watch of its own, and one may be behind another. The
audit counts what a booster wrote, not what the booster says of itself. A published floor only adds to what is
held.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from adapter.model.autoscaling import floor as floors
from adapter.model.autoscaling.floor import Floor
from adapter.model.timestamps import span_of
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.store import Change

NATIVE = "kube-controller-manager"
BOOSTER = "fastpath"
TOLERANCE = 0.1

Document = Mapping[str, Any]


class Place(NamedTuple):
    """A target, or an autoscaler."""

    namespace: str
    name: str


class Write(NamedTuple):
    """A count that was written in place of another.

    `time` is seconds, `by` the field manager, and `version` the resource version of the target.
    """

    time: float
    target: Place
    before: int
    after: int
    by: str
    version: int


class Reversal(NamedTuple):
    """A raise that was taken back. `excuse` is why it is not counted, "" where it is."""

    write: Write
    floor: int
    excuse: str


class _Published(NamedTuple):
    """What one ConfigMap held from a resource version on."""

    version: int
    entries: Mapping[str, Floor]


class _Held:
    """The raises of one target by the booster, each for `hold` from its time on."""

    def __init__(self) -> None:
        self.raises: list[Write] = []
        self.excused: set[float] = set()

    def floor(self, now: float, hold: float) -> int:
        return max((each.after for each in self.raises if now <= each.time + hold), default=0)


class Audit:
    """Judges the targets of a cluster.

    `now` gives epoch seconds; `hold` is for how long a raise must not be taken back.

    `hold` is at most the hold of the booster.
    """

    def __init__(self, now: Callable[[], float], hold: float, *, booster: str = BOOSTER) -> None:
        self.writes: list[Write] = []
        self.reversals: list[Reversal] = []
        self._published: dict[Place, list[_Published]] = {}
        self._now = now
        self._hold = hold
        self._booster = booster
        self._held: dict[Place, _Held] = {}
        self._counts: dict[Place, int] = {}
        self._statuses: dict[Place, Document] = {}
        self._autoscalers: dict[Place, tuple[Place, str]] = {}
        self._undecided: dict[Place, list[int]] = {}

    @property
    def entries(self) -> dict[str, Floor]:
        """The floors that are published now, by uid."""
        return {uid: entry for each in self._published.values() for uid, entry in each[-1].entries.items()}

    @property
    def unpublished(self) -> list[Write]:
        """The raises of the booster that were written before a floor for them was published."""
        return [each for held in self._held.values() for each in held.raises if not self._is_published(each)]

    @property
    def counted(self) -> list[Reversal]:
        """The reversals that count."""
        return [each for each in self.reversals if not each.excuse]

    def of(self, name: str, by: str | None = None, since: float = 0.0) -> list[Write]:
        """Return the writes to the targets of one name since a time, of one field manager or of all."""
        return [
            each
            for each in self.writes
            if each.target.name == name and each.time >= since and by in {None, each.by}
        ]

    def raises(self, name: str, since: float = 0.0) -> list[Write]:
        """Return what the booster wrote to the targets of one name, which is judged to be raises alone."""
        return self.of(name, self._booster, since)

    def raised_first(self, names: Iterable[str], since: float) -> tuple[list[str], list[str]]:
        """Return which targets the booster has raised since a time, and those of them without an earlier
        writer.
        """
        raised = [name for name in names if self.raises(name, since)]
        return raised, [name for name in raised if self.of(name, since=since)[0].by == self._booster]

    def targets(self) -> list[Place]:
        """Return the targets of all autoscalers that were seen."""
        return list(self._autoscalers)

    def count(self, target: Place) -> int:
        """Return the count of a target, 0 while it was not seen."""
        return self._counts.get(target, 0)

    # What a cluster stored.

    def saw_autoscaler(self, document: Document) -> None:
        """Take a HorizontalPodAutoscaler as it is now."""
        place = _place(document)
        target = Place(place.namespace, document["spec"]["scaleTargetRef"]["name"])
        self._autoscalers[target] = place, document["metadata"]["uid"]
        status = document.get("status") or {}
        if status == self._statuses.get(target):
            return
        self._statuses[target] = status
        for number in self._undecided.pop(target, ()):
            self._excuse(number, status.get("currentReplicas", 0))

    def saw_target(self, document: Document) -> None:
        """Take a target as it is now, with its managedFields."""
        target, after = _place(document), document["spec"].get("replicas", 1)
        before = self._counts.get(target)
        self._counts[target] = after
        if before is None or before == after:
            return
        write = Write(self._now(), target, before, after, _writer(document), _version(document))
        self.writes.append(write)
        self._judge(write)

    def saw_floors(self, document: Document) -> None:
        """Take a ConfigMap with floors as it is now."""
        known = _Published(_version(document), floors.decode_floors(document.get("data")))
        self._published.setdefault(_place(document), []).append(known)

    # The judgement.

    def published(self, target: Place, now: float) -> int:
        """Return the floor that is published for the autoscaler of a target, 0 for none."""
        return _floor(self.entries.get(self._uid(target)), now)

    def stored(self, config_maps: Iterable[Document], target: Place, now: float) -> int:
        """Return the floor that ConfigMaps hold for it, which this audit may see later."""
        uid = self._uid(target)
        entries = (floors.decode_floors(each.get("data")).get(uid) for each in config_maps)
        return max((_floor(entry, now) for entry in entries), default=0)

    def _is_published(self, write: Write) -> bool:
        """Tell whether the floor of a raise was in a ConfigMap when the raise was stored."""
        uid = self._uid(write.target)
        for versions in self._published.values():
            before = [each for each in versions if each.version < write.version]
            if before and _floor(before[-1].entries.get(uid), write.time) >= write.after:
                return True
        return False

    def _uid(self, target: Place) -> str:
        """Return the uid of the autoscaler of a target, "" where none was seen."""
        _, uid = self._autoscalers.get(target, (target, ""))
        return uid

    def _judge(self, write: Write) -> None:
        held = self._held.setdefault(write.target, _Held())
        if write.by == self._booster:
            held.raises.append(write)
            return
        floor = max(held.floor(write.time, self._hold), self.published(write.target, write.time))
        if write.after >= floor * (1 - TOLERANCE):
            return
        self.reversals.append(Reversal(write, floor, ""))
        if write.by == NATIVE and held.raises and self._is_first(write, held.raises[-1]):
            self._undecided.setdefault(write.target, []).append(len(self.reversals) - 1)

    def _is_first(self, write: Write, raised: Write) -> bool:
        """Tell whether the native controller had written nothing yet since a raise."""
        later = self.of(write.target.name, NATIVE, raised.time)
        return [each for each in later if each.target == write.target and each is not write] == []

    def _excuse(self, number: int, decided_on: int) -> None:
        """Excuse a write of the native controller by the status that follows it: of which count it knew."""
        found = self.reversals[number]
        if decided_on < found.floor:
            self.reversals[number] = found._replace(excuse=f"decided on {decided_on} replicas")


def _place(document: Document) -> Place:
    return Place(document["metadata"].get("namespace", ""), document["metadata"]["name"])


def _version(document: Document) -> int:
    return int(document["metadata"]["resourceVersion"])


def _floor(entry: Floor | None, now: float) -> int:
    return floors.floor_of(entry, span_of(now), 2**31 - 1)


def _writer(document: Document) -> str:
    """Return the owner of the count of a target, which is its last writer."""
    return ",".join(
        entry["manager"]
        for entry in document["metadata"].get("managedFields", ())
        if "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})
    )


def follow(cluster: Cluster, audit: Audit) -> None:
    """Let an audit see what a sandbox stores from now on, and what it has."""
    for plural, see in (
        ("horizontalpodautoscalers", audit.saw_autoscaler),
        ("deployments", audit.saw_target),
        ("configmaps", audit.saw_floors),
    ):
        key = cluster.kinds.find(plural).key
        for record in list(cluster.store.records(key)):
            _tell(plural, see, Change(0, None, record))
        # mypy sees no defaults
        cluster.store.subscribe(key, lambda change, plural=plural, see=see: _tell(plural, see, change))  # type: ignore[misc]


def _tell(plural: str, see: Callable[[Document], None], change: Change) -> None:
    if change.new is None:
        return
    is_floors = (change.new.labels or {}).get(floors.LABEL) == "true"
    if plural != "configmaps" or is_floors:
        see(change.new.document)
