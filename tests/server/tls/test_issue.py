"""New certificates: names, and that every call makes an authority of its own."""

import datetime as dt
import ipaddress

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from adapter.server.tls import issue

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def _issue(*names: str) -> tuple[x509.Certificate, x509.Certificate]:
    issued = issue.issue("leaf", "authority", names, now=NOW, valid=dt.timedelta(days=2))
    return x509.load_pem_x509_certificate(issued.certificate), x509.load_pem_x509_certificate(
        issued.authority
    )


def test_addresses_and_names_are_distinguished() -> None:
    leaf, _ = _issue("::1", "web", "127.0.0.1")
    found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert found.get_values_for_type(x509.DNSName) == ["web"]
    addresses = {ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")}
    assert set(found.get_values_for_type(x509.IPAddress)) == addresses


def test_they_are_good_from_a_little_before_now() -> None:
    for each in _issue("web"):
        assert each.not_valid_before_utc == NOW - dt.timedelta(hours=1)
        assert each.not_valid_after_utc == NOW + dt.timedelta(days=2)


def test_an_authority_vouches_for_its_own_leaf_alone() -> None:
    (leaf, authority), (_, other) = _issue("web"), _issue("web")
    leaf.verify_directly_issued_by(authority)
    with pytest.raises(InvalidSignature):
        leaf.verify_directly_issued_by(other)


def test_the_names_of_a_service() -> None:
    assert issue.service_names("adapter", "metrics") == (
        "adapter",
        "adapter.metrics",
        "adapter.metrics.svc",
        "adapter.metrics.svc.cluster.local",
    )
