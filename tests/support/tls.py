"""Throw-away certificates for real TLS on localhost."""

import ssl
from pathlib import Path

import pytest
import trustme

from adapter.server.tls import CertificatePair


class Authority:
    """A certificate authority of one test session; everything it issues is valid for names the test gives."""

    def __init__(self, directory: Path) -> None:
        self._ca = trustme.CA()
        self._directory = directory
        self._issued = 0
        self.file = directory / "ca.crt"
        self._ca.cert_pem.write_to_path(str(self.file))

    def issue(
        self, *names: str, common_name: str | None = None, organization: str | None = None
    ) -> CertificatePair:
        """Write a new pair for host names or addresses (default: localhost and 127.0.0.1).

        As a client's pair, `common_name` is the Kubernetes user and `organization` its group.
        """
        leaf = self._ca.issue_cert(
            *(names or ("localhost", "127.0.0.1")), common_name=common_name, organization_name=organization
        )
        self._issued += 1
        pair = CertificatePair(
            self._directory / f"{self._issued}.crt", self._directory / f"{self._issued}.key"
        )
        pair.certificate.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        leaf.private_key_pem.write_to_path(str(pair.key))
        return pair

    def server_context(
        self, pair: CertificatePair | None = None, *, client_certificates: bool = False
    ) -> ssl.SSLContext:
        """Return a server's context; with `client_certificates` it accepts only clients with one of ours."""
        pair = pair or self.issue()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(pair.certificate, pair.key)
        if client_certificates:
            context.load_verify_locations(self.file)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client_context(self, pair: CertificatePair | None = None) -> ssl.SSLContext:
        """Return the context of a client that trusts this authority alone, and shows `pair` if given."""
        context = ssl.create_default_context(cafile=str(self.file))
        if pair is not None:
            context.load_cert_chain(pair.certificate, pair.key)
        return context


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def other_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Return an authority that nothing trusts."""
    return Authority(tmp_path_factory.mktemp("other-authority"))
