"""The client certificate of a TLS connection, and its verdict under the trust in force.

A handshake proves that the client has the key of its certificate. Whether the certificate still means
anything is judged for every request, because an open connection and a resumed TLS session outlive an
authority that is removed. A verdict holds for one generation of the trust, and until the first certificate of
its chain expires.
"""

import contextlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from cachetools import LRUCache
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from adapter.errors import UntrustedError
from adapter.model import identity
from adapter.model.identity import CREDENTIAL_ID, User
from adapter.server.auth import trust
from adapter.server.auth.trust import ClientTrust, FrontProxy

_DER = 2  # what OpenSSL calls it; the constant is as undocumented as the method that takes it
_LOOK_AGAIN = 60.0
"""Seconds after which a refused certificate is judged again: it may not have been valid yet."""

_INTERMEDIATES_KEPT = 64
_LONGEST_CHAIN = 8


class PeerVerdict(NamedTuple):
    """What a certificate makes of a peer, in one generation of the trust and until `until` (epoch seconds).

    `is_proxy` says that it may name other users, `user` is its own. `refused` is why it may not name others,
    and `failed` whether anything about its certificate was refused: then it is not authenticated, and not
    anonymous either.
    """

    generation: int
    until: float
    is_proxy: bool
    user: User | None
    failed: bool
    refused: str


class Peer:
    """A peer and its last verdict.

    `certificate` is None where the peer showed no certificate, or (`shown`) one that cannot be read.
    """

    __slots__ = ("certificate", "intermediates", "shown", "verdict")

    def __init__(self, der: bytes | None, intermediates: Sequence[bytes] = ()) -> None:
        self.shown = der is not None
        self.certificate: x509.Certificate | None = None
        self.intermediates: tuple[x509.Certificate, ...] = ()
        self.verdict: PeerVerdict | None = None
        with contextlib.suppress(ValueError):
            if der is not None:
                self.certificate = trust.load_certificate(der)
            self.intermediates = tuple(map(trust.load_certificate, intermediates))


def read_peer(connection: Any) -> Peer:
    """Return the peer of a server's `ssl.SSLObject`.

    Before Python 3.13 the certificates between leaf and authority come from the undocumented part of the same
    object; a resumed session has none in any version.
    """
    der = connection.getpeercert(binary_form=True)
    if der is None:
        return Peer(None)
    read_chain = getattr(connection, "get_unverified_chain", None)
    if read_chain is not None:
        shown = read_chain()
    else:
        read_chain = getattr(getattr(connection, "_sslobj", None), "get_unverified_chain", None)
        found = (read_chain() if read_chain is not None else None) or ()
        shown = [each.public_bytes(_DER) for each in found if each is not None]
    return Peer(der, [each for each in shown if each != der][:_LONGEST_CHAIN])


class PeerJudge:
    """Judges peers.

    Keeps the intermediates of good chains, for TLS sessions that are resumed without them.
    """

    def __init__(self) -> None:
        self._known: LRUCache[bytes, x509.Certificate] = LRUCache(_INTERMEDIATES_KEPT)

    def judge(self, peer: Peer, client_trust: ClientTrust, wall: float) -> PeerVerdict:
        """Return the verdict on a peer with a certificate at `wall` (epoch seconds)."""
        proxy_until, refused = self._judge_proxy(peer, client_trust.front_proxy, wall)
        user_until, user, failed = self._judge_user(peer, client_trust, wall)
        until = min(proxy_until, user_until)
        return PeerVerdict(
            client_trust.generation, until, not refused, user, failed or bool(refused), refused
        )

    def _judge_proxy(self, peer: Peer, proxy: FrontProxy | None, wall: float) -> tuple[float, str]:
        """Return until when the verdict holds, and why the peer is not a front proxy; "" where it is one."""
        if proxy is None:
            return wall + _LOOK_AGAIN, "no front proxy is known"
        try:
            until = self._verify(peer, proxy.bundle, wall)
        except UntrustedError as error:
            return wall + _LOOK_AGAIN, str(error)
        assert peer.certificate is not None
        name = trust.common_name(peer.certificate)
        if proxy.allowed_names and name not in proxy.allowed_names:
            return until, f"its name {name!r} is not among those allowed"
        return until, ""

    def _judge_user(
        self, peer: Peer, client_trust: ClientTrust, wall: float
    ) -> tuple[float, User | None, bool]:
        """Return until when the verdict holds, the user of the certificate, and whether it was refused."""
        if client_trust.clients is None:
            return wall + _LOOK_AGAIN, None, client_trust.front_proxy is None
        try:
            until = self._verify(peer, client_trust.clients, wall)
        except UntrustedError:
            return wall + _LOOK_AGAIN, None, True
        assert peer.certificate is not None
        return until, _user_of(peer.certificate), False

    def _verify(self, peer: Peer, bundle: trust.Bundle, wall: float) -> float:
        """Return until when the peer's chain to `bundle` holds. Raises UntrustedError."""
        if peer.certificate is None:
            raise UntrustedError("the certificate cannot be read")
        chain = bundle.verify(peer.certificate, (*peer.intermediates, *self._known.values()), wall)
        for each in chain[1:-1]:
            self._known[each.fingerprint(hashes.SHA256())] = each
        return min(each.not_valid_after_utc.timestamp() for each in chain)


def _user_of(certificate: x509.Certificate) -> User | None:
    """Return the user that a client certificate names, None without a common name."""
    name = trust.common_name(certificate)
    if not name:
        return None
    credential = (CREDENTIAL_ID, (f"X509SHA256={trust.fingerprint(certificate)}",))
    return identity.complete_groups(User(name, "", trust.organizations(certificate), (credential,)))
