"""Several kubeconfig files, OIDC issuers, and client certificates that change."""

import base64
import json
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from adapter.errors import InputError
from adapter.kubernetes import client as kubernetes
from adapter.kubernetes import credentials
from adapter.telemetry.problems import ProblemLog
from fastpath_sandbox.listener import Listener
from tests.kubernetes.test_credentials import write_kubeconfig
from tests.support.answers import answers
from tests.support.clock import FakeClock
from tests.support.tls import Authority

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:aiohttp|kubernetes_asyncio")
"""The library calls aiohttp in ways that aiohttp 4 will not have."""


def token(expires: float) -> str:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": expires}).encode()).decode().rstrip("=")
    return f"e30.{claims}.c2ln"


class Issuer(Listener):
    """An OIDC issuer whose refresh tokens are accepted once."""

    def __init__(self, tls: ssl.SSLContext, now: float) -> None:
        super().__init__(self.answer, "127.0.0.1", 0, tls)
        self.refresh = "refresh-0"
        self.issued = 0
        self.token = token(now + 3600.0)

    async def answer(self, request: web.BaseRequest) -> web.Response:
        if request.method == "GET":
            assert request.path == "/.well-known/openid-configuration"
            return web.json_response({"token_endpoint": f"{self.url}/token"})
        said = await request.post()
        assert request.headers["Authorization"] == "Basic " + base64.b64encode(b"fastpath:secret").decode()
        if said["refresh_token"] != self.refresh:
            return web.json_response({"error": "invalid_grant"}, status=400)
        self.issued += 1
        self.refresh = f"refresh-{self.issued}"
        return web.json_response({"id_token": self.token, "refresh_token": self.refresh})

    def write(self, path: Path, authority: Path, **said: str) -> Path:
        config = {
            "client-id": "fastpath",
            "client-secret": "secret",
            "idp-issuer-url": self.url,
            "idp-certificate-authority": str(authority),
            "refresh-token": self.refresh,
        }
        return write_kubeconfig(path, {"auth-provider": {"name": "oidc", "config": config | said}})


def stored(path: Path) -> Any:
    return yaml.safe_load(path.read_text())["users"][0]["user"]["auth-provider"]["config"]


async def test_an_issuer_renews_a_token_that_expires(
    authority: Authority, tmp_path: Path, clock: FakeClock, faults: ProblemLog
) -> None:
    async with Issuer(authority.server_context(), clock.wall()) as issuer:
        first = token(clock.wall() + 100.0)
        path = issuer.write(tmp_path / "config", authority.file, **{"id-token": first})
        path.chmod(0o640)
        configuration = await credentials.load_configuration([path], clock, faults)
        assert await configuration.authorization() == f"Bearer {first}"
        assert issuer.issued == 0

        clock.advance(120.0)
        assert await configuration.authorization() == f"Bearer {issuer.token}"
        assert (stored(path)["id-token"], stored(path)["refresh-token"]) == (issuer.token, "refresh-1")
        assert path.stat().st_mode & 0o777 == 0o640
        assert [*tmp_path.glob("*")] == [path]  # noqa: ASYNC240 - a test waits for nothing

        again = await credentials.load_configuration([path], clock, faults)
        assert (await again.authorization(), issuer.issued) == (f"Bearer {issuer.token}", 1)


async def test_a_token_that_kubectl_has_renewed_is_used(
    authority: Authority, tmp_path: Path, clock: FakeClock, faults: ProblemLog
) -> None:
    async with Issuer(authority.server_context(), clock.wall()) as issuer:
        path = issuer.write(tmp_path / "config", authority.file, **{"id-token": token(clock.wall() + 100.0)})
        configuration = await credentials.load_configuration([path], clock, faults)
        second = token(clock.wall() + 1000.0)
        issuer.write(path, authority.file, **{"id-token": second})
        clock.advance(200.0)
        assert (await configuration.authorization(), issuer.issued) == (f"Bearer {second}", 0)


@pytest.mark.parametrize(
    ("reason", "said"), answers("kubernetes/kubeconfig", "a_token_that_cannot_be_renewed")
)
async def test_a_token_that_cannot_be_renewed(
    reason: str,
    said: dict[str, str],
    authority: Authority,
    tmp_path: Path,
    clock: FakeClock,
    faults: ProblemLog,
) -> None:
    async with Issuer(authority.server_context(), clock.wall()) as issuer:
        path = issuer.write(tmp_path / "config", authority.file, **said)
        if not said:
            (tmp_path / "config.lock").touch()
        before = path.read_text()
        with pytest.raises(InputError, match=rf"config: expected a usable .*context c: .*{reason}"):
            await credentials.load_configuration([path], clock, faults)
        assert (path.read_text(), issuer.issued) == (before, 0)


# -- several files -------------------------------------------------------------------------------------------


async def test_of_several_files_the_first_that_has_a_name_counts(
    tmp_path: Path, clock: FakeClock, faults: ProblemLog
) -> None:
    clusters, users = tmp_path / "clusters" / "config", tmp_path / "users" / "config"
    for file in (clusters, users):
        file.parent.mkdir()
    write_kubeconfig(clusters, {"token": "of the first"}, server="http://first")
    document = yaml.safe_load(clusters.read_text())
    del document["users"]
    clusters.write_text(yaml.safe_dump(document))
    write_kubeconfig(users, {"tokenFile": "token"}, server="http://second")
    users.write_text(users.read_text().replace('"current-context": "c"', '"current-context": "d"'))
    (users.parent / "token").write_text("of the second")

    configuration = await credentials.load_configuration([clusters, users], clock, faults)
    assert configuration.host == "http://first"
    assert await configuration.authorization() == "Bearer of the second"


@pytest.mark.parametrize("count", [0, 2])
async def test_a_user_is_there_once(count: int, tmp_path: Path, clock: FakeClock, faults: ProblemLog) -> None:
    path = write_kubeconfig(tmp_path / "c", {"token": "t"})
    document = yaml.safe_load(path.read_text())
    document["users"] *= count
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(InputError, match=f"users: expected one with the name 'u', found {count}"):
        await credentials.load_configuration([path], clock, faults)


# -- certificates that change --------------------------------------------------------------------------------


async def test_a_client_certificate_that_changes_is_used_for_new_connections(
    authority: Authority, tmp_path: Path, clock: FakeClock, faults: ProblemLog
) -> None:
    shown: list[str] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        subject = request.transport.get_extra_info("peercert")["subject"]
        shown.extend(value for ((name, value),) in subject if name == "commonName")
        return web.Response(headers={"Connection": "close"})

    def install(name: str) -> None:
        pair = authority.issue("client", common_name=name)
        (tmp_path / "own.crt").write_bytes(pair.certificate.read_bytes())
        (tmp_path / "own.key").write_bytes(pair.key.read_bytes())

    install("first")
    tls = authority.server_context(client_certificates=True)
    async with Listener(answer, "127.0.0.1", 0, tls) as server:
        user = {"client-certificate": "own.crt", "client-key": "own.key"}
        path = write_kubeconfig(
            tmp_path / "c", user, server=server.url, **{"certificate-authority": str(authority.file)}
        )
        configuration = await credentials.load_configuration([path], clock, faults)
        async with await kubernetes.connect(configuration, random=lambda: 0.0) as client:
            await client.get("/version")
            install("second")
            clock.advance(credentials.RENEWAL_SECONDS)
            await client.get("/version")
            assert shown == ["first", "second"]

            (tmp_path / "own.key").write_text("half of a key")
            clock.advance(credentials.RENEWAL_SECONDS)
            await client.get("/version")
            assert shown == ["first", "second", "second"]
            assert list(faults.active()) == [("credentials", "")]
