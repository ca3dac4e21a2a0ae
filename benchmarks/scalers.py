"""Three scalers that come, crash, freeze and are replaced under stepping load: `benchmarks.scalers`.

The control plane is a real one, with its controllers: KUBEBUILDER_ASSETS names the folder with etcd,
kube-apiserver and kube-controller-manager. Prometheus and all scalers are the real programs, with the rights
of the manifests. Each autoscaler needs more four times in a row, then less in two steps, and so on, at random
moments. Prometheus is told twice a second.

One scaler runs `alone`. Two more `join`; one gets a `kill -9` and another pod comes; one is frozen (`freeze`)
and comes back (`thaw`); at an `update` each is replaced by a new one; one ends (`leave`).

`..._undecided_seconds` is for how long an autoscaler was undecided that a pod has handed over: from the
release of its slice to the first decision of the next owner with the values of all metrics. It does not
depend on the moment of a step. `..._longest_seconds` is the longest time from a step upwards to the written
Scale, so it has the way through Prometheus and the API server too, which takes a scaler half a second where
nothing moves. `lost_...` are those whose owner was killed or frozen when the load stepped, beyond the lease
time.

`double_writes` are Scales that one scaler would not have sent: of another than the owner of the slice, which
the resource versions of the Leases tell, of an outdated version, or of the same count. `unjournalled` are
differences between the journals and what was written. `foreign_writes` are shrinks below what was needed
within the stabilization window, and counts that were not needed. `conflicts` are Scales that were refused
because the target was written meanwhile. `busy_share` is the used part of the machine, and
`late_requests` are those that etcd says it was slow with: without spare time everything is late.
"""

import asyncio
import contextlib
import math
import statistics
from pathlib import Path

from adapter.kubernetes.credentials import pod_of
from benchmarks import common, plane
from benchmarks.common import Goal, Report
from benchmarks.stage import Stage, queries_of
from tests.e2e import fleet
from tests.e2e.fleet import Fleet, Sizes, Turn
from tests.e2e.test_scaler import Scene
from tests.support.scaleraudit import Reaction

SEED = 20_261_127
_LOST = ("kill", "freeze")
_PLANNED = ("join", "thaw", "update", "leave")
_SLOWEST = 5
"""How many of the slowest reactions of a turn are described."""


def main() -> None:
    sizes = common.parse_sizes(
        "How long autoscalers wait while scalers come and go.",
        autoscalers=300,
        namespaces=50,
        lease=15.0,
        renew=10.0,
        retry=2.0,
        step=20.0,
        window=20.0,
        freeze=60.0,
        quiet=20.0,
    )
    assets = plane.find_assets()
    about = f"{sizes.autoscalers} autoscalers of three scalers"
    waits = "longest time from a load step to the written Scale"
    goals = {
        f"{turn}_lost_seconds": Goal(f"{about}, {turn}: {waits}, beyond the lease time", 3.0, "s")
        for turn in _LOST
    }
    for turn in _PLANNED:
        goals[f"{turn}_longest_seconds"] = Goal(f"{about}, {turn}: {waits}", 2.0, "s")
        undecided = Goal(f"{about}, {turn}: longest time without a decision", 1.5, "s")
        goals[f"{turn}_undecided_seconds"] = undecided
    for name, what in (
        ("double_writes", "Scales that two scalers have written"),
        ("unjournalled", "differences of journals and Scales"),
        ("foreign_writes", "Scales that one scaler would not have written"),
    ):
        goals[name] = Goal(f"{about}: {what}", 0, "")
    report = Report("scalers", {"seed": SEED, **vars(sizes)}, goals)
    with Stage() as stage:
        figures, notes = asyncio.run(_run(stage, assets, Sizes(**vars(sizes))))
    report.add(**figures)
    report.notes.update(notes)
    report.show()


async def _run(stage: Stage, assets: Path, sizes: Sizes) -> tuple[dict[str, float], dict[str, str]]:
    async with contextlib.AsyncExitStack() as stack:
        opened = await stack.enter_async_context(plane.opened(stage, assets))
        prometheus = await asyncio.to_thread(stage.start_prometheus)
        scene = Scene(opened.cluster, opened.backend, prometheus, stage.directory)
        scalers = await stack.enter_async_context(fleet.opened(scene, opened.plane, sizes, SEED))
        before = common.read_processor()
        await fleet.turns(scalers)
        busy = common.busy_share(before, common.read_processor())
        late = (stage.directory / "etcd.log").read_text(encoding="utf-8").count("took too long")
        others = {"busy_share": busy, "late_requests": late, "queries": queries_of(prometheus)}
        return _figures(scalers) | others, _notes(scalers)


def _figures(scalers: Fleet) -> dict[str, float]:
    figures: dict[str, float] = {}
    reactions = [(reaction, reaction.step.time + reaction.seconds) for reaction in scalers.reactions()]
    for turn in scalers.turns:
        own = [reaction for reaction, end in reactions if turn.begin <= end < turn.end]
        kept = [each.seconds for each in own if each.owner not in turn.lost]
        figures[f"{turn.name}_steps"] = len(own)
        figures[f"{turn.name}_p50_seconds"] = statistics.median(kept)
        figures[f"{turn.name}_longest_seconds"] = max(kept)
        undecided = scalers.undecided(turn)
        if undecided:
            figures[f"{turn.name}_moved"] = len(undecided)
            figures[f"{turn.name}_undecided_p50_seconds"] = statistics.median(undecided)
            figures[f"{turn.name}_undecided_seconds"] = max(undecided)
        if turn.lost:
            lost = [each.seconds - scalers.sizes.lease for each in own if each.owner in turn.lost]
            figures[f"{turn.name}_lost_steps"] = len(lost)
            figures[f"{turn.name}_lost_seconds"] = max(lost, default=math.inf)
    figures["writes"] = sum(len(scalers.audit.of(target)) for target in scalers.audit.targets)
    figures["conflicts"] = scalers.audit.conflicts
    figures["double_writes"] = len(scalers.doubles())
    figures["unjournalled"] = len(scalers.unjournalled())
    figures["foreign_writes"] = len(scalers.wrong())
    figures["unwritten"] = sum(not reaction.is_written for reaction, _ in reactions)
    return figures


def _notes(scalers: Fleet) -> dict[str, str]:
    """Return the slowest reactions, and the first faults of each kind."""
    notes = {}
    reactions = sorted(scalers.reactions(), key=lambda each: -each.seconds)
    for turn in scalers.turns:
        slow = [each for each in reactions if turn.begin <= each.step.time + each.seconds < turn.end][
            :_SLOWEST
        ]
        notes[f"slowest_{turn.name}"] = "; ".join(_describe(scalers, turn, each) for each in slow)
    for name, faults in (
        ("double_writes", scalers.doubles()),
        ("unjournalled", scalers.unjournalled()),
        ("foreign_writes", scalers.wrong()),
    ):
        if faults:
            notes[name] = "; ".join(faults[:5])
    return notes


def _describe(scalers: Fleet, turn: Turn, reaction: Reaction) -> str:
    """Return when the load stepped, how long the Scale took, and who owned the slice from when on."""
    since, end = reaction.step.time, reaction.step.time + reaction.seconds
    owners = [
        f"{each.time - since:+.2f} s {pod_of(each.holder) or 'none'}"
        for each in scalers.audit.owners(reaction.target.namespace, since - 10.0, end)
    ]
    what = "" if reaction.is_written else ", not written"
    known = ", ".join([reaction.owner, *owners])
    return f"{since - turn.begin:+.2f} s: {reaction.seconds:.2f} s{what} ({known})"


if __name__ == "__main__":
    main()
