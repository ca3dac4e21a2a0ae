"""Parts of the adapter, each measured in a process of its own: `benchmarks.growth_parts pods|series URL`.

The start of a whole program would hide the cost of a list of a few thousand pods. Prints one JSON object:
processor seconds, and the memory that the part adds. Discovery works in a worker process, whose figures are
included.
"""

import asyncio
import json
import os
import resource
import sys
import time

import uvloop

from adapter.compose.clock import SystemClock
from adapter.config import rules_file
from adapter.config.options import PrometheusOptions
from adapter.kubernetes import client as kubernetes
from adapter.kubernetes import credentials
from adapter.kubernetes.cache.lister import ObjectLister
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.model.objects.label_selectors import EVERYTHING
from adapter.model.objects.resources import BUILTIN
from adapter.prometheus.client import PrometheusClient
from adapter.prometheus.series import SeriesLister
from adapter.provider.relist import Relister
from adapter.rules.compile import compile_rules
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from benchmarks.hpas import rules
from benchmarks.stage import memory_of

SERIES = '{__name__=~"component_.*"}'


async def list_pods(url: str) -> dict[str, float]:
    """List and index all pods of a cluster, and select them all once."""
    clock, monitoring = SystemClock(), Monitoring()
    problems = ProblemLog(monitoring, clock)
    kind = BUILTIN.lookup("pods")
    assert kind is not None
    configuration = credentials.ClientConfiguration(url)
    async with await kubernetes.connect(configuration, random=lambda: 0.0) as client:
        lister = ObjectLister(ReflectorContext(client, clock, monitoring, problems, lambda: 0.0))
        lister.start([kind])
        before, memory = time.process_time(), memory_of(os.getpid())
        async with asyncio.TaskGroup() as group:
            running = group.create_task(lister.run(), name="lister")
            await asyncio.sleep(0)  # until it runs
            names = await lister.names(kind, None, EVERYTHING)
            running.cancel()
            return {
                "cpu_seconds": time.process_time() - before,
                "memory_mib": memory_of(os.getpid()) - memory,
                "count": len(names),
            }


async def discover(url: str) -> dict[str, float]:
    """Discover all series of a server once."""
    clock, monitoring = SystemClock(), Monitoring()
    problems = ProblemLog(monitoring, clock)
    ruleset, found = compile_rules(
        rules_file.parse_rules(json.dumps(rules([SERIES])), "rules").config, BUILTIN
    )
    assert not found
    client = await PrometheusClient.open(PrometheusOptions(prometheus_url=url), clock, monitoring, problems)
    lister = SeriesLister(client.origin, monitoring, problems)
    relister = Relister(lister, clock, monitoring, problems, interval=600, max_age=600)
    before = time.process_time()
    running = asyncio.create_task(relister.run())
    await relister.adopt(ruleset)
    await relister.attempted.wait()
    took = time.process_time() - before
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await client.close()
    worker = resource.getrusage(resource.RUSAGE_CHILDREN)
    # not the system's peak of ended children, which starts with that of this process
    memory = monitoring.registry.get_sample_value("fastpath_discovery_worker_peak_memory_bytes") or 0.0
    return {
        "cpu_seconds": took + worker.ru_utime + worker.ru_stime,
        "memory_mib": memory / 2**20,
        "count": monitoring.registry.get_sample_value("fastpath_discovery_series") or 0.0,
    }


if __name__ == "__main__":
    print(json.dumps(uvloop.run({"pods": list_pods, "series": discover}[sys.argv[1]](sys.argv[2]))))
