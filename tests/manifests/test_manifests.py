"""The shipped manifests are consistent, in every combination of components, and with the program."""

import functools
import inspect
import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from adapter.config import rules_file
from adapter.config.options import SERVE, Options
from adapter.model import apiservices, resources
from adapter.rules import compile as compiler
from adapter.server import tls
from adapter.server.http.connection_server import MetricsServer
from fastpath_sandbox.apiserver.requests import Request
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.prometheus.series import Series, SeriesSet
from fastpath_sandbox.prometheus.server import Prometheus
from fastpath_tools import preflight
from fastpath_tools.live import cluster_options as deployment
from tests.support import adapter as support
from tests.support import rendered
from tests.support.rendered import MANIFESTS, Objects, Rights, Want

OPTIONAL = ("external", "resource", "resource-rules", "service-monitor", "single-replica", "cert-manager")
"""The components, in the order in which they are to be listed."""

COMBINATIONS = [
    chosen
    for size in range(len(OPTIONAL) + 1)
    for chosen in itertools.combinations(OPTIONAL, size)
    if "resource" in chosen or "resource-rules" not in chosen
]

GROUPS = {"external": "external.metrics.k8s.io", "resource": "metrics.k8s.io"}
EXTERNAL_EXAMPLE = MANIFESTS / "components" / "external" / "example-rules.yaml"
OVERLAYS = ("cert-manager", "service-monitor", "single-replica")
PLAIN = "base as plain YAML"
NAMES = [
    PLAIN,
    *(f"overlay {name}" for name in OVERLAYS),
    *("+".join(["base", *chosen]) for chosen in COMBINATIONS),
]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]


@functools.cache
def objects_of(name: str) -> Objects:
    if name == PLAIN:
        return rendered.read_base()
    if name.startswith("overlay "):
        return rendered.render(MANIFESTS / "overlays" / name.removeprefix("overlay "))
    return rendered.compose(*name.split("+")[1:])


def components_of(name: str) -> set[str]:
    return set(name.removeprefix("overlay ").replace(PLAIN, "").split("+")) & set(OPTIONAL)


def options_of(objects: Objects) -> Options:
    options, notices = SERVE.parse(objects.container["args"])
    assert notices == ()
    return options


def test_an_older_kubectl_is_named_and_the_plain_files_are_checked_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "kubectl"
    program.write_text("""#!/bin/sh\necho '{"clientVersion": {"gitVersion": "v1.26.9+vendor"}}'\n""")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    rendered.kubectl_version.cache_clear()
    try:
        with pytest.raises(pytest.skip.Exception, match=r"^kubectl 1\.26 has no kustomize v5"):
            rendered.render(MANIFESTS / "base")
    finally:
        rendered.kubectl_version.cache_clear()
    assert rendered.read_base().all("Deployment")


every_rendering = pytest.mark.parametrize("name", NAMES)


@every_rendering
def test_groups_served_are_those_registered(name: str) -> None:
    objects = objects_of(name)
    wanted = (
        "custom.metrics.k8s.io",
        *(GROUPS[each] for each in OPTIONAL if each in components_of(name) and each in GROUPS),
    )
    registered = {each["metadata"]["name"] for each in objects.all("APIService")}
    assert registered == set(apiservices.names_of(wanted))
    assert options_of(objects).serve_groups == wanted


@every_rendering
def test_registrations_lead_to_the_service(name: str) -> None:
    objects = objects_of(name)
    service = objects.one("Service")
    (port,) = service["spec"]["ports"]
    priorities: dict[str, dict[str, int]] = {}
    for each in objects.all("APIService"):
        spec = each["spec"]
        assert each["apiVersion"] == "apiregistration.k8s.io/v1"
        assert each["metadata"]["name"] == f"{spec['version']}.{spec['group']}"
        assert "namespace" not in each["metadata"]
        assert spec["service"] == {
            "name": service["metadata"]["name"],
            "namespace": service["metadata"]["namespace"],
            "port": port["port"],
        }
        assert spec["insecureSkipTLSVerify"] is False  # said, so that it replaces a true
        assert 1 <= spec["groupPriorityMinimum"] <= 20_000
        assert 1 <= spec["versionPriority"] <= 1_000
        priorities.setdefault(spec["group"], {})[spec["version"]] = spec["versionPriority"]
        annotations = each["metadata"].get("annotations", {})
        injected = {"cert-manager.io/inject-ca-from": "fastpath/fastpath-serving"}
        assert annotations == (injected if "cert-manager" in components_of(name) else {})
        assert ("fastpath.io/apiservice" in each["metadata"]["labels"]) is True
    custom = priorities["custom.metrics.k8s.io"]
    assert custom["v1beta2"] > custom["v1beta1"]
    labels = [each["metadata"]["labels"]["fastpath.io/apiservice"] for each in objects.all("APIService")]
    assert len(set(labels)) == len(labels)
    assert not [
        each["metadata"]["name"]
        for each in objects.documents
        if each["kind"] != "APIService" and "fastpath.io/apiservice" in each["metadata"].get("labels", {})
    ]


@every_rendering
def test_ports_agree(name: str) -> None:
    objects = objects_of(name)
    (port,) = objects.container["ports"]
    (service_port,) = objects.one("Service")["spec"]["ports"]
    assert options_of(objects).secure_port == port["containerPort"]
    assert service_port["targetPort"] == port["name"]
    for probe, path in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
        assert objects.container[probe]["httpGet"] == {"path": path, "port": port["name"], "scheme": "HTTPS"}


@every_rendering
def test_files_that_arguments_name_are_mounted(name: str) -> None:
    objects = objects_of(name)
    options = options_of(objects)
    mounts = {mount["mountPath"]: mount for mount in objects.container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in objects.pod["volumes"]}
    (folder,) = options.config
    rules = volumes[mounts[folder]["name"]]["configMap"]["name"]
    assert rules == objects.one("ConfigMap")["metadata"]["name"]
    pair = Path(options.tls_cert_file), Path(options.tls_private_key_file)
    assert [path.name for path in pair] == ["tls.crt", "tls.key"]
    for path in pair:
        assert volumes[mounts[str(path.parent)]["name"]]["secret"]["secretName"] == deployment.SECRET


@every_rendering
def test_rules_have_no_fault_and_serve_nothing_that_is_not_registered(name: str) -> None:
    objects = objects_of(name)
    parsed = [
        rules_file.parse_rules(text, source)
        for source, text in sorted(objects.one("ConfigMap")["data"].items())
    ]
    for each in parsed:
        assert (each.faults, each.fatal) == ((), ())
    config, doubled = rules_file.merge([each.config for each in parsed])
    assert not doubled
    rules, faults = compiler.compile_rules(config, resources.BUILTIN)
    assert faults == ()
    served = {
        "custom.metrics.k8s.io": bool(rules.custom),
        "external.metrics.k8s.io": bool(rules.external),
        "metrics.k8s.io": config.resource_rules is not None,
    }
    assert {group for group, is_served in served.items() if is_served} <= set(
        options_of(objects).serve_groups
    )
    assert served["metrics.k8s.io"] is ("resource-rules" in components_of(name))


def test_the_example_of_external_rules_has_no_fault() -> None:
    parsed = rules_file.parse_rules(EXTERNAL_EXAMPLE.read_text(), "example-rules.yaml")
    assert (parsed.faults, parsed.fatal) == ((), ())
    rules, faults = compiler.compile_rules(parsed.config, resources.BUILTIN)
    assert faults == ()
    assert len(rules.external) == 1


@every_rendering
def test_pods_meet_the_restricted_standard_and_more(name: str) -> None:
    objects = objects_of(name)
    enforced = objects.one("Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    assert enforced == "restricted"
    rendered.assert_restricted(objects)
    quota = objects.one("ResourceQuota")["spec"]["scopeSelector"]["matchExpressions"]
    assert [each["values"] for each in quota] == [[objects.pod["priorityClassName"]]]


@every_rendering
def test_a_pod_is_let_go_of_in_time(name: str) -> None:
    objects = objects_of(name)
    drain = inspect.signature(MetricsServer).parameters["drain_timeout"].default
    delay = options_of(objects).shutdown_delay
    assert delay >= 10
    assert objects.pod["terminationGracePeriodSeconds"] >= delay + drain


@every_rendering
def test_pods_are_found_spread_and_kept(name: str) -> None:
    objects = objects_of(name)
    spec = objects.one("Deployment")["spec"]
    labels = spec["template"]["metadata"]["labels"].items()
    selectors = [spec["selector"]["matchLabels"], objects.one("Service")["spec"]["selector"]]
    selectors += [each["labelSelector"]["matchLabels"] for each in objects.pod["topologySpreadConstraints"]]
    budgets = objects.all("PodDisruptionBudget")
    selectors += [each["spec"]["selector"]["matchLabels"] for each in budgets]
    for selector in selectors:
        assert selector.items() <= labels
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    keys = [each["topologyKey"] for each in objects.pod["topologySpreadConstraints"]]
    assert keys == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    if "single-replica" in components_of(name):
        assert (spec["replicas"], budgets) == (1, [])  # a budget would let no node be drained
    else:
        assert spec["replicas"] == 2
        assert budgets[0]["spec"]["minAvailable"] == 1


@every_rendering
def test_objects_are_where_they_belong(name: str) -> None:
    objects = objects_of(name)
    cluster_wide = {"Namespace", "ClusterRole", "ClusterRoleBinding", "APIService"}
    for each in objects.documents:
        where = each["metadata"].get("namespace")
        wanted = "kube-system" if each["kind"] == "RoleBinding" else "fastpath"
        assert where == (None if each["kind"] in cluster_wide else wanted), each
    assert objects.one("Namespace")["metadata"]["name"] == deployment.NAMESPACE
    assert objects.one("Service")["metadata"]["name"] == deployment.SERVICE
    if name != PLAIN:
        assert {each["metadata"]["labels"].get("app.kubernetes.io/name") for each in objects.documents} == {
            "fastpath"
        }
    assert "Secret" not in {each["kind"] for each in objects.documents}  # no key in a repository


@every_rendering
def test_the_pod_may_not_do_more_than_it_needs(name: str) -> None:
    objects = objects_of(name)
    rights = Rights(objects, "fastpath", "fastpath")
    reads = {"get", "list", "watch"}
    for _, rule in rights.grants:
        assert "*" not in (*rule["verbs"], *rule.get("apiGroups", ()), *rule.get("resources", ()))
        writes = set(rule["verbs"]) - reads
        assert not writes or (
            writes == {"create"} and set(rule["resources"]) <= {"tokenreviews", "subjectaccessreviews"}
        )
    assert rights.verbs_on("secrets", "serviceaccounts", "roles", "clusterroles") == set()
    assert rights.verbs_on("apiservices") == {"get"}
    assert not rights.allow(Want("get", "apiregistration.k8s.io", "apiservices", "", "v1.apps"))
    assert not rights.allow(Want("get", "", "configmaps", "fastpath", "fastpath-rules"))
    assert not rights.allow(Want("get", "", "configmaps", "kube-system", "kubeadm-config"))
    assert not rights.allow(Want("list", "", "configmaps", "kube-system"))


@every_rendering
def test_kinds_that_rules_name_may_be_read(name: str) -> None:
    objects = objects_of(name)
    rights = Rights(objects, "fastpath", "fastpath")
    named = set()
    for source, text in objects.one("ConfigMap")["data"].items():
        for rule in rules_file.parse_rules(text, source).config.rules:
            for override in rule.resources.overrides:
                found = resources.BUILTIN.lookup(override.resource, override.group or None)
                assert found is not None
                named.add(found.group_resource)
    assert named
    for kind in named:
        for verb in ("get", "list", "watch"):
            assert rights.allow(Want(verb, kind.group, kind.resource)), f"{verb} {kind}"


@every_rendering
def test_readers_of_metrics_have_a_role(name: str) -> None:
    objects = objects_of(name)
    for group in options_of(objects).serve_groups:
        role = objects.one("ClusterRole", preflight.READERS[group])
        (rule,) = role["rules"]
        assert rule["apiGroups"] == [group]
        assert set(rule["verbs"]) == {"get", "list"}
        aggregated = role["metadata"].get("labels", {}).get("rbac.authorization.k8s.io/aggregate-to-view")
        assert aggregated == (None if group == "external.metrics.k8s.io" else "true")
    assert objects.one("ClusterRole", "fastpath-self-metrics")["rules"] == [
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    ]


@every_rendering
def test_cert_manager_makes_what_is_mounted_and_believed(name: str) -> None:
    objects = objects_of(name)
    if "cert-manager" not in components_of(name):
        assert not objects.all("Certificate")
        return
    serving = objects.one("Certificate", "fastpath-serving")
    assert serving["spec"]["secretName"] == deployment.SECRET
    assert tuple(serving["spec"]["dnsNames"]) == tls.service_names("fastpath", "fastpath")
    assert "server auth" in serving["spec"]["usages"]
    issuer = objects.one("Issuer", serving["spec"]["issuerRef"]["name"])
    authority = objects.one("Certificate", "fastpath-ca")
    assert issuer["spec"]["ca"]["secretName"] == authority["spec"]["secretName"]
    assert authority["spec"]["isCA"] is True
    assert authority["spec"]["privateKey"]["rotationPolicy"] == "Never"
    assert objects.one("Issuer", authority["spec"]["issuerRef"]["name"])["spec"] == {"selfSigned": {}}
    annotated = f"{serving['metadata']['namespace']}/{serving['metadata']['name']}"
    for each in objects.all("APIService"):
        assert each["metadata"]["annotations"]["cert-manager.io/inject-ca-from"] == annotated


@every_rendering
def test_the_scraper_finds_trusts_and_may(name: str) -> None:
    objects = objects_of(name)
    if "service-monitor" not in components_of(name):
        assert not objects.all("ServiceMonitor")
        assert not Rights(objects, "prometheus-k8s", "monitoring").allow(Want("get", path="/metrics"))
        return
    service = objects.one("Service")
    spec = objects.one("ServiceMonitor")["spec"]
    assert spec["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = spec["endpoints"]
    assert endpoint["port"] == service["spec"]["ports"][0]["name"]
    assert (endpoint["scheme"], endpoint["path"]) == ("https", "/metrics")
    assert endpoint["tlsConfig"]["serverName"] in tls.service_names("fastpath", "fastpath")
    kind = "secret" if "cert-manager" in components_of(name) else "configMap"
    assert endpoint["tlsConfig"]["ca"] == {kind: {"name": deployment.AUTHORITIES, "key": "ca.crt"}}
    assert "insecureSkipVerify" not in endpoint["tlsConfig"]
    assert Rights(objects, "prometheus-k8s", "monitoring").allow(Want("get", path="/metrics"))


# What the program asks the API server for, seen by the sandbox.

SERIES: Sequence[tuple[str, dict[str, str]]] = (
    ("http_requests_total", {"namespace": "shop", "pod": "web-0"}),
    ("nginx_ingress_controller_requests", {"exported_namespace": "shop", "ingress": "web"}),
    ("kube_deployment_status_replicas_unavailable", {"namespace": "shop", "deployment": "web"}),
    ("rabbitmq_queue_messages_ready", {"queue": "mail"}),
    (
        "container_cpu_usage_seconds_total",
        {"namespace": "shop", "pod": "web-0", "container": "app", "node": "n1"},
    ),
    (
        "container_memory_working_set_bytes",
        {"namespace": "shop", "pod": "web-0", "container": "app", "node": "n1"},
    ),
    ("container_cpu_usage_seconds_total", {"node": "n1", "id": "/"}),
    ("container_memory_working_set_bytes", {"node": "n1", "id": "/"}),
)
QUESTIONS = (
    "custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/http_requests_per_second",
    "custom.metrics.k8s.io/v1beta2/namespaces/shop/ingresses.networking.k8s.io/*/ingress_requests_per_second",
    (
        "custom.metrics.k8s.io/v1beta2/namespaces/shop/deployments.apps/"
        "*/kube_deployment_status_replicas_unavailable"
    ),
    "external.metrics.k8s.io/v1beta1/namespaces/shop/rabbitmq_queue_messages_ready",
    "metrics.k8s.io/v1beta1/namespaces/shop/pods",
    "metrics.k8s.io/v1beta1/nodes",
)


def _grow(now: float) -> float:
    """Return a counter that grows by one a second; a gauge may as well."""
    return now


def _wants(requests: Sequence[Request]) -> Iterator[Want]:
    for request in requests:
        if not request.verb:
            yield Want(request.method.lower(), path=request.path)
            continue
        parts = request.path.strip("/").split("/")
        group = parts[1] if parts[0] == "apis" else ""
        field, _, name = request.query.get("fieldSelector", "").partition("=")
        narrowed = name if field == "metadata.name" else ""
        yield Want(request.verb, group, request.resource, request.namespace, request.name or narrowed)


async def test_everything_the_adapter_asks_for_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole adapter runs on the rendered rules and arguments; the rendered roles allow its requests."""
    monkeypatch.setenv("POD_NAMESPACE", "fastpath")
    objects = objects_of("base+external+resource+resource-rules")
    for source, text in objects.one("ConfigMap")["data"].items():
        target = "rules.yaml" if source == "custom.yaml" else source
        (tmp_path / target).write_text(text)
    others = [f"--config={EXTERNAL_EXAMPLE}", f"--config={tmp_path / 'resource.yaml'}"]
    groups = [argument for argument in objects.container["args"] if argument.startswith("--serve-groups=")]
    series = SeriesSet(Series(name, labels, _grow) for name, labels in SERIES)
    now = time.time  # noqa: TID251  # as the adapter's, which is the real one
    async with Cluster() as cluster, Prometheus(series, now) as prometheus:
        cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
        for kind, version, name in (
            ("Pod", "v1", "web-0"),
            ("Ingress", "networking.k8s.io/v1", "web"),
            ("Deployment", "apps/v1", "web"),
        ):
            cluster.create(
                {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "shop"}}
            )
        async with support.running(tmp_path, cluster, prometheus.url, *others, *groups) as adapter:
            answers = [await adapter.get(f"/apis/{quote(path)}?labelSelector=a%21%3Db") for path in QUESTIONS]
        wants = set(
            _wants([request for request in cluster.requests if request.user_agent == "fastpath-adapter"])
        )
    assert [answer.status for answer in answers] == [200] * len(QUESTIONS), answers
    rights = Rights(objects, "fastpath", "fastpath")
    assert [want for want in sorted(wants) if not rights.allow(want)] == []
    asked: set[tuple[str, Any]] = {(want.verb, want.resource) for want in wants}
    for kind in ("pods", "ingresses", "deployments", "nodes"):
        assert {("list", kind), ("watch", kind)} <= asked
    # the reviews of callers and the trust bundle are asked for as well, or this test sees too little
    assert ("create", "subjectaccessreviews") in asked
    assert ("watch", "configmaps") in asked
    assert ("get", "apiservices") in asked
