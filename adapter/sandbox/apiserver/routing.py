"""Request paths: from path and method to kind, namespace, name, subresource and verb.

Routing looks up no object. A path that names no resource gives None, and the cluster answers 404 in plain
text, as a real API server does.
"""

from collections.abc import Mapping
from typing import NamedTuple

from adapter.sandbox.apiserver import status
from adapter.sandbox.apiserver.storage.kinds import Kind, KindTable

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_TRUE = frozenset(("1", "t", "T", "true", "TRUE", "True"))


class Target(NamedTuple):
    """The resource of a request.

    `namespace` is "" for all namespaces and for cluster-scoped kinds; `name` is "" for the collection.
    """

    kind: Kind
    namespace: str
    name: str
    subresource: str
    verb: str

    @property
    def spellings(self) -> tuple[str, ...]:
        """Return the ways in which a fault can spell the resource."""
        tail = f"/{self.subresource}" if self.subresource else ""
        return (self.kind.plural + tail, self.kind.qualified + tail)


def is_true(text: str | None) -> bool:
    return text in _TRUE


def target_of(kinds: KindTable, method: str, path: str, query: Mapping[str, str]) -> Target | None:
    """Return the target of `path`, or None if it names no served resource."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if (
        rest[0] == "namespaces"
        and len(rest) > 2
        and not (group == "" and rest[2] in {"status", "finalize"} and len(rest) == 3)
    ):
        namespace, rest = rest[1], rest[2:]
    kind = kinds.get(group, version, rest[0])
    if kind is None or len(rest) > 3 or (namespace and not kind.namespaced):
        return None
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if subresource and subresource not in kind.subresources:
        return None
    if kind.namespaced and name and not namespace:
        return None
    return Target(kind, namespace, name, subresource, _verb(method, name, query))


def _verb(method: str, name: str, query: Mapping[str, str]) -> str:
    if method in {"GET", "HEAD"}:
        if name:
            return "get"
        return "watch" if is_true(query.get("watch")) else "list"
    if method == "DELETE":
        return "delete" if name else "deletecollection"
    return _VERBS.get(method, method.lower())


def check_method(target: Target) -> None:
    """Raise 405 for a method that the path does not have."""
    kind, verb = target.kind, target.verb
    allowed = verb in kind.verbs
    if target.subresource:
        allowed = verb in ({"update"} if target.subresource == "finalize" else {"get", "patch", "update"})
    elif verb == "create":
        allowed = allowed and not target.name and bool(target.namespace) == kind.namespaced
    elif verb in {"update", "patch"}:
        allowed = allowed and bool(target.name)
    elif verb == "deletecollection":
        allowed = allowed and bool(target.namespace) == kind.namespaced
    if not allowed:
        raise status.method_not_allowed()
