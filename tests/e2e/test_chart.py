"""The chart on a real API server: its objects are accepted, and Helm installs, upgrades and removes them.

The kinds of prometheus-operator and cert-manager are other people's: here they are stand-ins that take any
fields, so their objects are checked for name, kind and metadata alone. ReplicaSets are left out, because no
garbage collector runs.
"""

import base64
import gzip
import json
import os
import re
import shlex
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from tests.chart import charts
from tests.chart.chart_cases import ALL_OFF, ALL_ON, ALL_RULES, MODE, RENDERINGS, RULE
from tests.e2e.conftest import REAL_ONLY
from tests.e2e.helm import Helm, HelmError, policy_kinds, remove_leftovers
from tests.support.kubectl import Finished
from tests.support.objects import definition
from tests.support.rendered import JSON, ROOT
from tests.world.clusters import ClusterUnderTest

THEIR_CHART = os.environ.get("PROMETHEUS_ADAPTER_CHART", "")
"""A copy of prometheus-community's chart."""

MIGRATION = ROOT / "docs" / "guides" / "migrate-from-prometheus-adapter.md"

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.integration,
    pytest.mark.timeout(180),
    pytest.mark.parametrize("fronted", REAL_ONLY, indirect=True),
]

with_their_chart = pytest.mark.skipif(
    not THEIR_CHART, reason="PROMETHEUS_ADAPTER_CHART names no copy of their chart"
)

NAMESPACED = (
    *("configmap", "deployment", "poddisruptionbudget", "resourcequota", "role", "rolebinding", "secret"),
    *("service", "serviceaccount", "networkpolicy", "issuer", "certificate", "servicemonitor"),
    "prometheusrule",
)
ALWAYS_SERVED = ("apiservice", "clusterrole", "clusterrolebinding", "customresourcedefinition")
CLUSTER_WIDE = (*ALWAYS_SERVED, "validatingadmissionpolicy", "validatingadmissionpolicybinding")

STAND_INS = {
    "cert-manager.io/v1": ("issuer", "certificate"),
    "monitoring.coreos.com/v1": ("servicemonitor", "prometheusrule"),
}
_KINDS = {"issuer": "Issuer", "certificate": "Certificate", "servicemonitor": "ServiceMonitor"}
_KINDS["prometheusrule"] = "PrometheusRule"


@pytest.fixture
async def stand_ins(cluster: ClusterUnderTest) -> AsyncIterator[None]:
    """Serve the kinds of prometheus-operator and cert-manager."""
    definitions = [
        definition(f"{name}s.{group}", _KINDS[name], version)
        for (group, version), names in ((each.split("/"), names) for each, names in STAND_INS.items())
        for name in names
    ]
    await cluster.create(*definitions)
    names = [f"crd/{each['metadata']['name']}" for each in definitions]
    await cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", *names)
    yield
    await cluster.kubectl("delete", *names, "--ignore-not-found", "--wait=true")


@pytest.fixture(scope="module", autouse=True)
def _runtime() -> None:
    charts.start_runtime()


@pytest.fixture(autouse=True)
async def _nothing_installed(cluster: ClusterUnderTest) -> None:
    await remove_leftovers(cluster)


@pytest.fixture
def helm(cluster: ClusterUnderTest) -> Helm:
    return Helm(cluster.admin_kubeconfig, cluster.namespace)


def _list(documents: list[JSON], namespace: str) -> str:
    """Return the objects as one document; those without a namespace get that of the release, as from Helm."""
    for each in documents:
        if each["kind"].lower() in NAMESPACED:
            each["metadata"].setdefault("namespace", namespace)
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})


async def accepted(cluster: ClusterUnderTest, values: JSON) -> JSON:
    """Return values without idle scale-down where the API server has no policies to limit it."""
    off: JSON = {"scaler": {"idleScaleDown": {"enabled": False}}}
    return values if await policy_kinds(cluster) else charts.merge(values, off)


async def apply(cluster: ClusterUnderTest, documents: list[JSON]) -> Finished:
    """Have the API server check objects; a dry run stores nothing."""
    flags = ("--dry-run=server", "--validate=strict", "-f", "-")
    text = _list(documents, cluster.namespace)
    return await cluster.run(cluster.admin_kubeconfig, "apply", *flags, stdin=text)


@pytest.mark.usefixtures("stand_ins")
async def test_the_api_server_accepts_the_objects(cluster: ClusterUnderTest) -> None:
    """Kinds that it does not have are the stand-ins alone, so that no other object escapes the check."""
    builtin = {line.split()[0] for line in (await cluster.kubectl("api-versions")).splitlines()}
    known = {(version, _KINDS[name]) for version, names in STAND_INS.items() for name in names}
    for name, given in RENDERINGS.items():
        release = "prometheus-adapter" if "compatibility" in given else "fastpath"
        values = await accepted(cluster, given)
        documents = charts.render(values, name=release, namespace=cluster.namespace).documents
        applied = await apply(cluster, documents)
        assert (applied.status, applied.stderr) == (0, ""), f"{name}: {applied.stderr}"
        assert len(applied.stdout.splitlines()) == len(documents), name
        found = {(each["apiVersion"], each["kind"]) for each in documents}
        assert {each for each in found if each[0] not in builtin - STAND_INS.keys()} <= known
    wrong = charts.render(namespace=cluster.namespace)
    wrong.pod["containerz"] = []
    refused = await apply(cluster, wrong.documents)
    assert (refused.status, bool(re.search(r"unknown field .*containerz", refused.stderr))) == (1, True)


Key = tuple[str, str, str]
Stored = dict[Key, JSON]


async def stored(cluster: ClusterUnderTest) -> Stored:
    """Return the objects of the test's namespace, kube-system's RoleBindings, and those of no namespace.

    Helm's records of releases are left out, and the APIServices that the API server makes of other kinds.
    """
    # Not `api-resources`, which fails while a registered API is unavailable.
    defined = await cluster.names("customresourcedefinition", namespace="")
    served = [
        kind for kind in NAMESPACED if kind not in _KINDS or any(f"{kind}s." in name for name in defined)
    ]
    lists = [
        ["get", ",".join(served), "-n", cluster.namespace],
        ["get", "rolebinding", "-n", "kube-system"],
        ["get", ",".join([*ALWAYS_SERVED, *await policy_kinds(cluster)])],
    ]
    found: Stored = {}
    for arguments in lists:
        for each in json.loads(await cluster.kubectl(*arguments, "-o", "json"))["items"]:
            metadata = each["metadata"]
            is_made = "kube-aggregator.kubernetes.io/automanaged" in metadata.get("labels", {})
            if each.get("type") != "helm.sh/release.v1" and not is_made:
                found[each["kind"], metadata.get("namespace", ""), metadata["name"]] = each
    return found


def added(before: Stored, after: Stored) -> Stored:
    return {key: after[key] for key in after.keys() - before.keys()}


def uid(each: JSON) -> str:
    found: str = each["metadata"]["uid"]
    return found


def asked_for(found: Stored) -> Stored:
    """Return objects without what the server and its controllers write."""
    return {key: _asked_for(each) for key, each in found.items()}


def _asked_for(each: JSON) -> JSON:
    metadata = {
        key: value
        for key, value in each["metadata"].items()
        if key not in {"generation", "managedFields", "resourceVersion", "creationTimestamp", "uid"}
    }
    annotations = {
        key: value
        for key, value in metadata.get("annotations", {}).items()
        if key != "deployment.kubernetes.io/revision"
    }
    return {key: value for key, value in each.items() if key != "status"} | {
        "metadata": metadata | {"annotations": annotations}
    }


def names_of(manifest: list[JSON], namespace: str) -> set[Key]:
    """Return the keys of rendered objects, in the namespace of the release where they name none."""
    return {
        (
            each["kind"],
            "" if each["kind"].lower() in CLUSTER_WIDE else each["metadata"].get("namespace", namespace),
            each["metadata"]["name"],
        )
        for each in manifest
    }


THEIRS = "prometheus-adapter"


async def record(cluster: ClusterUnderTest, name: str, revision: int) -> JSON:
    """Return what Helm has stored of a revision."""
    secret = f"secret/sh.helm.release.v1.{name}.v{revision}"
    stored_secret = json.loads(await cluster.kubectl("get", secret, "-n", cluster.namespace, "-o", "json"))
    text = gzip.decompress(base64.b64decode(base64.b64decode(stored_secret["data"]["release"])))
    found: JSON = json.loads(text)
    return found


async def record_as_helm_3(cluster: ClusterUnderTest, name: str) -> None:
    """Change the record of a release to one of Helm 3, which applied from the client's side.

    Helm 4 upgrades such a release by a three-way merge, and not by server-side apply.
    """
    where = (f"secret/sh.helm.release.v1.{name}.v1", "-n", cluster.namespace)
    release = await record(cluster, name, 1)
    assert release.pop("apply_method") == "ssa"
    text = base64.b64encode(gzip.compress(json.dumps(release).encode()))
    change = json.dumps({"data": {"release": base64.b64encode(text).decode()}})
    await cluster.kubectl("patch", *where, "--type=merge", "-p", change)


@with_their_chart
@pytest.mark.parametrize("recorded_by", ["Helm 3", "Helm 4"])
async def test_helm_replaces_prometheus_adapter_in_place_and_back(
    cluster: ClusterUnderTest, helm: Helm, recorded_by: str
) -> None:
    chart = Path(THEIR_CHART)
    before = await stored(cluster)
    await helm.install(chart, THEIRS, {"rules": ALL_RULES, "prometheus": {"url": "http://prometheus.shop"}})
    if recorded_by == "Helm 3":
        await record_as_helm_3(cluster, THEIRS)
    theirs = added(before, await stored(cluster))
    assert ("Deployment", cluster.namespace, THEIRS) in theirs
    try:
        await helm.upgrade(charts.CHART, THEIRS, MODE | image(), reuse_values=True)
        method = (await record(cluster, THEIRS, 2))["apply_method"]
        assert method == ("csa" if recorded_by == "Helm 3" else "ssa")
        ours = added(before, await stored(cluster))
        gone = theirs.keys() - ours.keys()
        assert gone == {
            ("ClusterRole", "", "prometheus-adapter-metrics"),
            ("ClusterRoleBinding", "", "prometheus-adapter-hpa-controller"),
            ("ClusterRoleBinding", "", "prometheus-adapter-hpa-controller-metrics"),
        }
        for key in theirs.keys() & ours.keys():
            assert uid(theirs[key]) == uid(ours[key]), f"{key} was made again"
        deployment = ("Deployment", cluster.namespace, THEIRS)
        assert theirs[deployment]["spec"]["selector"] == ours[deployment]["spec"]["selector"]
        service = ("Service", cluster.namespace, THEIRS)
        assert theirs[service]["spec"]["selector"] == ours[service]["spec"]["selector"]
        assert theirs[service]["spec"]["clusterIP"] == ours[service]["spec"]["clusterIP"]
        (container,) = ours[deployment]["spec"]["template"]["spec"]["containers"]
        assert container["image"].startswith("registry.example.com/fastpath:")
        assert "--prometheus-url=http://prometheus.shop:9090" in container["args"]

        for line in back_steps():
            await cluster.kubectl(*line)
        await helm.rollback(THEIRS, 1)
        again = added(before, await stored(cluster))
        assert again.keys() == theirs.keys()
        for key in theirs.keys() - gone:
            assert uid(theirs[key]) == uid(again[key]), f"{key} was made again"
        assert asked_for(again) == asked_for(theirs)
    finally:
        await helm.uninstall(THEIRS)
    assert added(before, await stored(cluster)) == {}


def back_steps() -> list[list[str]]:
    """Return what the page on migration runs with kubectl before `helm rollback`."""
    (block,) = re.findall(
        r"^```sh in place back\n(.*?)^```$", MIGRATION.read_text(), re.MULTILINE | re.DOTALL
    )
    lines = [shlex.split(line) for line in block.splitlines()]
    assert [words[0] for words in lines] == ["kubectl", "sleep", "helm"]
    return [words[1:] for words in lines if words[0] == "kubectl"]


def image() -> JSON:
    return {"image": {"repository": "registry.example.com/fastpath", "tag": "0.1.0"}}


async def test_helm_installs_upgrades_and_removes_the_chart(cluster: ClusterUnderTest, helm: Helm) -> None:
    before = await stored(cluster)
    await helm.install(charts.CHART, "fastpath", {})
    try:
        first = added(before, await stored(cluster))
        rendered = charts.render(namespace=cluster.namespace).documents
        assert first.keys() == names_of(rendered, cluster.namespace)

        await helm.upgrade(charts.CHART, "fastpath", {"logLevel": 6, "rules": {"external": [RULE]}})
        second = added(before, await stored(cluster))
        assert second.keys() - first.keys() == {
            ("APIService", "", "v1beta1.external.metrics.k8s.io"),
            ("ClusterRole", "", "fastpath-external-metrics-reader"),
        }
        assert not first.keys() - second.keys()
        for key in first:
            assert uid(first[key]) == uid(second[key]), f"{key} was made again"
        # The generated certificate stays, so the API server trusts old and new pods.
        secret = ("Secret", cluster.namespace, "fastpath-serving")
        assert first[secret]["data"] == second[secret]["data"]
        custom = ("APIService", "", "v1beta1.custom.metrics.k8s.io")
        assert first[custom]["spec"] == second[custom]["spec"]
        assert first[custom]["spec"]["caBundle"] == first[secret]["data"]["ca.crt"]
    finally:
        await helm.uninstall("fastpath")
    assert added(before, await stored(cluster)) == {}


KINDS = [
    ("CustomResourceDefinition", "", f"{plural}.fastpath.io")
    for plural in ("fastpathautoscalers", "fastpathschedules")
]
FEATURES: Mapping[str, JSON] = {
    # Without the Service's: the API server keeps ipFamilyPolicy where it is left out afterwards.
    "everything": {key: value for key, value in ALL_ON.items() if key != "service"},
    "the scaler in process, other ports, one pod at a time": {
        "scaler": {"enabled": True, "inProcess": True},
        "boost": {"enabled": True},
        "rules": ALL_RULES,
        "listenPort": 10250,
        "service": {"port": 8443, "type": "LoadBalancer"},
        "strategy": {"type": "Recreate"},
        "podDisruptionBudget": {"enabled": True, "minAvailable": "50%"},
    },
    "a scaler that is scraped": {"scaler": {"enabled": True}, "serviceMonitor": {"enabled": True}},
    "a Secret, an account and rules of one's own": {
        "tls": {"existingSecret": "mine"},
        "serviceAccount": {"create": False, "name": "mine"},
        "rules": {"existing": "mine"},
    },
    "nothing": ALL_OFF,
}


@pytest.mark.usefixtures("stand_ins")
@pytest.mark.parametrize("mode", [{}, MODE], ids=["own", "compatible"])
async def test_features_are_switched_on_and_off(cluster: ClusterUnderTest, helm: Helm, mode: JSON) -> None:
    """No field that cannot change is in the way, and nothing stays of a feature but the kinds."""
    name = mode.get("compatibility", "fastpath")
    plain = mode | {"tls": {"insecureSkipTLSVerify": True}}  # a certificate that is made again differs
    before = await stored(cluster)
    await helm.install(charts.CHART, name, plain)
    first = added(before, await stored(cluster))
    try:
        for values in FEATURES.values():
            await helm.upgrade(charts.CHART, name, plain | await accepted(cluster, values) | mode)
        await helm.upgrade(charts.CHART, name, plain)
        last = added(before, await stored(cluster))
        for kind in KINDS:
            assert last.pop(kind)
        assert asked_for(last) == asked_for(first)
        deployment = ("Deployment", cluster.namespace, name)
        assert uid(last[deployment]) == uid(first[deployment])
    finally:
        await helm.uninstall(name)
        await cluster.kubectl("delete", "crd", *(name for _, _, name in KINDS), "--ignore-not-found")
    assert added(before, await stored(cluster)) == {}


async def test_another_selector_is_refused_before_anything_changes(
    cluster: ClusterUnderTest, helm: Helm
) -> None:
    """As that of prometheus-adapter's chart before 3.0."""
    before = await stored(cluster)
    await helm.install(charts.CHART, "metrics", {"fullnameOverride": "adapter"})
    try:
        first = added(before, await stored(cluster))
        with pytest.raises(HelmError, match=r'Deployment \S+/adapter has the selector {.*"adapter"}, which'):
            await helm.upgrade(charts.CHART, "metrics", MODE | {"fullnameOverride": "adapter"})
        assert asked_for(added(before, await stored(cluster))) == asked_for(first)
    finally:
        await helm.uninstall("metrics")


async def test_a_wrong_value_is_refused_before_anything_is_made(
    cluster: ClusterUnderTest, helm: Helm
) -> None:
    """The kinds alone stay when a release is removed."""
    before = await stored(cluster)
    await helm.install(charts.CHART, "fastpath", {"scaler": {"enabled": True}})
    await helm.uninstall("fastpath")
    left = added(before, await stored(cluster))
    await cluster.kubectl("delete", "crd", *(name for _, _, name in KINDS), "--ignore-not-found")
    assert left.keys() == {*KINDS}
    with pytest.raises(HelmError, match=r"rules.custom|/rules/custom"):
        await helm.install(charts.CHART, "fastpath", {"rules": {"custom": "foo"}})
    assert added(before, await stored(cluster)) == {}
