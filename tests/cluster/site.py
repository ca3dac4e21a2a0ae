"""A whole cluster with kubelets, Prometheus in it, and Fastpath as the deploy guide installs it."""

import asyncio
import json
import os
import re
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import quote

import yaml

from tests.docs.shell import PageShell
from tests.support import rendered, tools
from tests.support.objects import plain
from tests.support.rendered import JSON, ROOT

HERE = Path(__file__).parent
DEPLOY, UNINSTALL = (
    (ROOT / "docs" / "guides" / f"{name}.md").read_text() for name in ("deploy", "uninstall")
)
SCALER, TOP = "The scaler", "CPU and memory: `kubectl top`"
OURS = "fastpath.io/apiservice"
QUEUE = (
    "{type: External, external: {metric: {name: queue_depth}, target: {type: AverageValue, averageValue: 5}}}"
)
CPU = "{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 120}}}"
MARK = {"fastpath.io/tests": "cluster"}
OWN = ("shop", "monitoring")
"""The namespaces that the pages name; these tests make them and delete them."""


def with_resource(line: str) -> str:
    """Return a command of the page with metrics.k8s.io among its groups."""
    return line.replace("external.metrics.k8s.io ", "external.metrics.k8s.io,metrics.k8s.io ")


class Site:
    """The cluster. `fastpath` is the folder of the guide's kustomization."""

    def __init__(self, kubeconfig: str, image: str, folder: Path) -> None:
        self.image, self.kubeconfig, self.folder = image, kubeconfig, folder / "fastpath"
        program = tools.require("kubectl", "kubernetes-client")
        self._kubectl = [program, f"--kubeconfig={kubeconfig}"]
        self.shell = PageShell(self.folder, self._kubectl, waits=True, kubelets=True, kubeconfig=kubeconfig)
        self.installed = ""
        (folder / "manifests").symlink_to(rendered.MANIFESTS)

    async def run(self, *arguments: str, stdin: str = "") -> tools.Finished:
        return await tools.run(
            *self._kubectl, *arguments, environment={"HOME": str(self.folder)}, stdin=stdin
        )

    async def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Return what kubectl prints; the test fails with its words."""
        done = await self.run(*arguments, stdin=stdin)
        assert done.status == 0, f"{arguments}: {done.stderr}"
        return done.stdout

    async def get(self, *arguments: str, namespace: str = "shop") -> Any:
        return json.loads(await self.kubectl("get", *arguments, "-n", namespace, "-o", "json"))

    async def raw(self, path: str) -> Any:
        return json.loads(await self.kubectl("get", "--raw", path) or "null")

    async def apply(self, *documents: JSON) -> None:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
        await self.kubectl("apply", "-f", "-", stdin=text)

    async def apply_file(self, file: str, **values: object) -> None:
        text = Template((HERE / file).read_text()).substitute(values, image=self.image)
        await self.kubectl("apply", "-f", "-", stdin=text)

    async def until(self, holds: Callable[[], Awaitable[Any]], seconds: float) -> Any:
        """Return the first true answer; else the test fails with the last one, or the last failure."""
        ends = time.monotonic() + seconds  # noqa: TID251 - real time is what is bounded
        last: object = None
        while time.monotonic() < ends:  # noqa: TID251
            try:
                if last := await holds():
                    return last
            except AssertionError as error:
                last = error
            await asyncio.sleep(0.2)
        raise AssertionError(f"not within {seconds} s: {last!r}")

    async def prepare(self, interval: int = 5) -> None:
        """Make the namespaces, and Prometheus, which scrapes every `interval` seconds.

        A cluster with such namespaces of its own is left alone.
        """
        for name in (*OWN, "fastpath"):
            owner = await self.run("get", "namespace", name, "-o", "jsonpath={.metadata.labels}")
            assert owner.status != 0, f"the cluster has a namespace {name}: these tests need one without it"
        for name in OWN:
            program = {"program.py": (HERE / "program.py").read_text()}
            await self.apply(
                plain("Namespace", name, labels=MARK), plain("ConfigMap", "program", name, data=program)
            )
        prometheus = os.environ.get("FASTPATH_CLUSTER_PROMETHEUS", "docker.io/prom/prometheus:v3.5.0")
        await self.apply_file("monitoring.yaml", prometheus=prometheus, interval=interval)
        await self.kubectl("rollout", "status", "-n", "monitoring", "deployment/prometheus", "--timeout=120s")

    async def workload(self, name: str, replicas: int = 2, start: int = 0) -> None:
        await self.apply_file("workload.yaml", name=name, replicas=replicas, start=start)
        await self.kubectl("rollout", "status", "-n", "shop", f"deployment/{name}", "--timeout=60s")

    async def autoscale(
        self, name: str, metric: str, by: str = "cat", minimum: int = 2, maximum: int = 8
    ) -> None:
        """Make the HPA of a workload, or what a command of the guides makes of it."""
        values = {"name": name, "metric": metric, "minimum": minimum, "maximum": maximum}
        (self.folder / f"{name}.yaml").write_text(
            Template((HERE / "autoscaler.yaml").read_text()).substitute(values)
        )
        await self.shell.paste(f"{by} {name}.yaml | kubectl apply -f -")

    async def ask(self, name: str, path: str) -> Any:
        """Ask a workload through the API server, as a client without a route to pods does."""
        return await self.run("get", "--raw", f"/api/v1/namespaces/shop/services/{name}:8080/proxy{path}")

    async def query(self, expression: str) -> Any:
        """Return what Prometheus answers."""
        proxy = "/api/v1/namespaces/monitoring/services/prometheus:9090/proxy"
        return (await self.raw(f"{proxy}/api/v1/query?query={quote(expression)}"))["data"]["result"]

    async def load(self, name: str, rate: float, path: str) -> JSON:
        """Send so many requests a second to a workload from now on; return what became of those before."""
        done = await self.ask("load", f"/load?rate={rate}&url=http://{name}.shop.svc:8080{path}")
        assert done.status == 0, done.stderr
        found: JSON = json.loads(done.stdout)
        return found

    async def replicas(self, name: str) -> int:
        deployment = await self.get("deployment", name)
        return int(deployment["spec"]["replicas"])

    # The deploy guide.

    def write_overlay(self, *sections: str, own_resource_rules: bool = False) -> None:
        """Write the kustomization of the guide, with what further sections of it add, for the image.

        With rules of their own for CPU, as the guide of CPU at one second has them, and idle scale-down.
        """
        self.folder.mkdir(exist_ok=True)
        (page,) = rendered.blocks(DEPLOY, "yaml")
        document = yaml.safe_load(page)
        name, _, tag = self.image.rpartition(":")
        document["images"] = [{"name": "fastpath", "newName": name, "newTag": tag}]
        certificates = document["components"].pop()
        for title in sections:
            for listed in re.findall(
                r"^ +- (\.\./manifests/\S+)", rendered.section(DEPLOY, title), re.MULTILINE
            ):
                kind = "components" if "/components/" in listed else "resources"
                document[kind] = [*dict.fromkeys([*document[kind], listed])]
        rules = (HERE / "rules.yaml").read_text()
        if own_resource_rules:
            document["components"].remove("../manifests/components/resource-rules")
            document["components"].append("../manifests/components/idle-scale-down")
            theirs = (rendered.MANIFESTS / "components/resource-rules/resource.yaml").read_text()
            theirs = theirs.replace("3m", "1m").replace("  cpu:\n", "  cpu:\n    scrape: {port: metrics}\n")
            rules += theirs
        document["components"].append(certificates)
        (self.folder / "kustomization.yaml").write_text(yaml.safe_dump(document))
        (self.folder / "rules.yaml").write_text(rules)

    async def make_certificates(self, *, resource: bool = False) -> None:
        shutil.rmtree(self.folder / "certs", ignore_errors=True)
        (line,) = rendered.commands(DEPLOY, "3. Your kustomization")[1:]
        await self.shell.paste(with_resource(line) if resource else line)

    async def apply_overlay(self) -> None:
        await self.shell.paste("kubectl apply -k .")
        deployments = await self.kubectl("get", "deployment", "-n", "fastpath", "-o", "name")
        for name in deployments.split():
            await self.kubectl("rollout", "status", "-n", "fastpath", name, "--timeout=120s")

    async def install(self) -> None:
        """Install what stories need, or add it to what is there."""
        if self.installed != "stories":
            self.write_overlay(SCALER, TOP, own_resource_rules=True)
            if not self.installed:
                await self.make_certificates(resource=True)
            await self.apply_overlay()
            await self.kubectl("wait", "--for=condition=Available", "apiservice", "-l", OURS, "--timeout=60s")
            self.installed = "stories"

    async def owners(self) -> dict[str, int]:
        """Return how many slices each scaler has that renews its Lease."""
        leases = (await self.get("leases", namespace="fastpath"))["items"]
        holders = {each["metadata"]["name"]: each["spec"].get("holderIdentity") for each in leases}
        alive = {holder: 0 for name, holder in holders.items() if "-member-" in name and holder}
        for name, holder in holders.items():
            if "-slice-" in name and holder in alive:
                alive[holder] += 1
        return alive

    async def is_shared(self) -> bool:
        return sorted((await self.owners()).values()) == [32, 32]

    async def backend(self, apiservice: str) -> str:
        """Return the Service that an APIService leads to."""
        service = (await self.get("apiservice", apiservice))["spec"]["service"]
        return f"{service['namespace']}/{service['name']}"

    async def deciding(self) -> str:
        """Return the pod of the scaler that decides for namespace shop."""
        slices = json.loads(await self.shell.paste("fastpath slices -o json"))["slices"]
        owners = {each["owner"] for each in slices if each["autoscalers"]}
        return str(owners.pop()) if len(owners) == 1 else ""

    async def remove(self) -> None:
        """Remove Fastpath, if it is there, as the page says."""
        if self.installed:
            await self.shell.paste(*rendered.blocks(UNINSTALL, "sh remove"))
        self.installed = ""

    async def close(self) -> None:
        """Remove all that these tests have made."""
        await self.remove()
        await self.kubectl("delete", *(f"namespace/{name}" for name in OWN))
        kinds = "clusterroles,clusterrolebindings,rolebindings"
        await self.kubectl("delete", kinds, "-n", "kube-system", "-l", "fastpath.io/tests=cluster")


class MetricReader:
    """A client that reads a metric again and again."""

    def __init__(self, site: Site, path: str) -> None:
        self._site, self._path = site, path
        self.faults: list[str] = []
        self.answers = 0

    async def read(self) -> None:
        while True:
            done = await self._site.run("get", "--raw", self._path)
            if done.status:
                self.faults.append(done.stderr)
            self.answers += 1
            await asyncio.sleep(0.3)


class Watch:
    """What the conditions of so many HPAs say: never that a metric has no value."""

    def __init__(self, site: Site, count: int) -> None:
        self._site, self._count = site, count
        self.faults: set[str] = set()
        self.looks = 0

    async def conditions(self) -> list[JSON]:
        hpas = (await self._site.get("hpa"))["items"]
        found = [each for hpa in hpas for each in hpa.get("status", {}).get("conditions", ())]
        return [each for each in found if each["type"] == "ScalingActive"]

    async def active(self) -> bool:
        return [each["status"] for each in await self.conditions()] == ["True"] * self._count

    async def run(self) -> None:
        while True:
            self.faults |= {each["message"] for each in await self.conditions() if each["status"] != "True"}
            self.looks += 1
            await asyncio.sleep(0.3)

    async def passed(self) -> bool:
        """Return after more than a sync of the HPA controller."""
        ends = self.looks + 60
        while self.looks < ends:  # noqa: ASYNC110 - the looks are what is waited for
            await asyncio.sleep(0.1)
        return True
