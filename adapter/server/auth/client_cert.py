"""Client certificates: their authorities, and the verdict on a peer's certificate under the trust in force.

There are two separate trusts. Certificates of the *client* authority name users. Certificates of the *front
proxy* authority let their owner name any user in request headers, so confusing the two hands out the whole
cluster. Where one authority serves both purposes and no names are required, any client certificate can
impersonate any user: `ClientTrust.is_ambiguous`, which is reported loudly.

Verification follows Go's ``x509.Verify`` with upstream's options: a chain to one of the authorities, in which
every certificate is within its validity and, where it is restricted to certain uses, allows client
authentication. kubeadm's client certificates carry no alternative name, which `cryptography` requires by
default; hence the policies below.

A handshake proves that the client has the key of its certificate. Whether the certificate still means
anything is judged for every request, because an open connection and a resumed TLS session outlive an
authority that is removed. A verdict holds for one generation of the trust, and until the first certificate of
its chain expires.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from cachetools import LRUCache
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from adapter.errors import UntrustedError
from adapter.model import identity
from adapter.model.identity import CREDENTIAL_ID, User

_CLIENT_USES = frozenset({ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE})
_LEAF_POLICY = verification.ExtensionPolicy.permit_all()
_CA_POLICY = verification.ExtensionPolicy.permit_all().require_present(
    x509.BasicConstraints, verification.Criticality.AGNOSTIC, None
)

_DER = 2  # what OpenSSL calls it; the constant is as undocumented as the method that takes it
_LOOK_AGAIN = 60.0
"""Seconds after which a refused certificate is judged again: it may not have been valid yet."""

_INTERMEDIATES_KEPT = 64
_LONGEST_CHAIN = 8


class Bundle:
    """A bundle of authorities. Raises ValueError for a text without a certificate or with a broken one.

    `cryptography` parses the parts of a certificate when they are first used. All parts that are needed later
    are read here, so that a certificate cannot fail after the bundle is in force. An authority with a key of
    an unknown kind is kept and listed in `unsupported`: `verify` refuses every chain that leads to it.
    """

    def __init__(self, pem: str) -> None:
        try:
            self.certificates = tuple(x509.load_pem_x509_certificates(pem.encode()))
        except x509.InvalidVersion as error:  # not a ValueError, unlike all else that is wrong with them
            raise ValueError(str(error)) from error
        pem_of_each = (authority.public_bytes(serialization.Encoding.PEM) for authority in self.certificates)
        self.pem = b"".join(pem_of_each).decode()
        """The certificates alone, without any text between them."""
        self.subjects = tuple(authority.subject.rfc4514_string() for authority in self.certificates)
        """The names of the authorities, for messages."""
        identities = tuple(map(_identity, self.certificates))
        self.unsupported = tuple(
            subject for subject, identity in zip(self.subjects, identities, strict=True) if identity is None
        )
        self._identities = frozenset(identity for identity in identities if identity is not None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bundle) and self.pem == other.pem

    def __hash__(self) -> int:
        return hash(self.pem)

    def overlaps(self, other: "Bundle") -> bool:
        """Return whether an authority is in both, with the same name and key."""
        return not self._identities.isdisjoint(other._identities)  # noqa: SLF001 - one of our own kind

    def verify(
        self, leaf: x509.Certificate, intermediates: Sequence[x509.Certificate], wall: float
    ) -> tuple[x509.Certificate, ...]:
        """Return the chain from `leaf` to an authority, good at `wall` (epoch seconds).

        Raises UntrustedError.
        """
        verifier = (
            verification.PolicyBuilder()
            .store(verification.Store(list(self.certificates)))
            .time(datetime.fromtimestamp(wall, UTC))
            .extension_policies(ca_policy=_CA_POLICY, ee_policy=_LEAF_POLICY)
            .build_client_verifier()
        )
        try:
            chain = tuple(verifier.verify(leaf, list(intermediates)).chain)
            for certificate in chain:
                _check_uses(certificate)
            for authority in chain[1:]:
                _check_signs(authority)
        except (verification.VerificationError, ValueError) as error:  # ValueError: an unreadable extension
            raise UntrustedError(str(error)) from error
        return chain


def _check_uses(certificate: x509.Certificate) -> None:
    for extension in certificate.extensions:
        if isinstance(extension.value, x509.ExtendedKeyUsage) and _CLIENT_USES.isdisjoint(extension.value):
            raise UntrustedError(f"{certificate.subject.rfc4514_string()} is not for client authentication")


def _check_signs(authority: x509.Certificate) -> None:
    for extension in authority.extensions:
        if isinstance(extension.value, x509.KeyUsage) and not extension.value.key_cert_sign:
            raise UntrustedError(f"{authority.subject.rfc4514_string()} may not sign certificates")


def load_certificate(der: bytes) -> x509.Certificate:
    """Return the certificate of an encoding. Raises ValueError where it or a name in it is broken."""
    try:
        certificate = x509.load_der_x509_certificate(der)
    except x509.InvalidVersion as error:
        raise ValueError(str(error)) from error
    for name in (certificate.subject, certificate.issuer):  # parsed when first used
        name.public_bytes()
    return certificate


def _identity(authority: x509.Certificate) -> tuple[bytes, bytes] | None:
    """Return name and key of an authority, None for a key of an unknown kind."""
    try:
        key = authority.public_key()
    except UnsupportedAlgorithm:
        return None
    encoded = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return authority.subject.public_bytes(), encoded


def common_name(certificate: x509.Certificate) -> str:
    """Return the subject's common name, "" without one; of several the last, as in Go."""
    names = _texts(certificate, NameOID.COMMON_NAME)
    return names[-1] if names else ""


def _texts(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> list[str]:
    values = (attribute.value for attribute in certificate.subject.get_attributes_for_oid(oid))
    return [value for value in values if isinstance(value, str)]


class HeaderNames(NamedTuple):
    """The headers in which a front proxy names its caller, in lower case.

    The defaults are those of kube-apiserver's aggregator, except for the uid. Without a `uid` that header is
    ignored.
    """

    username: tuple[str, ...] = ("x-remote-user",)
    uid: tuple[str, ...] = ()
    group: tuple[str, ...] = ("x-remote-group",)
    extra_prefix: tuple[str, ...] = ("x-remote-extra-",)


USUAL_HEADERS = HeaderNames()


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """The peers that may name other users, by authority and common name; no `allowed_names` allow all."""

    bundle: Bundle
    allowed_names: tuple[str, ...] = ()
    headers: HeaderNames = USUAL_HEADERS


@dataclass(frozen=True, slots=True)
class ClientTrust:
    """The trust in force.

    `generation` grows with every change, and invalidates everything that was derived from an older one.
    """

    generation: int = 0
    front_proxy: FrontProxy | None = None
    clients: Bundle | None = None

    @property
    def pem(self) -> str:
        """All authorities that a TLS handshake accepts."""
        proxy = self.front_proxy.bundle.pem if self.front_proxy else ""
        return proxy + (self.clients.pem if self.clients else "")

    @property
    def is_ambiguous(self) -> bool:
        """Whether every certificate of an ordinary client is also one of a front proxy."""
        proxy, clients = self.front_proxy, self.clients
        return bool(proxy and clients and not proxy.allowed_names and proxy.bundle.overlaps(clients))


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
                self.certificate = load_certificate(der)
            self.intermediates = tuple(map(load_certificate, intermediates))


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
        chain = (read_chain() if read_chain is not None else None) or ()
        shown = [certificate.public_bytes(_DER) for certificate in chain if certificate is not None]
    return Peer(der, [certificate for certificate in shown if certificate != der][:_LONGEST_CHAIN])


class PeerJudge:
    """Judges peers.

    Keeps the intermediates of good chains, for TLS sessions that are resumed without them.
    """

    def __init__(self) -> None:
        self._known: LRUCache[bytes, x509.Certificate] = LRUCache(_INTERMEDIATES_KEPT)

    def judge(self, peer: Peer, trust: ClientTrust, wall: float) -> PeerVerdict:
        """Return the verdict on a peer with a certificate at `wall` (epoch seconds)."""
        proxy_until, refused = self._judge_proxy(peer, trust.front_proxy, wall)
        user_until, user, failed = self._judge_user(peer, trust, wall)
        until = min(proxy_until, user_until)
        return PeerVerdict(trust.generation, until, not refused, user, failed or bool(refused), refused)

    def _judge_proxy(self, peer: Peer, proxy: FrontProxy | None, wall: float) -> tuple[float, str]:
        """Return until when the verdict holds, and why the peer is not a front proxy; "" where it is one."""
        if proxy is None:
            return wall + _LOOK_AGAIN, "no front proxy is known"
        try:
            until = self._verify(peer, proxy.bundle, wall)
        except UntrustedError as error:
            return wall + _LOOK_AGAIN, str(error)
        assert peer.certificate is not None
        name = common_name(peer.certificate)
        if proxy.allowed_names and name not in proxy.allowed_names:
            return until, f"its name {name!r} is not among those allowed"
        return until, ""

    def _judge_user(self, peer: Peer, trust: ClientTrust, wall: float) -> tuple[float, User | None, bool]:
        """Return until when the verdict holds, the user of the certificate, and whether it was refused."""
        if trust.clients is None:
            return wall + _LOOK_AGAIN, None, trust.front_proxy is None
        try:
            until = self._verify(peer, trust.clients, wall)
        except UntrustedError:
            return wall + _LOOK_AGAIN, None, True
        assert peer.certificate is not None
        name = common_name(peer.certificate)
        if not name:  # a certificate without a common name names no user
            return until, None, False
        fingerprint = peer.certificate.fingerprint(hashes.SHA256()).hex()
        groups = tuple(_texts(peer.certificate, NameOID.ORGANIZATION_NAME))
        credential = (CREDENTIAL_ID, (f"X509SHA256={fingerprint}",))
        return until, identity.complete_groups(User(name, "", groups, (credential,))), False

    def _verify(self, peer: Peer, bundle: Bundle, wall: float) -> float:
        """Return until when the peer's chain to `bundle` holds. Raises UntrustedError."""
        if peer.certificate is None:
            raise UntrustedError("the certificate cannot be read")
        chain = bundle.verify(peer.certificate, (*peer.intermediates, *self._known.values()), wall)
        for intermediate in chain[1:-1]:
            self._known[intermediate.fingerprint(hashes.SHA256())] = intermediate
        return min(certificate.not_valid_after_utc.timestamp() for certificate in chain)
