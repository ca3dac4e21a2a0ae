"""The deploy guide, word by word, with the image of the Dockerfile."""

import json
import textwrap

import pytest

from tests.cluster.site import DEPLOY, SCALER, TOP, MetricReader, Site, with_resource
from tests.support import rendered
from tests.support.rendered import ROOT
from tests.support.waiting import running

pytestmark = [pytest.mark.cluster, pytest.mark.integration, pytest.mark.timeout(600)]


async def test_the_readme(cluster_site: Site) -> None:
    """Its block in one shell: Fastpath serves the metrics APIs, also where Prometheus is not yet."""
    site = cluster_site
    await site.remove()
    site.folder.mkdir(exist_ok=True)
    lines = rendered.section((ROOT / "README.md").read_text(), "Install").split(
        "\n    fastpath preflight", 1
    )[1]
    block = textwrap.dedent(f"    fastpath preflight{lines}".split("\n\n", maxsplit=1)[0])
    name, _, tag = site.image.rpartition(":")
    block = block.replace("registry.example.com/fastpath, newTag: 0.1.0", f"{name}, newTag: {tag}")
    done = await site.shell.run(f"set -e; cd .. && rm -r fastpath\n{block}")
    assert done.status == 0, done.stderr
    site.installed = "readme"
    await site.shell.paste("kubectl -n fastpath rollout status deployment/fastpath")
    await site.shell.paste("kubectl wait --for=condition=Available apiservice -l fastpath.io/apiservice")
    await site.remove()


async def test_word_by_word(cluster_site: Site) -> None:
    """Each line succeeds at once: base, then the scaler, then `kubectl top` with the next certificate."""
    site = cluster_site
    await site.remove()
    await site.workload("web")
    await site.workload("load", 1)
    await site.load("web", 10, "/wait?ms=10")
    await site.ask("load", "/queue?depth=7")
    await site.until(lambda: site.query("rate(http_requests_total[1m]) > 1 and on() queue_depth"), 60)
    await site.shell.paste("\n".join(rendered.commands(DEPLOY, "2. Which servers own the metrics APIs now?")))
    site.write_overlay()
    await site.make_certificates()
    *_, pods, queue, preflight = [
        await site.shell.paste(line) for line in rendered.commands(DEPLOY, "4. Apply and verify")
    ]
    names = {each["describedObject"]["name"].rsplit("-", 2)[0] for each in json.loads(pods)["items"]}
    assert (names, json.loads(queue)["items"][0]["value"]) == ({"web", "load"}, "7")
    assert preflight.count(" ours ") == 3
    site.installed = "guide"

    site.write_overlay(SCALER)
    await site.apply_overlay()
    await site.until(site.is_shared, 60)

    reader = MetricReader(site, "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/inflight")
    async with running(reader.read()):
        site.write_overlay(SCALER, TOP)
        for line in rendered.commands(DEPLOY, "Certificates"):
            await site.shell.paste(with_resource(line))
        (top,) = (line for line in rendered.commands(DEPLOY, TOP) if line.startswith("kubectl top"))
        await site.until(lambda: site.shell.paste(top), 90)
    assert (reader.faults, reader.answers > 10) == ([], True)
