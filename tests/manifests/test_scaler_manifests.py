"""The manifests of the scaler: the CRD, its writers, the scaler's rights, and the one-namespace variant."""

import functools
import itertools
from pathlib import Path

import pytest

from adapter.autoscaler import ready_store
from adapter.autoscaler.forecasts import verdict_store
from adapter.bounds.schedule.documents import PLURAL as SCHEDULES
from adapter.config import checks
from adapter.config.options import SERVE, Options
from adapter.kubernetes.ownership import installation_lock
from adapter.model.autoscaling import floor, slices
from adapter.model.autoscaling.fastpath_autoscaler import GROUP, PLURAL
from adapter.server import tls
from fastpath_tools.live import cluster_options as deployment
from scripts.generate import crd, crd_schedules
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


def options_of(objects: Objects) -> Options:
    """Return what the arguments of the only Deployment mean; none is without effect."""
    options, notices = SERVE.parse(objects.container["args"])
    assert notices == ()
    return options


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
    wants += [
        Want("get", "metrics.k8s.io", "pods", namespace),
        Want("list", "metrics.k8s.io", "pods", namespace),
    ]
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


def test_the_kinds_are_part_of_the_overlay() -> None:
    for made in (crd.definition(), crd_schedules.definition()):
        kind = overlay().one("CustomResourceDefinition", made["metadata"]["name"])
        assert kind["spec"] == made["spec"]
    labels = {each["metadata"]["labels"].get("app.kubernetes.io/name") for each in overlay().documents}
    assert labels == {"fastpath"}


@with_scaler
def test_the_scaler_has_pods_and_an_account_of_its_own(components: tuple[str, ...]) -> None:
    objects = composed(*components)
    scaler, server = objects.of(SCALER), objects.of(SERVER)
    assert scaler.container["command"] == ["fastpath", "scale"]
    assert (scaler.pod["serviceAccountName"], server.pod["serviceAccountName"]) == (SCALER, SERVER)
    assert (options_of(scaler).serve_floors, options_of(scaler).scaler) == (False, False)
    assert (options_of(server).serve_floors, options_of(server).scaler) == (True, False)
    assert options_of(scaler).prometheus_url == options_of(server).prometheus_url
    assert options_of(scaler).config == options_of(server).config
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


def test_a_kind_of_ones_own_is_added_by_a_role_with_a_label() -> None:
    rule = {"apiGroups": ["argoproj.io"], "resources": ["rollouts/scale"], "verbs": ["get", "update"]}
    role = {
        "kind": "ClusterRole",
        "metadata": {"name": "rollouts", "labels": {"fastpath.io/aggregate-to-scaler": "true"}},
        "rules": [rule],
    }
    want = Want("update", "argoproj.io", "rollouts/scale", "shop", "web")
    assert not Rights(overlay(), SCALER, "fastpath").allow(want)
    assert Rights(Objects([*overlay().documents, role]), SCALER, "fastpath").allow(want)


@pytest.mark.parametrize("plural", [PLURAL, SCHEDULES])
@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        ("view", {"get", "list", "watch"}),
        ("edit", {"create", "delete", "deletecollection", "patch", "update"}),
        ("admin", {"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}),
    ],
)
def test_roles_of_people(role: str, allowed: set[str], plural: str) -> None:
    """Each of Kubernetes' roles is made of the parts below it, so that `edit` reads through `view`."""
    found = overlay().one("ClusterRole", f"fastpath-autoscalers-{role}")
    assert found["metadata"]["labels"][f"rbac.authorization.k8s.io/aggregate-to-{role}"] == "true"
    verbs = {"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

    def granted(resource: str) -> set[str]:
        wants = {verb: Want(verb, GROUP, resource) for verb in verbs}
        return {verb for verb, want in wants.items() if any(covers(rule, want) for rule in found["rules"])}

    assert granted(plural) == allowed
    assert granted(f"{plural}/status") <= {"get", "list", "watch"}
    assert all(rule["apiGroups"] == [GROUP] for rule in found["rules"])


def test_the_journal_is_for_whom_it_is_bound_to() -> None:
    (rule,) = overlay().one("ClusterRole", "fastpath-scaler-journal")["rules"]
    assert covers(rule, Want("get", path="/debug/fastpath/autoscalers/shop/web"))
    assert not covers(rule, Want("get", path="/metrics"))
    assert not Rights(overlay(), SERVER, "fastpath").allow(
        Want("get", path="/debug/fastpath/autoscalers/shop/web")
    )


@pytest.fixture
def scaler() -> Objects:
    """Return the objects of the Deployment of `fastpath scale`."""
    return overlay().of(SCALER)


def test_a_scaler_is_probed(scaler: Objects) -> None:
    (port,) = (each for each in scaler.container["ports"] if each["name"] == "health")
    assert checks.split_bind_address(options_of(scaler).health_probe_bind_address) == (
        "",
        port["containerPort"],
    )
    for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        assert scaler.container[probe]["httpGet"] == {"path": path, "port": "health"}
    restart = scaler.container["livenessProbe"]
    assert restart["periodSeconds"] * restart["failureThreshold"] >= 60, (
        "a pause of the node is no reason to restart"
    )


def test_a_scaler_is_spread_and_kept(scaler: Objects) -> None:
    deployment = scaler.one("Deployment", SCALER)
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    budget = scaler.one("PodDisruptionBudget", SCALER)["spec"]
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    spread = scaler.pod["topologySpreadConstraints"]
    assert [each["topologyKey"] for each in spread] == [
        "kubernetes.io/hostname",
        "topology.kubernetes.io/zone",
    ]
    selectors = [each["labelSelector"] for each in spread] + [
        budget["selector"],
        deployment["spec"]["selector"],
    ]
    assert all(each["matchLabels"].items() <= labels.items() for each in selectors)


def test_a_scaler_meets_the_restricted_standard(scaler: Objects) -> None:
    rendered.assert_restricted(scaler)


def test_a_single_replica_of_each() -> None:
    objects = composed("external", "scaler", "single-replica")
    assert [each["spec"]["replicas"] for each in objects.all("Deployment")] == [1, 1]
    assert objects.all("PodDisruptionBudget") == []


def test_the_quota_leaves_room_for_both_while_they_are_updated() -> None:
    (quota,) = overlay().all("ResourceQuota")
    surge = sum(each["spec"]["replicas"] + 1 for each in overlay().all("Deployment"))
    assert surge <= int(quota["spec"]["hard"]["pods"])


# --- in the pods of the metrics APIs -----------------------------------------------------------------------


def test_in_process_the_same_pods_serve_and_scale() -> None:
    objects = composed("scaler-in-process")
    assert options_of(objects).scaler is True
    for kind in ("Deployment", "ServiceAccount", "PodDisruptionBudget"):
        assert [each["metadata"]["name"] for each in objects.all(kind)] == [SERVER]
    rights = Rights(objects, SERVER, "fastpath")
    wants = [*_needs("shop"), *_lease("fastpath"), *_config_maps("fastpath")]
    assert [want for want in wants if not rights.allow(want)] == []
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        assert all(each["subjects"][0]["name"] == SERVER for each in objects.all(kind))


# --- self-metrics ------------------------------------------------------------------------------------------


def test_prometheus_finds_trusts_and_may_scrape_the_scaler() -> None:
    objects = composed(
        "scaler", "service-monitor", "scaler-service-monitor", "single-replica", "cert-manager"
    )
    scaler = objects.of(SCALER)
    service = objects.one("Service", SCALER)
    monitor = objects.one("ServiceMonitor", SCALER)["spec"]
    chosen = [
        each["metadata"]["name"]
        for each in objects.all("Service")
        if monitor["selector"]["matchLabels"].items() <= each["metadata"]["labels"].items()
    ]
    assert chosen == [SCALER]
    (endpoint,), (port,) = monitor["endpoints"], service["spec"]["ports"]
    assert (endpoint["port"], endpoint["scheme"], endpoint["path"]) == (port["name"], "https", "/metrics")
    assert endpoint["tlsConfig"]["serverName"] in tls.service_names("fastpath", "fastpath")
    options = options_of(scaler)
    listening = {each["name"]: each["containerPort"] for each in scaler.container["ports"]}[
        port["targetPort"]
    ]
    assert checks.split_bind_address(options.metrics_bind_address) == ("", listening)
    mounts = {mount["mountPath"]: mount["name"] for mount in scaler.container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in scaler.pod["volumes"]}
    for path in (options.tls_cert_file, options.tls_private_key_file):
        assert volumes[mounts[str(Path(path).parent)]]["secret"]["secretName"] == deployment.SECRET
    rights = Rights(objects, SCALER, "fastpath")
    assert rights.allow(Want("create", "authentication.k8s.io", "tokenreviews"))
    assert rights.allow(Want("create", "authorization.k8s.io", "subjectaccessreviews"))
    assert Rights(objects, "prometheus-k8s", "monitoring").allow(Want("get", path="/metrics"))


@pytest.mark.parametrize(("more", "kind"), [((), "configMap"), (("cert-manager",), "secret")])
def test_no_monitor_reads_the_secret_with_the_key(more: tuple[str, ...], kind: str) -> None:
    objects = composed("scaler", "service-monitor", "scaler-service-monitor", *more)
    assert len(objects.all("ServiceMonitor")) == 2
    for monitor in objects.all("ServiceMonitor"):
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["tlsConfig"]["ca"] == {kind: {"name": deployment.AUTHORITIES, "key": "ca.crt"}}
    if more:
        serving = objects.one("Certificate", deployment.SECRET)["spec"]
        vouching = objects.one("Certificate", deployment.AUTHORITIES)["spec"]
        assert vouching["secretName"] == deployment.AUTHORITIES
        assert vouching["issuerRef"] == serving["issuerRef"], "its ca.crt is that of the serving certificate"
        assert "server auth" not in vouching["usages"]
        assert "dnsNames" not in vouching


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
