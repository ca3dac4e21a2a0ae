"""Objects of Kubernetes as tests create them."""

import base64
from collections.abc import Iterable, Mapping
from typing import Any

JSON = dict[str, Any]
RBAC = "rbac.authorization.k8s.io"


def plain(
    kind: str, name: str, namespace: str = "", labels: Mapping[str, str] | None = None, **fields: Any
) -> JSON:
    """Return an object of the core group; without a namespace or labels it names none."""
    metadata: JSON = {"name": name} | ({"namespace": namespace} if namespace else {})
    metadata |= {} if labels is None else {"labels": dict(labels)}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields}


def local_service(name: str, namespace: str) -> JSON:
    """Return a Service that leads to loopback, where servers of tests listen."""
    return plain("Service", name, namespace, spec={"type": "ExternalName", "externalName": "localhost"})


def api_service(name: str, service: JSON, authority: bytes = b"") -> JSON:
    """Return an APIService; `authority` is its caBundle, without it nothing is verified."""
    version, _, group = name.partition(".")
    spec = {"group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 100}
    bundle = {"caBundle": base64.b64encode(authority).decode()}
    spec |= {"service": service} | (bundle if authority else {"insecureSkipTLSVerify": True})
    return plain("APIService", name, spec=spec) | {"apiVersion": "apiregistration.k8s.io/v1"}


def role_of(user: str, name: str, rules: Iterable[JSON], namespace: str = "") -> list[JSON]:
    """Return a role that lets a user do what rules say, in a namespace or in all, and its binding."""
    kind, version = "Role" if namespace else "ClusterRole", {"apiVersion": f"{RBAC}/v1"}
    subjects = [{"kind": "User", "name": user, "apiGroup": RBAC}]
    reference = {"kind": kind, "name": name, "apiGroup": RBAC}
    binding = plain(f"{kind}Binding", name, namespace, subjects=subjects, roleRef=reference)
    return [plain(kind, name, namespace, rules=list(rules)) | version, binding | version]


def definition(name: str, kind: str, version: str = "v1", **more: Any) -> JSON:
    """Return the definition of a namespaced kind that takes any fields; `more` is of its version."""
    plural, _, group = name.partition(".")
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    served = {"name": version, "served": True, "storage": True, "schema": schema, **more}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [served]}
    return plain("CustomResourceDefinition", name, spec=spec) | {"apiVersion": "apiextensions.k8s.io/v1"}
