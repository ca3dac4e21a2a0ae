"""The shipped manifests are consistent, in every combination of components, and with the program."""

import functools
import inspect
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from adapter.config import rules_file
from adapter.model.objects import apiservices, resources
from adapter.rules import compile as compiler
from adapter.server.http.connection_server import MetricsServer
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.prometheus.series import Series, SeriesSet
from fastpath_sandbox.prometheus.server import Prometheus
from fastpath_tools import preflight
from fastpath_tools.live import cluster_options as deployment
from tests.support import adapter as support
from tests.support import rendered
from tests.support.objects import plain
from tests.support.rendered import MANIFESTS, Objects, Rights, Want

OPTIONAL = ("external", "resource", "resource-rules", "service-monitor", "single-replica", "cert-manager")
"""The components, in the order in which they are to be listed."""

COMBINATIONS = [
    (),
    *((name,) for name in OPTIONAL if name != "resource-rules"),
    ("resource", "resource-rules"),
    *(tuple(each for each in OPTIONAL if each != name) for name in OPTIONAL if name != "resource"),
    OPTIONAL,
]
"""None, each alone, all but one, and all."""

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
    assert objects.options.serve_groups == wanted


@every_rendering
def test_files_that_arguments_name_are_mounted(name: str) -> None:
    objects = objects_of(name)
    options = objects.options
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
    assert {group for group, is_served in served.items() if is_served} <= set(objects.options.serve_groups)
    assert served["metrics.k8s.io"] is ("resource-rules" in components_of(name))


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
    delay = objects.options.shutdown_delay
    assert delay >= 10
    assert objects.pod["terminationGracePeriodSeconds"] >= delay + drain


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
    for group in objects.options.serve_groups:
        role = objects.one("ClusterRole", preflight.READERS[group])
        (rule,) = role["rules"]
        assert rule["apiGroups"] == [group]
        assert set(rule["verbs"]) == {"get", "list"}
        aggregated = role["metadata"].get("labels", {}).get("rbac.authorization.k8s.io/aggregate-to-view")
        assert aggregated == (None if group == "external.metrics.k8s.io" else "true")
    assert objects.one("ClusterRole", "fastpath-self-metrics")["rules"] == [
        {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    ]


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
    series = SeriesSet(Series(name, labels, lambda now: now) for name, labels in SERIES)
    now = time.time  # noqa: TID251  # as the adapter's, which is the real one
    async with Cluster() as cluster, Prometheus(series, now) as prometheus:
        cluster.create(plain("Node", "n1"))
        for kind, version, name in (
            ("Pod", "v1", "web-0"),
            ("Ingress", "networking.k8s.io/v1", "web"),
            ("Deployment", "apps/v1", "web"),
        ):
            cluster.create(plain(kind, name, "shop") | {"apiVersion": version})
        async with support.running(tmp_path, cluster, prometheus.url, *others, *groups) as adapter:
            answers = [await adapter.get(f"/apis/{quote(path)}?labelSelector=a%21%3Db") for path in QUESTIONS]
        wants = {Want.of(each) for each in cluster.requests if each.user_agent == "fastpath-adapter"}
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
