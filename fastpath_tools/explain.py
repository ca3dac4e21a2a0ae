"""`fastpath explain NAMESPACE/NAME`: the journal of an autoscaler, from the process that decides about it."""

import asyncio
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from adapter.cli import command_line
from adapter.compose.clock import SystemClock
from adapter.config import checks
from adapter.config.option_fields import Command, option, renamed, replaced
from adapter.config.pflag import FlagType
from adapter.errors import Fault, KubernetesError, RunError
from adapter.model import visible
from adapter.model.autoscaling.fastpath_autoscaler import ADVISE, KIND, native
from adapter.model.autoscaling.forecast import FLOOR
from adapter.model.objects.apiservices import ServiceReference
from adapter.model.visible import counted
from fastpath_tools.live import cluster_options, impossible, reading, resizes, scaler_access
from fastpath_tools.live.cluster import LiveCluster
from fastpath_tools.live.cluster_options import ScalerServiceOptions
from fastpath_tools.live.facts import TargetFacts, Unread, UnreadyPods

_SHOWN = 10

_UNDECIDED = re.compile(
    "^no scaler owns the slice: there is no Lease|not found in namespace|cannot be forwarded"
)
"""In the error for an autoscaler that no scaler decides, or whose scaler cannot be reached."""

_UTILIZATION = "utilization (percentage of request)"
"""The end of what describes a metric with a target utilization."""

_START_PARTS = (
    ("scheduled", "created to scheduled"),
    ("started", "scheduled to containers started"),
    ("initialized", "  of which init containers"),
    ("ready", "containers started to Ready"),
)
_LEFT_OUT = (
    ("restarted", "restarted before they were Ready"),
    ("ended", "ended before they were Ready"),
    ("incoherent", "with times that contradict each other"),
)
_STARTING = (
    ("noNode", "not scheduled"),
    ("pullFails", "whose image cannot be pulled"),
    ("crashing", "whose containers were restarted"),
)


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(ScalerServiceOptions):
    namespace: str = cluster_options.namespace_of_leases(
        "Namespace of Fastpath: of the Lease and of the Pod."
    )
    last: int = option(
        FlagType.INT,
        "0",
        "Show only this many of the newest entries of the journal; 0 shows all.",
        group="Output",
        check=checks.not_negative,
    )
    output: str = command_line.output("text", "json", help_="text, or json for the whole document.")

    def faults(self, given: AbstractSet[str]) -> Iterator[Fault]:
        yield from super().faults(given)
        yield from self.name_faults()


COMMAND = Command(
    verb="explain",
    options=ExplainOptions,
    usage="NAMESPACE/NAME [flags]",
    about="""\
Shows what the scaler decided for one autoscaler and why: the last decision, then the journal,
newest first. It reads the journal of the scaler that decides about it: at --server, or else from the
Pod that the Lease of its slice names, whose port it forwards with kubectl. Without --server it also
reads the target, and says what keeps its pods from getting Ready, and which requests a utilization
counts against while an in-place resize is not actuated.
""",
    deprecated=(renamed("lease-namespace", "namespace"), replaced("json", "output", "json")),
)


@command_line.verb(COMMAND)
def main(options: ExplainOptions) -> int:
    """Print what was decided and why; 1 if the scaler cannot be asked, 2 for a wrong command line."""
    try:
        document = asyncio.run(scaler_access.fetch(options, options.namespace))
    except RunError as error:
        if not _UNDECIDED.search(str(error)):
            raise
        raise RunError(f"{error}; fastpath doctor {'/'.join(options.key)} needs no scaler") from error
    if options.output == "json":
        command_line.show(command_line.to_json(document))
    else:
        causes, resizing = asyncio.run(_read_target(options, document))
        command_line.show(visible.join(render(document, options.last, resizing, causes)))
    return 0


async def _read_target(options: ExplainOptions, document: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return what keeps the target from following, and which requests utilizations count against.

    These are those of the spec until a resize of pods is actuated. A process at --server may be of another
    cluster than the kubeconfig: then nothing is read.
    """
    if options.server:
        return [], []
    namespace, name = options.key
    async with cluster_options.connect(options) as client:
        service = ServiceReference(options.namespace, "fastpath")
        cluster = LiveCluster(client, SystemClock(), service, options.lease_name)
        try:
            fpas = await cluster.fpas(namespace) if document["kind"] == KIND else ()
            hpas = await cluster.hpas(namespace) if document["kind"] != KIND else ()
        except KubernetesError as error:
            return [], [f"  the autoscaler cannot be read: {reading.why(error)}"]
        if isinstance(fpas, Unread):
            return [], [f"  the autoscaler cannot be read: {fpas.why}"]
        autoscalers = (*hpas, *map(native, fpas))
        autoscaler = next((one for one in autoscalers if one.metadata.name == name), None)
        if autoscaler is None:
            return [], []
        target = await cluster.target(namespace, autoscaler.spec.scale_target_ref)
    cause = impossible.find(autoscaler, target)
    if isinstance(target, Unread):
        return _caused(cause), [] if cause is not None else [f"  the target cannot be read: {target.why}"]
    described = _resizing(document, target)
    if target.unread:
        described.append(f"  the pods of the target cannot be read: {target.unread}")
    return _caused(cause or target.unready), [*described, *(f"  {note}" for note in target.notes)]


def _caused(cause: impossible.Impossible | UnreadyPods | None) -> list[str]:
    return [] if cause is None else [f"  cause: {cause.text}", f"  change: {cause.change}"]


def _resizing(document: dict[str, Any], target: TargetFacts) -> list[str]:
    inputs = document["last"]["inputs"] if document["last"] else []
    containers = sorted({name for resize in target.resizes for name, _ in resize.requests})
    described = []
    for metric in (given["metric"] for given in inputs if given["metric"].endswith(_UTILIZATION)):
        resource, _, rest = metric.partition(" ")
        # which container a metric is of is not in its description
        names = containers if rest.startswith("container") else [""]
        pods = len(target.ready)
        described += [(name, resizes.describe(target.resizes, pods, resource, name)) for name in names]
    return [f"  container {name}: {text}" if name else f"  {text}" for name, text in described if text]


def render(
    document: dict[str, Any], last: int = 0, resizing: Sequence[str] = (), causes: Sequence[str] = ()
) -> list[str]:
    """Return what a scaler shows of an autoscaler as lines for people.

    Of the journal it shows the newest `last` entries, all for 0. `causes` and `resizing` are lines about the
    target; the first ones say what keeps it from following.
    """
    target, writers = document["target"], document["writers"]
    autoscaler = f"{document['namespace']}/{document['name']} ({document['mode']})"
    lines = [f"{autoscaler} scales {target['kind']} {target['name']}", *causes]
    if target.get("error"):
        lines.append(f"  target: {target['error']}")
    else:
        owner = f", last set by {target['manager']}" if target["manager"] else ""
        counts = f"spec.replicas {target['replicas']}, status.replicas {target['statusReplicas']}"
        lines += [f"  target: {counts}{owner}", *resizing]
    lines += [
        f"  {condition['type']} {condition['status']} ({condition['reason']}): {condition['message']}"
        for condition in document["status"].get("conditions", [])
    ]
    if foreseen := document.get("next"):
        until = f"{foreseen['replicas']} at {foreseen['at']} if the load stays"
        released = foreseen["released"]
        lines.append(f"  next: {until} ({released}{'' if ' until ' in released else ' until then'})")
    boosted = functools.partial(_boost, mode=document["mode"])
    for name, write in (("readyTimes", _ready_times), ("boost", boosted), ("forecast", _forecast)):
        if (shown := document.get(name)) is not None:  # a scaler that is older has none
            lines += write(shown)
    if writers["pausedUntil"]:
        lines.append(f"  scaling suspended until {writers['pausedUntil']}: {writers['pausedBy']}")
    if decision := document["last"]:
        lines += ["", f"last decision, {decision['time']}", *_steps(decision)]
    newest_first = document["journal"][::-1]
    for entry in newest_first[: last or None]:
        seen, reason = entry.get("changeSeen"), f": {entry['reason']}" if entry["reason"] else ""
        by = f"; {seen['manager']} had changed the replicas by {seen['replicas']:+d}" if seen else ""
        lines += ["", f"{entry['time']}: {_outcome(entry, reason)}{by}", *_steps(entry)]
        if entry["error"]:
            lines.append(f"  error: {entry['error']}")
    return lines


def _steps(decision: dict[str, Any]) -> list[str]:
    """Return what a decision was made from, and how; a sentence that several metrics share stands once."""
    steps = [*map(_input, decision["inputs"]), *decision["trace"]]
    return [f"  {step}" for step in dict.fromkeys(steps)]


def _boost(boost: dict[str, Any], mode: str) -> Iterator[str]:
    """Yield what stands beside the decisions for a HorizontalPodAutoscaler."""
    if mode == ADVISE:
        yield "  advise: writes nothing; to begin: fastpath boost"
    elif boost["fault"]:
        yield f"  not boosted: {boost['fault']}"
    if boost["demotedUntil"]:
        yield f"  advice only until {boost['demotedUntil']}: {boost['demotedBy']} reverted a raise"
    if floor := boost["floor"]:
        shown = f"in the HPA's status since {floor['shown']}"
        if not floor["shown"]:
            shown = "not in the HPA's status yet"
        yield f"  floor {floor['replicas']} since {floor['raised']}, until {floor['until']}: {shown}"


def _forecast(shown: dict[str, Any]) -> Iterator[str]:
    """Yield the floor of a forecast. The condition ForecastReady says the rest."""
    card = shown["card"]
    if card is None or not card["verdict"]["chosen"]:
        yield "  forecast: no floor (no candidate acts)"
    elif shown["floor"]:
        yield f"  forecast: floor {shown['floor']}, by candidate {card['verdict']['chosen']}"
    else:
        why = shown["withheld"] if card["mode"] == FLOOR else f"mode {card['mode']}"
        yield f"  forecast: no floor ({why or 'no plan'})"


def _ready_times(shown: dict[str, Any]) -> Iterator[str]:
    """Yield how long pods take to be Ready."""
    if seconds := shown.get("seconds"):
        yield f"  time to Ready (last {_pods(shown['pods'])}): {_percentiles(seconds['total'])}"
        for part, words in _START_PARTS:
            if part in seconds and (part != "initialized" or seconds[part]["p95"]):
                yield f"    {words}: {_percentiles(seconds[part])}"
    if count := shown.get("unschedulable"):
        yield f"    of {_pods(count)} no node fitted at first"
    if count := shown.get("pullFailed"):
        yield f"    of {_pods(count)} an image could not be pulled at first"
    if others := _counts(shown["leftOut"], _LEFT_OUT):
        yield f"  pods without a time to Ready: {others}"
    starting = shown["starting"]
    if starting is not None and starting["pods"]:
        why = _counts(starting, _STARTING)
        yield f"  {_pods(starting['pods'])} never Ready yet{': ' if why else ''}{why}"


def _counts(counts: dict[str, int], words: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{counts[key]} {what}" for key, what in words if counts[key])


def _pods(count: int) -> str:
    return counted(count, "pod", "pods")


def _percentiles(seconds: dict[str, float]) -> str:
    return f"p50 {seconds['p50']:g} s, p95 {seconds['p95']:g} s"


def _outcome(entry: dict[str, Any], reason: str) -> str:
    """Return what an entry decided; without a count neither a scale nor a wish for one."""
    current, desired = entry["currentReplicas"], entry["desiredReplicas"]
    if desired is None:
        return f"no decision{reason}{'' if current is None else f'; stays {current}'}"
    done = {"written": "scaled", "failed": "could not scale"}.get(entry["outcome"], "would have scaled")
    if current == desired:
        return f"stayed at {current}{reason}"
    return f"{done} from {current} to {desired}{reason}"


def _input(given: dict[str, Any]) -> str:
    age = "age unknown" if given["ageSeconds"] is None else f"{given['ageSeconds']:g} s old"
    slow = f"; the pods' own usage does not count: {given['notFaster']}" if "notFaster" in given else ""
    fault = given.get("scrapeFault", "")
    if fault and fault not in given.get("unavailable", "") + given.get("overdue", ""):
        slow += f"; not scraped: {fault}"
    if "unavailable" in given:
        return f"{given['metric']}: no value: {given['unavailable']}{slow}"
    if (faster := given.get("faster")) is not None:  # the age is of these
        own = f"{_values(faster)} by the pods' own usage ({age}{_overdue(faster)})"
        if not given["values"]:
            return f"{given['metric']}: {own}; {given['overdue']}"
        other = f"{_values(given)} from the metrics API"
        return f"{given['metric']}: {own}; {other}; the one that asks for more replicas counts"
    return f"{given['metric']}: {_values(given)} ({age}{_overdue(given)}){slow}"


def _values(given: dict[str, Any]) -> str:
    listed = given["values"] if "value" not in given else [given["value"]]
    values: list[int] = list(listed.values()) if isinstance(listed, dict) else listed
    shown = ", ".join(f"{value / 1000:g}" for value in values[:_SHOWN])
    return f"{shown} and {len(values) - _SHOWN} more" if len(values) > _SHOWN else shown


def _overdue(given: dict[str, Any]) -> str:
    return f", {given['overdue']}" if given["overdue"] else ""
