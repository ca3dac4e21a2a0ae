"""components/network-policy: which connections the rendered NetworkPolicies allow, and which not.

Policies are judged as Kubernetes does: a pod that some policy selects for a direction may do in it what one
of those policies allows, and nothing else.
"""

import ipaddress
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

from tests.support import rendered
from tests.support.rendered import ROOT, Objects

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

JSON = dict[str, Any]


class Peer(NamedTuple):
    """The other end of a connection: a pod of a namespace, or an address outside of the pod network."""

    namespace: str = ""
    labels: Mapping[str, str] = {}
    address: str = ""


APISERVER = Peer(address="10.0.0.5")
ELSEWHERE = Peer(address="203.0.113.9")
PROMETHEUS = Peer("monitoring", {"app.kubernetes.io/name": "prometheus"})
OTHER_IN_MONITORING = Peer("monitoring", {"app.kubernetes.io/name": "grafana"})
DNS = Peer("kube-system", {"k8s-app": "kube-dns"})
STRANGER = Peer("shop", {"app": "web"})
NEIGHBOUR = Peer("fastpath", {"app": "other"})


def composed(*components: str, patches: str = "") -> Objects:
    return rendered.compose(*components, "network-policy", kinds=True, patches=patches)


def _selects(selector: JSON, labels: Mapping[str, str]) -> bool:
    assert selector.keys() <= {"matchLabels"}
    matched: Mapping[str, str] = selector.get("matchLabels", {})
    return matched.items() <= labels.items()


def _is_peer(entry: JSON, peer: Peer, home: str) -> bool:
    if "ipBlock" in entry:
        # a pod has an address too, but not every network plugin compares it: a rule must not rest on that
        return bool(peer.address) and ipaddress.ip_address(peer.address) in ipaddress.ip_network(
            entry["ipBlock"]["cidr"]
        )
    if peer.address:
        return False
    named = {"kubernetes.io/metadata.name": peer.namespace}
    in_namespace = (
        _selects(entry["namespaceSelector"], named)
        if "namespaceSelector" in entry
        else peer.namespace == home
    )
    return in_namespace and _selects(entry.get("podSelector", {}), peer.labels)


def allowed(
    objects: Objects, deployment: str, direction: str, peer: Peer, port: int | str, protocol: str = "TCP"
) -> bool:
    """Return whether pods of a Deployment accept (Ingress) or may reach (Egress) a peer on a port."""
    labels = objects.one("Deployment", deployment)["spec"]["template"]["metadata"]["labels"]
    policies = [
        each["spec"]
        for each in objects.all("NetworkPolicy")
        if direction in each["spec"]["policyTypes"] and _selects(each["spec"]["podSelector"], labels)
    ]
    if not policies:
        return True
    home: str = objects.one("Deployment", deployment)["metadata"]["namespace"]
    field, other = ("ingress", "from") if direction == "Ingress" else ("egress", "to")
    return any(
        any(_is_peer(entry, peer, home) for entry in rule[other])
        and ("ports" not in rule or {"port": port, "protocol": protocol} in rule["ports"])
        for policy in policies
        for rule in policy.get(field, ())
    )


SEPARATE = ("scaler", "service-monitor", "scaler-service-monitor")
BOTH = ("fastpath", "fastpath-scaler")


def test_without_the_component_everything_is_allowed() -> None:
    assert allowed(rendered.compose(), "fastpath", "Ingress", STRANGER, "https")


def test_the_metrics_apis_are_reached_by_apiserver_and_prometheus_alone() -> None:
    objects = composed(*SEPARATE)
    assert allowed(objects, "fastpath", "Ingress", APISERVER, "https")
    assert allowed(objects, "fastpath", "Ingress", PROMETHEUS, "https")
    for peer in (STRANGER, NEIGHBOUR, OTHER_IN_MONITORING):
        assert not allowed(objects, "fastpath", "Ingress", peer, "https")


def test_the_scaler_is_reached_by_prometheus_alone() -> None:
    objects = composed(*SEPARATE)
    assert allowed(objects, "fastpath-scaler", "Ingress", PROMETHEUS, "metrics")
    for peer in (APISERVER, STRANGER, NEIGHBOUR, OTHER_IN_MONITORING):
        for port in ("metrics", "health"):
            assert not allowed(objects, "fastpath-scaler", "Ingress", peer, port)


def test_the_ports_that_policies_name_are_those_of_the_containers() -> None:
    objects = composed(*SEPARATE)
    ports = {each["name"] for name in BOTH for each in objects.of(name).container["ports"]}
    named = {
        port["port"]
        for policy in objects.all("NetworkPolicy")
        for rule in policy["spec"].get("ingress", ())
        for port in rule["ports"]
    }
    assert named == {"https", "metrics"}
    assert named <= ports


@pytest.mark.parametrize("deployment", BOTH)
def test_both_reach_what_they_ask(deployment: str) -> None:
    objects = composed(*SEPARATE)
    assert allowed(objects, deployment, "Egress", DNS, 53, "UDP")
    assert allowed(objects, deployment, "Egress", PROMETHEUS, 9090)
    assert all(allowed(objects, deployment, "Egress", APISERVER, port) for port in (443, 6443))
    assert not allowed(objects, deployment, "Egress", ELSEWHERE, 80)


def test_only_pods_that_scale_reach_the_pods_that_rules_scrape() -> None:
    objects = composed(*SEPARATE)
    assert allowed(objects, "fastpath-scaler", "Egress", STRANGER, 9100)
    assert not allowed(objects, "fastpath", "Egress", STRANGER, 9100)
    assert allowed(composed("scaler-in-process"), "fastpath", "Egress", STRANGER, 9100)


def test_the_addresses_of_the_page_leave_others_out() -> None:
    page = (ROOT / "docs" / "guides" / "deploy.md").read_text()
    (patches,) = rendered.blocks(page, "yaml network-policy")
    before, after = composed(*SEPARATE), composed(*SEPARATE, patches=patches)
    for direction, port in (("Ingress", "https"), ("Egress", 443)):
        assert allowed(before, "fastpath", direction, ELSEWHERE, port), "as shipped nothing is taken away"
        assert not allowed(after, "fastpath", direction, ELSEWHERE, port)
        assert allowed(after, "fastpath", direction, APISERVER, port)


def test_what_the_page_lists_is_there() -> None:
    page = (ROOT / "docs" / "guides" / "deploy.md").read_text()
    names = {each["metadata"]["name"] for each in composed(*SEPARATE).all("NetworkPolicy")}
    assert set(re.findall(r"`(fastpath-(?:from|to|default|scrape)[\w-]*)` \|", page)) == names
