"""The serving pair: made, reused, replaced, and refused with the reason."""

import asyncio
import contextlib
import datetime as dt
import functools
import os
import shutil
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization

from adapter import errors
from adapter.server import tls
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.support import waiting
from tests.support.answers import answers
from tests.support.clock import FakeClock
from tests.support.tls import Authority

DAY = 86_400.0


def leaf(pair: tls.CertificatePair) -> x509.Certificate:
    return x509.load_pem_x509_certificates(pair.certificate.read_bytes())[0]


def shown(context: ssl.SSLContext) -> int:
    """Return the serial number of the certificate that a handshake with `context` shows."""
    client_in, client_out, server_in, server_out = (ssl.MemoryBIO() for _ in range(4))
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust.check_hostname = False
    trust.verify_mode = ssl.CERT_NONE
    client = trust.wrap_bio(client_in, client_out)
    server = context.wrap_bio(server_in, server_out, server_side=True)
    for _ in range(4):
        for side in (client, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
            server_in.write(client_out.read())
            client_in.write(server_out.read())
    der = client.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_made_when_missing(tmp_path: Path, clock: FakeClock) -> None:
    directory = tmp_path / "a" / "b"
    pair = tls.ensure_self_signed(
        directory, clock, names=["adapter.metrics.svc"], addresses=["127.0.0.1", "::1"]
    )
    assert pair == (directory / "apiserver.crt", directory / "apiserver.key")
    certificate = leaf(pair)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["adapter.metrics.svc", "localhost"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    assert (certificate.not_valid_after_utc.timestamp() - clock.wall()) == 365 * DAY
    assert certificate.not_valid_before_utc.timestamp() < clock.wall()
    assert pair.key.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in directory.iterdir()) == ["apiserver.crt", "apiserver.key"]


async def test_its_file_is_its_own_authority(tmp_path: Path) -> None:
    class Now(FakeClock):
        def __init__(self) -> None:
            super().__init__(wall=tmp_path.stat().st_mtime)  # checked by OpenSSL against the system's clock

    pair = tls.ensure_self_signed(tmp_path / "pair", Now())
    certificate = tls.ServingCertificate(pair)
    server = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=certificate.context
    )
    trust = ssl.create_default_context(cafile=str(pair.certificate))
    for name in ("127.0.0.1", "localhost"):
        _, writer = await asyncio.open_connection(
            "127.0.0.1", server.sockets[0].getsockname()[1], ssl=trust, server_hostname=name
        )
        writer.close()
        await writer.wait_closed()
    server.close()
    await server.wait_closed()


def test_reused_while_good(tmp_path: Path, clock: FakeClock) -> None:
    first = leaf(tls.ensure_self_signed(tmp_path, clock, names=["a", "b"])).serial_number
    clock.advance(300 * DAY)
    assert leaf(tls.ensure_self_signed(tmp_path, clock, names=["a"])).serial_number == first


@pytest.mark.parametrize("days", [336, 400, -2], ids=["ends_soon", "ended", "clock_went_back"])
def test_made_again_when_its_time_is_over(tmp_path: Path, clock: FakeClock, days: int) -> None:
    first = leaf(tls.ensure_self_signed(tmp_path, clock)).serial_number
    clock.set_wall(clock.wall() + days * DAY)
    assert leaf(tls.ensure_self_signed(tmp_path, clock)).serial_number != first


def test_made_again_for_another_name_and_when_the_key_is_another(
    tmp_path: Path, clock: FakeClock, authority: Authority
) -> None:
    pair = tls.ensure_self_signed(tmp_path, clock)
    first = leaf(pair).serial_number
    second = leaf(tls.ensure_self_signed(tmp_path, clock, names=["other"])).serial_number
    shutil.copy(authority.issue().key, pair.key)
    again = tls.ensure_self_signed(tmp_path, clock, names=["other"])
    assert len({first, second, leaf(again).serial_number}) == 3
    tls.build_context(again)


def test_a_pair_of_someone_else_is_used_and_kept(
    tmp_path: Path, clock: FakeClock, authority: Authority
) -> None:
    issued = authority.issue("elsewhere.test")
    shutil.copy(issued.certificate, tmp_path / "apiserver.crt")
    shutil.copy(issued.key, tmp_path / "apiserver.key")
    clock.advance(10_000 * DAY)
    pair = tls.ensure_self_signed(tmp_path, clock, names=["other"])
    assert pair.certificate.read_bytes() == issued.certificate.read_bytes()


@pytest.mark.parametrize("broken", ["crt_missing", "key_missing", "key_other", "crt_text", "crt_empty"])
def test_a_broken_pair_of_someone_else_is_refused(
    tmp_path: Path, clock: FakeClock, authority: Authority, broken: str
) -> None:
    issued = authority.issue()
    shutil.copy(issued.certificate, tmp_path / "apiserver.crt")
    shutil.copy(issued.key, tmp_path / "apiserver.key")
    if broken == "crt_missing":
        (tmp_path / "apiserver.crt").unlink()
    elif broken == "key_missing":
        (tmp_path / "apiserver.key").unlink()
    elif broken == "key_other":
        shutil.copy(authority.issue().key, tmp_path / "apiserver.key")
    else:
        (tmp_path / "apiserver.crt").write_text("not a certificate" if broken == "crt_text" else "")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(errors.InputError) as caught:
        tls.ensure_self_signed(tmp_path, clock)
    [fault] = caught.value.faults
    assert fault.path == "--cert-dir"
    assert "\n" not in str(fault)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before, "never overwritten"


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_directory_that_cannot_be_written(tmp_path: Path, clock: FakeClock) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(errors.InputError, match="Permission denied"):
        tls.ensure_self_signed(tmp_path, clock)


def test_files_that_are_not_there(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(errors.InputError, match="--cert-dir"):
        tls.ensure_self_signed(tmp_path / "file", clock)
    text = r"--tls-cert-file.*expected a certificate and its private key"
    with pytest.raises(errors.InputError, match=text):
        tls.ServingCertificate(tls.CertificatePair(tmp_path / "tls.crt", tmp_path / "tls.key"))


def test_tls_1_2_or_newer_without_renegotiation(authority: Authority) -> None:
    context = tls.build_context(authority.issue())
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2, "whatever OpenSSL's own settings allow"
    assert context.options & ssl.OP_NO_RENEGOTIATION


def test_halves_that_do_not_match(authority: Authority) -> None:
    pair = authority.issue()._replace(key=authority.issue().key)
    with pytest.raises(errors.InputError, match="certificate and key do not belong together"):
        tls.ServingCertificate(pair)


def test_a_key_with_a_password(tmp_path: Path, authority: Authority) -> None:
    issued = authority.issue()
    key = serialization.load_pem_private_key(issued.key.read_bytes(), None)
    locked = tmp_path / "locked.key"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"x"),
        )
    )
    with pytest.raises(errors.InputError, match="the private key is encrypted"):
        tls.ServingCertificate(issued._replace(key=locked))


@pytest.fixture
def changing(tmp_path: Path, authority: Authority) -> tls.CertificatePair:
    """Return a pair of links that a test points elsewhere, as the kubelet does with a Secret."""
    issued = authority.issue()
    for name, source in (("tls.crt", issued.certificate), ("tls.key", issued.key)):
        (tmp_path / name).symlink_to(source)
    return tls.CertificatePair(tmp_path / "tls.crt", tmp_path / "tls.key")


def point(link: Path, target: Path) -> None:
    draft = link.with_suffix(".new")
    draft.symlink_to(target)
    draft.replace(link)


def test_reload(changing: tls.CertificatePair, tmp_path: Path) -> None:
    serving = tls.ServingCertificate(changing)
    first, expiration = shown(serving.context), serving.expiration
    assert first == leaf(changing).serial_number
    assert expiration == leaf(changing).not_valid_after_utc.timestamp()
    assert not serving.reload_if_changed()
    fresh = tls.ensure_self_signed(tmp_path / "other", FakeClock(), names=["fastpath.fastpath.svc"])
    point(changing.certificate, fresh.certificate)
    assert not serving.reload_if_changed(), "the key is still the old one"
    assert (shown(serving.context), serving.expiration) == (first, expiration)
    point(changing.key, fresh.key)
    assert serving.reload_if_changed()
    assert shown(serving.context) == leaf(changing).serial_number != first
    assert serving.expiration == leaf(fresh).not_valid_after_utc.timestamp() != expiration
    assert serving.names == ("fastpath.fastpath.svc", "localhost")
    assert not serving.reload_if_changed()


def test_a_bad_pair_is_said_once_and_keeps_the_old_one(
    changing: tls.CertificatePair, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    serving = tls.ServingCertificate(changing)
    first = shown(serving.context)
    (tmp_path / "rubbish").write_text("rubbish")
    point(changing.certificate, tmp_path / "rubbish")
    for _ in range(3):
        assert not serving.reload_if_changed()
    changing.key.unlink()
    for _ in range(3):
        assert not serving.reload_if_changed()
    assert shown(serving.context) == first
    assert [record.message for record in caplog.records] == [
        "the changed serving certificate cannot be used; the old one stays in use"
    ] * 2


def test_files_that_change_while_they_are_read_are_read_again(
    changing: tls.CertificatePair, authority: Authority
) -> None:
    fresh, starting = authority.issue(), True

    def build(pair: tls.CertificatePair) -> ssl.SSLContext:
        try:
            return tls.build_context(pair)
        finally:
            if not starting:
                point(changing.key, fresh.key)

    serving = tls.ServingCertificate(changing, build)
    starting = False
    point(changing.certificate, fresh.certificate)
    assert not serving.reload_if_changed()
    assert serving.reload_if_changed()
    assert shown(serving.context) == leaf(changing).serial_number


async def test_an_unexpected_error_does_not_end_following(
    changing: tls.CertificatePair, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """The process goes on with the pair it has, says so, and takes the next good pair."""
    broken = True

    def build(pair: tls.CertificatePair) -> ssl.SSLContext:
        if broken and leaf(pair).serial_number != first:
            raise RuntimeError("a kind of key that is not known")
        return tls.build_context(pair)

    first = leaf(changing).serial_number
    own_metrics = Monitoring()
    serving = tls.ServingCertificate(changing, build)
    following = asyncio.create_task(
        serving.follow(ProblemLog(own_metrics, FakeClock()), FakeClock(), period=0.005)
    )
    fresh = authority.issue()
    point(changing.certificate, fresh.certificate)
    point(changing.key, fresh.key)
    active = 'fastpath_faults_active{fault="serving-certificate"} %s'
    await waiting.until(lambda: following.done() or active % "1.0" in own_metrics.exposition())
    assert not following.done()
    assert shown(serving.context) == first
    assert "the files of the serving certificate cannot be checked" in [
        record.message for record in caplog.records
    ]
    broken = False
    await waiting.until(lambda: active % "0.0" in own_metrics.exposition())
    assert shown(serving.context) == leaf(changing).serial_number
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following


async def test_an_expired_certificate_is_a_problem_from_the_start_until_it_is_renewed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    begin = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    clock = FakeClock(wall=(begin + dt.timedelta(days=2)).timestamp())
    pair = tls.CertificatePair(tmp_path / "tls.crt", tmp_path / "tls.key")

    def write(valid: dt.timedelta) -> None:
        issued = tls.issue("fastpath", "ca", ("fastpath.fastpath.svc",), now=begin, valid=valid)
        pair.certificate.write_bytes(issued.certificate)
        pair.key.write_bytes(issued.key)

    write(dt.timedelta(days=1))
    problems = ProblemLog(Monitoring(), clock)
    serving = tls.ServingCertificate(pair)
    following = asyncio.create_task(serving.follow(problems, clock, period=0.005))
    key = "serving-certificate", str(pair.certificate)
    await waiting.until(lambda: key in problems.active())
    text = (
        "it expired at 2026-01-02T00:00:00Z, so the API server does not connect: renew it, "
        "docs/guides/deploy.md#certificates"
    )
    assert problems.active()[key] == text
    (record,) = [one for one in caplog.records if one.message == "the serving certificate has expired"]
    assert record.levelname == "WARNING"
    write(dt.timedelta(days=365))
    await waiting.until(lambda: key not in problems.active())
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following


def _handshake(
    certificate: tls.ServingCertificate, authority: Authority, name: str, **limits: object
) -> tuple[str, str]:
    """Return the first DNS name of the certificate shown for `name`, and the negotiated suite."""
    client_side, server_side = socket.socketpair()
    client_context = authority.client_context()
    for attribute, value in limits.items():
        setattr(client_context, attribute, value)
    with client_side, server_side, ThreadPoolExecutor(1) as pool:
        serving = pool.submit(_accept, certificate.context, server_side)
        with client_context.wrap_socket(client_side, server_hostname=name) as connection:
            der = connection.getpeercert(binary_form=True)
            suite = connection.cipher()
        serving.result()
    assert der is not None
    assert suite is not None
    names = x509.load_der_x509_certificate(der).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    )
    return names.value.get_values_for_type(x509.DNSName)[0], suite[0]


def _accept(context: ssl.SSLContext, raw: socket.socket) -> None:
    with contextlib.suppress(OSError), context.wrap_socket(raw, server_side=True) as connection:
        connection.recv(1)


@pytest.mark.parametrize(("asked", "shown"), answers("server/tls", "a pair for the name a client asks for"))
def test_a_pair_for_the_name_a_client_asks_for(authority: Authority, asked: str, shown: str) -> None:
    pairs = {name: authority.issue(name) for name in ("first.example", "second.example", "*.wild.example")}
    own = pairs.pop("first.example")
    named = [([name], tls.ServingCertificate(pair)) for name, pair in pairs.items()]
    certificate = tls.ServingCertificate(own, named=named)
    assert _handshake(certificate, authority, asked, check_hostname=False)[0] == shown


def test_the_names_a_certificate_is_for(authority: Authority) -> None:
    assert tls.read_names(authority.issue("a.example", "b.example")) == ("a.example", "b.example")


def test_suites_and_versions_are_those_asked_for(authority: Authority) -> None:
    pair = authority.issue("first.example")
    wanted = "ECDHE-ECDSA-AES256-GCM-SHA384"
    build = functools.partial(tls.build_context, ciphers=wanted)
    certificate = tls.ServingCertificate(pair, build)
    suite = _handshake(certificate, authority, "first.example", maximum_version=ssl.TLSVersion.TLSv1_2)[1]
    assert suite == wanted
    modern = tls.ServingCertificate(
        pair, functools.partial(tls.build_context, minimum=ssl.TLSVersion.TLSv1_3)
    )
    with pytest.raises(ssl.SSLError):
        _handshake(modern, authority, "first.example", maximum_version=ssl.TLSVersion.TLSv1_2)


# --- new certificates

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def issue(*names: str) -> tuple[x509.Certificate, x509.Certificate]:
    issued = tls.issue("leaf", "authority", names, now=NOW, valid=dt.timedelta(days=2))
    return x509.load_pem_x509_certificate(issued.certificate), x509.load_pem_x509_certificate(
        issued.authority
    )


def test_issued_certificates_are_good_from_a_little_before_now() -> None:
    for each in issue("web"):
        assert each.not_valid_before_utc == NOW - dt.timedelta(hours=1)
        assert each.not_valid_after_utc == NOW + dt.timedelta(days=2)


def test_an_authority_vouches_for_its_own_leaf_alone() -> None:
    (leaf, authority), (_, other) = issue("web"), issue("web")
    leaf.verify_directly_issued_by(authority)
    with pytest.raises(InvalidSignature):
        leaf.verify_directly_issued_by(other)
