"""The commands and files of the documentation on the chart: Helm renders it as they say."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from fastpath_tools.live import chart_values as helm_values
from tests.chart import charts
from tests.support import rendered
from tests.support.rendered import JSON, ROOT

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

GUIDE = ROOT / "docs" / "guides" / "helm.md"
MIGRATION = ROOT / "docs" / "guides" / "migrate-from-prometheus-adapter.md"
PAGES = (GUIDE, MIGRATION, ROOT / "README.md", charts.CHART / "README.md")


class Command(NamedTuple):
    """A `helm install` or `helm upgrade` of a page."""

    verb: str
    release: str
    chart: str
    options: Sequence[str]

    def values(self) -> JSON:
        """Return the values that it sets, `--values` those of the guide."""
        found: JSON = {}
        for name, value in zip(self.options, self.options[1:], strict=False):
            if name == "--values":
                assert value == "values.yaml"
                found = charts.merge(found, charts.read_values(guide_values()))
            elif name == "--set":
                found = charts.merge(found, charts.require().parse_set_string(value))
        return found

    def option(self, name: str) -> str:
        return self.options[self.options.index(name) + 1]


def guide_values() -> str:
    (text,) = rendered.blocks(GUIDE.read_text(), "yaml values")
    return text


def commands(path: Path) -> list[Command]:
    """Return the installing commands of a page; `\\` at its end continues a line."""
    text = path.read_text().replace("\\\n", " ")
    found = []
    for line in text.splitlines():
        words = shlex.split(line, comments=True) if line.lstrip().startswith("helm ") else []
        if words[1:2] and words[1] == "-n":
            words = [words[0], *words[3:], "--namespace", words[2]]
        if words[1:2] and words[1] in {"install", "upgrade"}:
            found.append(Command(words[1], words[2], words[3], words[4:]))
    return found


COMMANDS = [
    pytest.param(command, id=f"{path.stem}-{command.verb}-{index}")
    for path in PAGES
    for index, command in enumerate(commands(path))
]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_chart_renders_as_the_command_says(command: Command) -> None:
    if command.chart.startswith("oci://"):
        name = yaml.safe_load((charts.CHART / "Chart.yaml").read_text())["name"]
        assert command.chart == f"oci://ghcr.io/OWNER/REPOSITORY/charts/{name}"
    else:
        assert (ROOT / command.chart).samefile(charts.CHART)
    namespace = command.option("--namespace")
    objects = charts.render(command.values(), name=command.release, namespace=namespace)
    assert objects.one("Deployment", command.release)["metadata"]["namespace"] == namespace


def test_every_page_installs_the_chart() -> None:
    assert all(commands(path) for path in PAGES)


def test_the_values_of_the_guide() -> None:
    values = charts.read_values(guide_values())
    objects = charts.render(values)
    assert objects.container["image"] == "registry.example.com/fastpath:0.1.0"
    assert "--prometheus-url=http://prometheus.monitoring.svc:9090" in objects.container["args"]
    parsed = helm_values.rules_from_chart(guide_values(), "values.yaml")
    assert (parsed.faults, parsed.fatal) == ((), ())
    assert (len(parsed.config.rules), len(parsed.config.external_rules)) == (1, 1)
    registered = {each["spec"]["group"] for each in objects.all("APIService")}
    assert registered == {"custom.metrics.k8s.io", "external.metrics.k8s.io"}


@pytest.mark.parametrize("path", [GUIDE, MIGRATION], ids=["guide", "migration"])
@pytest.mark.parametrize("tool", ["flux", "argocd"])
def test_gitops(path: Path, tool: str) -> None:
    """The values in the objects are those of the chart, and the same release has the same names."""
    (text,) = rendered.blocks(path.read_text(), f"yaml {tool}")
    document = list(yaml.safe_load_all(text))[-1]
    spec = document["spec"]
    if tool == "flux":
        values, chart = spec["values"], spec["chart"]["spec"]["chart"]
        release = spec.get("releaseName", document["metadata"]["name"])
        namespace = spec.get("targetNamespace", document["metadata"]["namespace"])
    else:
        values, chart = spec["source"]["helm"]["valuesObject"], spec["source"]["path"]
        release, namespace = spec["source"]["helm"]["releaseName"], spec["destination"]["namespace"]
    assert (ROOT / chart).samefile(charts.CHART)
    first = charts.render(values, name=release, namespace=namespace)
    wanted = "prometheus-adapter" if path == MIGRATION else "fastpath"
    deployment = first.one("Deployment")
    assert (deployment["metadata"]["name"], deployment["metadata"]["namespace"]) == (wanted, namespace)
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"].startswith(
        "registry.example.com/"
    )
    if tool == "argocd":  # it renders at each sync: nothing may differ
        again = charts.render(values, name=release, namespace=namespace)
        assert json.dumps(first.documents) == json.dumps(again.documents)
