"""The authorities of client certificates, and the verification of a peer's certificate against them.

Verification follows Go's ``x509.Verify`` with upstream's options: a chain to one of the authorities, in which
every certificate is within its validity and, where it is restricted to certain uses, allows client
authentication.

There are two separate trusts. Certificates of the *client* authority name users. Certificates of the *front
proxy* authority let their owner name any user in request headers, so confusing the two hands out the whole
cluster. They come from the ConfigMap ``extension-apiserver-authentication``, in which kube-apiserver
publishes both, or from files. Where one authority serves both purposes and no names are required, any client
certificate can impersonate any user: `ClientTrust.is_ambiguous`, which is reported loudly.

kubeadm's client certificates carry no alternative name, which `cryptography` requires by default; hence the
policies below.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509 import verification
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from adapter.errors import UntrustedError

CLIENT_CA = "client-ca-file"
PROXY_CA = "requestheader-client-ca-file"
"""Two keys of the ConfigMap ``extension-apiserver-authentication``."""

_CLIENT_USES = frozenset({ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE})
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110's token


class Bundle:
    """A bundle of authorities. Raises ValueError for a text without a certificate or with a broken one.

    `cryptography` parses the parts of a certificate when they are first used. All parts that are needed later
    are read here, so that a certificate cannot fail after the bundle is in force. An authority with a key of
    an unknown kind is kept and listed in `unsupported`: `verify` refuses every chain that leads to it.
    """

    def __init__(self, pem: str) -> None:
        self.certificates = tuple(load_certificates(pem))
        self.pem = "".join(
            each.public_bytes(serialization.Encoding.PEM).decode() for each in self.certificates
        )
        """The certificates alone, without any text between them."""
        self.subjects = tuple(each.subject.rfc4514_string() for each in self.certificates)
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
            for each in chain:
                _check_uses(each)
            for each in chain[1:]:
                _check_signs(each)
        except (
            verification.VerificationError,
            ValueError,
        ) as error:  # ValueError: an extension that cannot be read
            raise UntrustedError(str(error)) from error
        return chain


_LEAF_POLICY = verification.ExtensionPolicy.permit_all()
_CA_POLICY = verification.ExtensionPolicy.permit_all().require_present(
    x509.BasicConstraints, verification.Criticality.AGNOSTIC, None
)


def _check_uses(certificate: x509.Certificate) -> None:
    try:
        uses = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return
    if _CLIENT_USES.isdisjoint(uses):
        raise UntrustedError(f"{certificate.subject.rfc4514_string()} is not for client authentication")


def _check_signs(authority: x509.Certificate) -> None:
    try:
        usage = authority.extensions.get_extension_for_class(x509.KeyUsage).value
    except x509.ExtensionNotFound:
        return
    if not usage.key_cert_sign:
        raise UntrustedError(f"{authority.subject.rfc4514_string()} may not sign certificates")


def load_certificates(pem: str) -> list[x509.Certificate]:
    """Return the certificates of a text. Raises ValueError for a text without one or with a broken one."""
    try:
        return x509.load_pem_x509_certificates(pem.encode())
    except x509.InvalidVersion as error:  # not a ValueError, unlike all else that is wrong with a certificate
        raise ValueError(str(error)) from error


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


def organizations(certificate: x509.Certificate) -> tuple[str, ...]:
    """Return the subject's organizations in their order."""
    return tuple(_texts(certificate, NameOID.ORGANIZATION_NAME))


def fingerprint(certificate: x509.Certificate) -> str:
    """Return the SHA-256 of the whole certificate in hexadecimal."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def _texts(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> list[str]:
    return [
        each.value for each in certificate.subject.get_attributes_for_oid(oid) if isinstance(each.value, str)
    ]


class HeaderNames(NamedTuple):
    """The headers in which a front proxy names its caller, in lower case.

    Without a `uid` that header is ignored.
    """

    username: tuple[str, ...] = ("x-remote-user",)
    uid: tuple[str, ...] = ()
    group: tuple[str, ...] = ("x-remote-group",)
    extra_prefix: tuple[str, ...] = ("x-remote-extra-",)


USUAL_HEADERS = HeaderNames()
"""The headers of kube-apiserver's aggregator, except for the uid."""


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


_Part = TypeVar("_Part")


def read_front_proxy(entries: Mapping[str, str]) -> FrontProxy | None:
    """Return the request-header part of the ConfigMap, None if absent. Raises ValueError if malformed."""
    pem = entries.get(PROXY_CA, "")
    if not pem:
        return None
    return FrontProxy(
        _named(PROXY_CA, lambda: Bundle(pem)),
        _strings(entries, "requestheader-allowed-names"),
        HeaderNames(
            header_names(_strings(entries, "requestheader-username-headers")),
            header_names(_strings(entries, "requestheader-uid-headers")),
            header_names(_strings(entries, "requestheader-group-headers")),
            header_names(_strings(entries, "requestheader-extra-headers-prefix")),
        ),
    )


def read_clients(entries: Mapping[str, str]) -> Bundle | None:
    """Return the bundle for client certificates of the ConfigMap; otherwise as `read_front_proxy`."""
    pem = entries.get(CLIENT_CA, "")
    return _named(CLIENT_CA, lambda: Bundle(pem)) if pem else None


def header_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return header names in lower case. Raises ValueError for an invalid name."""
    found = tuple(name.strip().lower() for name in names)
    for name in found:
        if not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"no header can be called {name[:100]!r}")
    return found


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
