"""`compatibility: prometheus-adapter` replaces a release of the chart prometheus-adapter in place.

What has to agree is written out below. Their chart is other people's and not part of this repository: where
PROMETHEUS_ADAPTER_CHART names a folder with a copy, both are compared object by object.
"""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.config.options import SERVE
from tests.chart import charts
from tests.chart.charts import NOTES
from tests.support import rendered
from tests.support.answers import answers
from tests.support.rendered import JSON, Objects

Values = dict[str, Any]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

MODE = {"compatibility": "prometheus-adapter"}
RELEASE = "prometheus-adapter"
NAMESPACE = "monitoring"
SELECTOR = {
    "app.kubernetes.io/name": "prometheus-adapter",
    "app.kubernetes.io/instance": "prometheus-adapter",
}
RULE = {"seriesQuery": 'queue{name!=""}', "metricsQuery": "sum(<<.Series>>)"}
ALL_RULES = {"rules": {"external": [RULE], "resource": {"cpu": {"containerLabel": "container"}}}}

THEIRS = os.environ.get("PROMETHEUS_ADAPTER_CHART", "")
with_theirs = pytest.mark.skipif(not THEIRS, reason="PROMETHEUS_ADAPTER_CHART names no copy of their chart")


def render(values: Values, *, name: str = RELEASE, chart: Path = charts.CHART) -> Objects:
    return charts.render(values, chart=chart, name=name, namespace=NAMESPACE)


def identity(each: JSON) -> tuple[str, str, str]:
    metadata = each["metadata"]
    return each["kind"], metadata.get("namespace", ""), metadata["name"]


# Without their chart: what is known of it.


@pytest.mark.parametrize(
    ("name", "overrides", "fullname", "short"), answers("chart/compatibility", "names_are_theirs")
)
def test_names_are_theirs(name: str, overrides: Values, fullname: str, short: str) -> None:
    objects = render({**MODE, **overrides}, name=name)
    assert objects.one("Deployment")["metadata"]["name"] == fullname
    assert objects.one("Service")["metadata"]["labels"]["app.kubernetes.io/name"] == short
    assert objects.one("ClusterRoleBinding", f"{short}-resource-reader")


@pytest.mark.parametrize(
    "repository", answers("chart/compatibility", "their_image_is_replaced_and_the_notes_say_so")
)
def test_their_image_is_replaced_and_the_notes_say_so(repository: str) -> None:
    image = {"repository": repository, "tag": "v0.12.0"}
    files = charts.render_files({**MODE, "image": image}, name=RELEASE, namespace=NAMESPACE)
    assert 'image: "fastpath:' in files["templates/deployment.yaml"]
    assert "in place of prometheus-adapter's" in files[f"templates/{NOTES}"]
    assert "- image.tag v0.12.0: " in files[f"templates/{NOTES}"]


def test_the_way_back_is_that_of_the_guide() -> None:
    guide = (Path(__file__).parents[2] / "docs/guides/migrate-from-prometheus-adapter.md").read_text()
    (block,) = rendered.blocks(guide, "sh in place back")
    lower, sleep, rollback = block.splitlines()
    steps = [lower, sleep, f"helm -n {NAMESPACE} rollback {RELEASE} REVISION"]
    notes = charts.render_files(MODE, name=RELEASE, namespace=NAMESPACE)[f"templates/{NOTES}"]
    assert [line.strip() for line in notes.splitlines() if line.strip() in steps] == steps
    assert rollback == f"helm rollback {RELEASE} --namespace {NAMESPACE}"


def test_the_scaler_is_apart_from_their_selector() -> None:
    objects = render({**MODE, "scaler": {"enabled": True}})
    scaler = objects.one("Deployment", "prometheus-adapter-scaler")
    labels = scaler["spec"]["template"]["metadata"]["labels"]
    assert scaler["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert not SELECTOR.items() <= labels.items()


# With their chart.


def theirs() -> Path:
    return Path(THEIRS)


def reused(folder: Path) -> Path:
    """Return a copy of this chart with their default values: what `helm upgrade --reuse-values` renders."""
    chart = folder / "chart"
    if not chart.exists():
        shutil.copytree(charts.CHART, chart, ignore=shutil.ignore_patterns("kustomization.yaml"))
        shutil.copy(theirs() / "values.yaml", chart / "values.yaml")
    return chart


CASES: Mapping[str, Values] = yaml.safe_load((Path(__file__).parent / "theirs.yaml").read_text())

DROPPED = {
    ("ClusterRoleBinding", "", "prometheus-adapter-hpa-controller"),  # lets the adapter read its own metrics
    ("ClusterRoleBinding", "", "prometheus-adapter-hpa-controller-metrics"),  # in its resource-reader
    ("ClusterRole", "", "prometheus-adapter-metrics"),
}
"""Their objects that this chart does not have, and why not."""

ADDED = {
    ("APIService", "", "v1.metrics.k8s.io"),
    ("APIService", "", "v1beta2.custom.metrics.k8s.io"),
    ("ClusterRole", "", "prometheus-adapter-apiservices-reader"),
    ("ClusterRole", "", "prometheus-adapter-resource-metrics-reader"),
    ("ClusterRole", "", "prometheus-adapter-self-metrics"),
    ("ClusterRole", "", "prometheus-adapter-server-resources"),  # theirs only with rules for custom metrics
    ("ClusterRoleBinding", "", "prometheus-adapter-apiservices-reader"),
    ("ConfigMap", NAMESPACE, "prometheus-adapter-serving-ca"),
}
"""Objects that this chart adds, all or some of them."""

DIFFERENT = {
    "helm.sh/chart",
    "app.kubernetes.io/version",
    "fastpath.io/apiservice",
    "rbac.authorization.k8s.io/aggregate-to-view",
}
"""Labels of ours alone, and those of the version."""


def metadata(each: JSON) -> JSON:
    """Return labels and annotations that are to agree; theirs names an authority without cert-manager too."""
    labels = {key: value for key, value in each["metadata"]["labels"].items() if key not in DIFFERENT}
    annotations = each["metadata"].get("annotations") or {}
    return {
        "labels": labels,
        "annotations": {
            key: value for key, value in annotations.items() if not key.endswith("inject-ca-from")
        },
    }


def pod_of(deployment: JSON) -> tuple[JSON, JSON]:
    """Return pod and container, without what differs on purpose and without what says nothing."""
    pod = json.loads(json.dumps(deployment["spec"]["template"]["spec"]))
    container = pod["containers"][0]
    for key in ("enableServiceLinks", "terminationGracePeriodSeconds"):
        pod.pop(key, None)
    for key in ("args", "image"):
        del container[key]
    pod["containers"][1:] = sorted(pod["containers"][1:], key=str)
    for part in (pod["volumes"], container["volumeMounts"]):
        part.sort(key=str)
    return {key: value for key, value in pod.items() if value}, container


FLAGS_ADDED = ("--shutdown-delay=", "--serve-groups=")


def specs(kind: str, each: JSON) -> Any:
    """Return what an object says beside its metadata, as far as both charts are to agree."""
    rest = {key: value for key, value in each.items() if key not in ("metadata", "apiVersion", "kind")}
    if kind == "APIService":
        rest["spec"]["service"].setdefault("port", 443)
        rest["spec"].setdefault("insecureSkipTLSVerify", False)
    elif kind == "Service":
        rest["spec"].setdefault("type", "ClusterIP")
        for port in rest["spec"]["ports"]:
            port.pop("appProtocol", None)
            port.setdefault("protocol", "TCP")
    elif kind == "ConfigMap" and "data" in rest:
        rest["data"] = {key: yaml.safe_load(text) or {} for key, text in rest["data"].items()}
    elif kind == "ClusterRole":
        rest = {
            "groups": {group for rule in each["rules"] for group in rule["apiGroups"]}
            & {"", "custom.metrics.k8s.io"}
        }
    elif kind in ("Issuer", "Certificate"):
        rest = {
            "issuer": rest["spec"].get("issuerRef", {}).get("name"),
            "secret": rest["spec"].get("secretName"),
        }
    elif kind == "Secret":
        rest = {"data": rest["data"], "type": rest["type"]}
    return rest


@with_theirs
@pytest.mark.parametrize("reuse", [True, False], ids=["reuse-values", "own values"])
@pytest.mark.parametrize("case", CASES)
def test_their_objects_are_ours(case: str, reuse: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """Each object of theirs is here, and what cannot change or is asked for by values is the same."""
    values = CASES[case]
    old = charts.render(values, chart=theirs(), name=RELEASE, namespace=NAMESPACE)
    full = (
        values if reuse else charts.merge(charts.read_values((theirs() / "values.yaml").read_text()), values)
    )
    new = render({**full, **MODE}, chart=reused(tmp_path) if reuse else charts.CHART)
    before = {identity(each): each for each in old.documents}
    after = {identity(each): each for each in new.documents}
    assert before.keys() - after.keys() <= DROPPED
    assert after.keys() - before.keys() <= ADDED
    for key in before.keys() & after.keys():
        kind = key[0]
        if kind == "Deployment" or (case == "an extra object" and key[2] == "extra"):
            continue
        assert specs(kind, after[key]) == specs(kind, before[key]), key
        assert metadata(after[key]) == metadata(before[key]), key
    compare_deployments(old.one("Deployment"), new.one("Deployment"), reuse=reuse)


def compare_deployments(old: JSON, new: JSON, *, reuse: bool) -> None:
    assert metadata(new) == metadata(old)
    for key in ("replicas", "selector", "strategy", "revisionHistoryLimit"):
        assert new["spec"].get(key) == old["spec"].get(key), key
    template = metadata(new["spec"]["template"])
    template["annotations"].pop("kubectl.kubernetes.io/default-container")
    before = metadata(old["spec"]["template"])
    del before["annotations"]["checksum/config"]  # a change of the rules needs no new pod
    assert template == before
    (pod, container), (old_pod, old_container) = pod_of(new), pod_of(old)
    if reuse:
        assert (pod, container) == (old_pod, old_container)
    args = {"before": set(old_container_args(old)), "after": set(old_container_args(new))}
    removed = args["before"] - args["after"] - {"/adapter"}
    assert removed <= ({"--cert-dir=/tmp/cert"} if "--tls-cert-file=" in str(args["after"]) else set())
    assert all(each.startswith(FLAGS_ADDED) for each in args["after"] - args["before"])


def old_container_args(deployment: JSON) -> list[str]:
    args: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    SERVE.parse(args)  # raises for a flag that is unknown
    return args


@with_theirs
def test_their_values_are_accepted() -> None:
    for path in (theirs() / "values.yaml", *sorted((theirs() / "ci").glob("*.yaml"))):
        for mode in ({}, MODE):
            values = charts.read_values(path.read_text())
            notes = charts.render_files({**values, **mode})[f"templates/{NOTES}"]
            assert "Without effect" not in notes


@with_theirs
def test_their_defaults_need_the_mode(tmp_path: Path) -> None:
    with pytest.raises(charts.require().HelmError, match="add --set compatibility=prometheus-adapter"):
        render({}, chart=reused(tmp_path))
