"""Who a caller is: real TLS, real certificates, with token reviews that a test answers.

Whom the server took a caller for is read from the access review that it asks for.
"""

import asyncio
import logging
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
from adapter.server.http.handler import HandlerLimits
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.support import waiting
from tests.support.certificates import DAY, SERVER_AUTH, Identity, Signer, config_map, pem
from tests.support.clock import ShiftedClock
from tests.support.serving import Answer, Connection, Served, ServerFactory
from tests.support.tls import Authority

PROXY, CLIENTS, STRANGER = Signer("front-proxy-ca"), Signer("kubernetes"), Signer("stranger")
AGGREGATOR = PROXY.issue("front-proxy-client")
ALICE = CLIENTS.issue("alice", "devs", "a,b")

PATH = "/version"
MOST = 401
"""More reviews of tokens than may be under way at a time."""

UNAUTHORIZED = (
    '{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",'
    '"message":"Unauthorized","reason":"Unauthorized","code":401}\n'
)
BOB = {"X-Remote-User": "bob"}
ADMIN = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
ANONYMOUS = {"user": "system:anonymous", "groups": ["system:unauthenticated"]}


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
        connection = await self.connect(shown)
        return await request(connection, headers, target)

    async def get_from(self, address: str, headers: Headers) -> Answer:
        """Send a request from another address of loopback."""
        return await request(await self.served.connect(address=address), headers)

    async def flood(self, count: int) -> Answer:
        """Send random tokens from one address, without waiting for their reviews; return the last answer."""
        connection = await self.connect()
        metric = "/apis/external.metrics.k8s.io/v1beta1/namespaces/n/m?timeout=1ns"
        for number in range(count):
            answer = await request(connection, {"Authorization": f"Bearer made-up-{number}"}, metric)
        return answer

    async def caller(self, shown: Identity | None, headers: Headers) -> dict[str, Any]:
        """Return whom the server takes this caller for.

        The request is one that was not sent before.
        """
        before = len(self.served.reviews.specs)
        answer = await self.get(shown, headers, f"/new-{before}")
        assert answer.status == 404, answer
        spec = self.served.reviews.specs[before]
        return {key: value for key, value in spec.items() if key != "nonResourceAttributes"}

    async def refused(self, shown: Identity, headers: dict[str, str]) -> str:
        """Return how the server turns a caller away: ``401`` or ``handshake``; fails when it does not."""
        try:
            answer = await self.get(shown, headers)
        except (ssl.SSLError, ConnectionError, asyncio.IncompleteReadError):
            return "handshake"
        assert (answer.status, answer.text) == (401, UNAUTHORIZED)
        return "401"


async def request(connection: Connection, headers: Headers, target: str = PATH) -> Answer:
    """Send a request with headers that may come twice."""
    lines = list(headers.items() if isinstance(headers, dict) else headers)
    text = "\r\n".join(
        [f"GET {target} HTTP/1.1", "Host: x", *(f"{name}: {value}" for name, value in lines), "", ""]
    )
    connection.writer.write(text.encode())
    return await connection.read_answer()


@pytest.fixture
def faults() -> ProblemLog:
    return ProblemLog(Monitoring(), ShiftedClock())


Start = Callable[..., Any]


@pytest.fixture
def start(serve: ServerFactory, authority: Authority, tmp_path: Path, faults: ProblemLog) -> Start:
    """Return a starter of servers that believe what a ConfigMap says."""

    async def start(entries: dict[str, str] | None, **settings: Any) -> CertifiedCallers:
        clock = ShiftedClock()
        store = TrustStore(faults)
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


# --- the front proxy


async def test_the_aggregators_own_names(world: CertifiedCallers) -> None:
    check = {"X-Remote-User": "system:kube-aggregator", "X-Remote-Group": "system:masters"}
    assert (await world.get(AGGREGATOR, check)).status == 200
    assert world.served.reviews.specs == [], "the availability check depends on no review"
    found = await world.caller(AGGREGATOR, {"X-Remote-User": "system:aggregator"})
    assert found == {"user": "system:aggregator", "groups": ["system:authenticated"]}


async def test_all_that_a_front_proxy_says(world: CertifiedCallers) -> None:
    headers = [
        ("X-Remote-User", "bob"),
        ("X-Remote-Group", "a,b"),
        ("x-remote-group", "c"),
        ("X-Remote-Uid", "7"),
        ("X-Remote-Extra-Example.com%2FScope", "x"),
        ("X-Remote-Extra-Example.com%2fscope", "y"),
    ]
    assert await world.caller(AGGREGATOR, headers) == {
        "user": "bob",
        "groups": ["a,b", "c", "system:authenticated"],
        "extra": {"example.com/scope": ["x", "y"]},
    }


async def test_without_a_certificate_no_spelling_helps(world: CertifiedCallers) -> None:
    names = ("X-Remote-User", "x-remote-user", "X-REMOTE-USER", "X-remote-useR")
    headers = [*((name, "admin") for name in names), ("x-Remote-group", "system:masters")]
    assert await world.caller(None, headers) == ANONYMOUS


async def test_an_ordinary_client_is_no_front_proxy(
    world: CertifiedCallers, caplog: pytest.LogCaptureFixture
) -> None:
    found = await world.caller(ALICE, ADMIN)
    assert (found["user"], found["groups"]) == ("alice", ["devs", "a,b", "system:authenticated"])
    (record,) = [record for record in caplog.records if "is not accepted as front proxy" in record.message]
    facts = record.facts  # type: ignore[attr-defined]
    assert facts["name"] == "alice"
    assert facts["issuer"] == "CN=kubernetes"
    assert facts["authorities"] == "CN=front-proxy-ca"


async def test_a_name_that_is_not_allowed(world: CertifiedCallers, caplog: pytest.LogCaptureFixture) -> None:
    other = PROXY.issue("aggregator")
    assert await world.refused(other, BOB) == "401"
    assert await world.refused(other, BOB) == "401"
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
    await world.refused(other, BOB)
    assert len([record for record in caplog.records if "is not accepted" in record.message]) == 2, (
        "said again, not each time"
    )


async def test_a_name_in_another_case_or_in_a_list_is_another_name(world: CertifiedCallers) -> None:
    for name in ("Front-Proxy-Client", "front-proxy-client ", "front-proxy-client,x", ""):
        assert await world.refused(PROXY.issue(name), BOB) == "401", name


async def test_any_name_where_none_is_required(start: Start) -> None:
    world = await start(config_map(PROXY.pem, CLIENTS.pem, requestheader_allowed_names=[]))
    assert (await world.caller(PROXY.issue("any-name"), BOB))["user"] == "bob"
    assert (await world.caller(PROXY.issue(""), BOB))["user"] == "bob"


async def test_one_authority_for_both_purposes_and_another_name(start: Start) -> None:
    world = await start(config_map(CLIENTS.pem, CLIENTS.pem))
    assert (await world.caller(CLIENTS.issue("aggregator"), BOB))["user"] == "aggregator", (
        "itself, as upstream"
    )
    assert (await world.caller(CLIENTS.issue("front-proxy-client"), BOB))["user"] == "bob"


async def test_a_front_proxy_that_names_no_user_is_refused(world: CertifiedCallers) -> None:
    assert await world.refused(AGGREGATOR, {"X-Remote-Group": "system:masters"}) == "401"
    assert await world.refused(AGGREGATOR, {"X-Remote-User": "", "X-Remote-Group": "system:masters"}) == "401"


# --- client certificates


async def test_a_client_certificate(world: CertifiedCallers) -> None:
    assert await world.caller(ALICE, {}) == {
        "user": "alice",
        "groups": ["devs", "a,b", "system:authenticated"],
        "extra": {
            "authentication.kubernetes.io/credential-id": [
                f"X509SHA256={ALICE.certificate.fingerprint(hashes.SHA256()).hex()}"
            ]
        },
    }


async def test_a_master_by_certificate(world: CertifiedCallers) -> None:
    assert (await world.get(CLIENTS.issue("root", "system:masters"), {})).status == 200
    assert world.served.reviews.specs == []


async def test_a_client_certificate_without_a_name(world: CertifiedCallers) -> None:
    assert await world.refused(CLIENTS.issue(""), {}) == "401"


INTERMEDIATE = Signer("intermediate", parent=PROXY)
NAMESAKE = Signer("front-proxy-ca")
TWIN = Signer("front-proxy-ca", identified_as=PROXY)


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
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            await request(await world.served.connect(world.context(shown, version)), ADMIN)
    assert world.served.reviews.specs == []
    world.served.certificate.believe(
        pem(*(each.certificate for each in (PROXY, CLIENTS, STRANGER, NAMESAKE, TWIN)))
    )
    assert await world.refused(shown, ADMIN) in {"401", "handshake"}
    assert world.served.reviews.specs == []


@pytest.mark.parametrize(
    "shown", [STRANGER.issue("front-proxy-client"), NAMESAKE.issue("alice"), TWIN.issue("front-proxy-client")]
)
async def test_the_judgement_does_not_rely_on_the_handshake(world: CertifiedCallers, shown: Identity) -> None:
    world.served.certificate.believe(pem(STRANGER.certificate, NAMESAKE.certificate, TWIN.certificate))
    assert await world.refused(shown, ADMIN) == "401"
    assert await world.refused(shown, {}) == "401", "never anonymous"


async def test_an_intermediate_authority(world: CertifiedCallers) -> None:
    shown = INTERMEDIATE.issue("front-proxy-client")
    assert (await world.caller(shown, BOB))["user"] == "bob"
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        await request(await world.connect(INTERMEDIATE.issue("front-proxy-client"), with_chain=False), BOB)


async def test_a_bundle_whose_authority_is_an_intermediate(start: Start) -> None:
    world = await start(config_map(INTERMEDIATE.pem, CLIENTS.pem))
    assert (await world.caller(INTERMEDIATE.issue("front-proxy-client"), BOB))["user"] == "bob"
    assert await world.refused(AGGREGATOR, BOB) == "handshake", "its root is not believed"


# --- trust is judged for every request


async def test_an_authority_that_is_taken_away_counts_at_once(world: CertifiedCallers) -> None:
    proxy, client = await world.connect(AGGREGATOR), await world.connect(ALICE)
    assert [(await request(each, BOB)).status for each in (proxy, client)] == [200, 200]
    new_proxy, new_clients = Signer("front-proxy-ca"), Signer("kubernetes")
    world.store.adopt_config_map(config_map(new_proxy.pem + PROXY.pem, new_clients.pem + CLIENTS.pem))
    assert [(await request(each, BOB)).status for each in (proxy, client)] == [200, 200], (
        "both, while they are changed"
    )
    assert (await world.caller(new_proxy.issue("front-proxy-client"), BOB))["user"] == "bob"
    world.store.adopt_config_map(config_map(new_proxy.pem, new_clients.pem))
    assert [(await request(each, BOB)).status for each in (proxy, client)] == [401, 401]
    assert await world.refused(AGGREGATOR, BOB) == "handshake"
    assert (await world.caller(new_proxy.issue("front-proxy-client"), BOB))["user"] == "bob"
    world.store.adopt_config_map(config_map(PROXY.pem, CLIENTS.pem))
    assert [(await request(each, BOB)).status for each in (proxy, client)] == [200, 200]


async def test_changed_names_and_headers_count_at_once(world: CertifiedCallers) -> None:
    connection = await world.connect(AGGREGATOR)
    assert (await request(connection, BOB)).status == 200
    world.store.adopt_config_map(config_map(PROXY.pem, CLIENTS.pem, requestheader_allowed_names=["another"]))
    assert (await request(connection, BOB)).status == 401
    world.store.adopt_config_map(config_map(PROXY.pem, CLIENTS.pem, requestheader_username_headers=["X-Who"]))
    assert (await request(connection, BOB)).status == 401
    assert (await request(connection, {"X-Who": "bob"})).status == 200


@pytest.mark.parametrize("chain", ["leaf", "intermediate"])
async def test_a_certificate_that_ends_while_its_connection_is_open(
    world: CertifiedCallers, chain: str
) -> None:
    short = (-DAY, timedelta(hours=1))
    issuer = PROXY if chain == "leaf" else Signer("i", parent=PROXY, lifetime=short)
    connection = await world.connect(
        issuer.issue("front-proxy-client", lifetime=short if chain == "leaf" else (-DAY, DAY))
    )
    assert (await request(connection, BOB)).status == 200
    world.clock.advance(3590)
    assert (await request(connection, BOB)).status == 200
    world.clock.advance(20)
    assert (await request(connection, BOB)).status == 401


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


async def test_before_anything_was_read_no_certificate_counts(start: Start) -> None:
    world = await start(None)
    assert world.store.find_fault() is not None
    assert await world.refused(AGGREGATOR, ADMIN) == "handshake"
    assert await world.refused(ALICE, {}) == "handshake"
    assert (await world.get(None, {}, "/livez")).status == 200
    assert await world.caller(None, ADMIN) == ANONYMOUS
    world.served.reviews.tokens["t"] = User("owner")
    assert (await world.caller(None, {"Authorization": "Bearer t"}))["user"] == "owner"
    world.store.adopt_config_map(config_map(PROXY.pem, CLIENTS.pem))
    assert (await world.caller(AGGREGATOR, BOB))["user"] == "bob"


# --- bearer tokens

TOKEN = {"Authorization": "Bearer secret-token"}


async def test_a_token(world: CertifiedCallers) -> None:
    world.served.reviews.tokens["secret-token"] = User("owner", "5", ("g",), (("k", ("v",)),))
    assert await world.caller(None, TOKEN) == {
        "user": "owner",
        "uid": "5",
        "groups": ["g", "system:authenticated"],
        "extra": {"k": ["v"]},
    }


async def test_an_unknown_token(world: CertifiedCallers) -> None:
    answer = await world.get(None, TOKEN)
    assert (answer.status, answer.text) == (401, UNAUTHORIZED)
    assert "www-authenticate" not in answer.headers
    assert (await world.get(None, TOKEN, "/livez")).status == 401, (
        "as upstream: credentials that are shown are judged"
    )
    assert world.served.reviews.specs == []


async def test_no_token_review_for_other_schemes(world: CertifiedCallers) -> None:
    for value in ("Basic dTpw", "Bearer", "Bearer  t", "Negotiate x", ""):
        assert await world.caller(None, {"Authorization": value}) == ANONYMOUS
    assert world.served.reviews.reviewed == []


async def test_the_order_of_authenticators(world: CertifiedCallers) -> None:
    world.served.reviews.tokens["secret-token"] = User("owner")
    assert (await world.caller(AGGREGATOR, BOB | TOKEN))["user"] == "bob"
    assert (await world.caller(ALICE, BOB | TOKEN))["user"] == "alice"
    assert world.served.reviews.reviewed == [], "a certificate is enough"
    assert (await world.caller(PROXY.issue("aggregator"), BOB | TOKEN))["user"] == "owner", (
        "a refusal is not the last word"
    )
    assert (await world.get(ALICE, {"Authorization": "Bearer bad"})).status == 200


async def test_an_answer_about_a_token_is_good_for_its_time(world: CertifiedCallers) -> None:
    reviews = world.served.reviews
    reviews.tokens["secret-token"] = User("owner")
    assert (await world.get(None, TOKEN)).status == 200
    del reviews.tokens["secret-token"]  # it has expired, or was revoked
    world.clock.advance(9)
    assert (await world.get(None, TOKEN)).status == 200
    assert reviews.reviewed == ["secret-token"]
    world.clock.advance(1)
    assert (await world.get(None, TOKEN)).status == 401
    reviews.tokens["secret-token"] = User("owner")
    world.clock.advance(9)
    assert (await world.get(None, TOKEN)).status == 401
    world.clock.advance(1)
    assert (await world.get(None, TOKEN)).status == 200
    assert reviews.reviewed == ["secret-token"] * 3


async def test_without_a_token_review_a_token_is_worth_nothing(world: CertifiedCallers) -> None:
    reviews = world.served.reviews
    reviews.tokens["secret-token"] = User("owner")
    assert (await world.get(None, TOKEN)).status == 200
    reviews.error = KubernetesError(0, "Unreachable", "down")
    assert (await world.get(None, TOKEN)).status == 200
    world.clock.advance(10)
    answer = await world.get(None, TOKEN)
    assert (answer.status, answer.text) == (401, UNAUTHORIZED)
    reviews.error = None
    assert (await world.get(None, TOKEN)).status == 200, "a failure is not kept"


@pytest.mark.parametrize("before", ["known", "of another address"])
async def test_a_good_token_does_not_wait_behind_made_up_ones(world: CertifiedCallers, before: str) -> None:
    """A flood of random tokens from an address keeps out neither a token that was accepted from there, nor
    the tokens of other addresses.
    """
    reviews = world.served.reviews
    reviews.tokens["secret-token"] = User("owner")
    if before == "known":
        assert (await world.get(None, TOKEN)).status == 200
    world.clock.advance(10)
    reviews.gate.clear()
    assert (await world.flood(MOST)).status == 429
    address = "127.0.0.1" if before == "known" else "127.0.0.2"
    async with asyncio.TaskGroup() as group:
        owner = group.create_task(world.get_from(address, TOKEN))
        await waiting.until(lambda: reviews.reviewed[-1] == "secret-token" or owner.done())
        reviews.gate.set()
    assert owner.result().status == 200


async def test_a_token_that_is_no_longer_good_loses_its_place(world: CertifiedCallers) -> None:
    reviews = world.served.reviews
    reviews.tokens["secret-token"] = User("owner")
    assert (await world.get(None, TOKEN)).status == 200
    del reviews.tokens["secret-token"]
    world.clock.advance(10)
    assert (await world.get(None, TOKEN)).status == 401
    world.clock.advance(10)
    reviews.gate.clear()
    await world.flood(MOST)
    assert (await world.get(None, TOKEN)).status == 429
    reviews.gate.set()


async def test_one_token_shown_many_times_from_one_address_leaves_room_for_others(start: Start) -> None:
    world = await start(config_map(PROXY.pem, CLIENTS.pem), limits=HandlerLimits(in_flight=8))
    reviews = world.served.reviews
    reviews.tokens["secret-token"] = User("owner")
    reviews.gate.clear()
    made_up = {"Authorization": "Bearer made-up"}
    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(world.get(None, made_up))
        await waiting.until(lambda: world.served.in_review == 2)
        assert (await world.get(None, made_up)).status == 429
        owner = group.create_task(world.get_from("127.0.0.2", TOKEN))
        await waiting.until(lambda: "secret-token" in reviews.reviewed or owner.done())
        reviews.gate.set()
    assert owner.result().status == 200


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


# --- anonymous and the rest


async def test_without_anonymous_only_open_paths_are_open(start: Start) -> None:
    world = await start(config_map(PROXY.pem, CLIENTS.pem), anonymous=False)
    assert (await world.get(None, {}, "/livez")).status == 200
    for target in (PATH, "/metrics", "/apis/custom.metrics.k8s.io/v1beta2/nodes/n/m", "/livez/ping"):
        answer = await world.get(None, ADMIN, target)
        assert (answer.status, answer.text) == (401, UNAUTHORIZED)
    assert (await world.caller(AGGREGATOR, BOB))["user"] == "bob"
    assert (await world.caller(AGGREGATOR, {"X-Remote-User": "system:anonymous"}))[
        "user"
    ] == "system:anonymous"


async def test_attempts_are_counted(world: CertifiedCallers) -> None:
    await world.get(None, {})
    await world.get(ALICE, {})
    await world.get(None, TOKEN)
    await world.get(PROXY.issue("other"), BOB)
    value = world.served.monitoring.registry.get_sample_value
    assert value("authentication_attempts_total", {"result": "success"}) == 2
    assert value("authentication_attempts_total", {"result": "error"}) == 2
    assert value("authentication_token_cache_request_total", {"status": "miss"}) == 1
    assert value("fastpath_faults_total", {"fault": "front-proxy"}) == 1
    assert 'authentication_attempts{result="error"} 2.0' in world.served.monitoring.exposition()


async def test_a_certificate_with_a_name_that_is_not_ascii(world: CertifiedCallers) -> None:
    assert (await world.caller(CLIENTS.issue("größe"), {}))["user"] == "größe"
