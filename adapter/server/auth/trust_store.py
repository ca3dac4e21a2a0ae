"""The trust in force, kept current from files, from the cluster's ConfigMap, or from one each.

Good authorities stay in force until other good ones replace them. A ConfigMap that is deleted, emptied or
malformed removes nothing, since that would lock out all callers of a running cluster. Before the first
successful read nothing is trusted.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from adapter.server.auth import trust
from adapter.server.auth.trust import USUAL_HEADERS, Bundle, ClientTrust, FrontProxy, HeaderNames
from adapter.telemetry import logs
from adapter.telemetry.problems import ProblemLog

log = logging.getLogger(__name__)

_FAULT = "trust"
_AMBIGUOUS = "trust-ambiguous"
_UNSUPPORTED = "trust-unsupported"

_Key = Literal["requestheader-client-ca-file", "client-ca-file"]
_Part = TypeVar("_Part")

_MISSING: dict[_Key, str] = {
    "requestheader-client-ca-file": "requests through API aggregation "
    "cannot be authenticated: no front proxy is known",
    "client-ca-file": "client certificates of users cannot be authenticated: no authority of theirs is known",
}


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """The settings in flags of a front proxy whose authorities come from a file."""

    allowed_names: tuple[str, ...] = ()
    headers: HeaderNames = USUAL_HEADERS


class TrustStore:
    """Holds `current`, and calls `changed` with it after every change.

    `proxy_file` and `clients_file` say that this part comes from a file; with `lookup` the other parts come
    from the ConfigMap. With `tolerant` the server is ready without any trust.
    """

    def __init__(
        self,
        faults: ProblemLog,
        *,
        lookup: bool = True,
        proxy_file: bool = False,
        clients_file: bool = False,
        proxy: ProxySettings = ProxySettings(),
        tolerant: bool = False,
    ) -> None:
        self.current = ClientTrust()
        self.changed: Callable[[ClientTrust], None] = lambda _: None
        self._faults = faults
        self._proxy = proxy
        self._tolerant = tolerant
        self._state: dict[_Key, Literal["unread", "faulty", "absent", "good"]] = {}
        self._looked_up: set[_Key] = set()
        self._add_part("requestheader-client-ca-file", from_file=proxy_file, lookup=lookup)
        self._add_part("client-ca-file", from_file=clients_file, lookup=lookup)

    def _add_part(self, key: _Key, *, from_file: bool, lookup: bool) -> None:
        if from_file or lookup:
            self._state[key] = "unread"
        if lookup and not from_file:
            self._looked_up.add(key)

    @property
    def asks_for_certificates(self) -> bool:
        """Whether client certificates can authenticate, now or later."""
        return bool(self._state)

    @property
    def needs_lookup(self) -> bool:
        return bool(self._looked_up)

    def find_fault(self) -> str | None:
        """Return why the server cannot authenticate its callers, None when it can."""
        if self._tolerant:
            return None
        for key, state in self._state.items():
            if state == "unread":
                return f"{key} was not read yet"
            if state == "faulty":
                return f"{key} cannot be used"
        if self._state and "good" not in self._state.values():
            return "no authority of client certificates is known"
        return None

    def adopt_proxy_file(self, pem: str) -> None:
        """Take the file of ``--requestheader-client-ca-file``.

        Raises ValueError for one that cannot be used.
        """
        found = FrontProxy(Bundle(pem), self._proxy.allowed_names, self._proxy.headers)
        self._state["requestheader-client-ca-file"] = "good"
        self._set(replace(self.current, front_proxy=found))

    def adopt_clients_file(self, pem: str) -> None:
        """Take the file of ``--client-ca-file``; otherwise as `adopt_proxy_file`."""
        found = Bundle(pem)
        self._state["client-ca-file"] = "good"
        self._set(replace(self.current, clients=found))

    def adopt_config_map(self, entries: Mapping[str, str] | None) -> None:
        """Take the ConfigMap's entries, None when it does not exist.

        A bad part is reported and keeps its last value.
        """
        there = entries is not None
        entries = entries or {}
        proxy, clients = self.current.front_proxy, self.current.clients
        if "requestheader-client-ca-file" in self._looked_up:
            proxy = self._read(
                "requestheader-client-ca-file", entries, trust.read_front_proxy, proxy, there=there
            )
        if "client-ca-file" in self._looked_up:
            clients = self._read("client-ca-file", entries, trust.read_clients, clients, there=there)
        self._set(replace(self.current, front_proxy=proxy, clients=clients))

    def _read(
        self,
        key: _Key,
        entries: Mapping[str, str],
        read: Callable[[Mapping[str, str]], _Part | None],
        last: _Part | None,
        *,
        there: bool,
    ) -> _Part | None:
        try:
            found = read(entries)
        except ValueError as error:
            self._faults.report(
                _FAULT,
                "the ConfigMap's authorities cannot be used; the last good ones stay",
                str(error),
                subject=key,
            )
            self._state[key] = "good" if last is not None else "faulty"
            return last
        if found is not None:
            self._state[key] = "good"
            self._faults.resolve(_FAULT, subject=key)
            return found
        self._state[key] = "good" if last is not None else "absent"
        message = (
            "authorities are gone from the ConfigMap; the last good ones stay"
            if last is not None
            else _MISSING[key]
        )
        self._faults.report(
            _FAULT, message, f"it has no {key}" if there else "there is no such ConfigMap", subject=key
        )
        return last

    def _set(self, wanted: ClientTrust) -> None:
        if wanted == self.current:
            return
        self.current = replace(wanted, generation=self.current.generation + 1)
        proxy, clients = self.current.front_proxy, self.current.clients
        found = logs.facts(
            generation=self.current.generation,
            proxy_authorities="; ".join(proxy.bundle.subjects) if proxy else "none",
            proxy_names=", ".join(proxy.allowed_names) or "any" if proxy else "none",
            client_authorities="; ".join(clients.subjects) if clients else "none",
        )
        log.info("trust in client certificates changed", extra=found)
        self._warn()
        self.changed(self.current)

    def _warn(self) -> None:
        self._warn_of_unsupported()
        if not self.current.is_ambiguous:
            self._faults.resolve(_AMBIGUOUS)
            return
        self._faults.report(
            _AMBIGUOUS,
            "ANY client certificate of the cluster can act as front proxy and name itself any user: "
            "one authority serves both purposes and no names are required; "
            "set requestheader-allowed-names, or give the front proxy an authority of its own",
            "; ".join(self.current.clients.subjects if self.current.clients else ()),
        )

    def _warn_of_unsupported(self) -> None:
        bundles = [self.current.clients] + (
            [self.current.front_proxy.bundle] if self.current.front_proxy else []
        )
        subjects = sorted({subject for bundle in bundles if bundle for subject in bundle.unsupported})
        if not subjects:
            self._faults.resolve(_UNSUPPORTED)
            return
        self._faults.report(
            _UNSUPPORTED,
            "an authority of client certificates has a key of a kind that is not supported: "
            "certificates that it issued are refused; "
            "use an authority with an RSA key from 2048 bits or an ECDSA key on P-256, P-384 or P-521",
            "; ".join(subjects),
        )
