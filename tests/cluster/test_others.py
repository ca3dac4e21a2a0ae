"""Beside and in place of what a cluster has: metrics-server, and the chart in place of the manifests."""

import functools
import os
from pathlib import Path

import pytest
import yaml

from adapter.model.timestamps import read_nanoseconds, read_span
from tests.chart import charts
from tests.cluster.site import CPU, DEPLOY, HERE, OURS, TOP, Site, Watch
from tests.e2e.helm import Helm
from tests.support import rendered
from tests.support.rendered import JSON, ROOT
from tests.support.waiting import running

pytestmark = [pytest.mark.cluster, pytest.mark.integration, pytest.mark.timeout(600)]

HELM = (ROOT / "docs" / "guides" / "helm.md").read_text()
USAGES = "/apis/metrics.k8s.io/{}/namespaces/shop/pods?labelSelector=app%3Dburner"
VERSIONS = ("v1.metrics.k8s.io", "v1beta1.metrics.k8s.io")


async def usages(site: Site, version: str) -> dict[str, tuple[float, float]]:
    """Return cores and MiB of the workload's pods, as one version of the API has them."""
    items = (await site.raw(USAGES.format(version)))["items"]
    usage = {each["metadata"]["name"]: each["containers"][0]["usage"] for each in items}
    return {name: (number(each["cpu"]), number(each["memory"]) / 2**20) for name, each in usage.items()}


def number(quantity: str) -> float:
    factors = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "Ki": 2**10, "Mi": 2**20}
    unit = quantity.lstrip("0123456789")
    return float(quantity.removesuffix(unit)) * factors.get(unit, 1)


async def test_metrics_server_is_replaced(site: Site) -> None:
    """Both read the same kubelet and agree, and an HPA on CPU reads a value all the time."""
    await site.workload("load", 1)
    await site.workload("burner")
    await site.load("burner", 8, "/burn?ms=20")
    await site.kubectl("delete", "apiservice", *VERSIONS, "--ignore-not-found")
    server = "registry.k8s.io/metrics-server/metrics-server:v0.8.0"
    server = os.environ.get("FASTPATH_CLUSTER_METRICS_SERVER", server)
    await site.apply_file("metrics-server.yaml", server=server)
    await site.autoscale("burner", CPU)
    await site.until(Watch(site, 1).active, 120)
    watch = Watch(site, 1)

    async def agree() -> bool:
        ours, theirs = await usages(site, "v1"), await usages(site, "v1beta1")
        assert ours.keys() == theirs.keys() != set()
        pairs = [(ours[name][place], theirs[name][place]) for name in ours for place in (0, 1)]
        assert all(0.7 < one / other < 1.4 for one, other in pairs), pairs
        return True

    async def counts() -> bool:
        """Tell whether the HPA controller counts our values, not those of before a pod was Ready."""
        ready = {
            pod["metadata"]["name"]: read_nanoseconds(condition["lastTransitionTime"])
            for pod in (await site.get("pods", "-l", "app=burner"))["items"]
            for condition in pod["status"]["conditions"]
            if condition["type"] == "Ready"
        }
        items = (await site.raw(USAGES.format("v1")))["items"]
        begun = [
            (each["metadata"]["name"], read_nanoseconds(each["timestamp"]), each["window"]) for each in items
        ]
        return len(begun) == len(ready) and all(
            at - read_span(window) > ready[name] for name, at, window in begun
        )

    *lines, last = [line for line in rendered.commands(DEPLOY, TOP) if "apply" in line or "--raw" in line]
    async with running(watch.run()):
        for line in lines:
            await site.shell.paste(line)
        assert await site.backend("v1beta1.metrics.k8s.io") == "monitoring/metrics-server"
        await site.until(agree, 60)
        await site.until(counts, 300)
        await site.shell.paste(last)
        assert await site.backend("v1beta1.metrics.k8s.io") == "fastpath/fastpath"
        await site.kubectl("delete", "deployment/metrics-server", "-n", "monitoring")
        await site.until(watch.passed, 60)
    assert watch.faults == set()
    await site.kubectl("delete", "hpa/burner", "deployment/burner", "-n", "shop")


@pytest.fixture(scope="module")
def chart_values() -> JSON:
    charts.start_runtime()
    rules = yaml.safe_load((HERE / "rules.yaml").read_text())
    return {
        "prometheus": {"url": "http://prometheus.monitoring.svc"},
        "rules": {"default": False, "custom": rules["rules"], "external": rules["externalRules"]},
        "scaler": {"enabled": True},
        "boost": {"enabled": True},
    }


async def test_the_chart(cluster_site: Site, chart_values: JSON) -> None:
    """Helm installs what serves, each line of its page holds, and nothing is left of it but the kinds."""
    site = cluster_site
    await site.remove()
    await site.workload("web")
    repository, _, tag = site.image.rpartition(":")
    helm = Helm(Path(site.kubeconfig), "fastpath")
    await site.kubectl("create", "namespace", "fastpath")
    await helm.install(
        charts.CHART, "fastpath", chart_values | {"image": {"repository": repository, "tag": tag}}
    )
    lines = rendered.commands(HELM, "3. Install and verify")
    # an API server that is busy leads nothing to an APIService for a moment after it shows it as Available
    printed = [await site.until(functools.partial(site.shell.paste, line), 30) for line in lines]
    assert '"value":' in printed[-1]
    await site.kubectl("rollout", "status", "deployment/fastpath-scaler", "-n", "fastpath", "--timeout=60s")
    await site.until(site.is_shared, 60)
    await helm.uninstall("fastpath")
    assert await site.kubectl("get", "apiservice", "-l", OURS, "-o", "name") == ""
    await site.kubectl("delete", "namespace", "fastpath")
    await site.kubectl("delete", "crd", "fastpathautoscalers.fastpath.io", "fastpathschedules.fastpath.io")
