"""`fastpath slices`: which scaler owns which slices of the namespaces, as their Leases say."""

import asyncio
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from adapter.cli import command_line
from adapter.config.option_fields import Command
from adapter.errors import KubernetesError
from adapter.model.autoscaling import slices
from adapter.model.autoscaling.boost import MODE_ANNOTATION
from adapter.model.autoscaling.fastpath_autoscaler import API_VERSION
from adapter.model.timestamps import SECOND
from fastpath_tools import tables
from fastpath_tools.live import cluster_options
from fastpath_tools.live.cluster_options import KubeconfigOptions

if TYPE_CHECKING:
    from adapter.kubernetes.client import KubernetesClient
    from fastpath_tools.live.api_objects import LeaseDocument

NO_OWNER = "-"


@dataclass(frozen=True, kw_only=True)
class SlicesOptions(KubeconfigOptions):
    namespace: str = cluster_options.namespace_of_leases("Namespace of the Leases.")
    lease_name: str = cluster_options.lease_name()
    output: str = command_line.output("text", "json", help_="text, or json with each slice.")


COMMAND = Command(
    verb="slices",
    options=SlicesOptions,
    about="""\
Shows which scaler owns which slices of the namespaces, since when, and how many autoscalers are in
them. A scaler that did not renew its Lease in time keeps its slices until another one takes them.

Exit status: 0 when each slice has an owner, 1 when one has none or the cluster cannot be asked, 2 when
the command line or the kubeconfig is wrong.
""",
)


class SliceRow(NamedTuple):
    """A slice: the Pod that owns it, "-" for none, and for how many seconds; the autoscalers in it.

    `holder` is what its Lease names, also if that is no scaler.
    """

    number: int
    owner: str
    seconds: float | None
    autoscalers: int
    holder: str


class ScalerRow(NamedTuple):
    """A scaler by its Pod, and how many seconds ago it renewed its Lease; it is late after `duration`.

    A container that starts again is another scaler in the same Pod, with a `holder` of its own.
    """

    pod: str
    renewed: float | None
    duration: int
    holder: str


@command_line.verb(COMMAND)
def main(options: SlicesOptions) -> int:
    """Show the slices; 0 when each has an owner, else 1. KubernetesError when the cluster cannot be asked."""
    return asyncio.run(_run(options))


async def _run(options: SlicesOptions) -> int:
    from adapter.kubernetes import credentials  # noqa: PLC0415 - aiohttp takes a quarter of a second
    from fastpath_tools.live import reading  # noqa: PLC0415 - as above
    from fastpath_tools.live.api_objects import LeaseDocument  # noqa: PLC0415 - as above

    path = f"/apis/coordination.k8s.io/v1/namespaces/{options.namespace}/leases"
    async with cluster_options.connect(options) as client:
        leases = await reading.fetch_items(client, path, LeaseDocument)
        counts = await _count_autoscalers(client)
    prefix = f"{options.lease_name}-member-"
    ended = {lease.metadata.name.removeprefix(prefix) for lease in leases if not lease.spec.holder_identity}
    now = time.time()  # noqa: TID251 - the times in Leases are those of other machines
    scalers = {
        (holder := lease.spec.holder_identity): ScalerRow(
            credentials.pod_of(holder),
            _ago(lease.spec.renew_time, now),
            lease.spec.lease_duration_seconds or 0,
            holder,
        )
        for lease in leases
        if lease.metadata.name.startswith(prefix) and lease.spec.holder_identity
    }
    rows = read_slices(options.lease_name, leases, scalers, counts, now)
    if options.output == "json":
        command_line.show(command_line.to_json(to_plain(rows, scalers.values())))
    else:
        command_line.show("\n".join([*render(rows, scalers.values(), ended), ""]))
    return 0 if all(row.owner != NO_OWNER for row in rows) else 1


async def _count_autoscalers(client: "KubernetesClient") -> Counter[int]:
    """Return how many FastPathAutoscalers and annotated HorizontalPodAutoscalers each slice has."""
    from fastpath_tools.live import reading  # noqa: PLC0415 - as above
    from fastpath_tools.live.api_objects import NamedDocument  # noqa: PLC0415 - as above

    counts = Counter[int]()
    for path, is_native in (
        (f"/apis/{API_VERSION}/fastpathautoscalers", False),
        ("/apis/autoscaling/v2/horizontalpodautoscalers", True),
    ):
        try:
            listed = await reading.fetch_items(client, path, NamedDocument)
        except KubernetesError as error:
            if error.status != 404:  # then the cluster does not have the kind
                raise
            continue
        counts.update(
            slices.slice_of(one.metadata.namespace)
            for one in listed
            if not is_native or MODE_ANNOTATION in (one.metadata.annotations or ())
        )
    return counts


def _ago(instant: int | None, now: float) -> float | None:
    return None if instant is None else max(0.0, now - instant / SECOND)


def read_slices(
    name: str,
    leases: "Iterable[LeaseDocument]",
    scalers: Mapping[str, ScalerRow],
    counts: Mapping[int, int],
    now: float,
) -> list[SliceRow]:
    """Return all slices. A Lease whose holder is no scaler is as good as none."""
    specs = {slices.parse_name(name, lease.metadata.name): lease.spec for lease in leases}
    rows = []
    for number in range(slices.COUNT):
        spec = specs.get(number)
        holder = "" if spec is None else spec.holder_identity or ""
        scaler = scalers.get(holder)
        owner, seconds = NO_OWNER, None
        if spec is not None and scaler is not None:
            owner, seconds = scaler.pod, _ago(spec.acquire_time, now)
        rows.append(SliceRow(number, owner, seconds, counts.get(number, 0), holder))
    return rows


def render(rows: Sequence[SliceRow], scalers: Collection[ScalerRow], ended: Collection[str]) -> Iterator[str]:
    """Yield a line for each scaler, and one for the slices without an owner, with what their Leases name.

    `ended` are the identifiers of processes whose Lease another scaler has cleared, or they themselves.
    """
    table = [("scaler", "slices", "autoscalers", "last change", "renewed")]
    for scaler in sorted(scalers):
        own = [row for row in rows if row.holder == scaler.holder]
        changed = min((row.seconds for row in own if row.seconds is not None), default=None)
        late = " (late)" if scaler.renewed is None or scaler.renewed > scaler.duration else ""
        autoscalers = str(sum(row.autoscalers for row in own))
        table.append((scaler.pod, str(len(own)), autoscalers, _told(changed), _told(scaler.renewed) + late))
    yield from tables.text_table(table)
    if not scalers:
        yield "no scaler has a Lease here: --namespace gives the namespace that scalers run in"
    free = [row for row in rows if row.owner == NO_OWNER]
    if free:
        yield f"without an owner: {_list_numbers(free)} ({sum(row.autoscalers for row in free)} autoscalers)"
    for holder in sorted({row.holder for row in free} - {""}):
        held = [row for row in free if row.holder == holder]
        is_left = holder.rpartition("_")[2] in ended
        what = "left by a scaler that is gone; taken within 15 s" if is_left else "which is no scaler"
        yield f"held by {holder}, {what}: {_list_numbers(held)}"


def _list_numbers(rows: Iterable[SliceRow]) -> str:
    return ", ".join(f"{row.number:02d}" for row in rows)


def _told(seconds: float | None) -> str:
    return NO_OWNER if seconds is None else f"{tables.duration(seconds)} ago"


def to_plain(rows: Iterable[SliceRow], scalers: Iterable[ScalerRow]) -> dict[str, Any]:
    return {
        "scalers": [scaler._asdict() for scaler in sorted(scalers)],
        "slices": [row._asdict() | {"owner": "" if row.owner == NO_OWNER else row.owner} for row in rows],
    }
