"""Who a caller is: real TLS, real certificates, with token reviews that a test answers.

The access review that the server asks for names the user that it takes a caller for. `scripts/callers` has
most of it as data. After `> ` something happens:

- `server SETTINGS` starts another server, with `untrusted` one that has read no authorities yet.
- `ask CALLER HEADERS`: a caller is `anonymous` or `AUTHORITY/NAME/GROUP...`, for `+SECONDS` if they are said.
  The authority `short` ends in an hour.
  Headers are `Name:value`, `bob`, `admin` or `token`; `at=PATH` asks for another path. `open NAME CALLER`
  opens a connection, `on NAME HEADERS` asks on it.
- `trust FRONT-PROXY CLIENTS SETTINGS` is what the ConfigMap says now, `shake AUTHORITIES` what the handshake
  believes.
- `token USER` is the answer to a review, `no-token`, `reviews fail` and `reviews work`; `wait SECONDS`.

Below it is the user that the caller is taken for, or the refusal, and how many tokens were reviewed.
`scripts/test tests/server/auth --update` writes what is said now.
"""

import asyncio
import contextlib
import json
import logging
import shlex
import socket
import ssl
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes

from adapter.errors import KubernetesError
from adapter.model.identity import User
from adapter.server.auth.trust_store import TrustStore
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.support.certificates import DAY, SERVER_AUTH, Identity, Signer, config_map, pem
from tests.support.clock import ShiftedClock
from tests.support.scripts import Scripts
from tests.support.serving import Answer, Connection, Served, ServerFactory
from tests.support.tls import Authority

SCRIPTS = Scripts(Path(__file__).parent / "scripts" / "callers")
PROXY, CLIENTS, STRANGER = Signer("front-proxy-ca"), Signer("kubernetes"), Signer("stranger")
INTERMEDIATE = Signer("intermediate", parent=PROXY)
NAMESAKE = Signer("front-proxy-ca")
TWIN = Signer("front-proxy-ca", identified_as=PROXY)
SIGNERS = {
    "proxy": PROXY,
    "clients": CLIENTS,
    "stranger": STRANGER,
    "intermediate": INTERMEDIATE,
    "namesake": NAMESAKE,
    "twin": TWIN,
    "new-clients": Signer("kubernetes"),
}

PATH = "/version"
CREDENTIAL = "authentication.kubernetes.io/credential-id"
"""More reviews of tokens than may be under way at a time."""

UNAUTHORIZED = (
    '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
    '"message":"Unauthorized","reason":"Unauthorized","code":401}\n'
)
BOB = {"X-Remote-User": "bob"}
ADMIN = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
TOKEN = {"Authorization": "Bearer secret-token"}
TURNED_AWAY = (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)

Headers = dict[str, str] | list[tuple[str, str]]


class CertifiedCallers:
    """A server, its clock and its trust, and callers with certificates."""

    def __init__(self, served: Served, clock: ShiftedClock, authority: Authority, directory: Path) -> None:
        self.served = served
        self.clock = clock
        self.store = served.believed
        self._authority = authority
        self._directory = directory

    def context(
        self,
        shown: Identity | None = None,
        version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
        *,
        with_chain: bool = True,
    ) -> ssl.SSLContext:
        """Return the context of a client that shows this certificate."""
        context = self._authority.client_context()
        context.maximum_version = version
        if shown is not None:
            context.load_cert_chain(shown.write(self._directory, with_chain=with_chain))
        return context

    async def connect(self, shown: Identity | None = None, *, with_chain: bool = True) -> Connection:
        return await self.served.connect(self.context(shown, with_chain=with_chain))

    async def get(self, shown: Identity | None, headers: Headers, target: str = PATH) -> Answer:
        return await request(await self.connect(shown), headers, target)

    async def flood(self, count: int) -> Answer:
        """Send random tokens from one address, without waiting for their reviews; return the last answer."""
        connection = await self.connect()
        metric = "/apis/external.metrics.k8s.io/v1beta1/namespaces/n/m?timeout=1ns"
        for number in range(count):
            answer = await request(connection, {"Authorization": f"Bearer made-up-{number}"}, metric)
        return answer


async def request(connection: Connection, headers: Headers, target: str = PATH) -> Answer:
    """Send a request with headers that may come twice."""
    lines = list(headers.items() if isinstance(headers, dict) else headers)
    text = "\r\n".join(
        [f"GET {target} HTTP/1.1", "Host: x", *(f"{name}: {value}" for name, value in lines), "", ""]
    )
    connection.writer.write(text.encode())
    return await connection.read_answer()


Start = Callable[..., Any]


@pytest.fixture
def start(serve: ServerFactory, authority: Authority, tmp_path: Path) -> Start:
    """Return a starter of servers that believe what a ConfigMap says."""

    async def start(entries: dict[str, str] | None, **settings: Any) -> CertifiedCallers:
        clock = ShiftedClock()
        store = TrustStore(ProblemLog(Monitoring(), ShiftedClock()))
        if entries is not None:
            store.adopt_config_map(entries)
        return CertifiedCallers(
            await serve(believed=store, clock=clock, **settings), clock, authority, tmp_path
        )

    return start


@pytest.fixture
async def world(start: Start) -> CertifiedCallers:
    """Return a server as kubeadm's clusters have it."""
    made: CertifiedCallers = await start(config_map(PROXY.pem, CLIENTS.pem))
    return made


# --- the user that a caller is taken for


class CallerScript:
    """A server, callers and open connections, and what is said of them."""

    def __init__(self, world: CertifiedCallers, start: Start) -> None:
        self.world = world
        self.said: list[str] = []
        self._start = start
        self._shown: dict[str, Identity | None] = {"anonymous": None}
        self._numbers: dict[str, str] = {}
        self._open: dict[str, Connection] = {}

    def shown(self, text: str) -> Identity | None:
        """Return the certificate of a caller, the same each time."""
        if text not in self._shown:
            signer, name, *groups = text.partition("+")[0].split("/")
            ends = timedelta(seconds=int(text.partition("+")[2])) if "+" in text else DAY
            by = SIGNERS.get(signer) or Signer("i", parent=PROXY, lifetime=(-DAY, timedelta(hours=1)))
            shown = self._shown[text] = by.issue(name, *groups, lifetime=(-DAY, ends))
            self._numbers[f"X509SHA256={shown.certificate.fingerprint(hashes.SHA256()).hex()}"] = text
        return self._shown[text]

    async def ask(self, connecting: Any, words: list[str]) -> str:
        """Return the user that the server takes a caller for; no request is sent twice."""
        reviews = self.world.served.reviews
        before, reviewed = len(reviews.specs), len(reviews.reviewed)
        target, headers = f"/new-{before}", list[tuple[str, str]]()
        for word in words:
            if word.startswith("at="):
                target = word.removeprefix("at=")
            else:
                known = {"bob": BOB, "admin": ADMIN, "token": TOKEN}.get(word)
                name, _, value = word.partition(":")
                headers += known.items() if known else [(name, value)]
        try:
            answer = await request(await connecting, headers, target)
        except TURNED_AWAY:
            return "turned away in the handshake"
        said = f"{answer.status}"
        if answer.status == 401:
            assert answer.text == UNAUTHORIZED
            assert "www-authenticate" not in answer.headers
        for spec in reviews.specs[before:]:
            named = {key: value for key, value in spec.items() if key != "nonResourceAttributes"}
            if (extra := named.get("extra", {})).get(CREDENTIAL):
                (number,) = extra.pop(CREDENTIAL)
                extra["shown"] = self._numbers[number]
            said += f" {json.dumps(named, ensure_ascii=False)}"
        return (
            f"{said}{f', reviewed {len(reviews.reviewed) - reviewed}' * (len(reviews.reviewed) > reviewed)}"
        )

    async def happen(self, verb: str, *words: str) -> None:
        world = self.world
        match verb:
            case "ask":
                self.said.append(await self.ask(world.connect(self.shown(words[0])), [*words[1:]]))
            case "open":
                self._open[words[0]] = await world.connect(self.shown(words[1]))
            case "on":
                connection = asyncio.sleep(0, self._open[words[0]])
                self.said.append(await self.ask(connection, [*words[1:]]))
            case "trust":
                world.store.adopt_config_map(trusted(*words))
            case "server":
                entries = None if words == ("untrusted",) else trusted("proxy", "clients")
                self.world = await self._start(entries, anonymous="no-anonymous" not in words)
            case "shake":
                world.served.certificate.believe(pem(*(SIGNERS[name].certificate for name in words)))
            case "wait":
                world.clock.advance(float(words[0]))
            case _:
                self.review(verb, *words)

    def review(self, verb: str, *words: str) -> None:
        """Say what reviews of the token answer from now on."""
        reviews = self.world.served.reviews
        if verb == "token":
            reviews.tokens["secret-token"] = User(words[0], "5", ("g",), (("k", ("v",)),))
        elif verb == "no-token":
            del reviews.tokens["secret-token"]
        else:
            reviews.error = KubernetesError(0, "Unreachable", "down") if words == ("fail",) else None


def trusted(front_proxy: str, clients: str, *settings: str) -> dict[str, str]:
    """Return a ConfigMap of authorities; a setting is `FIELD=VALUE,...`."""
    bundles = ("".join(SIGNERS[name].pem for name in names.split("+")) for names in (front_proxy, clients))
    lists: dict[str, Any] = {
        f"requestheader_{name}": values.split(",") if values else []
        for name, values in (setting.split("=") for setting in settings)
    }
    return config_map(*bundles, **lists)


@pytest.mark.parametrize("title", SCRIPTS.titles)
async def test_script(title: str, world: CertifiedCallers, start: Start, pytestconfig: pytest.Config) -> None:
    script = CallerScript(world, start)
    for line in SCRIPTS.lines(title):
        script.said.append(f"> {line}")
        await script.happen(*shlex.split(line))
    SCRIPTS.check(title, script.said, pytestconfig)


# --- what is logged, held and resumed


async def test_an_ordinary_client_is_no_front_proxy(
    world: CertifiedCallers, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await world.get(CLIENTS.issue("alice"), ADMIN, "/new")).status == 404
    assert world.served.reviews.specs[0]["user"] == "alice"
    (record,) = [record for record in caplog.records if "is not accepted as front proxy" in record.message]
    facts = record.facts  # type: ignore[attr-defined]
    assert facts["name"] == "alice"
    assert facts["issuer"] == "CN=kubernetes"
    assert facts["authorities"] == "CN=front-proxy-ca"


async def test_a_name_that_is_not_allowed(world: CertifiedCallers, caplog: pytest.LogCaptureFixture) -> None:
    other = PROXY.issue("aggregator")
    assert [(await world.get(other, BOB)).status for _ in range(2)] == [401, 401]
    assert world.served.reviews.specs == []
    (record,) = [record for record in caplog.records if "is not accepted as front proxy" in record.message]
    assert record.levelno == logging.WARNING
    assert record.facts == {  # type: ignore[attr-defined]
        "name": "aggregator",
        "expected": "front-proxy-client",
        "issuer": "CN=front-proxy-ca",
        "authorities": "CN=front-proxy-ca",
        "reason": "its name 'aggregator' is not among those allowed",
    }
    world.clock.advance(60)
    await world.get(other, BOB)
    assert len([record for record in caplog.records if "is not accepted" in record.message]) == 2, (
        "said again, not each time"
    )


BAD = {
    "expired": PROXY.issue("front-proxy-client", lifetime=(-2 * DAY, -DAY)),
    "another authority, as client": STRANGER.issue("alice", "system:masters"),
    "authority of the same name and key identifier": TWIN.issue("front-proxy-client"),
    "intermediate that is no authority": Signer("i", parent=PROXY, is_authority=False).issue(
        "front-proxy-client"
    ),
    "client for servers only": CLIENTS.issue("alice", uses=(SERVER_AUTH,)),
}
"""tests/server/auth/test_trust.py has more of them."""


@pytest.mark.parametrize("shown", BAD.values(), ids=BAD)
async def test_bad_certificates_name_no_user(world: CertifiedCallers, shown: Identity) -> None:
    """Each is turned away in the handshake, and would be by the judgement of the request alone."""
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        with pytest.raises(TURNED_AWAY):
            await request(await world.served.connect(world.context(shown, version)), ADMIN)
    assert world.served.reviews.specs == []
    world.served.certificate.believe(
        pem(*(each.certificate for each in (PROXY, CLIENTS, STRANGER, NAMESAKE, TWIN)))
    )
    with contextlib.suppress(*TURNED_AWAY):
        assert (await world.get(shown, ADMIN)).status == 401
    assert world.served.reviews.specs == []


async def test_an_intermediate_authority_that_is_not_shown(world: CertifiedCallers) -> None:
    with pytest.raises(TURNED_AWAY):
        await request(await world.connect(INTERMEDIATE.issue("front-proxy-client"), with_chain=False), BOB)


def ask_in_a_thread(world: CertifiedCallers, context: ssl.SSLContext, session: Any) -> tuple[int, bool, Any]:
    """Return status, whether the session was resumed, and the session of one request; blocking."""
    with (
        socket.create_connection(("127.0.0.1", world.served.server.port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost", session=session) as secured,
    ):
        secured.sendall(
            b"GET /version HTTP/1.1\r\nHost: x\r\nX-Remote-User: bob\r\nConnection: close\r\n\r\n"
        )
        answer = secured.recv(64)
        return int(answer.split()[1]), bool(secured.session_reused), secured.session


@pytest.mark.parametrize(
    ("version", "issuer"),
    [
        (ssl.TLSVersion.TLSv1_2, INTERMEDIATE),
        (ssl.TLSVersion.TLSv1_3, INTERMEDIATE),
        (ssl.TLSVersion.TLSv1_3, PROXY),
    ],
)
async def test_a_resumed_session_is_worth_what_its_certificate_is_worth_now(
    world: CertifiedCallers, version: ssl.TLSVersion, issuer: Signer
) -> None:
    context = world.context(issuer.issue("front-proxy-client"), version)

    async def ask(session: Any) -> tuple[int, bool, Any]:
        return await asyncio.to_thread(ask_in_a_thread, world, context, session)

    status, resumed, session = await ask(None)
    assert (status, resumed) == (200, False)
    assert (await ask(session))[:2] == (200, True)
    world.store.adopt_config_map(config_map(STRANGER.pem, CLIENTS.pem))
    assert (await ask(session))[:2] == (401, True), "the handshake resumes it, the request is refused"
    world.store.adopt_config_map(config_map(PROXY.pem, CLIENTS.pem))
    assert (await ask(session))[:2] == (200, True)
    world.clock.advance(2 * 86_400)
    assert (await ask(session))[:2] == (401, True), "its time is over"


async def test_no_token_is_kept_or_logged(world: CertifiedCallers, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(1)
    secret = "eyJ-a-very-secret-token"
    world.served.reviews.tokens[secret] = User("owner")
    assert (await world.get(None, {"Authorization": f"Bearer {secret}"})).status == 200
    assert (await world.get(None, {"Authorization": f"Bearer {secret}-no"})).status == 401
    world.served.reviews.error = KubernetesError(500, "InternalError", "no")
    assert (await world.get(None, {"Authorization": f"Bearer {secret}-error"})).status == 401
    connection = await world.connect()
    connection.writer.write(
        f"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {secret}\x00\r\n\r\n".encode()
    )
    assert (await connection.read_answer()).status == 400
    assert not [record for record in caplog.records if secret in f"{record.getMessage()} {record.__dict__}"]
    kept = world.served.access._authenticator
    for cache in (kept._tokens._kept, kept._reader._users, kept._reader._classed):
        assert secret not in repr(dict(cache))
    assert all(len(key) == 32 for key in kept._tokens._kept)


async def test_the_key_of_digests_is_random(start: Start) -> None:
    one, other = await start(config_map(PROXY.pem)), await start(config_map(PROXY.pem))
    assert one.served.access._authenticator._digest(b"t") != other.served.access._authenticator._digest(b"t")


async def test_attempts_are_counted(world: CertifiedCallers) -> None:
    await world.get(None, {})
    await world.get(CLIENTS.issue("alice"), {})
    await world.get(None, TOKEN)
    await world.get(PROXY.issue("other"), BOB)
    value = world.served.monitoring.registry.get_sample_value
    assert value("authentication_attempts_total", {"result": "success"}) == 2
    assert value("authentication_attempts_total", {"result": "error"}) == 2
    assert value("authentication_token_cache_request_total", {"status": "miss"}) == 1
    assert value("fastpath_faults_total", {"fault": "front-proxy"}) == 1
    assert 'authentication_attempts{result="error"} 2.0' in world.served.monitoring.exposition()
