"""The trust in force, kept current from files, from the cluster's ConfigMap, or from one each.

kube-apiserver publishes its authorities of clients and of front proxies in the ConfigMap
``extension-apiserver-authentication``. Good authorities stay in force until other good ones replace them. A
ConfigMap that is deleted, emptied or malformed removes nothing, since that would lock out all callers of a
running cluster. Before the first successful read nothing is trusted.
"""

import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Literal, TypeVar

from adapter.server.auth.client_cert import USUAL_HEADERS, Bundle, ClientTrust, FrontProxy, HeaderNames
from adapter.telemetry import logs
from adapter.telemetry.problems import ProblemLog

log = logging.getLogger(__name__)

PROXY_CA = "requestheader-client-ca-file"
CLIENT_CA = "client-ca-file"
"""Two keys of the ConfigMap."""

_FAULT = "trust"
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110's token
_MISSING = {
    PROXY_CA: "requests through API aggregation cannot be authenticated: no front proxy is known",
    CLIENT_CA: "client certificates of users cannot be authenticated: no authority that issues them is known",
}

_Part = TypeVar("_Part")


class TrustStore:
    """Holds `current`, and calls `changed` with it after every change.

    `proxy_file` and `clients_file` say that this part comes from a file; with `lookup` the other parts come
    from the ConfigMap. `allowed_names` and `headers` are those of a front proxy whose authorities come from a
    file. With `tolerant` the server is ready without any trust.
    """

    def __init__(
        self,
        problems: ProblemLog,
        *,
        lookup: bool = True,
        proxy_file: bool = False,
        clients_file: bool = False,
        allowed_names: tuple[str, ...] = (),
        headers: HeaderNames = USUAL_HEADERS,
        tolerant: bool = False,
    ) -> None:
        self.current = ClientTrust()
        self.changed: Callable[[ClientTrust], None] = lambda _: None
        self._announced = self.current
        self._problems = problems
        self._allowed_names, self._headers = allowed_names, headers
        self._tolerant = tolerant
        from_file = {PROXY_CA: proxy_file, CLIENT_CA: clients_file}
        self._looked_up = {key for key, given in from_file.items() if lookup and not given}
        self._state: dict[str, Literal["unread", "faulty", "absent", "good"]] = {
            key: "unread" for key, given in from_file.items() if lookup or given
        }

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
                return f"{key} has not been read yet"
            if state == "faulty":
                return f"{key} cannot be used"
        if self._state and "good" not in self._state.values():
            return "no authority of client certificates is known"
        return None

    def adopt_proxy_file(self, pem: str) -> None:
        """Take the file of ``--requestheader-client-ca-file``. Raises ValueError if it cannot be used."""
        proxy = FrontProxy(Bundle(pem), self._allowed_names, self._headers)
        self._state[PROXY_CA] = "good"
        self._set(replace(self.current, front_proxy=proxy))

    def adopt_clients_file(self, pem: str) -> None:
        """Take the file of ``--client-ca-file``; otherwise as `adopt_proxy_file`."""
        clients = Bundle(pem)
        self._state[CLIENT_CA] = "good"
        self._set(replace(self.current, clients=clients))

    def adopt_config_map(self, entries: Mapping[str, str] | None) -> None:
        """Take the ConfigMap's entries, None when it does not exist.

        A bad part is reported and keeps its last value.
        """
        proxy, clients = self.current.front_proxy, self.current.clients
        if PROXY_CA in self._looked_up:
            proxy = self._read(PROXY_CA, entries, read_front_proxy, proxy)
        if CLIENT_CA in self._looked_up:
            clients = self._read(CLIENT_CA, entries, read_clients, clients)
        self._set(replace(self.current, front_proxy=proxy, clients=clients))

    def _read(
        self,
        key: str,
        entries: Mapping[str, str] | None,
        read: Callable[[Mapping[str, str]], _Part | None],
        last: _Part | None,
    ) -> _Part | None:
        try:
            part = read(entries or {})
        except ValueError as error:
            message = "the ConfigMap's authorities cannot be used; the last good ones stay in use"
            self._problems.report(_FAULT, message, str(error), subject=key)
            self._state[key] = "good" if last is not None else "faulty"
            return last
        if part is not None:
            self._state[key] = "good"
            self._problems.resolve(_FAULT, subject=key)
            return part
        text = "there is no such ConfigMap" if entries is None else f"it has no {key}"
        gone = "authorities are gone from the ConfigMap; the last good ones stay in use"
        self._state[key] = "absent" if last is None else "good"
        self._problems.report(_FAULT, _MISSING[key] if last is None else gone, text, subject=key)
        return last

    def _set(self, wanted: ClientTrust) -> None:
        if wanted == self._announced:
            return
        self.current = replace(wanted, generation=self.current.generation + 1)
        proxy, clients = self.current.front_proxy, self.current.clients
        facts = logs.facts(
            generation=self.current.generation,
            proxy_authorities="; ".join(proxy.bundle.subjects) if proxy else "none",
            proxy_names=", ".join(proxy.allowed_names) or "any" if proxy else "none",
            client_authorities="; ".join(clients.subjects) if clients else "none",
        )
        log.info("trust in client certificates changed", extra=facts)
        bundles = (clients, proxy.bundle if proxy else None)
        unsupported = sorted({subject for bundle in bundles if bundle for subject in bundle.unsupported})
        self._problems.follow(
            "trust-unsupported",
            "an authority of client certificates has a key of a kind that is not supported: "
            "certificates that it issued are refused; "
            "use an authority with an RSA key from 2048 bits or an ECDSA key on P-256, P-384 or P-521",
            "; ".join(unsupported),
        )
        self._problems.follow(
            "trust-ambiguous",
            "ANY client certificate of the cluster can act as front proxy and name itself any user: "
            "one authority serves both purposes and no names are required; "
            "set requestheader-allowed-names, or give the front proxy an authority of its own",
            "; ".join(clients.subjects) if clients and self.current.is_ambiguous else "",
        )
        self.changed(self.current)
        self._announced = self.current  # not if that failed: the same trust is announced again then


def read_front_proxy(entries: Mapping[str, str]) -> FrontProxy | None:
    """Return the request-header part of the ConfigMap, None if absent. Raises ValueError if malformed."""
    pem = entries.get(PROXY_CA, "")
    if not pem:
        return None
    headers = ("username-headers", "uid-headers", "group-headers", "extra-headers-prefix")
    return FrontProxy(
        _named(PROXY_CA, lambda: Bundle(pem)),
        _strings(entries, "requestheader-allowed-names"),
        HeaderNames(*(header_names(_strings(entries, f"requestheader-{header}")) for header in headers)),
    )


def read_clients(entries: Mapping[str, str]) -> Bundle | None:
    """Return the bundle for client certificates of the ConfigMap; otherwise as `read_front_proxy`."""
    pem = entries.get(CLIENT_CA, "")
    return _named(CLIENT_CA, lambda: Bundle(pem)) if pem else None


def header_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return header names in lower case. Raises ValueError for an invalid name."""
    lower = tuple(name.strip().lower() for name in names)
    for name in lower:
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"invalid header name {name[:100]!r}")
    return lower


def _strings(entries: Mapping[str, str], key: str) -> tuple[str, ...]:
    """Return a value that is a JSON array of strings; () when it is absent or empty."""
    text = entries.get(key, "")
    if not text:
        return ()
    values = _named(key, lambda: json.loads(text))
    if values is None:  # Go reads null as an empty list
        return ()
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ValueError(f"{key}: expected a JSON array of strings")
    return tuple(values)


def _named(key: str, read: Callable[[], _Part]) -> _Part:
    try:
        return read()
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{key}: {error}") from error
