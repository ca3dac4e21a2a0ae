"""What an access review is asked, and how a refusal is worded."""

import json

import pytest

from adapter.model.identity import ANONYMOUS, User
from adapter.server.api.paths import VERSIONS
from adapter.server.api.routing import find_route
from adapter.server.auth.authorization import Attributes

CUSTOM, EXTERNAL = "custom.metrics.k8s.io", "external.metrics.k8s.io"


def attributes(target: str) -> Attributes:
    wanted = find_route(target, VERSIONS).attributes
    assert wanted is not None
    return wanted


def custom(
    verb: str, resource: str, subresource: str = "", name: str = "", namespace: str = ""
) -> dict[str, object]:
    fields = {"verb": verb, "group": CUSTOM, "version": "v1beta2", "resource": resource}
    fields |= {"subresource": subresource, "name": name, "namespace": namespace}
    return {"resourceAttributes": {key: value for key, value in fields.items() if value}}


def external(verb: str, resource: str, namespace: str, *requirements: dict[str, object]) -> dict[str, object]:
    fields: dict[str, object] = {"verb": verb, "group": EXTERNAL, "version": "v1beta1", "resource": resource}
    fields |= {"namespace": namespace} | (
        {"labelSelector": {"requirements": [*requirements]}} if requirements else {}
    )
    return {"resourceAttributes": fields}


def path(path: str, verb: str = "get") -> dict[str, object]:
    return {"nonResourceAttributes": {"path": path, "verb": verb}}


ROOT = f"/apis/{CUSTOM}/v1beta2"
QUEUE = f"/apis/{EXTERNAL}/v1beta1/namespaces/n/m"
RESOURCE = "/apis/metrics.k8s.io"


@pytest.mark.parametrize(
    ("target", "spec"),
    [
        (f"{ROOT}/namespaces/n/pods/%2A/m?labelSelector=a%3Db", custom("get", "pods", "m", "*", "n")),
        (f"{ROOT}/namespaces/n/pods/*/m", custom("get", "pods", "m", "*", "n")),
        (f"{ROOT}/namespaces/n/p%6Fds/x%20y/%6d", custom("get", "pods", "m", "x y", "n")),
        (
            f"{ROOT}/namespaces/n/ingresses.networking.k8s.io/x/m",
            custom("get", "ingresses.networking.k8s.io", "m", "x", "n"),
        ),
        (f"{ROOT}/nodes/n1/m", custom("get", "nodes", "m", "n1")),
        (f"{ROOT}/namespaces/n/metrics/m", custom("get", "metrics", "", "m", "n")),
        (f"{ROOT}/namespaces/*/metrics/m", custom("get", "metrics", "", "m", "*")),
        (f"{ROOT}/namespaces/n/pods/*/m?labelSelector=)", custom("get", "pods", "m", "*", "n")),
        (f"{ROOT}/namespaces/n/pods/*/m?watch=true", custom("get", "pods", "m", "*", "n")),
        (QUEUE, external("list", "m", "n")),
        (f"{QUEUE}?watch=1", external("watch", "m", "n")),
        (f"{QUEUE}?labelSelector=)", external("list", "m", "n")),
        (
            f"{QUEUE}?labelSelector=b+in+(z,y),a%3D1,c!%3D2,d,!e,f+notin+(g)",
            external(
                "list",
                "m",
                "n",
                {"key": "a", "operator": "In", "values": ["1"]},
                {"key": "b", "operator": "In", "values": ["y", "z"]},
                {"key": "c", "operator": "NotIn", "values": ["2"]},
                {"key": "d", "operator": "Exists"},
                {"key": "e", "operator": "DoesNotExist"},
                {"key": "f", "operator": "NotIn", "values": ["g"]},
            ),
        ),
        (f"{QUEUE}?labelSelector=a%3E1,b%3C2", external("list", "m", "n")),
        ("/apis", path("/apis")),
        ("/apis/", path("/apis")),
        (ROOT, path(ROOT)),
        (f"{ROOT}/", path(ROOT)),
        (f"/apis/{CUSTOM}", path(f"/apis/{CUSTOM}")),
        ("/openapi/v2", path("/openapi/v2")),
        ("/openapi/v3/apis/x", path("/openapi/v3/apis/x")),
        ("/version", path("/version")),
        ("/metrics", path("/metrics")),
        ("/%6Detrics", path("/metrics")),
        ("/", path("/")),
        ("//metrics", path("//metrics")),
        ("/readyz", path("/readyz")),
        ("/readyz/ping", path("/readyz/ping")),
        ("/readyz/", path("/readyz/")),
        ("/metrics;a=b", path("/metrics;a=b")),
        ("https://host/metrics?x=y", path("/metrics")),
    ],
)
def test_what_is_asked(target: str, spec: dict[str, object]) -> None:
    assert attributes(target).spec == spec
    assert json.loads(attributes(target).key) == spec


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize(
    ("target", "fields"),
    [
        ("/pods", {"verb": "list", "resource": "pods"}),
        ("/nodes/n1", {"verb": "get", "resource": "nodes", "name": "n1"}),
        (
            "/namespaces/n/pods/p?watch=1",
            {"verb": "get", "resource": "pods", "namespace": "n", "name": "p"},
        ),
        (
            ("/namespaces/n/pods?labelSelector=a&fieldSelector=metadata.name%3Dp,metadata.namespace!%3Dm"),
            {
                "verb": "list",
                "resource": "pods",
                "namespace": "n",
                "name": "p",
                "labelSelector": {"requirements": [{"key": "a", "operator": "Exists"}]},
                "fieldSelector": {
                    "requirements": [
                        {"key": "metadata.name", "operator": "In", "values": ["p"]},
                        {"key": "metadata.namespace", "operator": "NotIn", "values": ["m"]},
                    ]
                },
            },
        ),
    ],
)
def test_what_is_asked_of_resource_metrics(version: str, target: str, fields: dict[str, object]) -> None:
    assert attributes(f"{RESOURCE}/{version}{target}").spec == {
        "resourceAttributes": {"group": "metrics.k8s.io", "version": version, **fields}
    }


@pytest.mark.parametrize(
    "target",
    [
        f"{ROOT}/namespaces/n/pods/a%2Fb/m",
        f"{ROOT}/namespaces/%2e%2e/pods/a/m",
        f"{ROOT}/namespaces//pods/a/m",
        f"{ROOT}/nodes/n1",
        f"{ROOT}/namespaces/n/x",
        f"{QUEUE}/x",
        "/%",
        "/a/../metrics",
        "metrics",
    ],
)
def test_an_unknown_path_is_not_reviewed(target: str) -> None:
    route = find_route(target, VERSIONS)
    assert route.attributes is None
    assert route.error is not None
    assert route.error.code in {400, 404}


@pytest.mark.parametrize(
    ("method", "target", "verb"),
    [
        ("HEAD", f"{ROOT}/nodes/n1/m", "get"),
        ("HEAD", QUEUE, "list"),
        *((method, "/metrics", method.lower()) for method in ("HEAD", "POST", "OPTIONS")),
        ("POST", f"{ROOT}/nodes/n1/m", "create"),
        ("PUT", f"{ROOT}/nodes/n1/m", "update"),
        ("PATCH", QUEUE, "patch"),
        ("DELETE", f"{ROOT}/nodes/n1/m", "delete"),
        ("DELETE", QUEUE, "deletecollection"),
        ("OPTIONS", QUEUE, ""),
    ],
)
def test_other_methods(method: str, target: str, verb: str) -> None:
    assert attributes(target).with_method(method).verb == verb


def test_a_selector_narrows_reading_only() -> None:
    wanted = attributes(f"{QUEUE}?labelSelector=a")
    assert wanted.with_method("HEAD") == wanted
    assert wanted.with_method("DELETE").labels is not None
    assert wanted.with_method("POST").labels is None


IN_CUSTOM = f'in API group "{CUSTOM}"'


@pytest.mark.parametrize(
    ("target", "subject", "action", "details"),
    [
        (
            f"{ROOT}/namespaces/ns/pods/*/m",
            f'pods.{CUSTOM} "*" is ',
            f'get resource "pods/m" {IN_CUSTOM} in the namespace "ns"',
            {"name": "*", "group": CUSTOM, "kind": "pods"},
        ),
        (
            f"{ROOT}/nodes/n1/m",
            f'nodes.{CUSTOM} "n1" is ',
            f'get resource "nodes/m" {IN_CUSTOM} at the cluster scope',
            {"name": "n1", "group": CUSTOM, "kind": "nodes"},
        ),
        (
            f"{ROOT}/namespaces/ns/metrics/m",
            f'metrics.{CUSTOM} "m" is ',
            f'get resource "metrics" {IN_CUSTOM} in the namespace "ns"',
            {"name": "m", "group": CUSTOM, "kind": "metrics"},
        ),
        (
            QUEUE,
            f"m.{EXTERNAL} is ",
            f'list resource "m" in API group "{EXTERNAL}" in the namespace "n"',
            {"group": EXTERNAL, "kind": "m"},
        ),
        ("/<&>", "", 'get path "/&lt;&amp;&gt;"', {}),
    ],
)
def test_refusals(target: str, subject: str, action: str, details: dict[str, object]) -> None:
    error = attributes(target).refusal(User('a"b<c>'), "no rule")
    assert (error.code, error.details) == (403, details)
    assert error.message == f'{subject}forbidden: User "a\\"b&lt;c&gt;" cannot {action}: no rule'
    assert attributes(target).refusal(ANONYMOUS, "").message.endswith(f'"system:anonymous" cannot {action}')
