"""Mixed load with faults on `fastpath serve` and `fastpath scale`: no leak, no wrong answer.

The load: warm requests, new selectors, relists and reloads of the rules, a workload scaled up and down. The
faults, in an order of the seed: Prometheus paused and resumed, killed and restarted, watches cut, the serving
certificate rotated, the rules file broken and repaired, pods replaced, callers that hang up. Every round
makes each fault once, so that rounds can be compared.

New requests fill the caches before the run: a bounded cache that fills up is no growth. Growth is the slope
over the second half of the run, and the last quarter against the first. Latency is of warm requests while
Prometheus is reachable, by round. A wrong answer (a value that differs from the sample, a failure of a
request that succeeded before, a count of replicas that no metric justifies) makes the exit status 1. The long
run: `--minutes 60`.
"""

import argparse
import asyncio
import contextlib
import statistics
import sys
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Any

import uvloop

from benchmarks import common
from benchmarks.common import Goal, Report
from benchmarks.soak_callers import Callers
from benchmarks.soak_faults import Faults
from benchmarks.soak_world import LEAST, MOST, Held, World
from benchmarks.stage import Stage
from benchmarks.stepping import CLOCK

_FEED_SECONDS = 20.0
_LOOK_SECONDS = 0.2
_LONGEST_ROUND = 60.0
_LEAST_ROUNDS = 2
_LONGEST_RELIST = 15.0
_LONGEST_SILENCE = 10.0
_MOST_SAMPLES = 720
_SETTLE_SECONDS = 20.0
_NO_MORE = 12  # open connections beyond those at the start: one for each recent address of a pod

GOALS = {
    "wrong_answers": Goal("wrong answers", 0, ""),
    "serve_memory_growth_mib_per_hour": Goal("memory growth of `fastpath serve`", 5, "MiB/h"),
    "scale_memory_growth_mib_per_hour": Goal("memory growth of `fastpath scale`", 5, "MiB/h"),
    "serve_fds_growth_per_hour": Goal("file descriptor growth of `fastpath serve`", 5, "1/h"),
    "scale_fds_growth_per_hour": Goal("file descriptor growth of `fastpath scale`", 5, "1/h"),
    "serve_tasks_growth_per_hour": Goal("task growth of `fastpath serve`", 5, "1/h"),
    "scale_tasks_growth_per_hour": Goal("task growth of `fastpath scale`", 5, "1/h"),
    "p50_last_to_first_ratio": Goal("p50 in the last quarter, relative to the first", 1.2, ""),
    "p99_last_to_first_ratio": Goal("p99 in the last quarter, relative to the first", 1.5, ""),
}


class Watch:
    """The measurements of the programs over a run."""

    def __init__(self, world: World) -> None:
        self.held: dict[str, list[Held]] = {program: [] for program in world.pids}
        self.rounds: list[dict[str, float]] = []
        """Latency of each round."""
        self.rises = self.falls = self.wrong_replicas = 0
        self._world = world
        self._begun = CLOCK.monotonic()

    async def look(self) -> None:
        """Measure the programs now."""
        for program, held in self.held.items():
            held.append(await self._world.hold(program, CLOCK.monotonic() - self._begun))

    async def follow_programs(self, seconds: float) -> None:
        """Measure the programs periodically, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(seconds)

    async def follow_replicas(self) -> None:
        """Count the raises and cuts of the scaled workload, and unjustified counts, until cancelled."""
        last = self._world.replicas()
        while True:
            now = self._world.replicas()
            self.rises += now > last
            self.falls += now < last
            self.wrong_replicas += now != last and not LEAST <= now <= MOST
            last = now
            await asyncio.sleep(_LOOK_SECONDS)

    async def settle(self) -> None:
        """Measure until no more is open than at the start, or a timeout."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_SECONDS):
                while any(
                    self.left(name, field) > _NO_MORE for name in self.held for field in ("fds", "tasks")
                ):
                    await asyncio.sleep(_LOOK_SECONDS)
                    await self.look()

    def left(self, name: str, field: str) -> float:
        """Return how much more of a resource a program holds than at the start."""
        held = self.held[name]
        return float(getattr(held[-1], field) - getattr(held[0], field))


async def soak(world: World, callers: Callers, faults: Faults, minutes: float) -> Watch:
    """Run rounds of faults for some minutes, after a warm-up round; the last round is completed."""
    seconds = minutes * 60
    length = min(_LONGEST_ROUND, seconds / _LEAST_ROUNDS)
    await callers.ask_all()
    await faults.round(length)
    callers.take_latency()
    watch = Watch(world)
    await watch.look()
    end = CLOCK.monotonic() + seconds
    look_seconds = max(0.5, seconds / _MOST_SAMPLES)
    async with beside(watch.follow_programs(look_seconds), watch.follow_replicas()):
        while CLOCK.monotonic() < end:
            await faults.round(length)
            watch.rounds.append(callers.take_latency())
    await watch.settle()
    return watch


@contextlib.asynccontextmanager
async def beside(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run endless work beside the block; if one fails, the block ends too."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in works]
        yield
        for task in tasks:
            task.cancel()


async def _feed(world: World) -> None:
    while True:
        await world.feed()
        await asyncio.sleep(_FEED_SECONDS)


async def run(stage: Stage, sizes: argparse.Namespace, report: Report) -> list[str]:
    """Run everything and collect the figures; return the first failures."""
    world = World(stage, sizes.apps, sizes.pods)
    callers = Callers(world, sizes.seed)
    faults = Faults(world, callers, sizes.seed, min(_LONGEST_SILENCE, sizes.minutes * 4))
    async with (
        world.standing(min(_LONGEST_RELIST, sizes.minutes * 10)),
        beside(_feed(world), world.run_workloads()),
    ):
        await callers.fill(sizes.fill)
        async with beside(callers.run(sizes.requests, sizes.fresh)):
            watch = await soak(world, callers, faults, sizes.minutes)
        for program, pid in world.pids.items():
            report.add(**{f"{program}_exit_status": await asyncio.to_thread(stage.end, pid)})
    _tell(report, watch, callers, faults)
    return callers.wrong


def _tell(report: Report, watch: Watch, callers: Callers, faults: Faults) -> None:
    counts = callers.counts
    report.add(
        wrong_answers=counts["wrong"] + counts["failed"] + counts["broken"] + watch.wrong_replicas,
        right_answers=counts["right"],
        refused_answers=counts["refused"],
        warm_requests=counts["warm"],
        fresh_requests=counts["fresh"],
        filling_requests=counts["filled"],
        callers_hung_up=counts["hung_up"],
        scaled_up=watch.rises,
        scaled_down=watch.falls,
        rounds=len(watch.rounds),
        **{name: float(count) for name, count in sorted(faults.counts.items()) if name != "callers_hang_up"},
    )
    for name, held in watch.held.items():
        for field in Held._fields[1:]:
            plain, unit = ("memory", "_mib") if field == "memory_mib" else (field, "")
            values = [float(getattr(each, field)) for each in held]
            first, last = _quarters(values)
            half = len(held) // 2
            growth = _slope([each.time for each in held[half:]], values[half:]) * 3600
            report.add(
                **{
                    f"{name}_{plain}_first_quarter{unit}": first,
                    f"{name}_{plain}_last_quarter{unit}": last,
                    f"{name}_{plain}_growth{unit}_per_hour": growth,
                    f"{name}_{plain}_left{unit}": watch.left(name, field),
                }
            )
    for figure in ("p50_ms", "p99_ms"):
        values = [each[figure] for each in watch.rounds]
        first, last = _quarters(values)
        share = figure.removesuffix("_ms")
        report.add(**{f"{share}_first_quarter_ms": first, f"{share}_last_quarter_ms": last})
        report.add(**{f"{share}_last_to_first_ratio": last / first if first else 0.0})


def _quarters(values: Sequence[float]) -> tuple[float, float]:
    """Return the median of the first quarter and that of the last."""
    size = max(1, len(values) // 4)
    return statistics.median(values[:size]), statistics.median(values[-size:])


def _slope(times: Sequence[float], values: Sequence[float]) -> float:
    """Return the slope of a line through the points, 0 for a single time."""
    return statistics.linear_regression(times, values).slope if len(set(times)) > 1 else 0.0


def main() -> None:
    sizes = common.parse_sizes(
        "A soak.", minutes=60.0, requests=200.0, fresh=20.0, fill=60_000, apps=40, pods=5, seed=7
    )
    common.stay_on_load_core()
    report = Report("soak", vars(sizes), GOALS)
    with Stage() as stage:
        wrong = uvloop.run(run(stage, sizes, report))
    for text in wrong:
        print(text, file=sys.stderr)
    report.show()
    if report.figures["wrong_answers"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
