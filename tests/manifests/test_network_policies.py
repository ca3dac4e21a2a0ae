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


PEERS = {
    "apiserver": Peer(address="10.0.0.5"),
    "elsewhere": Peer(address="203.0.113.9"),
    "prometheus": Peer("monitoring", {"app.kubernetes.io/name": "prometheus"}),
    "grafana": Peer("monitoring", {"app.kubernetes.io/name": "grafana"}),
    "dns": Peer("kube-system", {"k8s-app": "kube-dns"}),
    "stranger": Peer("shop", {"app": "web"}),
    "neighbor": Peer("fastpath", {"app": "other"}),
}
PODS = {name for name, peer in PEERS.items() if peer.namespace}


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


def peers(
    objects: Objects, deployment: str, direction: str, port: str | int, protocol: str = "TCP"
) -> set[str]:
    """Return who may be reached, or may reach pods of a Deployment."""
    return {
        name for name, peer in PEERS.items() if allowed(objects, deployment, direction, peer, port, protocol)
    }


def test_without_the_component_everything_is_allowed() -> None:
    assert peers(rendered.compose(), "fastpath", "Ingress", "https") == PEERS.keys()


@pytest.mark.parametrize(
    ("deployment", "direction", "port", "expected"),
    [
        ("fastpath", "Ingress", "https", {"apiserver", "elsewhere", "prometheus"}),
        ("fastpath-scaler", "Ingress", "metrics", {"prometheus"}),
        ("fastpath-scaler", "Ingress", "health", set()),
        ("fastpath", "Egress", 9090, {"prometheus", "grafana"}),
        ("fastpath", "Egress", 443, {"apiserver", "elsewhere"}),
        ("fastpath", "Egress", 6443, {"apiserver", "elsewhere"}),
        ("fastpath", "Egress", 80, set()),
        ("fastpath", "Egress", 9100, set()),
        ("fastpath-scaler", "Egress", 443, {"apiserver", "elsewhere"} | PODS),
        ("fastpath-scaler", "Egress", 80, PODS),
    ],
)
def test_who_may_reach_and_be_reached(
    deployment: str, direction: str, port: str | int, expected: set[str]
) -> None:
    assert peers(composed(*SEPARATE), deployment, direction, port) == expected


@pytest.mark.parametrize("deployment", BOTH)
def test_both_reach_the_dns(deployment: str) -> None:
    assert "dns" in peers(composed(*SEPARATE), deployment, "Egress", 53, "UDP")


def test_in_process_the_pods_that_scale_reach_the_pods_that_rules_scrape() -> None:
    assert peers(composed("scaler-in-process"), "fastpath", "Egress", 9100) == PODS


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


def test_the_addresses_of_the_page_leave_others_out() -> None:
    page = (ROOT / "docs" / "guides" / "deploy.md").read_text()
    (patches,) = rendered.blocks(page, "yaml network-policy")
    before, after = composed(*SEPARATE), composed(*SEPARATE, patches=patches)
    for direction, port in (("Ingress", "https"), ("Egress", 443)):
        assert "elsewhere" in peers(before, "fastpath", direction, port), "as shipped nothing is taken away"
        assert {"apiserver", "elsewhere"} & peers(after, "fastpath", direction, port) == {"apiserver"}


def test_what_the_page_lists_is_there() -> None:
    page = (ROOT / "docs" / "guides" / "deploy.md").read_text()
    names = {each["metadata"]["name"] for each in composed(*SEPARATE).all("NetworkPolicy")}
    assert set(re.findall(r"`(fastpath-(?:from|to|default|scrape)[\w-]*)` \|", page)) == names
