"""Requests as the cluster sees them: the resource that a path names, the record, and the programmed faults.

Routing looks up no object. A path that names no resource gives None, and the cluster answers 404 in plain
text, as a real API server does.
"""

from collections.abc import Mapping
from typing import NamedTuple

from fastpath_sandbox.apiserver import status
from fastpath_sandbox.apiserver.kinds import SUBRESOURCE_VERBS, Kind, KindTable

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
    def resource(self) -> str:
        """The plural, and the subresource if there is one: ``deployments/scale``."""
        return f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural

    def check_method(self) -> None:
        """Raise 405 for a method that the path does not have."""
        kind, verb = self.kind, self.verb
        allowed = verb in kind.verbs
        if self.subresource:
            allowed = verb in ({"update"} if self.subresource == "finalize" else SUBRESOURCE_VERBS)
        elif verb in {"update", "patch"}:
            allowed = allowed and bool(self.name)
        elif verb in {"create", "deletecollection"}:
            allowed = allowed and not self.name and bool(self.namespace) == kind.namespaced
        if not allowed:
            raise status.method_not_allowed()


def is_true(text: str | None) -> bool:
    return text in _TRUE


def unsigned(field: str, text: str) -> int:
    """Return the number of a query parameter; raise 400 for any other text."""
    if not text.isascii() or not text.isdigit():
        message = f'{field}: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise status.bad_request(message)
    return int(text)


def parse_target(kinds: KindTable, method: str, path: str, query: Mapping[str, str]) -> Target | None:
    """Return the target of `path`, or None if it names no served resource."""
    match path.strip("/").split("/"):
        case ["api", version, first, *rest]:
            group = ""
        case ["apis", group, version, first, *rest]:
            pass
        case _:
            return None
    namespace = ""
    # a subresource of the Namespace itself, not a kind in it
    is_own = group == "" and len(rest) == 2 and rest[1] in {"status", "finalize"}
    if first == "namespaces" and len(rest) > 1 and not is_own:
        namespace, first, *rest = rest
    kind = kinds.get(group, version, first)
    if kind is None or len(rest) > 2 or (namespace and not kind.namespaced):
        return None
    name, subresource = [*rest, "", ""][:2]
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


class Request(NamedTuple):
    """One request as it arrived. `verb` is "" for a path without a resource."""

    method: str
    path: str
    query: dict[str, str]
    user_agent: str
    user: str
    verb: str
    resource: str
    namespace: str
    name: str
    accept: str


class _Rule(NamedTuple):
    verb: str
    resource: str
    namespace: str | None

    def covers(self, target: Target) -> bool:
        tail = f"/{target.subresource}" if target.subresource else ""
        return (
            self.verb in {"*", target.verb}
            and self.resource in {"*", target.resource, target.kind.qualified + tail}
            and self.namespace in {None, target.namespace}
        )


class _PassingFault:
    """A fault for the next `left` requests that match `rule`; `code` 0 drops the answer."""

    def __init__(self, rule: _Rule, code: int, left: int) -> None:
        self.rule = rule
        self.code = code
        self.left = left


class Faults:
    """The failures that a test programs: forbidden requests, delays, and failures to come.

    `stale` group-versions are not discovered, and `forbidden_paths` of discovery may not be read. While
    `unavailable`, every request gets 503.
    """

    def __init__(self) -> None:
        self._forbidden: list[_Rule] = []
        self._delays: list[tuple[_Rule, float]] = []
        self._passing: list[_PassingFault] = []
        self.stale: set[tuple[str, str]] = set()
        self.forbidden_paths: set[str] = set()
        self.unavailable = False

    def forbid(self, verb: str, resource: str, namespace: str | None = None) -> None:
        """Answer 403 from now on.

        `resource` is plural, ``plural.group`` or ``plural/subresource``; "*" is all. `namespace` None covers
        every request; "" only those across all namespaces.
        """
        self._forbidden.append(_Rule(verb, resource, namespace))

    def allow(self, verb: str, resource: str, namespace: str | None = None) -> None:
        """Undo one `forbid` with the same arguments; ValueError if there is no such rule."""
        self._forbidden.remove(_Rule(verb, resource, namespace))

    def delay(self, seconds: float, verb: str = "*", resource: str = "*") -> None:
        """Delay the answers to matching requests; 0 ends the delay."""
        rule = _Rule(verb, resource, None)
        self._delays = [(other, wait) for other, wait in self._delays if other != rule]
        if seconds:
            self._delays.append((rule, seconds))

    def fail(self, code: int, verb: str, resource: str, times: int = 1) -> None:
        """Refuse the next `times` matching requests with 409, 429, 500, 503 or 504, without effect."""
        self._passing.append(_PassingFault(_Rule(verb, resource, None), code, times))

    def lose_answers(self, verb: str, resource: str, times: int = 1) -> None:
        """Carry out the next `times` matching requests and cut their connections before the answer."""
        self._passing.append(_PassingFault(_Rule(verb, resource, None), 0, times))

    def next_code(self, target: Target) -> int | None:
        """Return the programmed failure of this request: a status, 0 for a lost answer, or None; count it."""
        for fault in self._passing:
            if fault.rule.covers(target):
                fault.left -= 1
                if not fault.left:
                    self._passing.remove(fault)
                return fault.code
        return None

    def is_forbidden(self, target: Target) -> bool:
        return any(rule.covers(target) for rule in self._forbidden)

    def delay_of(self, target: Target) -> float:
        """Return the delay of a request in seconds."""
        return sum(wait for rule, wait in self._delays if rule.covers(target))
