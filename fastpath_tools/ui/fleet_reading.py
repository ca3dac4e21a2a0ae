"""What the fleet page shows, read from the scalers and from the objects of the autoscalers.

Scalers show what they decide. The line of any other autoscaler comes from its status, and its reaction time
from an examination as `fastpath doctor` makes it. Examinations take seconds and ask several servers, so they
run in the background, a few at a time and only while the page is looked at.
"""

import asyncio
import contextlib
import math
from collections.abc import Sequence
from typing import NamedTuple

from adapter.errors import FastpathError, KubernetesError, RunError
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND, KIND, FastPathAutoscaler
from adapter.model.autoscaling.view import FleetEntry
from fastpath_tools.doctor import autoscaler_hops, diagnosis
from fastpath_tools.live.api_objects import HPA
from fastpath_tools.live.facts import Leaders, Unread
from fastpath_tools.ui import fleet
from fastpath_tools.ui.access import ClusterAccess
from fastpath_tools.ui.fleet import Directions, FleetRow, ReactionTime
from fastpath_tools.ui.renewed import Renewed

_TOGETHER = 4
"""How many autoscalers are examined at the same time."""

_AGAIN = 300.0
"""How many seconds an examination counts."""

_LIST_REST = 4.0
"""Lists of many autoscalers are long: for how many times as long as one took the API server gets a rest."""

Key = tuple[str, str, str]


class Fleet(NamedTuple):
    """All autoscalers, the worst first, and sentences about what could not be read."""

    rows: Sequence[FleetRow]
    notes: Sequence[str] = ()


class _Objects(NamedTuple):
    hpas: tuple[HPA, ...]
    fpas: tuple[FastPathAutoscaler, ...]
    unread: str


class _Decided(NamedTuple):
    """What the scalers show. `leaders` are those that were found."""

    leaders: Leaders | Unread
    entries: dict[Key, FleetEntry]
    unread: tuple[str, ...]

    def vacancy(self, namespace: str) -> str:
        """Return why no scaler decides a namespace, "" if one does or that is not known."""
        return autoscaler_hops.lacks_scaler(namespace, self.leaders)


class FleetReader:
    """Reads the autoscalers of a namespace, of all with ""."""

    def __init__(self, access: ClusterAccess, namespace: str) -> None:
        self._access = access
        self._namespace = namespace
        self._objects = Renewed(self._list, rest=_LIST_REST)
        self._decided = Renewed(self._ask_scalers)
        self._reactions: dict[Key, tuple[float, ReactionTime | None]] = {}
        self._directions: dict[Key, Directions] = {}
        self._is_read = asyncio.Event()

    async def read(self) -> Fleet:
        """Return the fleet. KubernetesError or RunError if the autoscalers cannot be listed."""
        objects, decided = await asyncio.gather(self._objects.get(), self._decided.get())
        now = self._access.clock.monotonic()
        rows, seen = [], {}
        for row in [
            *(self._row(hpa, decided) for hpa in objects.hpas),
            *(self._row(fpa, decided) for fpa in objects.fpas),
        ]:
            directions = seen[row.key] = self._directions.get(row.key) or Directions()
            turns = directions.note(row.desired, now)
            rows.append(row._replace(reversals=max(row.reversals, turns)))
        if objects.unread:
            rows += [
                fleet.from_entry(entry, None)
                for key, entry in decided.entries.items()
                if key not in seen and self._namespace in {"", entry.namespace}
            ]
        self._directions = seen
        self._reactions = {key: known for key, known in self._reactions.items() if key in seen}
        self._is_read.set()
        notes = [f"{KIND}s cannot be listed: {objects.unread}"] if objects.unread else []
        notes += [f"what a scaler decides cannot be read: {why}" for why in decided.unread]
        return Fleet(sorted(rows, key=fleet.rank), notes)

    def _row(self, autoscaler: HPA | FastPathAutoscaler, decided: _Decided) -> FleetRow:
        row = fleet.from_status(autoscaler)
        entry = decided.entries.get(row.key)
        if entry is not None:
            row = fleet.from_entry(entry, autoscaler)
        elif row.kind == KIND and (vacant := decided.vacancy(row.namespace)):
            row = fleet.from_status(autoscaler, f"no scaler runs for it: {vacant}")
        if row.reaction is None:
            row = row._replace(reaction=self._reactions.get(row.key, (0.0, None))[1])
        return row

    async def _list(self) -> _Objects:
        cluster = self._access.cluster
        try:
            hpas, fpas = await asyncio.gather(cluster.hpas(self._namespace), cluster.fpas(self._namespace))
        except KubernetesError as error:
            if error.status == 403 and not self._namespace:
                text = "listing HPAs cluster-wide is forbidden; pass a namespace"
                raise RunError(f"{text}: {error.said or error}") from error
            raise
        return _Objects(hpas, (), fpas.why) if isinstance(fpas, Unread) else _Objects(hpas, fpas, "")

    async def _ask_scalers(self) -> _Decided:
        leaders = await self._access.cluster.leaders(self._namespace)
        shown = await self._access.scalers.read_all(leaders)
        entries = {
            (entry.kind, entry.namespace, entry.name): entry
            for view in shown
            if not isinstance(view, Unread)
            for entry in view.autoscalers
        }
        return _Decided(leaders, entries, tuple(view.why for view in shown if isinstance(view, Unread)))

    # -- examinations ----------------------------------------------------------------------------------------

    async def examine(self) -> None:
        """Examine HorizontalPodAutoscalers whose reaction time no scaler measures, while the page is read."""
        while True:
            await self._is_read.wait()
            self._is_read.clear()
            try:
                objects, decided = await asyncio.gather(self._objects.get(), self._decided.get())
            except FastpathError:  # the page shows it
                continue
            due = self._due(objects.hpas, decided)
            await asyncio.gather(*(self._examine(hpa, objects) for hpa in due[:_TOGETHER]))

    def _due(self, hpas: Sequence[HPA], decided: _Decided) -> list[HPA]:
        """Return those to examine, in this order: those never examined first, then the oldest."""
        since = self._access.clock.monotonic() - _AGAIN
        times = {key: at for key, (at, _) in self._reactions.items()}
        last = [(times.get(_key(hpa), -math.inf), hpa) for hpa in hpas]
        due = [
            (at, hpa)
            for at, hpa in last
            if at <= since and ((entry := decided.entries.get(_key(hpa))) is None or entry.chain is None)
        ]
        return [hpa for _, hpa in sorted(due, key=lambda pair: pair[0])]

    async def _examine(self, hpa: HPA, objects: _Objects) -> None:
        namespace = hpa.metadata.namespace
        hpas = [other for other in objects.hpas if other.metadata.namespace == namespace]
        fpas = [other for other in objects.fpas if other.metadata.namespace == namespace]
        reaction = None
        with contextlib.suppress(FastpathError):  # then the reaction time stays unknown
            examined = await self._access.doctor.examine_hpa(hpa, hpas, fpas)
            took, whole = examined.slowest
            gain, boosted = diagnosis.boost_gain(examined), autoscaler_hops.is_boosted(examined.facts)
            reaction = ReactionTime(took.usual, whole, gain, boosted)
        self._reactions[_key(hpa)] = self._access.clock.monotonic(), reaction


def _key(hpa: HPA) -> Key:
    return HPA_KIND, hpa.metadata.namespace, hpa.metadata.name
