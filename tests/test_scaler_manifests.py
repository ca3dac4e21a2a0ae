"""The manifests of the scaler: the kind, who may write such objects, what the scaler may do, and the variant within one namespace."""

import functools
import itertools
from pathlib import Path

import pytest
import yaml

from adapter.config import flagtable, rulesfile
from adapter.model import autoscalerdocuments, floors, resources
from adapter.model.fastpathautoscaler import ADVISE, GROUP, PLURAL
from adapter.model.shards import WHOLE
from adapter.rules import compile as compiler
from tests.support import crd, rendered
from tests.support.rendered import MANIFESTS, Objects, Rights, Want, covers

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

READS = ("get", "list", "watch")
METRICS = ("custom.metrics.k8s.io", "external.metrics.k8s.io")
WORKLOADS = (
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("", "replicationcontrollers"),
)


@functools.cache
def overlay() -> Objects:
    return rendered.render(MANIFESTS / "overlays" / "scaler")


@pytest.fixture(scope="module")
def within(tmp_path_factory: pytest.TempPathFactory) -> Objects:
    """Return the namespaced variant as somebody puts it into a namespace, with autoscalers of their own."""
    folder: Path = tmp_path_factory.mktemp("shop")
    (folder / "api.yaml").write_text("kind: Example\n")
    own = {
        "namespace": "shop",
        "resources": [rendered.relative_path(MANIFESTS / "namespaced", folder)],
        "configMapGenerator": [
            {"name": "fastpath-scaler-autoscalers", "behavior": "replace", "files": ["api.yaml"]},
        ],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(own))
    return rendered.render(folder)


def _needs(namespace: str) -> list[Want]:
    """Return what the scaler asks for in a namespace whose workloads it scales."""
    wants = [Want(verb, "", "pods", namespace) for verb in READS]
    for group, plural in WORKLOADS:
        wants += [Want(verb, group, plural, namespace) for verb in READS]
        wants += [Want(verb, group, f"{plural}/scale", namespace, "web") for verb in ("get", "update")]
    wants += [Want(verb, "autoscaling", "horizontalpodautoscalers", namespace) for verb in READS]
    wants += [Want(verb, GROUP, PLURAL, namespace) for verb in READS]
    wants += [Want("get", "metrics.k8s.io", "pods", namespace), Want("list", "metrics.k8s.io", "pods", namespace)]
    wants += [Want(verb, group, "queue_length", namespace) for group in METRICS for verb in ("get", "list")]
    return wants


def _lease(namespace: str) -> list[Want]:
    name = WHOLE.lease_name(flagtable.TABLE["leader-elect-resource-name"].default)
    return [Want(verb, "coordination.k8s.io", "leases", namespace, name) for verb in ("get", "create", "update")]


def _floors(namespace: str) -> list[Want]:
    name = floors.config_map_name(WHOLE)
    wants = [Want(verb, "", "configmaps", namespace) for verb in ("list", "watch", "create")]
    return wants + [Want(verb, "", "configmaps", namespace, name) for verb in ("get", "update")]


def test_the_kind_is_part_of_the_overlay() -> None:
    assert overlay().one("CustomResourceDefinition")["spec"] == crd.definition()["spec"]
    labels = {each["metadata"]["labels"].get("app.kubernetes.io/name") for each in overlay().documents}
    assert labels == {"fastpath"}


def test_the_overlay_starts_the_scaler() -> None:
    arguments = overlay().container["args"]
    assert arguments[-1] == "--scaler"
    assert {argument.lstrip("-").partition("=")[0] for argument in arguments} <= flagtable.TABLE.keys()


def test_the_scaler_may_do_what_it_does() -> None:
    rights = Rights(overlay(), "fastpath", "fastpath")
    wants = [*_needs("shop"), *_lease("fastpath"), *_floors("fastpath")]
    wants += [Want(verb, GROUP, f"{PLURAL}/status", "shop", "web") for verb in ("get", "patch")]
    wants += [Want(verb, "", "events", "shop") for verb in ("create", "patch")]
    wants += [Want("get", "apiextensions.k8s.io", "customresourcedefinitions", "", "rollouts.argoproj.io")]
    assert [want for want in wants if not rights.allow(want)] == []


def _writes(rights: Rights) -> set[tuple[str, str]]:
    """Return what is granted beyond reading: verb and resource."""
    found: set[tuple[str, str]] = set()
    for _, rule in rights.grants:
        verbs = set(rule["verbs"]) - set(READS)
        found |= set(itertools.product(verbs, rule.get("resources", ())))
    return found


SCALES = {("update", f"{plural}/scale") for _, plural in WORKLOADS}
LEASES = {("create", "leases"), ("update", "leases")}
FLOORS = {("create", "configmaps"), ("update", "configmaps")}


def test_the_scaler_may_do_no_more() -> None:
    rights = Rights(overlay(), "fastpath", "fastpath")
    events = {("create", "events"), ("patch", "events")}
    reviews = {("create", "tokenreviews"), ("create", "subjectaccessreviews")}
    assert _writes(rights) == SCALES | LEASES | FLOORS | events | reviews | {("patch", f"{PLURAL}/status")}
    for want in (
        Want("get", "", "secrets", "shop"),
        Want("update", "coordination.k8s.io", "leases", "kube-system", "kube-scheduler"),
        Want("update", GROUP, PLURAL, "shop", "web"),
        Want("update", "autoscaling", "horizontalpodautoscalers", "shop", "web"),
        Want("update", "apps", "deployments", "shop", "web"),
        Want("get", "", "configmaps", "fastpath", "fastpath-rules"),
        Want("update", "", "configmaps", "fastpath", "fastpath-rules"),
        Want("delete", "", "configmaps", "fastpath", floors.config_map_name(WHOLE)),
        Want("list", "", "configmaps", "shop"),
    ):
        assert not rights.allow(want), want
    for _, rule in rights.grants:
        assert "*" not in (*rule["verbs"], *rule.get("apiGroups", ()))
        assert "*" not in rule.get("resources", ()) or set(rule["apiGroups"]) <= {*METRICS}
        assert "*/scale" not in rule.get("resources", ())


def test_a_kind_of_ones_own_is_added_by_a_role_with_a_label() -> None:
    rule = {"apiGroups": ["argoproj.io"], "resources": ["rollouts/scale"], "verbs": ["get", "update"]}
    role = {
        "kind": "ClusterRole",
        "metadata": {"name": "rollouts", "labels": {"fastpath.io/aggregate-to-scaler": "true"}},
        "rules": [rule],
    }
    want = Want("update", "argoproj.io", "rollouts/scale", "shop", "web")
    assert not Rights(overlay(), "fastpath", "fastpath").allow(want)
    assert Rights(Objects([*overlay().documents, role]), "fastpath", "fastpath").allow(want)


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        ("view", {"get", "list", "watch"}),
        ("edit", {"create", "delete", "deletecollection", "patch", "update"}),
        ("admin", {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}),
    ],
)
def test_roles_of_people(role: str, allowed: set[str]) -> None:
    """Each of Kubernetes' roles is made of the parts below it, so that `edit` reads through `view`."""
    found = overlay().one("ClusterRole", f"fastpath-autoscalers-{role}")
    assert found["metadata"]["labels"][f"rbac.authorization.k8s.io/aggregate-to-{role}"] == "true"
    verbs = {"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
    granted = {verb for verb in verbs if any(covers(rule, Want(verb, GROUP, PLURAL)) for rule in found["rules"])}
    assert granted == allowed
    status = {
        verb for verb in verbs if any(covers(rule, Want(verb, GROUP, f"{PLURAL}/status")) for rule in found["rules"])
    }
    assert status <= {"get", "list", "watch"}
    assert all(rule["apiGroups"] == [GROUP] for rule in found["rules"])


def test_the_journal_is_for_whom_it_is_bound_to() -> None:
    (rule,) = overlay().one("ClusterRole", "fastpath-scaler-journal")["rules"]
    assert covers(rule, Want("get", path="/debug/fastpath/autoscalers/shop/web"))
    assert not covers(rule, Want("get", path="/metrics"))
    assert not Rights(overlay(), "fastpath", "fastpath").allow(Want("get", path="/debug/fastpath/autoscalers/shop/web"))


# --- within one namespace --------------------------------------------------------------------------------------------


def test_the_variant_stays_in_its_namespace(within: Objects) -> None:
    assert {each["kind"] for each in within.documents} == {
        "ConfigMap",
        "Deployment",
        "Role",
        "RoleBinding",
        "ServiceAccount",
    }
    assert {each["metadata"]["namespace"] for each in within.documents} == {"shop"}
    (subject,) = within.one("RoleBinding")["subjects"]
    assert subject == {"kind": "ServiceAccount", "name": "fastpath-scaler", "namespace": "shop"}


def test_the_variant_may_do_what_it_does_and_no_more(within: Objects) -> None:
    rights = Rights(within, "fastpath-scaler", "shop")
    assert [want for want in [*_needs("shop"), *_lease("shop")] if not rights.allow(want)] == []
    assert _writes(rights) == SCALES | LEASES
    assert [want for want in _needs("other") if rights.allow(want)] == []
    assert {namespace for namespace, rule in rights.grants if "nonResourceURLs" not in rule} == {"shop"}


def test_the_variant_reads_what_is_mounted(within: Objects) -> None:
    container, pod = within.container, within.pod
    assert container["command"] == ["fastpath", "scale"]
    given = dict(argument.lstrip("-").split("=", 1) for argument in container["args"])
    assert given.keys() <= flagtable.TABLE.keys()
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume["configMap"]["name"] for volume in pod["volumes"]}
    named = {volumes[mounts[given["config"]]], volumes[mounts[given["autoscalers"]]]}
    assert named == {each["metadata"]["name"] for each in within.all("ConfigMap")}
    assert within.one("ConfigMap", "fastpath-scaler-autoscalers")["data"].keys() == {"api.yaml"}
    assert all(mount["readOnly"] and "subPath" not in mount for mount in container["volumeMounts"])
    labels = within.one("Deployment")["spec"]["template"]["metadata"]["labels"].items()
    assert within.one("Deployment")["spec"]["selector"]["matchLabels"].items() <= labels


def test_pods_of_the_variant_meet_the_restricted_standard(within: Objects) -> None:
    pod, container = within.pod, within.container
    assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & pod.keys()
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    security = container["securityContext"]
    assert security == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "memory" in container["resources"]["limits"]


def test_the_examples_of_the_variant_are_right() -> None:
    folder = MANIFESTS / "namespaced"
    read = autoscalerdocuments.read_document(yaml.safe_load((folder / "web.yaml").read_text()), "shop")
    assert read.spec.mode == ADVISE  # whoever applies an example changes nothing
    parsed = rulesfile.parse_rules((folder / "rules.yaml").read_text(), "rules.yaml")
    assert (parsed.faults, parsed.fatal) == ((), ())
    rules, faults = compiler.compile_rules(parsed.config, resources.BUILTIN)
    assert (len(rules.custom), faults) == (1, ())
