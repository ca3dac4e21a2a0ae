import base64
import os
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from adapter.errors import InputError
from adapter.prometheus import connection
from adapter.prometheus.connection import PrometheusConnection
from adapter.prometheus.endpoint import TLSFiles
from adapter.telemetry.problems import ProblemLog
from tests.kubernetes.test_credentials import write_kubeconfig
from tests.prometheus.scripted import connection_options
from tests.support.answers import answers
from tests.support.clock import FakeClock
from tests.support.tls import Authority

PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")

OpenOrigin = Callable[..., Awaitable[PrometheusConnection]]


@pytest.fixture
def open_origin(clock: FakeClock, faults: ProblemLog) -> OpenOrigin:
    async def resolve(url: str, **options: object) -> PrometheusConnection:
        return await connection.open_connection(connection_options(url, **options), clock, faults)

    return resolve


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize(("url", "base", "query"), answers("prometheus/connection", "urls"))
async def test_urls(url: str, base: str, query: str, open_origin: OpenOrigin) -> None:
    origin = await open_origin(url)
    assert (origin.endpoint.base, origin.endpoint.query) == (base, query)


@pytest.mark.parametrize("url", [
    "", "p:9090", "ftp://p", "http://", "http://p:port", "http://p:99999", "http://a b", "http://p/\r\nX: y",
    "http://[::1",
])  # fmt: skip
async def test_urls_that_are_refused(url: str, faults: ProblemLog, open_origin: OpenOrigin) -> None:
    with pytest.raises(InputError) as caught:
        await open_origin(url)
    assert [fault.path for fault in caught.value.faults] == ["--prometheus-url"]


@pytest.mark.parametrize(
    ("url", "shown"), answers("prometheus/connection", "a url that is refused is shown without secrets")
)
async def test_a_url_that_is_refused_is_shown_without_secrets(
    url: str, shown: str, faults: ProblemLog, open_origin: OpenOrigin
) -> None:
    with pytest.raises(InputError) as caught:
        await open_origin(url)
    assert [fault.value for fault in caught.value.faults] == [repr(shown)]


def basic(text: str) -> str:
    return "Basic " + base64.b64encode(text.encode()).decode()


async def test_precedence_of_credentials(tmp_path: Path, open_origin: OpenOrigin) -> None:
    token, password = tmp_path / "token", tmp_path / "password"
    token.write_text(" abc\n")
    password.write_text("me:se:cret\n")

    async def header(**settings: object) -> str:
        values: dict[str, object] = {"url": "http://p", **settings}
        origin = await open_origin(**values)
        return (await origin.request_headers()).get("Authorization", "")

    files = {"token_file": str(token), "basic_auth_file": str(password)}
    assert not await header()
    assert await header(basic_auth_file=str(password)) == basic("me:se:cret")
    assert await header(**files) == "Bearer abc"
    assert await header(url="http://u%40x:p%3Aw@p", **files) == basic("u@x:p:w")
    assert await header(url="http://u:p@p", headers=(("authorization", "Own x"),), **files) == "Own x"


async def test_a_token_is_read_again_when_its_file_changes(
    tmp_path: Path, clock: FakeClock, open_origin: OpenOrigin
) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    origin = await open_origin("http://p", token_file=str(token))

    async def header() -> str:
        return (await origin.request_headers())["Authorization"]

    # as Kubernetes does it: another file takes the place of the old one; the time may be the same
    other = tmp_path / "other"
    other.write_text("two")
    os.utime(other, ns=(token.stat().st_atime_ns, token.stat().st_mtime_ns))
    other.replace(token)
    clock.advance(0.9)
    assert await header() == "Bearer one"
    clock.advance(0.1)
    assert await header() == "Bearer two"
    token.write_text("three")
    assert await header() == "Bearer two"
    origin.authorization.refuse()
    assert await header() == "Bearer three"


@pytest.mark.parametrize("content", [None, "", "two\nlines", "größe"])
async def test_a_token_that_cannot_be_read_again_stays(
    content: str | None, tmp_path: Path, clock: FakeClock, faults: ProblemLog, open_origin: OpenOrigin
) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    origin = await open_origin("http://p", token_file=str(token))
    if content is None:
        token.unlink()
    else:
        token.write_text(content)
    clock.advance(1)
    assert (await origin.request_headers())["Authorization"] == "Bearer one"
    assert list(faults.active()) == [("credentials", "--prometheus-token-file")]
    token.write_text("fine again")
    clock.advance(1)
    assert (await origin.request_headers())["Authorization"] == "Bearer fine again"
    assert not faults.active()


async def test_headers_are_sent_once_each(open_origin: OpenOrigin) -> None:
    given = (("X-Scope-OrgID", "a"), ("x-scope-orgid", "b"), ("X-Empty", ""), ("Authorization", "Own x"))
    origin = await open_origin("http://p", headers=given)
    assert await origin.request_headers() == {
        "Accept-Encoding": "identity",
        "X-Scope-OrgID": "a, b",
        "X-Empty": "",
        "Authorization": "Own x",
    }


async def test_compression_is_used_on_request(open_origin: OpenOrigin) -> None:
    origin = await open_origin("http://p", headers=(("accept-encoding", "gzip"),))
    assert await origin.request_headers() == {"accept-encoding": "gzip"}


@pytest.mark.parametrize(("settings", "flag"), answers("prometheus/connection", "settings that are refused"))
async def test_settings_that_are_refused(
    settings: dict[str, object], flag: str, faults: ProblemLog, open_origin: OpenOrigin
) -> None:
    with pytest.raises(InputError) as caught:
        await open_origin("http://p", **settings)
    assert [fault.path for fault in caught.value.faults] == [flag]


async def test_an_empty_password_file_is_refused(tmp_path: Path, open_origin: OpenOrigin) -> None:
    (tmp_path / "password").write_text("no colon")
    with pytest.raises(InputError, match="user:password") as caught:
        await open_origin("http://p", basic_auth_file=str(tmp_path / "password"))
    assert "no colon" not in str(caught.value)


async def test_files_of_trust_that_are_refused(
    tmp_path: Path, authority: Authority, faults: ProblemLog, open_origin: OpenOrigin
) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate")

    async def refused(**files: str) -> str:
        origin = await open_origin("https://p", **files)
        with pytest.raises(InputError) as caught:
            connection.build_context(origin.tls)
        return caught.value.faults[0].path

    assert await refused(ca_file=str(broken)) == "--prometheus-ca-file"
    assert await refused(ca_file=str(tmp_path / "none")) == "--prometheus-ca-file"
    pair, other = authority.issue(), authority.issue()
    assert (
        await refused(client_tls_cert_file=str(pair.certificate), client_tls_key_file=str(other.key))
        == "--prometheus-client-tls-cert-file"
    )


async def test_in_cluster_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_origin: OpenOrigin
) -> None:
    (tmp_path / "token").write_text("service-account\n")
    (tmp_path / "own").write_text("own")
    monkeypatch.setattr("adapter.kubernetes.credentials.SERVICE_ACCOUNT", tmp_path)
    origin = await open_origin("https://p", auth_incluster=True)
    assert origin.tls.ca_file == str(tmp_path / "ca.crt")
    assert (await origin.request_headers())["Authorization"] == "Bearer service-account"
    origin = await open_origin("https://p", auth_incluster=True, token_file=str(tmp_path / "own"))
    assert (await origin.request_headers())["Authorization"] == "Bearer own", "a token file wins"


async def test_kubeconfig_credentials(tmp_path: Path, authority: Authority, open_origin: OpenOrigin) -> None:
    pair = authority.issue()
    file = write_kubeconfig(
        tmp_path / "config",
        {
            "token": "from-kubeconfig",
            "client-certificate": str(pair.certificate),
            "client-key": str(pair.key),
        },
        server="https://api:6443",
        **{"certificate-authority": str(authority.file), "tls-server-name": "prometheus.example"},
    )
    origin = await open_origin("https://p", auth_config=str(file))
    assert origin.tls == TLSFiles(
        str(authority.file),
        str(pair.certificate),
        str(pair.key),
        verify=True,
        server_name="prometheus.example",
    )
    assert (await origin.request_headers())["Authorization"] == "Bearer from-kubeconfig"
    assert origin.endpoint.base == "https://p"


async def test_what_else_a_kubeconfig_says_of_the_connection(tmp_path: Path, open_origin: OpenOrigin) -> None:
    file = write_kubeconfig(
        tmp_path / "config",
        {"username": "me", "password": "secret"},
        server="https://api:6443",
        **{"insecure-skip-tls-verify": True, "proxy-url": "http://proxy:1"},
    )
    origin = await open_origin("https://p", auth_config=str(file))
    assert origin.proxy == "http://proxy:1"
    assert (await origin.request_headers())["Authorization"] == basic("me:secret")
    assert connection.build_context(origin.tls).verify_mode == ssl.CERT_NONE


async def test_a_ca_file_wins_over_the_clusters_credentials_silently(
    tmp_path: Path, authority: Authority, open_origin: OpenOrigin
) -> None:
    origin = await open_origin("https://p", ca_file=str(authority.file), auth_config="/nowhere")
    assert origin.tls == TLSFiles(str(authority.file))
    assert "Authorization" not in await origin.request_headers()


async def test_a_certificate_without_key_is_not_used(authority: Authority, open_origin: OpenOrigin) -> None:
    certificate = str(authority.issue().certificate)
    assert (await open_origin("https://p", client_tls_cert_file=certificate)).tls == TLSFiles()


@pytest.mark.parametrize(
    ("url", "environment", "proxy"), answers("prometheus/connection", "proxies come from the environment")
)
async def test_proxies_come_from_the_environment(
    url: str,
    environment: dict[str, str],
    proxy: str,
    monkeypatch: pytest.MonkeyPatch,
    open_origin: OpenOrigin,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert (await open_origin(url)).proxy == proxy


async def test_with_a_ca_file_there_is_no_proxy(
    authority: Authority, monkeypatch: pytest.MonkeyPatch, open_origin: OpenOrigin
) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:1")
    assert not (await open_origin("https://p", ca_file=str(authority.file))).proxy


async def test_secrets_are_not_shown(open_origin: OpenOrigin) -> None:
    origin = await open_origin("http://u:hidden@p", headers=(("X-Key", "hidden"),))
    assert "hidden" not in repr(origin)
    assert "hidden" not in repr(origin.options)
