"""The manifests of the scaler: the CRD, its writers, the scaler's rights, and the one-namespace variant."""

import functools
import itertools

import pytest

from adapter.autoscaler.controller import ready_store
from adapter.autoscaler.forecasts import verdict_store
from adapter.bounds.schedule.documents import PLURAL as SCHEDULES
from adapter.config.options import SERVE
from adapter.kubernetes.ownership import installation_lock
from adapter.model.autoscaling import floor, slices
from adapter.model.autoscaling.fastpath_autoscaler import GROUP, PLURAL
from tests.support import rendered
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
LEASE_GROUP = "coordination.k8s.io"
SCALER, SERVER = "fastpath-scaler", "fastpath"
"""The names of the two Deployments, and of their accounts."""

COMPONENTS = (
    ("scaler",),
    ("external", "scaler", "single-replica"),
    ("external", "resource", "scaler", "service-monitor", "scaler-service-monitor", "network-policy"),
    ("scaler", "service-monitor", "scaler-service-monitor", "single-replica", "cert-manager"),
)
"""Lists of components with a scaler of its own."""


@functools.cache
def overlay() -> Objects:
    return rendered.render(MANIFESTS / "overlays" / "scaler")


composed = functools.partial(rendered.compose, kinds=True)


with_scaler = pytest.mark.parametrize("components", COMPONENTS, ids="+".join)


def _needs(namespace: str) -> list[Want]:
    """Return what the scaler asks for in a namespace whose workloads it scales."""
    wants = [Want(verb, "", "pods", namespace) for verb in READS]
    for group, plural in WORKLOADS:
        wants += [Want(verb, group, plural, namespace) for verb in READS]
        wants += [Want(verb, group, f"{plural}/scale", namespace, "web") for verb in ("get", "update")]
    wants += [Want(verb, "autoscaling", "horizontalpodautoscalers", namespace) for verb in READS]
    wants += [Want(verb, GROUP, plural, namespace) for plural in (PLURAL, SCHEDULES) for verb in READS]
    wants += [Want("patch", GROUP, f"{SCHEDULES}/status", namespace, "office")]
    wants += [Want(verb, "metrics.k8s.io", "pods", namespace) for verb in ("get", "list")]
    wants += [Want(verb, group, "queue_length", namespace) for group in METRICS for verb in ("get", "list")]
    return wants


def _lease(namespace: str) -> list[Want]:
    """Return what a scaler does with the Leases of slices and its own."""
    prefix = SERVE.table["leader-elect-resource-name"].default
    names = [f"{prefix}-member-{SCALER}-7d9f-x2b4c"]
    names += [slices.name_of(prefix, number) for number in range(slices.COUNT)]
    wants = [Want(verb, LEASE_GROUP, "leases", namespace) for verb in ("create", "list", "watch")]
    lock = LEASE_GROUP, "leases", installation_lock.NAMESPACE
    wants += [Want("create", *lock)]
    wants += [Want(verb, *lock, installation_lock.NAME) for verb in ("get", "update")]
    return wants + [
        Want(verb, LEASE_GROUP, "leases", namespace, name)
        for name in names
        for verb in ("get", "update", "delete")
    ]


def _config_maps(namespace: str) -> list[Want]:
    wants = [Want(verb, "", "configmaps", namespace) for verb in ("list", "create")]
    for number in range(slices.COUNT):
        names = [slices.name_of(kind.name, number) for kind in (ready_store.KIND, verdict_store.KIND)]
        for name in (floor.config_map_name(number), *names):
            wants += [Want(verb, "", "configmaps", namespace, name) for verb in ("get", "update")]
    return wants


@with_scaler
def test_the_scaler_has_pods_and_an_account_of_its_own(components: tuple[str, ...]) -> None:
    objects = composed(*components)
    scaler, server = objects.of(SCALER), objects.of(SERVER)
    rendered.assert_restricted(scaler)
    assert scaler.container["command"] == ["fastpath", "scale"]
    assert (scaler.pod["serviceAccountName"], server.pod["serviceAccountName"]) == (SCALER, SERVER)
    assert (scaler.options.serve_floors, scaler.options.scaler) == (False, False)
    assert (server.options.serve_floors, server.options.scaler) == (True, False)
    assert scaler.options.prometheus_url == server.options.prometheus_url
    assert scaler.options.config == server.options.config
    labels = {
        name: objects.one("Deployment", name)["spec"]["template"]["metadata"]["labels"]
        for name in (SCALER, SERVER)
    }
    for kind in ("Deployment", "Service", "PodDisruptionBudget"):
        for each in objects.all(kind):
            selector = each["spec"]["selector"]
            chosen = [
                name
                for name in labels
                if selector.get("matchLabels", selector).items() <= labels[name].items()
            ]
            assert chosen == [each["metadata"]["name"]], (
                "a selector finds the pods of its own Deployment alone"
            )


@with_scaler
def test_the_pods_that_answer_callers_write_nothing(components: tuple[str, ...]) -> None:
    """The metrics APIs' server may review callers, and change no Scale, status, Lease, floor or event."""
    rights = Rights(composed(*components), SERVER, "fastpath")
    assert _writes(rights) == {("create", "tokenreviews"), ("create", "subjectaccessreviews")}
    for group, plural in WORKLOADS:
        assert not rights.allow(Want("update", group, f"{plural}/scale", "shop", "web"))
    assert not rights.allow(Want("update", "", "configmaps", "fastpath", floor.config_map_name(0)))


@with_scaler
def test_of_leases_in_kube_system_the_scaler_reads_and_replaces_one(components: tuple[str, ...]) -> None:
    rights = Rights(composed(*components), SCALER, "fastpath")
    for verb in ("get", "update", "delete", "patch"):
        assert not rights.allow(Want(verb, LEASE_GROUP, "leases", "kube-system", "kube-scheduler"))
    for verb in ("list", "watch"):
        assert not rights.allow(Want(verb, LEASE_GROUP, "leases", "kube-system"))
    for verb in ("delete", "patch"):
        assert not rights.allow(Want(verb, LEASE_GROUP, "leases", "kube-system", installation_lock.NAME))


def test_the_pods_that_answer_callers_read_the_floors() -> None:
    rights = Rights(overlay(), SERVER, "fastpath")
    for verb in ("list", "watch"):
        assert rights.allow(Want(verb, "autoscaling", "horizontalpodautoscalers"))
        assert not rights.allow(Want(verb, "", "configmaps", "shop"))
    assert rights.allow(Want("list", "", "configmaps", "fastpath"))
    assert not rights.allow(Want("watch", "", "configmaps", "fastpath"))
    assert not Rights(rendered.read_base(), SERVER, "fastpath").allow(
        Want("list", "", "configmaps", "fastpath")
    )


@with_scaler
def test_every_account_that_is_granted_something_exists(components: tuple[str, ...]) -> None:
    objects = composed(*components)
    accounts = {each["metadata"]["name"] for each in objects.all("ServiceAccount")}
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        for binding in objects.all(kind):
            for subject in binding["subjects"]:
                assert subject["namespace"] != "fastpath" or subject["name"] in accounts, binding["metadata"][
                    "name"
                ]


@pytest.mark.parametrize("components", [*COMPONENTS, ("scaler-in-process",)], ids="+".join)
def test_rules_of_an_aggregated_role_are_left_to_the_cluster(components: tuple[str, ...]) -> None:
    """An empty list would replace them at every apply, and `kubectl diff` would never be clean."""
    aggregated = [each for each in composed(*components).all("ClusterRole") if "aggregationRule" in each]
    assert [each["metadata"]["name"] for each in aggregated] == ["fastpath-scaler-targets"]
    assert [each for each in aggregated if "rules" in each] == []


def test_the_scaler_may_do_what_it_does() -> None:
    rights = Rights(overlay(), SCALER, "fastpath")
    wants = [*_needs("shop"), *_lease("fastpath"), *_config_maps("fastpath")]
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
LEASES = {("create", "leases"), ("update", "leases"), ("delete", "leases")}
FLOORS = {("create", "configmaps"), ("update", "configmaps")}


def test_the_scaler_may_do_no_more() -> None:
    rights = Rights(overlay(), SCALER, "fastpath")
    events = {("create", "events"), ("patch", "events")}
    statuses = {("patch", f"{plural}/status") for plural in (PLURAL, SCHEDULES)}
    assert _writes(rights) == SCALES | LEASES | FLOORS | events | statuses
    for want in (
        Want("get", "", "secrets", "shop"),
        Want("update", LEASE_GROUP, "leases", "kube-system", "kube-scheduler"),
        Want("delete", LEASE_GROUP, "leases", "kube-system", "kube-scheduler"),
        Want("list", LEASE_GROUP, "leases", "shop"),
        Want("delete", "", "configmaps", "fastpath", floor.config_map_name(0)),
        Want("update", GROUP, PLURAL, "shop", "web"),
        Want("update", GROUP, SCHEDULES, "shop", "office"),
        Want("patch", GROUP, SCHEDULES, "shop", "office"),
        Want("update", "autoscaling", "horizontalpodautoscalers", "shop", "web"),
        Want("update", "apps", "deployments", "shop", "web"),
        Want("get", "", "configmaps", "fastpath", "fastpath-rules"),
        Want("update", "", "configmaps", "fastpath", "fastpath-rules"),
        Want("delete", "", "configmaps", "fastpath", "fastpath-rules"),
        Want("list", "", "configmaps", "shop"),
    ):
        assert not rights.allow(want), want
    for _, rule in rights.grants:
        assert "*" not in (*rule["verbs"], *rule.get("apiGroups", ()))
        assert "*" not in rule.get("resources", ()) or set(rule["apiGroups"]) <= {*METRICS}
        assert "*/scale" not in rule.get("resources", ())


IDLE_NAME = "fastpath-idle-scale-down"


@pytest.mark.parametrize(("scaler", "account"), [("scaler", SCALER), ("scaler-in-process", SERVER)])
def test_idle_scale_down_adds_patches_of_pods_and_a_policy_for_that_account(
    scaler: str, account: str
) -> None:
    objects, before = composed(scaler, "idle-scale-down"), composed(scaler)
    added = _writes(Rights(objects, account, "fastpath")) - _writes(Rights(before, account, "fastpath"))
    assert added == {("patch", "pods")}
    kinds = {each["kind"] for each in objects.documents} - {each["kind"] for each in before.documents}
    assert kinds == {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    (condition,) = objects.one("ValidatingAdmissionPolicy")["spec"]["matchConditions"]
    user = f"'system:serviceaccount:fastpath:' + '{account}'"
    assert condition["expression"] == f"request.userInfo.username == {user}"
    binding = objects.one("ValidatingAdmissionPolicyBinding")["spec"]
    assert binding == {"policyName": IDLE_NAME, "validationActions": ["Deny"]}


def test_the_journal_is_for_whom_it_is_bound_to() -> None:
    (rule,) = overlay().one("ClusterRole", "fastpath-scaler-journal")["rules"]
    assert covers(rule, Want("get", path="/debug/fastpath/autoscalers/shop/web"))
    assert not covers(rule, Want("get", path="/metrics"))
    assert not Rights(overlay(), SERVER, "fastpath").allow(
        Want("get", path="/debug/fastpath/autoscalers/shop/web")
    )


def test_in_process_the_same_pods_serve_and_scale() -> None:
    objects = composed("scaler-in-process")
    assert objects.options.scaler is True
    for kind in ("Deployment", "ServiceAccount", "PodDisruptionBudget"):
        assert [each["metadata"]["name"] for each in objects.all(kind)] == [SERVER]
    rights = Rights(objects, SERVER, "fastpath")
    wants = [*_needs("shop"), *_lease("fastpath"), *_config_maps("fastpath")]
    assert [want for want in wants if not rights.allow(want)] == []
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        assert all(each["subjects"][0]["name"] == SERVER for each in objects.all(kind))


def _granted(objects: Objects) -> set[tuple[str, str, str]]:
    """Return verb, resource and role of each right of the scaler, as the page has them."""
    grants = set()
    for kind, name in (
        ("ClusterRole", SCALER),
        ("ClusterRole", f"{SCALER}-workloads"),
        ("Role", SCALER),
        ("Role", f"{SCALER}-installation"),
    ):
        role = objects.one(kind, name)
        where = " **in kube-system**" if role["metadata"].get("namespace") == "kube-system" else ""
        for rule in role["rules"]:
            names = rule.get("resourceNames", [])
            restricted = f" `{names[0]}`" if names else ""
            restricted += f" to `{names[-1][-3:]}`" if len(names) > 1 else ""
            for group, resource in itertools.product(rule["apiGroups"], rule["resources"]):
                foreign = f" in {group}" if group.endswith("metrics.k8s.io") else ""
                grants |= {
                    (verb, resource + foreign + restricted, f"{kind} `{name}`{where}")
                    for verb in rule["verbs"]
                }
    return grants


def test_the_page_of_the_manifests_has_each_right_of_the_scaler_and_no_other() -> None:
    section = (MANIFESTS / "README.md").read_text().partition("## What the scaler may do")[2]
    table = section.partition("\n\n|")[2].partition("\n\n")[0].splitlines()[2:]
    told = set()
    for line in table:
        verbs, resources, role, _ = (cell.strip() for cell in line.strip("|").split("|"))
        told |= {(*pair, role) for pair in itertools.product(verbs.split(", "), resources.split(", "))}
    assert told == _granted(overlay())
