"""The failures that a test can program, and the record of the requests that clients sent.

This module holds forbidding rules, delays and failures to come. The HTTP handlers ask it; without faults it
has no effect.
"""

from typing import NamedTuple


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

    def covers(self, verb: str, resources: tuple[str, ...], namespace: str) -> bool:
        return (
            self.verb in {"*", verb}
            and (self.resource == "*" or self.resource in resources)
            and self.namespace in {None, namespace}
        )


class _Passing:
    """A fault for the next `left` requests that match `rule`; `code` 0 drops the answer."""

    def __init__(self, rule: _Rule, code: int, left: int) -> None:
        self.rule = rule
        self.code = code
        self.left = left


class Faults:
    def __init__(self) -> None:
        self._forbidden: list[_Rule] = []
        self._delays: list[tuple[_Rule, float]] = []
        self._passing: list[_Passing] = []
        self.stale: set[tuple[str, str]] = set()
        self.unavailable = False

    def forbid(self, verb: str, resource: str, namespace: str | None = None) -> None:
        """Answer 403 from now on.

        `resource` is plural, ``plural.group`` or ``plural/subresource``; "*" is all.

        `namespace` None covers every request; "" only those across all namespaces.
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
        """Refuse the next `times` matching requests with HTTP status `code`, without effect."""
        self._passing.append(_Passing(_Rule(verb, resource, None), code, times))

    def lose(self, verb: str, resource: str, times: int = 1) -> None:
        """Carry out the next `times` matching requests and cut their connections before the answer."""
        self._passing.append(_Passing(_Rule(verb, resource, None), 0, times))

    def next_code(self, verb: str, resources: tuple[str, ...], namespace: str) -> int | None:
        """Return the programmed failure of this request: a status, 0 for a lost answer, or None; count it."""
        for fault in self._passing:
            if fault.rule.covers(verb, resources, namespace):
                fault.left -= 1
                if not fault.left:
                    self._passing.remove(fault)
                return fault.code
        return None

    def is_forbidden(self, verb: str, resources: tuple[str, ...], namespace: str) -> bool:
        """Return whether a rule forbids the request; `resources` are the spellings of its resource."""
        return any(rule.covers(verb, resources, namespace) for rule in self._forbidden)

    def wait_of(self, verb: str, resources: tuple[str, ...], namespace: str) -> float:
        """Return the delay of a request in seconds."""
        return sum(wait for rule, wait in self._delays if rule.covers(verb, resources, namespace))
