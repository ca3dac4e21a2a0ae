"""The deploy guide, word by word, with the image of the Dockerfile."""

import json

import pytest

from tests.cluster.site import DEPLOY, SCALER, TOP, Reader, Site, with_resource
from tests.support import rendered
from tests.support.waiting import running

pytestmark = [pytest.mark.cluster, pytest.mark.integration, pytest.mark.timeout(600)]


async def test_word_by_word(cluster_site: Site) -> None:
    """Each line succeeds at once: base, then the scaler, then `kubectl top` with the next certificate."""
    site = cluster_site
    if site.installed:
        await site.remove()
    await site.workload("web")
    await site.workload("load", 1)
    await site.load("web", 10, "/wait?ms=10")
    await site.ask("load", "/queue?depth=7")
    await site.shell.paste("\n".join(rendered.commands(DEPLOY, "2. Which servers own the metrics APIs now?")))
    site.write_overlay()
    await site.make_certificates()
    *_, pods, queue, preflight = [
        await site.shell.paste(line) for line in rendered.commands(DEPLOY, "4. Apply and verify")
    ]
    names = {each["describedObject"]["name"].rsplit("-", 2)[0] for each in json.loads(pods)["items"]}
    assert (names, json.loads(queue)["items"][0]["value"]) == ({"web", "load"}, "7")
    assert preflight.count(" ours ") == 3
    site.installed = True

    site.write_overlay(SCALER)
    await site.apply_overlay()
    await site.until(site.is_shared, 60)

    reader = Reader(site, "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/inflight")
    async with running(reader.read()):
        site.write_overlay(SCALER, TOP)
        for line in rendered.commands(DEPLOY, "Certificates"):
            await site.shell.paste(with_resource(line))
        (top,) = (line for line in rendered.commands(DEPLOY, TOP) if line.startswith("kubectl top"))
        await site.until(lambda: site.shell.paste(top), 90)
    assert (reader.faults, reader.answers > 10) == ([], True)
