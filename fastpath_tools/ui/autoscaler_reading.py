"""Reads what the page of an autoscaler shows: the document of the scaler that decides it, or one built here.

A scaler that cannot be read is no error: the page then shows what the API server says, and why it is less.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from adapter.errors import PrometheusError
from adapter.model.autoscaling import fastpath_autoscaler
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.autoscaling.view import AutoscalerView, HistoryView, MetricView
from adapter.model.visible import counted
from adapter.prometheus.client import PrometheusClient
from adapter.prometheus.connection import PrometheusConnection
from fastpath_forecast.range_query import RangeReader
from fastpath_tools.doctor import diagnosis, metric_facts
from fastpath_tools.doctor.command import Doctor
from fastpath_tools.doctor.diagnosis import Examination
from fastpath_tools.doctor.hops import Facts, Hop, MetricChain, State, Took, evenly, seconds
from fastpath_tools.live import reading
from fastpath_tools.live.facts import MetricFacts, Unread
from fastpath_tools.ui import hpa_history, hpa_view, sentence
from fastpath_tools.ui.hpa_history import HistoryPlace, SeenHistory

_BEGINS = "the history begins with this page"
_OLDER = "the scaler is of an older version, which keeps its last hour in steps of {}"


class AutoscalerReading(NamedTuple):
    """The document, the examination, and sentences on what could not be read."""

    view: AutoscalerView
    examination: Examination
    notes: tuple[str, ...] = ()

    @property
    def autoscaler(self) -> FastPathAutoscaler:
        return self.examination.fpa or fastpath_autoscaler.from_hpa(self.examination.facts.hpa)

    @property
    def start_up(self) -> float:
        """Return how many seconds pods usually take to be Ready, as far as that is known."""
        target = self.examination.facts.target
        if not isinstance(target, Unread) and target.starts is not None:
            return target.starts.times.total.p50
        total = (self.view.ready_times.get("seconds") or {}).get("total") or {}
        return float(total.get("p50", 10.0))


def hops_by_metric(view: AutoscalerView, examination: Examination) -> Iterator[tuple[str, tuple[Hop, ...]]]:
    """Yield each metric with the hops from the load to Ready pods.

    Of a FastPathAutoscaler they follow from its document.
    """
    if examination.fpa is not None:
        for metric in view.metrics:
            yield sentence.short(metric), tuple(_fast_hops(view, metric, examination.facts.period.seconds))
        return
    for chain in examination.chains or (MetricChain("no metric", ()),):
        yield chain.metric, (*examination.before, *chain.hops, *examination.after)


def _fast_hops(view: AutoscalerView, metric: MetricView, period: float) -> Iterator[Hop]:
    state = State.FAULT if metric.fault or metric.overdue else State.OK
    text = "the age of its oldest sample" if state is State.OK else "it has no value that counts"
    yield Hop("sample", state, text, None if metric.age is None else Took(metric.age, metric.age))
    yield Hop("decision", State.OK, f"the scaler decides every {seconds(period)}", evenly(period))
    times = (view.ready_times.get("seconds") or {}).get("total")
    if times is None:
        yield Hop("pod start", State.UNKNOWN, "no pod has become Ready since the scaler began to look")
    else:
        pods = counted(view.ready_times.get("pods", 0), "pod", "pods")
        yield Hop("pod start", State.OK, f"of the last {pods}", Took(times["p50"], times["p95"]))


async def read_document(doctor: Doctor, examination: Examination, notes: list[str]) -> AutoscalerView | None:
    """Return the document of the scaler that decides, None without one; `notes` grow."""
    if examination.mode:
        namespace, _, name = examination.key.partition("/")
        shown = await doctor.scalers.read(await doctor.cluster.leaders(namespace), namespace, name)
        try:
            if not isinstance(shown, Unread):
                view = msgspec.convert(shown, AutoscalerView)
                if view.history is not None and not view.history.exact:
                    notes.append(_OLDER.format(seconds(view.history.resolution)))
                return view
            notes.append(f"the scaler cannot be read: {shown.why}")
        except msgspec.ValidationError as error:  # an older one serves a document of another form
            notes.append(f"the scaler cannot be read: its document is of another version: {error}")
    notes += _unread(examination.facts)
    return None


def build(examination: Examination, history: HistoryView | None = None) -> AutoscalerView:
    """Return the document as the objects alone make it."""
    if examination.fpa is None:
        return hpa_view.build(examination, history)
    # doctor does not follow the metrics of a FastPathAutoscaler that works
    facts, unread = examination.facts, Unread("it is not read")
    specs = facts.hpa.spec.metrics or ()
    metrics = tuple(MetricFacts(metric_facts.label(spec), spec, unread, unread) for spec in specs)
    view = hpa_view.build(diagnosis.examine(facts._replace(metrics=metrics)))
    return replace(view, kind=fastpath_autoscaler.KIND, mode=examination.mode)


class AutoscalerReader:
    """Reads one autoscaler again and again."""

    def __init__(self, doctor: Doctor, namespace: str, name: str) -> None:
        self._doctor = doctor
        self._key = namespace, name
        self._seen = SeenHistory()

    async def read(self) -> AutoscalerReading:
        """Return what is known now. RunError for an autoscaler that does not exist, KubernetesError."""
        examined = await self._doctor.examine(*self._key)
        # with both kinds of a name the scaler serves the document of the FastPathAutoscaler
        examination = examined.fpas[0] if examined.fpas else examined.hpas[0]
        notes: list[str] = []
        view = await read_document(self._doctor, examination, notes)
        if view is None:
            past = await self._past(examination, notes)
            view = build(examination, past)
            if past is None and examination.fpa is None:
                view = replace(view, history=self._seen.add(view))
        return AutoscalerReading(view, examination, tuple(notes))

    async def _past(self, examination: Examination, notes: list[str]) -> HistoryView | None:
        """Return the history of Prometheus of an HPA, None without one; `notes` grow."""
        if examination.fpa is not None:
            return None
        prometheus = self._doctor.prometheus
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
        ranges = RangeReader(origin, self._doctor.options.prometheus_timeout)
        return await hpa_history.read(ranges, place, self._doctor.clock.wall())


def _unread(facts: Facts) -> list[str]:
    """Return what of the target could not be read."""
    target, reference = facts.target, facts.hpa.spec.scale_target_ref
    name = f"{reference.kind} {reference.name}"
    if isinstance(target, Unread):
        return [] if target.change else [f"{name} cannot be read: {target.why}"]
    return [f"the pods of {name} cannot be read: {target.unread}"] if target.unread else [*target.notes]
