"""The guide that replaces a real prometheus-adapter, line by line: no autoscaler loses a value."""

import asyncio
import json
import os
import re
import textwrap
from collections.abc import AsyncIterator

import pytest

from tests.cluster.site import HERE, QUEUE, Site, Watch
from tests.support import rendered
from tests.support.rendered import JSON, ROOT
from tests.support.waiting import running

pytestmark = [pytest.mark.cluster, pytest.mark.integration, pytest.mark.timeout(600)]

MIGRATION = (ROOT / "docs" / "guides" / "migrate-from-prometheus-adapter.md").read_text()
OLD = ("v1beta1.custom.metrics.k8s.io", "v1beta1.external.metrics.k8s.io")
RATE = QUEUE.replace("External, external", "Pods, pods").replace("queue_depth", "http_requests_per_second")


@pytest.fixture
async def old(cluster_site: Site) -> AsyncIterator[Site]:
    """Return the cluster with prometheus-adapter in it, and without Fastpath."""
    site = cluster_site
    await site.remove()
    rules = (HERE / "rules.yaml").read_text().replace("    scrape: {port: metrics}\n", "")
    image = os.environ.get(
        "FASTPATH_CLUSTER_PROMETHEUS_ADAPTER", "registry.k8s.io/prometheus-adapter/prometheus-adapter:v0.12.0"
    )
    await site.apply_file("prometheus-adapter.yaml", adapter=image, rules=textwrap.indent(rules, "    "))
    await site.apply(*(rendered.prometheus_adapter_registration(name) for name in OLD))
    yield site
    await site.kubectl("delete", "hpa", "--all", "-n", "shop")
    await site.kubectl("delete", "apiservice", *OLD, "--ignore-not-found")


async def registrations(site: Site) -> dict[str, JSON]:
    listed = (await site.get("apiservice"))["items"]
    return {
        each["metadata"]["name"]: each["spec"]
        for each in listed
        if "metrics.k8s.io" in each["metadata"]["name"]
    }


async def test_there_and_back(old: Site) -> None:
    site, shell = old, old.shell
    await site.workload("load", 1)
    await asyncio.gather(site.workload("web"), site.workload("worker"))
    await site.load("web", 5, "/wait?ms=10")
    await site.ask("load", "/queue?depth=10")
    site.write_overlay()
    await site.autoscale("web", RATE)
    await site.autoscale("worker", QUEUE)
    before = await registrations(site)
    await site.until(Watch(site, 2).active, 90)
    watch = Watch(site, 2)
    async with running(watch.run()):
        *same, preflight = rendered.commands(MIGRATION, "1. Same rules, same values")
        await shell.paste("\n".join(same))
        theirs = await shell.run(preflight)
        assert (theirs.status, theirs.stderr.count("belongs to prometheus-adapter")) == (1, 2), theirs.stderr
        doctor = (await shell.run("fastpath doctor shop/web")).stdout
        assert "prometheus-adapter answered in " in doctor
        assert "boost" not in doctor.partition("change:")[2]
        await shell.paste(*rendered.blocks(MIGRATION, "sh save"))
        await site.make_certificates()
        beside, switch, rest = rendered.blocks(MIGRATION, "sh")
        switch_back, rest_back = rendered.blocks(MIGRATION, "sh back")
        await shell.paste(beside)
        site.installed = "guide"
        await compare(site)
        await shell.paste(switch)
        (*_, moved) = rendered.commands(MIGRATION, "3. Custom metrics: add v1beta2")
        assert json.loads(await shell.paste(moved))["items"]
        await shell.paste(rest)
        assert (await shell.paste("fastpath preflight")).count(" ours ") == 3
        assert json.loads(
            await shell.paste(*rendered.commands(MIGRATION, "4. The rest: point v1beta1 at Fastpath"))
        )
        await shell.paste(*rendered.commands(MIGRATION, "5. Remove prometheus-adapter")[:1])
        await site.until(watch.passed, 60)
        await shell.paste("kubectl -n monitoring scale deployment/prometheus-adapter --replicas=1")
        await shell.paste("kubectl -n monitoring rollout status deployment/prometheus-adapter")
        for block in (rest_back, switch_back):
            await shell.paste(block)
        assert await registrations(site) == before
        await site.remove()
        assert await registrations(site) == before
    assert watch.faults == set()


async def compare(site: Site) -> None:
    """Run the block in which both adapters answer, in one shell as a reader does."""
    section = rendered.section(MIGRATION, "2. Fastpath beside it, not registered")
    block = "\n".join(line[4:] for line in section.splitlines() if line.startswith("    "))
    block = block.replace("&\n", "& sleep 3\n", 1)
    done = await site.shell.run(f"set -e\n{block}\nkill %1")
    lists = done.stdout.split('"MetricValueList"')[1:]
    theirs, ours = (set(re.findall(r'"namespace":"shop","name":"([^"]+)"', each)) for each in lists)
    assert theirs == ours != set(), done.stderr
