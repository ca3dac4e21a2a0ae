"""`fastpath doctor`: where an autoscaler of a live cluster loses its seconds, what is wrong, what helps most.

`cluster`, `read` and `sources` collect the facts, `diagnosis` judges them, and `report` prints the result.
`fast` examines a FastPathAutoscaler.
"""

import asyncio
import logging
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

from adapter.cli import command_line, kubeconfig
from adapter.cli.check import inputs, servers
from adapter.cli.doctor import diagnosis, fast, report
from adapter.cli.doctor.cluster import ClusterContext
from adapter.cli.doctor.codec import FPA, HPA
from adapter.cli.doctor.diagnosis import Examination
from adapter.cli.doctor.facts import BoostFacts, Facts, MetricFacts, Unread
from adapter.cli.doctor.fast import FastExamination
from adapter.cli.doctor.options import COMMAND, DoctorOptions
from adapter.cli.doctor.read import GROUPS, AutoscalerReader, Workload
from adapter.cli.doctor.sources import SourceReader
from adapter.cli.doctor.stage import State
from adapter.compose.clock import SystemClock
from adapter.config.options import RulesOptions
from adapter.errors import InputError, KubernetesError, RunError
from adapter.kubernetes.cache.autoscalers import TargetKey
from adapter.model.autoscaling import boost as model
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND, KIND
from adapter.model.autoscaling.hpa import MetricSpec
from adapter.model.clock import Clock
from adapter.model.timestamps import SECOND
from adapter.telemetry import logs
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

_TOGETHER = 4
"""How many autoscalers are looked at side by side."""

_SECONDS = 10.0

_OWNERS = {"ScaledObject": "KEDA's", "EffectiveHorizontalPodAutoscaler": "Crane's"}
"""Kinds that are known to make autoscalers, and whose they are."""


class Found(NamedTuple):
    """What was examined. `unread` is why FastPathAutoscalers are not known, "" where they are."""

    hpas: tuple[Examination, ...] = ()
    fpas: tuple[FastExamination, ...] = ()
    unread: str = ""


def main(arguments: Sequence[str]) -> int:
    """Examine; 0 without a fault, 1 for faults.

    KubernetesError when the autoscalers cannot be read, InputError for the command line.
    """
    options = command_line.read(COMMAND, arguments)
    if options is None:
        return 0
    logs.configure_logging(0)
    logging.getLogger("adapter").setLevel(logging.ERROR)  # what goes wrong is in the report
    found = asyncio.run(_run(options))
    if found.unread:
        print(f"fastpath doctor: {KIND}s cannot be read: {found.unread}", file=sys.stderr)
    print(_render(options, found), end="")
    states = [*(each.state for each in found.hpas), *(each.state for each in found.fpas)]
    return 1 if State.FAULT in states else 0


def _render(options: DoctorOptions, found: Found) -> str:
    namespace, name = options.target
    if options.output == "json":
        documents = [*map(report.document, found.hpas), *map(report.document, found.fpas)]
        whole = documents[0] if name and len(documents) == 1 else documents
        return command_line.to_json(whole)
    if name:
        return "\n".join([*map(report.render, found.hpas), *map(report.render, found.fpas)])
    if not found.hpas and not found.fpas:
        where = f"namespace {namespace}" if namespace else "the cluster"
        return f"there are no {HPA_KIND}s and no {KIND}s in {where}\n"
    return report.render_table(found.hpas, found.fpas)


async def _run(options: DoctorOptions) -> Found:
    given = inputs.parse(options.config) if options.config else None
    if given is not None and given.fatal:
        raise InputError(given.fatal)
    clock, own_metrics = SystemClock(), Monitoring()
    faults = ProblemLog(own_metrics, clock)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            kubeconfig.connect(options, clock, faults, request_timeout=_SECONDS)
        )
        prometheus = None
        if options.prometheus_url:
            prometheus = await servers.open_prometheus(
                options, RulesOptions(), clock, own_metrics, faults, stack
            )
        around = ClusterContext(client, clock, options.reference, options.lease_name)
        doctor = Doctor(
            AutoscalerReader(client, clock, around),
            around,
            SourceReader(around, given, prometheus, clock),
            clock,
        )
        doctor.period = options.horizontal_pod_autoscaler_sync_period
        return await doctor.examine(*options.target)


class Doctor:
    """Examines autoscalers of one cluster.

    `period` is the HPA controller's in seconds if a flag gives it, else 0.
    """

    def __init__(
        self, autoscalers: AutoscalerReader, around: ClusterContext, sources: SourceReader, clock: Clock
    ) -> None:
        self.period = 0.0
        self._autoscalers = autoscalers
        self._around = around
        self._sources = sources
        self._clock = clock
        self._free = asyncio.Semaphore(_TOGETHER)

    async def examine(self, namespace: str, name: str) -> Found:
        """Return what is found of one autoscaler, of a namespace or of all.

        RunError for what is not there.
        """
        try:
            listed = await self._autoscalers.hpas(namespace)
        except KubernetesError as error:
            if error.status == 403 and not namespace:
                raise RunError(
                    f"listing HPAs cluster-wide is forbidden; pass a namespace: {error.said or error}"
                ) from error
            raise
        read = await self._autoscalers.fpas(namespace)
        unread = read.why if isinstance(read, Unread) else ""
        others = () if isinstance(read, Unread) else read
        chosen = [each for each in listed if not name or each.metadata.name == name]
        fast_chosen = [each for each in others if not name or each.metadata.name == name]
        if not chosen and not fast_chosen:
            await self._miss(namespace, name, unread)
        leaders = await self._around.leaders() if fast_chosen else ()
        return Found(
            tuple(await asyncio.gather(*(self._examine(each, listed, others) for each in chosen))),
            tuple(fast.examine(each, _rivals_of(each, listed, others), leaders) for each in fast_chosen),
            unread,
        )

    async def _miss(self, namespace: str, name: str, unread: str) -> None:
        """Raise RunError where a namespace or an autoscaler is named that is not there."""
        if namespace:
            await self._autoscalers.check_namespace(namespace)
        if name and unread:
            raise RunError(f"there is no {HPA_KIND} {namespace}/{name}, and {KIND}s cannot be read: {unread}")
        if name:
            raise RunError(f"there is no {HPA_KIND} and no {KIND} {namespace}/{name}")

    async def _examine(self, hpa: HPA, listed: Sequence[HPA], others: Sequence[FPA]) -> Examination:
        async with self._free:
            return diagnosis.examine(await self._read(hpa, listed, others))

    async def _read(self, hpa: HPA, listed: Sequence[HPA], others: Sequence[FPA]) -> Facts:
        meta, spec = hpa.metadata, hpa.spec
        workload = await self._autoscalers.workload(meta.namespace, spec.scale_target_ref)
        own = model.without_handshake(spec.metrics) or ()
        metrics = await asyncio.gather(*(self._metric(hpa, each, workload) for each in own))
        period = await self._around.period()
        if self.period:
            period = period._replace(seconds=self.period, says="as you said")
        return Facts(
            hpa,
            workload.target,
            tuple(metrics),
            period,
            await self._sources.delay(),
            round(self._clock.wall() * SECOND),
            await self._boost(hpa, workload),
            tuple(each.metadata.name for each in listed if each is not hpa and _target(each) == _target(hpa)),
            _owner(hpa),
            tuple(each.metadata.name for each in others if _target(each) == _target(hpa)),
        )

    async def _metric(self, hpa: HPA, metric: MetricSpec, workload: Workload) -> MetricFacts:
        serving = await self._around.serving(GROUPS[metric.type])
        source = await self._sources.source(hpa.metadata.namespace, metric, workload.pods)
        answer = await self._autoscalers.answer(hpa, metric, workload.target)
        return MetricFacts(_label(metric), metric, serving, answer, source)

    async def _boost(self, hpa: HPA, workload: Workload) -> BoostFacts | None:
        meta, spec = hpa.metadata, hpa.spec
        wishes = model.read_annotations(meta.annotations)
        shaken = [each for each in spec.metrics or () if model.is_handshake(each)]
        if not (wishes.mode or wishes.faults or shaken):
            return None
        floor = None
        if shaken and shaken[0].type in {"External", "Object"}:
            metric = shaken[0]
            serving = await self._around.serving(GROUPS[metric.type])
            answer = await self._autoscalers.answer(hpa, metric, workload.target)
            floor = MetricFacts(model.METRIC, metric, serving, answer)
        entry = await self._around.entry(meta.uid)
        handshake = model.check_handshake(meta.name, spec)
        owners = ((each.api_version, each.kind, each.name) for each in meta.owner_references or ())
        owner = model.find_owner(owners, meta.labels)
        return BoostFacts(wishes, handshake, floor, await self._around.leaders(), entry, owner)


def _rivals_of(fpa: FPA, listed: Sequence[HPA], others: Sequence[FPA]) -> tuple[str, ...]:
    """Return the other autoscalers of a target as ``Kind name``."""
    hpas = [f"{HPA_KIND} {each.metadata.name}" for each in listed if _target(each) == _target(fpa)]
    return (
        *hpas,
        *(
            f"{KIND} {each.metadata.name}"
            for each in others
            if each is not fpa and _target(each) == _target(fpa)
        ),
    )


def _target(autoscaler: HPA | FPA) -> TargetKey:
    return TargetKey.of(autoscaler.metadata.namespace, autoscaler.spec.scale_target_ref)


def _owner(hpa: HPA) -> str:
    for each in hpa.metadata.owner_references or ():
        return f"{_OWNERS.get(each.kind, 'the')} {each.kind} {each.name}"
    return ""


def _label(metric: MetricSpec) -> str:
    """Return what a metric is called in the report."""
    if metric.container_resource is not None:
        return f"{metric.container_resource.name} of container {metric.container_resource.container}"
    if metric.resource is not None:
        return metric.resource.name
    source = metric.pods or metric.object or metric.external
    return source.metric.name if source is not None else metric.type
