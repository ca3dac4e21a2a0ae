"""New serving certificates: an authority and the one leaf that it issues.

The authority's key never leaves this module and is discarded at once, so no second leaf can be issued; a
renewal is a new authority. `serving_certificate` writes the result to files, `fastpath certs` prints it as a
Secret.
"""

import ipaddress
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_BACKDATED = timedelta(hours=1)  # for clients whose clock is behind


class IssuedCertificate(NamedTuple):
    """A certificate, its private key and its authority, all PEM."""

    certificate: bytes
    key: bytes
    authority: bytes


def issue(
    common_name: str, authority_name: str, names: Iterable[str], *, now: datetime, valid: timedelta
) -> IssuedCertificate:
    """Return a certificate for `names` (DNS names and IP addresses) and its new authority.

    Both are valid for `valid` from `now`. `common_name` is for people; clients check `names` only.
    """
    authority_key, leaf_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())

    def build(subject: str, key: ec.EllipticCurvePrivateKey, *, ca: bool) -> x509.CertificateBuilder:
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(_name(subject))
            .issuer_name(_name(authority_name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BACKDATED)
            .not_valid_after(now + valid)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=0 if ca else None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(issuer, critical=False)
            .add_extension(_key_usage(ca=ca), critical=True)
        )

    alternate = x509.SubjectAlternativeName([_alternate(name) for name in sorted(names)])
    leaf = (
        build(common_name, leaf_key, ca=False)
        .add_extension(alternate, critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    authority = build(authority_name, authority_key, ca=True).sign(authority_key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    key = leaf_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return IssuedCertificate(leaf.public_bytes(pem), key, authority.public_bytes(pem))


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """Return the DNS names of a Service in a cluster; kube-apiserver uses ``<service>.<namespace>.svc``."""
    within = f"{service}.{namespace}"
    return (service, within, f"{within}.svc", f"{within}.svc.cluster.local")


def _key_usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _alternate(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
