"""What the fleet page shows, read from the scalers and from the objects of the autoscalers.

Scalers show what they decide. The line of any other autoscaler comes from its status. What its page says,
such as its sentence and the Ready pods, comes from an examination. These take seconds and ask several
servers, so they run in the background, a few at a time, and only while the list is looked at.
"""

import asyncio
import contextlib
import math
from collections.abc import Sequence
from typing import NamedTuple

from adapter.autoscaler.decide.restraint import FOLLOWS
from adapter.autoscaler.explain.past_hour import Counts, PastHour
from adapter.errors import FastpathError
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND, KIND, FastPathAutoscaler
from adapter.model.autoscaling.view import FleetEntry
from adapter.model.timestamps import SECOND, read_nanoseconds
from fastpath_tools.doctor import autoscaler_hops, diagnosis
from fastpath_tools.doctor.command import Doctor
from fastpath_tools.doctor.diagnosis import Examination
from fastpath_tools.doctor.hops import State, total
from fastpath_tools.live.api_objects import HPA
from fastpath_tools.live.facts import Leaders, Unread
from fastpath_tools.ui import autoscaler_reading, fleet, sentence
from fastpath_tools.ui.fleet import Examined, FleetRow, ReactionTime
from fastpath_tools.ui.renewed import Renewed

_TOGETHER = 4
"""How many autoscalers are examined at the same time."""

_AGAIN, _EACH = (10.0, 300.0), 0.3
"""How many seconds an examination counts, at least and at most, and for each autoscaler that there is."""

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


class FleetReader:
    """Reads the autoscalers of a namespace, of all with ""."""

    def __init__(self, doctor: Doctor, namespace: str) -> None:
        self._doctor = doctor
        self._namespace = namespace
        self._objects = Renewed(self._list, rest=_LIST_REST)
        self._decided = Renewed(self._ask_scalers)
        self._examined: dict[Key, tuple[float, FleetRow, Examined | None]] = {}
        self._rows: Sequence[FleetRow] = ()
        self._past: dict[Key, PastHour] = {}
        self._is_read = asyncio.Event()

    async def read(self) -> Fleet:
        """Return the fleet. KubernetesError or RunError if the autoscalers cannot be listed."""
        objects, decided = await asyncio.gather(self._objects.get(), self._decided.get())
        now = round(self._doctor.clock.monotonic() * SECOND)
        rows, seen = [], {}
        for row in [
            *(self._row(hpa, decided) for hpa in objects.hpas),
            *(self._row(fpa, decided) for fpa in objects.fpas),
        ]:
            past = seen[row.key] = self._past.get(row.key) or PastHour()
            past.note(Counts(now, None, row.desired, None, (0, 0, 0), FOLLOWS))
            rows.append(row._replace(reversals=max(row.reversals, past.reversals(now))))
        if objects.unread:
            rows += [
                fleet.from_entry(entry, None)
                for key, entry in decided.entries.items()
                if key not in seen and self._namespace in {"", entry.namespace}
            ]
        self._past = seen
        self._examined = {key: known for key, known in self._examined.items() if key in seen}
        self._rows = rows
        self._is_read.set()
        notes = [f"{KIND}s cannot be listed: {objects.unread}"] if objects.unread else []
        notes += [f"what a scaler decides cannot be read: {why}" for why in decided.unread]
        pages = {key: examined for key, (_, _, examined) in self._examined.items() if examined is not None}
        shown = (row.with_page(pages[row.key]) if row.key in pages else row for row in rows)
        return Fleet(sorted(shown, key=fleet.rank), notes)

    def _row(self, autoscaler: HPA | FastPathAutoscaler, decided: _Decided) -> FleetRow:
        entry = decided.entries.get(_key(autoscaler))
        if entry is not None:
            return fleet.from_entry(entry, autoscaler)
        vacant = autoscaler_hops.lacks_scaler(autoscaler.metadata.namespace, decided.leaders)
        is_vacant = bool(vacant) and isinstance(autoscaler, FastPathAutoscaler)
        return fleet.from_status(autoscaler, f"no scaler runs for it: {vacant}" if is_vacant else "")

    async def _list(self) -> _Objects:
        cluster = self._doctor.cluster
        hpas, fpas = await asyncio.gather(cluster.hpas(self._namespace), cluster.fpas(self._namespace))
        return _Objects(hpas, (), fpas.why) if isinstance(fpas, Unread) else _Objects(hpas, fpas, "")

    async def _ask_scalers(self) -> _Decided:
        leaders = await self._doctor.cluster.leaders(self._namespace)
        shown = await self._doctor.scalers.read_all(leaders)
        entries = {
            (entry.kind, entry.namespace, entry.name): entry
            for view in shown
            if not isinstance(view, Unread)
            for entry in view.autoscalers
        }
        return _Decided(leaders, entries, tuple(view.why for view in shown if isinstance(view, Unread)))

    # -- examinations ----------------------------------------------------------------------------------------

    async def examine(self) -> None:
        """Examine autoscalers as their pages do, while the list is read."""
        while True:
            await self._is_read.wait()
            self._is_read.clear()
            try:
                objects, decided = await asyncio.gather(self._objects.get(), self._decided.get())
            except FastpathError:  # the page shows it
                continue
            due = self._due()
            known: dict[Key, HPA | FastPathAutoscaler] = {_key(one): one for one in objects.hpas}
            known |= {_key(one): one for one in objects.fpas}
            chosen = [(known[row.key], row) for row in due if row.key in known][:_TOGETHER]
            await asyncio.gather(*(self._examine(one, row, objects, decided) for one, row in chosen))

    def _due(self) -> list[FleetRow]:
        """Return those to examine, in this order: those never examined, changed ones, then the oldest."""
        now, (least, most) = self._doctor.clock.monotonic(), _AGAIN
        again = min(max(least, _EACH * len(self._rows)), most)
        due = []
        for row in self._rows:
            at, before, _ = self._examined.get(row.key, (-math.inf, None, None))
            changed = before is not None and _counts(before) != _counts(row)
            if now - at >= (least if changed else again):
                due.append(((not changed, at), row))
        return [row for _, row in sorted(due, key=lambda pair: (pair[0][1] > -math.inf, *pair[0]))]

    async def _examine(
        self, autoscaler: HPA | FastPathAutoscaler, row: FleetRow, objects: _Objects, decided: _Decided
    ) -> None:
        hpas = [other for other in objects.hpas if other.metadata.namespace == row.namespace]
        fpas = [other for other in objects.fpas if other.metadata.namespace == row.namespace]
        examined = None
        with contextlib.suppress(FastpathError):  # then only the object and the scaler say what is
            if isinstance(autoscaler, FastPathAutoscaler):
                examination = await self._doctor.examine_fpa(autoscaler, hpas, fpas, decided.leaders)
            else:
                examination = await self._doctor.examine_hpa(autoscaler, hpas, fpas)
            examined = await self._read_page(examination)
        self._examined[row.key] = self._doctor.clock.monotonic(), row, examined

    async def _read_page(self, examination: Examination) -> Examined:
        """Return what the page of an autoscaler says, without its history."""
        view = await autoscaler_reading.read_document(self._doctor, examination, [])
        view = view or autoscaler_reading.build(examination)
        why = sentence.describe(view, examination)
        target = examination.facts.target
        is_stuck = not isinstance(target, Unread) and target.unready is not None
        conditions = view.status.get("conditions") or ()
        is_by_wish = any(one["reason"] in fleet.NO_PROBLEM for one in conditions if one["status"] == "False")
        gain, boosted = diagnosis.boost_gain(examination), autoscaler_hops.is_boosted(examination.facts)
        totals = [total(hops) for _, hops in autoscaler_reading.hops_by_metric(view, examination)]
        slowest = max(totals, key=lambda one: one.took.usual, default=total(()))
        scaled = view.status.get("lastScaleTime")
        return Examined(
            ReactionTime(slowest.took.usual, slowest.whole, gain, boosted),
            why.cause if is_stuck or (why.state is State.FAULT and not is_by_wish) else "",
            is_stuck,
            view.target.ready,
            read_nanoseconds(scaled) / SECOND if scaled else None,
        )


def _counts(row: FleetRow) -> tuple[object, ...]:
    """Return what of a line changes when an autoscaler does."""
    return row.replicas, row.desired, row.is_capped, row.fault


def _key(one: HPA | FastPathAutoscaler) -> Key:
    kind = KIND if isinstance(one, FastPathAutoscaler) else HPA_KIND
    return kind, one.metadata.namespace, one.metadata.name
