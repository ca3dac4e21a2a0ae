"""The commands and files of the documentation on deploying, run as they stand."""

import base64
import re
import shlex
import shutil
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.config import rules_file
from adapter.model.objects import apiservices
from fastpath_sandbox.apiserver.kinds import Kind
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_tools import certs
from tests.docs.shell import PageShell
from tests.support import rendered, tools
from tests.support.kubectl import TOKEN, Kubectl
from tests.support.rendered import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

JSON = dict[str, Any]
MIGRATION = ROOT / "docs" / "guides" / "migrate-from-prometheus-adapter.md"
DEPLOY = ROOT / "docs" / "guides" / "deploy.md"
UNINSTALL = ROOT / "docs" / "guides" / "uninstall.md"
RUNBOOKS = ROOT / "docs" / "guides" / "runbooks.md"
RULES = """
rules:
- seriesQuery: 'load{namespace!="",pod!=""}'
  resources: {template: '<<.Resource>>'}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
"""

OLD = {"namespace": "monitoring", "name": "prometheus-adapter", "port": 443}
OURS = {"namespace": "fastpath", "name": "fastpath", "port": 443}
FURTHER = (
    Kind("", "v1", "resourcequotas", "ResourceQuota", True),
    Kind("", "v1", "secrets", "Secret", True),
    Kind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", True),
    Kind("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False),
    Kind("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False),
    Kind("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", True),
)
"""What the manifests hold and the sandbox does not serve by itself."""


@pytest.fixture
def overlay(tmp_path: Path) -> Path:
    """Return the folder of the page's kustomization, with rules and certificate as the page says."""
    (kustomization,) = rendered.blocks(DEPLOY.read_text(), "yaml")
    folder = tmp_path / "fastpath"
    groups = "--groups=custom.metrics.k8s.io,external.metrics.k8s.io"
    assert f"fastpath certs {groups} --out-dir certs" in DEPLOY.read_text()
    assert certs.main([groups, "--out-dir", str(folder / "certs")]) == 0
    (folder / "rules.yaml").write_text(RULES)
    (folder / "kustomization.yaml").write_text(kustomization)
    (tmp_path / "manifests").symlink_to(rendered.MANIFESTS)
    return folder


def test_the_kustomization_of_the_page(overlay: Path) -> None:
    objects = rendered.render(overlay)
    assert objects.options.prometheus_url == "http://prometheus.monitoring.svc:9090"
    assert objects.container["image"] == "registry.example.com/fastpath:0.1.0"
    assert objects.one("ConfigMap", "fastpath-rules")["data"] == {"rules.yaml": RULES}
    authority = objects.one("Secret")["data"]["ca.crt"]
    assert {each["spec"]["caBundle"] for each in objects.all("APIService")} == {authority}
    registered = {each["metadata"]["name"] for each in objects.all("APIService")}
    assert registered == set(apiservices.names_of(objects.options.serve_groups))


def with_components(overlay: Path, *components: str) -> rendered.Objects:
    """Render the page's kustomization with the kinds and components before its own."""
    path = overlay / "kustomization.yaml"
    document = yaml.safe_load(path.read_text())
    document["resources"].append("../manifests/crd")
    document["components"][:0] = components
    path.write_text(yaml.safe_dump(document))
    return rendered.render(overlay)


def test_the_patch_of_the_page_reaches_the_arguments_of_both_deployments(overlay: Path) -> None:
    objects = with_components(overlay, "../manifests/components/scaler")
    for name in ("fastpath", "fastpath-scaler"):
        assert objects.of(name).options.prometheus_url == "http://prometheus.monitoring.svc:9090"
        assert objects.of(name).container["image"] == "registry.example.com/fastpath:0.1.0"


def test_the_components_for_idle_scale_down(overlay: Path) -> None:
    page = (rendered.ROOT / "docs" / "guides" / "idle-scale-down.md").read_text()
    (block,) = rendered.blocks(page, "yaml component")
    listed = yaml.safe_load(block)["components"]
    objects = with_components(overlay, *listed)
    assert objects.one("ValidatingAdmissionPolicy")
    assert objects.one("ClusterRoleBinding", "fastpath-idle-scale-down")
    assert f"`{listed[0].removeprefix('../manifests/')}`" in page


def test_cpu_and_memory(overlay: Path) -> None:
    """The components that the page adds serve the third group, beside rules that replace those of base."""
    lines = "".join(
        re.findall(r"^    (  - \.\./manifests/components/resource.*\n)", DEPLOY.read_text(), re.MULTILINE)
    )
    assert lines.count("\n") == 2
    path = overlay / "kustomization.yaml"
    path.write_text(path.read_text().replace("  - certs #", f"{lines}  - certs #"))
    objects = rendered.render(overlay)
    groups = objects.options.serve_groups
    assert "metrics.k8s.io" in groups
    registered = {each["metadata"]["name"] for each in objects.all("APIService")}
    assert registered == set(apiservices.names_of(groups))
    rules = objects.one("ConfigMap", "fastpath-rules")["data"]
    assert rules.keys() == {"rules.yaml", "resource.yaml"}
    assert rules_file.parse_rules(rules["resource.yaml"], "resource.yaml").config.resource_rules is not None
    assert "fastpath check manifests/components/resource-rules/resource.yaml" in DEPLOY.read_text()


def test_the_kustomization_of_the_readme(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    found = re.search(r"cat >kustomization.yaml <<'END'\n(.*?)^    END$", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    folder = tmp_path / "fastpath"
    assert certs.main(["--out-dir", str(folder / "certs")]) == 0
    (folder / "kustomization.yaml").write_text(textwrap.dedent(found[1]))
    (tmp_path / "manifests").symlink_to(rendered.MANIFESTS)
    objects = rendered.render(folder)
    assert objects.container["image"] == "registry.example.com/fastpath:0.1.0"
    assert all(each["spec"]["caBundle"] for each in objects.all("APIService"))


class Migration:
    """Runs the page's blocks one line at a time and looks at the registrations after each."""

    def __init__(self, cluster: Cluster, shell: PageShell) -> None:
        self._cluster = cluster
        self._shell = shell
        self.seen: list[str] = []
        """The version of custom metrics that autoscalers read, and its Service, after each line."""

    async def run(self, block: str) -> None:
        for line in block.strip().splitlines():
            if line.startswith("kubectl wait"):
                self._cluster.patch("APIService", shlex.split(line)[3].partition("/")[2], AVAILABLE)
            await self._shell.paste(line)
            self._look()

    def registrations(self) -> dict[str, JSON]:
        """Return the spec of each APIService."""
        found = self._cluster.list("APIService")
        return {each["metadata"]["name"]: each["spec"] for each in found}

    def _look(self) -> None:
        for name, spec in self.registrations().items():
            # the API server refuses the two together, and without either no connection is trusted
            assert bool(spec.get("caBundle")) is not spec.get("insecureSkipTLSVerify", False), name
            assert spec["service"] in (OLD, OURS)
            assert (spec["service"] == OURS) is bool(spec.get("caBundle")), name
        custom = [spec for spec in self.registrations().values() if spec["group"] == "custom.metrics.k8s.io"]
        preferred = max(custom, key=lambda spec: spec["versionPriority"])
        self.seen.append(f"{preferred['version']} {preferred['service']['name']}")


AVAILABLE = {"status": {"conditions": [{"type": "Available", "status": "True", "reason": "Passed"}]}}


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster() as cluster:
        for kind in FURTHER:
            cluster.kinds.add(kind)  # as built-in kinds, which kubectl patches by strategic merge
        for name in ("v1beta1.custom.metrics.k8s.io", "v1beta1.external.metrics.k8s.io"):
            cluster.create(rendered.prometheus_adapter_registration(name))
        yield cluster


@pytest.fixture
def shell(cluster: Cluster, overlay: Path) -> PageShell:
    program = [tools.require("kubectl", "kubernetes-client"), f"--server={cluster.url}", f"--token={TOKEN}"]
    return PageShell(overlay, program, ["--validate=false"])


async def test_a_renewal_as_the_page_says(
    cluster: Cluster, kubectl: Kubectl, overlay: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands of the section on certificates, in its order: bundle first, then the Secret."""
    for name in ("v1beta1.custom.metrics.k8s.io", "v1beta1.external.metrics.k8s.io"):
        cluster.delete("APIService", name)
    applied = await kubectl.run(cluster.url, "apply", "--validate=false", "-k", str(overlay))
    assert applied.status == 0, applied.stderr
    section = DEPLOY.read_text().partition("## Certificates")[2].partition("\n## ")[0]
    lines = [line.strip() for line in section.splitlines() if line.startswith("    ")]
    make, _, authorities, bundle, rest, _ = (shlex.split(line) for line in lines)
    old = cluster.get("Secret", "fastpath-serving", "fastpath")["data"]["ca.crt"]
    certificates = overlay / "certs"
    assert (make[:2], make[-1]) == (["fastpath", "certs"], "next")
    arguments = [word.replace("certs/", f"{certificates}/") for word in make[2:-1]]
    assert certs.main([*arguments, str(overlay / "next")]) == 0
    printed = capsys.readouterr().out.replace(f"{certificates}/", "certs/")
    assert printed.endswith("\n".join([*lines[2:5], ""])), "the command says the same as the page"
    shutil.rmtree(certificates)
    (overlay / "next").rename(certificates)
    new = yaml.safe_load((certificates / "secret.yaml").read_text())["data"]["ca.crt"]

    async def apply(words: list[str]) -> None:
        given = [
            str(overlay) if word == "." else word.replace("certs/", f"{certificates}/") for word in words[1:]
        ]
        done = await kubectl.run(cluster.url, *given, "--validate=false")
        assert (done.status, done.stderr) == (0, "")

    def secret() -> str:
        found: str = cluster.get("Secret", "fastpath-serving", "fastpath")["data"]["ca.crt"]
        return found

    await apply(authorities)
    both = cluster.get("ConfigMap", "fastpath-serving-ca", "fastpath")["data"]["ca.crt"]
    assert both.encode() == base64.b64decode(new) + base64.b64decode(old)
    await apply(bundle)
    bundles = {each["spec"]["caBundle"] for each in cluster.list("APIService")}
    assert bundles == {base64.b64encode(both.encode()).decode()}
    assert secret() == old, "the certificate changes when both are trusted"
    await apply(rest)
    assert secret() == new
    assert {each["spec"]["caBundle"] for each in cluster.list("APIService")} == bundles


@pytest.mark.parametrize("known", [True, False], ids=["the old folder", "the Secret alone"])
def test_the_runbook_of_an_expiring_certificate(
    *, known: bool, overlay: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After the page on deployment; each path that the verb prints is there once its words are done."""
    section = RUNBOOKS.read_text().partition("## FastpathCertificateExpiring\n")[2].partition("\n## ")[0]
    command = shlex.split(next(line for line in section.splitlines() if line.startswith("    ")))
    assert command[:2] == ["fastpath", "certs"]
    monkeypatch.chdir(overlay)
    if not known:
        shutil.move("certs/ca.crt", "ca.crt")
        shutil.rmtree("certs")
        command[command.index("--previous=certs/ca.crt")] = "--previous=ca.crt"
    assert certs.main(command[2:]) == 0
    printed = capsys.readouterr().out
    if known:
        assert "Replace the old folder with this one" in printed
        shutil.rmtree("certs")
        shutil.move("next", "certs")
    else:
        assert "List next among the components of your kustomization" in printed
    (path,) = [line.split()[-1] for line in printed.splitlines() if line.startswith("kubectl apply -f")]
    assert Path(path).exists()


async def test_a_removal_as_the_page_says(cluster: Cluster, shell: PageShell) -> None:
    for name in ("v1beta1.custom.metrics.k8s.io", "v1beta1.external.metrics.k8s.io"):
        cluster.delete("APIService", name)
    await shell.paste("kubectl apply -k .")
    (block,) = rendered.blocks(UNINSTALL.read_text(), "sh remove")
    first, second = block.strip().splitlines()
    await shell.paste(first)
    assert not cluster.list("APIService")
    assert cluster.get("Deployment", "fastpath", "fastpath"), (
        "it answers until nothing is sent to it any more"
    )
    await shell.paste(f"{second} --wait=false")
    assert not cluster.list("Deployment")
    assert not cluster.list("ClusterRole")
    await shell.paste(first)


@pytest.mark.parametrize("steps", [2, 3], ids=["one version switched", "all switched"])
async def test_there_and_back_and_removed(cluster: Cluster, shell: PageShell, steps: int) -> None:
    """A removal after the way back leaves the other adapter registered."""
    blocks = rendered.blocks(MIGRATION.read_text(), "sh")
    migration = Migration(cluster, shell)
    labels = {each["metadata"]["name"]: each["metadata"]["labels"] for each in cluster.list("APIService")}
    before = migration.registrations()
    await shell.paste(*rendered.blocks(MIGRATION.read_text(), "sh save"))
    reached = []
    for block in blocks[:steps]:
        await migration.run(block)
        reached.append({name for name, spec in migration.registrations().items() if spec["service"] == OURS})
    assert cluster.get("Deployment", "fastpath", "fastpath")["spec"]["replicas"] == 2
    assert cluster.get("Secret", "fastpath-serving", "fastpath")["type"] == "kubernetes.io/tls"
    added = {"v1beta2.custom.metrics.k8s.io"}
    assert reached == [set(), added, added | before.keys()][:steps]
    for block in reversed(rendered.blocks(MIGRATION.read_text(), "sh back")[: steps - 1]):
        await migration.run(block)
    assert migration.registrations() == before
    assert list(dict.fromkeys(migration.seen)) == ["v1beta1 prometheus-adapter", "v1beta2 fastpath"]
    # the old version is preferred again before the new one is gone
    assert migration.seen[-2:] == ["v1beta1 prometheus-adapter"] * 2
    (block,) = rendered.blocks(UNINSTALL.read_text(), "sh remove")
    for line in block.strip().splitlines():
        await shell.paste(line.replace("--ignore-not-found", "--ignore-not-found --wait=false"))
        assert migration.registrations() == before
    registered = cluster.list("APIService")
    assert {each["metadata"]["name"]: each["metadata"]["labels"] for each in registered} == labels
    assert not cluster.list("Deployment")


async def test_the_page_finds_boosted_autoscalers(cluster: Cluster, kubectl: Kubectl) -> None:
    (line,) = (each.strip() for each in UNINSTALL.read_text().splitlines() if "kubectl get hpa -A" in each)
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "maxReplicas": 3,
    }
    for name, annotations in (
        ("boosted", {"fastpath.io/mode": "boost"}),
        ("other", {"a": "b"}),
        ("plain", {}),
    ):
        metadata = {"name": name, "namespace": "shop", "annotations": annotations}
        kind = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
        cluster.create({**kind, "metadata": metadata, "spec": spec})
    done = await kubectl.run(cluster.url, *shlex.split(line)[1:])
    assert (done.status, done.stdout) == (0, "shop/boosted\n"), done.stderr
