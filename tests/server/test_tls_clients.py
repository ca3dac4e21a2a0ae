"""Which client certificates a handshake takes, and how that follows the authorities that are believed."""

import logging
import shutil
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from adapter.server import tls
from tests.support.certificates import Identity, Signer
from tests.support.tls import Authority

ONE, OTHER = Signer("one"), Signer("other")
BROKEN = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


def pair_of(authority: Authority, directory: Path, *names: str) -> tls.CertificatePair:
    issued = authority.issue(*(names or ("a.test",)))
    directory.mkdir(exist_ok=True)
    pair = tls.CertificatePair(directory / "tls.crt", directory / "tls.key")
    shutil.copy(issued.certificate, pair.certificate)
    shutil.copy(issued.key, pair.key)
    return pair


def accepts(
    certificate: tls.ServingCertificate,
    authority: Authority,
    directory: Path,
    shown: Identity | None,
    name: str = "a.test",
) -> bool:
    """Say whether a handshake ends well, and with the client's certificate in the server's hands."""
    context = authority.client_context()
    if shown is not None:
        context.load_cert_chain(shown.write(directory))
    client_side, server_side = socket.socketpair()

    def accept() -> bytes | None:
        with server_side, certificate.context.wrap_socket(server_side, server_side=True) as connection:
            connection.sendall(b"!")
            return connection.getpeercert(binary_form=True)

    with client_side, ThreadPoolExecutor(1) as pool:
        serving = pool.submit(accept)
        try:
            with context.wrap_socket(client_side, server_hostname=name) as connection:
                connection.recv(1)
            return (serving.result() is not None) is (shown is not None)
        except OSError:
            serving.exception()
            return False


@pytest.fixture
def pair(authority: Authority, tmp_path: Path) -> tls.CertificatePair:
    return pair_of(authority, tmp_path / "pair")


def test_what_is_believed_is_replaced_and_not_added_to(
    authority: Authority, pair: tls.CertificatePair, tmp_path: Path
) -> None:
    certificate = tls.ServingCertificate(pair, ask_clients=True)
    one, other = ONE.issue("client"), OTHER.issue("client")

    def accepted() -> list[bool]:
        return [accepts(certificate, authority, tmp_path, shown) for shown in (None, one, other)]

    assert accepted() == [True, False, False], "with no authority no certificate is taken"
    certificate.believe(ONE.pem)
    assert accepted() == [True, True, False]
    certificate.believe(ONE.pem + OTHER.pem)
    assert accepted() == [True, True, True]
    certificate.believe(OTHER.pem)
    assert accepted() == [True, False, True]
    certificate.believe("")
    assert accepted() == [True, False, False]


def test_a_changed_pair_keeps_the_authorities(
    authority: Authority, pair: tls.CertificatePair, tmp_path: Path
) -> None:
    certificate = tls.ServingCertificate(pair, ask_clients=True)
    certificate.believe(ONE.pem)
    pair_of(authority, tmp_path / "pair")
    assert certificate.reload_if_changed()
    assert accepts(certificate, authority, tmp_path, ONE.issue("client"))
    assert not accepts(certificate, authority, tmp_path, OTHER.issue("client"))


def test_every_name_believes_the_same(
    authority: Authority, pair: tls.CertificatePair, tmp_path: Path
) -> None:
    named = tls.ServingCertificate(pair_of(authority, tmp_path / "named", "b.test"), ask_clients=True)
    certificate = tls.ServingCertificate(pair, named=[(["b.test"], named)], ask_clients=True)
    certificate.believe(ONE.pem)
    for name in ("a.test", "b.test"):
        assert accepts(certificate, authority, tmp_path, ONE.issue("client"), name)
        assert not accepts(certificate, authority, tmp_path, OTHER.issue("client"), name)


def test_new_authorities_while_the_pair_is_being_replaced(
    authority: Authority, pair: tls.CertificatePair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The old pair goes on, the new authorities count at once, and the next look ends it all well."""
    certificate = tls.ServingCertificate(pair, ask_clients=True)
    certificate.believe(ONE.pem)
    replacement = authority.issue("a.test")
    shutil.copy(replacement.key, pair.key)
    certificate.believe(OTHER.pem)
    assert "the serving certificate cannot be loaded with the new authorities" in caplog.text
    assert accepts(certificate, authority, tmp_path, OTHER.issue("client"))
    assert not certificate.reload_if_changed()
    shutil.copy(replacement.certificate, pair.certificate)
    assert certificate.reload_if_changed()
    assert accepts(certificate, authority, tmp_path, OTHER.issue("client"))
    assert not accepts(certificate, authority, tmp_path, ONE.issue("client"))


def test_a_pair_that_was_only_unreadable_for_a_moment(
    authority: Authority, pair: tls.CertificatePair, tmp_path: Path
) -> None:
    certificate = tls.ServingCertificate(pair, ask_clients=True)
    certificate.believe(ONE.pem)
    aside = pair.key.rename(tmp_path / "aside")
    certificate.believe(OTHER.pem)
    aside.rename(pair.key)
    assert certificate.reload_if_changed(), "although the files are what they were"
    assert not accepts(certificate, authority, tmp_path, ONE.issue("client"))


def test_authorities_that_openssl_does_not_take(
    authority: Authority, pair: tls.CertificatePair, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate = tls.ServingCertificate(pair, ask_clients=True)
    certificate.believe(BROKEN)
    (record,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "OpenSSL rejects the authorities" in record.message
    assert accepts(certificate, authority, tmp_path, None)
    assert not accepts(certificate, authority, tmp_path, ONE.issue("client"))


def test_without_need_no_certificate_is_asked_for(authority: Authority, pair: tls.CertificatePair) -> None:
    certificate = tls.ServingCertificate(pair)
    certificate.believe(ONE.pem)
    assert certificate.context.verify_mode is ssl.CERT_NONE
