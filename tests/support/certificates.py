"""Authorities and client certificates of every kind, good and bad, for tests of who is believed."""

import itertools
import json
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.support.objects import plain

CLIENT_AUTH, SERVER_AUTH = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH
ANY_USE = ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE
DAY = timedelta(days=1)

NAME = "extension-apiserver-authentication"
"""The ConfigMap in which a cluster publishes its authorities."""

UNUSUAL = """\
-----BEGIN CERTIFICATE-----
MIIBXjCCARygAwIBAgIUDnxyauRUDj+XMhobWNrpy9nckicwCgYIKoZIzj0EAwIw
FTETMBEGA1UEAwwKdW51c3VhbC1jYTAgFw0yNjExMjIxOTAxNDdaGA8yMTI2MTAy
OTE5MDE0N1owFTETMBEGA1UEAwwKdW51c3VhbC1jYTA+MBAGByqGSM49AgEGBSuB
BAAIAyoABI/Mc5WsxrUQL95AT3uIRL5QzTp/3TEgYvZAvB9JD8NtaImIHqPvpbaj
YzBhMB0GA1UdDgQWBBTKed7pW8sP6f7LGUq+x///FVzzeDAfBgNVHSMEGDAWgBTK
ed7pW8sP6f7LGUq+x///FVzzeDAPBgNVHRMBAf8EBTADAQH/MA4GA1UdDwEB/wQE
AwICBDAKBggqhkjOPQQDAgMwADAtAhUA5W+B+ZNOVpeKvNvt/STjI6TmvXECFATT
FznO1CpvFT8ueMVboPWfSLa8
-----END CERTIFICATE-----
"""
"""An authority called ``unusual-ca`` on secp160r1, which `cryptography` does not know; good until 2126."""

_numbers = itertools.count(1)


def pem(*certificates: x509.Certificate) -> str:
    return "".join(each.public_bytes(serialization.Encoding.PEM).decode() for each in certificates)


def patched(certificate: x509.Certificate, old: bytes, new: bytes) -> str:
    """Return the PEM of a certificate in which `old` is replaced by `new`. Its signature is broken then."""
    der = certificate.public_bytes(serialization.Encoding.DER)
    assert old in der
    assert len(old) == len(new)
    return ssl.DER_cert_to_PEM_cert(der.replace(old, new))


class Identity:
    """A certificate with its key, and the certificates between it and its authority."""

    def __init__(
        self,
        certificate: x509.Certificate,
        key: ec.EllipticCurvePrivateKey,
        chain: Sequence[x509.Certificate] = (),
    ) -> None:
        self.certificate = certificate
        self.key = key
        self.chain = tuple(chain)

    def write(self, directory: Path, *, with_chain: bool = True) -> Path:
        """Write chain and key into one PEM file, as `ssl.SSLContext.load_cert_chain` takes it."""
        key = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = directory / f"identity-{next(_numbers)}.pem"
        path.write_text(pem(self.certificate, *(self.chain if with_chain else ())) + key.decode())
        return path


class Signer:
    """An authority as kubeadm makes it, root or intermediate; what it issues has no alternative name.

    `identified_as` is another whose key identifier it carries, as one may that wants to be taken for it.
    """

    def __init__(
        self,
        name: str,
        *,
        parent: "Signer | None" = None,
        lifetime: tuple[timedelta, timedelta] = (-DAY, DAY),
        uses: Sequence[x509.ObjectIdentifier] = (),
        is_authority: bool | None = True,
        may_sign: bool = True,
        key: ec.EllipticCurvePrivateKey | None = None,
        identified_as: "Signer | None" = None,
    ) -> None:
        self.key = key or ec.generate_private_key(ec.SECP256R1())
        self.identifier = x509.SubjectKeyIdentifier.from_public_key((identified_as or self).key.public_key())
        self.parent = parent
        self._name = _name(name, ())
        issuer = parent or self
        builder = _builder(self._name, issuer._name, self.key.public_key(), lifetime)
        if is_authority is not None:
            builder = builder.add_extension(
                x509.BasicConstraints(ca=is_authority, path_length=None), critical=True
            )
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=True,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=may_sign,
            crl_sign=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = builder.add_extension(usage, critical=True)
        builder = builder.add_extension(self.identifier, critical=False)
        builder = builder.add_extension(_issued_by(issuer.identifier), critical=False)
        if uses:
            builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        self.certificate = builder.sign(issuer.key, hashes.SHA256())

    @property
    def pem(self) -> str:
        return pem(self.certificate)

    def issue(
        self,
        common_name: str,
        *organizations: str,
        lifetime: tuple[timedelta, timedelta] = (-DAY, DAY),
        uses: Sequence[x509.ObjectIdentifier] = (CLIENT_AUTH,),
        critical: bool = False,
    ) -> Identity:
        """Issue a client certificate; with `critical` it has an unknown extension."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(common_name, organizations), self._name, key.public_key(), lifetime)
        builder = builder.add_extension(_issued_by(self.identifier), critical=False)
        if uses:
            builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        if critical:
            unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.99999.1"), b"\x05\x00")
            builder = builder.add_extension(unknown, critical=True)
        return Identity(builder.sign(self.key, hashes.SHA256()), key, self._chain())

    def _chain(self) -> list[x509.Certificate]:
        return [self.certificate, *self.parent._chain()] if self.parent else []


def config_map(front_proxy: str = "", clients: str = "", **entries: object) -> dict[str, str]:
    """Return kubeadm's entries of extension-apiserver-authentication; a key of None is omitted."""
    found: dict[str, Any] = {
        "client-ca-file": clients or None,
        "requestheader-client-ca-file": front_proxy or None,
        "requestheader-allowed-names": ["front-proxy-client"],
        "requestheader-username-headers": ["X-Remote-User"],
        "requestheader-group-headers": ["X-Remote-Group"],
        "requestheader-extra-headers-prefix": ["X-Remote-Extra-"],
    }
    found |= {key.replace("_", "-"): value for key, value in entries.items()}
    return {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in found.items()
        if value is not None
    }


def config_map_object(entries: dict[str, str]) -> dict[str, Any]:
    """Return the whole ConfigMap for a sandbox cluster."""
    return plain("ConfigMap", NAME, "kube-system", data=entries)


def _name(common_name: str, organizations: Sequence[str]) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in organizations]
    return x509.Name(
        [*parts, *([x509.NameAttribute(NameOID.COMMON_NAME, common_name)] if common_name else [])]
    )


def _issued_by(identifier: x509.SubjectKeyIdentifier) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    lifetime: tuple[timedelta, timedelta],
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)  # noqa: TID251 - OpenSSL looks at the real clock
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + lifetime[0])
        .not_valid_after(now + lifetime[1])
    )
