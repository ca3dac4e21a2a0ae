"""How often the noise of a steady load raises the count, by the window of the rates: `scripts/bench noise`.

The seconds of a steady load that `benchmarks.counters` has recorded are replayed. A pod has blocks of them in
random order, so that real bursts follow each other and no two pods are alike. The mean is the target, where
chance makes a raise most easily. Each second the usage of the pods over a window is looked at, as the scaler
does, and each `SYNC` seconds that over `CONTAINER_WINDOW`, as the HPA controller does.

- `raises` are those in an hour that the controller does not make about that time: by what the scaler does,
  which demands a difference beyond the noise, and `unguarded` by the tolerance alone.
- `reaction` is the time from a step, from 0.8 of the target to 2.05 times as much, to the first raise.
"""

import argparse
import random
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from adapter.autoscaler.usage.noise import MOST, Noise
from benchmarks import common, suite
from benchmarks.common import Report, percentile
from benchmarks.counted import COUNTED

WINDOWS = (2, 3, 4, 5, 10, 15)
PODS = (1, 4, 10)
SHOWN_PODS = 4
"""Those of the picture."""

CONTAINER_WINDOW, SYNC = 30, 15
TOLERANCE = 0.1
HOUR = 3600
_BLOCK = 15
_ABOUT = 30
"""The seconds around a raise in which the controller may make it, too."""

_BEFORE, _AFTER = 0.8, 0.8 * 2.05


class Shown(NamedTuple):
    """The usage of the pods at each second, as parts of the target: of their counters, and of containers."""

    own: Sequence[float]
    containers: Sequence[float]
    own_guarded: Sequence[float]
    """0 where the difference is within the noise."""


def draw_usage(trace: Sequence[float], pods: int, seconds: int, draw: random.Random) -> list[float]:
    """Return so many seconds of the mean of some pods: blocks of the trace in random order, with mean 1."""
    usual = statistics.fmean(trace)

    def draw_pod() -> list[float]:
        seen: list[float] = []
        while len(seen) < seconds:
            begin = draw.randrange(len(trace) - _BLOCK + 1)
            seen += [cores / usual for cores in trace[begin : begin + _BLOCK]]
        return seen[:seconds]

    return [statistics.fmean(values) for values in zip(*(draw_pod() for _ in range(pods)), strict=True)]


def show(usage: Sequence[float], window: int) -> Shown:
    """Return what is seen of a usage, from the second on at which all is known."""
    sums = [0.0, *accumulate(usage)]

    def mean(end: int, length: int) -> float:
        return (sums[end] - sums[end - length]) / length

    noise = Noise(window)
    begin = max(CONTAINER_WINDOW, window)
    own, containers, guarded = [], [], []
    for end in range(begin, len(usage) + 1):
        now, before = mean(end, window), mean(end - (end - begin) % SYNC, CONTAINER_WINDOW)
        noise.add(end, now)
        share = noise.share
        own.append(now)
        containers.append(before)
        guarded.append(now if share is not None and now - before > share * before else 0.0)
    return Shown(own, containers, guarded)


def raises(own: Sequence[float], containers: Sequence[float]) -> Iterator[int]:
    """Yield the seconds of raises that the controller does not make; one raise takes `SYNC` seconds."""
    syncs = [second for second in range(0, len(containers), SYNC) if containers[second] > 1 + TOLERANCE]
    free = 0
    for second, usage in enumerate(own):
        if usage > 1 + TOLERANCE and second >= free:
            free = second + SYNC
            if not any(abs(sync - second) <= _ABOUT for sync in syncs):
                yield second


def reaction(trace: Sequence[float], pods: int, window: int, draw: random.Random) -> tuple[float, float]:
    """Return the seconds from a step between two scrapes to the raise, as guarded and by tolerance alone."""
    calm = MOST * window
    usage = draw_usage(trace, pods, calm + 60, draw)
    part = draw.random()
    stepped = [_BEFORE * value for value in usage[:calm]]
    stepped.append((_BEFORE * part + _AFTER * (1 - part)) * usage[calm])
    stepped += [_AFTER * value for value in usage[calm + 1 :]]
    shown = show(stepped, window)
    begin = len(shown.own) - 60
    guarded, own = (
        next((second for second, usage in enumerate(values[begin:]) if usage > 1 + TOLERANCE), 60)
        for values in (shown.own_guarded, shown.own)
    )
    return guarded + 1 - part, own + 1 - part


def main() -> None:
    sizes = common.parse_sizes("Raises by noise.", hours=4, steps=30, seed=1, results="")
    kept = Path(sizes.results or suite.RESULTS)
    del sizes.results
    notes = suite.read(kept).get("counters", {}).get("notes", {})
    traces = {
        name: [float(rate) for rate in notes[f"{name}_rates"].split()]
        for name in COUNTED
        if notes.get(f"{name}_rates")
    }
    if not traces:
        sys.exit(f"{kept} has no rates to replay: run scripts/bench counters")
    report = Report("noise", vars(sizes), {})
    for pods in PODS:
        for window in WINDOWS:
            _add(report, traces, pods, window, sizes)
    report.show()


def _add(
    report: Report, traces: Mapping[str, Sequence[float]], pods: int, window: int, sizes: argparse.Namespace
) -> None:
    draw = random.Random(f"{sizes.seed} {pods} {window}")
    hours = int(sizes.hours)
    guarded, unguarded, reactions, plain = [], [], [], []
    for trace in traces.values():
        calm = MOST * window
        shown = show(draw_usage(trace, pods, calm + hours * HOUR, draw), window)
        later = [values[calm:] for values in shown]
        guarded.append(len(list(raises(later[2], later[1]))) / hours)
        unguarded.append(len(list(raises(later[0], later[1]))) / hours)
        taken = [reaction(trace, pods, window, draw) for _ in range(int(sizes.steps))]
        reactions += [one for one, _ in taken]
        plain += [other for _, other in taken]
    name = f"{pods}_pods_{window}s"
    report.add(
        **{
            f"{name}_raises_per_hour": max(guarded),
            f"{name}_unguarded_raises_per_hour": max(unguarded),
            f"{name}_reaction_p50_seconds": statistics.median(reactions),
            f"{name}_reaction_p95_seconds": percentile(reactions, 0.95),
            f"{name}_unguarded_reaction_p50_seconds": statistics.median(plain),
        }
    )


if __name__ == "__main__":
    main()
