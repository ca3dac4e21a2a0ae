"""The chart as Helm lints and packages it."""

import re
import shutil
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart import charts
from tests.support import rendered
from tests.support.rendered import MANIFESTS, ROOT

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

EVERYTHING: dict[str, Any] = {
    "rules": {"external": [{"seriesQuery": "a"}], "resource": {"cpu": {}}},
    "certManager": {"enabled": True},
    "scaler": {"enabled": True, "idleScaleDown": {"enabled": True}},
    **{
        key: {"enabled": True} for key in ("boost", "serviceMonitor", "dashboards", "alerts", "networkPolicy")
    },
}


def metadata() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((charts.CHART / "Chart.yaml").read_text())
    return found


@pytest.mark.parametrize(
    "values", [{}, EVERYTHING, {"compatibility": "prometheus-adapter"}], ids=["none", "all", "compatible"]
)
def test_lint_finds_nothing(values: dict[str, Any]) -> None:
    report = charts.require().lint(charts.CHART, values, strict=True)
    assert report["errors"] == []
    information = 1
    assert [each for each in report["messages"] if each["severity"] > information] == []


def test_a_package_has_the_files_of_the_chart(tmp_path: Path) -> None:
    archive = charts.require().package(charts.CHART, destination=tmp_path)
    with tarfile.open(archive) as packed:
        names = {member.name.removeprefix("fastpath/"): member for member in packed.getmembers()}
    files = {str(path.relative_to(charts.CHART)) for path in charts.CHART.rglob("*") if path.is_file()}
    assert names.keys() == {name for name in files if not name.endswith("kustomization.yaml")}
    assert {"Chart.yaml", "README.md", "values.schema.json", "files/rbac/adapter/rbac.yaml"} <= names.keys()


def test_no_file_is_a_symbolic_link() -> None:
    """Flux's source-controller leaves links out of its archives, and Helm logs each."""
    assert [path for path in charts.CHART.rglob("*") if path.is_symlink()] == []


def test_a_package_renders_the_same(tmp_path: Path) -> None:
    archive = Path(charts.require().package(charts.CHART, destination=tmp_path))
    assert charts.render_files(EVERYTHING, chart=archive) == charts.render_files(EVERYTHING)


def test_versions_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    chart = metadata()
    assert str(chart["version"]) == str(chart["appVersion"]) == project["version"]
    assert chart["annotations"]["artifacthub.io/license"] == project["license"]


def test_the_image_of_the_chart_is_in_its_metadata(tmp_path: Path) -> None:
    """There a release names the published one: --reuse-values does not read values.yaml."""
    chart = tmp_path / "chart"
    shutil.copytree(charts.CHART, chart)
    text = (chart / "Chart.yaml").read_text()
    (chart / "Chart.yaml").write_text(
        text.replace("fastpath.io/image-repository: fastpath ", "fastpath.io/image-repository: ghcr.io/x/y ")
    )
    theirs = {"image": {"repository": "registry.k8s.io/prometheus-adapter/prometheus-adapter"}}
    for values in ({}, theirs):
        (container,) = charts.render(values, chart=chart).pod["containers"]
        assert container["image"] == f"ghcr.io/x/y:{metadata()['appVersion']}"


def test_kubernetes_is_as_old_as_the_manifests_need() -> None:
    (oldest,) = re.findall(r"Kubernetes \| (1\.\d+) and later", (ROOT / "RELEASE.md").read_text())
    assert metadata()["kubeVersion"] == f">={oldest}.0-0"


def test_the_kinds_have_the_schemas_of_the_manifests() -> None:
    objects = charts.render({"scaler": {"enabled": True}})
    sources = rendered.render(MANIFESTS / "crd").all("CustomResourceDefinition")
    hub = yaml.safe_load(metadata()["annotations"]["artifacthub.io/crds"])
    kinds = {each["metadata"]["name"]: each["spec"]["names"]["kind"] for each in sources}
    assert {each["name"]: each["kind"] for each in hub} == kinds
    assert len(objects.all("CustomResourceDefinition")) == len(sources) == 2
    for source in sources:
        found = objects.one("CustomResourceDefinition", source["metadata"]["name"])
        assert found["spec"] == source["spec"]
        assert found["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def test_dashboards_and_alerts_are_those_of_the_files() -> None:
    objects = charts.render(EVERYTHING)
    files = charts.CHART / "files"
    boards = {path.name: path.read_text().strip() for path in (files / "dashboards").glob("*.json")}
    found = {
        name.removeprefix("fastpath-"): text.strip()
        for each in objects.all("ConfigMap")
        if "-dashboard-" in each["metadata"]["name"]
        for name, text in each["data"].items()
    }
    assert found == boards
    rule = files / "alerts" / "prometheusrule.yaml"
    assert [each["spec"] for each in objects.all("PrometheusRule")] == (
        [yaml.safe_load(rule.read_text())["spec"]] if rule.exists() else []
    )
