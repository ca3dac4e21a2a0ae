"""Reads what the page of an autoscaler shows: the document of the scaler that decides it, or one built here.

A scaler that cannot be read is no error: the page then shows what the API server says, and why it is less.
"""

from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from adapter.errors import PrometheusError
from adapter.model.autoscaling import fastpath_autoscaler
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.autoscaling.view import AutoscalerView, HistoryView
from adapter.model.timestamps import SECOND
from adapter.prometheus.client import PrometheusClient
from adapter.prometheus.connection import PrometheusConnection
from adapter.prometheus.range_query import RangeReader
from fastpath_tools.doctor import diagnosis, metric_facts
from fastpath_tools.doctor.diagnosis import Examination, FastExamination
from fastpath_tools.doctor.hops import Facts
from fastpath_tools.live import reading
from fastpath_tools.live.facts import MetricFacts, Period, TargetFacts, Unread
from fastpath_tools.ui import hpa_history, hpa_view
from fastpath_tools.ui.access import ClusterAccess
from fastpath_tools.ui.hpa_history import HistoryPlace, SeenHistory

_BEGINS = "the history begins with this page"


class AutoscalerReading(NamedTuple):
    """The document, the examination, the autoscaler, and sentences on what could not be read."""

    view: AutoscalerView
    examination: Examination | FastExamination
    autoscaler: FastPathAutoscaler
    notes: tuple[str, ...] = ()

    @property
    def start_up(self) -> float:
        """Return how many seconds pods usually take to be Ready, as far as that is known."""
        if isinstance(self.examination, Examination):
            target = self.examination.facts.target
            if not isinstance(target, Unread) and target.starts is not None:
                return target.starts.times.total.p50
        total = (self.view.ready_times.get("seconds") or {}).get("total") or {}
        return float(total.get("p50", 10.0))


class AutoscalerReader:
    """Reads one autoscaler again and again."""

    def __init__(self, access: ClusterAccess, namespace: str, name: str) -> None:
        self._access = access
        self._key = namespace, name
        self._seen = SeenHistory()

    async def read(self) -> AutoscalerReading:
        """Return what is known now. RunError for an autoscaler that does not exist, KubernetesError."""
        examined = await self._access.doctor.examine(*self._key)
        # with both kinds of a name the scaler serves the document of the FastPathAutoscaler
        examination = examined.fpas[0] if examined.fpas else examined.hpas[0]
        document: AutoscalerView | Unread | None = None
        if isinstance(examination, FastExamination) or examination.mode:
            document = await self._document()
        if isinstance(document, AutoscalerView):
            return AutoscalerReading(document, examination, _autoscaler(examination))
        notes = [] if document is None else [f"the scaler cannot be read: {document.why}"]
        if isinstance(examination, FastExamination):
            view = _plain(examination, round(self._access.clock.wall() * SECOND))
        else:
            notes += _unread(examination)
            view = hpa_view.build(examination, await self._past(examination, notes))
            if view.history is None:
                view = replace(view, history=self._seen.add(view))
        return AutoscalerReading(view, examination, _autoscaler(examination), tuple(notes))

    async def _document(self) -> AutoscalerView | Unread:
        """Return the document of the scaler; an older one serves a document of another form."""
        namespace, name = self._key
        leaders = await self._access.cluster.leaders(namespace)
        shown = await self._access.scalers.read(leaders, namespace, name)
        if isinstance(shown, Unread):
            return shown
        try:
            return msgspec.convert(shown, AutoscalerView)
        except msgspec.ValidationError as error:
            return Unread(f"its document is of another version: {error}")

    async def _past(self, examination: Examination, notes: list[str]) -> HistoryView | None:
        """Return the history of Prometheus, None without one; `notes` grow."""
        prometheus = self._access.prometheus
        if prometheus is None or not isinstance(prometheus.client, PrometheusClient):
            notes.append(f"{_BEGINS}: give --prometheus-url for the last hour")
            return None
        spec = examination.facts.hpa.spec
        least = 1 if spec.min_replicas is None else spec.min_replicas
        target = spec.scale_target_ref.kind, spec.scale_target_ref.name
        place = HistoryPlace(*self._key, target, (least, spec.max_replicas))
        try:
            history = await self._history(prometheus.client.origin, place)
        except PrometheusError as error:
            notes.append(f"{_BEGINS}: {error}")
            return None
        if not history.points:
            notes.append(f"{_BEGINS}: Prometheus has no series of kube-state-metrics for the autoscaler")
            return None
        return history

    @reading.kept(10.0)
    async def _history(self, origin: PrometheusConnection, place: HistoryPlace) -> HistoryView:
        ranges = RangeReader(origin, self._access.options.prometheus_timeout)
        return await hpa_history.read(ranges, place, self._access.clock.wall())


def _unread(examination: Examination) -> list[str]:
    """Return what of the target could not be read."""
    target, reference = examination.facts.target, examination.facts.hpa.spec.scale_target_ref
    name = f"{reference.kind} {reference.name}"
    if isinstance(target, Unread):
        return [f"{name} cannot be read: {target.why}"]
    return [f"the pods of {name} cannot be read: {target.unread}"] if target.unread else []


def _autoscaler(examination: Examination | FastExamination) -> FastPathAutoscaler:
    if isinstance(examination, FastExamination):
        return examination.fpa
    return fastpath_autoscaler.from_hpa(examination.facts.hpa)


def _plain(examination: FastExamination, now: int) -> AutoscalerView:
    """Return the document of a FastPathAutoscaler from its object alone."""
    fpa = examination.fpa
    status = fpa.status or fastpath_autoscaler.FastPathAutoscalerStatus()
    hpa = replace(fastpath_autoscaler.native(fpa), status=status)
    unread = Unread("it is not read")
    metrics = tuple(
        MetricFacts(metric_facts.label(spec), spec, unread, unread) for spec in hpa.spec.metrics or ()
    )
    target = TargetFacts(status.current_replicas, "", unread=unread.why)
    facts = Facts(hpa, target, metrics, Period(1.0, "Fastpath"), unread, now)
    view = hpa_view.build(diagnosis.examine(facts))
    return replace(view, kind=fastpath_autoscaler.KIND, mode=examination.mode)
