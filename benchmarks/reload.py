"""Requests while the rules file changes under load, and the time until a new rule answers.

Autoscalers ask at a constant rate, over rules with a counter each. Then one rule of the file is replaced by
another, with a new name and a new series selector, as kubelet replaces a ConfigMap's file. `before` is the
time up to that, `during` the time from then until a second after the new rule answers. A latency counts from
the moment at which a request was due. The new metric is asked for every 50 ms; it answers once the change is
seen (the file is checked every second), compiled, and its series are discovered.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import uvloop

from benchmarks import common, hpas, load
from benchmarks.common import Goal, Report
from benchmarks.load import Connection
from benchmarks.serve import path_of
from benchmarks.stage import App, Stage, make_apps

_CONNECTIONS = 8
_PROBE_SECONDS = 0.05
_AFTER_SECONDS = 1.0
_LONGEST_SECONDS = 60.0


class Asked(NamedTuple):
    """A request: when it was due, its latency, and whether all values arrived."""

    due: float
    took: float
    answered: bool


class Callers:
    """Send requests at a constant rate, until told to stop."""

    def __init__(self, stage: Stage, port: int, requests: Sequence[bytes], pods: int) -> None:
        self._stage = stage
        self._port = port
        self._requests = requests
        self._pods = pods
        self._free: asyncio.Queue[Connection] = asyncio.Queue()
        self.stopping = False
        self.asked: list[Asked] = []

    async def run(self, rate: float) -> None:
        """Send so many requests a second until `stopping`; return once all are answered."""
        for _ in range(_CONNECTIONS):
            self._free.put_nowait(await Connection.open(self._port, self._stage.tls))
        begun = time.perf_counter()
        number = 0
        async with asyncio.TaskGroup() as group:
            while not self.stopping:
                due = begun + number / rate
                await asyncio.sleep(due - time.perf_counter())
                group.create_task(self._ask(self._requests[number % len(self._requests)], due))
                number += 1
        for _ in range(_CONNECTIONS):
            self._free.get_nowait().close()

    async def _ask(self, request: bytes, due: float) -> None:
        connection = await self._free.get()
        try:
            reply = await connection.get(request)
            answered = reply.status == 200 and reply.body.count(b'"describedObject"') == self._pods
        except OSError:
            answered = False
            connection = await Connection.open(self._port, self._stage.tls)
        self._free.put_nowait(connection)
        self.asked.append(Asked(due, time.perf_counter() - due, answered))


def rules(metrics: Sequence[str], turn: int) -> dict[str, object]:
    """Return a rule for each counter, and one whose name and selector change each turn."""
    changing = {
        "seriesQuery": f'{metrics[0]}{{namespace!="",pod!="",job!="turn-{turn}"}}',
        "resources": {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}},
        "name": {"as": _name(turn)},
        "metricsQuery": "sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)",
    }
    made = hpas.rules(metrics)
    assert isinstance(made["rules"], list)
    return {"rules": [*made["rules"], changing]}


async def measure(
    stage: Stage,
    port: int,
    config: Path,
    apps: Sequence[App],
    metrics: Sequence[str],
    turn: int,
    rate: float,
    seconds: float,
) -> dict[str, float]:
    """Return the figures of one change of the file."""
    requests = [load.render(path_of(app, app.metric.replace("_total", "_per_second"))) for app in apps]
    callers = Callers(stage, port, requests, len(apps[0].pods))
    running = asyncio.create_task(callers.run(rate))
    probe = await Connection.open(port, stage.tls)
    question = load.render(path_of(apps[0], _name(turn)))
    await asyncio.sleep(seconds)
    changed = time.perf_counter()
    new = config.with_suffix(".new")
    new.write_text(json.dumps(rules(metrics, turn)), encoding="utf-8")
    os.replace(new, config)  # noqa: PTH105 - whole or not at all
    while (await probe.get(question)).status != 200:
        if time.perf_counter() - changed > _LONGEST_SECONDS:
            sys.exit(f"the new rule did not answer within {_LONGEST_SECONDS:g} s")
        await asyncio.sleep(_PROBE_SECONDS)
    answered = time.perf_counter()
    await asyncio.sleep(_AFTER_SECONDS)
    callers.stopping = True
    await running
    probe.close()
    before = [each for each in callers.asked if each.due < changed]
    during = [each for each in callers.asked if each.due >= changed]
    return {
        **_figures("before", before),
        **_figures("during", during),
        "new_rule_seconds": answered - changed,
        "requests_per_second": len(callers.asked) / (answered + _AFTER_SECONDS - changed + seconds),
    }


def _figures(part: str, asked: Sequence[Asked]) -> dict[str, float]:
    took = [each.took * 1000 for each in asked]
    return {
        f"{part}_p50_ms": common.percentile(took, 0.5),
        f"{part}_p99_ms": common.percentile(took, 0.99),
        f"{part}_max_ms": max(took),
        f"{part}_failures": sum(not each.answered for each in asked),
    }


def _name(turn: int) -> str:
    return f"changing_{turn}_per_second"


def main() -> None:
    sizes = common.parse_sizes(__doc__, hpas=1000, pods=5, rules=100, rate=500.0, seconds=5.0, runs=3)
    common.stay_on_load_core()
    goals = {
        "during_failures": Goal(
            f"failed requests while one of {sizes.rules} rules is replaced in the file, {sizes.runs} times",
            0,
            "",
        )
    }
    report = Report("reload", vars(sizes), goals)
    metrics = [f"component_{number}_requests_total" for number in range(sizes.rules)]
    apps = make_apps(sizes.hpas, sizes.pods, metrics)
    with Stage() as stage:
        prometheus = stage.start_prometheus(apps)
        adapter = stage.start_adapter(
            stage.start_cluster(sizes.hpas, sizes.pods), prometheus.url, rules(metrics, 0)
        )
        runs = []
        for turn in range(sizes.runs + 1):  # the first only warms up
            work = measure(
                stage, adapter.port, adapter.config, apps, metrics, turn + 1, sizes.rate, sizes.seconds
            )
            runs.append(uvloop.run(work))
    failures = {
        f"{part}_failures": sum(run[f"{part}_failures"] for run in runs) for part in ("before", "during")
    }
    report.add(**common.median_of(runs[1:]) | failures)
    report.show()


if __name__ == "__main__":
    main()
