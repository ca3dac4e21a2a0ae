"""Files of TLS that change while Prometheus is asked, over real TLS."""

import asyncio
import logging
import shutil
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization

from adapter.errors import InputError, PrometheusError
from adapter.prometheus import connection
from adapter.prometheus.client import PrometheusClient
from adapter.prometheus.endpoint import TLSFiles
from adapter.server.tls import CertificatePair
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.prometheus.scripted import EMPTY_VECTOR, Scripted, Start, connection_options
from tests.support.answers import answers
from tests.support.clock import WALL, FakeClock
from tests.support.tls import Authority


class Asking:
    """A client and the files it was given; two authorities, the first of which the server has."""

    def __init__(self, directory: Path, start: Start, authority: Authority, other: Authority) -> None:
        self.serve = start
        self.authority, self.other = authority, other
        self.clock, self.monitoring = FakeClock(), Monitoring()
        self.faults = ProblemLog(self.monitoring, self.clock)
        self.ca = directory / "ca.crt"
        self.certificate = directory / "tls.crt"
        self.key = directory / "tls.key"
        self.client: PrometheusClient

    def show(self, pair: CertificatePair) -> None:
        shutil.copy(pair.certificate, self.certificate)
        shutil.copy(pair.key, self.key)

    async def start(self, serving: ssl.SSLContext, pair: CertificatePair | None = None) -> Scripted:
        """Start a server, and open the client with a CA file, and with the certificate of a pair."""
        server = await self.serve(serving)
        self.ca.write_bytes(self.authority.file.read_bytes())
        files = {"ca_file": str(self.ca)}
        if pair is not None:
            self.show(pair)
            files |= {"client_tls_cert_file": str(self.certificate), "client_tls_key_file": str(self.key)}
        options = connection_options(server.url, **files)
        self.client = await PrometheusClient.open(options, self.clock, self.monitoring, self.faults)
        return server

    async def ask(self) -> str:
        """Ask a little later; return why there is no answer."""
        self.clock.advance(connection.FILE_CHECK_SECONDS + 0.1)
        try:
            await self.client.query("up", WALL)
        except PrometheusError as error:
            return str(error)
        return ""


@pytest.fixture
async def asking(
    tmp_path: Path, start_scripted: Start, authority: Authority, other_authority: Authority
) -> AsyncIterator[Asking]:
    made = Asking(tmp_path, start_scripted, authority, other_authority)
    yield made
    await made.client.close()


async def test_another_authority_is_trusted_once_its_file_is_whole(
    asking: Asking, caplog: pytest.LogCaptureFixture
) -> None:
    serving = asking.authority.server_context()
    server = await asking.start(serving)
    server.answer(200, '{"status":"success","data":{"resultType":"vector","result":[]}}', Connection="close")
    assert await asking.ask() == ""
    renewed = asking.other.issue()
    serving.load_cert_chain(renewed.certificate, renewed.key)
    assert "certificate not accepted" in await asking.ask()
    whole = asking.other.file.read_bytes()
    for part in (whole[:0], whole[: len(whole) // 2], whole[: len(whole) // 2]):
        asking.ca.write_bytes(part)
        assert "certificate not accepted" in await asking.ask()
    asking.ca.unlink()
    assert "certificate not accepted" in await asking.ask()
    assert list(asking.faults.active()) == [("credentials", "prometheus-tls")]
    asking.ca.write_bytes(whole)
    assert await asking.ask() == ""
    assert asking.faults.active() == {}
    told = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert set(told) == {"TLS files for Prometheus cannot be reloaded; the old ones stay in use"}
    assert len(told) <= 3  # one for each reason


async def test_no_kept_connection_outlives_the_trust_in_it(asking: Asking) -> None:
    server = await asking.start(asking.authority.server_context())
    assert await asking.ask() == ""
    asking.ca.write_bytes(asking.other.file.read_bytes())
    assert "certificate not accepted" in await asking.ask()
    assert len(server.seen) == 1


async def test_a_renewed_client_certificate_is_shown_once_its_key_is_there(asking: Asking) -> None:
    shown: list[str] = []

    async def respond(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        peer = request.transport.get_extra_info("peercert")
        shown.extend(value for part in peer["subject"] for name, value in part if name == "commonName")
        return web.json_response(EMPTY_VECTOR)

    first, second = (asking.authority.issue(common_name=name) for name in ("first", "second"))
    server = await asking.start(asking.authority.server_context(client_certificates=True), first)
    server.respond = respond
    assert await asking.ask() == ""
    shutil.copy(second.certificate, asking.certificate)
    assert await asking.ask() == ""
    assert list(asking.faults.active()) == [("credentials", "prometheus-tls")]
    shutil.copy(second.key, asking.key)
    assert await asking.ask() == ""
    assert asking.faults.active() == {}
    assert shown == ["first", "first", "second"]


async def test_a_query_under_way_ends_on_its_connection(asking: Asking) -> None:
    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def respond(_: web.Request) -> web.StreamResponse:
        arrived.set()
        await go_on.wait()
        return web.json_response(EMPTY_VECTOR)

    server = await asking.start(asking.authority.server_context())
    server.respond = respond
    under_way = asyncio.create_task(asking.ask())
    await arrived.wait()
    asking.ca.write_bytes(asking.other.file.read_bytes())
    assert "certificate not accepted" in await asking.ask()
    go_on.set()
    assert await under_way == ""


@pytest.mark.parametrize("has_files", [True, False], ids=["files", "the authorities of the system"])
async def test_files_that_stay_the_same_are_not_read_again(
    authority: Authority, clock: FakeClock, faults: ProblemLog, *, has_files: bool
) -> None:
    files = TLSFiles(str(authority.file)) if has_files else TLSFiles()
    followed = connection.follow_tls(files, clock, faults)
    context = await followed.value()
    clock.advance(60.0)
    assert await followed.value() is context
    assert context.verify_mode == ssl.CERT_REQUIRED


def test_an_encrypted_key_is_refused_without_a_question(authority: Authority, tmp_path: Path) -> None:
    pair = authority.issue()
    key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    encrypted = tmp_path / "encrypted.key"
    encrypted.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(InputError, match="--prometheus-client-tls-cert-file"):
        connection.build_context(TLSFiles(str(authority.file), str(pair.certificate), str(encrypted)))


@pytest.mark.parametrize(
    ("url", "proxy", "uses"),
    answers("prometheus/connection_tls", "the systems authorities are loaded where there is tls"),
)
async def test_the_systems_authorities_are_loaded_where_there_is_tls(
    clock: FakeClock,
    faults: ProblemLog,
    authority: Authority,
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    proxy: str,
    *,
    uses: bool,
) -> None:
    """They take megabytes. Without them no server is trusted."""
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    origin = await connection.open_connection(connection_options(url), clock, faults)
    origin = replace(origin, proxy=proxy)

    followed = connection.follow_tls(origin.tls, clock, faults, system_cas=origin.uses_tls)
    context = await followed.value()

    assert origin.uses_tls is uses
    assert (context.cert_store_stats()["x509"] > 0) is uses
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
