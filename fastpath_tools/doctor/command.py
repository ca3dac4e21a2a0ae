"""`fastpath doctor`: where an autoscaler of a live cluster loses its seconds, what is wrong, what helps most.

`cluster` and `sources` read the facts, `autoscaler_hops` and `metric_hops` turn them into hops, `diagnosis`
judges these, and `report` prints the result. Nothing is changed in the cluster, and a kubeconfig is enough.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple, Self

from msgspec.structs import replace

from adapter.cli import command_line
from adapter.compose.clock import SystemClock
from adapter.config.options import RulesOptions
from adapter.config.rules_config import Parsed
from adapter.kubernetes.cache.autoscalers import TargetKey
from adapter.kubernetes.client import KubernetesClient
from adapter.model.autoscaling import boost as model
from adapter.model.autoscaling import scale_down as scale_down_model
from adapter.model.autoscaling.boost import BoostAnnotations
from adapter.model.autoscaling.fastpath_autoscaler import (
    BOOST,
    HPA_KIND,
    KIND,
    FastPathAutoscaler,
    FastPathAutoscalerStatus,
    native,
    plain_status,
)
from adapter.model.autoscaling.hpa import CrossVersionObjectReference, with_defaults
from adapter.model.clock import Clock
from adapter.model.timestamps import SECOND
from adapter.telemetry import logs
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from fastpath_tools.doctor import autoscaler_hops, diagnosis, metric_facts, report
from fastpath_tools.doctor.diagnosis import Examination
from fastpath_tools.doctor.hops import BoostFacts, BoostOffer, Facts, ScaleDownFacts, State
from fastpath_tools.doctor.metric_facts import MetricReader
from fastpath_tools.doctor.options import COMMAND, DoctorOptions, ExaminationOptions
from fastpath_tools.live import cluster_options, rules_files, servers
from fastpath_tools.live.api_objects import HPA
from fastpath_tools.live.cluster import GROUPS, LiveCluster, absent
from fastpath_tools.live.cluster_options import ScalerAddressOptions
from fastpath_tools.live.facts import (
    AnswerFacts,
    Leaders,
    MetricFacts,
    Period,
    TargetFacts,
    Unread,
    standing_back,
    unlisted,
)
from fastpath_tools.live.scaler_access import LeaderReader
from fastpath_tools.live.servers import PrometheusReader
from fastpath_tools.live.sources import SourceReader

_TOGETHER = 4
"""How many autoscalers are examined at the same time."""

_SECONDS = 10.0
"""The timeout of a request to the API server."""

_OWNERS = {"ScaledObject": "KEDA's", "EffectiveHorizontalPodAutoscaler": "Crane's"}
"""Kinds of other projects that make autoscalers."""


class Found(NamedTuple):
    """What was examined, and what of it may be incomplete."""

    hpas: tuple[Examination, ...] = ()
    fpas: tuple[Examination, ...] = ()
    notes: tuple[str, ...] = ()


@command_line.verb(COMMAND)
def main(options: DoctorOptions) -> int:
    """Examine; 0 without a fault, 1 for faults.

    KubernetesError if the autoscalers cannot be read, InputError for the command line.
    """
    logs.configure_logging(0)
    logging.getLogger("adapter").setLevel(logging.ERROR)  # what goes wrong is in the report
    examined = asyncio.run(_run(options))
    for note in examined.notes:
        command_line.tell("doctor", note)
    command_line.show(_render(options, examined))
    states = {one.state for one in examined.hpas} | {one.state for one in examined.fpas}
    return 1 if State.FAULT in states else 0


def _render(options: DoctorOptions, examined: Found) -> str:
    namespace, name = options.target
    every: list[Examination] = [*examined.hpas, *examined.fpas]
    if options.output == "json":
        documents = [report.document(examination) for examination in every]
        return command_line.to_json(documents[0] if name and len(documents) == 1 else documents)
    if name:
        return "\n".join(map(report.render, every))
    if not every:
        where = f"namespace {namespace}" if namespace else "the cluster"
        return f"there are no {HPA_KIND}s and no {KIND}s in {where}\n"
    return report.render_table(examined.hpas, examined.fpas)


async def _run(options: DoctorOptions) -> Found:
    async with AsyncExitStack() as stack:
        return await (await Doctor.open(options, stack)).examine(*options.target)


class Doctor:
    """Examines autoscalers of one cluster. `prometheus` is None without an address."""

    def __init__(
        self,
        options: ExaminationOptions,
        client: KubernetesClient,
        clock: Clock,
        prometheus: PrometheusReader | None,
        scalers: LeaderReader,
        rules: Parsed | None,
    ) -> None:
        self.options = options
        self.clock = clock
        self.prometheus = prometheus
        self.scalers = scalers
        self.cluster = LiveCluster(client, clock, options.reference, options.lease_name)
        self._sources = SourceReader(self.cluster, rules, prometheus, clock)
        self._metrics = MetricReader(self.cluster, self._sources, scalers)
        self._free = asyncio.Semaphore(_TOGETHER)

    @classmethod
    async def open(cls, options: ExaminationOptions, stack: AsyncExitStack) -> Self:
        """Connect until the `stack` is closed. InputError for a kubeconfig or rules that cannot be used."""
        rules = rules_files.parse_usable(options.config) if options.config else None
        options = await asyncio.to_thread(cluster_options.with_context, options)
        clock, monitoring = SystemClock(), Monitoring()
        client = await stack.enter_async_context(cluster_options.connect(options, request_timeout=_SECONDS))
        prometheus = None
        if options.prometheus_url:
            problems = ProblemLog(monitoring, clock)
            prometheus = await servers.open_prometheus(
                options, RulesOptions(), clock, monitoring, problems, stack
            )
        server = options if isinstance(options, ScalerAddressOptions) else None
        return cls(options, client, clock, prometheus, LeaderReader(options, stack, server), rules)

    async def examine(self, namespace: str, name: str) -> Found:
        """Examine one autoscaler, those of a namespace, or all. RunError for what is not there."""
        hpas = await self.cluster.hpas(namespace)
        chosen = [hpa for hpa in hpas if name in {"", hpa.metadata.name}]
        list_fpas = self.cluster.known_fpas if chosen else self.cluster.fpas  # of an HPA they are rivals
        read = await list_fpas(namespace)
        notes = [f"{KIND}s cannot be read: {read.why}"] if isinstance(read, Unread) else []
        fpas = () if isinstance(read, Unread) else read
        fast_chosen = [fpa for fpa in fpas if name in {"", fpa.metadata.name}]
        if not chosen and not fast_chosen:
            if namespace:
                await self.cluster.check_namespace(namespace)
            if name:
                raise absent(namespace, name, read)
        examined = await asyncio.gather(*(self.examine_hpa(hpa, hpas, fpas) for hpa in chosen))
        is_scaled = fast_chosen or any(one.mode == BOOST for one in examined)
        leaders = await self.cluster.leaders(namespace) if is_scaled else Leaders(())
        if why := unlisted(leaders):
            notes.append(f"whether a second installation scales the same targets is not known: {why}")
        if back := standing_back(leaders):
            notes.append(back)
        fast = await asyncio.gather(*(self.examine_fpa(fpa, hpas, fpas, leaders) for fpa in fast_chosen))
        return Found(tuple(examined), tuple(fast), tuple(notes))

    async def examine_fpa(
        self,
        fpa: FastPathAutoscaler,
        hpas: Sequence[HPA],
        fpas: Sequence[FastPathAutoscaler],
        leaders: Leaders | Unread,
    ) -> Examination:
        """Examine a FastPathAutoscaler; the others are those of its namespace, or more."""
        async with self._free:
            meta, spec = fpa.metadata, fpa.spec
            target = await self._target(meta.namespace, meta.uid, spec.scale_target_ref)
            rivals = [f"{HPA_KIND} {name}" for name in _same_target(fpa, hpas)]
            rivals += [f"{KIND} {name}" for name in _same_target(fpa, fpas)]
            status = plain_status(fpa.status or FastPathAutoscalerStatus())
            conditions = status.conditions or ()
            is_active = ("ScalingActive", "False") not in {(one.type, one.status) for one in conditions}
            metrics = await asyncio.gather(
                *(
                    self._metrics.read(fpa, place, metric, target)
                    for place, metric in enumerate(with_defaults(spec).metrics or ())
                    if metric.type in metric_facts.USAGES or not is_active
                )
            )
            scale_down = None
            if spec.removal_order is not None:
                scale_down = await self._scale_down(fpa, scale_down_model.PATH, spec.mode, target)
            facts = Facts(
                replace(native(fpa), status=status),
                target,
                tuple(metrics),
                Period(spec.sync_period / SECOND, "Fastpath"),
                0.0,
                round(self.clock.wall() * SECOND),
                rivals=tuple(rivals),
                scale_down=scale_down,
                offer=BoostOffer(leaders, ()),
                scrape_fault=await self._metrics.scrape_fault(fpa, with_defaults(spec).metrics or ()),
            )
            return diagnosis.examine_fast(fpa, facts)

    async def examine_hpa(
        self, hpa: HPA, hpas: Sequence[HPA], fpas: Sequence[FastPathAutoscaler]
    ) -> Examination:
        """Examine a HorizontalPodAutoscaler; the others are those of its namespace, or more."""
        async with self._free:
            meta, spec = hpa.metadata, hpa.spec
            target = await self._target(meta.namespace, meta.uid, spec.scale_target_ref)
            if not isinstance(target, Unread) and hpa.status is not None:
                scaled, reference = hpa.status.last_scale_time, spec.scale_target_ref
                reversal = await self.cluster.reversal(meta.namespace, reference, meta.name, scaled)
                target = target._replace(reversal=reversal)
            wishes = model.read_annotations(meta.annotations, model.without_handshake(spec.metrics) or ())
            scale_down = None
            if wishes.options["removal_order"] is not None:
                option = f"the annotation {scale_down_model.ANNOTATION}"
                scale_down = await self._scale_down(hpa, option, wishes.mode, target)
            own = model.without_handshake(spec.metrics) or ()
            metrics = await asyncio.gather(
                *(self._metrics.read(hpa, place, metric, target) for place, metric in enumerate(own))
            )
            period = await self.cluster.period()
            if given := self.options.horizontal_pod_autoscaler_sync_period:
                period = Period(given, "from --horizontal-pod-autoscaler-sync-period")
            owner = next(iter(hpa.metadata.owner_references or ()), None)
            owned = "" if owner is None else f"{_OWNERS.get(owner.kind, 'the')} {owner.kind} {owner.name}"
            facts = Facts(
                hpa,
                target,
                tuple(metrics),
                period,
                await self._sources.delay(),
                round(self.clock.wall() * SECOND),
                await self._boost(hpa, wishes, target),
                _same_target(hpa, hpas),
                owned,
                _same_target(hpa, fpas),
                scale_down,
                await self._offer(hpa, wishes.mode),
                await self._metrics.scrape_fault(hpa, own) if wishes.mode == BOOST else "",
            )
            return diagnosis.examine(facts)

    async def _target(
        self, namespace: str, uid: str, reference: CrossVersionObjectReference
    ) -> TargetFacts | Unread:
        """Return the target of an autoscaler, with the times of the scaler's ledger if it has any."""
        target = await self.cluster.target(namespace, reference)
        if isinstance(target, Unread) or target.starts is None:
            return target
        starts = target.starts
        stored = await self.cluster.ready_times(namespace, uid)
        if stored is not None:
            starts = starts._replace(times=stored)
        if autoscaler_hops.may_pull(starts.times):
            starts = starts._replace(pulls=await self.cluster.pulls(namespace, target.ready))
        return target._replace(starts=starts)

    async def _scale_down(
        self, autoscaler: HPA | FastPathAutoscaler, option: str, mode: str, target: TargetFacts | Unread
    ) -> ScaleDownFacts:
        """Return what idle scale-down depends on, for an autoscaler that asks for it."""
        right = await self.cluster.patch_right(autoscaler.metadata.namespace)
        return ScaleDownFacts(option, autoscaler.spec.scale_target_ref, target, right, mode)

    async def _offer(self, hpa: HPA, mode: str) -> BoostOffer:
        """Return what boosting an HPA, also with the other handshake, depends on."""
        meta, leaders = hpa.metadata, await self.cluster.leaders(hpa.metadata.namespace)
        ways = [model.EXTERNAL, model.OBJECT] if len(meta.name) <= model.LONGEST_NAME else [model.OBJECT]
        if mode != BOOST and autoscaler_hops.lacks_scaler(meta.namespace, leaders):
            ways = []
        floors: list[MetricFacts] = []
        for metric in (model.handshake(meta.name, way) for way in ways):
            serving = await self.cluster.serving(GROUPS[metric.type])
            answer: AnswerFacts | Unread = Unread("another server has the group")
            if isinstance(serving, Unread) or serving.ours:
                answer = await self.cluster.floor(meta.namespace, metric)
            floors.append(MetricFacts(model.METRIC, metric, serving, answer))
            if autoscaler_hops.may_serve(floors[-1]):
                break
        references = ((one.api_version, one.kind, one.name) for one in meta.owner_references or ())
        return BoostOffer(leaders, tuple(floors), model.find_owner(references, meta.labels))

    async def _boost(
        self, hpa: HPA, wishes: BoostAnnotations, target: TargetFacts | Unread
    ) -> BoostFacts | None:
        meta, spec = hpa.metadata, hpa.spec
        handshakes = [metric for metric in spec.metrics or () if model.is_handshake(metric)]
        if not (wishes.mode or wishes.faults or handshakes):
            return None
        floor = None
        if handshakes and handshakes[0].type in {"External", "Object"}:
            metric = handshakes[0]
            serving = await self.cluster.serving(GROUPS[metric.type])
            answer = await self.cluster.answer(meta.namespace, metric, target)
            floor = MetricFacts(model.METRIC, metric, serving, answer)
        entry = await self.cluster.entry(meta.namespace, meta.uid)
        return BoostFacts(wishes, model.check_handshake(meta.name, spec), floor, entry)


def _same_target(
    autoscaler: HPA | FastPathAutoscaler, others: Sequence[HPA] | Sequence[FastPathAutoscaler]
) -> tuple[str, ...]:
    """Return the names of the other autoscalers of a target."""
    return tuple(
        other.metadata.name
        for other in others
        if other is not autoscaler and _target(other) == _target(autoscaler)
    )


def _target(autoscaler: HPA | FastPathAutoscaler) -> TargetKey:
    return TargetKey.of(autoscaler.metadata.namespace, autoscaler.spec.scale_target_ref)
